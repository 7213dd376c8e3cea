"""Panels of a figure as SVG files of their own, with a description of what each of them shows.

A page lays the panels out by the width of its screen, and shows title and caption as text. Glyphs
are stored as outlines: a viewer without the font would otherwise move and cut labels.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tacit_papers.figures import words

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

_MARGIN = 4.0
"""White space around a panel, in dots."""

_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))
_LONG_NUMBER = re.compile(r"(\.\d\d)\d+")
_COORDINATES = re.compile(r' (?:d|x|y)="[^"]*"')
_AROUND_LETTERS = re.compile(r"\s*([A-Za-z])\s+(?=[-\d.])")
_COMMENT = re.compile(r" *<!--.*?-->\n?", re.DOTALL)


@dataclass(frozen=True)
class Panel:
    """A panel: its SVG, and what is seen in it."""

    svg: str
    alt: str


@dataclass(frozen=True)
class Apart:
    """A figure in pieces."""

    title: str
    caption: str
    panels: list[Panel]
    legend: Panel | None


def apart(figure: Figure) -> Apart:
    """Take a drawn figure apart; the figure itself stays as it was."""
    figure.draw_without_rendering()
    engine = figure.get_layout_engine()
    figure.set_layout_engine("none")  # nothing moves when other panels are hidden
    try:
        shown = [axes for axes in figure.axes if axes.get_visible() and axes.axison]
        boxes = _boxes(shown)
        panels = [
            Panel(_svg(figure, axes, box), words.described(axes))
            for axes, box in zip(shown, boxes, strict=True)
        ]
        legend = next((_legend(figure, one) for one in figure.legends), None)
    finally:
        figure.set_layout_engine(engine)
    return Apart(
        _one_line(figure.get_suptitle()), _one_line(figure.get_supxlabel()), panels, legend
    )


def whole(figure: Figure) -> str:
    """Return a figure as one SVG."""
    return _svg(figure, None, None)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _legend(figure: Figure, legend: Any) -> Panel:
    box = legend.get_window_extent().padded(_MARGIN)
    return Panel(_svg(figure, legend, box), words.described_legend(legend))


def _boxes(shown: list[Axes]) -> list[Bbox]:
    """Return a box for each panel, with the same margins around all axes so that they align."""
    from matplotlib.transforms import Bbox

    inner = [axes.get_window_extent() for axes in shown]
    outer: list[Any] = [axes.get_tightbbox() for axes in shown]
    pairs = list(zip(inner, outer, strict=True))
    left = max(a.x0 - b.x0 for a, b in pairs) + _MARGIN
    right = max(b.x1 - a.x1 for a, b in pairs) + _MARGIN
    below = max(a.y0 - b.y0 for a, b in pairs) + _MARGIN
    above = max(b.y1 - a.y1 for a, b in pairs) + _MARGIN
    return [Bbox.from_extents(a.x0 - left, a.y0 - below, a.x1 + right, a.y1 + above) for a in inner]


def _svg(figure: Figure, kept: Artist | None, box: Bbox | None) -> str:
    import matplotlib

    drawn = io.BytesIO()
    settings: Any = {"svg.hashsalt": "tacit", "svg.fonttype": "path"}
    inches = None if box is None else box.transformed(figure.dpi_scale_trans.inverted())
    with matplotlib.rc_context(settings), _alone(figure, kept):
        figure.savefig(
            drawn,
            format="svg",
            bbox_inches=inches,
            transparent=True,
            metadata=_NO_METADATA,
        )
    return _smaller(drawn.getvalue().decode())


@contextmanager
def _alone(figure: Figure, kept: Artist | None) -> Iterator[None]:
    """Hide everything else; None keeps all."""
    others = [] if kept is None else figure.get_children()
    hidden = [one for one in others if one not in (kept, figure.patch) and one.get_visible()]
    for one in hidden:
        one.set_visible(False)
    try:
        yield
    finally:
        for one in hidden:
            one.set_visible(True)


def _smaller(svg: str) -> str:
    """Drop comments, white space in paths, and decimals of coordinates that nobody sees."""

    def shorter(match: re.Match[str]) -> str:
        name, value = match[0].split("=", 1)
        value = _AROUND_LETTERS.sub(r"\1", _LONG_NUMBER.sub(r"\1", value))
        return f"{name}={' '.join(value.split())}"

    return _COORDINATES.sub(shorter, _COMMENT.sub("", svg))
