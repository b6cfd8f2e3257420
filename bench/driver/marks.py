"""The three kinds of panels: bars from zero, dots on a log scale, lines over time.

Bars show amounts and begin at zero, never on a log scale: a bar's length has to be the figure.  Latencies spread over
decades and have no zero worth showing: they are dots on a log scale.  Whiskers go from the smallest to the largest
repeat.  Every bar and dot carries its figure, so nothing has to be read off an axis.
"""

import math
from typing import List, NamedTuple, Optional, Tuple

from canvas import BACK, GRID, INK, MUTED, WIDTH, Canvas, colour, text_width
from medians import Stat, duration, family

ROW = 24
PAPER = {"facecolor": BACK, "edgecolor": "none", "pad": 0.6}  # behind a figure that a line may cross


class Bar(NamedTuple):
    """A row of a bar panel; part is the share of the bar drawn solid (None: all of it)."""

    label: str
    stat: Stat
    text: str
    part: Optional[float] = None


class Dots(NamedTuple):
    """A row of a dot panel: p50 and p99 in seconds, and a remark of one sign after them."""

    label: str
    p50: Stat
    p99: Optional[Stat]
    remark: str = ""


class Panel(NamedTuple):
    """Rows under a heading (may be empty), and vertical lines (value, text)."""

    heading: str
    rows: list
    lines: Tuple = ()


def weight(label):
    """jobq's rows stand out also without colour."""
    return "bold" if family(label) == "jobq" else "normal"


def left_edge(panels):
    """Pixels for the labels of all rows."""
    rows = [row for panel in panels for row in panel.rows]
    return 18 + max(text_width(row.label, 11, weight(row.label) == "bold") for row in rows)


def panel_height(panel):
    """Pixels of a panel with its heading and axis."""
    return len(panel.rows) * ROW + (26 if panel.heading else 0) + 34


def whisker(axes, stat, y):
    """A thin line from the smallest to the largest repeat."""
    if stat.high > stat.low:
        axes.plot([stat.low, stat.high], [y, y], color=INK, linewidth=1.2, marker="|", markersize=5, zorder=4)


def label_rows(axes, rows):
    """The labels at the left and the order from the top down."""
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.tick_params(axis="y", length=0, pad=6)
    for tick, row in zip(axes.get_yticklabels(), rows):
        tick.set(color=INK, fontweight=weight(row.label))


def short(value):
    """A tick's label: 0, 250, 40k, 1.5M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def draw_bars(axes, rows, unit, top, text_room):
    """Bars from zero; top is the largest value, text_room the share of the axis kept for the figures."""
    for y, row in enumerate(rows):
        ink = colour(row.label)
        axes.barh(y, row.stat.median, height=0.66, color=ink, alpha=1 if row.part is None else 0.45)
        if row.part is not None:
            axes.barh(y, row.stat.median * row.part, height=0.66, color=ink)
        whisker(axes, row.stat, y)
        axes.annotate(row.text, (max(row.stat.high, row.stat.median), y), (6, 0), textcoords="offset points", va="center", fontsize=11, color=INK, fontweight=weight(row.label))
    axes.set_xlim(0, top / (1 - text_room) if top else 1)
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_xlabel(unit, loc="left", labelpad=3)


def bars(title, note, panels, unit, width=WIDTH, shared=False):
    """Panels of bars; each has its own scale unless shared."""
    panels = [panel for panel in panels if panel.rows]
    if not panels:
        return None
    canvas = Canvas(title, note, sum(map(panel_height, panels)) + 8, width)
    left = left_edge(panels)
    room = (max(text_width(row.text, 11, True) for panel in panels for row in panel.rows) + 12) / (width - left - 10)
    tops = [max(max(row.stat.high, row.stat.median) for row in panel.rows) for panel in panels]
    for panel, top in zip(panels, tops):
        if panel.heading:
            canvas.heading(panel.heading)
        axes = canvas.axes(left, len(panel.rows) * ROW)
        label_rows(axes, panel.rows)
        draw_bars(axes, panel.rows, unit, max(tops) if shared else top, min(room, 0.7))
        for value, _ in panel.lines:
            axes.axvline(value, color=MUTED, linewidth=1.2, linestyle=(0, (3, 2)), zorder=6)
    return canvas


def draw_dots(axes, rows):
    """p50 filled, p99 hollow, a line between them, both with their figures."""
    for y, row in enumerate(rows):
        ink = colour(row.label)
        ends = [row.p50] + ([row.p99] if row.p99 else [])
        axes.plot([stat.median for stat in ends], [y] * len(ends), color=ink, linewidth=2.5, alpha=0.5, solid_capstyle="butt")
        for stat, fill in zip(ends, (ink, BACK)):
            whisker(axes, stat, y)
            axes.plot(stat.median, y, "o", color=ink, markerfacecolor=fill, markersize=7.5, markeredgewidth=1.8, zorder=5)
        left, right = duration(row.p50.median), " ".join(filter(None, [row.p99 and duration(row.p99.median), row.remark]))
        for text, stat, shift, side in ((left, row.p50, -8, "right"), (right, ends[-1], 8, "left")):
            at = stat.low if side == "right" else stat.high
            axes.annotate(text, (at, y), (shift, 0), textcoords="offset points", va="center", ha=side, fontsize=11, color=INK, fontweight=weight(row.label), bbox=PAPER, zorder=6)


def log_axis(axes, low, high, pixels, room):
    """A log scale of times around the data with this much room (left, right pixels) for the figures."""
    span = max(high / low, 3)
    grow = span ** (1 / max(pixels - sum(room), 60))  # factor of one pixel
    axes.set_xscale("log")
    axes.set_xlim(low / grow ** room[0], low * span * grow ** room[1])
    decades(axes.xaxis, axes.get_xlim(), 4)
    axes.tick_params(axis="x", which="minor", length=0)
    axes.grid(axis="x", color=GRID, linewidth=0.8)


def decades(axis, limits, most):
    """Ticks at powers of ten, or of a hundred and so on, so that there are not too many; of 1, 2, 5 when there is none."""
    low, high = math.ceil(math.log10(limits[0])), math.floor(math.log10(limits[1]))
    step = max(1, math.ceil((high - low + 1) / most))
    ticks = [10.0**power for power in range(low, high + 1, step)]
    if len(ticks) < 2:
        ticks = [base * 10.0**power for power in range(low - 1, high + 2) for base in (1, 2, 5) if limits[0] <= base * 10.0**power <= limits[1]][:most]
    axis.set_ticks(ticks, [tick_time(tick) for tick in ticks])
    axis.set_ticks([], minor=True)


def tick_time(seconds):
    """10 µs, 1 ms, 100 ms, 10 s."""
    for unit, size in (("s", 1), ("ms", 1e-3)):
        if seconds >= size * 0.999:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds * 1e6:.0f} µs"


def dots(title, note, panels):
    """Panels of dots that share one log scale."""
    panels = [panel for panel in panels if panel.rows]
    stats = [s for panel in panels for row in panel.rows for s in (row.p50, row.p99) if s and s.low > 0]
    if not stats:
        return None
    canvas = Canvas(title, note + " Filled: p50, hollow: p99.", sum(map(panel_height, panels)) + 12 * len(panels) + 8)
    left = left_edge(panels)
    low, high = min(s.low for s in stats), max(s.high for s in stats)
    for panel in panels:
        if panel.heading:
            canvas.heading(panel.heading)
        canvas.y += 12
        axes = canvas.axes(left, len(panel.rows) * ROW, right=20)
        log_axis(axes, low, high, canvas.width - left - 20, (62, 66))
        label_rows(axes, panel.rows)
        draw_dots(axes, panel.rows)
        axes.set_xlabel("time (log scale)", loc="left", labelpad=3)
        for value, text in panel.lines:
            axes.axvline(value, color=MUTED, linewidth=1.2, linestyle=(0, (3, 2)), zorder=1)
            axes.annotate(text, (value, -0.5), (0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=11, color=MUTED)
    return canvas


class Lines(NamedTuple):
    """One cell of a grid of lines: the seconds, and the low, middle and high of each line by name."""

    seconds: List[float]
    lines: dict


def grid(title, note, columns, rows, limits, mark=None):
    """Small multiples: rows are (subject, [Lines or None]), all on the same scales; limits are (low, high) seconds.

    mark: a line across every cell at this share of its width.
    """
    height, gap, side = 66, 24, 50
    canvas = Canvas(title, note, 22 + len(rows) * (height + gap) + 36)
    wide = (canvas.width - side - 10 - 14 * (len(columns) - 1)) / len(columns)
    for i, text in enumerate(columns):
        canvas.text(side + i * (wide + 14), text, size=11, color=MUTED)
    canvas.y += 18
    for number, (subject, cells) in enumerate(rows):
        canvas.text(canvas.MARGIN, subject, size=11, color=INK, weight=weight(subject))
        canvas.y += gap - 8
        for i, cell in enumerate(cells):
            box = ((side + i * (wide + 14)) / canvas.width, 1 - (canvas.y + height) / canvas.height, wide / canvas.width, height / canvas.height)
            axes = canvas.bare_axes(box)
            draw_lines(axes, cell, colour(subject), limits, i == 0, number == len(rows) - 1)
            if mark is not None:
                axes.axvline(mark * sum(axes.get_xlim()), color=MUTED, linewidth=1.2, linestyle=(0, (3, 2)), zorder=1)
        canvas.y += height + 8
    return canvas


def draw_lines(axes, cell, ink, limits, first, last):
    """p50 thick, p99 thin, each with the band of its repeats, named at its end."""
    axes.set_yscale("log")
    axes.set_ylim(*limits)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    decades(axes.yaxis, limits, 3)
    axes.tick_params(axis="y", which="both", length=0, labelleft=first)
    axes.tick_params(axis="x", labelbottom=last)
    if last:
        axes.set_xlabel("seconds since the start", loc="left", labelpad=1)
    if cell is None:
        axes.annotate("not measured", (0.5, 0.5), xycoords="axes fraction", ha="center", va="center", fontsize=11, color=MUTED)
        return
    for name, (low, middle, high) in cell.lines.items():
        if low != high:
            axes.fill_between(cell.seconds, low, high, color=ink, alpha=0.2, linewidth=0)
        axes.plot(cell.seconds, middle, color=ink, linewidth=2 if name == "p50" else 1)
    axes.set_xlim(cell.seconds[0], cell.seconds[-1] or 1)
    axes.locator_params(axis="x", nbins=4)
    for name, where in (("p99", "top"), ("p50", "bottom")):
        place_name(axes, cell, name, where)


def place_name(axes, cell, name, side):
    """p99 above its line's last point, p50 below."""
    values = [value for value in cell.lines.get(name, ([], [], []))[1] if value == value]
    if values:
        tail = values[-max(1, len(values) // 6):]
        at = max(tail) if side == "top" else min(tail)
        axes.annotate(name, (cell.seconds[-1], at), (-2, 2 if side == "top" else -2), textcoords="offset points", ha="right", va="bottom" if side == "top" else "top", fontsize=11, color=MUTED)
