"""One record before and after release, as small grey images in a row."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.apps.plots import canvas
from tacit.privacy import errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Titled = tuple[str, Any]
"""A title and an image: a table of numbers from 0, black, to 1, white."""

_SIDE, _GAP, _GROUP_GAP, _MARGIN = 1.45, 0.15, 0.45, 0.12
_HEADING, _LINE = 0.3, 0.17
"""Inches: side of an image, gaps between images and between groups, margin, lines of text."""
_LETTERS = 18
_ROUNDING = 1e-6


def picture(before: Sequence[Titled], after: Sequence[Titled]) -> Figure:
    """Draw what a person holds, and what others see of it, side by side.

    Parameters
    ----------
    before, after : sequences of (title, image)
        Images are two-dimensional, of numbers from 0 (black) to 1 (white).

    Examples
    --------
    >>> digit, report = [[0, 1], [1, 0]], [[0.4, 0.6], [0.5, 0.5]]
    >>> figure = picture([("the digit", digit)], [("its report", report)])
    >>> [axes.get_title() for axes in figure.axes]
    ['the digit', 'its report']
    """
    groups = {"before": _checked("before", before), "after": _checked("after", after)}
    images = [image for group in groups.values() for image in group]
    lines = max(title.count("\n") + 1 for title, _ in images)
    width = len(images) * (_SIDE + _GAP) - _GAP + _GROUP_GAP - _GAP + 2 * _MARGIN
    height = _SIDE + _LINE * lines + _HEADING + 2 * _MARGIN
    figure = canvas.blank(width, height)
    left = _MARGIN
    for heading, group in groups.items():
        _draw_heading(figure, heading, left, len(group))
        for title, image in group:
            box = (left / width, _MARGIN / height, _SIDE / width, _SIDE / height)
            _draw_image(figure.add_axes(box), title, image)
            left += _SIDE + _GAP
        left += _GROUP_GAP - _GAP
    return figure


def _draw_heading(figure: Figure, heading: str, left: float, images: int) -> None:
    """Write a heading above a group of images, on a line as wide as the group."""
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    start, end = left / width, (left + images * (_SIDE + _GAP) - _GAP) / width
    under, over = 1 - _HEADING / height, 1 - (_HEADING - 0.07) / height
    line = Line2D([start, end], [under, under], color=canvas.GREY, linewidth=0.8)
    figure.add_artist(line)
    figure.text(start, over, heading, size=canvas.TEXT, weight="bold", color=canvas.INK)


def _draw_image(axes: Axes, title: str, image: npt.NDArray[np.float64]) -> None:
    axes.imshow(image, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
    axes.set_title(canvas.plain(title), size=canvas.TEXT, color=canvas.INK)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(canvas.GREY)


def _checked(name: str, images: Sequence[Titled]) -> list[Titled]:
    if not len(images):
        errors.refuse("picture", name, "at least one (title, image)", len(images))
    return [(_wrapped(str(title)), _pixels(name, image)) for title, image in images]


def _wrapped(title: str) -> str:
    """Wrap a title to the width of an image; "ε = 4" stays on one line."""
    joined = title.replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
    return "\n".join(textwrap.fill(line, _LETTERS) for line in joined.splitlines())


def _pixels(name: str, image: Any) -> npt.NDArray[np.float64]:
    where = f"picture: {name}"
    pixels = errors.reals(where, image)
    if pixels.ndim != 2:
        raise errors.InvalidData(f"{where}: an image must have 2 dimensions, got {pixels.ndim}.")
    if not bool(np.all((pixels >= -_ROUNDING) & (pixels <= 1 + _ROUNDING))):
        # The values are somebody's record, so the message does not quote them.
        raise errors.InvalidData(f"{where}: an image must lie in [0, 1]. Scale it or clip it.")
    return pixels
