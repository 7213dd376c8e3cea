"""Figures on pages: drawn from the records, one SVG file per panel, laid out by the page.

A figure is a folder `papers/results/figures/STUDY-DATA` (with the variant, where a study has
several on one data set): `1.svg`, `2.svg`, …, `legend.svg`, and `figure.json`, which holds title,
caption, a description of each file, and the hashes of the records that it was drawn from.
"""

from __future__ import annotations

import hashlib
import html
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tacit_papers import figures
from tacit_papers.figures.apart import apart
from tacit_papers.pages.evidence import StudyEvidence
from tacit_papers.pages.provenance import Group

LEGEND = "legend.svg"
CONTENTS = "figure.json"


def name_of(key: Group, groups: Iterable[Group]) -> str:
    """Name the figure of a group of records."""
    study, data, variant = key
    several = sum(other[:2] == key[:2] for other in groups) > 1
    return f"{study}-{data}-{variant}" if several else f"{study}-{data}"


def refresh(results: Path, groups: dict[Group, StudyEvidence], every: bool = False) -> list[str]:
    """Draw the figures whose records changed, or all; return their names."""
    drawn = []
    wanted = {name_of(key, groups): evidence for key, evidence in groups.items()}
    for name, evidence in wanted.items():
        folder = results / "figures" / name
        if every or _contents(folder).get("records") != _hashes(results, evidence):
            _draw(results, folder, evidence)
            drawn.append(f"figures/{name}")
    for folder in (results / "figures").glob("*/"):
        if folder.name not in wanted:
            shutil.rmtree(folder)
    return drawn


def _draw(results: Path, folder: Path, evidence: StudyEvidence) -> None:
    records = [json.loads((results / one["file"]).read_text()) for one in evidence.records]
    pieces = apart(figures.draw(records))
    files = {f"{place}.svg": panel for place, panel in enumerate(pieces.panels, start=1)}
    if pieces.legend is not None:
        files[LEGEND] = pieces.legend
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, panel in files.items():
        (folder / name).write_text(panel.svg)
    contents = {
        "title": pieces.title,
        "caption": pieces.caption,
        "files": {name: panel.alt for name, panel in files.items()},
        "records": _hashes(results, evidence),
    }
    (folder / CONTENTS).write_text(json.dumps(contents, indent=1, ensure_ascii=False) + "\n")


def _contents(folder: Path) -> dict[str, Any]:
    path = folder / CONTENTS
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _hashes(results: Path, evidence: StudyEvidence) -> dict[str, str]:
    files = sorted(one["file"] for one in evidence.records)
    return {name: hashlib.sha256((results / name).read_bytes()).hexdigest()[:16] for name in files}


def markdown(results: Path, name: str) -> str:
    """Show a figure on a page: its panels, its legend, and title and caption below."""
    contents = _contents(results / "figures" / name)
    if not contents:
        return "*There is no figure yet.*"
    images = [
        f"![{_harmless(alt)}](../../papers/results/figures/{name}/{file})"
        for file, alt in contents["files"].items()
    ]
    said = f"<strong>{_harmless(contents['title'])}.</strong> {_harmless(contents['caption'])}"
    caption = f"<figcaption>{said}</figcaption>"
    return "\n".join(
        ['<figure class="panels" markdown>', "", *images, "", caption, "", "</figure>"]
    )


def _harmless(text: str) -> str:
    """Escape words that come from data."""
    for letter in "[]|*_`\\":
        text = text.replace(letter, f"&#{ord(letter)};")
    return html.escape(text, quote=False).replace("&amp;#", "&#")
