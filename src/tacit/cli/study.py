"""`tacit study`: the results of the papers, and ours beside them, one command each."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tacit import errors
from tacit.cli.console import must_exist, print_table
from tacit.cli.files import image_size, stages_progress

app = typer.Typer(
    help="The results of the papers and ours beside them: run, recorded, tabled, drawn.",
    no_args_is_help=True,
)

_QUICK = "A quick run, on few rows and hardly trained: its numbers mean nothing."

Data = Annotated[
    str | None,
    typer.Option(help="digits, mnist, lending_club, adult, or a CSV or Parquet file of yours."),
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
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:0, …")]
Seed = Annotated[int, typer.Option(help="Of the first trial; the next ones count on from it.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", help="The record; a study that was stopped goes on from it."),
]
Plot = Annotated[Path | None, typer.Option(help="The figure: .png, .svg or .pdf.")]
Quick = Annotated[bool, typer.Option("--quick", help="Few rows, one trial: does it run?")]


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
    from tacit.studies.collect import MECHANISMS, Collect

    dataset, options = _asked(MECHANISMS, locals())
    _run(Collect(dataset, options), json_file, plot)


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
    from tacit.studies.novel_class import MECHANISMS, NovelClass

    dataset, options = _asked(MECHANISMS, locals())
    _run(NovelClass(dataset, options, new), json_file, plot)


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
    from tacit.studies.join import MECHANISMS, Join

    dataset, options = _asked(MECHANISMS, locals())
    _run(Join(dataset, options, columns), json_file, plot)


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
    from tacit.studies.search import MECHANISMS, Search

    dataset, options = _asked(MECHANISMS, locals())
    _run(Search(dataset, options), json_file, plot)


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
    from tacit.studies.agnostic import MECHANISMS, Agnostic

    dataset, options = _asked(MECHANISMS, locals())
    _run(Agnostic(dataset, options), json_file, plot)


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
    from tacit.studies import posterior as study

    given = {"mechanisms": mechanisms, "priors": priors}
    asked: dict[str, Any] = {k: _words(k, text) for k, text in given.items() if text is not None}
    if epsilons is not None:
        asked["epsilons"] = _numbers("epsilons", epsilons)
    if records is not None:
        asked["records"] = tuple(map(_whole, _numbers("records", records)))
    if draws is not None:
        asked["draws"] = draws
    chosen = study.Asked(
        **{**(study.QUICK if quick else {}), **asked, "delta": delta, "seed": seed}
    )
    _writable(json_file, plot)
    _run(study.Posterior(chosen), json_file, plot, study.table)


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
    from tacit import datasets
    from tacit.studies import anonymize as study
    from tacit.studies.anonymize_summary import table

    given = {"strengths": strengths, "epsilons": epsilons}
    asked: dict[str, Any] = {k: _numbers(k, text) for k, text in given.items() if text is not None}
    if trainings is not None:
        asked["trainings"] = _words("trainings", trainings)
    if trials is not None:
        asked["trials"] = trials
    usual = study.QUICK if quick else {}
    chosen = study.Asked(**{**usual, **asked, "device": device, "seed": seed})
    _writable(json_file, plot)
    with stages_progress() as progress:
        folder: Any = {"pattern": pattern, "size": image_size(size)}
        dataset = datasets.load_twice(data, regular, private, schema, progress=progress, **folder)
    _run(study.Anonymize(dataset, chosen), json_file, plot, table)
    if quick:
        print(_QUICK)


def _whole(number: float) -> int:
    return errors.whole("study", "records", number, least=1)


def _asked(known: Sequence[str], given: dict[str, Any]) -> tuple[Any, Any]:
    """What was asked for, checked before data are read, and the data."""
    from tacit import datasets
    from tacit.studies.options import PAPER_EPSILONS, QUICK_EPSILONS, Options

    quick = given["quick"]
    usual = QUICK_EPSILONS if quick else PAPER_EPSILONS
    trials = given["trials"]
    options = Options.of(
        known,
        mechanisms=_words("mechanisms", given["mechanisms"]),
        epsilons=_numbers("epsilons", given["epsilons"]) if given["epsilons"] else usual,
        central=_numbers("central", given.get("central", "inf")),
        features=given["features"],
        level=_words("level", given.get("level", "latent")),
        trials=(1 if quick else 3) if trials is None else trials,
        seed=given["seed"],
        device=given["device"],
        quick=quick,
    )
    _writable(given["json_file"], given["plot"])
    with stages_progress() as progress:
        return datasets.load(given["data"] or "digits", given["schema"], progress=progress), options


def _run(
    study: Any,
    json_file: Path | None,
    plot: Path | None,
    as_table: Callable[[dict[str, Any]], Any] | None = None,
) -> None:
    """Run, show, and draw."""
    from tacit.studies.running import run
    from tacit.studies.tables import table

    with _cells() as progress, _stoppable(json_file):
        record = run(study, json_file, progress).to_plain()
    title, header, lines = (as_table or table)(record)
    print_table(title, header, lines)
    if as_table is None and record["parameters"]["quick"]:
        print(_QUICK)
    for name, path in (("record", json_file), ("figure", plot)):
        if path is not None:
            print(f"{name}: {path}")
    if plot is not None:
        _draw([record], plot)


@contextmanager
def _stoppable(json_file: Path | None) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if json_file is not None:
            print(f"\nThe same command goes on from {json_file}.", file=sys.stderr)
        raise


@app.command()
def figure(
    records: Annotated[list[Path], typer.Argument(help="Records of one study.", metavar="RECORD")],
    plot: Annotated[Path, typer.Option(help="The figure: .png, .svg or .pdf.")],
) -> None:
    """Draw a figure from records, several of the same study and data in one.

    Example: tacit study figure latent.json feature.json --plot figure1.png
    """
    from tacit.studies.record import Record

    must_exist(*records)
    _writable(None, plot)
    _draw([Record.load(path).to_plain() for path in records], plot)
    print(f"figure: {plot}")


def _draw(records: list[dict[str, Any]], path: Path) -> None:
    from tacit import plots

    plots.save(plots.draw(records), path)


def _writable(json_file: Path | None, plot: Path | None) -> None:
    """Hours of work must not end in a folder that is not there."""
    for option, path in (("--json", json_file), ("--plot", plot)):
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            errors.refuse("study", option, "a file in an existing folder", str(path))
    if plot is not None:
        from tacit import plots

        plots.check_target(plot)


def _words(name: str, text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words or len(set(words)) != len(words):
        errors.refuse("study", name, "names with commas between them, each once", text)
    return words


def _numbers(name: str, text: str) -> tuple[float, ...]:
    words = _words(name, text)
    try:
        numbers = tuple(float(word) for word in words)
    except ValueError:
        numbers = ()
    if not numbers or any(math.isnan(number) for number in numbers):
        errors.refuse("study", name, "numbers with commas between them", text)
    return numbers


@contextmanager
def _cells() -> Iterator[Callable[..., None]]:
    """A live line on a terminal; a line for each run elsewhere."""
    console = Console(stderr=True)
    columns = (
        BarColumn(20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def progress(words: str, done: int, total: int, values: dict[str, Any] | None) -> None:
            found = _said(values)
            bar.update(task, completed=done, total=total, description=f"{words}{found}")
            if values is not None:
                if console.is_terminal:
                    bar.console.print(f"{words}{found}", highlight=False)
                else:
                    print(f"{done}/{total} {words}{found}", file=sys.stderr, flush=True)

        yield progress


def _said(values: dict[str, Any] | None) -> str:
    if values is None:
        return " …"
    shown = [f"{name.replace('_', ' ')} {v:.3f}" for name, v in values.items() if _number(v)]
    return ": " + ", ".join(shown[:3])


def _number(value: Any) -> bool:
    return isinstance(value, float)
