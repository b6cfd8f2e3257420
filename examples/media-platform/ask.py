#!/usr/bin/python3
"""ask.py ROLE METHOD PATH [JSON]: a request of jobq-web; prints the answer, or the status of a refusal."""
import base64, os, sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

role, method, path, *body = sys.argv[1:]
basic = base64.b64encode(f"{role}:{os.environ['WEB_PASSWORD']}".encode()).decode()
headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/json", "Accept": os.environ.get("ACCEPT", "application/json")}
try:
    with urlopen(Request(os.environ["WEB"] + path, body[0].encode() if body else None, headers, method=method), timeout=30) as answer:
        print(answer.read().decode())
except HTTPError as error:
    print(error.code)
