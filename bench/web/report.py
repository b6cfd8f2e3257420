"""raw.json to a table of the goals, and to report.html with every figure."""
from html import escape
from typing import Any, Dict, Iterator, List

from driver.medians import flatten, plain, show

from .goals import judge_all, word

STYLE = """
body{margin:0 auto;max-width:70rem;padding:1.5rem 1rem 4rem;font:16px/1.5 system-ui,sans-serif;color-scheme:light dark}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.35rem .6rem;border-bottom:1px solid #8886;vertical-align:top}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.v{white-space:nowrap;font-weight:600}
summary{cursor:pointer;padding:.3rem 0}
"""
TIMES = {"seconds", "latency", "first", "calls", "p50", "p95", "p99", "max"}


def written(key: str, value: float) -> str:
    """A value with the unit that its name implies."""
    words = key.split(".")
    if words[-1].endswith("bytes") or "reply_bytes" in words:
        return show(value, "bytes")
    if words[-1].endswith("seconds") or words[-1] in TIMES:
        return show(value, "s")
    return format(value, ",.0f") if value == int(value) else plain(value)


def lines(raw: Dict[str, Any]) -> Iterator[str]:
    """The goals as lines of text."""
    for goal, verdict in judge_all(raw):
        value = "" if verdict is None else ": %s (%s)" % (show(verdict.value, verdict.unit), verdict.measured)
        yield "%-13s %s%s" % (word(verdict), goal.sentence, value)


def row(cells: List[str], name: str = "td", kinds: str = "") -> str:
    kind = kinds.split() + [""] * len(cells)
    return "<tr>%s</tr>" % "".join('<%s class="%s">%s</%s>' % (name, kind[i].strip("-"), escape(cell), name) for i, cell in enumerate(cells))


def table(head: List[str], body: List[List[str]], kinds: str) -> str:
    return "<table><thead>%s</thead><tbody>%s</tbody></table>" % (row(head, "th", kinds), "\n".join(row(cells, "td", kinds) for cells in body))


def render(raw: Dict[str, Any]) -> str:
    """The page: goals, every reading, machine."""
    goals = [[goal.sentence, v.measured if v else "", show(v.value, v.unit) if v else "", word(v)] for goal, v in judge_all(raw)]
    parts = ["<h1>jobq-web and statistics</h1>", "<p>Level %s, %s.</p>" % (escape(raw["run"]["level"]), escape(raw["run"]["started"])),
             table(["Goal", "Measured", "Value", "Verdict"], goals, "- - n v"), "<h2>All figures</h2>"]
    for reading in raw["readings"]:
        figures = [[key, written(key, value)] for key, value in flatten(reading.get("metrics"))] or [["no figures", reading.get("error", "")]]
        parts.append("<details><summary>%s, load average before %s</summary>%s</details>" % (
            escape(reading["name"]), reading.get("load", ""), table(["Figure", "Value"], figures, "- n")))
    parts.append("<h2>Run</h2>" + table(["What", "Value"], [[k, str(v)] for k, v in raw["run"].items()], "- -"))
    return '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">' \
        "<title>jobq-web</title><style>%s</style></head>\n<body>%s</body></html>\n" % (STYLE, "\n".join(parts))
