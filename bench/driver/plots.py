"""The charts: each takes the Medians and returns a Canvas, or None without any measured value.

A title states the finding with its figure, computed from the medians of this run; when jobq or the compared subject
was not measured, the title only names the metric.  Rows are ordered by the figure, best first.
"""

import math
from statistics import median

from goals import HELD, bare_commit, drift, ends, wakeups_of, wal_place
from marks import Bar, Dots, Lines, Panel, bars, dots, grid
from medians import JOBQ, Stat, cpu_per_100k, duration, family, is_peer, own_transaction, percent, plain, ratio, show, times

CONNECTIONS = {"c1": "one connection", "c8": "eight connections", "bulk": "in bulk, 1,000 a call, one connection"}
LOADS = {"500": "500 jobs/s", "2000": "2,000 jobs/s", "10000": "10,000 jobs/s"}


def repeats_note(m):
    """n and what the whiskers are."""
    low, high = m.repeats()
    if high <= 1:
        return "One repeat."
    return f"Median of {high if low == high else f'{low} to {high}'} repeats, whiskers smallest to largest."


def ranked(rows, best_first=True):
    """Bars by their medians."""
    return sorted(rows, key=lambda row: row.stat.median, reverse=best_first)


def rate_bars(m, workload, variant, chosen=lambda subject: True, base=None):
    """Rates of the chosen subjects, best first; with a base also as a share of it; a smaller number of jobs is said."""
    subjects = [s for s in m.subjects(workload, variant, "rate") if chosen(s)]
    most = max((m.value(workload, variant, s, "jobs") or 0 for s in subjects), default=0)
    bare = base and m.value(workload, variant, base, "rate")
    rows = []
    for subject in subjects:
        stat = m.stat(workload, variant, subject, "rate")
        jobs = m.value(workload, variant, subject, "jobs")
        text = plain(stat.median)
        if bare and subject != base:
            text += f" = {percent(stat.median / bare)}"
        elif jobs and jobs < most:
            text += f" ({jobs:,.0f} jobs)"
        rows.append(Bar(subject, stat, text))
    return ranked(rows)


def against_best(m, workload, variant, ours, chosen=is_peer):
    """(jobq's rate over the best chosen one's, its name), or None."""
    best = m.best(workload, variant, "rate", chosen)
    share = ratio(m.value(workload, variant, ours, "rate"), best and best[1])
    return None if share is None else (share, best[0])


def drain_title(m, workload, variant, what, chosen=is_peer):
    """How many times the best chosen peer's rate jobq has."""
    found = against_best(m, workload, variant, JOBQ, chosen)
    return f"jobq runs {times(found[0])} {what} of the best peer, {found[1]}" if found else f"Rate of {what}".replace("the ", "", 1)


def one_chart(m, width=720):
    """The chart of the README: isolated one-row jobs, jobq beside the best configuration of each peer."""
    peers = {family(s) for s in m.subjects("drain_row", "100k", "rate") if own_transaction(s)}
    names = [m.best("drain_row", "100k", "rate", lambda s, f=f: own_transaction(s) and family(s) == f)[0] for f in sorted(peers)]
    rows = rate_bars(m, "drain_row", "100k", lambda s: s == JOBQ or s in names)
    found = against_best(m, "drain_row", "100k", JOBQ, own_transaction)
    title = f"jobq runs {times(found[0])} the isolated one-row jobs of the best peer" if found else "Isolated one-row jobs"
    note = "Each job inserts one row, isolated from the others: a peer's in a transaction of its own. jobq as it comes, each peer in its best configuration. " + repeats_note(m)
    return bars(title, note + facts(m), [Panel("", rows)], "jobs per second, more is better", width)


def facts(m):
    """The machine in a few words, for a chart that stands alone."""
    parts = [f"PostgreSQL {m.run['postgres']}"] if m.run.get("postgres") else []
    parts += [f"{m.run['cores']} cores"] if m.run.get("cores") else []
    return " " + ", ".join(parts) + ", fsync on." if parts else ""


def enqueue(m):
    """Rates beside the bare INSERT, and what share of it they are."""
    shares = [(ratio(m.value("enqueue", v, JOBQ, "rate"), m.value("enqueue", v, "bare/insert", "rate")), v) for v in CONNECTIONS]
    words = [f"{percent(share)} ({v})" for share, v in shares if share is not None]
    title = "jobq enqueues at " + ", ".join(words) + " of a bare INSERT's rate" if words else "Enqueue"
    panels = [Panel(words, rate_bars(m, "enqueue", v, base="bare/insert")) for v, words in CONNECTIONS.items()]
    return bars(title, "Percent: of bare/insert. " + repeats_note(m), panels, "jobs per second, more is better")


def drain_noop(m):
    """No-op jobs, few and many waiting."""
    title = drain_title(m, "drain_noop", "100k", "the no-op jobs per second")
    names = {"1M5p": " in five priorities", "100k-fresh": " in tables that were never analysed"}  # how many they are differs between levels: the readings say it
    panels = [Panel(most_jobs(m, "drain_noop", v, "jobs") + names.get(v, ""), rate_bars(m, "drain_noop", v)) for v in m.variants("drain_noop")]
    return bars(title, repeats_note(m), panels, "jobs per second, more is better")


def most_jobs(m, workload, variant, key):
    """How many jobs waited, as the readings say; the variant's name when they don't."""
    found = [m.value(workload, variant, s, key) for s in m.subjects(workload, variant, key)]
    return f"{max(found):,.0f} waiting" if found else variant


def drain_row(m):
    """One-row jobs, every configuration."""
    title = drain_title(m, "drain_row", "100k", "the isolated one-row jobs per second", own_transaction)
    panels = [Panel("", rate_bars(m, "drain_row", v)) for v in m.variants("drain_row")]
    note = "Every configuration; skip-locked/batch has 100 jobs in one transaction, each in a savepoint. "
    return bars(title, note + repeats_note(m), panels, "jobs per second, more is better")


def latency_rows(m, workload, variant, remark=lambda subject: ""):
    """Dots of all subjects, fastest first."""
    rows = []
    for subject in m.subjects(workload, variant, "latency.p50"):
        p50, p99 = (m.stat(workload, variant, subject, "latency." + key) for key in ("p50", "p99"))
        if p50.low > 0:
            rows.append(Dots(subject, p50, p99, remark(subject)))
    return sorted(rows, key=lambda row: row.p50.median)


def latency_title(m, workload, variant, what):
    """jobq's p50 and p99, and the peer whose p50 is the smallest."""
    ours = [m.value(workload, variant, JOBQ, "latency." + key) for key in ("p50", "p99")]
    if None in ours:
        return what[0].upper() + what[1:]
    title = f"{what[0].upper() + what[1:]}: jobq {duration(ours[0])} at p50, {duration(ours[1])} at p99"
    best = m.best(workload, variant, "latency.p50", pick=min)
    return title + (f"; fastest peer at p50 {best[0]}, {duration(best[1])}" if best else "")


def pickup_call(m):
    """From before the call of enqueue to the handler."""
    title = latency_title(m, "pickup", "call", "from the call to the running job")
    return dots(title, repeats_note(m), [Panel("", latency_rows(m, "pickup", "call"))])


def pickup_commit(m):
    """From just before COMMIT to the handler, with the COMMIT of a plain insert as a line."""
    title = latency_title(m, "pickup", "commit", "from COMMIT to the running job")
    bare = bare_commit(m)
    lines = ((bare, f"bare COMMIT {duration(bare)}"),) if bare else ()
    return dots(title, repeats_note(m), [Panel("", latency_rows(m, "pickup", "commit"), lines)])


def steady_rates(m):
    """Latency at each offered rate; subjects that fall behind are marked."""
    def behind(variant):
        def remark(subject):
            backlog = m.value("steady", variant, subject, "backlog")
            return "▲" if backlog and backlog >= int(variant) else ""
        return remark

    panels = [Panel(words, latency_rows(m, "steady", v, behind(v))) for v, words in LOADS.items()]
    ours = [(v, m.value("steady", v, JOBQ, "latency.p99")) for v in LOADS]
    said = [f"{duration(p99)} at {LOADS[v]}" for v, p99 in ours if p99 is not None]
    title = "Steady load: jobq's p99 is " + ", ".join(said) if said else "Latency under a steady load"
    return dots(title, "Whole run. ▲: fell behind, at the end more than a second's worth of jobs waited. " + repeats_note(m), panels)


def series_cell(m, variant, subject):
    """p50 and p99 a second: the median of the repeats and their band."""
    runs = [run for run in m.series("steady", variant, subject) if run.get("second")]
    if not runs:
        return None
    seconds = max((run["second"] for run in runs), key=len)
    lines = {}
    for name in ("p50", "p99"):
        lines[name] = band([dict(zip(run["second"], run.get(name) or [])) for run in runs], seconds)
    return Lines(seconds, lines) if any(v == v for line in lines.values() for v in line[1]) else None


def band(runs, seconds):
    """(lowest, median, highest) of each second; NaN, which is not drawn, where no repeat has a figure."""
    low, middle, high = [], [], []
    for second in seconds:
        found = [run[second] for run in runs if isinstance(run.get(second), (int, float)) and run[second] > 0] or [math.nan]
        low.append(min(found))
        middle.append(median(found))
        high.append(max(found))
    return low, middle, high


def steady_time(m):
    """Small multiples over time: ten minutes with a snapshot from the middle on, else clean beside held."""
    midway = m.subjects("steady", "500-midway", "latency.p99")
    variants, columns = (("500-midway",), ["clean until the line, then under a held snapshot"]) if midway else (("2000", "2000-snapshot"), ["clean", "under a held snapshot"])
    subjects = list(dict.fromkeys(s for v in variants for s in m.subjects("steady", v, "latency.p99")))
    rows = [(s, [series_cell(m, v, s) for v in variants]) for s in subjects]
    rows = [row for row in rows if any(row[1])]
    if not rows:
        return None
    rows.sort(key=lambda row: (row[0] != JOBQ, m.value("steady", variants[0], row[0], "latency.p99") or math.inf))
    values = [v for _, cells in rows for cell in cells if cell for line in cell.lines.values() for part in line for v in part if v == v]
    grown = drift(m, variants[-1], JOBQ, "p99")
    title = LOADS[variants[0].partition("-")[0]] + " over time"
    if grown is not None:
        title += f": under a held snapshot jobq's p99 ends at {times(grown)} that of the beginning"
    return grid(title, "Each second's p50 (thick) and p99 (thin); " + low_note(m), columns, rows, (min(values) / 1.6, max(values) * 1.6), 0.5 if midway else None)


def low_note(m):
    """repeats_note in the middle of a sentence, for bands."""
    high = m.repeats()[1]
    return "one repeat. Log scale." if high <= 1 else "lines are medians of the repeats, bands smallest to largest. Log scale."


def held(m):
    """Last minute over first minute in every condition: the worst of p50, p99 and CPU per job."""
    names = {"p50": "p50", "p99": "p99", "cpu_per_job": "CPU per job"}
    panels = []
    for variant, words in HELD.items():
        rows = []
        for subject in m.subjects("steady", variant, "last.p99"):
            found = {name: drift_stat(m, variant, subject, key) for key, name in names.items()}
            found = {name: stat for name, stat in found.items() if stat}
            if found:
                name = max(found, key=lambda name: found[name].median)
                rows.append(Bar(subject, found[name], f"{times(found[name].median)} {name}"))
        panels.append(Panel("2,000 jobs/s " + words, ranked(rows, False), ((1.2, ""),)))
    worst = [bar.stat.median for panel in panels for bar in panel.rows if bar.label == JOBQ]
    title = "End of the run over its beginning"
    if worst:
        title = f"jobq's end of a run is at most {times(max(worst))} its beginning, in latency and in CPU"
    return bars(title, "First and last minute (less in runs below two minutes); the worst of p50, p99 and CPU per job. Flat is 1; the goal is at most 1.2, the dashed line. " + repeats_note(m), panels, "end / beginning, less is better")


def drift_stat(m, variant, subject, key):
    """Last minute over first minute of each repeat."""
    return m.derived("steady", variant, subject, lambda row: ratio(row.get("last." + key), row.get("first." + key)))


def cpu(m):
    """CPU of 100,000 no-op jobs, the server's share solid."""
    rows = []
    for subject in m.subjects("drain_noop", "100k", "cpu_server"):
        stat = m.derived("drain_noop", "100k", subject, cpu_per_100k)
        if stat:
            server = m.value("drain_noop", "100k", subject, "cpu_server")
            client = m.value("drain_noop", "100k", subject, "cpu_client") or 0
            rows.append(Bar(subject, stat, duration(stat.median), ratio(server, server + client)))
    title = least_title(rows, "CPU of 100,000 no-op jobs", lambda value: duration(value))
    return bars(title, "Server (solid) and clients (pale). " + repeats_note(m), [Panel("", ranked(rows, False))], "CPU seconds, less is better")


def least_title(rows, what, words):
    """jobq's figure beside the smallest of the peers'."""
    ours = [row for row in rows if row.label == JOBQ]
    peers = ranked([row for row in rows if is_peer(row.label)], False)
    if not ours:
        return what
    title = f"{what}: jobq {words(ours[0].stat.median)}"
    return title + (f", thriftiest peer {peers[0].label} {words(peers[0].stat.median)}" if peers else "")


def megabytes(stat, factor):
    """A Stat in MB."""
    return Stat(*(value * factor / 1e6 for value in stat[:3]), stat.n)


def wal(m):
    """WAL of 100,000 jobs: of running them, and of their whole life where it was read."""
    run, whole = [], []
    for subject in m.subjects("drain_noop", "100k", "wal_bytes"):
        stat = m.derived("drain_noop", "100k", subject, lambda row: ratio(row.get("wal_bytes"), row.get("jobs")))
        run += [Bar(subject, megabytes(stat, 1e5), plain(stat.median / 10))] if stat else []
    place = wal_place(m, JOBQ) or ("", "")
    for subject in m.subjects(*place, "wal_per_job"):
        stat = m.stat(*place, subject, "wal_per_job")
        whole.append(Bar(subject, megabytes(stat, 1e5), plain(stat.median / 10)))
    title = least_title(whole or run, "WAL of 100,000 jobs, enqueue and run" if whole else "WAL of 100,000 no-op jobs, run only", lambda value: f"{plain(value)} MB")
    panels = [Panel("enqueue and run together (" + " ".join(place) + ")", ranked(whole, False)), Panel("run only", ranked(run, False))]
    return bars(title, repeats_note(m), panels, "MB, less is better")


def exec_tools(m):
    """Tools a second beside a loop that spawns."""
    shares = [(v, ratio(m.value("exec", v, JOBQ, "rate"), m.value("exec", v, "bare/spawn-loop", "rate"))) for v in ("1", "50")]
    words = [f"{percent(share)} ({v} at once)" for v, share in shares if share is not None]
    title = "jobq runs tools at " + ", ".join(words) + " of a bare spawn loop's rate" if words else "Tools run per second"
    panels = [Panel("one warm instance" if v == "warm" else f"{v} at once", rate_bars(m, "exec", v, base="bare/spawn-loop")) for v in m.variants("exec")]
    return bars(title, "Percent: of bare/spawn-loop. " + repeats_note(m), panels, "tools per second, more is better")


def deep(m):
    """The first 100,000 of many."""
    share = ratio(*(m.value("deep", v, JOBQ, "rate") for v in ("10M", "100k")))
    title = "Drain rate with many waiting" if share is None else f"With {most_jobs(m, 'deep', '10M', 'waiting')} jobq drains at {percent(share)} of its rate with {most_jobs(m, 'deep', '100k', 'waiting')}"
    panels = [Panel(most_jobs(m, "deep", v, "waiting"), rate_bars(m, "deep", v)) for v in m.variants("deep")]
    return bars(title, repeats_note(m), panels, "jobs per second, more is better", shared=True)


def lanes(m):
    """Pickup with one lane and with many."""
    share = ratio(*(m.value("lanes", v, JOBQ, "latency.p50") for v in ("1000x20", "1")))
    title = "Pickup with many lanes" if share is None else f"1,000 types × 20 priorities: jobq's pickup p50 is {times(share)} one lane's"
    names = {"1": "one type, one priority", "1000x20": "1,000 types × 20 priorities"}
    return dots(title, repeats_note(m), [Panel(names.get(v, v), latency_rows(m, "lanes", v)) for v in m.variants("lanes")])


def unique(m):
    """An enqueue of one constant key, at first and at last."""
    panels = []
    for subject in m.subjects("unique", "held", "last") + m.subjects("unique", "held", "last_us"):
        rows = []
        for name, words in (("first", "first 1,000"), ("last", "last 1,000")):
            seconds, micro = m.stat("unique", "held", subject, name), m.stat("unique", "held", subject, name + "_us")
            stat = micro or seconds and Stat(*(value * 1e6 for value in seconds[:3]), seconds.n)
            rows += [Bar(f"{subject}, {words}", stat, f"{plain(stat.median)} µs")] if stat else []
        panels.append(Panel("", rows))
    share = ratio(*reversed(ends(m, JOBQ)))
    title = "Enqueue of one constant unique key" if share is None else f"A unique key's enqueue costs jobq {times(share)} at last what it cost at first"
    return bars(title, "A held snapshot keeps every dead row. " + repeats_note(m), panels, "µs per enqueue, less is better", shared=True)


def idle(m):
    """Wake-ups a second with nothing to do, with the statements beside them."""
    rows = []
    for subject in dict.fromkeys(m.subjects("idle", "", "wakeups_per_s") + m.subjects("idle", "", "wakeups_total")):
        stat, statements = wakeups_of(m, subject), m.value("idle", "", subject, "statements")
        said = "" if statements is None else f", {plain(statements)} stmt/s"
        rows.append(Bar(subject, stat, plain(stat.median) + said))
    title = least_title(rows, "Idle", lambda value: show(value, "/s")).replace("Idle: jobq", "Idle wake-ups: jobq")
    return bars(title, "All processes of the queue; SQL statements beside it. " + repeats_note(m), [Panel("", ranked(rows, False))], "wake-ups per second, less is better")


CHARTS = {
    "one-chart": one_chart, "enqueue": enqueue, "drain-noop": drain_noop, "drain-row": drain_row, "pickup-call": pickup_call,
    "pickup-commit": pickup_commit, "steady-rates": steady_rates, "steady-time": steady_time, "steady-held": held,
    "cpu": cpu, "wal": wal, "exec": exec_tools, "deep": deep, "lanes": lanes, "unique": unique, "idle": idle,
}
