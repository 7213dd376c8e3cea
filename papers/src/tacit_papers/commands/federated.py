"""`tacit study federated | threats | primia`: federated learning, and what can be done to it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tacit.apps.cli.files import stages_progress
from tacit_papers.commands.shared import (
    QUICK,
    Device,
    JsonFile,
    Plot,
    Quick,
    Seed,
    must_be_writable,
    read_numbers,
    read_words,
    run_study,
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (federated, threats, primia):
        app.command()(command)


def federated(
    data: Annotated[str, typer.Option(help="digits or mnist.")] = "digits",
    algorithms: Annotated[
        str | None,
        typer.Option(help="Of fedsgd, fedavg, fedprox, fsvrg, feddyn, subfedavg; all."),
    ] = None,
    partitions: Annotated[
        str | None,
        typer.Option(
            help="Of iid, unbalanced, covariate-shift, dirichlet, shards, concept-drift, "
            "concept-shift; all."
        ),
    ] = None,
    clients: Annotated[int, typer.Option(help="How many share the training images.")] = 10,
    participation: Annotated[float, typer.Option(help="Share of them in a round.")] = 1.0,
    rounds: Annotated[int | None, typer.Option(help="Of every run; 60 if left out.")] = None,
    trials: Annotated[int | None, typer.Option(help="Splits, each anew; 3 if left out.")] = None,
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """Rounds and bytes to 80 and 90 % of federated algorithms, over clients that differ.

    Example: tacit study federated --data digits --json f.json --plot f.png
    """
    from tacit.data import datasets
    from tacit_papers.studies import federated as study

    asked: dict[str, Any] = {"clients": clients, "participation": participation, "seed": seed}
    given = {"algorithms": algorithms, "partitions": partitions}
    asked |= {name: read_words(name, text) for name, text in given.items() if text is not None}
    numbers = {"rounds": rounds, "trials": trials}
    asked |= {name: number for name, number in numbers.items() if number is not None}
    chosen = study.Asked(**{**(study.QUICK if quick else {}), **asked})
    must_be_writable(json_file, plot)
    with stages_progress() as progress:
        dataset = datasets.load(data, progress=progress)
    run_study(study.Federated(dataset, chosen), json_file, plot, study.table)
    if quick:
        print(QUICK)


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
    from tacit.data import datasets
    from tacit_papers.studies import threats as study

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


def primia(
    models: Annotated[
        str | None, typer.Option(help="Of scratch, pretrained; both if left out.")
    ] = None,
    epsilons: Annotated[
        str | None, typer.Option(help="Of every hospital; inf is without privacy.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Of every hospital.")] = 1.9e-4,
    alone: Annotated[bool, typer.Option(help="Train in one hospital alone, too.")] = True,
    trials: Annotated[int | None, typer.Option(help="Splits, each anew; 3 if left out.")] = None,
    seed: Seed = 0,
    device: Device = "cpu",
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """Three hospitals train on chest X-rays and protect every image.

    Example: tacit study primia --json p.json --plot p.png
    """
    from tacit.data import datasets
    from tacit_papers.studies import primia as study

    asked: dict[str, Any] = {"delta": delta, "seed": seed, "device": device}
    if models is not None:
        asked["models"] = read_words("models", models)
    if epsilons is not None:
        found = read_numbers("epsilons", epsilons)
        asked["epsilons"] = tuple(None if one == float("inf") else one for one in found)
    if not alone:
        asked["tasks"] = (study.TOGETHER,)
    if trials is not None:
        asked["trials"] = trials
    chosen = study.Asked(**{**(study.QUICK if quick else {}), **asked})
    must_be_writable(json_file, plot)
    with stages_progress() as progress:
        images, public = (
            datasets.load(name, progress=progress) for name in ("pneumoniamnist", "mnist")
        )
    run_study(study.Primia(images, public, chosen), json_file, plot, study.table)
    if quick:
        print(QUICK)
