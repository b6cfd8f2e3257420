"""The workloads: the tasks of a subject, one per reading.

A workload is a function (place, variant, parameters) -> (metrics, series).  driver/plan.py lists the subjects and
parameters of each; the steady loads are in driver/steady.py.
"""
import shutil
import time
from typing import Any, Dict, List, Tuple

from . import clients, measure
from .clients import Place, feed, fill
from .cluster import Session
from .subjects import BIN

Metrics = Dict[str, Any]
Outcome = Tuple[Metrics, Dict[str, List[Any]]]


# --- enqueue --------------------------------------------------------------------------------------

def enqueue(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Enqueues without workers.  c8: eight connections; bulk: one, 1,000 jobs a call."""
    options = {"connections": 8 if variant == "c8" else 1, "jobs": p["jobs"]}
    if variant == "bulk":
        options["bulk"] = 1000
    clients.at_rest(place)
    with measure.cost(place.session, place.roots, place.subject.tables) as cost:
        done = feed(place, "noop", **options)
    return {"jobs": done["jobs"], "seconds": done["seconds"], "rate": round(done["jobs"] / done["seconds"], 1),
            "calls": done["calls"], "cpu_client": done["cpu"], **cost}, {}


# --- drain ----------------------------------------------------------------------------------------

def drained(place: Place, kind: str, jobs: int) -> Metrics:
    """Runs the waiting jobs; the rate counts from go."""
    clients.connect_workers(place)
    work = clients.begin_work(place, kind, jobs)
    clients.at_rest(place)
    with measure.cost(place.session, place.roots, place.subject.tables) as cost:
        clients.go(work)
        done = clients.wait_for_work(work)
    seconds = done["finished"] - done["started"]
    return {"jobs": done["jobs"], "seconds": round(seconds, 6), "rate": round(done["jobs"] / seconds, 1),
            "cpu_client": done["cpu"], **cost}


def drain(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    jobs = min(p["jobs"] // place.subject.slow, place.subject.at_most)
    fill(place, p["kind"], jobs, p.get("priorities", 1), p.get("ready", True))
    metrics = drained(place, p["kind"], jobs)
    if p["kind"] == "row":
        check_rows(place, jobs)
    return metrics, {}


def check_rows(place: Place, jobs: int) -> None:
    """Checks that every job ran once: a queue that loses or repeats jobs gets no figure."""
    rows, distinct = place.session.value("SELECT count(*), count(DISTINCT n) FROM bench.result").split("|")
    if int(rows) != jobs or int(distinct) != jobs:
        raise RuntimeError("%s rows of %s jobs, expected %d" % (rows, distinct, jobs))


def deep(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """The first jobs of many."""
    fill(place, "noop", p["waiting"])
    return {**drained(place, "noop", p["jobs"]), "waiting": p["waiting"]}, {}


def disk(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Runs jobs under a held snapshot, and as many after its end, when autovacuum has come: bytes on disk after both."""
    with measure.cost(place.session, place.roots) as cost:
        with Session(place.env) as holder:
            holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
            for _ in range(p["rounds"]):
                one_round(place, p["jobs"])
            held = queue_bytes(place)
            holder.query("COMMIT")
        began = time.monotonic()
        while dead_rows(place) > p["jobs"] and time.monotonic() < began + p["patience"]:
            time.sleep(0.25)
        waited = time.monotonic() - began
        for _ in range(p["rounds"]):
            one_round(place, p["jobs"])
    jobs = p["rounds"] * p["jobs"]
    return {"jobs": 2 * jobs, "held_bytes": held, "bytes_per_job": round(held / jobs, 1), "again_bytes": queue_bytes(place),
            "waited": round(waited, 3), **cost}, {}


def dead_rows(place: Place) -> int:
    """Dead rows of the live jobs that no VACUUM has removed, by the statistics."""
    return int(place.session.value("SELECT pg_stat_get_dead_tuples('jobq.queue'::regclass)"))


def queue_bytes(place: Place) -> int:
    """Heap, TOAST and indexes of the live jobs."""
    return int(place.session.value("SELECT pg_total_relation_size('jobq.queue')"))


def one_round(place: Place, jobs: int) -> None:
    """Enqueues no-op jobs while their type is paused, then runs them."""
    place.session.query("SELECT jobq.pause_job_type('noop')")
    feed(place, "noop", jobs=jobs, bulk=1000)
    work = clients.begin_work(place, "noop", jobs)
    clients.go(work)
    clients.wait_for_jobq(work)


def memory(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Runs rounds of jobs in the same processes: private memory of each after the first round and after the last."""
    rounds: List[Dict[str, int]] = []
    with measure.cost(place.session, place.roots, place.subject.tables) as cost:
        for _ in range(p["rounds"]):
            one_round(place, p["jobs"])
            rounds.append(private_memory(place))
    return {"jobs": p["rounds"] * p["jobs"], "first": rounds[0], "last": rounds[-1], **cost}, {
        "round": list(range(1, len(rounds) + 1)), "bytes": [sum(r.values()) for r in rounds]}


def private_memory(place: Place) -> Dict[str, int]:
    """Private memory of the queue's processes in the server, the largest of each kind, in bytes."""
    found: Dict[str, int] = {}
    for pid, name in queue_processes(place).items():
        if name.startswith("jobq"):
            found[name] = max(found.get(name, 0), measure.private_bytes(pid))
    return found


# --- pickup ---------------------------------------------------------------------------------------

def pickup(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """One job now and then into an idle queue: from before the call, or from before COMMIT, to the handler's clock."""
    options = {"rate": p["rate"], "seconds": p["seconds"], "times": place.work / "times"}
    if variant == "commit":
        options["commit"] = True
    if not place.subject.worker and place.subject.family != "jobq":
        return bare_commit(place, options)
    work = clients.begin_work(place, "row")
    clients.go(work)
    feed(place, "row", rate=20, seconds=1, first=1000000)   # warm: connected, planned, workers started
    with measure.cost(place.session, place.roots) as cost:
        fed = feed(place, "row", **options)
        clients.wait_for_rows(place, fed["jobs"] + 20)
    cost["cpu_client"] = round(clients.end_work(work)["cpu"] + fed["cpu"], 3)
    return {**latencies(place, variant), "jobs": fed["jobs"], **cost}, {}


def latencies(place: Place, variant: str) -> Metrics:
    """`latency`, and the duration of COMMIT itself."""
    ran = clients.read_results(place)
    times = clients.read_times(place.work / "times")
    since = 3 if variant == "commit" else 2
    metrics = {"latency": measure.quantiles(ran[int(t[0])] - t[since] for t in times)}
    if variant == "commit":
        metrics["commit"] = measure.quantiles(t[4] - t[3] for t in times)
    return metrics


def bare_commit(place: Place, options: Dict[str, Any]) -> Outcome:
    """The COMMIT of a plain insert, at the same pace."""
    fed = feed(place, "row", **options)
    took = measure.quantiles(t[4] - t[3] for t in clients.read_times(place.work / "times"))
    return {"jobs": fed["jobs"], "bare_commit": took, "cpu_client": fed["cpu"]}, {}


# --- exec -----------------------------------------------------------------------------------------

def exec_tools(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """/bin/true, so many at once; beside it a loop that only spawns."""
    jobs = p["jobs"]
    if place.subject.name == "bare/spawn-loop":
        done = clients.finish(place, clients.start(place, [str(BIN / "spawn_loop"), "--jobs", str(jobs), "--concurrency",
                                                           variant, "--", "/bin/true"]))
        return {"jobs": jobs, "seconds": done["seconds"], "rate": round(jobs / done["seconds"], 1),
                "cpu_client": done["cpu"]}, {}
    place.session.query("""SELECT jobq.create_job_type('true', command => '{/bin/true}', max_concurrent => %s,
                           options => '{"output": "none"}'), jobq.pause_job_type('true')""" % variant)
    fill(place, "true", jobs)
    return drained(place, "true", jobs), {}


def exec_warm(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """One instance of the smallest warm tool, from a path that the server's user may run it from."""
    tool = shutil.copy(BIN / "warm_echo", place.work / "warm_echo")
    place.session.query("""SELECT jobq.create_job_type('warm', command => '{%s}', options => '{"warm": 1}'),
                           jobq.pause_job_type('warm')""" % tool)
    fill(place, "warm", p["jobs"])
    return drained(place, "warm", p["jobs"]), {}


# --- idle -----------------------------------------------------------------------------------------

def idle(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """An idle queue: voluntary context switches and statements per second."""
    work = clients.begin_work(place, "noop")
    clients.go(work)
    feed(place, "noop", jobs=100)
    # until statistics are written and idle workers have left
    time.sleep(p["settle"])
    watched = queue_processes(place)
    statements = STATEMENTS % int(place.session.value("SELECT oid FROM pg_database WHERE datname = current_database()"))
    before, counted = {pid: measure.context_switches(pid) for pid in watched}, int(place.session.value(statements))
    cpu, began = measure.cpu_seconds(place.roots), time.monotonic()
    time.sleep(p["seconds"])
    passed = time.monotonic() - began
    after, cpu = {pid: measure.context_switches(pid) for pid in watched}, measure.cpu_seconds(place.roots) - cpu
    counted = int(place.session.value(statements)) - counted - 1   # this query
    clients.end_work(work)
    wakeups: Dict[str, float] = {}
    for pid, name in watched.items():
        wakeups[name] = round(wakeups.get(name, 0) + max(0, after[pid] - before[pid]) / passed, 3)
    return {"seconds": round(passed, 3), "wakeups": wakeups, "wakeups_total": round(sum(wakeups.values()), 3),
            "statements": round(counted / passed, 3), "cpu_server": round(cpu, 2)}, {}


STATEMENTS = "SELECT coalesce(sum(calls), 0) FROM bench.pg_stat_statements WHERE dbid = %d"


def queue_processes(place: Place) -> Dict[int, str]:
    """pid -> name of every process of the queue: its backends (not ours), its clients, its own servers."""
    rows = place.session.query("""SELECT pid, backend_type FROM pg_stat_activity WHERE pid <> pg_backend_pid()
        AND (backend_type LIKE 'jobq%' OR backend_type = 'client backend' AND datname = current_database())""")
    found = {int(pid): name for pid, name in (row.split("|") for row in rows)}
    found.update({program.pid: "client" for program in place.programs if program.poll() is None})
    found.update({pid: "server" for pid in place.roots[1:]})
    return found


# --- unique ---------------------------------------------------------------------------------------

# One constant key, enqueued and cancelled again and again; only the call of enqueue is timed.
UNIQUE = """
SET synchronous_commit = off;
CREATE TEMP TABLE took (thousand int, spent interval);
DO $$
DECLARE
  began timestamptz;
  spent interval := '0';
  job uuid;
BEGIN
  FOR i IN 1..%d LOOP
    began := clock_timestamp();
    job := jobq.enqueue('noop', unique_key => 'refresh');
    spent := spent + (clock_timestamp() - began);
    COMMIT;
    PERFORM jobq.cancel_job(job);
    COMMIT;
    IF i %% 1000 = 0 THEN
      INSERT INTO took VALUES (i / 1000, spent);
      spent := '0';
    END IF;
  END LOOP;
END $$;
SELECT thousand, extract(epoch FROM spent) / 1000 FROM took ORDER BY 1;
"""


def unique(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """The mean time of an enqueue, per thousand dead rows of the same key that a held snapshot keeps."""
    with Session(place.env) as holder, measure.cost(place.session, place.roots, place.subject.tables) as cost:
        holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        rows = [row.split("|") for row in place.session.query(UNIQUE % p["jobs"])]
        holder.query("COMMIT")
    per_thousand = [round(float(seconds), 7) for _, seconds in rows]
    return {"jobs": p["jobs"], "first": per_thousand[0], "last": per_thousand[-1], **cost}, {
        "thousand": [int(thousand) for thousand, _ in rows], "enqueue": per_thousand}


# --- lanes ----------------------------------------------------------------------------------------

def lanes(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """One ready job in each of types x priorities lanes (variant 1: as many in one lane), then pickup with them known."""
    types, priorities = p["types"], p["priorities"]
    jobs = types * priorities
    if variant == "1":
        fill(place, "row", jobs)
    else:
        place.session.query("""SELECT count(jobq.create_job_type(t, handler => 'bench.row(jsonb)')),
            count(jobq.pause_job_type(t)) FROM (SELECT 'lane' || i FROM generate_series(0, %d) i) s(t)""" % (types - 1))
        place.session.query("""SELECT count(jobq.enqueue('lane' || t, jsonb_build_object('n', t * %d + p), priority => p))
            FROM generate_series(0, %d) t, generate_series(0, %d) p""" % (priorities, types - 1, priorities - 1))
        clients.make_ready(place)
    work = clients.begin_work(place, "row" if variant == "1" else "lane%", jobs)
    with measure.cost(place.session, place.roots, place.subject.tables) as cost:
        clients.go(work)
        done = clients.wait_for_work(work)
    check_rows(place, jobs)
    seconds = done["finished"] - done["started"]
    sql = place.subject.enqueue if variant == "1" else LANE_ENQUEUE % {"types": types, "priorities": priorities}
    place.session.query("TRUNCATE bench.result")
    fed = feed(place, "row", sql, rate=p["rate"], seconds=p["seconds"], times=place.work / "times")
    clients.wait_for_rows(place, fed["jobs"])
    return {"jobs": jobs, "seconds": round(seconds, 6), "rate": round(jobs / seconds, 1), **cost,
            **latencies(place, "call")}, {}


LANE_ENQUEUE = """SELECT jobq.enqueue('lane' || (p->>'n')::int %% %(types)d, p, priority => (p->>'n')::int %% %(priorities)d)
 FROM (SELECT $1::jsonb) s(p)"""


# --- aging ----------------------------------------------------------------------------------------

AGING = """SELECT jobq.create_job_type('low', handler => 'bench.row(jsonb)', options => '%s'),
 jobq.create_job_type('high', handler => 'bench.row(jsonb)', base_priority => 10), jobq.pause_job_type('low'), jobq.pause_job_type('high')"""

# Jobs of low priority that started while one of high priority was due and had still to wait.
BECAUSE = """SELECT count(*) FROM jobq.jobs l WHERE l.job_type = 'low' AND l.started_at <
 (SELECT max(h.started_at) FROM jobq.jobs h WHERE h.job_type = 'high' AND h.scheduled_for < l.started_at)"""


def aging(place: Place, variant: str, p: Dict[str, Any]) -> Outcome:
    """Newer jobs of priority 0 behind a backlog of priority 10, which one worker drains; `on`: they age by up to twelve."""
    options = '{"aging": {"per": "%dms", "max": 12}}' % p["step_ms"] if variant == "on" else "{}"
    place.session.query(AGING % options)
    fill(place, "high", p["high"])
    feed(place, "low", jobs=p["low"], bulk=1000)
    began = time.time()
    place.session.query("SELECT jobq.resume_job_type('low'), jobq.resume_job_type('high')")
    clients.wait_for_rows(place, p["low"] + p["high"])
    seconds = time.time() - began
    return {"jobs": p["low"] + p["high"], "seconds": round(seconds, 3), "rate": round((p["low"] + p["high"]) / seconds, 1),
            "because_of_aging": int(place.session.value(BECAUSE))}, {}
