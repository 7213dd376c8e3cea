"""Options that turn a model's probabilities into answers: priors, costs, a threshold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.privacy import errors

Priors = Annotated[
    str | None,
    typer.Option(
        help="Shares of the classes among those who will be classified: no=.94,yes=.06.",
        show_default="those of the people who reported",
    ),
]
Costs = Annotated[
    str | None,
    typer.Option(
        help="Costs of errors as TRUE:ANSWER=COST, all others 1: yes:no=5; or a JSON file with a "
        "matrix, a row per true class.",
        show_default="all errors cost the same",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        help="Two classes: answer the second from this probability on.", show_default="0.5"
    ),
]


def decision(
    where: str,
    classes: tuple[Any, ...],
    priors: str | None,
    costs: str | None,
    threshold: float | None,
) -> dict[str, Any]:
    """Read the options that were given as the parameters of a classifier, and check them."""
    from tacit.local.inference.decisions import Rule

    given: dict[str, Any] = {}
    if priors is not None:
        given["priors"] = _priors(where, classes, priors)
    if costs is not None:
        given["costs"] = _costs(where, classes, costs)
    if threshold is not None:
        given["threshold"] = threshold
    Rule.of(where, classes, *(given.get(name) for name in ("priors", "costs", "threshold")))
    return given


def _priors(where: str, classes: tuple[Any, ...], text: str) -> dict[Any, float]:
    entries = [_entry(where, "--priors", "no=.94,yes=.06", part) for part in text.split(",")]
    return {_class(where, "--priors", classes, name): share for name, share in entries}


def _costs(where: str, classes: tuple[Any, ...], text: str) -> Any:
    """Read costs of some errors, or a file with the whole matrix."""
    if "=" not in text:
        path = Path(text)
        if not path.is_file():
            errors.refuse(where, "--costs", "like yes:no=5, or an existing file", text)
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise errors.InvalidData(f"{path}: it must be JSON.") from None
    costs = {}
    for part in text.split(","):
        pair, cost = _entry(where, "--costs", "yes:no=5", part)
        true, _, answer = pair.partition(":")
        costs[tuple(_class(where, "--costs", classes, name) for name in (true, answer))] = cost
    return costs


def _entry(where: str, option: str, example: str, text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        errors.refuse(where, option, f"like {example}", text)


def _class(where: str, option: str, classes: tuple[Any, ...], name: str) -> Any:
    for label in classes:
        if str(label) == name.strip():
            return label
    shown = ", ".join(map(str, classes))
    errors.refuse(where, option, f"about the classes {shown}", name)
