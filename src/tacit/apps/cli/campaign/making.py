"""`tacit campaign serve` and `create`: make a campaign, and serve it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.apps.cli.campaign import serving
from tacit.apps.cli.campaign.desk import (
    About,
    Contact,
    Draft,
    Language,
    LegalBasis,
    Organiser,
    Retention,
    Statements,
)
from tacit.apps.cli.console import must_exist, print_json
from tacit.apps.cli.files import must_have
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson
from tacit.privacy import errors

if TYPE_CHECKING:
    from tacit.apps.service.campaign import Campaign
    from tacit.apps.service.settings import Settings
    from tacit.apps.service.store import Store

Artifact = Annotated[
    Path,
    typer.Argument(
        help="Mechanism (a directory that tacit collect fit or export wrote), or survey (JSON).",
        metavar="ARTIFACT",
    ),
]
MaybeArtifact = Annotated[
    Path | None,
    typer.Argument(
        help="Mechanism (a directory that tacit collect fit or export wrote), or survey (JSON).",
        metavar="[ARTIFACT]",
    ),
]
MaybeDatabase = Annotated[
    str | None,
    typer.Option(
        "--db",
        help="Database: sqlite:///FILE or postgresql://user@host/name.",
        show_default="sqlite:///campaign.db",
    ),
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the key of all hashes; created if it does not exist.",
        show_default="next to the SQLite file",
    ),
]
Title = Annotated[str, typer.Option(help="Title of the campaign, which people read first.")]
MaybeTitle = Annotated[
    str | None, typer.Option("--title", help="Title of the campaign, which people read first.")
]
Purpose = Annotated[str | None, typer.Option(help="Who asks, and what for, in a sentence or two.")]
Question = Annotated[
    str | None, typer.Option(help="Question that the label answers: 'Do you smoke?'")
]
Unlabelled = Annotated[
    bool | None,
    typer.Option("--unlabelled", help="Ask for no label, even if the mechanism has classes."),
]
VoteEpsilon = Annotated[
    float | None,
    typer.Option(help="Local ε of a vote on the learned model.", show_default="no votes"),
]
VoteByClass = Annotated[
    bool | None,
    typer.Option("--vote-by-class", help="Include the voter's class in the noised vote."),
]
Opens = Annotated[
    str | None, typer.Option(help="When it opens: 2026-12-01T08:00Z.", show_default="at once")
]
Closes = Annotated[
    str | None, typer.Option(help="When it closes: 2026-12-31T20:00Z.", show_default="when closed")
]
Minimum = Annotated[
    int | None,
    typer.Option(
        help="Number of reports, and of votes, below which no results are shown.",
        show_default="100",
    ),
]
Quota = Annotated[
    int | None, typer.Option(help="Largest number of reports.", show_default="no limit")
]

_DEFAULT_PURPOSE = "The owner has not stated a purpose."
_NO_TLS = (
    "serve: without --tls-cert, anyone on the network path can read what is sent. Use --tls-cert "
    "and --tls-key, or a proxy with TLS."
)


@dataclass(frozen=True, kw_only=True)
class _CampaignSettings:
    """A campaign's settings on the command line; None for an option that was not given."""

    title: str
    purpose: str | None
    question: str | None
    unlabelled: bool | None
    vote_epsilon: float | None
    vote_by_class: bool | None
    opens: str | None
    closes: str | None
    minimum: int | None
    quota: int | None
    listed: bool | None
    draft: bool | None
    statements: Statements

    def given(self) -> dict[str, Any]:
        """Return the settings that were given, except the title, as a campaign takes them."""
        from tacit.apps.service.notice import Notice

        stated = self.statements.given()
        values = {
            "purpose": self.purpose,
            "question": self.question,
            "labelled": False if self.unlabelled else None,
            "vote_epsilon": self.vote_epsilon,
            "vote_by_class": self.vote_by_class,
            "opens": _moment("opens", self.opens),
            "closes": _moment("closes", self.closes),
            "minimum": self.minimum,
            "quota": self.quota,
            "listed": self.listed,
            "draft": self.draft,
            "about": None if stated is None else Notice.from_plain(stated),
        }
        return {name: value for name, value in values.items() if value is not None}


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands."""
    command(
        app,
        panel,
        "tacit campaign serve for-people --title 'How people write digits' --vote-epsilon 2",
    )(serve)
    command(
        app,
        panel,
        "tacit campaign create for-people --title Digits --db sqlite:///campaign.db",
    )(create)


def serve(
    artifact: MaybeArtifact = None,
    title: MaybeTitle = None,
    db: MaybeDatabase = None,
    secret: SecretFile = None,
    purpose: Purpose = None,
    question: Question = None,
    unlabelled: Unlabelled = None,
    vote_epsilon: VoteEpsilon = None,
    vote_by_class: VoteByClass = None,
    opens: Opens = None,
    closes: Closes = None,
    minimum: Minimum = None,
    quota: Quota = None,
    listed: serving.Listed = None,
    settings: serving.SettingsFile = None,
    overrides: serving.Overrides = None,
    print_settings: serving.PrintSettings = False,
    host: serving.Host = None,
    port: serving.Port = None,
    tls_cert: serving.Certificate = None,
    tls_key: serving.PrivateKey = None,
    trusted_proxies: serving.Proxies = None,
    cors: serving.Cors = None,
    rate: serving.Rate = None,
    draft: Draft = None,
    about: About = None,
    organiser: Organiser = None,
    contact: Contact = None,
    retention: Retention = None,
    legal_basis: LegalBasis = None,
    language: Language = None,
    as_json: AsJson = False,
) -> None:
    """Serve campaigns, their pages and their HTTP interface, until Ctrl-C or SIGTERM.

    With ARTIFACT and --title, the campaign of that mechanism and title is created if the database
    does not have it. Without, the campaigns that the database has are served.
    """
    options = {
        "db": db,
        "secret": secret,
        "host": host,
        "port": port,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "trusted_proxies": trusted_proxies,
        "cors": cors,
        "limits.rate": rate,
    }
    applied = serving.settings_of(settings, overrides, options)
    if print_settings:
        return serving.print_settings(applied, as_json)
    campaign = _CampaignSettings(
        title=title or "",
        purpose=purpose,
        question=question,
        unlabelled=unlabelled,
        vote_epsilon=vote_epsilon,
        vote_by_class=vote_by_class,
        opens=opens,
        closes=closes,
        minimum=minimum,
        quota=quota,
        listed=listed,
        draft=draft,
        statements=Statements(
            about=about,
            organiser=organiser,
            contact=contact,
            retention=retention,
            legal_basis=legal_basis,
            language=language,
        ),
    )
    serving.must_fit(artifact, title, campaign.given())
    _serve(applied, None if artifact is None else _mechanism(artifact), campaign, as_json)


def _serve(applied: Settings, mechanism: Any, settings: _CampaignSettings, as_json: bool) -> None:
    from tacit.apps.service import server

    must_exist(applied["tls_cert"], applied["tls_key"])
    listener = applied.listener
    listener.must_be_free()
    if listener.in_the_clear:
        print(_NO_TLS, file=sys.stderr)
    with _ended_gently(), _opened(applied.database, applied["secret"]) as store:
        if mechanism is None:
            serving.print_served(store, listener.url, as_json)
        else:
            campaign, key = _campaign(store, mechanism, settings)
            _print_campaign(campaign, key, listener.url, as_json)
        server.serve(
            store,
            listener,
            limits=applied.limits,
            cors=applied["cors"],
            at_door=applied.at_door,
            shutdown_seconds=applied["shutdown_seconds"],
        )


def create(
    artifact: Artifact,
    title: Title,
    db: MaybeDatabase = None,
    secret: SecretFile = None,
    purpose: Purpose = None,
    question: Question = None,
    unlabelled: Unlabelled = None,
    vote_epsilon: VoteEpsilon = None,
    vote_by_class: VoteByClass = None,
    opens: Opens = None,
    closes: Closes = None,
    minimum: Minimum = None,
    quota: Quota = None,
    listed: serving.Listed = None,
    settings: serving.SettingsFile = None,
    draft: Draft = None,
    about: About = None,
    organiser: Organiser = None,
    contact: Contact = None,
    retention: Retention = None,
    legal_basis: LegalBasis = None,
    language: Language = None,
    as_json: AsJson = False,
) -> None:
    """Create a campaign in a database without serving it; print the owner's key once."""
    applied = serving.settings_of(settings, None, {"db": db, "secret": secret})
    mechanism = _mechanism(artifact)
    told = _CampaignSettings(
        title=title,
        purpose=purpose,
        question=question,
        unlabelled=unlabelled,
        vote_epsilon=vote_epsilon,
        vote_by_class=vote_by_class,
        opens=opens,
        closes=closes,
        minimum=minimum,
        quota=quota,
        listed=listed,
        draft=draft,
        statements=Statements(
            about=about,
            organiser=organiser,
            contact=contact,
            retention=retention,
            legal_basis=legal_basis,
            language=language,
        ),
    )
    with _opened(applied.database, applied["secret"]) as store:
        campaign, key = _campaign(store, mechanism, told)
        if key is None:
            remedy = "The owner's key was shown when that campaign was created."
            errors.refuse("campaign create", "--title", "new for this mechanism", title, remedy)
        _print_campaign(campaign, key, "", as_json)


@contextmanager
def _ended_gently() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that the database is closed and SQLite's log is removed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _opened(db: str, secret: Path | None) -> Iterator[Store]:
    from tacit.apps.service.store import Store

    store = Store.open(db, secret)
    try:
        yield store
    finally:
        store.engine.dispose()


def _mechanism(directory: Path) -> Any:
    """Load the mechanism or survey and check it before a database is created for it."""
    from tacit.local.surveys.survey import Survey
    from tacit.privacy import artifact

    if directory.suffix == ".json":
        must_exist(directory)
        return Survey.read(directory)
    return must_have(artifact.load(directory), "release", directory).shared("collection")


def _campaign(
    store: Store, mechanism: Any, settings: _CampaignSettings
) -> tuple[Campaign, str | None]:
    """Find or create the campaign of this mechanism and title; return its key if it is new."""
    from tacit.privacy import artifact

    given = settings.given()
    fingerprint = artifact.fingerprint(mechanism)
    for known in store.campaigns():
        if (known.fingerprint, known.title) == (fingerprint, settings.title):
            if (listed := given.pop("listed", None)) is not None:
                store.show(known.id, listed)
            _must_be_the_same(known, given)
            return store.current(known.id), None
    defaults = {"purpose": _DEFAULT_PURPOSE, "labelled": mechanism.classes is not None}
    return store.create(mechanism, title=settings.title, **(defaults | given))


def _must_be_the_same(known: Campaign, given: dict[str, Any]) -> None:
    """Refuse to change a campaign: people have been told what it is."""
    for name, value in given.items():
        if name == "draft":
            continue  # it may have been opened since
        if (before := getattr(known, name)) != value:
            remedy = "Use another --title to create another campaign."
            option = "unlabelled" if name == "labelled" else name.replace("_", "-")
            errors.refuse("campaign", f"--{option}", f"unchanged, {before}", value, remedy)


def _moment(name: str, text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        errors.refuse("campaign", f"--{name}", "a time as in 2026-12-01T08:00Z", text)


def _print_campaign(campaign: Campaign, key: str | None, root: str, as_json: bool) -> None:
    values = {
        "campaign": campaign.id,
        "page": f"{root}/c/{campaign.id}",
        "owner_page": f"{root}/owner/{campaign.id}",
        "mechanism": campaign.fingerprint,
        "guarantee": str(campaign.certificate.guarantee),
        "key": key or "shown when the campaign was created",
    }
    if as_json:
        print_json(values)
    else:
        print(campaign.title)
        for name, value in values.items():  # no table, which would break lines that people copy
            print(f"  {name.replace('_', ' '):<12}{value}")
        if key is not None:
            print("Keep the owner's key: it is not stored, and will not be shown again.")
    sys.stdout.flush()  # a program may read this through a pipe while the server runs
