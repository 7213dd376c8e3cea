"""`tacit study`: the results of the papers, and ours beside them, one command each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import must_exist
from tacit.apps.cli.files import image_size, stages_progress
from tacit.privacy import errors
from tacit_papers.commands import federated as study_federated
from tacit_papers.commands import models as study_models
from tacit_papers.commands.shared import (
    QUICK,
    Device,
    JsonFile,
    Plot,
    Quick,
    Seed,
    draw,
    must_be_writable,
    read_numbers,
    read_words,
    run_study,
)

app = typer.Typer(
    help="The results of the papers and ours beside them: run, recorded, tabled, drawn.",
    no_args_is_help=True,
)
study_models.register(app)
study_federated.register(app)

Data = Annotated[
    str | None,
    typer.Option(
        help="digits, mnist, pneumoniamnist, lending_club, adult, or your CSV or Parquet file."
    ),
]
SchemaFile = Annotated[
    Path | None, typer.Option("--schema", help="Columns, bounds, categories and label of --data.")
]
Mechanisms = Annotated[str, typer.Option(help="Of codebook, vlm, direct.")]
Epsilons = Annotated[
    str | None, typer.Option(help="Local ε of a report; 1,2,4,6,8,10 if left out.")
]
Central = Annotated[str, typer.Option(help="Central ε towards the in-house rows: inf,5,1.")]
Trials = Annotated[int | None, typer.Option(help="Splits and noise, each anew; 3 if left out.")]
Features = Annotated[str | None, typer.Option(help="Of the codebook, as in tacit fit.")]
Level = Annotated[str, typer.Option(help="latent, feature, or both: latent,feature.")]


@app.command()
def collect(
    data: Data = None,
    schema: SchemaFile = None,
    mechanisms: Annotated[
        str, typer.Option(help="Of codebook, vlm, vlm-paper, vlm-tuned, direct.")
    ] = "codebook,vlm,direct",
    epsilons: Epsilons = None,
    central: Central = "inf",
    trials: Trials = None,
    features: Features = None,
    level: Level = "latent",
    device: Device = "auto",
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """Accuracy against local and central ε, of clean rows and of rows that are reported.

    Example: tacit study collect --data mnist --central inf,5,1 --json c.json --plot c.png
    """
    from tacit_papers.studies.collect import MECHANISMS, Collect

    dataset, options = _asked(MECHANISMS, locals())
    run_study(Collect(dataset, options), json_file, plot)


@app.command()
def novel_class(
    data: Data = None,
    schema: SchemaFile = None,
    new: Annotated[str | None, typer.Option(help="The class that is new; the last one.")] = None,
    mechanisms: Annotated[
        str, typer.Option(help="Of codebook, vlm, vlm-paper, direct.")
    ] = "codebook,vlm,direct",
    epsilons: Epsilons = None,
    central: Central = "inf",
    trials: Trials = None,
    features: Features = None,
    level: Level = "latent",
    device: Device = "auto",
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """A class that in-house data never held, told from the rest.

    Example: tacit study novel-class --data mnist --new 9 --json n.json --plot n.png
    """
    from tacit_papers.studies.novel_class import MECHANISMS, NovelClass

    dataset, options = _asked(MECHANISMS, locals())
    run_study(NovelClass(dataset, options, new), json_file, plot)


@app.command()
def join(
    data: Data = None,
    schema: SchemaFile = None,
    columns: Annotated[
        str | None, typer.Option(help="A column split of the data, e.g. paper or signal.")
    ] = None,
    mechanisms: Mechanisms = "codebook,vlm,direct",
    epsilons: Epsilons = None,
    trials: Trials = None,
    features: Features = None,
    device: Device = "auto",
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """Our clean columns beside reports of another party's, and what that adds.

    Example: tacit study join --data lending_club --columns paper --json j.json --plot j.png
    """
    from tacit_papers.studies.join import MECHANISMS, Join

    dataset, options = _asked(MECHANISMS, locals())
    run_study(Join(dataset, options, columns), json_file, plot)


@app.command()
def search(
    data: Data = None,
    schema: SchemaFile = None,
    mechanisms: Annotated[str, typer.Option(help="Of codebook, vlm.")] = "codebook,vlm",
    epsilons: Epsilons = None,
    trials: Trials = None,
    features: Features = None,
    device: Device = "auto",
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """Hyper-parameters by private votes, beside those of the paper's tables.

    Example: tacit study search --data mnist --json s.json --plot s.png
    """
    from tacit_papers.studies.search import MECHANISMS, Search

    dataset, options = _asked(MECHANISMS, locals())
    run_study(Search(dataset, options), json_file, plot)


@app.command()
def agnostic(
    data: Data = None,
    schema: SchemaFile = None,
    mechanisms: Mechanisms = "codebook,vlm,direct",
    epsilons: Epsilons = None,
    trials: Trials = None,
    features: Features = None,
    device: Device = "auto",
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """One set of reports, many questions, beside reports made for each question alone.

    Example: tacit study agnostic --data mnist --json a.json --plot a.png
    """
    from tacit_papers.studies.agnostic import MECHANISMS, Agnostic

    dataset, options = _asked(MECHANISMS, locals())
    run_study(Agnostic(dataset, options), json_file, plot)


@app.command()
def posterior(
    mechanisms: Annotated[
        str | None,
        typer.Option(
            help="Of geometric, geometric-remap, laplace, hellinger-smooth, -local, -global, "
            "-stated, -accuracy; all if left out."
        ),
    ] = None,
    epsilons: Annotated[str | None, typer.Option(help="Of a release: 0.02,0.1,0.5,1,2.")] = None,
    records: Annotated[str | None, typer.Option(help="How many: 20,50,100,200,500,1000.")] = None,
    priors: Annotated[str | None, typer.Option(help="1:1,0.5:0.5,4:4,1:10 if left out.")] = None,
    delta: Annotated[float, typer.Option(help="Of the Hellinger mechanisms.")] = 1e-6,
    draws: Annotated[int | None, typer.Option(help="Releases of each simulation; 20000.")] = None,
    seed: Annotated[int, typer.Option(help="Of the simulations.")] = 10,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few settings: does it run?")] = False,
) -> None:
    """Private posteriors: error, exact privacy and coverage of every mechanism.

    Example: tacit study posterior --json p.json --plot p.png
    """
    from tacit_papers.studies import posterior as study

    given = {"mechanisms": mechanisms, "priors": priors}
    asked: dict[str, Any] = {
        k: read_words(k, text) for k, text in given.items() if text is not None
    }
    if epsilons is not None:
        asked["epsilons"] = read_numbers("epsilons", epsilons)
    if records is not None:
        asked["records"] = tuple(map(_whole, read_numbers("records", records)))
    if draws is not None:
        asked["draws"] = draws
    chosen = study.Asked(
        **{**(study.QUICK if quick else {}), **asked, "delta": delta, "seed": seed}
    )
    must_be_writable(json_file, plot)
    run_study(study.Posterior(chosen), json_file, plot, study.table)


@app.command()
def anonymize(
    data: Annotated[
        str, typer.Option(help="pendigits, a folder of images, or a CSV or Parquet file of yours.")
    ] = "pendigits",
    regular: Annotated[
        str | None, typer.Option(help="The column to keep, of --data that is a file.")
    ] = None,
    private: Annotated[
        str | None, typer.Option(help="The column to lose, of --data that is a file.")
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", help="Bounds and categories of the other columns.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option(help="Of a folder: ferg, jaffe, or how paths name both labels.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="Of a folder: make images so large, e.g. 50x50.")
    ] = None,
    strengths: Annotated[
        str | None, typer.Option(help="λ of the trainings: 0,0.25,0.5,1,1.5.")
    ] = None,
    trainings: Annotated[
        str | None, typer.Option(help="Of toggled, simultaneous, robust; all if left out.")
    ] = None,
    epsilons: Annotated[
        str | None, typer.Option(help="Local ε of a release, at λ = 0.5: 1,2,4,8.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Splits, each anew; 3 if left out.")] = None,
    device: Device = "auto",
    seed: Seed = 0,
    json_file: JsonFile = None,
    plot: Plot = None,
    quick: Quick = False,
) -> None:
    """Representations that keep the task and lose the person: both, as attackers find them.

    Example: tacit study anonymize --data pendigits --strengths 0,.5,1 --json a.json --plot a.png
    """
    from tacit.data import datasets
    from tacit_papers.studies import anonymize as study
    from tacit_papers.studies.anonymize_summary import table

    given = {"strengths": strengths, "epsilons": epsilons}
    asked: dict[str, Any] = {
        k: read_numbers(k, text) for k, text in given.items() if text is not None
    }
    if trainings is not None:
        asked["trainings"] = read_words("trainings", trainings)
    if trials is not None:
        asked["trials"] = trials
    usual = study.QUICK if quick else {}
    chosen = study.Asked(**{**usual, **asked, "device": device, "seed": seed})
    must_be_writable(json_file, plot)
    with stages_progress() as progress:
        folder: Any = {"pattern": pattern, "size": image_size(size)}
        dataset = datasets.load_twice(data, regular, private, schema, progress=progress, **folder)
    run_study(study.Anonymize(dataset, chosen), json_file, plot, table)
    if quick:
        print(QUICK)


def _whole(number: float) -> int:
    return errors.whole("study", "records", number, least=1)


def _asked(known: Sequence[str], given: dict[str, Any]) -> tuple[Any, Any]:
    """What was asked for, checked before data are read, and the data."""
    from tacit.data import datasets
    from tacit_papers.studies.options import PAPER_EPSILONS, QUICK_EPSILONS, Options

    quick = given["quick"]
    usual = QUICK_EPSILONS if quick else PAPER_EPSILONS
    trials = given["trials"]
    options = Options.of(
        known,
        mechanisms=read_words("mechanisms", given["mechanisms"]),
        epsilons=read_numbers("epsilons", given["epsilons"]) if given["epsilons"] else usual,
        central=read_numbers("central", given.get("central", "inf")),
        features=given["features"],
        level=read_words("level", given.get("level", "latent")),
        trials=(1 if quick else 3) if trials is None else trials,
        seed=given["seed"],
        device=given["device"],
        quick=quick,
    )
    must_be_writable(given["json_file"], given["plot"])
    with stages_progress() as progress:
        return datasets.load(given["data"] or "digits", given["schema"], progress=progress), options


@app.command()
def figure(
    records: Annotated[list[Path], typer.Argument(help="Records of one study.", metavar="RECORD")],
    plot: Annotated[Path, typer.Option(help="The figure: .png, .svg or .pdf.")],
) -> None:
    """Draw a figure from records, several of the same study and data in one.

    Example: tacit study figure latent.json feature.json --plot figure1.png
    """
    from tacit_papers.studies.record import Record

    must_exist(*records)
    must_be_writable(None, plot)
    draw([Record.load(path).to_plain() for path in records], plot)
    print(f"figure: {plot}")
