"""`tacit campaign invite`, `results`, `reports`, …: what a campaign's owner does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.campaign import desk, keys, learning, making
from tacit.apps.cli.campaign.participants import OwnerKey, Url, connected
from tacit.apps.cli.campaign.surveys import print_answers, write_certificates
from tacit.apps.cli.console import (
    accuracy_cells,
    print_json,
    print_table,
    print_text,
    print_values,
)
from tacit.apps.cli.files import must_be_new
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson, Confidence, Out
from tacit.privacy import errors, files


def register(app: typer.Typer) -> None:
    """Add the commands."""
    panel = "For the owner"
    url = "https://host/c/CAMPAIGN"
    making.register(app, panel)
    command(app, panel, f"tacit campaign invite {url} --count 100 --out links.txt")(invite)
    desk.register(app, panel, url)
    learning.register(app, panel, url)
    command(app, panel, f"tacit campaign results {url}")(results)
    command(app, panel, f"tacit campaign reports {url} --out reports.parquet")(reports)
    command(app, panel, f"tacit campaign close {url}")(close)
    keys.register(app, panel, url)


def invite(
    url: Url,
    count: Annotated[int, typer.Option(help="Number of invitations, one per person.")],
    out: Out,
    key: OwnerKey = None,
    as_json: AsJson = False,
) -> None:
    """Make invitations: a file with one link per person, each with its token after the #."""
    must_be_new(out)
    with connected(url, key=key) as client:
        links = [client.link(token) for token in client.invite(count)]
    # Anyone who can read this file can take part in place of the people invited.
    files.create(out, "".join(f"{link}\n" for link in links).encode(), files.OWN)
    print_values({"invitations": len(links), "written": str(out)}, as_json, "Invited")


def results(
    url: Url,
    key: OwnerKey = None,
    confidence: Confidence = 0.95,
    certificates: Annotated[
        Path | None,
        typer.Option(
            help="Folder to make, for the certificates of a closed survey's answers: local ε "
            "towards you, central (ε, δ) towards readers."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show shares and accuracy with intervals, and whether reports seem to be forged.

    Of a survey, show an answer about each question.
    """
    errors.probability("campaign results", "--confidence", confidence, zero=False)
    if certificates is not None:
        must_be_new(certificates)
    with connected(url, key=key) as client:
        summary = client.results(confidence)
    if certificates is not None:
        write_certificates(summary, certificates)
    if as_json:
        return print_json(summary)
    (print_answers if "answers" in summary else _print_results)(summary)


def reports(
    url: Url,
    out: Out,
    key: OwnerKey = None,
    number: Annotated[
        int | None, typer.Option("--round", help="Round of the reports, if there are several.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Download all reports as a file, for tacit collect learn and tacit account explain."""
    must_be_new(out)
    with connected(url, key=key) as client:
        client.download_reports(out, number)
    print_values({"written": str(out)}, as_json, "Downloaded")


def close(url: Url, key: OwnerKey = None, as_json: AsJson = False) -> None:
    """Close a campaign for good: it takes no further answers."""
    with connected(url, key=key) as client:
        described = client.close_campaign()
    values = {name: described.get(name) for name in ("state", "reports", "votes")}
    print_values(values, as_json, "Closed")


def _print_results(summary: dict[str, Any]) -> None:
    level = f"{summary['confidence']:.0%} interval"
    classes = [(str(one["class"]), *_share(one)) for one in summary["classes"]]
    if classes:
        print_table(f"{summary['reports']:,} reports", ("class", "share", level), classes)
    else:
        print(f"{summary['reports']:,} reports")
    if summary["accuracy"] is not None:
        accuracy = summary["accuracy"]
        lines = [("all", f"{summary['votes']:,}", *accuracy_cells(accuracy))]
        if accuracy["balanced_accuracy"] is not None:
            lines.append(("balanced", "", *accuracy_cells(accuracy["balanced_accuracy"])))
        lines += [
            (str(one["class"]), f"{one['voters']:,.0f}", *accuracy_cells(one))
            for one in accuracy["by_class"]
        ]
        lines += _baseline(summary)
        print_table("Accuracy by votes", ("class", "votes", "accuracy", level), lines)
    elif summary["votes"]:
        minimum = f"{summary['minimum']:,}"
        print(f"{summary['votes']:,} votes: the accuracy is shown from {minimum} votes on.")
    for note in summary["notes"]:
        print_text(note)
    fakes = [
        (str(one["fakes"]), *map(_points, (one["lying"], one["class_share"], one["accuracy"])))
        for one in summary["poisoning"]
    ]
    print_text(summary["forgery"]["words"])
    columns = ("fakes", "share, if they lie", "share, if they forge", "accuracy, if they forge")
    print_table("Largest shift that fake participants could cause", columns, fakes)


def _baseline(summary: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the line of what an accuracy has to beat: always answering the largest label."""
    from tacit.apps.service.exports import baseline

    most = baseline(summary)
    return [] if most is None else [(f"always {most['class']}", "", *_share(most))]


def _share(one: dict[str, Any]) -> tuple[str, str]:
    low, high = one["interval"]
    return f"{one['share']:.4f}", f"{low:.4f} to {high:.4f}"


def _points(shift: float | None) -> str:
    return "–" if shift is None else f"± {shift:.4f}"
