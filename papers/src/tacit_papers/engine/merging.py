"""Records of one study that was run in parts, such as one table or one ε each, made one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.privacy import errors
from tacit_papers.engine.record import Record, cell_of

_REMEDY = "Merge records of one study, made with the same other parameters."


def merged(records: Sequence[Record]) -> Record:
    """Return one record of all runs; a run that several parts hold is taken from the first.

    Study, seed and all parameters but lists must be the same. Lists are joined; if they then ask
    for runs that no part holds, the study measures these when it goes on from the record. Parts may
    come from several machines: versions that differ are listed.
    """
    first, *others = records
    record = Record(first.study, dict(first.parameters), first.versions, first.data)
    for other in others:
        _same("study", record.study, other.study)
        record.versions = _listed(record.versions, other.versions)
        record.parameters = _joined(record.parameters, other.parameters)
        record.data = _united(record.data, other.data)
    for part in records:
        record.runs += [run for run in part.runs if record.find(cell_of(run)) is None]
    return record


def _listed(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """List the versions of each package that parts were measured with."""
    listed = dict(mine)
    for name, value in theirs.items():
        known = str(mine.get(name, value)).split(" and ")
        listed[name] = " and ".join(known if str(value) in known else [*known, str(value)])
    return listed


def _joined(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Join lists, and take the largest number of trials."""
    _same("parameters", sorted(mine), sorted(theirs))
    joined = dict(mine)
    for name, value in theirs.items():
        if isinstance(value, list) and isinstance(mine[name], list):
            joined[name] = _all(mine[name], value)
        elif name == "trials":
            joined[name] = max(mine[name], value)
        else:
            _same(name, mine[name], value)
    return joined


def _all(mine: list[Any], theirs: list[Any]) -> list[Any]:
    """Return the items of two lists, each once; numbers in order."""
    items = mine + [one for one in theirs if one not in mine]
    return sorted(items) if all(isinstance(one, int | float) for one in items) else items


def _united(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Unite descriptions of data; what both describe must be the same."""
    united = dict(mine)
    for name, value in theirs.items():
        if isinstance(value, dict) and isinstance(mine.get(name), dict):
            united[name] = _united(mine[name], value)
        elif name in mine:
            _same(name, mine[name], value)
        else:
            united[name] = value
    return united


def _same(name: str, mine: Any, theirs: Any) -> None:
    if mine != theirs:
        errors.refuse("study merge", name, f"{mine!r} in every record", theirs, _REMEDY)
