"""Provenance of numbers: records, the commands that made them, targets."""

from __future__ import annotations

import html
import json
import shlex
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tacit_papers.engine import parameters, registry
from tacit_papers.pages.evidence import MEASURES, Missing, StudyEvidence, listed, table

Record = dict[str, Any]
Group = tuple[str, str, Any]
"""Study, data set, and the variant of it: the column split of a join, the new class."""


def read(folder: Path) -> list[Record]:
    """Read all records of a folder, in the order of their file names."""
    records = []
    for path in sorted(folder.glob("*.json")):
        try:
            record = json.loads(path.read_text())
            missing = {"study", "parameters", "results"} - set(record)
        except (ValueError, TypeError):
            missing = {"study", "parameters", "results"}
        if missing:
            raise ValueError(f"{path.name}: a record must have {listed(sorted(missing))}.")
        records.append({**_harmless(record), "file": path.name})
    return records


def _harmless(value: Any) -> Any:
    """Escape the words of a record, which come from data, for a page."""
    if isinstance(value, dict):
        return {key: _harmless(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_harmless(one) for one in value]
    return (
        html.escape(value, quote=False).replace("|", "&#124;") if isinstance(value, str) else value
    )


def group(records: Iterable[Record]) -> dict[Group, StudyEvidence]:
    """Group records by study, data and variant."""
    groups: dict[Group, list[Record]] = {}
    for record in records:
        study = registry.study(record["study"])
        variant = record["parameters"].get(study.variant or "")
        groups.setdefault((record["study"], data_of(record), variant), []).append(record)
    return {key: StudyEvidence(members) for key, members in groups.items()}


def data_of(record: Record) -> str:
    """Return the name of the data set; for a user's file, its name without folders."""
    return Path(record["parameters"]["data"]).name


def command(record: Record) -> str:
    """Return the command that makes this record."""
    study = registry.study(record["study"])
    words = ["tacit", "study", study.name]
    for name, value in study.requested(record["parameters"]).items():
        field = study.options.get(name)  # None for what the data or the study determine
        if field is None or value in (None, []) or _usual(field, value):
            continue
        option = f"--{field.name.replace('_', '-')}"
        if isinstance(value, bool):
            words += [option if value else f"--no-{option[2:]}"] * (value is not field.default)
        else:
            text = parameters.said(value)
            words += [option, Path(text).name if name in ("data", "schema") else text]
    return wrapped(shlex.join([*words, "--json", f"papers/results/{record['file']}"]))


def _usual(field: Any, value: Any) -> bool:
    """Say whether a value is a default that a command leaves out."""
    same = parameters.said(value) == parameters.said(field.default)
    return parameters.of(field).usual and same


def wrapped(line: str) -> str:
    """Wrap a long command over several lines, with backslashes."""
    return " \\\n    ".join(textwrap.wrap(line, 80, break_long_words=False, break_on_hyphens=False))


def made_by(evidence: StudyEvidence, _: str = "") -> str:
    """List every record with its command, versions and time."""
    parts = []
    for record in evidence.records:
        versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
        quick = " A quick run on few rows." if record["parameters"].get("quick") else ""
        parts.append(
            f"[{record['file']}](../../papers/results/{record['file']}), "
            f"{record['seconds']:,.0f} s "
            f"({versions}).{quick}\n\n```\n{command(record)}\n```"
        )
    return "\n\n".join(parts)


def public(evidence: StudyEvidence, _: str = "") -> str:
    """List what was read off the rows and taken as public."""
    said = dict.fromkeys(s for r in evidence.records for s in r["data"].get("taken_as_public", ()))
    if not said:
        return "Taken as public: nothing that was read off the rows."
    return "Taken as public, though read off the rows:\n\n" + "\n".join(f"- {s}" for s in said)


def size(evidence: StudyEvidence, part: str) -> str:
    """Return the number of rows of a part."""
    sizes = dict.fromkeys(r["data"][part] for r in evidence.records if part in r["data"])
    if not sizes:
        raise Missing(f"number of rows: {part}")
    return " or ".join(f"{count:,}" for count in sizes)


def parameter(evidence: StudyEvidence, name: str) -> str:
    """Return a parameter of the records."""
    values = dict.fromkeys(str(r["parameters"].get(name)) for r in evidence.records)
    return " or ".join(values)


def summary(groups: dict[Group, StudyEvidence]) -> str:
    """Tabulate the records, one per line."""
    rows = [
        [
            f"[{study}]({study}.md)",
            data + (f", {variant}" if variant is not None else ""),
            f"[{record['file']}](../../papers/results/{record['file']})",
            str(record["parameters"].get("trials", "")),
            f"{record['seconds'] / 60:,.1f}",
            str(record["versions"].get("device", "")),
        ]
        for (study, data, variant), evidence in groups.items()
        for record in evidence.records
    ]
    if not rows:
        return "There are no records yet. [Running studies](../studies.md) says how to make them."
    return table(["study", "data", "record", "trials", "minutes", "on"], rows)


def against_targets(groups: dict[Group, StudyEvidence], targets: Sequence[dict[str, Any]]) -> str:
    """Tabulate targets, what was reached, and the difference."""
    rows = []
    for target in targets:
        measured = {r["epsilon"]: r[target["measure"]]["mean"] for r in _matching(groups, target)}
        aims = {float(epsilon): aim for epsilon, aim in target["values"].items()}
        what = ", ".join(str(target[key]) for key in ("mechanism", "features") if key in target)
        if "central_epsilon" in target:
            what += f", central ε = {target['central_epsilon']:g}"
        rows.append(
            [
                f"{target['study']}, {target['data']}: {what}; {MEASURES[target['measure']]}",
                *(" / ".join(f"{x:g}" for x in numbers) for numbers in (aims, aims.values())),
                " / ".join(f"{measured[e]:.3f}" if e in measured else "–" for e in aims),
                _verdict(measured, aims),
            ]
        )
    return table(["what", "ε", "target", "reached", ""], rows)


def _verdict(measured: dict[float, float], aims: dict[float, float]) -> str:
    short = {e: aim - measured[e] for e, aim in aims.items() if e in measured and measured[e] < aim}
    unknown = [e for e in aims if e not in measured]
    if len(unknown) == len(aims):
        return "not measured"
    parts = [f"short by {gap:.3f} at ε = {e:g}" for e, gap in short.items()] or ["met"]
    return "; ".join(parts + ([f"not measured at ε = {listed(unknown)}"] if unknown else []))


def _matching(groups: dict[Group, StudyEvidence], target: dict[str, Any]) -> list[dict[str, Any]]:
    wanted = {"central_epsilon": "inf", "level": "latent", **target}
    return [
        result
        for (study, data, _), evidence in groups.items()
        if (study, data) == (target["study"], target["data"])
        for result in evidence.results
        if result.get(target["measure"]) is not None
        and all(
            result.get(key, wanted[key]) == wanted[key]
            for key in ("mechanism", "features", "level", "central_epsilon")
            if key in wanted
        )
    ]
