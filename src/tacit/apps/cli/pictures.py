"""Small grey pictures in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text
from scipy.ndimage import zoom

Picture = npt.NDArray[np.float64]
_SHADES = " ░▒▓█"


def print_pictures(console: Console, pictures: Sequence[tuple[str, Picture]]) -> None:
    """Print pictures of numbers from 0 (black) to 1 (white) in a row, each under its title."""
    grid = Table.grid(padding=(0, 3, 0, 0))
    drawn = _in_shades if console.no_color or console.color_system is None else _in_grey
    # Centred by hand: rich would centre each line of a picture separately.
    grid.add_row(*(Text(title.center(2 * picture.shape[1])) for title, picture in pictures))
    grid.add_row(*(drawn(picture) for _, picture in pictures))
    console.print(grid)


def _in_grey(picture: Picture) -> Text:
    """Smooth to twice the size; each half-block shows two pixels, one above the other."""
    smooth = zoom(picture, 2, order=1, mode="nearest", grid_mode=True)
    levels = np.rint(255 * smooth.clip(0, 1)).astype(int)
    text = Text(end="")
    for upper, lower in zip(levels[::2], levels[1::2], strict=True):
        for over, under in zip(upper, lower, strict=True):
            text.append("▀", Style(color=_grey(over), bgcolor=_grey(under)))
        text.append("\n")
    text.right_crop()
    return text


def _grey(level: int) -> Color:
    return Color.from_rgb(level, level, level)


def _in_shades(picture: Picture) -> Text:
    """Draw without colours: two characters per pixel, denser for whiter."""
    levels = np.rint((len(_SHADES) - 1) * picture.clip(0, 1)).astype(int)
    return Text("\n".join("".join(2 * _SHADES[level] for level in row) for row in levels))
