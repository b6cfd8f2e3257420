"""report.html: one self-contained page.

Its order: the goals and their verdicts, then each workload with its charts and a one-sentence description, then the
machine and every reading.
"""

from html import escape

from canvas import theme_css
from goals import judge_all
from medians import duration, per_100k, plain, show

SECTIONS = [  # (heading, workload, description, charts)
    ("Enqueue", "enqueue", "Jobs are enqueued by SQL, in a closed loop, while no worker runs; beside it the same row by a plain INSERT.", ["enqueue"]),
    ("Drain", "drain_noop", "Jobs that do nothing wait already; the rate counts from the word go to the last completion.", ["drain-noop"]),
    ("One-row jobs", "drain_row", "The same with jobs that insert one row each, isolated: one job's failure doesn't undo another's row.", ["one-chart", "drain-row"]),
    ("Pickup", "pickup", "Now and then one job into an idle queue: the time from before the call, or from just before COMMIT, to the handler's first look at the clock.", ["pickup-call", "pickup-commit"]),
    ("Steady load", "steady", "Jobs come at a fixed rate whatever happened before; each one's time is counted from when it was due.", ["steady-rates", "steady-time", "steady-held"]),
    ("CPU and WAL", "drain_noop", "What draining no-op jobs costs, per 100,000 jobs.", ["cpu", "wal"]),
    ("Tools", "exec", "Jobs run /bin/true as a program, one or fifty at once; beside it a loop of posix_spawn without any queue.", ["exec"]),
    ("Deep queue", "deep", "The first 100,000 jobs are drained while few or many wait behind them.", ["deep"]),
    ("Lanes", "lanes", "One-row jobs in one lane, or spread over many types and priorities; the pickup of each.", ["lanes"]),
    ("Aging", "aging", "Jobs of low priority wait behind a backlog of high priority that one worker drains; with options.aging some of them go first, and those are counted.", []),
    ("Unique keys", "unique", "One constant key is enqueued and cancelled again and again while a held snapshot keeps every dead row.", ["unique"]),
    ("Schedules", "schedule", "Ticks become jobs: the time from the tick to the handler's first look at the clock, with one schedule and with many; the conductor's memory and CPU; the WAL of a tick.", []),
    ("Workflows", "workflow", "Jobs that wait for other jobs, and runs of workflows, beside plain jobs of the same reading: rates, CPU, the way from one job to the next.", []),
    ("Idle", "idle", "Nothing to do: how often all processes of the queue wake up, and how many statements they send.", ["idle"]),
]
COSTS = {"cpu_server": duration, "cpu_client": duration, **dict.fromkeys(("wal_bytes", "heap_bytes", "index_bytes"), lambda value: f"{value / 1e6:,.1f} MB"),
         "dead_rows": lambda value: f"{value:,.0f}"}
SECONDS = ("latency", "calls", "bare_commit", "commit", "first", "last", "seconds", "cpu")

STYLE = """
*{box-sizing:border-box}
body{margin:0 auto;max-width:62rem;padding:1.5rem 1rem 4rem;background:var(--back);color:var(--ink);
 font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .3rem}
h2{font-size:1.25rem;margin:2.6rem 0 .2rem}
p{margin:.2rem 0 1rem;max-width:44rem}
.muted,.what{color:var(--muted)}
.charts{display:grid;gap:1.2rem;grid-template-columns:repeat(auto-fill,minmax(min(100%,26rem),1fr));align-items:start}
figure{margin:0;border:1px solid var(--grid);border-radius:8px;padding:.3rem;min-width:0}
svg{display:block;width:100%;height:auto;max-width:34rem;margin:0 auto}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid var(--grid);vertical-align:top}
th{color:var(--muted);font-weight:600}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.verdict{white-space:nowrap;font-weight:600}
.no{color:var(--jobq)}
.open{color:var(--muted);font-weight:400}
details{margin:1rem 0}
summary{cursor:pointer;padding:.3rem 0}
code{font:.85em ui-monospace,monospace}
@media(max-width:40rem){
 body{padding:1rem .6rem 3rem}
 .goals thead{display:none}
 .goals tr{display:grid;grid-template-columns:1fr auto;padding:.5rem 0;border-bottom:1px solid var(--grid)}
 .goals td{border:0;padding:.1rem .2rem}
 .goals .measured{grid-column:1/-1;grid-row:3;color:var(--muted)}
 .goals .goal{grid-column:1/-1}
 .goals .n{text-align:left}
}
"""


def tag(name, text, **attributes):
    """An element; text is markup, attributes are escaped."""
    told = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items())
    return f"<{name}{told}>{text}</{name}>"


def table(head, rows, **attributes):
    """A table of cells that are markup; a cell may be (class, markup)."""
    def line(cells, name):
        parts = [cell if isinstance(cell, tuple) else ("", cell) for cell in cells]
        return tag("tr", "".join(tag(name, text, **({"class_": kind} if kind else {})) for kind, text in parts))

    body = tag("thead", line(head, "th")) + tag("tbody", "\n".join(line(row, "td") for row in rows))
    return tag("div", tag("table", body, **attributes), class_="scroll")


def goals(m):
    """The table of the goals and the sentence above it."""
    judged, rows = judge_all(m), []
    for goal, verdict in judged:
        if verdict is None:
            cells = ("measured", "–"), ("n", "–"), ("verdict open", "not measured")
        else:
            word = ("verdict", "✓ met") if verdict.met else ("verdict no", "✗ not met")
            cells = ("measured", escape(verdict.measured)), ("n", escape(show(verdict.value, verdict.unit))), word
        rows.append([("goal", escape(goal.sentence)), *cells])
    met, missed, absent = (sum(test(v) for _, v in judged) for test in (lambda v: v and v.met or False, lambda v: v is not None and not v.met, lambda v: v is None))
    said = f"{met} of {len(judged)} goals met, {missed} not met, {absent} not measured in this run."
    return tag("h2", "Goals") + tag("p", said) + table(["Goal", "Measured", ("n", "Ratio or value"), "Verdict"], rows, class_="goals")


def section(m, heading, workload, what, charts, svgs):
    """A heading, what was done, and its charts."""
    drawn = [tag("figure", svgs[name]) for name in charts if name in svgs]
    without = tag("p", "Not measured in this run." if charts else "Its figures are among the goals.", class_="muted")
    body = tag("div", "\n".join(drawn), class_="charts") if drawn else without
    return tag("h2", heading) + tag("p", f"{escape(what)} <code>{workload}</code>", class_="what") + body


def costs(m):
    """CPU, WAL and remaining size of 100,000 jobs, for every subject."""
    rows = []
    for workload, jobs in (("drain_noop", "no-op"), ("drain_row", "one-row")):
        for subject in m.subjects(workload, "100k", "rate"):
            found = {key: m.derived(workload, "100k", subject, per_100k(key)) for key in COSTS}
            if any(found.values()):
                rows.append([jobs, escape(subject), *(("n", COSTS[key](stat.median) if stat else "–") for key, stat in found.items())])
    if not rows:
        return ""
    head = ["Jobs", "Subject", *(("n", name) for name in ("CPU, server", "clients", "WAL", "heap", "indexes", "dead rows"))]
    what = "Draining 100,000 jobs of each kind, of fewer reckoned up; sizes and dead rows are those of the tables of live jobs, when the last job has ended."
    return tag("h2", "What 100,000 jobs cost") + tag("p", what, class_="what") + table(head, rows)


def written(key, value):
    """A metric's value with the unit that its name implies."""
    if key.endswith("_us"):
        return f"{plain(value)} µs"
    if key.startswith("cpu_per"):
        return duration(value)
    if key.split(".")[0].split("_")[0] in SECONDS or key.split(".")[0] in SECONDS:
        return duration(value)
    if key.endswith("_bytes") or key in ("jobs", "waiting", "dead_rows", "backlog"):
        return f"{value:,.0f}"
    return plain(value)


def readings(m):
    """Every metric of every reading, folded away by workload."""
    found = {}
    for workload, variant, subject, key, stat in m.table():
        figures = [("n", escape(written(key, value))) for value in stat[:3]]
        found.setdefault(workload, []).append([escape(variant), escape(subject), escape(key), *figures, ("n", str(stat.n))])
    head = ["Variant", "Subject", "Metric", ("n", "Median"), ("n", "Min"), ("n", "Max"), ("n", "n")]
    parts = [tag("details", tag("summary", f"<code>{escape(w)}</code>, {len(rows):,} figures") + table(head, rows)) for w, rows in found.items()]
    lost = [" ".join(filter(None, (w, v))) + f", {s}: {why}" for w, v, s, why in m.failed]
    if lost:
        parts.append(tag("p", "Readings without figures: " + escape("; ".join(lost)) + "."))
    return tag("h2", "All readings") + "".join(parts)


def machine(m):
    """What it ran on and with."""
    rows = [[escape(k), escape(str(v))] for k, v in m.run.items() if not isinstance(v, (dict, list))]
    for name in ("versions", "settings"):
        rows += [[f"{name[:-1]} {escape(k)}", escape(str(v))] for k, v in (m.run.get(name) or {}).items()]
    return tag("h2", "Machine, versions, settings") + (table(["What", "Value"], rows) if rows else tag("p", "Not recorded.", class_="muted"))


def lead(m):
    """What this page is, in two sentences."""
    low, high = m.repeats()
    many = f"{high} repeats" if low == high else f"{low} to {high} repeats"
    return (f"Level {escape(str(m.run.get('level', 'unknown')))}; figures are medians of {many if high != 1 else 'one repeat'}, whiskers the smallest and the largest. "
            "Each workload ran on one machine in one run, on a durable cluster: compare figures of a workload with each other, not with other runs.")


def render(m, svgs):
    """The page."""
    parts = [tag("h1", "jobq and its peers"), tag("p", lead(m), class_="muted"), goals(m)]
    parts += [section(m, *entry, svgs) for entry in SECTIONS]
    parts += [costs(m), machine(m), readings(m)]
    head = ('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>jobq benchmark</title><style>{theme_css(':root')}{STYLE}</style>")
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n' + "\n".join(parts) + "\n</body></html>\n"
