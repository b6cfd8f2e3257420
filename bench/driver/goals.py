"""The goals of jobq, as data, and how each is judged.

A Goal is an id, a sentence and a function of the Medians.  The function answers a Verdict (the value that the goal is
about, its unit, whether the goal is met, and the figures behind it) or None when a figure it needs was not read.
The value is judged unrounded, so "1.0×" on the page can be a goal missed by a hair: the figures stand beside it.

Every goal judges jobq as it comes (jobq/default) unless it names a configuration, against the best configuration of
the peers it names.
"""

from medians import JOBQ, cpu_per_100k, family, is_peer, own_transaction, plain, ratio, show
from verdict import Goal, Verdict, below, compare, named, rate_against, share_of_bare, spread
from workflow_goals import WORKFLOW_GOALS

HELD = {
    "2000-snapshot": "under a held snapshot",
    "2000-readers": "with long readers",
    "2000-future": "with many jobs scheduled for later",
    "2000-crowd": "behind a crowd of paused and limited jobs",
}
CONDITION = {"p50": "s", "p99": "s", "cpu_per_job": "s"}


def cpu(m):
    """CPU of 100,000 no-op jobs, server and clients together."""
    stat = m.derived("drain_noop", "100k", JOBQ, cpu_per_100k)
    return stat and Verdict(stat.median, "s", stat.median < 1.0, spread(stat, "s"))


def pickup_no_worse(key):
    """Pickup from before the call is no slower than the hand-written worker that listens."""

    def judge(m):
        ours, theirs = (named(m, "pickup", "call", s, "latency." + key) for s in (JOBQ, "skip-locked/listen"))
        return compare(ours, theirs, "s", lambda r: r <= 1)

    return judge


def bare_commit(m):
    """p50 of a COMMIT without a queue: read beside jobq's pickup, or by a bare subject."""
    found = [m.best("pickup", "commit", key, lambda s: not is_peer(s), min) for key in ("bare_commit.p50", "bare_commit")]
    return next((best[1] for best in found if best), None)


def pickup_commit(m):
    """From just before COMMIT, p50 is at most a bare COMMIT's and 0.1 ms."""
    ours, bare = m.value("pickup", "commit", JOBQ, "latency.p50"), bare_commit(m)
    if ours is None or bare is None:
        return None
    measured = f"pickup {show(ours, 's')}, bare COMMIT {show(bare, 's')}; here the difference"
    return Verdict(ours - bare, "s", ours - bare <= 0.0001, measured)


def keeps_up(variant):
    """Jobs of a steady load run as fast as they come, and at its end fewer jobs wait than one second brings."""

    def judge(m):
        left, rate = (m.stat("steady", variant, JOBQ, key) for key in ("backlog", "rate"))
        if not left or not rate:
            return None
        met = left.median < int(variant) and rate.median >= 0.98 * int(variant)
        return Verdict(rate.median, "/s", met, spread(left, "jobs") + " waiting at the end")

    return judge


def drift(m, variant, subject, key):
    """Last minute over first minute of a steady load."""
    return ratio(m.value("steady", variant, subject, "last." + key), m.value("steady", variant, subject, "first." + key))


def steady_under(variant):
    """p50, p99 and CPU per job of the last minute are within 1.2 times the first minute's: the worst of them counts.

    A run of less than two minutes has no such minutes, and its verdict would be about something else.
    """

    def judge(m):
        if too_short(m, variant):
            return None
        ratios = {key: drift(m, variant, JOBQ, key) for key in CONDITION}
        if None in ratios.values():
            return None
        worst = max(ratios.values())
        names = {"cpu_per_job": "CPU per job"}
        return Verdict(worst, "×", worst <= 1.2, ", ".join(f"{names.get(k, k)} {show(r, '×')}" for k, r in ratios.items()))

    return judge


def too_short(m, variant):
    """True if a series of the run of jobq was shorter than two minutes."""
    return any(len(run.get("second") or []) < 120 for run in m.series("steady", variant, JOBQ))


def weighed(m):
    """Weights cost nothing measurable: the medians with and without them differ by less than the repeats spread."""
    ours, plainly = (m.stat("drain_noop", "100k", s, "rate") for s in ("jobq/weighed", JOBQ))
    if not ours or not plainly or min(ours.n, plainly.n) < 2:
        return None
    noise = max(ours.high - ours.low, plainly.high - plainly.low)
    apart = abs(ours.median - plainly.median)
    return Verdict(apart, "/s", apart < noise, f"with {spread(ours, '/s')}, without {spread(plainly, '/s')}")


def deep(m):
    """A deep queue drains as fast as a shallow one.  The 10M of a short level holds fewer jobs and is not judged."""
    if (m.value("deep", "10M", JOBQ, "waiting") or 1e7) < 1e7:
        return None
    ours, theirs = (m.value("deep", v, JOBQ, "rate") for v in ("10M", "100k"))
    return compare(("10M", ours), ("100k", theirs), "/s", lambda r: r >= 0.9, "%")


def unique(m):
    """A unique key's enqueue costs the same after many dead rows, within 2 times."""
    first, last = ends(m, JOBQ)
    return compare(("last", last), ("first", first), "s", lambda r: r <= 2)


def ends(m, subject):
    """Seconds that an enqueue of the unique key takes at the beginning and at the end."""
    found = [(m.value("unique", "held", subject, key), m.value("unique", "held", subject, key + "_us")) for key in ("first", "last")]
    return [micro / 1e6 if seconds is None and micro is not None else seconds for seconds, micro in found]


def disk(m):
    """What a snapshot has kept is reused after its end: as many jobs again need no more."""
    each, held, again = (m.value("disk", "snapshot", JOBQ, k) for k in ("bytes_per_job", "held_bytes", "again_bytes"))
    if again is None:
        return None
    measured = f"{show(each, 'bytes')} a job while it was held, {show(held, 'bytes')}; after as many jobs again {show(again, 'bytes')}"
    return Verdict(again / held, "×", again <= 1.1 * held, measured)


QUEUE_PROCESSES = ("jobq launcher", "jobq dispatcher", "jobq sql worker")
WAL_PLACES = (("drain_noop", "100k"), ("drain_row", "100k"), ("steady", "2000"))


def wal_place(m, *subjects):
    """The (workload, variant) where WAL of enqueue and run together was read for all of the subjects."""
    return next((p for p in WAL_PLACES if all(m.value(*p, s, "wal_per_job") is not None for s in subjects)), None)


def wal(m):
    """WAL of a job's whole life, against the hand-written worker that keeps a history."""
    subjects = (JOBQ, "skip-locked/batch-history")
    place = wal_place(m, *subjects)
    return place and compare(*(named(m, *place, s, "wal_per_job") for s in subjects), "bytes", lambda r: r <= 1.5)


def idle(m):
    """An idle queue wakes up for the sweep and maintenance only, and sends no statement."""
    wakeups, statements = wakeups_of(m, JOBQ), m.value("idle", "", JOBQ, "statements")
    if wakeups is None or statements is None:
        return None
    measured = f"{show(wakeups.median, '/s')} wake-ups, {plain(statements)} statements"
    return Verdict(wakeups.median, "/s", wakeups.median <= 2.5 and statements == 0, measured)


def wakeups_of(m, subject):
    """Wake-ups a second of all processes of a queue, as Stat."""
    return m.stat("idle", "", subject, "wakeups_per_s") or m.stat("idle", "", subject, "wakeups_total")


def memory(m):
    """Private memory of every process after the last round, over that after the first: the worst of them."""
    first, last = ({name: m.value("memory", "", JOBQ, f"{key}.{name}") for name in QUEUE_PROCESSES} for key in ("first", "last"))
    grown = {name: ratio(last[name], first[name]) for name in QUEUE_PROCESSES if first[name]}
    if not grown:
        return None
    worst = max(grown, key=grown.get)
    jobs = m.value("memory", "", JOBQ, "jobs")
    return Verdict(grown[worst], "×", grown[worst] <= 1.1, f"{worst} {show(first[worst], 'bytes')} to {show(last[worst], 'bytes')} over {plain(jobs)} jobs")


def lanes(m):
    """Pickup with many types and priorities, against one."""
    many, one = (m.value("lanes", v, JOBQ, "latency.p50") for v in ("1000x20", "1"))
    return compare(("1,000 × 20", many), ("one lane", one), "s", lambda r: r <= 2)


def aging(m):
    """Jobs run because they have aged, and none without the option."""
    on, off = (m.value("aging", variant, "jobq/w1", "because_of_aging") for variant in ("on", "off"))
    if on is None or off is None:
        return None
    return Verdict(on, "jobs", on > 0 and off == 0, f"{show(on, 'jobs')}; without the option {show(off, 'jobs')}")


def warm_tools(m):
    """One warm instance, against one process after another."""
    warm, cold = (m.value("exec", variant, JOBQ, "rate") for variant in ("warm", "1"))
    return compare(("warm", warm), ("one process per job", cold), "/s", lambda r: r >= 20)


def idle_schedules(m):
    """Schedules of which none is due cost neither a wake-up of the conductor nor a statement."""
    wakeups, statements = (m.value("schedule", "idle100k", JOBQ, key) for key in ("wakeups.jobq conductor", "statements"))
    if wakeups is None or statements is None:
        return None
    return Verdict(wakeups, "/s", wakeups == 0 and statements == 0, f"{plain(wakeups)} wake-ups/s of the conductor, {plain(statements)} statements/s")


def schedules_held(m):
    """p99 of the last minute of a held snapshot over that of the first minute; a short run is not judged."""
    if any(len(run.get("second") or []) < 120 for run in m.series("schedule", "snapshot", JOBQ)):
        return None
    last, first = (m.value("schedule", "snapshot", JOBQ, key + ".p99") for key in ("last", "first"))
    return compare(("last", last), ("first", first), "s", lambda r: r <= 1.2)


SCHEDULE_ID = 8  # bytes of the job of a tick, with padding; other jobs have none


def tick_wal(m):
    """WAL of a tick beside that of its enqueue and a HOT update; 2 % because the padding of records varies."""
    tick, enqueue, update = (m.value("schedule", "wal", JOBQ, "wal." + key) for key in ("tick", "enqueue", "update"))
    if None in (tick, enqueue, update):
        return None
    return compare(("tick", tick), ("enqueue and update", enqueue + SCHEDULE_ID + update), "bytes", lambda r: r <= 1.02)


def pulled(variant, ours, theirs, least):
    """A client of jobq is at least so many times as fast as the best of the others."""

    def judge(m):
        best = m.best("pull", variant, "rate", theirs)
        return best and compare(named(m, "pull", variant, ours, "rate"), best, "/s", lambda r: r >= least)

    return judge


def is_lease_table(subject):
    """The hand-written queue whose claims commit before their jobs run, with the same transactions."""
    return subject == "skip-locked/leases-joined"


def is_lease_hundreds(subject):
    """The same by claims of 100, in transactions of their own."""
    return subject == "skip-locked/leases-hundred"


def is_lease_python(subject):
    """The same by a loop in Python."""
    return subject == "skip-locked/leases-python"


def pulled_later(subject, limit):
    """From COMMIT to the handler, p50: so much later than the hand-written worker with LISTEN."""

    def judge(m):
        ours, theirs = (m.value("pull", "pickup", s, "latency.p50") for s in (subject, "skip-locked/listen"))
        if ours is None or theirs is None:
            return None
        return Verdict(ours - theirs, "s", ours - theirs <= limit, f"{subject} {show(ours, 's')}, skip-locked/listen {show(theirs, 's')}; here the difference")

    return judge


def listeners(m):
    """Enqueue with and without listeners: apart by less than the spread of the rounds."""
    plainly, ours, noise = (m.value("pull", "listeners", "pull/wait", key) for key in ("without", "rate", "spread"))
    if None in (plainly, ours, noise):
        return None
    return Verdict(ours / plainly, "×", abs(ours - plainly) <= noise, f"with {show(ours, '/s')}, without {show(plainly, '/s')}, spread {show(noise, '/s')}")


def waiting(m):
    """Claims that wait do not wake up, and the dispatcher wakes up for its sweep only."""
    backends, dispatcher, used = (m.value("pull", "waiting", "pull/crowd", key) for key in ("wakeups.backends", "wakeups.dispatcher", "cpu_share"))
    if None in (backends, dispatcher, used):
        return None
    measured = f"{plain(backends)} of backends, {plain(dispatcher)} of the dispatcher; {show(used, '%')} of a core"
    return Verdict(backends, "/s", backends == 0 and dispatcher <= 1.5 and used <= 0.01, measured)


def pulled_under(variant, least):
    """Pullers under a held snapshot keep up, p99 of the last minute within 1.2 times the first's; a short run is not judged."""

    def judge(m):
        if any(len(run.get("second") or []) < 120 for run in m.series("pull", variant, "pull/batch")):
            return None
        last, first, rate = (m.value("pull", variant, "pull/batch", key) for key in ("last.p99", "first.p99", "rate"))
        return rate and compare(("last", last), ("first", first), "s", lambda r: r <= 1.2 and rate >= least)

    return judge


def leases(m):
    """Live leases cost the dispatcher little."""
    stat, held = (m.stat("pull", "leases", "pull/wait", key) for key in ("dispatcher.cpu", "leases"))
    if not stat or not held or held.median < 1e5:
        return None
    return Verdict(stat.median, "%", stat.median < 0.05, spread(stat, "%"))


def is_graphile(subject):
    """Any configuration of graphile-worker."""
    return family(subject) == "graphile-worker"


def is_batch(subject):
    """The hand-written worker that takes and completes batches, with history as jobq."""
    return subject == "skip-locked/batch-history"


GOALS = [
    Goal("row", "isolated one-row jobs: at least 10 × the best peer with a transaction per job", rate_against("drain_row", "100k", JOBQ, own_transaction, 10)),
    Goal("noop-graphile", "no-op drain, two workers: at least 2 × graphile-worker", rate_against("drain_noop", "100k", "jobq/w2", is_graphile, 2)),
    Goal("noop-batch", "no-op drain, two workers: at least 1.5 × SKIP LOCKED in batches", rate_against("drain_noop", "100k", "jobq/w2", is_batch, 1.5)),
    Goal("weighed", "no-op drain with and without jobq.max_weight: apart by less than the repeats spread", weighed),
    Goal("cpu", "CPU of 100,000 no-op jobs, server and clients: below 1 s", cpu),
    Goal("enqueue-c1", "enqueue, 1 connection: at least 85 % of a bare INSERT", share_of_bare("enqueue", "c1", "bare/insert", 0.85)),
    Goal("enqueue-c8", "enqueue, 8 connections: at least 85 % of a bare INSERT", share_of_bare("enqueue", "c8", "bare/insert", 0.85)),
    Goal("enqueue-bulk", "enqueue in bulk: at least 70 % of a bare INSERT", share_of_bare("enqueue", "bulk", "bare/insert", 0.7)),
    Goal("pickup-p50", "pickup from the call, p50: no worse than SKIP LOCKED with LISTEN", pickup_no_worse("p50")),
    Goal("pickup-p99", "pickup from the call, p99: no worse than SKIP LOCKED with LISTEN", pickup_no_worse("p99")),
    Goal("pickup-call", "pickup from the call, p99: below 1.5 ms", below("pickup", "call", "latency.p99", "s", 0.0015)),
    Goal("pickup-commit", "pickup from COMMIT, p50: at most a bare COMMIT + 0.1 ms", pickup_commit),
    Goal("steady-2000", "2,000 jobs/s, p99: below 5 ms", below("steady", "2000", "latency.p99", "s", 0.005)),
    Goal("steady-1ms", "jobs of 1 ms at 92 % of four workers, with bursts, p99: below 20 ms", below("steady", "1800-1ms", "latency.p99", "s", 0.020)),
    Goal("steady-5ms", "jobs of 5 ms at 80 % of four workers, with bursts, p99: below 20 ms", below("steady", "570-5ms", "latency.p99", "s", 0.020)),
    Goal("steady-10000", "10,000 jobs/s are kept up with", keeps_up("10000")),
    *(Goal("steady-" + v, f"2,000 jobs/s {words}: last minute within 1.2 × the first", steady_under(v)) for v, words in HELD.items()),
    Goal("exec-1", "one tool at a time: at least 70 % of a bare spawn loop", share_of_bare("exec", "1", "bare/spawn-loop", 0.7)),
    Goal("exec-50", "50 tools at once: at least 70 % of a bare spawn loop", share_of_bare("exec", "50", "bare/spawn-loop", 0.7)),
    Goal("exec-warm", "a small warm tool: at least 20 × one process per job", warm_tools),
    Goal("deep", "drain with 10 M waiting: at least 90 % of the rate with 100k", deep),
    Goal("lanes", "pickup p50 with 1,000 types × 20 priorities: within 2 × one lane's", lanes),
    Goal("aging", "low priority behind a backlog of high priority: some jobs run because of aging", aging),
    Goal("unique", "enqueue of one constant unique key under a held snapshot: flat within 2 ×", unique),
    Goal("wal", "WAL of a job, enqueue and run: at most 1.5 × SKIP LOCKED with history", wal),
    Goal("disk", "disk that a snapshot has held: reused, as many jobs again need at most 1.1 ×", disk),
    Goal("memory", "private memory of every process: flat, within 1.1 ×", memory),
    Goal("schedule-p50", "tick to handler, one schedule a second, p50: below 2 ms", below("schedule", "second", "latency.p50", "s", 0.002)),
    Goal("schedule-p99", "tick to handler, one schedule a second, p99: below 10 ms", below("schedule", "second", "latency.p99", "s", 0.010)),
    Goal("schedule-commit", "1,000 schedules on one second beside 2,000 jobs/s: last job committed within 100 ms", below("schedule", "thousand", "committed", "s", 0.1)),
    Goal("schedule-thousand", "1,000 schedules on one second beside 2,000 jobs/s, p99: below 300 ms", below("schedule", "thousand", "latency.p99", "s", 0.3)),
    Goal("schedule-memory", "100,000 schedules: conductor below 64 MB", below("schedule", "many", "conductor.bytes", "bytes", 64e6)),
    Goal("schedule-cpu", "100,000 schedules, 1,700 ticks/s: conductor below 30 % of a core", below("schedule", "many", "conductor.cpu", "%", 0.3)),
    Goal("schedule-many", "100,000 schedules, 1,700 ticks/s, p99: below 100 ms", below("schedule", "many", "latency.p99", "s", 0.1)),
    Goal("schedule-start", "100,000 schedules: below 3 s from the end of a conductor to the next tick", below("schedule", "many", "first_tick", "s", 3)),
    Goal("schedule-server", "100,000 schedules: below 3 s from the start of the server to the first tick", below("schedule", "start", "first_tick", "s", 3)),
    Goal("schedule-next", "the search for the next tick, p99: below 20 µs", below("schedule", "next", "latency.p99", "s", 20e-6)),
    Goal("schedule-worst", "the search for the next tick, the slowest expressions: below 1 ms", below("schedule", "next", "worst", "s", 1e-3)),
    Goal("schedule-idle", "100,000 schedules of which none is due: no wake-up of the conductor, no statement", idle_schedules),
    Goal("schedule-snapshot", "100 ticks/s under a held snapshot, p99: last minute within 1.2 × the first", schedules_held),
    Goal("schedule-wal", "WAL of a tick: at most an enqueue and one HOT update, within 2 %", tick_wal),
    *(Goal("pull-c" + n, f"complete and claim, {n} connection(s): at least a SKIP LOCKED table with leases", pulled("c" + n, "pull/joined", is_lease_table, 1)) for n in ("1", "8")),
    *(Goal("pull-hundred" + n, f"claims of 100, {n} connection(s): at least 2 × a SKIP LOCKED table with leases", pulled("hundred" + n, "pull/hundred", is_lease_hundreds, 2)) for n in ("1", "4")),
    Goal("pull-batch", "no-op jobs, 100 a claim, in Node: at least 3 × the better of graphile-worker and pg-boss", pulled("batch", "pull/node-batch", is_peer, 3)),
    Goal("pull-node", "one-row jobs, Node client, ten at once: at least 3 × graphile-worker", pulled("node", "pull/node", is_graphile, 3)),
    Goal("pull-python", "one-row jobs, Python client, ten at once: at least 3 × a psycopg loop over a SKIP LOCKED table with leases", pulled("python", "pull/python", is_lease_python, 3)),
    Goal("pull-listeners", "enqueue by 16 committers: 50 listeners make no difference beyond the spread", listeners),
    Goal("pull-wait", "from COMMIT to a waiting claim, p50: within 0.3 ms of SKIP LOCKED with LISTEN", pulled_later("pull/wait", 0.0003)),
    Goal("pull-listen", "from COMMIT to a listening client, p50: within 0.8 ms of SKIP LOCKED with LISTEN", pulled_later("pull/listen", 0.0008)),
    Goal("pull-waiting", "1,000 waiting claims, idle: no wake-up of theirs, below 1 % of a core", waiting),
    *(Goal("pull-" + variant, f"50 pullers, {rate:,} jobs/s under a held snapshot, p99: kept up with, last minute within 1.2 × the first", pulled_under(variant, 0.98 * rate))
      for variant, rate in (("held", 10000), ("held2000", 2000))),
    Goal("pull-leases", "100,000 live leases, heartbeats each 30 s: dispatcher below 5 % of a core", leases),
    *WORKFLOW_GOALS,
    Goal("idle", "idle: no wake-ups beyond sweep and maintenance (2.5/s), no statements", idle),
]


def judge_all(m):
    """[(goal, Verdict or None)] in the order of GOALS."""
    return [(goal, goal.judge(m)) for goal in GOALS]
