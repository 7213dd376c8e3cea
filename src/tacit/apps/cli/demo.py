"""`tacit demo`: fit, collect and learn on data that come with scikit-learn."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit.apps.cli.console import WIDTH, print_json, print_text
from tacit.apps.cli.files import stages_progress, warnings_on_stderr
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson

if TYPE_CHECKING:
    from tacit.apps.demo import Demonstration
    from tacit.apps.demo.person import Person

_MOST_SYMBOLS = 4
_WRITTEN = {
    "mechanism": "runs on devices; learned from the in-house rows",
    "reports.parquet": "all reports, with their mechanism",
    "certificate.json": "the guarantee of the reports, bound to their bytes",
    "model": "the classifier, with the mechanism",
    "picture.png": "the pictures above; the first is raw",
    "demo.json": "hashes of these files, so that another demo may replace them",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "Start here", "tacit demo --epsilon 4")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("demo-output"),
    epsilon: Annotated[
        float, typer.Option(help="Local ε of the reports that are shown and saved.")
    ] = 4.0,
    as_json: AsJson = False,
) -> None:
    """Learn to read digits from noised reports; takes half a minute."""
    if not (find_spec("sklearn") and find_spec("matplotlib")):
        raise ImportError(
            "tacit demo needs scikit-learn and matplotlib. pip install 'tacit[demo]'."
        )
    from tacit.apps import demo as demonstration

    with warnings_on_stderr(), stages_progress(transient=True) as progress:
        outcome = demonstration.run(out, epsilon, progress)
    if as_json:
        return print_json(outcome.to_dict())
    console = Console(highlight=False)
    console.width = min(console.width, WIDTH)
    for part in (_print_table, _print_person, _print_certificate, _print_next):
        part(console, outcome)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _print_table(console: Console, outcome: Demonstration) -> None:
    from tacit.apps.demo.person import TITLES

    sizes = outcome.sizes
    _heading(console, "Learning from people who show nobody their data")
    console.print(
        f"{sizes['inhouse']:,} handwritten digits without labels are in-house. "
        f"{sizes['people']:,} people have one digit each, and know which it is; they trust nobody. "
        "A mechanism, fitted in-house, runs on each person's device and sends one noised report. "
        "A classifier learns from the reports, and from how often each codeword occurs among the "
        "in-house digits.\n"
    )
    names = [name for name in TITLES if name in outcome.trials]
    table = Table(title=f"Accuracy on {sizes['test']} new digits", title_justify="left")
    for title in ("ε", *(TITLES[name] for name in names), "no privacy", "always\none digit"):
        table.add_column(title, style="bold" if title == TITLES["codebook"] else "")
    for at in outcome.trials["codebook"]:
        cells = [
            f"{outcome.mean(name, at):.2f} ± {outcome.standard_deviation(name, at):.2f}"
            for name in names
        ]
        same = f"{outcome.no_privacy:.2f}", f"{outcome.largest_class:.2f}"
        table.add_row(f"{at:g}", *cells, *same)
    console.print(table)
    console.print(
        f"Mean ± one standard deviation of {sizes['draws']} collections, each with fresh noise."
    )
    for sentence in outcome.missing:
        console.print(f"Left out: {sentence}", markup=False)


def _print_person(console: Console, outcome: Demonstration) -> None:
    from tacit.apps.cli.pictures import print_pictures
    from tacit.apps.demo.person import TITLES

    person = outcome.person
    _heading(
        console,
        f"What a server sees of one person at ε = {outcome.epsilon:g}, through one of these",
    )
    seen = [(f"{TITLES[name]}", picture) for name, picture in person.seen.items()]
    print_pictures(console, [(f"the digit: {person.digit}", person.record), *seen])
    console.print(_sent(person))


def _sent(person: Person) -> str:
    """Describe what left the device through the codebook."""
    pairs = [f"{codeword}:{digit}" for codeword, digit in person.symbols[:_MOST_SYMBOLS]]
    more = len(person.symbols) - len(pairs)
    pairs += [f"and {more} more"] * (more > 0)
    return (
        f"Through the codebook {len(person.sent)} bytes left the device: {person.sent.hex(' ')}. "
        f"They name {len(person.symbols)} of {person.categories} pairs codeword:digit, namely "
        f"{', '.join(pairs)}. The true pair is among them with probability "
        f"{person.inclusion:.2f}; the picture is the mean of all that this leaves possible. "
        "Direct noising shows what it sent."
        + " The VLM shows it decoded: crisp, and often another digit."
        * ("vlm" in person.seen)
    )


def _print_certificate(console: Console, outcome: Demonstration) -> None:
    _heading(console, "The certificate, in plain words")
    print_text(outcome.certificate.explain(), console.width)


def _print_next(console: Console, outcome: Demonstration) -> None:
    folder = outcome.folder.path
    _heading(console, f"Written to {folder}")
    _print_pairs([(path.name, _WRITTEN[path.name]) for path in outcome.folder.paths])
    console.print(
        "The in-house digits have no guarantee here, so all of this stays in-house. A mechanism "
        "that goes to people's devices is fitted with central_epsilon: docs/inhouse.md."
    )
    _heading(console, "Next")
    _print_pairs(
        [
            (f"tacit account verify {folder / 'certificate.json'}", "a changed byte fails"),
            (f"tacit account explain {folder / 'model'}", "who is protected, in words"),
            ("tacit collect plan --help", "how many people are needed"),
            ("docs/guide.md", "your own data in ten lines"),
        ]
    )


def _print_pairs(pairs: list[tuple[str, str]]) -> None:
    """Print without rich, which would break long commands into lines that cannot be copied."""
    width = max(len(name) for name, _ in pairs)
    for name, meaning in pairs:
        print(f"  {name:<{width}}  {meaning}")
