"""The common parts of every chart: a stack of panels, laid out in pixels, written as SVG with text as text.

matplotlib draws the marks; the places are computed here, so that nothing overlaps and every chart is readable at the
width of a phone: WIDTH pixels, labels no smaller than 11.  A chart is a title that says the finding, a line that says
what is shown, and panels (a heading, rows or lines, an axis with its unit).

Colours are names in disguise: the hexadecimal values below are found again in the SVG and followed by a CSS variable,
so one file serves light and dark.  Three colours carry the meaning (jobq, a peer, no queue at all); they differ in
hue and in lightness, so they can be told apart without seeing colours, and every mark has its own label anyway.
"""

import functools
import io
import re
import textwrap

import matplotlib

matplotlib.use("Agg")
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.font_manager import FontProperties  # noqa: E402
from matplotlib.textpath import text_to_path  # noqa: E402

from medians import family  # noqa: E402

WIDTH = 400
JOBQ_COLOUR, PEER, BARE = "#d55e01", "#5b8db8", "#a3a9b1"
INK, MUTED, GRID, BACK = "#1b1f25", "#5a636f", "#dfe3e8", "#fffffe"
THEME = {  # name: (in the SVG and on light, on dark)
    "jobq": (JOBQ_COLOUR, JOBQ_COLOUR),
    "peer": (PEER, "#6fa3d0"),
    "bare": (BARE, "#6b737d"),
    "ink": (INK, "#e8eaed"),
    "muted": (MUTED, "#a2abb6"),
    "grid": (GRID, "#31373e"),
    "back": (BACK, "#16191d"),
}
FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
# One point is one pixel of the viewBox: the SVG backend counts 72 to the inch.
matplotlib.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "jobq", "figure.dpi": 72, "font.size": 11, "font.family": "DejaVu Sans",
    "axes.edgecolor": GRID, "text.color": INK, "xtick.color": GRID, "ytick.color": GRID, "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED, "axes.labelcolor": MUTED, "xtick.labelsize": 11, "ytick.labelsize": 11, "axes.labelsize": 11,
    "figure.facecolor": BACK, "axes.facecolor": BACK, "axes.linewidth": 0.8,
})


def colour(subject):
    """jobq's colour, a peer's, or that of what has no queue."""
    return {"jobq": JOBQ_COLOUR, "bare": BARE}.get(family(subject), PEER)


@functools.lru_cache(maxsize=None)
def text_width(text, size=11, bold=False):
    """Pixels that a text needs in the widest font that is likely to show it."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    font.set_size(size)
    return text_to_path.get_text_width_height_descent(text or " ", font, False)[0]


def wrap(text, width, size, bold=False):
    """Lines of a text that fit."""
    if text_width(text, size, bold) <= width:
        return [text]
    columns = len(text)
    while columns > 12 and any(text_width(line, size, bold) > width for line in textwrap.wrap(text, columns)):
        columns -= 1
    return textwrap.wrap(text, columns)


class Canvas:
    """A figure that is filled from the top down, in pixels."""

    MARGIN = 10

    def __init__(self, title, note, height, width=WIDTH):
        """height: of everything below title and note."""
        self.width = width
        room = width - 2 * self.MARGIN
        self.title = title
        head = [(line, 14, INK, "bold") for line in wrap(title, room, 14, True)]
        head += [(line, 11, MUTED, "normal") for line in wrap(note, room, 11)]
        self.height = sum(size * 1.4 for _, size, _, _ in head) + height + 2 * self.MARGIN + 4
        self.figure = Figure(figsize=(width / 72, self.height / 72))
        self.y = self.MARGIN
        for line, size, ink, weight in head:
            self.text(self.MARGIN, line, size=size, color=ink, weight=weight)
            self.y += size * 1.4
        self.y += 4

    def text(self, x, text, **style):
        """Text whose top left is at x and the current height."""
        self.figure.text(x / self.width, 1 - self.y / self.height, text, va="top", **style)

    def heading(self, text):
        """The name of a panel."""
        self.y += 8
        self.text(self.MARGIN, text, size=11, color=INK, weight="bold")
        self.y += 18

    def axes(self, left, height, right=10, below=34):
        """Axes across the figure at the current height, with room below for the ticks and the unit."""
        box = [left / self.width, 1 - (self.y + height) / self.height, (self.width - left - right) / self.width, height / self.height]
        self.y += height + below
        return self.bare_axes(box)

    def bare_axes(self, box):
        """Axes without a frame but for the base line."""
        axes = self.figure.add_axes(box)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=3, pad=3)
        axes.set_axisbelow(True)
        return axes


def svg_of(canvas, name):
    """The chart as SVG text whose colours are CSS variables and whose ids begin with the chart's name."""
    out = io.StringIO()
    canvas.figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": canvas.title})
    svg = out.getvalue()
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.S)
    svg = re.sub(r"(\d\.\d\d)\d+", r"\1", svg)  # a hundredth of a pixel
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r"(font: [^;\"]*?)'DejaVu Sans'[^;\"]*", lambda match: match[1] + FONTS, svg)
    for word, (light, _) in THEME.items():
        svg = re.sub(rf"(fill|stroke): {light}", rf"\1: {light}; \1: var(--{word})", svg)
    return re.sub(r"<svg[^>]*>", lambda match: re.sub(r' (width|height)="[^"]*"', "", match[0]).replace("<svg", '<svg role="img"'), svg, count=1)


def theme_css(selector):
    """The colours as CSS variables of a selector, for light and dark."""
    light, dark = ("".join(f"--{word}:{pair[i]};" for word, pair in THEME.items()) for i in (0, 1))
    return f"{selector}{{{light}color-scheme:light dark}}@media(prefers-color-scheme:dark){{{selector}{{{dark}}}}}"


def standalone(svg, canvas):
    """The same SVG as a file of its own: with its colours and its size."""
    head = f'<svg width="{canvas.width}" height="{canvas.height:.0f}" '
    style = f"<style>{theme_css('svg')}</style>"
    svg = svg.replace("<svg ", head, 1)
    return re.sub(r"(<svg[^>]*>)", lambda match: match[1] + style, svg, count=1) + "\n"
