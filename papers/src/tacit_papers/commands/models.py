"""`tacit study dpsgd`, `classifiers`, `composition`: models with a central guarantee."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tacit.apps.cli.files import stages_progress
from tacit.privacy import errors
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
    for command in (dpsgd, classifiers, composition):
        app.command()(command)


def dpsgd(
    data: Annotated[
        str | None, typer.Option(help="mnist or digits; mnist, or digits with --quick.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Of paper, scattering-plain, scattering; all if left out.")
    ] = None,
    epsilons: Annotated[
        str | None, typer.Option(help="Of a trained model: 0.5,2,8 if left out.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Of a trained model.")] = 1e-5,
    trials: Annotated[int | None, typer.Option(help="Trainings of each; 3 if left out.")] = None,
    device: Device = "auto",
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """Accuracy of networks trained by DP-SGD, beside Abadi et al. and without privacy.

    Example: tacit study dpsgd --epsilons .5,2,8 --json d.json --plot d.png
    """
    from tacit.data import datasets
    from tacit_papers.studies import dpsgd as study

    asked: dict[str, Any] = {"delta": delta, "device": device, "seed": seed}
    if models is not None:
        asked["models"] = read_words("models", models)
    if epsilons is not None:
        asked["epsilons"] = read_numbers("epsilons", epsilons)
    if trials is not None:
        asked["trials"] = trials
    chosen = study.Asked(**{**(study.QUICK if quick else {}), **asked})
    must_be_writable(json_file, plot)
    with stages_progress() as progress:
        dataset = datasets.load(data or ("digits" if quick else "mnist"), progress=progress)
    run_study(study.Dpsgd(dataset, chosen), json_file, plot, study.table)
    if quick:
        print(QUICK)


def classifiers(
    data: Annotated[
        str, typer.Option(help="adult, digits (accuracy); lending_club, diabetes (R²).")
    ] = "digits",
    estimators: Annotated[
        str | None,
        typer.Option(help="Of tacit.central.estimators; all that fit the data if left out."),
    ] = None,
    epsilons: Annotated[
        str | None, typer.Option(help="Of a fit: 0.1,0.3,1,3,10 if left out.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Of a fit, where one is used.")] = 1e-6,
    trials: Annotated[
        int | None, typer.Option(help="Splits and noise, each anew; 3 if left out.")
    ] = None,
    peer: Annotated[
        str | None, typer.Option(help="A Python with diffprivlib; this one if it has it.")
    ] = None,
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """Accuracy, or R², of every estimator against ε, beside scikit-learn and diffprivlib.

    Example: tacit study classifiers --data adult --json c.json --plot c.png
    """
    from tacit_papers.studies import classifier_data
    from tacit_papers.studies import classifiers as study
    from tacit_papers.studies.classifier_models import Peer

    asked: dict[str, Any] = {"delta": delta, "seed": seed}
    if estimators is not None:
        asked["estimators"] = read_words("estimators", estimators)
    if epsilons is not None:
        asked["epsilons"] = read_numbers("epsilons", epsilons)
    if trials is not None:
        asked["trials"] = trials
    chosen = study.Asked(**{**(study.QUICK if quick else {}), **asked})
    must_be_writable(json_file, plot)
    other = Peer(peer) if peer is not None else Peer.here()
    with stages_progress() as progress:
        case = classifier_data.load(data, progress)
    run_study(study.Classifiers(case, chosen, other), json_file, plot, study.table)
    if quick:
        print(QUICK)


def composition(
    data: Annotated[
        str | None, typer.Option(help="mnist, adult or digits; mnist, or digits with --quick.")
    ] = None,
    models: Annotated[
        str | None, typer.Option(help="Of logistic, network; both if left out.")
    ] = None,
    accountants: Annotated[
        str | None, typer.Option(help="Of naive, advanced, zcdp, rdp, pld; all if left out.")
    ] = None,
    epsilons: Annotated[
        str | None, typer.Option(help="Of a model: 0.01,0.05,0.1,0.5,1,5,10,50,100,500,1000.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Of a model.")] = 1e-5,
    trials: Annotated[int | None, typer.Option(help="Splits and noise, each anew; 3.")] = None,
    device: Device = "auto",
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """The accuracy that each way of accounting costs, and what attackers gain from the model.

    Example: tacit study composition --data adult --json c.json --plot c.png
    """
    from tacit.data import datasets
    from tacit_papers.studies import composition as study
    from tacit_papers.studies.composition_summary import table

    words = {"models": models, "accountants": accountants}
    asked: dict[str, Any] = {k: read_words(k, text) for k, text in words.items() if text}
    if epsilons is not None:
        asked["epsilons"] = read_numbers("epsilons", epsilons)
    if trials is not None:
        asked["trials"] = trials
    usual = study.QUICK if quick else {}
    chosen = study.Asked(**{**usual, **asked, "delta": delta, "device": device, "seed": seed})
    must_be_writable(json_file, plot)
    name = data or ("digits" if quick else "mnist")
    errors.choice("study", "data", name, study.DATA)
    with stages_progress() as progress:
        dataset = datasets.load(name, progress=progress)
    run_study(study.Composition(dataset, chosen), json_file, plot, table)
    if quick:
        print(QUICK)
