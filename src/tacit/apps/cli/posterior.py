"""`tacit posterior`, `needed`: shares learned from noisy counts, and from how many records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import AsJson, print_json, print_table, print_values
from tacit.apps.cli.files import must_be_new
from tacit.apps.cli.votes import Account, Key, LedgerFile, opened_ledger
from tacit.privacy import errors, files
from tacit.privacy.decimals import above

Prior = Annotated[str, typer.Option(help="Of the shares, one number a value: 1,1 is uniform.")]
Mechanism = Annotated[str, typer.Option(help="geometric, laplace or hellinger.")]
Epsilon = Annotated[float, typer.Option(help="What the release may cost.")]
Delta = Annotated[float, typer.Option(help="Only hellinger makes use of it.")]
Sensitivity = Annotated[str, typer.Option(help="Of hellinger: smooth, local or global.")]
Calibration = Annotated[
    str, typer.Option(help="Of hellinger: instance, theorem, or paper (as stated there).")
]
Remap = Annotated[
    bool, typer.Option("--remap", help="Replace the draw by the counts of least expected error.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (posterior, needed):
        app.command()(command)


def posterior(
    epsilon: Epsilon,
    count: Annotated[
        str | None, typer.Option(help="Records that hold it …", metavar="INTEGER")
    ] = None,
    n: Annotated[int | None, typer.Option("--n", help="… of so many, which is public.")] = None,
    counts: Annotated[
        str | None, typer.Option(help="Or records that hold each of several values: 20,30,50.")
    ] = None,
    prior: Prior = "1,1",
    mechanism: Mechanism = "geometric",
    delta: Delta = 0.0,
    sensitivity: Sensitivity = "smooth",
    calibration: Calibration = "instance",
    naive: Annotated[
        bool, typer.Option("--naive", help="Take the noisy counts for true ones.")
    ] = False,
    remap: Remap = False,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    unit: Annotated[str, typer.Option(help="What a record is: record, person, …")] = "record",
    out: Annotated[Path | None, typer.Option(help="Write the posterior there, as JSON.")] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="Write a certificate there, of what --out has.")
    ] = None,
    ledger: LedgerFile = None,
    account: Account = None,
    key: Key = None,
    as_json: AsJson = False,
) -> None:
    """Release a private posterior of a share: mean and interval from a noisy count.

    Example: tacit posterior --count 37 --n 100 --prior 1,1 --epsilon 1 --json
    """
    from tacit.privacy.accounting.ledger import pay

    errors.probability("posterior", "level", level, zero=False)
    found = _counts(count, n, counts)
    for option, path in (("--out", out), ("--certificate", certificate)):
        if path is not None:
            must_be_new(path, option)
    prepared = _model(prior, len(found)).channel(
        sum(found),
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        sensitivity=sensitivity,
        calibration=calibration,
        unit=unit,
    )
    with opened_ledger(ledger, account) as opened:
        pay("posterior", opened, account, prepared.channel.mechanism.event, key=key)
        released = prepared.release(found, noise_aware=not naive, remap=remap)
    if out is not None:
        files.create(out, (json.dumps(released.to_dict(level)) + "\n").encode())
    if certificate is not None:
        released.certificate(out).save(certificate)
    _print(released, level, as_json)


def needed(
    error: Annotated[float, typer.Option(help="Hellinger error to stay within, in (0, 1).")],
    epsilon: Epsilon,
    prior: Prior = "1,1",
    share: Annotated[
        float | None, typer.Option(help="Of records that hold it; drawn from the prior if not set.")
    ] = None,
    mechanism: Mechanism = "geometric",
    delta: Delta = 0.0,
    sensitivity: Sensitivity = "smooth",
    calibration: Calibration = "theorem",
    remap: Remap = False,
    as_json: AsJson = False,
) -> None:
    """From how many records on is a private posterior close to the one without privacy?

    Example: tacit needed --error 0.1 --epsilon 1 --prior 1,1
    """
    from tacit.central.posteriors import accuracy

    found = accuracy.needed(
        _numbers("prior", prior),
        error=error,
        share=share,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        sensitivity=sensitivity,
        calibration=calibration,
        remap=remap,
    )
    print_values(found._asdict(), as_json, "Records that are needed")


def _counts(count: str | None, n: int | None, counts: str | None) -> list[int]:
    """As given; what is wrong with them is said without saying them."""
    where = "posterior"
    if (counts is None) == (count is None) or (count is None) != (n is None):
        given = "both" if counts is not None else "not all of it"
        errors.refuse(where, "data", "given as --count and --n, or as --counts", given)
    try:
        found = [int(count)] if count is not None else list(map(int, str(counts).split(",")))
    except ValueError:
        raise errors.InvalidData(f"{where}: counts must be whole numbers.") from None
    if n is not None:
        total = errors.whole(where, "n", n, least=1)
        found.append(total - found[0])
    if min(found) < 0:
        raise errors.InvalidData(f"{where}: counts must be at least 0 and at most n.")
    return found


def _model(prior: str, values: int) -> Any:
    from tacit.central.posteriors import BetaBinomial, DirichletMultinomial

    numbers = _numbers("prior", prior)
    if len(numbers) != values:
        errors.refuse("posterior", "prior", f"{values} numbers, one a value", prior)
    return BetaBinomial(prior=numbers) if values == 2 else DirichletMultinomial(prior=numbers)


def _numbers(name: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.split(","))
    except ValueError:
        errors.refuse("posterior", name, "numbers with commas between them", text)


def _print(released: Any, level: float, as_json: bool) -> None:
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
    print(f"{released.guarantee}; exactly {above(values['exact_epsilon'])} for this instance.")
    if not released.noise_aware:
        print("The posterior takes noise for data: its intervals are too short.")
