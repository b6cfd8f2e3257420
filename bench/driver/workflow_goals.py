"""The goals of workflows, as data, and how each is judged; see goals.py."""

from medians import JOBQ, family, plain, ratio, show
from verdict import Goal, Verdict, below, compare, rate_against


def is_pg_boss(subject):
    """Any configuration of pg-boss."""
    return family(subject) == "pg-boss"


def beside(variant, ours, theirs, unit, met, workload="workflow"):
    """Two metrics of one reading of jobq, as their ratio."""

    def judge(m):
        return compare(*((key, m.value(workload, variant, JOBQ, key)) for key in (ours, theirs)), unit, met)

    return judge


def chain(m):
    """From the end of a handler to the start of the next one, p50: a bare COMMIT and 0.3 ms."""
    ours, bare = (m.value("workflow", "chain", JOBQ, key + ".p50") for key in ("latency", "bare_commit"))
    if ours is None or bare is None:
        return None
    return Verdict(ours - bare, "s", ours - bare <= 0.0003, f"next handler {show(ours, 's')}, bare COMMIT {show(bare, 's')}; here the difference")


def map_of_100(m):
    """CPU per task of maps over 100 elements against that per job of the same graphs with edges."""
    ours, edges = m.value("workflow", "map100", JOBQ, "map.cpu_per_job"), m.value("workflow", "fanout100", JOBQ, "cpu_per_job")
    return compare(("map", ours), ("edges", edges), "s", lambda r: r <= 1)


def wide_map(m):
    """CPU per task of a map over 10,000 elements against that of maps over 100."""
    wide, narrow = (m.value("workflow", name, JOBQ, "map.cpu_per_job") for name in ("map", "map100"))
    return compare(("10,000 wide", wide), ("100 wide", narrow), "s", lambda r: r <= 1.2)


def map_peer(m):
    """A map over 10,000 elements against the flow of as many jobs of pg-boss."""
    theirs = m.best("workflow", "fanout", "rate", chosen=is_pg_boss)
    return theirs and compare(("map", m.value("workflow", "map", JOBQ, "map.rate")), theirs, "/s", lambda r: r >= 3)


def million(judge):
    """Judges only a reading with a million blocked jobs."""
    return lambda m: judge(m) if (m.value("workflow", "blocked", JOBQ, "jobs") or 0) >= 1e6 else None


def blocked_memory(m):
    """The dispatcher's private memory with the blocked jobs, less that without."""
    ours, plainly = (m.value("workflow", "blocked", JOBQ, key + ".dispatcher") for key in ("with", "without"))
    if ours is None or plainly is None:
        return None
    return Verdict(ours - plainly, "bytes", ours - plainly <= 1e6, f"with {show(ours, 'bytes')}, without {show(plainly, 'bytes')}; here the difference")


def waiting_runs(m):
    """Runs that wait for an event wake dispatcher and conductor for their sweeps only, each second and each minute."""
    conductor, dispatcher = (m.value("workflow", "events", JOBQ, "wakeups." + key) for key in ("conductor", "dispatcher"))
    runs = m.value("workflow", "events", JOBQ, "jobs")
    if None in (conductor, dispatcher, runs):
        return None
    return Verdict(conductor, "/s", conductor <= 0.5 and dispatcher <= 1.5, f"{plain(runs)} runs: {plain(conductor)} of the conductor, {plain(dispatcher)} of the dispatcher")


def start_of_run(m):
    """A run of ten steps against eleven enqueues in one transaction: the worse of time and CPU."""
    ratios = {key: ratio(*(m.value("workflow", "start", JOBQ, f"{name}.{key}") for name in ("run", "enqueue"))) for key in ("seconds", "cpu")}
    if None in ratios.values():
        return None
    names = {"seconds": "time", "cpu": "CPU"}
    worst = max(ratios.values())
    return Verdict(worst, "×", worst <= 1.5, ", ".join(f"{names[key]} {show(r, '×')}" for key, r in ratios.items()))


WORKFLOW_GOALS = [
    Goal("workflow-fanout", "1 → 10,000 → 1 no-op jobs: at least half the rate of as many plain jobs", beside("fanout", "rate", "plain.rate", "/s", lambda r: r >= 0.5)),
    Goal("workflow-cpu", "500 times 1 → 100 → 1: CPU per job within 1.2 × a plain job's", beside("fanout100", "cpu_per_job", "plain.cpu_per_job", "s", lambda r: r <= 1.2)),
    Goal("workflow-fanout-peer", "1 → 10,000 → 1: at least 3 × pg-boss", rate_against("workflow", "fanout", JOBQ, is_pg_boss, 3)),
    Goal("workflow-layers", "20 layers of 500 jobs, 3 parents each: at least 3 × pg-boss", rate_against("workflow", "layers", JOBQ, is_pg_boss, 3)),
    Goal("workflow-chain", "a chain, from a handler to the next, p50: at most a bare COMMIT + 0.3 ms", chain),
    Goal("workflow-blocked-pickup", "1 M blocked jobs: pickup p50 of others within 5 %", million(beside("blocked", "with.latency.p50", "without.latency.p50", "s", lambda r: r <= 1.05))),
    Goal("workflow-blocked-drain", "1 M blocked jobs: drain rate of others within 5 %", million(beside("blocked", "with.rate", "without.rate", "/s", lambda r: r >= 0.95))),
    Goal("workflow-blocked-memory", "1 M blocked jobs: dispatcher + 1 MB", million(blocked_memory)),
    Goal("workflow-blocked-pass", "1 M blocked jobs: pass at the start of a conductor below 5 s", million(below("workflow", "blocked", "pass", "s", 5))),
    Goal("workflow-events-idle", "runs that wait for an event: no wake-ups but for sweeps", waiting_runs),
    Goal("workflow-event", "send_event to the handler beside many waiting runs, p99: below 5 ms", below("workflow", "events", "latency.p99", "s", 0.005)),
    Goal("workflow-map", "500 runs with a map over 100 elements and a join: CPU per task at most that of 500 times 1 → 100 → 1", map_of_100),
    Goal("workflow-map-wide", "a map over 10,000 elements: CPU per task within 1.2 × that at 100 wide", wide_map),
    Goal("workflow-map-peer", "a map over 10,000 elements: at least 3 × pg-boss", map_peer),
    Goal("workflow-start", "start of a run of 10 steps: within 1.5 × 11 enqueues in one transaction, time and CPU", start_of_run),
    *(Goal("workflow-snapshot-" + name, f"{words} under a held snapshot: within 1.5 × without", beside("snapshot", name + ".held", name + ".without", "s", lambda r: r <= 1.5))
      for name, words in (("fanout", "1 → 10,000 → 1"), ("layers", "20 layers"), ("map", "a map over 10,000 elements"))),
]
