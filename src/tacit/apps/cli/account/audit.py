"""`tacit account audit`: try to refute a mechanism of the library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.apps.cli.console import REFUSED, print_values
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson
from tacit.privacy import errors


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "Audits", "tacit account audit discrete-laplace --epsilon 1")(audit)


def audit(
    mechanism: Annotated[
        str,
        typer.Argument(
            help="discrete-laplace, discrete-gaussian, geometric, randomized-response, "
            "subset-selection, projective-geometry-response, local-mean, local-vector, "
            "memoized-response, exponential, sparse-vector, laplace, gaussian, local-laplace, "
            "local-gaussian, permute-and-flip, integer-table, lattice-geometric or "
            "smooth-laplace."
        ),
    ],
    epsilon: Annotated[float, typer.Option(help="Claimed ε, above 0.")] = 1.0,
    delta: Annotated[
        float, typer.Option(help="Claimed δ of Gaussian noise and smooth-laplace; 0 means 1e-5.")
    ] = 0.0,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Number of draws on each of the two inputs.",
            show_default="200,000; 20,000 for smooth-laplace",
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Probability that a true claim is not refuted, at least.")
    ] = 0.99,
    as_json: AsJson = False,
) -> None:
    """Try to refute a mechanism: its ε by its exact law and its draws, its law by its draws.

    The exit code is 1 if it is refuted.
    """
    from tacit.audit import subjects

    if mechanism not in subjects.SUBJECTS and Path(mechanism).exists():
        remedy = "To attack a saved model, use tacit train audit."
        errors.refuse("audit", "mechanism", "the name of a mechanism", mechanism, remedy)
    report = subjects.audit(
        mechanism, epsilon=epsilon, delta=delta, samples=samples, confidence=confidence
    )
    print_values(report.to_dict(), as_json, f"{mechanism}: {report.words}")
    if report.refuted:
        raise typer.Exit(REFUSED)
