"""Empty figures, their titles and captions, and the files that they are saved to.

Figures are made without pyplot: nothing global changes, and no display is needed. Matplotlib is
loaded by the first figure, not before.
"""

from __future__ import annotations

import io
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.privacy import errors, files

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")
DOTS_PER_INCH = 200
INK, GREY, FAINT = "#1a1a1a", "#595959", "#d9d9d9"
TEXT, SMALL = 9.0, 8.0
_PAD = 0.08
LEGEND_WIDTH = 1.8
_TITLE_LETTERS, _CAPTION_LETTERS = 9.5, 16.0
"""Letters that fit into an inch, rounded down."""


def blank(width: float, height: float) -> Figure:
    """Make an empty figure of this width and height, in inches."""
    return _figure_class()(figsize=(width, height), dpi=100)


def fitted(width: float, height: float) -> Figure:
    """Make an empty figure whose panels leave room for all of its text."""
    figure = blank(width, height)
    figure.set_layout_engine("constrained", w_pad=_PAD, h_pad=_PAD)
    return figure


def plain(text: str) -> str:
    """Mark text that people wrote, so that "$5 to $10" is no formula."""
    return text.replace("$", r"\$")


def _figure_class() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise errors.TacitError(
            "plots: figures need the matplotlib package. pip install 'tacit[plots]'."
        ) from None
    return Figure


def frame(figure: Figure, title: str, caption: str) -> None:
    """Write the title above all panels, left of the legend, and the caption below them."""
    width = figure.get_figwidth()
    title = textwrap.fill(title, int((width - LEGEND_WIDTH) * _TITLE_LETTERS))
    caption = textwrap.fill(caption, int(width * _CAPTION_LETTERS))
    figure.suptitle(title, x=0.012, ha="left", size=TEXT + 2, weight="bold", color=INK)
    figure.supxlabel(caption, x=0.012, ha="left", size=SMALL, color=GREY, linespacing=1.4)


def check_target(path: str | Path) -> Path:
    """Check that a figure can be saved to a path; call this before the work for the figure."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        errors.refuse("plots", "file", "one of " + ", ".join(SUFFIXES), path.name, "Rename it.")
    if path.is_dir():
        errors.refuse("plots", "path", "a file", str(path), "Name a file in that folder.")
    if not path.parent.is_dir():
        errors.refuse("plots", "path", "in an existing folder", str(path), "Make the folder first.")
    _figure_class()
    return path


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG, SVG or PDF, by its suffix; the same figure gives the same bytes.

    The file is complete or absent, since the figure is drawn in memory first.
    """
    path = check_target(path)
    import matplotlib

    kind = path.suffix.lower().removeprefix(".")
    date: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    drawn = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "tacit"}):
        figure.savefig(
            drawn, format=kind, dpi=DOTS_PER_INCH, facecolor="white", metadata=date[kind]
        )
    try:
        files.replace(path, drawn.getvalue())
    except OSError as error:
        errors.refuse("plots", "path", "writable", str(path), f"{error.strerror}.")
