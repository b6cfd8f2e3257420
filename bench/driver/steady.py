"""Steady loads: jobs offered at a fixed rate for a while, independent of how fast the queue runs them.

Latency is from the due time of a job, not from its sending, to the first clock reading of its handler.  During the run
only the server's CPU is sampled, once a second; all else is computed afterwards from load's times and the rows of the
jobs.  In the series a second stands for the jobs that were due in it; `rate` and `cpu` are of that second, `backlog`
of its end.
"""
import bisect
import contextlib
import threading
import time
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from . import clients, measure
from .clients import Place, feed
from .cluster import Session

CONNECTIONS = {500: 8, 570: 8, 1800: 32, 2000: 32, 10000: 64}   # enough that a commit of 10 ms is not the limit
# Jobs in one statement, every second.  20 of 5 ms would be 25 ms of work for four workers: a p99
# over the goal by themselves.
BURST = {"1ms": 20, "5ms": 10}
SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class"


def steady(place: Place, variant: str, p: Dict[str, Any]) -> Tuple[Dict[str, Any], Dict[str, List[Any]]]:
    """variant: the rate, and what else goes on in the database."""
    rate, _, company = variant.partition("-")
    kind = "busy" if company in BUSY_SECONDS else "row"
    prepare(place, company, p)
    work = clients.begin_work(place, kind)
    clients.go(work)
    feed(place, kind, rate=20, seconds=1, first=1 << 40)   # warm: connected, planned, workers started
    options = {"rate": rate, "seconds": p["seconds"], "connections": CONNECTIONS[int(rate)], "times": place.work / "times"}
    with measure.cost(place.session, place.roots, place.subject.tables) as cost:
        with in_company(place, company, p["seconds"]), sampled(lambda: measure.cpu_seconds(place.roots)) as samples:
            fed = feed(place, kind, **options)
        caught_up = catch_up(place, fed["jobs"] + 20)
    cpu_client = clients.end_work(work)["cpu"] + fed["cpu"]
    times, ran = clients.read_times(place.work / "times"), clients.read_results(place)
    series = make_series(times, ran, samples, p["seconds"])
    metrics = summary(times, ran, series, p.get("edge", max(1, p["seconds"] // 4)))
    if company == "midway":
        metrics.update(halves(times, ran, p["seconds"] / 2))
    metrics.update(cost, jobs=fed["jobs"], calls=fed["calls"], cpu_client=round(cpu_client, 3),
                   wal_per_job=round(cost["wal_bytes"] / fed["jobs"], 1))
    if caught_up is not None:
        metrics["catch_up"] = round(caught_up, 3)
    return metrics, series


def catch_up(place: Place, rows: int) -> Optional[float]:
    """Seconds from the last enqueue to the empty queue; None if that took more than a minute."""
    began = time.monotonic()
    with contextlib.suppress(RuntimeError):
        clients.wait_for_rows(place, rows)
        return time.monotonic() - began
    return None


# --- company --------------------------------------------------------------------------------------

# A paused type, and a type at its limit: one of its jobs runs as long as the reading.
CROWD = """
CREATE FUNCTION bench.sleep() RETURNS void LANGUAGE sql AS 'SELECT pg_sleep(%d)';
SELECT jobq.create_job_type('crowd_paused', handler => 'bench.noop(jsonb)'), jobq.pause_job_type('crowd_paused'),
       jobq.create_job_type('crowd_limited', handler => 'bench.sleep()', max_concurrent => 1, timeout => '0');
"""


# Jobs of a fixed duration, independent of the load of the processors.
BUSY_SECONDS = {"1ms": 0.001, "5ms": 0.005}
BUSY = """
CREATE FUNCTION bench.busy(payload jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM bench.row(payload);
  PERFORM pg_sleep(%g);
END $$;
SELECT jobq.create_job_type('busy', handler => 'bench.busy(jsonb)'), jobq.pause_job_type('busy');
"""


def prepare(place: Place, company: str, p: Dict[str, Any]) -> None:
    """The waiting jobs before the load begins."""
    if company == "future":
        feed(place, "row", place.subject.enqueue_later, jobs=p["future"], bulk=1000, first=1 << 41)
    elif company == "crowd":
        place.session.query(CROWD % (p["seconds"] + 300))
        for kind in "crowd_paused", "crowd_limited":
            feed(place, kind, jobs=p["crowd"], bulk=1000, first=1 << 41)
    elif company in BUSY_SECONDS:
        place.session.query(BUSY % BUSY_SECONDS[company])
    clients.make_ready(place)


@contextlib.contextmanager
def in_company(place: Place, company: str, seconds: int) -> Iterator[None]:
    """Holds snapshots open in the same database while the body runs; midway: one, in its second half.  Or bursts come."""
    if company == "snapshot":
        with Session(place.env) as holder:
            holder.query(SNAPSHOT)
            yield
    elif company == "midway":
        with Session(place.env) as holder:
            begin = threading.Timer(seconds / 2, holder.query, (SNAPSHOT,))
            begin.start()
            try:
                yield
            finally:
                begin.cancel()
                begin.join()
    elif company == "readers":
        over = threading.Event()
        readers = threading.Thread(target=read_in_turn, args=(place.env, over, min(30.0, seconds / 4)))
        readers.start()
        try:
            yield
        finally:
            over.set()
            readers.join()
    elif company in BUSY_SECONDS:
        over = threading.Event()
        bursts = threading.Thread(target=send_bursts, args=(place, BURST[company], over))
        bursts.start()
        try:
            yield
        finally:
            over.set()
            bursts.join()
    else:
        yield


def send_bursts(place: Place, jobs: int, over: threading.Event) -> None:
    """Bursts of jobs: the reading takes their effect on the latency of other jobs, not their own latency."""
    first = 1 << 41
    while not over.wait(1.0):
        feed(place, "busy", jobs=jobs, bulk=jobs, first=first)
        first += jobs


def read_in_turn(env: Dict[str, str], over: threading.Event, long: float) -> None:
    """Four transactions, each so long, begun a quarter of that apart: at least three are open at any time."""
    with contextlib.ExitStack() as sessions:
        readers = [sessions.enter_context(Session(env)) for _ in range(4)]
        for reader in readers:
            reader.query(SNAPSHOT)
        turn = 0
        while not over.wait(long / 4):
            readers[turn % 4].query("COMMIT; " + SNAPSHOT)
            turn += 1


@contextlib.contextmanager
def sampled(look, interval: float = 1.0) -> Iterator[List[Tuple[float, float]]]:
    """(epoch, value) at every interval while the body runs, and once before and after it."""
    samples = [(time.time(), look())]
    over = threading.Event()

    def sample() -> None:
        due = time.monotonic()
        while not over.is_set():
            due += interval   # from the ideal moment, so that delays do not add up
            over.wait(max(0.0, due - time.monotonic()))
            samples.append((time.time(), look()))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield samples
    finally:
        over.set()
        sampler.join()


# --- afterwards -----------------------------------------------------------------------------------

def make_series(times: Sequence[Sequence[float]], ran: Dict[int, float], samples: Sequence[Tuple[float, float]],
                seconds: int) -> Dict[str, List[Any]]:
    """One entry a second from when the first job was due."""
    start = times[0][1]
    latency: List[List[float]] = [[] for _ in range(seconds)]
    for n, due, *_ in times:
        if int(n) in ran:
            latency[min(seconds - 1, int(due - start))].append(ran[int(n)] - due)
    enqueued = sorted(t[4] for t in times)
    done = sorted(ran[int(t[0])] for t in times if int(t[0]) in ran)
    edges = [start + second for second in range(seconds + 1)]
    done_at = [bisect.bisect_right(done, edge) for edge in edges]
    cpu_at = [interpolate(samples, edge) for edge in edges]
    found = [measure.quantiles(values) for values in latency]
    return {"second": list(range(seconds)), "p50": [q.get("p50") for q in found], "p99": [q.get("p99") for q in found],
            "rate": [b - a for a, b in zip(done_at, done_at[1:])],
            "cpu": [round(b - a, 3) for a, b in zip(cpu_at, cpu_at[1:])],
            "backlog": [bisect.bisect_right(enqueued, edge) - n for edge, n in zip(edges[1:], done_at[1:])]}


def halves(times: Sequence[Sequence[float]], ran: Dict[int, float], half: float) -> Dict[str, Any]:
    """The latency of the jobs that were due before the snapshot was taken, and of those after it."""
    start = times[0][1]
    late = [(due - start >= half, ran[int(n)] - due) for n, due, *_ in times if int(n) in ran]
    return {name: measure.quantiles(l for under, l in late if under == held) for name, held in (("clean", False), ("held", True))}


def interpolate(samples: Sequence[Tuple[float, float]], at: float) -> float:
    """The value between the two samples around a moment."""
    i = min(max(1, bisect.bisect_left(samples, (at, 0.0))), len(samples) - 1)
    (t0, v0), (t1, v1) = samples[i - 1], samples[i]
    return v0 + (v1 - v0) * min(1.0, max(0.0, (at - t0) / (t1 - t0)))


def summary(times: Sequence[Sequence[float]], ran: Dict[int, float], series: Dict[str, List[Any]], edge: int) -> Dict[str, Any]:
    """Latency of the whole, and of its first and last `edge` seconds."""
    start, seconds = times[0][1], len(series["second"])
    late = [(due - start, ran[int(n)] - due) for n, due, *_ in times if int(n) in ran]
    metrics: Dict[str, Any] = {
        "seconds": seconds, "rate": round(sum(series["rate"]) / seconds, 1), "unfinished": len(times) - len(late),
        "backlog": series["backlog"][-1], "latency": measure.quantiles(l for _, l in late)}
    for name, low, high in (("first", 0, edge), ("last", seconds - edge, seconds)):
        part = measure.quantiles(l for due, l in late if low <= due < high)
        cpu, done = sum(series["cpu"][low:high]), sum(series["rate"][low:high])
        metrics[name] = {"seconds": edge, "p50": part.get("p50"), "p99": part.get("p99"), "cpu": round(cpu / edge, 4),
                         "cpu_per_job": round(cpu / done, 7) if done else None}
    return metrics
