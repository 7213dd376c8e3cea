"""Looks of curves: colours that colour-blind people tell apart [OI08]_, markers and line styles
that survive a grey copy.

References
----------
.. [OI08] Okabe, Ito. Color universal design. 2008.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tacit.apps.plots import canvas
from tacit_papers.figures.records import Result, central

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

Fill = Literal["full", "bottom", "none"]
Key = tuple[str, str]
"""Mechanism and features."""


@dataclass(frozen=True)
class Look:
    """One curve."""

    label: str
    colour: str
    marker: str
    line: Any = "-"
    fill: Fill = "full"
    size: float = 5.0

    def options(self) -> dict[str, Any]:
        """Return arguments for matplotlib."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.line,
            # An empty marker is white, not transparent: no error bar shows through.
            "fillstyle": "bottom" if self.fill == "bottom" else "full",
            "markerfacecolor": "white" if self.fill == "none" else self.colour,
            "markerfacecoloralt": "white",
            "markersize": self.size,
            "linewidth": 1.4,
        }


_MECHANISMS = {
    "codebook": Look("codebook", "#0072B2", "o"),
    "vlm": Look("VLM", "#D55E00", "s"),
    "vlm-paper": Look("VLM as published, unproven", "#E69F00", "v"),
    "vlm-tuned": Look("VLM, tuned", "#CC79A7", "D"),
    "direct": Look("direct noising", "#009E73", "^"),
}
_TRAINED = ("autoencoder", "invariant")
_SPARE = (("#56B4E9", "P"), ("#000000", "X"))
_STYLES: tuple[tuple[Any, Fill], ...] = (
    ("-", "full"),
    ((0, (4, 1.5)), "bottom"),
    ((0, (1, 1.2)), "none"),
    ((0, (4, 1.5, 1, 1.5)), "bottom"),
    ((0, (1, 3)), "none"),
)


def key(result: Result) -> Key:
    """Return what a colour stands for."""
    return str(result.get("mechanism")), str(result.get("features"))


def mechanisms(results: Iterable[Result]) -> dict[Key, Look]:
    """Choose a look for each mechanism, ours first; several features have several colours.

    Features that need no training come first, in whatever order records are given.
    """
    order = list(_MECHANISMS)
    keys = list(dict.fromkeys(key(result) for result in results))
    keys.sort(key=lambda k: (order.index(k[0]) if k[0] in order else len(order), k[1] in _TRAINED))
    looks: dict[Key, Look] = {}
    spare = 0
    for mechanism, features in keys:
        variants = [k for k in keys if k[0] == mechanism]
        look = _MECHANISMS.get(mechanism)
        if look is None or variants[0] != (mechanism, features):
            colour, marker = _SPARE[spare % len(_SPARE)]
            look = Look(look.label if look else mechanism, colour, marker)
            spare += 1
        label = f"{look.label}, {features}" if len(variants) > 1 else look.label
        looks[mechanism, features] = replace(look, label=label)
    return looks


def centrals(results: Iterable[Result]) -> dict[float, tuple[Any, Fill]]:
    """Choose line style and fill for each central ε: solid for ∞, lighter for smaller ε."""
    values = sorted({central(result) for result in results}, reverse=True)
    skip = 0 if values[0] == math.inf else 1
    return {value: _STYLES[(i + skip) % len(_STYLES)] for i, value in enumerate(values)}


def said(epsilon: float) -> str:
    """Write ε."""
    return "∞" if epsilon == math.inf else f"{epsilon:g}"


def sample(look: Look) -> Line2D:
    """Make a piece of a curve for the legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=look.label, **look.options())


def legend(figure: Figure, sections: Sequence[tuple[str, Sequence[Look]]]) -> None:
    """Draw the legend beside the panels: headings, and entries below each."""
    from matplotlib.lines import Line2D

    # A line is left free before a heading, but not before the first.
    headings = [f"\n{heading}" if i else heading for i, (heading, _) in enumerate(sections)]
    handles: list[Line2D] = []
    for heading, (_, looks) in zip(headings, sections, strict=True):
        handles += [Line2D([], [], linestyle="none", label=heading), *map(sample, looks)]
    drawn = figure.legend(
        handles=handles,
        loc="outside right upper",
        frameon=False,
        fontsize=canvas.SMALL,
        handlelength=2.6,
        labelspacing=0.6,
    )
    for text in drawn.get_texts():
        text.set_color(canvas.INK)
        if text.get_text() in headings:
            text.set_fontweight("bold")


def tidy(axes: Axes, title: str, across: str, up: str) -> None:
    """Set labels and a faint grid, and remove the box."""
    axes.set_title(title, loc="left", size=canvas.TEXT, color=canvas.INK)
    axes.set_xlabel(across, size=canvas.SMALL, color=canvas.INK)
    axes.set_ylabel(up, size=canvas.SMALL, color=canvas.INK)
    axes.tick_params(labelsize=canvas.SMALL, color=canvas.GREY, labelcolor=canvas.INK)
    axes.grid(axis="y", color=canvas.FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(canvas.GREY)
