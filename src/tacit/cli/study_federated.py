"""`tacit study threats`: federated learning, and what its clients can do to it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tacit.cli.files import stages_progress
from tacit.cli.studying import (
    QUICK,
    JsonFile,
    Plot,
    Quick,
    Seed,
    must_be_writable,
    read_words,
    run_study,
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (threats,):
        app.command()(command)


def threats(
    data: Annotated[str, typer.Option(help="digits or mnist.")] = "digits",
    attacks: Annotated[
        str | None,
        typer.Option(
            help="Of none, label-flip, noise, sign-flip, backdoor, model-replacement, sybil; all."
        ),
    ] = None,
    defences: Annotated[
        str | None,
        typer.Option(
            help="Of mean, norm-bounding, median, trimmed-mean, krum, multi-krum, bulyan; all."
        ),
    ] = None,
    partitions: Annotated[
        str | None, typer.Option(help="Of iid, dirichlet; both if left out.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Of a run; 8 if left out.")] = None,
    bound: Annotated[float, typer.Option(help="Longest reply under norm bounding.")] = 0.5,
    trials: Annotated[int | None, typer.Option(help="Splits, each anew; 3 if left out.")] = None,
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """Attacks of clients on federated averaging, against defences, in a simulation.

    Example: tacit study threats --data digits --json t.json --plot t.png
    """
    from tacit import datasets
    from tacit.studies import threats as study

    given = {"attacks": attacks, "defences": defences, "partitions": partitions}
    asked: dict[str, Any] = {"bound": bound, "seed": seed}
    asked |= {name: read_words(name, text) for name, text in given.items() if text is not None}
    numbers = {"rounds": rounds, "trials": trials}
    asked |= {name: number for name, number in numbers.items() if number is not None}
    chosen = study.Asked(**{**(study.QUICK if quick else {}), **asked})
    must_be_writable(json_file, plot)
    with stages_progress() as progress:
        dataset = datasets.load(data, progress=progress)
    run_study(study.Threats(dataset, chosen), json_file, plot, study.table)
    if quick:
        print(QUICK)
