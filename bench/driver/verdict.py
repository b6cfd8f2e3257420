"""A verdict about a goal, and the judges that several goals share."""

from typing import Callable, NamedTuple, Optional

from medians import JOBQ, ratio, show


class Verdict(NamedTuple):
    """The result of a goal."""

    value: float
    unit: str
    met: bool
    measured: str


class Goal(NamedTuple):
    """A goal and its judge."""

    id: str
    sentence: str
    judge: Callable[[object], Optional[Verdict]]


def compare(ours, theirs, unit, met, ratio_unit="×"):
    """Verdict on ours / theirs, each (name, median); met(ratio) decides."""
    share = ratio(ours[1], theirs[1])
    if share is None:
        return None
    measured = f"{ours[0]} {show(ours[1], unit)}, {theirs[0]} {show(theirs[1], unit)}"
    return Verdict(share, ratio_unit, met(share), measured)


def named(m, workload, variant, subject, key):
    """(subject, its median) for compare()."""
    return subject, m.value(workload, variant, subject, key)


def rate_against(workload, variant, ours, chosen, least):
    """jobq's rate is at least so many times the best of the chosen subjects'."""

    def judge(m):
        theirs = m.best(workload, variant, "rate", **({"chosen": chosen} if chosen else {}))
        return theirs and compare(named(m, workload, variant, ours, "rate"), theirs, "/s", lambda r: r >= least)

    return judge


def share_of_bare(workload, variant, bare, least):
    """jobq's rate is at least this share of doing it without a queue."""

    def judge(m):
        ours, theirs = (named(m, workload, variant, s, "rate") for s in (JOBQ, bare))
        return compare(ours, theirs, "/s", lambda r: r >= least, "%")

    return judge


def below(workload, variant, key, unit, limit):
    """One median of jobq's is below a limit."""

    def judge(m):
        stat = m.stat(workload, variant, JOBQ, key)
        return stat and Verdict(stat.median, unit, stat.median < limit, spread(stat, unit))

    return judge


def spread(stat, unit):
    """A median with the spread of its repeats."""
    if stat.n == 1:
        return f"{show(stat.median, unit)} (one repeat)"
    if stat.low == stat.high:
        return f"{show(stat.median, unit)} (all {stat.n} repeats)"
    return f"{show(stat.median, unit)} ({show(stat.low, unit)} to {show(stat.high, unit)} in {stat.n} repeats)"
