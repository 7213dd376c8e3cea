"""Pages about results: `python -m tacit_papers.pages.site` writes docs/results/*.md.

It also brings the parts of docs/cli.md and docs/studies.md up to date that follow from the studies.

The text is in pages/templates, the numbers in papers/results/*.json. `{codebook at 2}` in a
template stands for a value of the records, `{best clean_accuracy}` for a sentence that is derived
from them; a paragraph whose numbers no record holds says so. A template has a section for each data
set, opened by `<!-- data: NAME -->`; the section `other` is for data sets without one of their own.
Figures are drawn from the records as well (`tacit_papers.pages.drawing`); `--redraw` draws all.

MkDocs also uses this file as a hook: records, figures and the changelog lie outside of docs, and
notebooks become pages (`tacit_papers.pages.notebooks`).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit_papers.engine import registry
from tacit_papers.engine.registry import TEMPLATES, Study
from tacit_papers.pages import drawing, findings, notebooks, provenance, reference
from tacit_papers.pages import evidence as read
from tacit_papers.pages.evidence import Missing, StudyEvidence
from tacit_papers.pages.provenance import Group

ROOT = Path(__file__).parents[4]
RECORDS = ROOT / "papers" / "results"
DOCS = ROOT / "docs"
NOTE = "<!-- Made by tacit_papers.pages: change its templates, not this page. -->\n\n"
FIELD = re.compile(r"\{([^{}\n]+)\}")
PANEL = re.compile(r'(<img [^>]*src="([^"]*\.svg)"[^>]*>)')
SECTION = re.compile(r"^<!-- data: (\S+) -->\n+", re.MULTILINE)
FIELDS: dict[str, Callable[..., str]] = {
    "table": read.measured,
    "best": findings.best,
    "chance": findings.by_chance,
    "price": findings.price,
    "central": findings.central,
    "levels": findings.levels,
    "under ceilings": findings.under_ceilings,
    "by class": findings.by_class,
    "hurt": findings.hurt,
    "made by": provenance.made_by,
    "public": provenance.public,
    "size": provenance.size,
    "parameter": provenance.parameter,
    "reference": lambda evidence, name: read.shown(evidence.reference(name)),
}
"""What a field of any template stands for, by its first words; a study adds its own."""


def pages(results: Path) -> dict[str, str]:
    """Make every page from the records of a folder, by name."""
    groups = provenance.group(provenance.read(results))
    figures = {key: drawing.markdown(results, drawing.name_of(key, groups)) for key in groups}
    studies = registry.studies()
    written = {f"{study.name}.md": NOTE + _page(study, groups, figures) for study in studies}
    targets = json.loads((TEMPLATES / "targets.json").read_text())
    questions = [[study.question, f"[{study.title}]({study.name}.md)"] for study in studies]
    index = (TEMPLATES / "index.md").read_text()
    index = index.replace("{studies}", read.table(["question", "page"], questions))
    index = index.replace("{records}", provenance.summary(groups))
    index = index.replace("{targets}", provenance.against_targets(groups, targets))
    return {"index.md": NOTE + index, **written}


def _page(study: Study, groups: dict[Group, StudyEvidence], figures: dict[Group, str]) -> str:
    opening, *rest = SECTION.split(study.template)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    other = sections.pop("other", "")
    mine = {key: evidence for key, evidence in groups.items() if key[0] == study.name}
    parts = [opening]
    for data, body in sections.items():
        own = [key for key in mine if key[1] == data]
        parts += [_filled(body, study, mine[key], key, figures) for key in own]
        if not own:
            parts.append(_absent(body, study, data))
    strangers = [key for key in mine if key[1] not in sections]
    parts += [_filled(other, study, mine[key], key, figures) for key in strangers]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _absent(body: str, study: Study, data: str) -> str:
    heading = body.partition("\n")[0]
    if FIELD.search(heading):  # which split, or which class, only a record knows
        heading = heading.partition(",")[0]
    bare = "data" not in study.options
    name = study.name if bare else f"{study.name}-{data}"
    options = study.name if bare else f"{study.name} --data {data}"
    command = provenance.wrapped(f"tacit study {options} --json {name}.json --plot {name}.svg")
    return (
        f"{heading}\n\nThere is no record of this study on `{data}` yet. To make one:\n\n"
        f"```\n{command}\n```"
    )


def _filled(
    body: str, study: Study, evidence: StudyEvidence, key: Group, figures: dict[Group, str]
) -> str:
    """Replace the fields of a section, paragraph by paragraph."""
    known = {**FIELDS, **study.fields}

    def replace(match: re.Match[str]) -> str:
        wanted = match[1]
        if wanted == "data":
            return key[1]
        if wanted == "figure":
            return figures[key]
        if " at " in wanted:
            return read.value(evidence, wanted)
        verb = max((v for v in known if f"{wanted} ".startswith(f"{v} ")), key=len, default=None)
        if verb is None:
            raise ValueError(f"{study.name}.md: {{{wanted}}} must be one of {', '.join(known)}.")
        rest = wanted[len(verb) :].strip()
        return known[verb](evidence, *([rest] if rest else []))

    def paragraph(text: str) -> str:
        try:
            return FIELD.sub(replace, text)
        except Missing as missing:
            return f"*Not measured yet: {missing}.*"

    return "\n\n".join(paragraph(text) for text in body.strip().split("\n\n"))


def write(pages: dict[str, str], out: Path) -> list[str]:
    """Write the pages that changed, and return their names."""
    out.mkdir(parents=True, exist_ok=True)
    stale = [
        name
        for name, text in pages.items()
        if not (out / name).exists() or (out / name).read_text() != text
    ]
    for name in stale:
        (out / name).write_text(pages[name])
    return stale


def on_config(config: Any) -> Any:
    """Add the page of every study to the navigation (a hook of MkDocs)."""
    for section in config.nav:
        if "Results" in section:
            section["Results"] += navigation()
    return config


def navigation() -> list[dict[str, str]]:
    """List the pages of the studies by title."""
    return [{study.title: f"results/{study.name}.md"} for study in registry.studies()]


def on_files(files: Any, config: Any) -> Any:
    """Add the files that lie outside of docs (a hook of MkDocs)."""
    from mkdocs.structure.files import File

    outside = {"changelog.md": ROOT / "CHANGELOG.md"}
    for path in [*RECORDS.glob("*.json"), *RECORDS.glob("figures/*/*.svg")]:
        outside[f"results/{path.relative_to(RECORDS).as_posix()}"] = path
    for name, path in outside.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    for path in notebooks.paths():
        name = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, name, content=notebooks.page(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """List public names, and rewrite links (a hook of MkDocs).

    Records and figures lie beside the pages, notebooks are pages.
    """
    if page.file.src_uri in (f"notebooks/{path.stem}.md" for path in notebooks.paths()):
        return markdown  # its link to a notebook is the download
    markdown = reference.with_names(markdown, DOCS).replace("](../../papers/results/", "](")
    return notebooks.LINK.sub(r"](\1.md)", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Link every panel to its file; a script enlarges it in place (a hook of MkDocs)."""
    return PANEL.sub(r'<a class="enlarge" href="\2" title="Enlarge">\1</a>', content)


if __name__ == "__main__":
    try:
        groups = provenance.group(provenance.read(RECORDS))
        done = drawing.refresh(RECORDS, groups, every="--redraw" in sys.argv)
        done += write(pages(RECORDS), DOCS / "results") + write(reference.pages(DOCS), DOCS)
        print("written:", ", ".join(done) or "nothing")
    except ValueError as error:
        sys.exit(f"results: {error}")
