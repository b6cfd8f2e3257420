"""Workflows: jobs that wait for other jobs, and runs, beside plain jobs in the same reading and flows of peers.

A graph is enqueued while nothing runs; its time counts from the start of its first job to the end of its last one.  Rounds
of plain jobs, enqueued and run in the same way, alternate with those of graphs.
"""
import json
import statistics
import time
from typing import Any, Dict, List, NamedTuple

from . import clients, measure
from .clients import Place
from .cluster import Session, wait_until
from .pull import DISPATCHER
from .schedules import conductor, own_cpu
from .steady import SNAPSHOT
from .workloads import Outcome, latencies

KIND = "noop"


class Shape(NamedTuple):
    """A graph: how often, its width, its layers; no layers: plain jobs."""
    name: str                  # as the peers' programs know it
    width: int
    times: int = 1             # graphs
    layers: int = 0

    @property
    def jobs(self) -> int:
        return {"fanout": self.times * (self.width + 2), "layers": self.width * self.layers}.get(self.name, self.width)

    @property
    def last(self) -> int:
        """So many jobs at the end of the list may be the last one to end."""
        return 1 if self.name == "chain" or self.name == "fanout" and self.times == 1 else self.width if self.name == "layers" else self.jobs


def shape_of(variant: str, p: Dict[str, Any]) -> Shape:
    name = "layers" if variant.startswith("layers") else "fanout"
    return Shape(name, p["width"], p.get("times", 1), p.get("layers", 0))


# --- graphs of jobq -------------------------------------------------------------------------------

# Objects of jobq.enqueue_jobs by their number i from 1; `after` has numbers of earlier ones.
OBJECTS = {
    "plain": "SELECT i, '[]'::jsonb FROM generate_series(1, %(jobs)d) i",
    "fanout": """SELECT i, CASE WHEN k = 0 THEN '[]' WHEN k <= %(width)d THEN to_jsonb(ARRAY[i - k])
        ELSE to_jsonb(ARRAY(SELECT generate_series(i - %(width)d, i - 1))) END
        FROM (SELECT i, (i - 1) %% (%(width)d + 2) FROM generate_series(1, %(jobs)d) i) s(i, k)""",
    "layers": """SELECT i, CASE WHEN i <= %(width)d THEN '[]' ELSE to_jsonb(ARRAY(
        SELECT (i - 1) / %(width)d * %(width)d - %(width)d + (i - 1 + d) %% %(width)d + 1 FROM generate_series(0, 2) d)) END
        FROM generate_series(1, %(jobs)d) i""",
    "chain": "SELECT i, CASE WHEN i = 1 THEN '[]' ELSE to_jsonb(ARRAY[i - 1]) END FROM generate_series(1, %(jobs)d) i",
}
ENQUEUE = """TRUNCATE bench.graph; INSERT INTO bench.graph SELECT ordinal, id FROM jobq.enqueue_jobs((SELECT jsonb_agg(
 jsonb_build_object('job_type', '%(kind)s', 'after', parents, 'payload', jsonb_build_object('n', i)) ORDER BY i)
 FROM (%(objects)s) o(i, parents))); ANALYZE bench.graph"""
TABLES = "CREATE TABLE bench.graph (n int, id uuid)"
LIVE = "SELECT 1 FROM jobq.queue WHERE id = ANY (ARRAY(SELECT id FROM bench.graph ORDER BY n DESC LIMIT %d)) LIMIT 1"
OF_GRAPH = "FROM jobq.history JOIN bench.graph USING (id)"
ENDED = "SELECT count(*) %s WHERE status = 'completed'" % OF_GRAPH
FINISHED = "SELECT extract(epoch FROM max(completed_at)) " + OF_GRAPH
IN_FLIGHT = 2000   # jobs of four workers at once, and more


def enqueue(place: Place, shape: Shape, kind: str = KIND) -> None:
    """Enqueues the jobs of a shape while their type is paused."""
    sizes = {"jobs": shape.jobs, "width": shape.width}
    place.session.query("SELECT jobq.pause_job_type('%s')" % kind)
    place.session.query(ENQUEUE % {"kind": kind, "objects": OBJECTS[shape.name] % sizes})


def run(place: Place, shape: Shape, kind: str = KIND, patience: float = 120) -> float:
    """Runs the enqueued jobs; returns the seconds to the end of the last one."""
    began = time.time()
    place.session.query("SELECT jobq.resume_job_type('%s')" % kind)
    live = LIVE % min(shape.last, IN_FLIGHT)
    wait_until(lambda: not place.session.query(live), "the last jobs end", patience, 0.05)
    wait_until(lambda: int(place.session.value(ENDED)) == shape.jobs, "%d jobs complete" % shape.jobs, 30)
    return float(place.session.value(FINISHED)) - began


class Round(NamedTuple):
    seconds: float
    cpu: float


def rounds(place: Place, shapes: Dict[str, Shape], number: int) -> Dict[str, List[Round]]:
    """So many rounds of each shape, in turn; the first round of each warms up and is left out."""
    found: Dict[str, List[Round]] = {name: [] for name in shapes}
    for turn in range(number + 1):
        for name, shape in shapes.items():
            enqueue(place, shape)
            place.session.query("CHECKPOINT")
            cpu = measure.cpu_seconds(place.roots)
            seconds = run(place, shape)
            if turn > 0:
                found[name].append(Round(seconds, measure.cpu_seconds(place.roots) - cpu))
    return found


def seconds_of(found: List[Round]) -> float:
    return statistics.median(r.seconds for r in found)


def prepared(place: Place) -> None:
    place.session.query(TABLES)
    clients.connect_workers(place)


# --- fanout, layers -------------------------------------------------------------------------------

def graph(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Graphs beside as many plain jobs; of a peer only graphs."""
    shape = shape_of(variant, p)
    if place.subject.family != "jobq":
        return flow(place, shape, p["rounds"])
    prepared(place)
    found = rounds(place, {"plain": Shape("plain", shape.jobs), "graph": shape}, p["rounds"])
    rates = {name: shape.jobs / seconds_of(each) for name, each in found.items()}
    costs = {name: sum(r.cpu for r in each) / len(each) / shape.jobs for name, each in found.items()}
    return {"jobs": shape.jobs, "seconds": round(shape.jobs / rates["graph"], 6), "rate": round(rates["graph"], 1),
            "cpu_per_job": round(costs["graph"], 9), "plain": {"rate": round(rates["plain"], 1), "cpu_per_job": round(costs["plain"], 9)}}, {}


def flow(place: Place, shape: Shape, number: int) -> Outcome:
    """The same graph as a flow of a peer."""
    program = place.subject.worker[:2]
    told: List[Dict[str, Any]] = []
    costs: List[float] = []
    for _ in range(number + 1):
        jobs = clients.finish(place, clients.start(place, [
            *program, "flow", *place.subject.worker[3:], "--kind", KIND, "--shape", shape.name, "--width", str(shape.width),
            "--times", str(shape.times), "--layers", str(shape.layers)]))["jobs"]
        work = clients.begin_work(place, KIND, jobs, ("--flow",))
        cpu = measure.cpu_seconds(place.roots)
        clients.go(work)
        told.append(clients.wait_for_work(work))
        costs.append(measure.cpu_seconds(place.roots) - cpu)
    seconds = statistics.median(done["finished"] - done["started"] for done in told[1:])
    return {"jobs": jobs, "seconds": round(seconds, 6), "rate": round(jobs / seconds, 1),
            "cpu_per_job": round(sum(costs[1:]) / number / jobs, 9), "cpu_client": sum(done["cpu"] for done in told[1:]) / number}, {}


def snapshot(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Graphs without and under a held snapshot; `held` is the last of its rounds, with the dead rows of all."""
    prepared(place)
    place.session.query(MAPPED)
    shapes = {"fanout": Shape("fanout", p["fanout"]), "layers": Shape("layers", p["width"], layers=p["layers"])}

    def all_rounds() -> Dict[str, List[Round]]:
        found = rounds(place, shapes, p["rounds"])
        place.session.query("SELECT jobq.resume_job_type('%s')" % KIND)
        return {**found, "map": [map_round(place, {"times": 1, "width": p["fanout"]}) for _ in range(p["rounds"] + 1)][1:]}

    free = all_rounds()
    with Session(place.env) as holder:
        holder.query(SNAPSHOT)
        held = all_rounds()
    return {name: {"without": round(seconds_of(free[name]), 6), "held": round(seconds_of(held[name]), 6),
                   "last": round(held[name][-1].seconds, 6)} for name in free}, {}


# --- chain ----------------------------------------------------------------------------------------

# The handler does nothing but look at the clock: its start is its end.
LINK = """CREATE FUNCTION bench.link(payload jsonb) RETURNS jsonb LANGUAGE plpgsql AS
 'BEGIN RETURN to_jsonb(extract(epoch FROM clock_timestamp())); END';
 SELECT jobq.create_job_type('link', handler => 'bench.link(jsonb)');
 CREATE TABLE bench.bare (n bigint, payload jsonb)"""
BARE = "INSERT INTO bench.bare SELECT (p->>'n')::bigint, p FROM (SELECT $1::jsonb) s(p)"


def chain(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """From a handler to the next one's, beside bare commits before and after."""
    prepared(place)
    place.session.query(LINK)
    commits = bare_commits(place, p["commits"])
    warm, shape = Shape("chain", 20), Shape("chain", p["jobs"])
    with measure.cost(place.session, place.roots, place.subject.tables) as cost:
        for each in warm, shape:
            enqueue(place, each, "link")
            seconds = run(place, each, "link", 600)
    ran = [float(at) for at in place.session.query("SELECT result %s ORDER BY n" % OF_GRAPH)]
    commits += bare_commits(place, p["commits"])
    return {"jobs": shape.jobs, "seconds": round(seconds, 6), "rate": round(shape.jobs / seconds, 1),
            "latency": measure.quantiles(b - a for a, b in zip(ran, ran[1:])), "bare_commit": measure.quantiles(commits), **cost}, {}


def bare_commits(place: Place, number: int) -> List[float]:
    """Durations of the COMMIT of one inserted row."""
    clients.feed(place, "row", BARE, jobs=number, commit=True, times=place.work / "times")
    return [t[4] - t[3] for t in clients.read_times(place.work / "times")]


# --- blocked --------------------------------------------------------------------------------------

BLOCK = "SELECT jobq.create_job_type('gate', handler => 'bench.noop(jsonb)'), jobq.pause_job_type('gate')"
# Each tenth job is the parent of the nine after it.
BLOCKED = """SELECT count(*) FROM jobq.enqueue_jobs((SELECT jsonb_agg(jsonb_build_object('job_type', 'gate', 'payload', p::jsonb,
 'after', CASE WHEN (i - 1) % 10 = 0 THEN '[]' ELSE jsonb_build_array(i - (i - 1) % 10) END) ORDER BY i) FROM unnest($1::text[]) WITH ORDINALITY u(p, i)))"""
OF_CALL = 1000   # jobs of one call


def blocked(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Pickup and drain of other jobs, and the dispatcher's memory, without and with blocked jobs; then the pass at a start."""
    prepared(place)
    place.session.query(BLOCK)
    others(place, p)
    without = others(place, p)
    began = time.monotonic()
    calls = -(-p["blocked"] // (OF_CALL * 9 // 10))
    clients.feed(place, "gate", BLOCKED, jobs=calls * OF_CALL, bulk=OF_CALL)
    took = time.monotonic() - began
    clients.make_ready(place)
    beside = others(place, p)
    return {"jobs": calls * OF_CALL * 9 // 10, "enqueued": round(took, 3), "without": without, "with": beside, "pass": pass_at_start(place)}, {}


def others(place: Place, p: Dict[str, Any]) -> Dict[str, Any]:
    """Plain jobs, one now and then and many at once."""
    place.session.query("TRUNCATE bench.result; SELECT jobq.resume_job_type('row')")
    clients.feed(place, "row", rate=20, seconds=1, first=1 << 40)
    fed = clients.feed(place, "row", rate=p["rate"], seconds=p["seconds"], times=place.work / "times")
    clients.wait_for_rows(place, fed["jobs"] + 20)
    plain = Shape("plain", p["drain"])
    drained = rounds(place, {"plain": plain}, p["rounds"])["plain"]
    return {"latency": latencies(place, "call")["latency"], "rate": round(plain.jobs / seconds_of(drained), 1),
            "dispatcher": measure.private_bytes(int(place.session.value(DISPATCHER)))}


def pass_at_start(place: Place, quiet: float = 2.0, patience: float = 60.0) -> float:
    """Ends the conductor; returns the seconds until its successor uses no CPU any more."""
    pid = conductor(place)
    place.session.query("SELECT pg_terminate_backend(%d)" % pid)
    wait_until(lambda: not own_pid(pid), "the conductor ends", 30, 0.01)
    began = time.monotonic()
    pid = conductor(place)
    used, since = own_cpu(pid), time.monotonic()
    while time.monotonic() < min(since + quiet, began + patience):
        time.sleep(0.02)
        now = own_cpu(pid)
        if now > used:
            used, since = now, time.monotonic()
    return round(since - began, 3)


def own_pid(pid: int) -> bool:
    return pid in measure.processes()


# --- events ---------------------------------------------------------------------------------------

WAITERS = """SELECT jobq.create_workflow('waiter', '[{"key": "wait", "event": "go", "timeout": "1 day"},
  {"key": "ran", "job_type": "row", "after": ["wait"], "payload": {"n": {"$": "$.input.n"}}}]');
 SELECT jobq.resume_job_type('row');
 CREATE TABLE bench.run (n bigint PRIMARY KEY, id uuid)"""
START_WAITERS = """WITH run AS (SELECT i, jobq.enqueue('waiter', p) id FROM (SELECT p::jsonb, (p::jsonb->>'n')::bigint FROM unnest($1::text[]) p) s(p, i))
 INSERT INTO bench.run SELECT i, id FROM run"""
SEND = "SELECT jobq.send_event((SELECT id FROM bench.run WHERE n = ($1::jsonb->>'n')::bigint), 'go')"


def events(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Runs that wait for an event: wake-ups a second meanwhile, and from send_event to the handler."""
    prepared(place)
    place.session.query(WAITERS)
    began = time.monotonic()
    clients.feed(place, "row", START_WAITERS, jobs=p["runs"], bulk=100)
    wait_until(lambda: started_runs(place) >= p["runs"], "%d runs start" % p["runs"], 900, 0.2)
    took = time.monotonic() - began
    clients.make_ready(place)
    time.sleep(p["settle"])
    watched = {"conductor": conductor(place), "dispatcher": int(place.session.value(DISPATCHER))}
    before, since = {name: measure.context_switches(pid) for name, pid in watched.items()}, time.monotonic()
    time.sleep(p["seconds"])
    passed = time.monotonic() - since
    woken = {name: round((measure.context_switches(pid) - before[name]) / passed, 3) for name, pid in watched.items()}
    fed = clients.feed(place, "row", SEND, rate=p["rate"], seconds=p["send"], times=place.work / "times")
    clients.wait_for_rows(place, fed["jobs"])
    return {"jobs": p["runs"], "started": round(took, 3), "rate": round(p["runs"] / took, 1), "wakeups": woken,
            **latencies(place, "call"), "conductor": measure.private_bytes(watched["conductor"])}, {}


def started_runs(place: Place) -> int:
    return int(place.session.value("SELECT count(*) FROM jobq.runs"))


# --- map ------------------------------------------------------------------------------------------

MAPPED = """SELECT jobq.create_workflow('mapped', '%s')""" % json.dumps(
    [{"key": "m", "job_type": KIND, "map": "$.input.list", "payload": {}}, {"key": "join", "job_type": KIND, "after": ["m"]}])
MAP = """SELECT count(jobq.enqueue('mapped', jsonb_build_object('list', (SELECT jsonb_agg(i) FROM generate_series(1, %(width)d) i))))
 FROM generate_series(1, %(times)d)"""


def map_round(place: Place, sizes: Dict[str, Any]) -> Round:
    """Runs with a map and a join, from the enqueue to their ends."""
    place.session.query("CHECKPOINT")
    cpu, began = measure.cpu_seconds(place.roots), time.monotonic()
    place.session.query(MAP % sizes)
    wait_until(lambda: not place.session.query("SELECT 1 FROM jobq.queue LIMIT 1"), "the runs complete", 120, 0.01)
    return Round(time.monotonic() - began, measure.cpu_seconds(place.roots) - cpu)


def mapped(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Runs with a map and a join beside as many plain jobs that wait when the time begins."""
    prepared(place)
    place.session.query(MAPPED)
    sizes = {"times": 1, **p}
    plain = Shape("plain", sizes["times"] * (p["width"] + 1))
    found: Dict[str, List[Round]] = {"plain": [], "map": []}
    for turn in range(p["rounds"] + 1):
        for name, each in rounds(place, {"plain": plain}, 0 if turn == 0 else 1).items():
            found[name] += each
        took = map_round(place, sizes)
        found["map"] += [took] if turn else []
    return {"jobs": plain.jobs, **{name: {"rate": round(plain.jobs / seconds_of(each), 1),
                                          "cpu_per_job": round(sum(r.cpu for r in each) / len(each) / plain.jobs, 9)} for name, each in found.items()}}, {}


# --- start ----------------------------------------------------------------------------------------

TEN = """SELECT jobq.create_workflow('ten', '%s')""" % json.dumps(
    [{"key": "s%d" % n, "job_type": KIND, "after": ["s%d" % (n - 1)] if n else []} for n in range(10)])
STARTS = {"run": "SELECT jobq.enqueue('ten', $1::jsonb)", "enqueue": "SELECT count(jobq.enqueue('noop', $1::jsonb)) FROM generate_series(1, 11)"}


def start(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Runs of ten steps, from the first enqueue to the tasks of the last one, beside transactions of eleven enqueues; nothing runs."""
    place.session.query(TEN)
    found: Dict[str, List[Round]] = {name: [] for name in STARTS}
    for turn in range(p["rounds"] + 1):
        for name, sql in STARTS.items():
            wanted = started_runs(place) + (p["runs"] if name == "run" else 0)
            place.session.query("CHECKPOINT")
            cpu, began = measure.cpu_seconds(place.roots), time.monotonic()
            clients.feed(place, KIND, sql, jobs=p["runs"])
            wait_until(lambda: started_runs(place) >= wanted, "%d runs start" % p["runs"], 600, 0.02)
            took = Round(time.monotonic() - began, measure.cpu_seconds(place.roots) - cpu)
            found[name] += [took] if turn else []
    each = {name: {"seconds": round(seconds_of(took) / p["runs"], 9), "cpu": round(sum(r.cpu for r in took) / len(took) / p["runs"], 9)}
            for name, took in found.items()}
    return {"jobs": p["runs"], **each}, {}
