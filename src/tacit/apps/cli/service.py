"""`tacit serve`, `tacit campaign`: a campaign's owner."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.apps.cli.console import AsJson, must_exist, print_json, print_table, print_values
from tacit.apps.cli.files import Out, must_be_new, must_have
from tacit.apps.cli.take_part import OwnerKey, Url, connected
from tacit.apps.cli.votes import ends
from tacit.privacy import errors, files

if TYPE_CHECKING:
    from tacit.apps.service.campaign import Campaign
    from tacit.apps.service.store import Store

campaign = typer.Typer(
    help="What a campaign's owner does: create, invite, learn, look, close.", no_args_is_help=True
)

Artifact = Annotated[
    Path, typer.Argument(help="The directory that fit or export wrote.", metavar="ARTIFACT")
]
Database = Annotated[
    str, typer.Option("--db", help="sqlite:///FILE, or postgresql://user@host/name.")
]
SecretFile = Annotated[
    Path | None,
    typer.Option(help="The key of all hashes; made where it is not. Beside an SQLite file."),
]
Title = Annotated[str, typer.Option(help="What people read first.")]
Purpose = Annotated[str | None, typer.Option(help="Who asks, and what for.")]
Question = Annotated[
    str | None, typer.Option(help="What people are asked for as their label: 'Do you smoke?'")
]
Unlabelled = Annotated[
    bool | None, typer.Option("--unlabelled", help="People report no label, though it has classes.")
]
VoteEpsilon = Annotated[
    float | None, typer.Option(help="What a vote on the learned model costs; without, no votes.")
]
VoteByClass = Annotated[
    bool | None, typer.Option("--vote-by-class", help="A vote tells the class too, privately.")
]
Opens = Annotated[str | None, typer.Option(help="As in 2026-12-01T08:00Z.")]
Closes = Annotated[str | None, typer.Option(help="As in 2026-12-31T20:00Z.")]
Minimum = Annotated[
    int | None,
    typer.Option(help="So many reports, and votes, before anything is shown of them; 100."),
]
Quota = Annotated[int | None, typer.Option(help="So many reports are taken.")]

_DEFAULT_PURPOSE = "The owner has not said what for."


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(serve)
    app.add_typer(campaign, name="campaign")


def serve(
    artifact: Artifact,
    title: Title,
    db: Database = "sqlite:///campaign.db",
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
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Where to listen.")] = 8000,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM file, with --tls-key.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file, with --tls-cert.")] = None,
    trusted_proxies: Annotated[
        str | None, typer.Option(help="Addresses of proxies that say who asks: 127.0.0.1.")
    ] = None,
    cors: Annotated[
        str | None, typer.Option(help="One foreign origin whose pages may ask.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Requests a second of one address.")] = 50.0,
    as_json: AsJson = False,
) -> None:
    """Serve a campaign: the page where people take part, and the interface. Ctrl-C ends it.

    A campaign of this mechanism and title that is in the database goes on. Example: tacit serve
    for-people --title 'How people write digits' --vote-epsilon 2
    """
    from tacit.apps.service.app import Limits
    from tacit.apps.service.server import must_be_free
    from tacit.apps.service.server import serve as run

    must_exist(tls_cert, tls_key)
    port = errors.whole("serve", "--port", port, least=1, most=65535)
    limit = float(errors.positive("serve", "--rate", rate))
    mechanism, given = _mechanism(artifact), locals()
    must_be_free(host, port)
    if host not in ("127.0.0.1", "::1", "localhost") and tls_cert is None:
        said = (
            "serve: without --tls-cert whoever is on the way can read along. Put a proxy before it."
        )
        print(said, file=sys.stderr)
    with _ended_gently(), _opened(db, secret) as store:
        found, key = _campaign(store, mechanism, given)
        scheme = "http" if tls_cert is None else "https"
        root = f"{scheme}://{_reachable(host)}:{port}"
        _print_campaign(found, key, root, as_json)
        run(
            store,
            host=host,
            port=port,
            limits=Limits(rate=limit, burst=4 * limit),
            cors=cors,
            tls_certificate=tls_cert,
            tls_key=tls_key,
            trusted_proxies=trusted_proxies,
        )


@campaign.command()
def create(
    artifact: Artifact,
    title: Title,
    db: Database = "sqlite:///campaign.db",
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
    as_json: AsJson = False,
) -> None:
    """Write a campaign into a database, for a server to find; the owner's key is shown once.

    Example: tacit campaign create for-people --title Digits --db sqlite:///campaign.db
    """
    mechanism, given = _mechanism(artifact), locals()
    with _opened(db, secret) as store:
        found, key = _campaign(store, mechanism, given)
        if key is None:
            remedy = "Its key was shown when it was made."
            errors.refuse("campaign create", "--title", "new for this mechanism", title, remedy)
        _print_campaign(found, key, "", as_json)


@campaign.command()
def invite(
    url: Url,
    count: Annotated[int, typer.Option(help="How many people.")],
    out: Out,
    key: OwnerKey = None,
    as_json: AsJson = False,
) -> None:
    """Make invitations: one link a person, with their token behind the #.

    Example: tacit campaign invite https://host/c/CAMPAIGN --count 100 --out links.txt
    """
    must_be_new(out)
    with connected(url, key=key) as client:
        links = [client.link(token) for token in client.invite(count)]
    # Whoever reads this file can take part as anybody in it.
    files.create(out, "".join(f"{link}\n" for link in links).encode(), files.OWN)
    print_values({"invitations": len(links), "written": str(out)}, as_json, "Invited")


@campaign.command()
def learn(url: Url, key: OwnerKey = None, as_json: AsJson = False) -> None:
    """Learn a model from the reports so far, and publish it, for people to vote on.

    Example: tacit campaign learn https://host/c/CAMPAIGN
    """
    with connected(url, key=key) as client:
        print_values(client.learn(), as_json, "Learned and published")


@campaign.command()
def results(
    url: Url,
    key: OwnerKey = None,
    confidence: Annotated[float, typer.Option(help="Of every interval.")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Shares with intervals, accuracy by votes, and what fake participants could do to them.

    Example: tacit campaign results https://host/c/CAMPAIGN
    """
    errors.probability("campaign results", "--confidence", confidence, zero=False)
    with connected(url, key=key) as client:
        found = client.results(confidence)
    if as_json:
        return print_json(found)
    _print_results(found)


@campaign.command()
def reports(url: Url, out: Out, key: OwnerKey = None, as_json: AsJson = False) -> None:
    """Fetch all reports as a file, for tacit learn and tacit explain.

    Example: tacit campaign reports https://host/c/CAMPAIGN --out reports.parquet
    """
    must_be_new(out)
    with connected(url, key=key) as client:
        client.download_reports(out)
    print_values({"written": str(out)}, as_json, "Fetched")


@campaign.command()
def close(url: Url, key: OwnerKey = None, as_json: AsJson = False) -> None:
    """Take no further answers, for good.

    Example: tacit campaign close https://host/c/CAMPAIGN
    """
    with connected(url, key=key) as client:
        found = client.close_campaign()
    values = {name: found.get(name) for name in ("state", "reports", "votes")}
    print_values(values, as_json, "Closed")


@contextmanager
def _ended_gently() -> Iterator[None]:
    """SIGTERM as Ctrl-C: the database is closed then, and SQLite's log of all changes goes."""
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
    """What may be handed out: looked at before a database is made for it."""
    from tacit.privacy import artifact

    return must_have(artifact.load(directory), "release", directory).shared("collection")


def _campaign(store: Store, mechanism: Any, given: dict[str, Any]) -> tuple[Campaign, str | None]:
    """The campaign of this mechanism and title, and its key if it is new."""
    from tacit.privacy import artifact

    names = ("purpose", "question", "vote_epsilon", "vote_by_class", "minimum", "quota")
    asked = {name: given[name] for name in names}
    asked |= {name: _moment(name, given[name]) for name in ("opens", "closes")}
    asked["labelled"] = False if given["unlabelled"] else None
    said = {name: value for name, value in asked.items() if value is not None}
    mark = artifact.fingerprint(mechanism)
    for known in store.campaigns():
        if (known.fingerprint, known.title) == (mark, given["title"]):
            _must_be_the_same(known, said)
            return known, None
    usual = {"purpose": _DEFAULT_PURPOSE, "labelled": mechanism.classes is not None}
    return store.create(mechanism, title=given["title"], **(usual | said))


def _must_be_the_same(known: Campaign, said: dict[str, Any]) -> None:
    """People have been told what a campaign is: it stays so."""
    for name, value in said.items():
        if (before := getattr(known, name)) != value:
            remedy = "Another --title makes another campaign."
            errors.refuse("campaign", name, f"as it began, {before}", value, remedy)


def _moment(name: str, text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        errors.refuse("campaign", f"--{name}", "a time as in 2026-12-01T08:00Z", text)


def _print_campaign(found: Campaign, key: str | None, root: str, as_json: bool) -> None:
    values = {
        "campaign": found.id,
        "page": f"{root}/c/{found.id}",
        "owner_page": f"{root}/owner/{found.id}",
        "mechanism": found.fingerprint,
        "guarantee": str(found.certificate.guarantee),
        "key": key or "shown when the campaign was made",
    }
    if as_json:
        print_json(values)
    else:
        print(found.title)
        for name, value in values.items():  # not a table, which would cut what is to be copied
            print(f"  {name.replace('_', ' '):<12}{value}")
        if key is not None:
            print("Keep the key: it is stored nowhere, and not shown again.")
    sys.stdout.flush()  # a server that goes on may be read through a pipe


def _reachable(host: str) -> str:
    """What a browser on this machine can open."""
    if host in ("0.0.0.0", "::"):
        return "localhost"
    return f"[{host}]" if ":" in host else host


def _print_results(found: dict[str, Any]) -> None:
    level = f"{found['confidence']:.0%} interval"
    classes = [(str(one["class"]), *_share(one)) for one in found["classes"]]
    if classes:
        print_table(f"{found['reports']:,} reports", ("class", "share", level), classes)
    else:
        print(f"{found['reports']:,} reports")
    if found["accuracy"] is not None:
        accuracy = found["accuracy"]
        lines = [("all", f"{found['votes']:,}", *ends(accuracy))]
        lines += [
            (str(one["class"]), f"{one['voters']:,.0f}", *ends(one)) for one in accuracy["by_class"]
        ]
        print_table("Accuracy by votes", ("class", "votes", "accuracy", level), lines)
    elif found["votes"]:
        print(f"{found['votes']:,} of at least {found['minimum']:,} votes: no accuracy is shown")
    fakes = [
        (str(one["fakes"]), *map(_points, (one["lying"], one["class_share"], one["accuracy"])))
        for one in found["poisoning"]
    ]
    columns = ("fakes", "a share, by lying", "a class's, by forging", "accuracy, by forging")
    print_table("What fake participants could shift, at worst", columns, fakes)


def _share(one: dict[str, Any]) -> tuple[str, str]:
    low, high = one["interval"]
    return f"{one['share']:.4f}", f"{low:.4f} to {high:.4f}"


def _points(shift: float | None) -> str:
    return "–" if shift is None else f"± {shift:.4f}"
