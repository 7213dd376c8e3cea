"""Parts of the hand-written pages that follow from the code: studies, options, mechanisms.

Such a part stands between `<!-- made: NAME -->` and `<!-- end: NAME -->`.

In the API reference, `<!-- names: PACKAGE -->` stands for those public names of a package that no
page lists by hand; MkDocs expands it.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import tacit
from tacit.audit import subjects
from tacit.federated.algorithms.registry import ALGORITHMS
from tacit.privacy.guarantees import Adjacency
from tacit_papers.engine import declare, parameters, registry
from tacit_papers.engine.registry import Study
from tacit_papers.pages.evidence import table

PAGES = ("cli.md", "federated.md", "mechanisms.md", "studies.md")
LISTED = re.compile(r"^## `(\S+)`$", re.MULTILINE)
PACKAGE = re.compile(r"^<!-- names: (\S+) -->$", re.MULTILINE)


def pages(docs: Path) -> dict[str, str]:
    """Return the pages that have such parts, with the parts as they must be now."""
    sections = {
        "studies": _studies(),
        "commands": _commands(),
        "mechanisms": _mechanisms(),
        "algorithms": _algorithms(),
    }
    return {name: _refreshed((docs / name).read_text(), sections) for name in PAGES}


def with_names(page: str, docs: Path) -> str:
    """Replace each `<!-- names: PACKAGE -->` of a reference page by the package's other names."""
    pages = [path.read_text() for path in (docs / "reference").glob("*.md")]
    listed = {name for text in pages for name in LISTED.findall(text)}

    def sections(match: re.Match[str]) -> str:
        module = import_module(match[1])
        public = {n: f"{'tacit' if n in tacit.__all__ else match[1]}.{n}" for n in module.__all__}
        return "\n\n".join(
            f"## `{shown}`\n\n::: {module.__name__}.{name}"
            for name, shown in public.items()
            if shown not in listed
        )

    return PACKAGE.sub(sections, page)


def _refreshed(page: str, sections: dict[str, str]) -> str:
    for name, text in sections.items():
        begin, end = f"<!-- made: {name} -->\n", f"<!-- end: {name} -->\n"
        part = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        page = part.sub(lambda _, t=f"{begin}\n{text}\n\n{end}": t, page)  # type: ignore[misc]
    return page


def _mechanisms() -> str:
    """List the mechanisms by the names under which they can be audited."""
    rows = []
    for name, make in subjects.SUBJECTS.items():
        channel: Any = make(1.0, 0.0).channel
        mechanism = getattr(channel, "inner", channel)  # some are wrapped for audits
        kind, stated = type(mechanism), mechanism.guarantee
        summary = (inspect.getdoc(kind) or "").partition("\n")[0]
        given = "(ε, δ)" if stated.delta else "ε"
        local = "-local" if stated.adjacency is Adjacency.ANY_TWO_INPUTS else ""
        about = re.sub(r" \[\w+\]_|:math:", "", summary)  # neither citations nor TeX in a table
        about = about.replace(r"\varepsilon", "ε").replace(r"\Delta", "Δ")
        rows.append([f"`{kind.__name__}({_parameters(kind)})`", about, given + local, f"`{name}`"])
    return table(["mechanism", "what it releases", "guarantee", "audit"], sorted(rows))


def _parameters(kind: type) -> str:
    given = [one for one in inspect.signature(kind).parameters.values() if one.name != "unit"]
    required = [one.name for one in given if one.default is inspect.Parameter.empty]
    optional = [f"{one.name}={one.default}" for one in given if one.name not in required]
    return ", ".join([*required, *optional])


def _algorithms() -> str:
    header = ["name", "a client computes", "the server computes", "models sent per round, each way"]
    rows = [
        [f"`{one.name}`", one.on_client, one.on_server, one.sent] for one in ALGORITHMS.values()
    ]
    return table(header, rows)


def _studies() -> str:
    rows = [
        [f"[`tacit study {study.name}`]({_link(study)})", f"{study.question}"]
        for study in registry.studies()
    ]
    return table(["command", "question"], rows)


def _link(study: Study) -> str:
    return f"cli.md#tacit-study-{study.name}"


def _commands() -> str:
    return "\n\n".join(_command(study) for study in registry.studies())


def _command(study: Study) -> str:
    fields = parameters.offered(study.parameters)
    rows = [_row(field) for field in fields if field.name != "quick"]
    rows += [[f"`--{name}`", meaning, ""] for name, meaning in declare.FILES.items()]
    rows += [_row(field) for field in fields if field.name == "quick"]
    command = f"tacit study {study.command} --json {study.name}.json"
    link = f"Results: [{study.title}](results/{study.name}.md)."
    options = table(["option", "meaning", "default"], rows)
    return (
        f"## tacit study {study.name}\n\n{study.about} {link}\n\n```\n{command}\n```\n\n{options}"
    )


def _row(field: dataclasses.Field[Any]) -> list[str]:
    flag = f"--{field.name.replace('_', '-')}"
    flags = f"`{flag}`, `--no-{flag[2:]}`" if field.default is True else f"`{flag}`"
    default = parameters.default_of(field) if field.name != "quick" else ""
    return [flags, parameters.of(field).help, default]
