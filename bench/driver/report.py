#!/usr/bin/env python3
"""raw.json to report.html and SVG: report.py RAW.json [OTHER.json...] [--out DIR]

    medians.py   readings to medians, and figures to words
    goals.py     the goals and how they are judged
    canvas.py    a chart's frame, colours and SVG;  marks.py: bars, dots, lines
    plots.py     the charts
    page.py      the page

Also prints the verdicts, and does that alone where matplotlib is missing (Debian: python3-matplotlib, for /usr/bin/python3).
"""

import argparse
import os
import sys

from goals import judge_all
from medians import Medians, show


def verdicts(m):
    """The goals as lines of text."""
    for goal, verdict in judge_all(m):
        if verdict is None:
            yield f"not measured  {goal.sentence}"
        else:
            yield f"{'met' if verdict.met else 'NOT MET':13} {goal.sentence}: {show(verdict.value, verdict.unit)} ({verdict.measured})"


def write(path, text):
    """Writes a file whole or not at all."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def draw(m, out):
    """Writes every chart that has data as out/NAME.svg, removes those that have none, and gives the SVGs for the page."""
    from canvas import WIDTH, standalone, svg_of
    from plots import CHARTS

    svgs = {}
    for name, chart in CHARTS.items():
        canvas, path = chart(m), os.path.join(out, name + ".svg")
        if canvas:
            svgs[name] = svg_of(canvas, name)
            write(path, standalone(svgs[name], canvas))
            if canvas.width > WIDTH:  # on the page every chart has to be readable on a phone
                svgs[name] = svg_of(chart(m, WIDTH), name)
        elif os.path.exists(path):
            os.remove(path)  # never leave a chart of an earlier run beside this run's page
    return svgs


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("raw", nargs="+", help="raw.json of a run, and of others whose workloads this one lacks")
    parser.add_argument("--out", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))), help="directory for report.html and the SVGs (bench)")
    args = parser.parse_args()
    m = Medians.load(*args.raw)
    print("\n".join(verdicts(m)))
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        sys.exit("no report.html: matplotlib is missing (apt-get install python3-matplotlib, then /usr/bin/python3 bench/driver/report.py)")
    from page import render

    os.makedirs(args.out, exist_ok=True)
    write(os.path.join(args.out, "report.html"), render(m, draw(m, args.out)))


if __name__ == "__main__":
    main()
