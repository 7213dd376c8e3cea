"""Notebooks of the gallery: run them, show them as pages.

`python -m tacit_papers.pages.notebooks` runs docs/notebooks/*.ipynb and stores their outputs, the
plot of each beside it, and the gallery. Outputs are committed, so that readers see numbers; tests
run the notebooks and compare. Noise moves numbers: `within` in the metadata of a cell says how far.

Cells run as in Jupyter, one after the other in one namespace; a plot is shown at the end of the
cell that draws it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tacit_papers.figures import apart, words

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "docs" / "notebooks"
ORDER = ("survey", "table", "pipeline", "hospitals")
OPENING = """\
# Notebooks

Four short notebooks with data that are made up or come with scikit-learn: each runs in seconds. \
The numbers on these pages are those of the last run; noise is drawn anew in every run, so yours \
will differ a little.
"""
LINK = re.compile(r"\]\(((?:[\w./-]*/)?[\w-]+)\.ipynb\)")
"""A link to a notebook, which is a page of the site."""

Cell = dict[str, Any]


class Ran(NamedTuple):
    """What a cell printed and drew."""

    printed: str
    svg: str | None = None
    alt: str = ""


def paths() -> list[Path]:
    """List the notebooks in the order of the gallery."""
    return [FOLDER / f"{name}.ipynb" for name in ORDER]


def cells(path: Path) -> list[Cell]:
    """Read the cells of a notebook."""
    return list(json.loads(path.read_text())["cells"])


def source(cell: Cell) -> str:
    """Return the text of a cell."""
    return "".join(cell["source"])


def run(path: Path) -> Iterator[tuple[Cell, Ran]]:
    """Run the code cells of a notebook in the current folder."""
    import matplotlib

    matplotlib.use("agg")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(path)):
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(source(cell), f"{path.name}, cell {number}", "exec"), namespace)
            yield cell, Ran(out.getvalue(), *_drawn())


def _drawn() -> tuple[str | None, str]:
    """Return the plot of the cell, if it drew one, and what is seen in it."""
    import matplotlib.pyplot as plt

    numbers = plt.get_fignums()
    if not numbers:
        return None, ""
    figure = plt.figure(numbers[0])
    plt.close("all")
    return apart.whole(figure), " ".join(map(words.described, figure.axes))


def stored(cell: Cell) -> Ran:
    """Return the outputs that are stored with a cell."""
    printed, svg, alt = "", None, ""
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            printed += "".join(output["text"])
        else:
            svg = "".join(output["data"]["image/svg+xml"])
            alt = "".join(output["data"]["text/plain"])
    return Ran(printed, svg, alt)


def _outputs(ran: Ran) -> list[dict[str, Any]]:
    outputs: list[dict[str, Any]] = []
    if ran.printed:
        lines = ran.printed.splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    if ran.svg is not None:
        data = {"image/svg+xml": ran.svg.splitlines(keepends=True), "text/plain": [ran.alt]}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    return outputs


def store(path: Path) -> None:
    """Run a notebook in an empty folder, and store its outputs and its plot."""
    notebook = json.loads(path.read_text())
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            ran = [one for _, one in run(path)]
        finally:
            os.chdir(before)
    own = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for place, (cell, one) in enumerate(zip(own, ran, strict=True), start=1):
        cell |= {"execution_count": place, "outputs": _outputs(one)}
        if one.svg is not None:
            path.with_suffix(".svg").write_text(one.svg)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


def page(path: Path) -> str:
    """Show a notebook as a page in Markdown."""
    title, *parts = [_shown(cell, path.stem) for cell in cells(path)]
    download = f"[Download this notebook]({path.name})."
    return "\n\n".join([title, download, *parts]) + "\n"


def _shown(cell: Cell, stem: str) -> str:
    if cell["cell_type"] == "markdown":
        return source(cell)
    ran = stored(cell)
    parts = [f"```python\n{source(cell)}\n```"]
    if ran.printed:
        parts.append(f"```text\n{ran.printed.rstrip()}\n```")
    if ran.svg is not None:
        parts.append(_figure(f"![{ran.alt}]({stem}.svg)"))
    return "\n\n".join(parts)


def _figure(image: str) -> str:
    return f'<figure class="panels" markdown>\n\n{image}\n\n</figure>'


def gallery() -> str:
    """Make the page that lists the notebooks: title, opening sentences and plot of each."""
    parts = [OPENING.rstrip()]
    for path in paths():
        title, opening, *_ = source(cells(path)[0]).split("\n\n")
        alt = next(one.alt for one in map(stored, code(path)) if one.svg is not None)
        parts.append(f"## [{title.removeprefix('# ')}]({path.name})")
        parts += [opening, _figure(f"![{alt}]({path.stem}.svg)")]
    return "\n\n".join(parts) + "\n"


def code(path: Path) -> list[Cell]:
    """Read the code cells of a notebook."""
    return [cell for cell in cells(path) if cell["cell_type"] == "code"]


def main() -> None:
    """Run the notebooks that are named, or all, and write the gallery."""
    for path in paths():
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            store(path)
    (FOLDER / "index.md").write_text(gallery())


if __name__ == "__main__":
    main()
