"""`tacit release posterior`, `needed`: shares from noisy counts, and the records they need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import print_json, print_table, print_values
from tacit.apps.cli.files import must_be_new_outputs, opened_ledger, write_released
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import Account, AsJson, CertificateFile, Key, LedgerFile
from tacit.privacy import errors
from tacit.privacy.decimals import above

Prior = Annotated[str, typer.Option(help="Parameters of the prior, one per value: 1,1 is uniform.")]
Mechanism = Annotated[str, typer.Option(help="geometric, laplace or hellinger.")]
Epsilon = Annotated[float, typer.Option(help="ε of the release.")]
Delta = Annotated[float, typer.Option(help="δ of the release (hellinger).")]
Sensitivity = Annotated[str, typer.Option(help="smooth, local or global (hellinger).")]
Calibration = Annotated[
    str, typer.Option(help="instance, theorem, or paper, as published (hellinger).")
]
Remap = Annotated[
    bool, typer.Option("--remap", help="Replace the draw by the counts of least expected error.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    panel = "Posteriors"
    command(
        app, panel, "tacit release posterior --count 37 --n 100 --prior 1,1 --epsilon 1 --json"
    )(posterior)
    command(app, panel, "tacit release needed --error 0.1 --epsilon 1 --prior 1,1")(needed)


def posterior(
    epsilon: Epsilon,
    count: Annotated[
        str | None, typer.Option(help="Number of records that have the value.", metavar="INTEGER")
    ] = None,
    n: Annotated[
        int | None, typer.Option("--n", help="Number of records, which is public.")
    ] = None,
    counts: Annotated[
        str | None, typer.Option(help="Records with each of several values: 20,30,50.")
    ] = None,
    prior: Prior = "1,1",
    mechanism: Mechanism = "geometric",
    delta: Delta = 0.0,
    sensitivity: Sensitivity = "smooth",
    calibration: Calibration = "instance",
    naive: Annotated[
        bool, typer.Option("--naive", help="Treat the noisy counts as exact ones.")
    ] = False,
    remap: Remap = False,
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    unit: Annotated[str, typer.Option(help="Unit: record, person, …")] = "record",
    out: Annotated[Path | None, typer.Option(help="File for the posterior, as JSON.")] = None,
    certificate: CertificateFile = None,
    ledger: LedgerFile = None,
    account: Account = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Release a private posterior of a share: mean and interval from a noisy count."""
    from tacit.privacy.accounting.ledger import pay

    errors.probability("posterior", "--level", level, zero=False)
    totals = _counts(count, n, counts)
    must_be_new_outputs(out, certificate)
    prepared = _model(prior, len(totals)).channel(
        sum(totals),
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        sensitivity=sensitivity,
        calibration=calibration,
        unit=unit,
    )
    with opened_ledger(ledger, account) as opened:
        pay("posterior", opened, account, prepared.channel.mechanism.event, key=key)
        released = prepared.release(totals, noise_aware=not naive, remap=remap)
    write_released(released.to_dict(level), out, certificate, released.certificate)
    _print(released, level, as_json)


def needed(
    error: Annotated[float, typer.Option(help="Hellinger error to stay within, in (0, 1).")],
    epsilon: Epsilon,
    prior: Prior = "1,1",
    share: Annotated[
        float | None,
        typer.Option(
            help="Share of records that have the value.", show_default="averaged over the prior"
        ),
    ] = None,
    mechanism: Mechanism = "geometric",
    delta: Delta = 0.0,
    sensitivity: Sensitivity = "smooth",
    calibration: Calibration = "theorem",
    remap: Remap = False,
    as_json: AsJson = False,
) -> None:
    """Find the number of records at which a private posterior is close to the exact one."""
    from tacit.central.posteriors import accuracy

    result = accuracy.needed(
        _numbers("--prior", prior),
        error=error,
        share=share,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        sensitivity=sensitivity,
        calibration=calibration,
        remap=remap,
    )
    print_values(result._asdict(), as_json, "Records needed")


def _counts(count: str | None, n: int | None, counts: str | None) -> list[int]:
    """Read the counts; errors do not quote them."""
    where = "posterior"
    if (counts is None) == (count is None) or (count is None) != (n is None):
        given = "both" if counts is not None else "only a part"
        errors.refuse(where, "data", "given as --count and --n, or as --counts", given)
    try:
        totals = [int(count)] if count is not None else list(map(int, str(counts).split(",")))
    except ValueError:
        raise errors.InvalidData(f"{where}: counts must be whole numbers.") from None
    if n is not None:
        total = errors.whole(where, "--n", n, least=1)
        totals.append(total - totals[0])
    if min(totals) < 0:
        raise errors.InvalidData(f"{where}: counts must be at least 0 and at most n.")
    return totals


def _model(prior: str, values: int) -> Any:
    from tacit.central.posteriors import BetaBinomial, DirichletMultinomial

    numbers = _numbers("--prior", prior)
    if len(numbers) != values:
        errors.refuse("posterior", "--prior", f"{values} numbers, one per value", prior)
    return BetaBinomial(prior=numbers) if values == 2 else DirichletMultinomial(prior=numbers)


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        errors.refuse("posterior", name, "numbers separated by commas", text)


def _print(released: Any, level: float, as_json: bool) -> None:
    from tacit.central.posteriors.released import NAIVE

    values = released.to_dict(level)
    if as_json:
        return print_json(values)
    single = released.one_share
    means = [values["mean"]] if single else values["mean"]
    ends = [values["interval"]] if single else values["interval"]
    lines = [
        (f"{value + 1}", f"{mean:.4f}", f"{low:.4f} to {high:.4f}")
        for value, (mean, (low, high)) in enumerate(zip(means, ends, strict=True))
    ]
    print_table("Posterior", ("value", "mean", f"{level:.0%} interval"), lines)
    exact = above(values["exact_epsilon"])
    print(f"{released.guarantee}; the exact epsilon of this instance is {exact}.")
    if not released.noise_aware:
        print(NAIVE)
