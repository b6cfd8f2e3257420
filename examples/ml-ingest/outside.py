#!/usr/bin/python3
"""Stands for the outside world: serves the files of directory media.

/private/ is answered with 403.  Every second answer to /flaky/ is 503, the first one, too.  While
the file "hold" exists, requests wait.
"""
import os, time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

failed = False


class Outside(SimpleHTTPRequestHandler):
    def do_GET(self):
        global failed
        while os.path.exists("hold"):
            time.sleep(0.02)
        if self.path.startswith("/private/"):
            return self.send_error(403)
        if self.path.startswith("/flaky/"):
            failed = not failed
            if failed:
                return self.send_error(503)
        self.path = self.path.replace("/flaky/", "/")
        super().do_GET()


server = ThreadingHTTPServer(("127.0.0.1", 0), lambda *arguments: Outside(*arguments, directory="media"))
with open("outside.part", "w") as file:
    file.write(f"http://127.0.0.1:{server.server_port}")
os.rename("outside.part", "outside.url")
server.serve_forever()
