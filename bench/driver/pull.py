"""Jobs that clients claim: beside table queues written by hand, graphile-worker and pg-boss.

The workloads drain, pickup and steady serve these clients, too; plan.py gives each variant its connections.  Here are the
workloads about clients that wait, listen or hold leases.
"""
import contextlib
import os
import signal
import statistics
import time
from typing import Any, Dict, List

from . import clients, measure, workloads
from .clients import Place
from .cluster import Session, wait_until
from .steady import steady
from .subjects import BIN
from .workloads import Outcome

PULL = str(BIN / "pull")
DISPATCHER = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'jobq dispatcher' AND datname = current_database()"


def drain(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Runs waiting jobs by so many connections or handlers at once."""
    jobs = p["jobs"]
    clients.fill(place, p["kind"], jobs)
    options = ("--concurrency", str(p["concurrency"])) if "concurrency" in p else ()
    work = clients.begin_work(place, p["kind"], jobs, options)
    clients.at_rest(place)
    with measure.cost(place.session, place.roots, place.subject.tables) as cost:
        clients.go(work)
        done = clients.wait_for_work(work)
    if p["kind"] == "row":
        workloads.check_rows(place, jobs)
    seconds = done["finished"] - done["started"]
    return {"jobs": jobs, "seconds": round(seconds, 6), "rate": round(jobs / seconds, 1), "cpu_client": done["cpu"],
            "wal_per_job": round(cost["wal_bytes"] / jobs, 1), **cost}, {}


def pickup(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """From just before COMMIT to the handler of an idle client."""
    return workloads.pickup(place, "commit", p)


def held(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """An offered rate under a held snapshot."""
    return steady(place, "%d-snapshot" % p["rate"], p)


# --- listeners ------------------------------------------------------------------------------------

def listeners(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """The rate of 16 committers without listeners and with 50, in turn; `apart` is in units of the larger spread."""
    rates: Dict[str, List[float]] = {"without": [], "with": []}
    channel = place.session.value("SELECT quote_ident(jobq.channel('noop'))")
    for turn in range(p["rounds"]):
        for name in sorted(rates, reverse=turn % 2 == 0):
            with contextlib.ExitStack() as ends:
                for _ in range(50 if name == "with" else 0):
                    ends.enter_context(Session(place.env)).query("LISTEN " + channel)
                done = clients.feed(place, "noop", connections=16, jobs=p["jobs"])
            rates[name].append(done["jobs"] / done["seconds"])
    medians = {name: statistics.median(values) for name, values in rates.items()}
    spread = max(max(values) - min(values) for values in rates.values())
    return {"jobs": p["jobs"] * p["rounds"], "rate": round(medians["with"], 1), "without": round(medians["without"], 1),
            "spread": round(spread, 1)}, {}


# --- waiting --------------------------------------------------------------------------------------

WAITING = """SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = current_database()
 AND pid <> pg_backend_pid() AND state = 'active' AND wait_event_type = 'Extension'"""


def waiting(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """So many claims wait: wake-ups of their backends and of the dispatcher, and CPU of the server, each per second."""
    work = clients.begin_work(place, "noop", more=("--concurrency", str(p["claims"]), "--wait", "20"))
    clients.go(work)
    wait_until(lambda: len(place.session.query(WAITING)) == p["claims"], "%d claims wait" % p["claims"], 15, 0.2)
    time.sleep(p["settle"])   # the last of them may have just begun, and a timer of 10 s that an idle session had set fires
    backends = [int(pid) for pid in place.session.query(WAITING)]
    dispatcher = int(place.session.value(DISPATCHER))
    before = {pid: measure.context_switches(pid) for pid in (*backends, dispatcher)}
    ticks, began = used(before), time.monotonic()
    time.sleep(p["seconds"])
    passed, ticks = time.monotonic() - began, used(before) - ticks
    woken = {pid: measure.context_switches(pid) - count for pid, count in before.items()}
    os.kill(work.program.pid, signal.SIGTERM)
    clients.finish(place, work.program, 60)
    return {"claims": p["claims"], "seconds": round(passed, 3), "cpu_share": round(ticks / measure.TICKS / passed, 4),
            "wakeups": {"backends": round(sum(woken[pid] for pid in backends) / passed, 3),
                        "dispatcher": round(woken[dispatcher] / passed, 3)}}, {}


def used(pids: Dict[int, int]) -> int:
    """Ticks of CPU of these processes."""
    found = measure.processes()
    return sum(found[pid][1] for pid in pids if pid in found)


# --- leases ---------------------------------------------------------------------------------------

def leases(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Live leases, each renewed every `every` seconds: the dispatcher's share of a core and its memory."""
    clients.fill(place, "noop", p["leases"])
    program = clients.start(place, [PULL, "hold", "--kind", "noop", "--jobs", str(p["leases"]), "--every", str(p["every"]),
                                    "--seconds", str(p["seconds"])])
    if program.stdout.readline().strip() != "ready":
        clients.finish(place, program)
    pid = int(place.session.value(DISPATCHER))
    ticks, began = used({pid: 0}), time.monotonic()
    program.stdin.write("go\n")
    program.stdin.flush()
    told = clients.finish(place, program)
    passed, ticks = time.monotonic() - began, used({pid: 0}) - ticks
    return {"leases": told["jobs"], "rate": round(told["heartbeats"] / passed, 1), "late": told["late"], "seconds": round(passed, 3),
            "dispatcher": {"cpu": round(ticks / measure.TICKS / passed, 4), "bytes": measure.private_bytes(pid)}}, {}
