"""Medians, ratios and goals, on readings made up here.  Standard library only."""

import os
import sys
import unittest
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from goals import GOALS, HELD, judge_all  # noqa: E402
from medians import JOBQ, Medians, add_run, cpu_per_100k, duration, per_100k, plain, ratio, show, times  # noqa: E402
from . import measure  # noqa: E402
from .schedules import Tick, committed  # noqa: E402
from .steady import halves  # noqa: E402
from .workflows import Shape  # noqa: E402


def reading(workload, variant, subject, repeat=1, **metrics):
    """One reading of raw.json."""
    return {"workload": workload, "variant": variant, "subject": subject, "repeat": repeat, "metrics": metrics}


def medians(*readings):
    """Medians of these readings."""
    return Medians({"run": {}, "readings": list(readings)})


def verdict(goal_id, *readings):
    """What one goal says to these readings."""
    (goal,) = [goal for goal in GOALS if goal.id == goal_id]
    return goal.judge(medians(*readings))


class MediansTest(unittest.TestCase):
    def test_median_and_spread(self):
        m = medians(*(reading("drain_row", "100k", JOBQ, i, rate=rate) for i, rate in enumerate((900, 100, 300))))
        self.assertEqual(m.stat("drain_row", "100k", JOBQ, "rate"), (300, 100, 900, 3))

    def test_even_number_of_repeats(self):
        m = medians(*(reading("drain_row", "100k", JOBQ, i, rate=rate) for i, rate in enumerate((100, 300))))
        self.assertEqual(m.value("drain_row", "100k", JOBQ, "rate"), 200)

    def test_nested_metric(self):
        m = medians(reading("pickup", "call", JOBQ, latency={"p50": 0.001, "p99": 0.004}))
        self.assertEqual(m.value("pickup", "call", JOBQ, "latency.p99"), 0.004)

    def test_what_is_no_number_is_missing(self):
        m = medians(reading("idle", None, JOBQ, a=None, b="12", c=float("nan"), d=True, e=[1, 2], f=float("inf"), g=0))
        self.assertEqual([row[3] for row in m.table()], ["g"])

    def test_variants_and_subjects_are_kept_apart(self):
        m = medians(reading("enqueue", "c1", JOBQ, rate=1), reading("enqueue", "c8", JOBQ, rate=8), reading("enqueue", "c1", "bare/insert", rate=2))
        self.assertEqual(m.value("enqueue", "c1", JOBQ, "rate"), 1)
        self.assertEqual(m.variants("enqueue"), ["c1", "c8"])
        self.assertEqual(m.subjects("enqueue", "c1", "rate"), [JOBQ, "bare/insert"])

    def test_best_takes_peers_only(self):
        m = medians(*(reading("drain_row", "100k", s, rate=r) for s, r in ((JOBQ, 900), ("bare/insert", 800), ("pgmq/a", 10), ("pgmq/b", 30), ("pgq/a", 20))))
        self.assertEqual(m.best("drain_row", "100k", "rate"), ("pgmq/b", 30))
        self.assertIsNone(m.best("drain_row", "1M5p", "rate"))

    def test_derived_is_computed_within_each_repeat(self):
        rows = [{"jobs": 1000, "cpu_server": 1}, {"jobs": 2000, "cpu_server": 1}, {"jobs": 4000, "cpu_server": 1}]
        m = medians(*(reading("drain_noop", "100k", JOBQ, i, **row) for i, row in enumerate(rows)))
        self.assertEqual(m.derived("drain_noop", "100k", JOBQ, cpu_per_100k), (50, 25, 100, 3))

    def test_derived_leaves_out_what_a_repeat_lacks(self):
        m = medians(reading("drain_noop", "100k", JOBQ, jobs=1000), reading("drain_noop", "100k", JOBQ, jobs=1000, cpu_server=1))
        self.assertIsNone(m.derived("drain_noop", "100k", JOBQ, cpu_per_100k))

    def test_reading_without_figures_is_told(self):
        m = medians({"workload": "exec", "variant": "1", "subject": JOBQ, "repeat": 1, "error": "gone"})
        self.assertEqual(m.failed, [("exec", "1", JOBQ, "gone")])


class WordsTest(unittest.TestCase):
    def test_ratio(self):
        self.assertEqual(ratio(6, 3), 2)
        for ours, theirs in ((None, 3), (6, None), (6, 0)):
            self.assertIsNone(ratio(ours, theirs))

    def test_numbers(self):
        self.assertEqual([plain(v) for v in (0, 111234, 9.996, 45.25, 0.01234, 999.6)], ["0", "111,000", "10.0", "45.2", "0.0123", "1,000"])
        self.assertEqual([duration(v) for v in (4.5, 0.00123, 0.00085)], ["4.50 s", "1.23 ms", "850 µs"])
        self.assertEqual([times(v) for v in (11.26, 2.44, 0.934)], ["11×", "2.44×", "0.93×"])
        self.assertEqual([show(0.923, "%"), show(1200, "/s"), show(3, "jobs")], ["92 %", "1,200/s", "3 jobs"])


class GoalsTest(unittest.TestCase):
    def test_nothing_measured(self):
        self.assertEqual({v for _, v in judge_all(medians())}, {None})

    def test_ids_are_unique(self):
        self.assertEqual(len({goal.id for goal in GOALS}), len(GOALS))

    def test_jobq_alone_is_not_compared(self):
        self.assertIsNone(verdict("row", reading("drain_row", "100k", JOBQ, rate=100)))
        self.assertIsNone(verdict("row", reading("drain_row", "100k", "pgmq/best", rate=100)))

    def test_row_against_the_best_peer(self):
        peers = [reading("drain_row", "100k", s, rate=r) for s, r in (("pgmq/best", 9), ("graphile-worker/best", 10), ("bare/insert", 5000), ("skip-locked/batch", 7000))]
        for rate, met in ((100, True), (99, False)):
            v = verdict("row", reading("drain_row", "100k", JOBQ, rate=rate), *peers)
            self.assertEqual((v.value, v.met), (rate / 10, met))
            self.assertIn("graphile-worker/best 10", v.measured)

    def test_noop_needs_two_workers(self):
        peers = [reading("drain_noop", "100k", s, rate=r) for s, r in (("graphile-worker/default", 10), ("graphile-worker/best", 20), ("skip-locked/batch-history", 40), ("pgq/a", 90))]
        self.assertIsNone(verdict("noop-graphile", reading("drain_noop", "100k", JOBQ, rate=100), *peers))
        ours = reading("drain_noop", "100k", "jobq/w2", rate=50)
        self.assertEqual(verdict("noop-graphile", ours, *peers)[:3], (2.5, "×", True))
        self.assertEqual(verdict("noop-batch", ours, *peers)[:3], (1.25, "×", False))

    def test_cpu_counts_server_and_client(self):
        alone = reading("drain_noop", "100k", JOBQ, jobs=50000, cpu_server=0.45)
        both = reading("drain_noop", "100k", JOBQ, jobs=50000, cpu_server=0.45, cpu_client=0.05)
        self.assertEqual([verdict("cpu", r).met for r in (alone, both)], [True, False])

    def test_enqueue_is_a_share_of_bare(self):
        for goal, least in (("c1", 85), ("c8", 85), ("bulk", 70)):
            bare = reading("enqueue", goal, "bare/insert", rate=100)
            found = [verdict("enqueue-" + goal, bare, reading("enqueue", goal, JOBQ, rate=r)).met for r in (least, least - 1)]
            self.assertEqual(found, [True, False], goal)

    def test_pickup_call(self):
        listen = reading("pickup", "call", "skip-locked/listen", latency={"p50": 0.001, "p99": 0.003})
        ours = reading("pickup", "call", JOBQ, latency={"p50": 0.001, "p99": 0.0031})
        self.assertEqual([verdict(g, ours, listen).met for g in ("pickup-p50", "pickup-p99", "pickup-call")], [True, False, False])
        self.assertTrue(verdict("pickup-call", reading("pickup", "call", JOBQ, latency={"p99": 0.0014})).met)

    def test_pickup_commit_adds_a_tenth_of_a_millisecond(self):
        for p50, met in ((0.00109, True), (0.00111, False)):
            for bare in ({"p50": 0.001}, 0.001):
                self.assertEqual(verdict("pickup-commit", reading("pickup", "commit", JOBQ, latency={"p50": p50}, bare_commit=bare)).met, met)
        beside = reading("pickup", "commit", "bare/insert", bare_commit={"p50": 0.001})
        self.assertTrue(verdict("pickup-commit", beside, reading("pickup", "commit", JOBQ, latency={"p50": 0.00109})).met)
        self.assertIsNone(verdict("pickup-commit", reading("pickup", "commit", JOBQ, latency={"p50": 0.001})))

    def test_steady(self):
        self.assertEqual([verdict("steady-2000", reading("steady", "2000", JOBQ, latency={"p99": p})).met for p in (0.0049, 0.005)], [True, False])
        found = [verdict("steady-10000", reading("steady", "10000", JOBQ, backlog=b, rate=r)).met for b, r in ((0, 10000), (9999, 9900), (10000, 10000), (0, 9000))]
        self.assertEqual(found, [True, True, False, False])

    def test_the_worst_drift_counts(self):
        first = {"p50": 1, "p99": 2, "cpu_per_job": 3}
        for variant in HELD:
            good = reading("steady", variant, JOBQ, first=first, last={"p50": 1.1, "p99": 2, "cpu_per_job": 3.3})
            bad = reading("steady", variant, JOBQ, first=first, last={"p50": 1, "p99": 2, "cpu_per_job": 3.9})
            less = reading("steady", variant, JOBQ, first=first, last={"p50": 1, "p99": 2})
            self.assertTrue(verdict("steady-" + variant, good).met)
            self.assertFalse(verdict("steady-" + variant, bad).met)
            self.assertIsNone(verdict("steady-" + variant, less))

    def test_weighed_is_judged_by_the_spread_of_repeats(self):
        def rates(subject, *found):
            return [reading("drain_noop", "100k", subject, i, rate=rate) for i, rate in enumerate(found)]
        for without, met in (((90, 100, 109), True), ((100, 107, 109), True), ((118, 120, 122), False)):
            found = verdict("weighed", *rates("jobq/weighed", 95, 100, 110), *rates(JOBQ, *without))
            self.assertEqual((found.value, found.met), (without[1] - 100, met))
        self.assertIsNone(verdict("weighed", *rates("jobq/weighed", 100), *rates(JOBQ, 100)))

    def test_deep_lanes_unique(self):
        self.assertEqual([verdict("deep", reading("deep", "100k", JOBQ, rate=100), reading("deep", "10M", JOBQ, rate=r)).met for r in (90, 89)], [True, False])
        self.assertEqual([verdict("lanes", reading("lanes", "1", JOBQ, latency={"p50": 1}), reading("lanes", "1000x20", JOBQ, latency={"p50": p})).met for p in (2, 2.1)], [True, False])
        self.assertEqual([verdict("unique", reading("unique", "held", JOBQ, first_us=50, last_us=u)).met for u in (100, 101)], [True, False])
        self.assertEqual([verdict("unique", reading("unique", "held", JOBQ, first=5e-5, last=u)).met for u in (9e-5, 11e-5)], [True, False])

    def test_aging(self):
        for on, off, met in ((5, 0, True), (0, 0, False), (5, 5, False)):
            found = verdict("aging", *(reading("aging", v, "jobq/w1", because_of_aging=n) for v, n in (("on", on), ("off", off))))
            self.assertEqual((found.value, found.met), (on, met))
        self.assertIsNone(verdict("aging", reading("aging", "on", "jobq/w1", because_of_aging=5)))

    def test_pull_is_compared_with_leases(self):
        peers = [reading("pull", "c1", s, rate=r) for s, r in (("skip-locked/leases-joined", 100), ("skip-locked/leases", 90), ("skip-locked/history", 500))]
        for rate, met in ((100, True), (99, False)):
            self.assertEqual(verdict("pull-c1", reading("pull", "c1", "pull/joined", rate=rate), *peers).met, met)

    def test_pull_in_node(self):
        batch = [reading("pull", "batch", s, rate=r) for s, r in (("graphile-worker/best", 9), ("pg-boss/best", 10))]
        self.assertEqual(verdict("pull-batch", reading("pull", "batch", "pull/node-batch", rate=29), *batch)[:3], (2.9, "×", False))
        rows = [reading("pull", "node", s, rate=r) for s, r in (("graphile-worker/best", 10), ("graphile-worker/default", 9))]
        self.assertTrue(verdict("pull-node", reading("pull", "node", "pull/node", rate=30), *rows).met)

    def test_pull_in_python(self):
        peer = reading("pull", "python", "skip-locked/leases-python", rate=10)
        self.assertEqual([verdict("pull-python", reading("pull", "python", "pull/python", rate=rate), peer).met for rate in (30, 29)], [True, False])

    def test_pull_pickup(self):
        peer = reading("pull", "pickup", "skip-locked/listen", latency={"p50": 0.001})
        for goal, subject, limit in (("pull-wait", "pull/wait", 0.0003), ("pull-listen", "pull/listen", 0.0008)):
            found = [verdict(goal, peer, reading("pull", "pickup", subject, latency={"p50": 0.001 + limit * x})).met for x in (0.9, 1.1)]
            self.assertEqual(found, [True, False], goal)

    def test_listeners_are_judged_by_the_spread_of_rounds(self):
        for rate, met in ((95, True), (89, False), (111, False)):
            self.assertEqual(verdict("pull-listeners", reading("pull", "listeners", "pull/wait", rate=rate, without=100, spread=10)).met, met)

    def test_waiting_claims_and_leases(self):
        for backends, dispatcher, share, met in ((0, 1, 0, True), (0.1, 1, 0, False), (0, 2, 0, False), (0, 1, 0.02, False)):
            woken = {"backends": backends, "dispatcher": dispatcher}
            self.assertEqual(verdict("pull-waiting", reading("pull", "waiting", "pull/crowd", wakeups=woken, cpu_share=share)).met, met)
        self.assertIsNone(verdict("pull-leases", reading("pull", "leases", "pull/wait", leases=2000, dispatcher={"cpu": 0.01})))
        for share, met in ((0.049, True), (0.05, False)):
            self.assertEqual(verdict("pull-leases", reading("pull", "leases", "pull/wait", leases=100000, dispatcher={"cpu": share})).met, met)

    def test_pull_held_needs_minutes(self):
        short = {**reading("pull", "held", "pull/batch", rate=10000, first={"p99": 1}, last={"p99": 1}), "series": {"second": [0] * 10}}
        self.assertIsNone(verdict("pull-held", short))
        for rate, last, met in ((10000, 1.2, True), (9000, 1.2, False), (10000, 1.3, False)):
            one = {**reading("pull", "held", "pull/batch", rate=rate, first={"p99": 1}, last={"p99": last}), "series": {"second": [0] * 600}}
            self.assertEqual(verdict("pull-held", one).met, met)

    def test_schedules(self):
        second = reading("schedule", "second", JOBQ, latency={"p50": 0.0019, "p99": 0.01})
        self.assertEqual([verdict("schedule-" + g, second).met for g in ("p50", "p99")], [True, False])
        many = reading("schedule", "many", JOBQ, conductor={"bytes": 64e6, "cpu": 0.29}, latency={"p99": 0.1}, first_tick=2.9)
        self.assertEqual([verdict("schedule-" + g, many).met for g in ("memory", "cpu", "many", "start")], [False, True, False, True])
        self.assertEqual([verdict("schedule-server", reading("schedule", "start", JOBQ, first_tick=t)).met for t in (2.9, 3.1)], [True, False])
        search = reading("schedule", "next", JOBQ, latency={"p99": 3e-7}, worst=1.1e-3)
        self.assertEqual([verdict("schedule-" + g, search).met for g in ("next", "worst")], [True, False])
        thousand = reading("schedule", "thousand", JOBQ, committed=0.1, latency={"p99": 0.29})
        self.assertEqual([verdict("schedule-" + g, thousand).met for g in ("commit", "thousand")], [False, True])
        for wakeups, statements, met in ((0, 0, True), (0.1, 0, False), (0, 0.1, False)):
            asleep = reading("schedule", "idle100k", JOBQ, wakeups={"jobq conductor": wakeups}, statements=statements)
            self.assertEqual(verdict("schedule-idle", asleep).met, met)
        self.assertIsNone(verdict("schedule-idle", reading("schedule", "idle100k", JOBQ, wakeups={}, statements=0)))

    def test_schedules_held_and_their_wal(self):
        for last, seconds, met in ((1.2, 600, True), (1.21, 600, False), (1, 40, None)):
            held = {**reading("schedule", "snapshot", JOBQ, first={"p99": 1}, last={"p99": last}), "series": {"second": list(range(seconds))}}
            found = verdict("schedule-snapshot", held)
            self.assertEqual(found and found.met, met)
        for tick, met in ((102, True), (102.1, False)):
            self.assertEqual(verdict("schedule-wal", reading("schedule", "wal", JOBQ, wal={"tick": tick, "enqueue": 60, "update": 32})).met, met)

    def test_graphs_are_compared_with_plain_jobs_of_their_reading(self):
        for rate, met in ((50, True), (49, False)):
            self.assertEqual(verdict("workflow-fanout", reading("workflow", "fanout", JOBQ, rate=rate, plain={"rate": 100})).met, met)
        for cpu, met in ((12, True), (13, False)):
            self.assertEqual(verdict("workflow-cpu", reading("workflow", "fanout100", JOBQ, cpu_per_job=cpu, plain={"cpu_per_job": 10})).met, met)
        self.assertIsNone(verdict("workflow-fanout", reading("workflow", "fanout", JOBQ, rate=1)))

    def test_graphs_are_compared_with_flows_of_pg_boss(self):
        for goal, variant in (("workflow-fanout-peer", "fanout"), ("workflow-layers", "layers")):
            peers = [reading("workflow", variant, s, rate=r) for s, r in (("pg-boss/best", 10), ("bullmq/everysec", 90))]
            self.assertEqual([verdict(goal, reading("workflow", variant, JOBQ, rate=r), *peers).met for r in (30, 29)], [True, False])

    def test_chain(self):
        for p50, met in ((0.00129, True), (0.00131, False)):
            self.assertEqual(verdict("workflow-chain", reading("workflow", "chain", JOBQ, latency={"p50": p50}, bare_commit={"p50": 0.001})).met, met)

    def test_blocked_jobs(self):
        def one(jobs, p50, rate, held):
            without = {"latency": {"p50": 1}, "rate": 100, "dispatcher": 5e6}
            return reading("workflow", "blocked", JOBQ, jobs=jobs, without=without, **{"with": {"latency": {"p50": p50}, "rate": rate, "dispatcher": held}, "pass": p50})
        goals = ["workflow-blocked-" + g for g in ("pickup", "drain", "memory", "pass")]
        self.assertEqual([verdict(g, one(1e6, 1.04, 96, 5.9e6)).met for g in goals], [True] * 4)
        self.assertEqual([verdict(g, one(1e6, 5.06, 94, 6.1e6)).met for g in goals], [False] * 4)
        self.assertEqual([verdict(g, one(1e5, 1, 100, 5e6)) for g in goals], [None] * 4)

    def test_runs(self):
        for conductor, dispatcher, p99, met in ((0, 1, 0.004, True), (0.6, 1, 0.006, False), (0, 2, 0.005, False)):
            waiting = reading("workflow", "events", JOBQ, jobs=100, wakeups={"conductor": conductor, "dispatcher": dispatcher}, latency={"p99": p99})
            self.assertEqual([verdict("workflow-" + g, waiting).met for g in ("events-idle", "event")], [met, met])
        for seconds, cpu, met in ((1.5, 1, True), (1, 1.6, False)):
            started = reading("workflow", "start", JOBQ, run={"seconds": seconds, "cpu": cpu}, enqueue={"seconds": 1, "cpu": 1})
            self.assertEqual(verdict("workflow-start", started).met, met)
        held = reading("workflow", "snapshot", JOBQ, fanout={"held": 3, "without": 2}, layers={"held": 3.1, "without": 2})
        self.assertEqual([verdict("workflow-snapshot-" + g, held).met for g in ("fanout", "layers")], [True, False])

    def test_a_short_level_does_not_judge_a_long_goal(self):
        shallow = reading("deep", "100k", JOBQ, rate=100, waiting=1e5)
        self.assertIsNone(verdict("deep", shallow, reading("deep", "10M", JOBQ, rate=99, waiting=1e6)))
        self.assertTrue(verdict("deep", shallow, reading("deep", "10M", JOBQ, rate=99, waiting=1e7)).met)
        flat = {"p50": 1, "p99": 2, "cpu_per_job": 3}
        for seconds, judged in ((20, False), (600, True)):
            run = {**reading("steady", "2000-crowd", JOBQ, first=flat, last=flat), "series": {"second": list(range(seconds))}}
            self.assertEqual(verdict("steady-2000-crowd", run) is not None, judged)

    def test_exec(self):
        for variant in ("1", "50"):
            bare = reading("exec", variant, "bare/spawn-loop", rate=1000)
            self.assertEqual([verdict("exec-" + variant, bare, reading("exec", variant, JOBQ, rate=r)).met for r in (700, 699)], [True, False])

    def test_warm(self):
        cold = reading("exec", "1", JOBQ, rate=500)
        self.assertEqual([verdict("exec-warm", cold, reading("exec", "warm", JOBQ, rate=r)).met for r in (10000, 9900)], [True, False])

    def test_wal_is_compared_in_one_workload(self):
        ours = reading("drain_noop", "100k", JOBQ, wal_per_job=300)
        self.assertTrue(verdict("wal", ours, reading("drain_noop", "100k", "skip-locked/batch-history", wal_per_job=200)).met)
        self.assertFalse(verdict("wal", ours, reading("drain_noop", "100k", "skip-locked/batch-history", wal_per_job=199)).met)
        self.assertIsNone(verdict("wal", ours, reading("drain_row", "100k", "skip-locked/batch-history", wal_per_job=200)))

    def test_idle_allows_no_statement(self):
        found = [verdict("idle", reading("idle", None, JOBQ, wakeups_per_s=w, statements=s, wakeups={"a": w})).met for w, s in ((2.5, 0), (2.6, 0), (1, 1))]
        self.assertEqual(found, [True, False, False])
        self.assertTrue(verdict("idle", reading("idle", "", JOBQ, wakeups_total=2, statements=0)).met)
        self.assertIsNone(verdict("idle", reading("idle", None, JOBQ, wakeups_per_s=1)))

    def test_zero_is_no_divisor(self):
        self.assertIsNone(verdict("unique", reading("unique", "held", JOBQ, first_us=0, last_us=5)))


class OtherRunTest(unittest.TestCase):
    def test_only_workloads_that_the_first_lacks_come_from_another_run(self):
        raw = {"run": {}, "readings": [reading("steady", "2000", JOBQ, rate=1)]}
        add_run(raw, {"run": {"level": "full"}, "readings": [reading("steady", "2000", "pgq/best", rate=2), reading("steady", "500", JOBQ, rate=3)]})
        m = Medians(raw)
        self.assertEqual((m.subjects("steady", "2000", "rate"), m.value("steady", "500", JOBQ, "rate")), ([JOBQ], 3))
        self.assertIn("level full", raw["run"]["steady 500"])


class CostsTest(unittest.TestCase):
    def test_of_100000_jobs_each_repeat_by_its_own_number(self):
        m = medians(*(reading("drain_noop", "100k", JOBQ, i, jobs=jobs, wal_bytes=wal) for i, (jobs, wal) in enumerate(((10000, 10), (20000, 40)))),
                    reading("drain_noop", "100k", "pg-boss/default", jobs=3, wal_bytes=5))
        self.assertEqual(m.derived("drain_noop", "100k", JOBQ, per_100k("wal_bytes"))[:3], (150, 100, 200))
        self.assertIsNone(m.derived("drain_noop", "100k", JOBQ, per_100k("heap_bytes")))
        self.assertIsNone(m.derived("drain_noop", "100k", "pg-boss/default", per_100k("wal_bytes")))


class SteadyTest(unittest.TestCase):
    def test_a_job_belongs_to_the_half_in_which_it_was_due(self):
        due = (100, 104, 105, 109)
        found = halves([[n, at, at, at, at] for n, at in enumerate((*due, 109.5))], {n: at + n + 1 for n, at in enumerate(due)}, 5)
        self.assertEqual([found[half][key] for half in ("clean", "held") for key in ("p50", "max")], [1, 2, 3, 4])


class SchedulesTest(unittest.TestCase):
    def test_a_transaction_is_committed_when_the_first_of_its_jobs_runs(self):
        ticks = [Tick(1, 10.0, 10.5), Tick(2, 10.0, 10.1), Tick(3, 10.0, 10.3), Tick(1, 11.0, 11.2)]
        self.assertEqual(committed(ticks, {(1, 10.0): "7", (2, 10.0): "7", (3, 10.0): "8", (1, 11.0): "9"}), 0.3)


class WorkflowsTest(unittest.TestCase):
    def test_shapes_know_their_jobs(self):
        shapes = Shape("fanout", 100), Shape("fanout", 100, times=5), Shape("layers", 500, layers=20), Shape("plain", 7), Shape("chain", 9)
        self.assertEqual([s.jobs for s in shapes], [102, 510, 10000, 7, 9])
        self.assertEqual([s.last for s in shapes], [1, 510, 500, 7, 1])


class MeasureTest(unittest.TestCase):
    def test_a_process_that_goes_while_it_is_looked_at_is_left_out(self):
        us, gone = os.getpid(), 2 ** 31 - 1
        with unittest.mock.patch("os.listdir", return_value=[str(us), str(gone), "self"]):
            self.assertEqual(list(measure.processes()), [us])
        self.assertIn(os.getppid(), measure.processes())
        self.assertEqual(measure.context_switches(gone), 0)


if __name__ == "__main__":
    unittest.main()
