"""`tacit campaign edit`, `open`, …: the owner's desk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.campaign.participants import OwnerKey, Url, connected
from tacit.apps.cli.console import must_exist, print_values
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson
from tacit.privacy import errors

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


def _said(value: Any) -> Any:
    """Return a statement as a table shows it."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value
