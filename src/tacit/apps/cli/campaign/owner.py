"""`tacit campaign serve`, `create`, `invite`, …: what a campaign's owner does."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.apps.cli.campaign.participants import OwnerKey, Url, connected
from tacit.apps.cli.console import (
    accuracy_cells,
    must_exist,
    print_json,
    print_table,
    print_values,
)
from tacit.apps.cli.files import must_be_new, must_have
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Confidence, Out
from tacit.privacy import errors, files

if TYPE_CHECKING:
    from tacit.apps.service.campaign import Campaign
    from tacit.apps.service.store import Store

Artifact = Annotated[
    Path, typer.Argument(help="Directory that fit or export wrote.", metavar="ARTIFACT")
]
Database = Annotated[
    str, typer.Option("--db", help="Database: sqlite:///FILE or postgresql://user@host/name.")
]
SecretFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the key of all hashes; made if it does not exist.",
        show_default="beside an SQLite file",
    ),
]
Title = Annotated[str, typer.Option(help="Title of the campaign, which people read first.")]
Purpose = Annotated[str | None, typer.Option(help="Who asks, and for which purpose.")]
Question = Annotated[
    str | None, typer.Option(help="Question that the label answers: 'Do you smoke?'")
]
Unlabelled = Annotated[
    bool | None,
    typer.Option("--unlabelled", help="Ask for no label, although the mechanism has classes."),
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
        help="Smallest number of reports, and of votes, with results.", show_default="100"
    ),
]
Quota = Annotated[
    int | None, typer.Option(help="Largest number of reports.", show_default="no limit")
]

_DEFAULT_PURPOSE = "The owner has not stated a purpose."


def register(app: typer.Typer) -> None:
    """Add the commands."""
    panel = "For the owner"
    url = "https://host/c/CAMPAIGN"
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
    command(app, panel, f"tacit campaign invite {url} --count 100 --out links.txt")(invite)
    command(app, panel, f"tacit campaign learn {url}")(learn)
    command(app, panel, f"tacit campaign results {url}")(results)
    command(app, panel, f"tacit campaign reports {url} --out reports.parquet")(reports)
    command(app, panel, f"tacit campaign close {url}")(close)


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
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM certificate, with --tls-key.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM key, with --tls-cert.")] = None,
    trusted_proxies: Annotated[
        str | None,
        typer.Option(help="Proxies whose word on the client's address counts: 127.0.0.1."),
    ] = None,
    cors: Annotated[
        str | None, typer.Option(help="One other origin whose pages may send requests.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Requests per second of one address.")] = 50.0,
    as_json: AsJson = False,
) -> None:
    """Serve a campaign, its page and its HTTP interface, until Ctrl-C.

    A campaign of this mechanism and title that is already in the database is continued.
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
            "serve: without --tls-cert anyone on the network path can read what is sent. Use a "
            "proxy with TLS."
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
    """Write a campaign into a database, for a server to find; print the owner's key once."""
    mechanism, given = _mechanism(artifact), locals()
    with _opened(db, secret) as store:
        found, key = _campaign(store, mechanism, given)
        if key is None:
            remedy = "Its key was shown when it was made."
            errors.refuse("campaign create", "--title", "new for this mechanism", title, remedy)
        _print_campaign(found, key, "", as_json)


def invite(
    url: Url,
    count: Annotated[int, typer.Option(help="Number of invitations, one per person.")],
    out: Out,
    key: OwnerKey = None,
    as_json: AsJson = False,
) -> None:
    """Make invitations: one link per person, with the token after the #."""
    must_be_new(out)
    with connected(url, key=key) as client:
        links = [client.link(token) for token in client.invite(count)]
    # Anyone who can read this file can take part in place of the people invited.
    files.create(out, "".join(f"{link}\n" for link in links).encode(), files.OWN)
    print_values({"invitations": len(links), "written": str(out)}, as_json, "Invited")


def learn(url: Url, key: OwnerKey = None, as_json: AsJson = False) -> None:
    """Learn a model from the reports so far, and publish it for people to vote on."""
    with connected(url, key=key) as client:
        print_values(client.learn(), as_json, "Learned and published")


def results(
    url: Url,
    key: OwnerKey = None,
    confidence: Confidence = 0.95,
    as_json: AsJson = False,
) -> None:
    """Show shares and accuracy with intervals, and how far fake participants could shift them."""
    errors.probability("campaign results", "--confidence", confidence, zero=False)
    with connected(url, key=key) as client:
        found = client.results(confidence)
    if as_json:
        return print_json(found)
    _print_results(found)


def reports(url: Url, out: Out, key: OwnerKey = None, as_json: AsJson = False) -> None:
    """Fetch all reports as a file, for tacit collect learn and tacit account explain."""
    must_be_new(out)
    with connected(url, key=key) as client:
        client.download_reports(out)
    print_values({"written": str(out)}, as_json, "Fetched")


def close(url: Url, key: OwnerKey = None, as_json: AsJson = False) -> None:
    """Close a campaign for good: it takes no further answers."""
    with connected(url, key=key) as client:
        found = client.close_campaign()
    values = {name: found.get(name) for name in ("state", "reports", "votes")}
    print_values(values, as_json, "Closed")


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
    """Load the mechanism, and check that it may leave, before a database is made for it."""
    from tacit.privacy import artifact

    return must_have(artifact.load(directory), "release", directory).shared("collection")


def _campaign(store: Store, mechanism: Any, given: dict[str, Any]) -> tuple[Campaign, str | None]:
    """Find or make the campaign of this mechanism and title; return its key if it is new."""
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
    """Refuse to change a campaign: people have been told what it is."""
    for name, value in said.items():
        if (before := getattr(known, name)) != value:
            remedy = "Another --title makes another campaign."
            option = "unlabelled" if name == "labelled" else name.replace("_", "-")
            errors.refuse("campaign", f"--{option}", f"as it began, {before}", value, remedy)


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
        for name, value in values.items():  # not a table, which would break what is to be copied
            print(f"  {name.replace('_', ' '):<12}{value}")
        if key is not None:
            print("Keep the key: it is not stored, and not shown again.")
    sys.stdout.flush()  # a program may read this through a pipe while the server runs


def _reachable(host: str) -> str:
    """Return an address that a browser on this machine can open."""
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
        lines = [("all", f"{found['votes']:,}", *accuracy_cells(accuracy))]
        lines += [
            (str(one["class"]), f"{one['voters']:,.0f}", *accuracy_cells(one))
            for one in accuracy["by_class"]
        ]
        print_table("Accuracy by votes", ("class", "votes", "accuracy", level), lines)
    elif found["votes"]:
        print(f"{found['votes']:,} of at least {found['minimum']:,} votes: no accuracy is shown")
    fakes = [
        (str(one["fakes"]), *map(_points, (one["lying"], one["class_share"], one["accuracy"])))
        for one in found["poisoning"]
    ]
    columns = ("fakes", "a share, by lying", "a share, by forging", "accuracy, by forging")
    print_table("Largest shift that fake participants could cause", columns, fakes)


def _share(one: dict[str, Any]) -> tuple[str, str]:
    low, high = one["interval"]
    return f"{one['share']:.4f}", f"{low:.4f} to {high:.4f}"


def _points(shift: float | None) -> str:
    return "–" if shift is None else f"± {shift:.4f}"
