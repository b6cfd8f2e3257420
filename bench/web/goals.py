"""The goals of jobq-web and of the statistics, and how each is judged.

A judge is a function of Figures that answers a Verdict, or None when a figure it needs was not read.  A run of smaller sizes
is judged, too: the figures behind a verdict have the sizes.
"""
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from driver.medians import number, plain, show

ONE_MS = 1e-3


class Verdict(NamedTuple):
    value: float
    unit: str
    met: bool
    measured: str


class Figures:
    """The readings of raw.json by name; a dotted key reaches into one."""

    def __init__(self, raw: Dict[str, Any]):
        self.run = raw.get("run") or {}
        self.readings = {r["name"]: r for r in raw.get("readings") or []}

    def part(self, name: str, key: str = "") -> Any:
        found = self.readings.get(name, {}).get("metrics")
        for word in key.split(".") if key else ():
            found = found.get(word) if isinstance(found, dict) else None
        return found

    def value(self, name: str, key: str) -> Optional[float]:
        return number(self.part(name, key))

    def many(self, name: str, keys: str) -> Optional[List[Any]]:
        """Several of them; None when one is missing."""
        found = [self.value(name, key) for key in keys.split()]
        return None if None in found else found


Judge = Callable[[Figures], Optional[Verdict]]


class Goal(NamedTuple):
    sentence: str
    judge: Judge


def count(value: Optional[float]) -> str:
    return format(value or 0, ",.0f")


def quantiles(part: Dict[str, Any]) -> str:
    """A figure of many, in words."""
    return "p50 %s, p99 %s, n %s" % (show(part["p50"], "s"), show(part["p99"], "s"), count(part["n"]))


def time_of(name: str, key: str, quantile: str, limit: float) -> Judge:
    """A quantile of a time is at most the limit."""

    def judge(f: Figures) -> Optional[Verdict]:
        part = f.part(name, key)
        return part and Verdict(part[quantile], "s", part[quantile] <= limit, quantiles(part))

    return judge


def metrics(f: Figures) -> Optional[Verdict]:
    part, reads = f.part("metrics", "seconds"), f.value("metrics", "table_reads")
    if not part or reads is None:
        return None
    said = "%s; %s table reads; first call of a session %s" % (quantiles(part), count(reads), show(f.part("metrics", "first.p50"), "s"))
    return Verdict(part["p99"], "s", part["p99"] <= 20 * ONE_MS and reads == 0, said)


def metrics_size(f: Figures) -> Optional[Verdict]:
    found = f.many("metrics", "bytes gzip_bytes series")
    if not found:
        return None
    size, packed, series = found
    return Verdict(size, "bytes", size <= 4.2e6 and packed <= 207e3, "%s series, gzip %s" % (count(series), show(packed, "bytes")))


def worst_why(f: Figures) -> Optional[Verdict]:
    kinds = {k: v for k, v in (f.part("why") or {}).items() if isinstance(v, dict)}
    if not kinds:
        return None
    worst = max(v["p99"] for v in kinds.values())
    said = "; ".join("%s %s" % (k, quantiles(v)) for k, v in kinds.items())
    return Verdict(worst, "s", worst <= 10 * ONE_MS, "%s live: %s" % (count(f.value("why", "live")), said))


def page(name: str) -> Judge:
    def judge(f: Figures) -> Optional[Verdict]:
        found = f.many(name, "types requests later.requests files_bytes answers_bytes later.bytes bytes")
        if not found:
            return None
        *counts, files, answers, later, total = found
        said = "%s types: %s requests, and %s after the first paint; files %s, answers %s, after the first paint %s" % (
            *map(count, counts), *(show(size, "bytes") for size in (files, answers, later)))
        requests = counts[1]
        return Verdict(total, "bytes", requests <= 10 and total <= 90e3, said)

    return judge


def api(f: Figures) -> Optional[Verdict]:
    """Each request from when it was sent; late ones say that the offered rate was too much."""
    parts, refused, rate = f.part("api", "seconds"), f.value("api", "refused"), f.value("api", "rate")
    if not parts or refused is None or rate is None:
        return None
    slow = max(parts, key=lambda name: parts[name]["p99"])
    wanted = 0.98 * (f.value("api", "load.rate") or 0)
    said = "worst is %s: %s; %s over 50 ms; %s jobs/s ran, %s live, %s in history; %s requests refused, sent late by p99 %s" % (
        slow, quantiles(parts[slow]), ", ".join(n for n, p in parts.items() if p["p99"] > 50 * ONE_MS) or "none",
        *map(count, (rate, f.value("api", "live"), f.value("api", "history"), refused)), show(f.value("api", "late.p99") or 0, "s"))
    return Verdict(parts[slow]["p99"], "s", parts[slow]["p99"] <= 50 * ONE_MS and refused == 0 and rate >= wanted, said)


def filters(f: Figures) -> Optional[Verdict]:
    """A list by another filter ends within a second (1.2 s, because it searches in steps): complete, or with searched_to."""
    parts = f.part("api", "filters")
    if not parts:
        return None
    slow = max(parts, key=lambda name: parts[name]["seconds"]["max"])
    worst = parts[slow]["seconds"]["max"]
    late = [name for name, part in parts.items() if part["seconds"]["max"] > 1.2 or part["failed"]]
    said = "%s; no searched_to in these: %s" % (
        ", ".join("%s %s%s" % (name, show(part["seconds"]["max"], "s"), " FAILED" if part["failed"] else "") for name, part in parts.items()),
        ", ".join(name for name in late if not parts[name]["searched_to"]) or "none")
    return Verdict(worst, "s", not late, said)


def streams(name: str) -> Judge:
    def judge(f: Figures) -> Optional[Verdict]:
        found = f.many(name, "streams types bytes cpu queries overviews closed event_bytes")
        if not found:
            return None
        number_of, types, size, cpu, queries, overviews, closed, event = found
        said = "%s types: %s streams, %s of a core, %s queries/s, %s overviews/s each of %s, %s closed" % (
            count(types), count(number_of), "%.1f %%" % (cpu * 100), plain(queries), plain(overviews), show(event, "bytes"), count(closed))
        return Verdict(size, "bytes", size <= 40e6 and cpu <= 0.03 and queries <= 1.05 and overviews >= 0.95 and closed == 0, said)

    return judge


def idle(f: Figures) -> Optional[Verdict]:
    """While it keeps connections to PostgreSQL, a timer looks after them once a second."""
    found = f.many("idle", "fresh.bytes fresh.wakeups used.bytes used.wakeups used.private_bytes")
    if not found:
        return None
    fresh, fresh_wakeups, used, wakeups, private = found
    said = "%s wake-ups/s; after a request %s, of them private %s, %s wake-ups/s" % (
        plain(fresh_wakeups), show(used, "bytes"), show(private, "bytes"), plain(wakeups))
    return Verdict(fresh, "bytes", max(fresh, used) <= 12e6 and fresh_wakeups <= 0.2 and wakeups <= 1.2, said)


def bulk(name: str) -> Judge:
    """p99 of pickup meanwhile, over that before and after."""

    def judge(f: Figures) -> Optional[Verdict]:
        parts = [f.part("bulk", key + ".latency") for key in ("before", "after", name)]
        if None in parts:
            return None
        calm = max(parts[0]["p99"], parts[1]["p99"])
        share = parts[2]["p99"] / calm
        said = "before %s; after %s; meanwhile %s; %s jobs at %s" % (
            *map(quantiles, parts), count(f.value("bulk", name + ".jobs")), show(f.value("bulk", name + ".rate") or 0, "/s"))
        failed = f.value("bulk", name + ".failed")
        if failed:
            said += "; then it FAILED: %s" % f.part("bulk", name + ".state.error")
        return Verdict(share, "×", share < 1.2 and not failed, said)

    return judge


GOALS: Tuple[Goal, ...] = (
    Goal("metrics() of 1,000 types, p99: 20 ms, no table read", metrics),
    Goal("metrics() of 1,000 types: 61,000 series in 4.2 MB, 207 kB gzip", metrics_size),
    *(Goal("%s, 1,000 types, p99: 5 ms" % view, time_of("views", view + ".seconds", "p99", 5 * ONE_MS))
      for view in ("stat_job_types", "stat_workers", "stat_lanes", "stat_limits")),
    Goal("why() with 1 M live jobs, p99: 10 ms", worst_why),
    Goal("page, few types: 10 requests, 90 kB", page("page_few")),
    Goal("page, 1,000 types: 10 requests, 90 kB", page("page")),
    Goal("API: one job, overview, lists without filter or of a live or dead status, p99: 50 ms", api),
    Goal("API: lists by other filters end after 1 s", filters),
    Goal("500 streams, few types: 40 MB, 3 % of a core, one query a second", streams("streams_few")),
    Goal("500 streams, 1,000 types: 40 MB, 3 % of a core, one query a second", streams("streams")),
    Goal("idle jobq-web: 12 MB, no wake-ups but timers", idle),
    Goal("bulk retry of 1 M dead letters: pickup p99 of others below 1.2 ×", bulk("paused")),
    Goal("the same while the retried jobs run (and fail again)", bulk("running")),
)


def judge_all(raw: Dict[str, Any]) -> List[Tuple[Goal, Optional[Verdict]]]:
    figures = Figures(raw)
    return [(goal, goal.judge(figures)) for goal in GOALS]


def word(verdict: Optional[Verdict]) -> str:
    return "not measured" if verdict is None else "met" if verdict.met else "NOT MET"
