"""A folder of images whose paths name both labels: what is shown, and who it is.

FERG (six drawn characters, seven expressions) and JAFFE (ten women, seven expressions) are such
folders. Both are available from their authors under their own licences; Tacit fetches neither.
"""

from __future__ import annotations

import hashlib
import io
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.data.datasets.twice import TwiceLabelled, labelled
from tacit.data.schema import ArraySchema
from tacit.privacy import errors
from tacit.privacy.errors import InvalidData

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".gif", ".pgm")
_EIGHT_BITS = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


class Preset(NamedTuple):
    """The pattern of paths in a published folder, and the size of images in the paper."""

    pattern: str
    size: tuple[int, int]


PRESETS = {
    # aia/aia_anger/aia_anger_1.png
    "ferg": Preset(r"(^|/)(?P<private>[^/]+)/(?P=private)_(?P<regular>[^/]+)/[^/]+$", (50, 50)),
    # KA.AN1.39.tiff
    "jaffe": Preset(r"(^|/)(?P<private>[A-Z]{2})\.(?P<regular>[A-Z]{2})\d[^/]*$", (37, 29)),
}


def load(
    folder: str | Path,
    pattern: str | None,
    size: tuple[int, int] | None = None,
    *,
    regular: str | None = None,
    private: str | None = None,
) -> TwiceLabelled:
    r"""Load every image below a folder, grey and of one size, in the order of their paths.

    Parameters
    ----------
    folder : path
        Files in it whose name ends in one of `SUFFIXES` are its images.
    pattern : str
        A regular expression with the groups `regular` and `private`, searched in the path of each
        image below the folder, with forward slashes; or "ferg" or "jaffe".
    size : (int, int), optional
        Height and width to which images are resized. Without it they stay as they are, and must
        all be of one size; presets have the size of the paper.
    regular, private : str, optional
        What to call the labels.

    Notes
    -----
    The paper cuts the faces of JAFFE out of their background by hand. That is not done here.
    """
    root = Path(folder)
    chosen, size = _settings(pattern, size)
    paths = sorted(path for path in root.rglob("*") if _is_image(path, root))
    names = [path.relative_to(root).as_posix() for path in paths]
    labels = _labels(root, chosen, names)
    images, digest = _read(root, paths, names, size)
    height, width = images.shape[1:]
    return labelled(
        root.name,
        images,
        [label["regular"] for label in labels],
        [label["private"] for label in labels],
        ArraySchema(height * width, 0, 255, image=(height, width)),
        regular_name=regular or "regular",
        private_name=private or "private",
        sha256={root.name: digest},
    )


def _settings(
    pattern: str | None, size: tuple[int, int] | None
) -> tuple[re.Pattern[str], tuple[int, int] | None]:
    if pattern in PRESETS:
        preset = PRESETS[pattern]
        pattern, size = preset.pattern, size or preset.size
    try:
        chosen = re.compile(pattern or "")
    except re.error:
        errors.refuse("image_folder", "pattern", "a regular expression", pattern)
    if not {"regular", "private"} <= set(chosen.groupindex):
        condition = f"{', '.join(PRESETS)}, or with groups (?P<regular>…) and (?P<private>…)"
        errors.refuse("image_folder", "pattern", condition, pattern)
    if size is None:
        return chosen, None
    if not isinstance(size, tuple | list) or len(size) != 2:
        errors.refuse("image_folder", "size", "(height, width)", size)
    height, width = (errors.whole("image_folder", "size", side, least=1) for side in size)
    return chosen, (height, width)


def _is_image(path: Path, root: Path) -> bool:
    """Test whether a file is an image; hidden files, which some systems add, are not."""
    hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    return path.suffix.lower() in SUFFIXES and not hidden and path.is_file()


def _labels(root: Path, pattern: re.Pattern[str], names: list[str]) -> list[re.Match[str]]:
    if not names:
        raise InvalidData(f"{root}: it must have images ({', '.join(SUFFIXES)}), got none.")
    matches = [match for name in names if (match := pattern.search(name))]
    if len(matches) < len(names):
        # Their names are not shown: they may be people's.
        raise InvalidData(
            f"{root}: the path of every image must match the pattern, got {len(matches)} of "
            f"{len(names)}. Correct the pattern, or remove the other images."
        )
    return matches


def _read(
    root: Path, paths: list[Path], names: list[str], size: tuple[int, int] | None
) -> tuple[npt.NDArray[np.uint8], str]:
    """Read all images, and hash all names and files together."""
    pillow, digest, images = _pillow(), hashlib.sha256(), []
    for number, (path, name) in enumerate(zip(paths, names, strict=True), 1):
        try:
            content = path.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
            images.append(_image(pillow, content, size))
        except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError):
            raise InvalidData(
                f"{root}: image {number} of {len(paths)}, in the order of their paths, must be "
                "readable and of 8 bits. It may be damaged."
            ) from None
    if shapes := {image.shape for image in images} - {images[0].shape}:
        count, remedy = len(shapes) + 1, "Give the height and width that all should have."
        errors.refuse(str(root), "size", f"given for images of {count} sizes", None, remedy)
    return np.stack(images), digest.hexdigest()


def _image(pillow: Any, content: bytes, size: tuple[int, int] | None) -> npt.NDArray[np.uint8]:
    with pillow.open(io.BytesIO(content)) as image:
        if image.mode not in _EIGHT_BITS:
            raise ValueError
        grey = image.convert("L")
    if size is not None:
        grey = grey.resize((size[1], size[0]), pillow.Resampling.BOX)
    return np.asarray(grey, np.uint8)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise errors.TacitError(
            "datasets: images need the Pillow package. pip install pillow."
        ) from None
    return Image
