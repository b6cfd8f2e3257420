"""Readings become medians, and figures become words.

raw.json holds every repeat of every reading.  Medians turns that into one Stat (median, smallest, largest, number of
repeats) for each metric of each workload, variant and subject.  A nested metric is named with a dot: latency.p99.
A missing, non-numeric or infinite value gives None: the caller prints "not measured", and no figure is invented.
Ratios are taken between medians of one raw.json only, because figures of different runs are not comparable.

Standard library only: the goals can be judged, and this be tested, on a machine without matplotlib.
"""

import json
import math
from statistics import median
from typing import NamedTuple

JOBQ = "jobq/default"
OUTSIDERS = ("jobq", "pull", "bare")  # all other families are peers


class Stat(NamedTuple):
    """One metric over the repeats."""

    median: float
    low: float
    high: float
    n: int


def place_of(reading):
    """The workload and variant of a reading."""
    return reading["workload"], reading.get("variant") or ""


def add_run(raw, other):
    """Adds to a run the workloads of another run that it lacks, whole, so that each comparison is of one run."""
    have = set(map(place_of, raw["readings"]))
    more = [reading for reading in other["readings"] if place_of(reading) not in have]
    raw["readings"] += more
    said = ", ".join(sorted({" ".join(filter(None, place_of(reading))) for reading in more}))
    if said:
        raw["run"][said] = f"a run of its own, level {other['run'].get('level')}, started {other['run'].get('started')}"


def family(subject):
    """The part of a subject's name before the slash."""
    return subject.split("/", 1)[0]


def is_peer(subject):
    """True for a queue other than jobq."""
    return family(subject) not in OUTSIDERS


def own_transaction(subject):
    """A peer that runs each job in a transaction of its own: its effects don't wait for others, nor fall with them."""
    return is_peer(subject) and not subject.startswith("skip-locked/batch")


def number(value):
    """The value as a finite float, or None.  A bool is no number here."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def flatten(metrics, prefix=""):
    """Yields (dotted name, number) for every number in a tree of metrics."""
    for key, value in metrics.items() if isinstance(metrics, dict) else ():
        if isinstance(value, dict):
            yield from flatten(value, prefix + key + ".")
        elif number(value) is not None:
            yield prefix + key, number(value)


def ratio(ours, theirs):
    """ours / theirs, or None when either is missing or there is nothing to divide by."""
    if ours is None or theirs is None or theirs <= 0:
        return None
    return ours / theirs


class Medians:
    """The readings of one run, asked by workload, variant, subject and metric."""

    def __init__(self, raw):
        self.run = raw.get("run") or {}
        self._values = {}
        self._series = {}
        self.failed = []
        for reading in raw.get("readings") or []:
            self._add(reading)

    @classmethod
    def load(cls, path, *others):
        """Reads raw.json; of other runs what this one has not measured."""
        with open(path, encoding="utf-8") as file:
            raw = json.load(file)
        for other in others:
            with open(other, encoding="utf-8") as file:
                add_run(raw, json.load(file))
        return cls(raw)

    def _add(self, reading):
        workload, variant, subject = (str(reading.get(key) or "") for key in ("workload", "variant", "subject"))
        numbers = list(flatten(reading.get("metrics")))
        if not numbers:
            self.failed.append((workload, variant, subject, reading.get("error") or "no figures"))
        for key, value in numbers:
            self._values.setdefault((workload, variant, subject, key), []).append(value)
        if reading.get("series"):
            self._series.setdefault((workload, variant, subject), []).append(reading["series"])

    def stat(self, workload, variant, subject, key):
        """Stat of one metric, or None."""
        values = self._values.get((workload, variant, subject, key))
        return Stat(median(values), min(values), max(values), len(values)) if values else None

    def value(self, workload, variant, subject, key):
        """Median of one metric, or None."""
        stat = self.stat(workload, variant, subject, key)
        return stat.median if stat else None

    def subjects(self, workload, variant, key):
        """Every subject that has this metric, in the order of the readings."""
        return [s for (w, v, s, k) in self._values if (w, v, k) == (workload, variant, key)]

    def variants(self, workload):
        """The variants that a workload was read in, in the order of the readings."""
        return list(dict.fromkeys(v for (w, v, _, _) in self._values if w == workload))

    def best(self, workload, variant, key, chosen=is_peer, pick=max):
        """The chosen subject whose median is the best, as (subject, median), or None."""
        found = [(self.value(workload, variant, s, key), s) for s in self.subjects(workload, variant, key) if chosen(s)]
        if not found:
            return None
        value, subject = pick(found)
        return subject, value

    def derived(self, workload, variant, subject, compute):
        """Stat of a figure computed from the metrics of each repeat: compute(dict) -> number or None."""
        columns = {k: values for (w, v, s, k), values in self._values.items() if (w, v, s) == (workload, variant, subject)}
        repeats = max((len(values) for values in columns.values()), default=0)
        # A metric that some repeat lacks can't be assigned to repeats any more: leave it
        # out rather than mix them up.
        whole = {k: values for k, values in columns.items() if len(values) == repeats}
        found = [compute({k: values[i] for k, values in whole.items()}) for i in range(repeats)]
        found = [value for value in found if value is not None]
        return Stat(median(found), min(found), max(found), len(found)) if found else None

    def series(self, workload, variant, subject):
        """The series of every repeat."""
        return self._series.get((workload, variant, subject), [])

    def table(self):
        """(workload, variant, subject, metric, Stat) of everything, in the order of the readings."""
        return [key + (self.stat(*key),) for key in self._values]

    def repeats(self):
        """Smallest and largest number of repeats behind a figure."""
        counts = [len(values) for values in self._values.values()]
        return (min(counts), max(counts)) if counts else (0, 0)


def cpu_per_100k(metrics):
    """CPU seconds of server and clients for 100,000 jobs; a subject without clients has no cpu_client."""
    server = metrics.get("cpu_server")
    jobs = metrics.get("jobs")
    if server is None or not jobs:
        return None
    return (server + metrics.get("cpu_client", 0)) / jobs * 1e5


def per_100k(key):
    """For Medians.derived: a metric of 100,000 jobs; nothing when so few were run that it would be a guess."""

    def compute(metrics):
        jobs = metrics.get("jobs", 0)
        return metrics[key] / jobs * 1e5 if key in metrics and jobs >= 1000 else None

    return compute


def plain(value, digits=3):
    """Three significant digits with thousands separators: 111,000; 45.2; 0.0123."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    places = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(places, 0)}f}"


def duration(seconds):
    """A time in the unit that fits: 850 µs, 1.23 ms, 4.5 s."""
    for unit, size in (("s", 1), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{plain(seconds / size)} {unit}"
    return f"{plain(seconds * 1e6)} µs"


def times(value):
    """A ratio: 11×, 2.44×, 0.93×."""
    return (f"{value:.2f}" if value < 9.995 else plain(value, 2)) + "×"


def percent(value):
    """A share: 92 %."""
    return f"{value * 100:.0f} %"


def show(value, unit):
    """A value with its unit, as a person writes it."""
    writers = {"s": duration, "×": times, "%": percent}
    if unit in writers:
        return writers[unit](value)
    if unit in ("jobs", "bytes"):
        return f"{value:,.0f} {unit}"
    return f"{plain(value)}{unit}" if unit.startswith("/") else f"{plain(value)} {unit}".rstrip()
