"""The registry of studies.

A study is three files: `studies/NAME.py`, whose `STUDY` holds its parameters, its experiment
and its summary; `figures/NAME.py`, whose `draw` draws its records; and
`pages/templates/NAME.md`, the text of its page. A page that needs sentences of its own has them in
`pages/NAME.py`. Command, options, checks, documentation and navigation follow from these.

Nothing here imports a study, matplotlib or torch before it is asked for.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.privacy import errors
from tacit_papers.engine import parameters as declared
from tacit_papers.engine.parameters import Parameters
from tacit_papers.engine.tables import Table, table

if TYPE_CHECKING:
    from tacit_papers.engine.running import Experiment

STUDIES = Path(__file__).parents[1] / "studies"
TEMPLATES = Path(__file__).parents[1] / "pages" / "templates"
Runs = Sequence[Mapping[str, Any]]
Plain = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """A study: its parameters, experiment, summary, table, figure and page.

    Parameters
    ----------
    name : str
        As in `tacit study NAME` and in records.
    about : str
        What the command does, in one line.
    question : str
        What its page answers.
    parameters : type
        Its parameters: a dataclass whose fields are made by `declare.option`.
    prepare : callable
        Takes parameters and a progress callback, loads the data, returns the experiment.
    measures : tuple of str
        Measures of which every result has at least one; figures show the first that is there.
    table : callable
        Takes a record; returns title, header and lines for a terminal.
    measured, references : callable, optional
        Summarize the trials of one cell, and the references; by default as means and standard
        deviations.
    needs : mapping
        Packages that it cannot run without, and the extras that install them.
    example : str
        Options of the command in its help.
    variant : str, optional
        A parameter in the record that tells sections of the page apart, beside the data.
    requested : callable, optional
        Takes the parameters in a record, and adds those that it states in another form.
    epsilon_optional : bool
        Whether results may have no ε.
    place : int
        Where it stands in lists; by name among equals.
    quick_note : str
        What is printed after a quick run.
    """

    name: str
    about: str
    question: str
    parameters: type[Parameters]
    prepare: Callable[[Any, Any], Experiment]
    measures: tuple[str, ...]
    table: Callable[[Mapping[str, Any]], Table] = table
    measured: Callable[[Runs], Plain] | None = None
    references: Callable[[Mapping[str, Any]], Plain] | None = None
    needs: Mapping[str, str] = field(default_factory=dict)
    example: str = ""
    variant: str | None = None
    requested: Callable[[Plain], Plain] = dict
    epsilon_optional: bool = False
    place: int = 100
    quick_note: str = "A quick run, to see whether the study works: its numbers mean nothing."

    @property
    def help(self) -> str:
        """Help text of the command."""
        files = f"--json {self.name}.json --plot {self.name}.png"
        return f"{self.about}\n\nExample: tacit study {' '.join([self.command, files])}"

    @property
    def command(self) -> str:
        """Name and example options of the command."""
        return f"{self.name} {self.example}".strip()

    @cached_property
    def options(self) -> dict[str, Any]:
        """Fields that are options of the command, by their names in records."""
        return {declared.record_name(one): one for one in declared.offered(self.parameters)}

    @property
    def draw(self) -> Callable[[Any], Any]:
        """Function that draws merged records."""
        module = import_module(f"tacit_papers.figures.{_module(self.name)}")
        return module.draw  # type: ignore[no-any-return]

    @property
    def template(self) -> str:
        """Text of its page, with fields."""
        return (TEMPLATES / f"{self.name}.md").read_text()

    @property
    def title(self) -> str:
        """Heading of its page."""
        return self.template.partition("\n")[0].removeprefix("# ")

    @property
    def fields(self) -> dict[str, Callable[..., str]]:
        """Functions behind the fields of its template, beside those that all pages have."""
        name = f"tacit_papers.pages.{_module(self.name)}"
        return dict(import_module(name).FIELDS) if find_spec(name) else {}

    def need_packages(self) -> None:
        """Refuse, before anything runs, where a package is missing."""
        for module, extra in self.needs.items():
            if find_spec(module) is None:
                raise errors.TacitError(
                    f"study: {self.name} needs {module}. pip install 'tacit[{extra}]'."
                )


@cache
def names() -> tuple[str, ...]:
    """List the names of all studies, by the modules that there are."""
    return tuple(sorted(_name(module.name) for module in pkgutil.iter_modules([str(STUDIES)])))


def get(name: str) -> Study | None:
    """Return the study of this name, or None where there is none."""
    return study(name) if name in names() else None


def study(name: str) -> Study:
    """Return the study of this name."""
    errors.choice("study", "name", name, names())
    declared_study: Study = import_module(f"tacit_papers.studies.{_module(name)}").STUDY
    return declared_study


def studies() -> list[Study]:
    """Return all studies, in the order in which lists show them."""
    return sorted((study(name) for name in names()), key=lambda one: (one.place, one.name))


def _module(name: str) -> str:
    return name.replace("-", "_")


def _name(module: str) -> str:
    return module.replace("_", "-")
