#!/usr/bin/env python3
"""Signs in to the demo's jobq-web as the page does, and waits until the load shows: a type that fails, one that
waits for its limit.  Arguments: the address, the password."""
import base64
import json
import sys
import time
import urllib.request

address, password = sys.argv[1:]
basic = "Basic " + base64.b64encode(f"demo:{password}".encode()).decode()


def get(path):
    request = urllib.request.Request(address + path, headers={"Authorization": basic})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


for _ in range(120):
    types = {t["job_type"]: t for t in get("/api/v1/overview")["types"]}
    waiting = get("/api/v1/jobs?job_type=answer&status=pending&limit=1")["items"]
    codes = [r["code"] for r in get(f"/api/v1/jobs/{waiting[0]['id']}/why")["reasons"]] if waiting else []
    if types["charge"]["died"] and types["mail"]["completed"] and "rate" in codes:
        break
    time.sleep(0.5)
else:
    sys.exit(f"the load does not show: {types}, {codes}")
print("   mail: %(completed)s completed" % types["mail"])
print("   charge: %(died)s dead letters" % types["charge"])
print("   answer: %(pending)s wait for limit provider" % types["answer"])
