"""The goals of jobq-web, on readings made up here."""
import unittest
import unittest.mock

from . import goals, readings, report


def raw(**metrics):
    """raw.json with these readings."""
    return {"run": {"level": "smoke", "started": "2026-01-01"}, "readings": [{"name": n, "metrics": m} for n, m in metrics.items()]}


def verdict(start, **metrics):
    """What the goal with this beginning says to these readings."""
    ((_, found),) = [(goal, v) for goal, v in goals.judge_all(raw(**metrics)) if goal.sentence.startswith(start)]
    return found


def times(p99, n=100, **more):
    return {"p50": p99 / 2, "p95": p99, "p99": p99, "max": p99, "n": n, **more}


class GoalsTest(unittest.TestCase):
    def test_nothing_measured(self):
        self.assertEqual({v for _, v in goals.judge_all(raw())}, {None})

    def test_metrics_reads_no_table(self):
        for seconds, reads, met in ((0.019, 0, True), (0.021, 0, False), (0.001, 1, False)):
            found = verdict("metrics() of 1,000 types, p99", metrics={"seconds": times(seconds), "first": times(0.05), "table_reads": reads})
            self.assertEqual(found.met, met)

    def test_worst_why_counts(self):
        found = verdict("why()", why={"live": 1000, "due": times(0.002), "paused": times(0.011)})
        self.assertEqual((found.value, found.met), (0.011, False))

    def test_page_has_two_limits(self):
        for requests, size, met in ((10, 90000, True), (11, 1000, False), (5, 90001, False)):
            sizes = {"files_bytes": 1, "answers_bytes": 1, "bytes": size}
            found = verdict("page, few", page_few={"types": 3, "requests": requests, "later": {"requests": 9, "bytes": 1}, **sizes})
            self.assertEqual(found.met, met)

    def test_api_judges_the_slowest(self):
        part = {"live": 1, "history": 1, "refused": 0, "rate": 10000, "load": {"rate": 10000}, "seconds": {"list": times(0.01), "overview": times(0.051)}}
        self.assertEqual((verdict("API: one job", api=part).value, verdict("API: one job", api=part).met), (0.051, False))
        part["seconds"]["overview"] = times(0.05)
        self.assertTrue(verdict("API: one job", api=part).met)
        for change in {"refused": 1}, {"rate": 9000}:
            self.assertFalse(verdict("API: one job", api={**part, **change}).met)

    def test_filter_that_fails(self):
        part = {"seconds": times(0.2, 2), "failed": 0, "searched_to": 0, "items": 50}
        self.assertTrue(verdict("API: lists by", api={"filters": {"a": part}}).met)
        self.assertFalse(verdict("API: lists by", api={"filters": {"a": part, "b": {**part, "failed": 1}}}).met)
        self.assertFalse(verdict("API: lists by", api={"filters": {"a": {**part, "seconds": times(1.3, 2)}}}).met)

    def test_streams(self):
        good = {"streams": 500, "types": 3, "bytes": 39e6, "cpu": 0.02, "queries": 1, "overviews": 1, "closed": 0, "event_bytes": 3000}
        self.assertTrue(verdict("500 streams, few", streams_few=good).met)
        for change in {"bytes": 41e6}, {"cpu": 0.04}, {"queries": 2}, {"overviews": 0.5}, {"closed": 1}:
            self.assertFalse(verdict("500 streams, few", streams_few={**good, **change}).met)

    def test_bulk_is_compared_with_the_worse_calm(self):
        bulk = {name: {"latency": times(p99), "jobs": 10, "rate": 5} for name, p99 in (("before", 0.002), ("after", 0.004), ("paused", 0.0044), ("running", 1))}
        found = verdict("bulk retry", bulk=bulk)
        self.assertAlmostEqual(found.value, 1.1)
        self.assertTrue(found.met)
        self.assertFalse(verdict("the same", bulk=bulk).met)
        bulk["paused"]["failed"] = 1
        self.assertFalse(verdict("bulk retry", bulk=bulk).met)


class PageTest(unittest.TestCase):
    FILES = {"": '<link href="assets/style.css"><script type="module" src="assets/app.js"></script>',
             "assets/app.js": "import { h } from './vendor/preact.js';\nconst later = () => import('./later.js');\nimport './api.js';\n",
             "assets/vendor/preact.js": "export { a };\nimport x from '../api.js';", "assets/api.js": "// import './not.js'", "assets/style.css": "a{}"}

    def test_files_of_the_first_opening(self):
        connection = unittest.mock.Mock()
        connection.get = lambda path, *_: readings.client.Reply(200, {}, self.FILES[path[1:]].encode(), 0)
        found = {}
        readings.read_file(connection, "", found)
        self.assertEqual(found, {name: len(text) for name, text in self.FILES.items()})


class ReportTest(unittest.TestCase):
    def test_words(self):
        self.assertEqual(report.written("api.seconds.list.p99", 0.0123), "12.3 ms")
        self.assertEqual(report.written("api.seconds.list.n", 1600), "1,600")
        self.assertEqual(report.written("idle.fresh.bytes", 12e6), "12,000,000 bytes")

    def test_page_shows_what_failed(self):
        given = raw(idle={"fresh": {"bytes": 1}})
        given["readings"].append({"name": "api", "error": "<lost>"})
        self.assertIn("&lt;lost&gt;", report.render(given))


if __name__ == "__main__":
    unittest.main()
