#!/usr/bin/python3
"""A local embedding API with the interface of Ollama's /api/embed.  Its model counts letters.

An empty text is refused with 400.  While the file "down" exists the answer is 503, of a proxy if it
is not empty; while "short" exists a vector is missing; while "hold" exists a request waits.  Each text that it takes is a line of "served".
"""
import json, os, string, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

lock = threading.Lock()


class Embed(BaseHTTPRequestHandler):
    def do_POST(self):
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        while os.path.exists("hold"):
            time.sleep(0.02)
        if os.path.exists("down"):
            if os.path.getsize("down"):
                return self.send_error(503)
            return self.answer(503, {"error": "the model is not loaded"})
        if "" in texts:
            return self.answer(400, {"error": "a text is empty"})
        with lock, open("served", "a") as served:
            served.writelines(text + "\n" for text in texts)
        vectors = [[text.lower().count(letter) for letter in string.ascii_lowercase] for text in texts]
        self.answer(200, {"embeddings": vectors[os.path.exists("short"):]})

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Embed)
with open("api.part", "w") as file:
    file.write(f"http://127.0.0.1:{server.server_port}/api/embed")
os.rename("api.part", "api.url")
server.serve_forever()
