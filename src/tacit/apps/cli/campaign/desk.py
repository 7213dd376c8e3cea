"""`tacit campaign edit`, `open`, …: the owner's desk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.apps.cli.campaign.participants import OwnerKey, Url, connected
from tacit.apps.cli.console import must_exist, print_json, print_table, print_text, print_values
from tacit.apps.cli.files import must_be_new
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Confidence, Out
from tacit.privacy import errors, files

if TYPE_CHECKING:
    from tacit.apps.service.papers import Paper

About = Annotated[
    Path | None,
    typer.Option(
        help="File (JSON) with organiser, contact, retention, legal_basis, language, and texts in "
        "other languages."
    ),
]
Organiser = Annotated[str | None, typer.Option(help="Who is responsible: a name and an address.")]
Contact = Annotated[str | None, typer.Option(help="Whom people can write to.")]
Retention = Annotated[
    str | None, typer.Option(help="How long reports are kept: 'until 31 March 2027'.")
]
LegalBasis = Annotated[
    str | None, typer.Option(help="Legal basis, as you state it: 'consent (GDPR art. 6(1)(a))'.")
]
Language = Annotated[
    str | None, typer.Option(help="Language of title, purpose and question: de, pt-BR.")
]
MaybeOut = Annotated[
    Path | None,
    typer.Option("--out", help="What to write; must not exist yet.", show_default="printed"),
]
Draft = Annotated[
    bool | None,
    typer.Option("--draft", help="Prepare it: it takes no answers until tacit campaign open."),
]


@dataclass(frozen=True, kw_only=True)
class Statements:
    """What the owner states about a campaign on the command line; None for what was not given."""

    about: Path | None = None
    organiser: str | None = None
    contact: str | None = None
    retention: str | None = None
    legal_basis: str | None = None
    language: str | None = None

    def given(self) -> dict[str, Any] | None:
        """Return the statements as JSON values, those of options before those of the file."""
        from tacit.apps.service.notice import Notice

        values: dict[str, Any] = {}
        if self.about is not None:
            must_exist(self.about)
            values = Notice.read(self.about).to_plain()
        for name in ("organiser", "contact", "retention", "legal_basis", "language"):
            if (text := getattr(self, name)) is not None:
                values[name] = text
        return values or None


def register(app: typer.Typer, panel: str, url: str) -> None:
    """Add the commands."""
    command(app, panel, f"tacit campaign edit {url} --contact privacy@library.example")(edit)
    command(app, panel, f"tacit campaign open {url}", "open")(begin)
    command(app, panel, f"tacit campaign timeline {url}")(timeline)
    command(app, panel, f"tacit campaign robust {url} --forged 50")(robust)
    command(app, panel, f"tacit campaign export {url} --out results.parquet")(export)
    command(app, panel, f"tacit campaign notice {url} --out notice.md")(notice)
    command(app, panel, f"tacit campaign record {url} --out record.md")(record)


def edit(
    url: Url,
    key: OwnerKey = None,
    title: Annotated[str | None, typer.Option(help="Title, which people read first.")] = None,
    purpose: Annotated[str | None, typer.Option(help="What the answers are for.")] = None,
    question: Annotated[str | None, typer.Option(help="Question that the label answers.")] = None,
    opens: Annotated[str | None, typer.Option(help="When it opens: 2026-12-01T08:00Z.")] = None,
    closes: Annotated[str | None, typer.Option(help="When it closes: 2026-12-31T20:00Z.")] = None,
    minimum: Annotated[
        int | None, typer.Option(help="Number of reports below which no results are shown.")
    ] = None,
    quota: Annotated[int | None, typer.Option(help="Largest number of reports.")] = None,
    about: About = None,
    organiser: Organiser = None,
    contact: Contact = None,
    retention: Retention = None,
    legal_basis: LegalBasis = None,
    language: Language = None,
    as_json: AsJson = False,
) -> None:
    """Change what people will be told; only while the campaign is a draft."""
    stated = Statements(
        about=about,
        organiser=organiser,
        contact=contact,
        retention=retention,
        legal_basis=legal_basis,
        language=language,
    )
    given = {
        "title": title,
        "purpose": purpose,
        "question": question,
        "opens": opens,
        "closes": closes,
        "minimum": minimum,
        "quota": quota,
        "about": stated.given(),
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        errors.refuse(
            "campaign edit", "an option", "given", None, "See tacit campaign edit --help."
        )
    with connected(url, key=key) as client:
        described = client.desk.edit(**changes)
    shown = {name: described.get(name) for name in (*changes, "state")}
    if stated.given():
        shown |= {name: _said(value) for name, value in dict(shown.pop("about") or {}).items()}
    print_values(described if as_json else shown, as_json, "The draft")


def begin(url: Url, key: OwnerKey = None, as_json: AsJson = False) -> None:
    """Open a draft: from now on it takes answers, and what people are told stays as it is."""
    with connected(url, key=key) as client:
        described = client.desk.open()
    values = {name: described.get(name) for name in ("state", "opens", "closes")}
    print_values(values, as_json, "Opened")


def timeline(url: Url, key: OwnerKey = None, as_json: AsJson = False) -> None:
    """Show how many were invited, opened the page, answered and withdrew, over time."""
    with connected(url, key=key) as client:
        found = client.desk.timeline()
    if as_json:
        return print_json(found)
    series = {name: one for name, one in found.items() if isinstance(one, dict)}
    days = sorted({day["day"] for one in series.values() for day in one["days"]})
    at = {name: {day["day"]: day["people"] for day in one["days"]} for name, one in series.items()}
    lines = [(day, *(_count(at[name].get(day)) for name in series)) for day in days]
    lines.append(("now", *(_count(one["people"]) for one in series.values())))
    print_table("People so far", ("by the end of", *series), lines)
    print_text(found["words"])


def robust(
    url: Url,
    forged: Annotated[int, typer.Option(help="Largest number of forged reports to allow for.")],
    key: OwnerKey = None,
    confidence: Confidence = 0.95,
    as_json: AsJson = False,
) -> None:
    """Show shares that forged reports move little, with intervals that hold despite them."""
    with connected(url, key=key) as client:
        found = client.desk.robust(forged, confidence)
    if as_json:
        return print_json(found)
    lines = [
        (f"{one['what']} {one['of']}", f"{one['share']:.4f}", "{:.4f} to {:.4f}".format(*ends))
        for one in found["shares"]
        for ends in [one["interval"]]
    ]
    level = f"{found['confidence']:.0%} interval"
    print_table(f"{found['reports']:,} reports", ("share of", "share", level), lines)
    print_text(found["words"])


def export(
    url: Url, out: Out, key: OwnerKey = None, confidence: Confidence = 0.95, as_json: AsJson = False
) -> None:
    """Write the results to a file: all estimates as .csv or .parquet, or a picture as .png."""
    must_be_new(out)
    with connected(url, key=key) as client:
        client.desk.export(out, confidence)
    print_values({"written": str(out)}, as_json, "Exported")


def notice(url: Url, out: MaybeOut = None, as_json: AsJson = False) -> None:
    """Print the privacy notice (GDPR, article 13) as Markdown, made from the campaign's settings.

    What the owner has not stated is named as missing.
    """
    with connected(url) as client:
        _write(client.notice(), out, as_json)


def record(url: Url, key: OwnerKey = None, out: MaybeOut = None, as_json: AsJson = False) -> None:
    """Print the record of processing (GDPR, article 30) as Markdown, from the campaign's settings.

    What the owner has not stated is named as missing.
    """
    with connected(url, key=key) as client:
        _write(client.desk.record(), out, as_json)


def _write(paper: Paper, out: Path | None, as_json: bool) -> None:
    text = paper.to_markdown()
    if out is not None:
        must_be_new(out)
        files.create(out, text.encode())
    if as_json:
        print_json(paper.to_plain())
    elif out is None:
        print(text, end="")


def _count(people: int | None) -> str:
    return "" if people is None else f"{people:,}"


def _said(value: Any) -> Any:
    """Return a statement as a table shows it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
