"""Pages about results: `python -m tacit_papers.pages.site` writes docs/results/*.md.

Words are in pages/templates, numbers in papers/results/*.json. `{codebook at 2}` in a template
is the value of the records, `{best clean_accuracy}` a sentence worked out from them; a paragraph
whose numbers no record holds says so. A template has a section for each data set, opened by
`<!-- data: NAME -->`; the section `other` is for data sets without one of their own. Figures are
papers/results/figures/STUDY-DATA.png, STUDY-DATA-VARIANT.png, or named as a record is.

MkDocs takes this file as a hook, too: records, figures and the changelog lie outside of docs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit_papers.pages import (
    attacked,
    classifiers,
    composed,
    federations,
    findings,
    hospitals,
    posteriors,
    provenance,
    representations,
    special,
    trained,
)
from tacit_papers.pages import evidence as read
from tacit_papers.pages.evidence import Evidence, Missing
from tacit_papers.pages.provenance import Group

ROOT = Path(__file__).parents[4]
RECORDS = ROOT / "papers" / "results"
TEMPLATES = Path(__file__).parent / "templates"
NOTE = "<!-- Made by tacit_papers.pages: change its templates, not this page. -->\n\n"
FIELD = re.compile(r"\{([^{}\n]+)\}")
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
    "joining": special.joining,
    "covered": special.covered,
    "regret": special.regret,
    "winners": special.winners,
    "generality": special.generality,
    "above chance": special.above_chance,
    "posterior errors": posteriors.errors,
    "posterior wins": posteriors.wins,
    "posterior verdict": posteriors.verdict,
    "posterior privacy": posteriors.privacy,
    "posterior claims": posteriors.claims,
    "posterior coverage": posteriors.coverage,
    "posterior extremes": posteriors.extremes,
    "anonymize frontier": representations.frontier,
    "anonymize attackers": representations.attackers,
    "anonymize references": representations.references,
    "anonymize verdict": representations.verdict,
    "anonymize toggled": representations.toggled,
    "anonymize bound": representations.bound,
    "anonymize second": representations.second,
    "anonymize linkage": representations.linkage,
    "anonymize epsilon": representations.with_epsilon,
    "anonymize ceilings": representations.ceilings,
    "dpsgd accuracy": trained.accuracy,
    "dpsgd verdict": trained.verdict,
    "dpsgd best": trained.best,
    "dpsgd spent": trained.spent,
    "dpsgd saved": trained.saved,
    "dpsgd settings": trained.settings,
    "classifiers scores": classifiers.scores,
    "classifiers best": classifiers.best,
    "classifiers defaults": classifiers.defaults,
    "classifiers price": classifiers.price,
    "classifiers peer": classifiers.peer,
    "classifiers trivial": classifiers.trivial,
    "composition lost": composed.lost,
    "composition useful": composed.useful,
    "composition spent": composed.spent,
    "composition wasted": composed.wasted,
    "composition attacks": composed.attacks,
    "composition found": composed.found,
    "composition attribute": composed.attribute,
    "threats accuracy": attacked.accuracy,
    "threats backdoors": attacked.backdoors,
    "threats price": attacked.price,
    "threats harm": attacked.harm,
    "threats broken": attacked.broken,
    "federated rounds": federations.rounds,
    "federated sent": federations.sent,
    "federated accuracy": federations.accuracy,
    "federated differences": federations.differences,
    "federated fewest": federations.fewest,
    "federated price": federations.price,
    "federated personal": federations.personal,
    "federated settings": federations.settings,
    "primia quality": hospitals.quality,
    "primia pretraining": hospitals.pretraining,
    "primia together": hospitals.together,
    "primia worth": hospitals.worth,
    "primia price": hospitals.price,
    "primia paper": hospitals.paper,
    "primia sizes": hospitals.sizes,
    "primia leak": hospitals.leak,
    "primia ill": hospitals.ill,
    "primia elsewhere": hospitals.elsewhere,
    "primia trivial": hospitals.trivial,
    "primia spent": hospitals.spent,
    "primia settings": hospitals.settings,
    "made by": provenance.made_by,
    "public": provenance.public,
    "size": provenance.size,
    "parameter": provenance.parameter,
    "reference": lambda evidence, name: read.shown(evidence.reference(name)),
}
"""What a field of a template stands for, by its first words; the rest says of what."""


def pages(results: Path) -> dict[str, str]:
    """Every page by its name, from the records of a folder."""
    groups = provenance.group(provenance.read(results))
    figures = {path.stem: path.name for path in sorted((results / "figures").glob("*.*"))}
    made = {
        path.name: NOTE + _study(path.stem, path.read_text(), groups, figures)
        for path in sorted(TEMPLATES.glob("*.md"))
        if path.name != "index.md"
    }
    targets = json.loads((TEMPLATES / "targets.json").read_text())
    index = (TEMPLATES / "index.md").read_text()
    index = index.replace("{records}", provenance.summary(groups))
    index = index.replace("{targets}", provenance.against_targets(groups, targets))
    return {"index.md": NOTE + index, **made}


def _study(study: str, template: str, groups: dict[Group, Evidence], figures: Any) -> str:
    opening, *rest = SECTION.split(template)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    other = sections.pop("other", "")
    found = {key: evidence for key, evidence in groups.items() if key[0] == study}
    parts = [opening]
    for data, body in sections.items():
        own = [key for key in found if key[1] == data]
        parts += [_filled(body, found[key], key, figures) for key in own]
        if not own:
            parts.append(_absent(body, study, data))
    strangers = [key for key in found if key[1] not in sections]
    parts += [_filled(other, found[key], key, figures) for key in strangers]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _absent(body: str, study: str, data: str) -> str:
    heading = body.partition("\n")[0]
    if FIELD.search(heading):  # which split, or which class, only a record knows
        heading = heading.partition(",")[0]
    bare = study in provenance.WITHOUT_DATA
    name = study if bare else f"{study}-{data}"
    asked = study if bare else f"{study} --data {data}"
    command = provenance.wrapped(f"tacit study {asked} --json {name}.json --plot {name}.png")
    return (
        f"{heading}\n\nThere is no record of this study on `{data}` yet. To make one:\n\n"
        f"```\n{command}\n```"
    )


def _filled(body: str, evidence: Evidence, key: Group, figures: dict[str, str]) -> str:
    """A section with its fields replaced, paragraph by paragraph."""
    study, data, _ = key

    def replace(match: re.Match[str]) -> str:
        wanted = match[1]
        if wanted == "data":
            return data
        if wanted == "figure":
            return _figure(evidence, key, figures)
        if " at " in wanted:
            return read.value(evidence, wanted)
        verb = max((v for v in FIELDS if f"{wanted} ".startswith(f"{v} ")), key=len, default=None)
        if verb is None:
            raise ValueError(f"{study}.md: {{{wanted}}} must be one of {', '.join(FIELDS)}.")
        rest = wanted[len(verb) :].strip()
        return FIELDS[verb](evidence, *([rest] if rest else []))

    def paragraph(text: str) -> str:
        try:
            return FIELD.sub(replace, text)
        except Missing as missing:
            return f"*Not measured yet: {missing}.*"

    return "\n\n".join(paragraph(text) for text in body.strip().split("\n\n"))


def _figure(evidence: Evidence, key: Group, figures: dict[str, str]) -> str:
    study, data, variant = key
    stems = [f"{study}-{data}", f"{study}-{data}-{variant}"]
    stems += [Path(record["file"]).stem for record in evidence.records]
    named = [figures[stem] for stem in dict.fromkeys(stems) if stem in figures]
    if not named:
        return "*There is no figure yet.*"
    return "\n\n".join(
        f"![{study} on {data}](../../papers/results/figures/{name})" for name in named
    )


def write(results: Path, out: Path) -> list[str]:
    """Write what changed; returns the names."""
    made = pages(results)
    out.mkdir(parents=True, exist_ok=True)
    stale = [
        name
        for name, text in made.items()
        if not (out / name).exists() or (out / name).read_text() != text
    ]
    for name in stale:
        (out / name).write_text(made[name])
    return stale


def on_files(files: Any, config: Any) -> Any:
    """MkDocs: add what lies outside of docs."""
    from mkdocs.structure.files import File

    outside = {"changelog.md": ROOT / "CHANGELOG.md"}
    for path in [*RECORDS.glob("*.json"), *RECORDS.glob("figures/*.*")]:
        outside[f"results/{path.relative_to(RECORDS).as_posix()}"] = path
    for name, path in outside.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """MkDocs: on the site, records and figures lie beside the pages."""
    return markdown.replace("](../../papers/results/", "](")


if __name__ == "__main__":
    try:
        print("written:", ", ".join(write(RECORDS, ROOT / "docs" / "results")) or "nothing")
    except ValueError as error:
        sys.exit(f"results: {error}")
