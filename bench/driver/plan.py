"""Which readings each level takes: a workload's variant, the subjects that do it, and the parameters.

A level without parameters in a line skips it.  smoke must end within one minute on two cores, quick within ten, full
within two and a half hours: full repeats readings of seconds three times and takes those of minutes once.  Slow
subjects drain fewer jobs; raw.json has the number of jobs.
"""
from typing import Any, Dict, List, NamedTuple, Sequence

from . import pull
from . import schedules
from . import workflows
from . import workloads as w
from .steady import steady


class Item(NamedTuple):
    workload: str
    variant: str
    function: Any
    subjects: Sequence[str]                # patterns
    levels: Dict[str, Dict[str, Any]]
    settings: Dict[str, str] = {}          # ALTER DATABASE ... SET


EVERYBODY = ("jobq/*", "skip-locked/one", "skip-locked/batch*", "graphile-worker/*", "pg-boss/*", "bullmq/*", "pgq/*")
FED = ("jobq/default", "bare/insert*", "skip-locked/one", "graphile-worker/default", "pg-boss/default", "bullmq/*", "pgq/default")
BULK = tuple(pattern for pattern in FED if pattern != "bare/insert*") + ("bare/insert", "bare/insert-lane")
HAND = ("jobq/default", "bare/insert*", "skip-locked/one")
PICKED = ("jobq/default", "skip-locked/listen", "graphile-worker/*", "pg-boss/best", "bullmq/*", "pgq/best")
COMMITTED = ("bare/insert", "jobq/default", "skip-locked/listen", "graphile-worker/*", "pg-boss/best", "pgq/best")
RESTING = ("jobq/default", "skip-locked/listen", "graphile-worker/default", "pg-boss/default", "bullmq/everysec", "pgq/best")
HELD = ("jobq/default", "skip-locked/listen")
EVER = (*HELD, "graphile-worker/best", "pg-boss/best", "pgq/best", "bullmq/everysec")
BATCH = ("jobq/default", "skip-locked/batch")
FRESH = ("jobq/default", "skip-locked/batch-history", "graphile-worker/best")
RANKED = ("jobq/*", "skip-locked/one", "skip-locked/batch*", "graphile-worker/best", "pg-boss/best")   # have priorities
JOBQ = ("jobq/default",)
ONE_WORKER = ("jobq/w1",)
BY_MINUTE = ("pg_cron/*", "graphile-worker/default", "pg-boss/best")
ONE_BY_ONE = ("pull/wait", "pull/joined", "skip-locked/leases", "skip-locked/leases-joined", "skip-locked/history")
HUNDREDS = ("pull/hundred", "skip-locked/leases-hundred")
FLOWS = ("jobq/default", "pg-boss/best", "bullmq/everysec")
GRAPHS = FLOWS[:2]   # not trees
PULLED = ("pull/wait", "pull/listen", "skip-locked/listen")
AGED = {"high": 40000, "low": 2000, "step_ms": 20}


ONCE: Dict[str, Any] = {"at_most_repeats": 1}
# A series shows its own spread.
TEN_MINUTES: Dict[str, Any] = {"seconds": 600, "edge": 60, **ONCE}
ONE_MINUTE: Dict[str, Any] = {"seconds": 60, **ONCE}


def levels(smoke: Any = None, quick: Any = None, full: Any = None) -> Dict[str, Dict[str, Any]]:
    return {name: p for name, p in (("smoke", smoke), ("quick", quick), ("full", full)) if p is not None}


def jobs(smoke: int, quick: int, full: int, **more: Any) -> Dict[str, Dict[str, Any]]:
    return levels(*({"jobs": n, **more} if n else None for n in (smoke, quick, full)))


def company(**more: int) -> Dict[str, Dict[str, Any]]:
    small = {name: n // 10 for name, n in more.items()}
    return levels(None, {"seconds": 10, **small}, {**TEN_MINUTES, **more})


PACE = levels({"rate": 50, "seconds": 2}, {"rate": 50, "seconds": 6}, {"rate": 50, "seconds": 10})

FOUR_WORKERS = {"jobq.max_sql_workers": "4"}
COUNT_STATEMENTS = {"pg_stat_statements.track": "all", "compute_query_id": "on"}

PLAN: List[Item] = [
    Item("enqueue", "c1", w.enqueue, FED, jobs(500, 3000, 3000)),
    Item("enqueue", "c8", w.enqueue, HAND, jobs(0, 8000, 0)),
    Item("enqueue", "c8", w.enqueue, FED, jobs(0, 0, 8000)),
    Item("enqueue", "bulk", w.enqueue, BULK, jobs(10000, 100000, 100000)),
    Item("drain_noop", "100k", w.drain, EVERYBODY, jobs(10000, 100000, 100000, kind="noop")),
    Item("drain_noop", "100k-fresh", w.drain, FRESH, jobs(0, 100000, 100000, kind="noop", ready=False)),
    Item("drain_noop", "1M5p", w.drain, BATCH, jobs(0, 200000, 0, kind="noop", priorities=5)),
    Item("drain_noop", "1M5p", w.drain, RANKED, jobs(0, 0, 1000000, kind="noop", priorities=5, **ONCE)),
    Item("drain_row", "100k", w.drain, EVERYBODY, jobs(10000, 100000, 100000, kind="row")),
    Item("pickup", "call", w.pickup, PICKED, PACE),
    Item("pickup", "commit", w.pickup, COMMITTED, PACE),
    Item("steady", "500-midway", steady, EVER, levels(None, None, TEN_MINUTES)),
    Item("steady", "2000", steady, (*HELD, "skip-locked/batch-history"), levels({"seconds": 3}, {"seconds": 10}, ONE_MINUTE)),
    Item("steady", "10000", steady, JOBQ, levels(None, {"seconds": 10}, None)),
    Item("steady", "10000", steady, HELD, levels(None, None, ONE_MINUTE)),
    Item("steady", "2000-snapshot", steady, JOBQ, company()),
    Item("steady", "2000-snapshot", steady, ("skip-locked/listen",), levels(None, {"seconds": 4}, {"seconds": 10, **ONCE})),   # of a minute's jobs a third took it 150 s
    Item("steady", "2000-readers", steady, JOBQ, company()),
    Item("steady", "2000-future", steady, JOBQ, company(future=1000000)),
    Item("steady", "2000-crowd", steady, JOBQ, company(crowd=100000)),
    # With a backlog four workers run 1,970/s and 725/s of these: 92 % and, with the
    # bursts, 80 % of what they can do.
    Item("steady", "1800-1ms", steady, JOBQ, levels(None, {"seconds": 10}, ONE_MINUTE), FOUR_WORKERS),
    Item("steady", "570-5ms", steady, JOBQ, levels(None, {"seconds": 10}, ONE_MINUTE), FOUR_WORKERS),
    Item("exec", "1", w.exec_tools, ("jobq/default", "bare/spawn-loop"), jobs(100, 500, 2000)),
    Item("exec", "50", w.exec_tools, ("jobq/default", "bare/spawn-loop"), jobs(200, 2000, 10000)),
    Item("exec", "warm", w.exec_warm, ("jobq/default",), jobs(500, 20000, 100000)),
    Item("idle", "", w.idle, HELD, levels({"seconds": 2, "settle": 2}, {"seconds": 8, "settle": 4}, None), COUNT_STATEMENTS),
    Item("idle", "", w.idle, RESTING, levels(None, None, {"seconds": 20, "settle": 20, **ONCE}), COUNT_STATEMENTS),
    Item("deep", "100k", w.deep, BATCH, levels(None, *2 * ({"jobs": 100000, "waiting": 100000},))),
    Item("deep", "10M", w.deep, BATCH, levels(None, {"jobs": 100000, "waiting": 1000000},
                                              {"jobs": 100000, "waiting": 10000000, **ONCE})),
    Item("disk", "snapshot", w.disk, JOBQ, levels(None, {"jobs": 100000, "rounds": 5, "patience": 90},
                                                  {"jobs": 100000, "rounds": 20, "patience": 90, **ONCE})),
    Item("memory", "", w.memory, JOBQ, levels(None, {"jobs": 50000, "rounds": 6}, {"jobs": 100000, "rounds": 50, **ONCE})),
    Item("unique", "held", w.unique, JOBQ, jobs(2000, 5000, 5000)),
    Item("lanes", "1", w.lanes, JOBQ, levels(None, {"types": 1000, "priorities": 20, **PACE["quick"]},
                                             {"types": 1000, "priorities": 20, **PACE["full"]})),
    Item("lanes", "1000x20", w.lanes, JOBQ, levels({"types": 100, "priorities": 5, **PACE["smoke"]},
                                                   {"types": 1000, "priorities": 20, **PACE["quick"]},
                                                   {"types": 1000, "priorities": 20, **PACE["full"]})),
    Item("schedule", "second", schedules.second, JOBQ, levels({"seconds": 3}, {"seconds": 20}, {"seconds": 60})),
    Item("schedule", "second", schedules.second, BY_MINUTE, levels(None, None, {"minutes": 2, **ONCE})),
    Item("schedule", "thousand", schedules.thousand, JOBQ, levels(None, *2 * ({"schedules": 1000, "rate": 2000, "seconds": 10},))),
    Item("schedule", "many", schedules.many, JOBQ, levels(None, *2 * ({"schedules": 100000, "seconds": 60},))),
    Item("schedule", "start", schedules.start, JOBQ, levels(None, *2 * ({"schedules": 100000, "rounds": 3, **ONCE},))),
    Item("schedule", "next", schedules.next_tick, JOBQ, levels({"calls": 20000}, *2 * ({"calls": 1000000},))),
    Item("schedule", "idle100k", schedules.idle_many, JOBQ, levels(
        None, {"schedules": 100000, "seconds": 10, "settle": 4}, {"schedules": 100000, "seconds": 20, "settle": 20, **ONCE}), COUNT_STATEMENTS),
    Item("schedule", "snapshot", schedules.snapshot, JOBQ, levels(
        None, {"schedules": 100, "seconds": 40, "edge": 10}, {"schedules": 100, **TEN_MINUTES})),
    Item("schedule", "wal", schedules.wal, JOBQ, levels(None, *2 * ({"schedules": 1000, "seconds": 5},))),
    Item("pull", "c1", pull.drain, ONE_BY_ONE, jobs(500, 5000, 10000, kind="noop", concurrency=1)),
    Item("pull", "c8", pull.drain, ONE_BY_ONE, jobs(1000, 10000, 20000, kind="noop", concurrency=8)),
    Item("pull", "hundred1", pull.drain, HUNDREDS, jobs(2000, 50000, 200000, kind="noop", concurrency=1)),
    Item("pull", "hundred4", pull.drain, HUNDREDS, jobs(2000, 50000, 200000, kind="noop", concurrency=4)),
    Item("pull", "batch", pull.drain, ("pull/node-batch", "graphile-worker/best", "pg-boss/best"), jobs(0, 20000, 100000, kind="noop")),
    Item("pull", "node", pull.drain, ("pull/node", "graphile-worker/*"), jobs(0, 5000, 20000, kind="row", concurrency=10)),
    Item("pull", "python", pull.drain, ("pull/python", "skip-locked/leases-python"), jobs(200, 3000, 10000, kind="row", concurrency=10)),
    Item("pull", "listeners", pull.listeners, ("pull/wait",), jobs(200, 4000, 10000, rounds=5)),
    Item("pull", "pickup", pull.pickup, PULLED, PACE),
    Item("pull", "waiting", pull.waiting, ("pull/wait",), levels({"claims": 50, "seconds": 2, "settle": 2}, None, None)),
    Item("pull", "waiting", pull.waiting, ("pull/crowd",), levels(None, *2 * ({"claims": 1000, "seconds": 5, "settle": 11},))),
    Item("pull", "held", pull.held, ("pull/batch",), levels({"rate": 500, "seconds": 3}, {"rate": 10000, "seconds": 10}, {"rate": 10000, **TEN_MINUTES})),
    Item("pull", "held2000", pull.held, ("pull/batch",), levels(None, None, {"rate": 2000, "seconds": 300, "edge": 60, **ONCE})),
    Item("pull", "leases", pull.leases, ("pull/wait",), levels({"leases": 2000, "every": 1, "seconds": 2},
                                                              *2 * ({"leases": 100000, "every": 30, "seconds": 60},))),
    Item("workflow", "fanout", workflows.graph, FLOWS, levels(
        {"width": 500, "rounds": 1}, {"width": 10000, "rounds": 3}, {"width": 10000, "rounds": 5})),
    Item("workflow", "fanout100", workflows.graph, JOBQ, levels(None, *2 * ({"width": 100, "times": 500, "rounds": 3},))),
    Item("workflow", "fanout100", workflows.graph, ("pg-boss/best",), levels(None, None, {"width": 100, "times": 500, "rounds": 2})),
    Item("workflow", "layers", workflows.graph, GRAPHS, levels(None, *2 * ({"width": 500, "layers": 20, "rounds": 3},))),
    Item("workflow", "chain", workflows.chain, JOBQ, levels({"jobs": 50, "commits": 50}, {"jobs": 2000, "commits": 500}, {"jobs": 10000, "commits": 1000})),
    Item("workflow", "blocked", workflows.blocked, JOBQ, levels(
        None, {"blocked": 200000, "drain": 50000, "rounds": 2, **PACE["quick"]}, {"blocked": 1000000, "drain": 100000, "rounds": 3, **PACE["full"]})),
    Item("workflow", "events", workflows.events, JOBQ, levels(
        None, {"runs": 10000, "settle": 10, "seconds": 5, "rate": 50, "send": 6}, {"runs": 100000, "settle": 30, "seconds": 20, "rate": 50, "send": 20, **ONCE})),
    Item("workflow", "map", workflows.mapped, JOBQ, levels(None, {"width": 10000, "rounds": 3}, {"width": 10000, "rounds": 5})),
    Item("workflow", "map100", workflows.mapped, JOBQ, levels(None, *2 * ({"width": 100, "times": 500, "rounds": 3},))),
    Item("workflow", "start", workflows.start, JOBQ, levels(None, {"runs": 300, "rounds": 3}, {"runs": 1000, "rounds": 3})),
    Item("workflow", "snapshot", workflows.snapshot, JOBQ, levels(None, *2 * ({"fanout": 10000, "width": 500, "layers": 20, "rounds": 5},))),
    Item("aging", "on", w.aging, ONE_WORKER, levels(None, AGED, AGED)),
    Item("aging", "off", w.aging, ONE_WORKER, levels(None, AGED, AGED)),
]
