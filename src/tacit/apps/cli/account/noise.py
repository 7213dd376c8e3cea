"""`tacit account compose`, `calibrate`: from noise to ε, and from ε to noise."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tacit.apps.cli.console import print_json, print_table, print_values
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import AsJson
from tacit.privacy import errors
from tacit.privacy.decimals import above

Delta = Annotated[float, typer.Option(help="δ of the guarantee, in (0, 1).")]
Sampling = Annotated[
    float, typer.Option(help="Probability that a record is in the sample of a step.")
]
_ACCOUNTANTS = {
    "naive": "sum of (ε, δ), each step amplified by sampling",
    "advanced": "advanced composition of the same steps",
    "zcdp": "concentrated; no amplification",
    "rdp": "Rényi (moments accountant)",
    "pld": "privacy loss distribution: the one to use",
}


def register(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app,
        "Noise",
        "tacit account compose --noise-multiplier 1 --sampling-probability 0.01 --steps 1000 "
        "--delta 1e-5",
    )(compose)
    command(
        app,
        "Noise",
        "tacit account calibrate --epsilon 2 --delta 1e-5 --sampling-probability 0.01 --steps 1000",
    )(calibrate)


def compose(
    noise_multiplier: Annotated[
        float, typer.Option(help="Standard deviation of the noise over the ℓ2 sensitivity.")
    ],
    steps: Annotated[int, typer.Option(help="Number of noisy steps.")],
    delta: Delta,
    sampling_probability: Sampling = 1.0,
    as_json: AsJson = False,
) -> None:
    """Compute the ε that a subsampled Gaussian (DP-SGD) spends at δ, under each accountant."""
    from tacit.privacy.accounting.privacy_loss import compare

    comparison = compare(noise_multiplier, sampling_probability, steps, delta)
    for note in comparison.notes:
        print(note, file=sys.stderr)
    if as_json:
        return print_json(comparison.epsilons())
    rows = [
        (name, above(value), _ACCOUNTANTS[name]) for name, value in comparison.epsilons().items()
    ]
    print_table(f"ε at δ = {above(delta)}", ("accountant", "ε", ""), rows)


def calibrate(
    epsilon: Annotated[float, typer.Option(help="ε of the guarantee, above 0.")],
    delta: Delta,
    sampling_probability: Sampling = 1.0,
    steps: Annotated[
        int | None, typer.Option(help="Number of steps: finds the noise multiplier.")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise multiplier: finds the number of steps.")
    ] = None,
    accountant: Annotated[str, typer.Option(help="pld or rdp.")] = "pld",
    as_json: AsJson = False,
) -> None:
    """Find the noise that a target ε needs, or the number of steps that it allows."""
    from tacit.privacy.accounting import calibration

    if (steps is None) == (noise_multiplier is None):
        given = "neither" if steps is None else "both"
        errors.refuse("calibrate", "exactly one of --steps, --noise-multiplier", "given", given)
    if steps is not None:
        noise_multiplier = calibration.noise_multiplier_for(
            epsilon,
            delta,
            sampling_probability=sampling_probability,
            steps=steps,
            accountant=accountant,
        )
    else:
        assert noise_multiplier is not None
        steps = calibration.steps_for(
            epsilon,
            delta,
            noise_multiplier=noise_multiplier,
            sampling_probability=sampling_probability,
            accountant=accountant,
        )
    result = {"noise_multiplier": noise_multiplier, "steps": steps, "epsilon": epsilon}
    print_values(
        result | {"delta": delta, "accountant": accountant},
        as_json,
        f"For ε = {above(epsilon)} at δ = {above(delta)}",
    )
