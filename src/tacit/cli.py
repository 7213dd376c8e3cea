"""The command line: thin commands that check, call and print."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import click
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tacit import errors

REFUSED, BAD_INPUT = 1, 2
"""Exit codes: the answer is no (refuted, refused, not verified); the question is wrong."""

app = typer.Typer(
    name="tacit",
    help="Learn from people's data without ever holding it raw, and say what is protected.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
ledger_app = typer.Typer(
    help="A budget that refuses: accounts, charges, refusals.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.add_typer(ledger_app, name="ledger")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Epsilon = Annotated[float, typer.Option(help="Privacy parameter, above 0.")]
Delta = Annotated[float, typer.Option(help="Probability of failure, in (0, 1).")]
Sampling = Annotated[
    float, typer.Option(help="Probability with which each record is in a step's sample.")
]
LedgerPath = Annotated[Path, typer.Argument(help="The ledger's file; `open` makes it.")]
AccountName = Annotated[str, typer.Argument(help="The account: a person or a data set.")]
BudgetEpsilon = Annotated[float | None, typer.Option(help="Budget: sum of ε.")]
BudgetDelta = Annotated[float, typer.Option(help="Budget: sum of δ.")]
BudgetRho = Annotated[float | None, typer.Option(help="Budget: sum of ρ (zCDP) instead.")]
BudgetOrder = Annotated[
    float | None, typer.Option(help="With --epsilon: a Rényi budget at this order instead.")
]
CertificateFile = Annotated[Path, typer.Argument(help="A certificate.", metavar="FILE")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; errors are one line on standard error."""
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="tacit")
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as help_text:
        print(help_text.format_message())
        return 0
    except click.ClickException as error:
        return _fail(error.format_message(), BAD_INPUT)
    except (errors.CertificateError, errors.BudgetExceeded) as error:
        return _fail(str(error), REFUSED)
    except errors.TacitError as error:
        return _fail(str(error), BAD_INPUT)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}", BAD_INPUT)
    except click.Abort:
        return _fail("stopped", 130)


def _fail(message: str, code: int) -> int:
    print("tacit: " + " ".join(message.split()), file=sys.stderr)
    return code


@app.command()
def account(
    noise_multiplier: Annotated[float, typer.Option(help="Deviation over ℓ2 sensitivity.")],
    steps: Annotated[int, typer.Option(help="Number of noisy steps.")],
    delta: Delta,
    sampling_probability: Sampling = 1.0,
    as_json: AsJson = False,
) -> None:
    """What ε does a subsampled Gaussian (DP-SGD) spend at δ, under each accountant?

    Example: tacit account --noise-multiplier 1 --sampling-probability 0.01 --steps 1000
    --delta 1e-5
    """
    from tacit.accounting.privacy_loss import compare

    comparison = compare(noise_multiplier, sampling_probability, steps, delta)
    for note in comparison.notes:
        print(note, file=sys.stderr)
    if as_json:
        return _print_json(comparison.epsilons())
    says = {
        "naive": "sum of (ε, δ), each step amplified by sampling",
        "advanced": "advanced composition of the same steps",
        "zcdp": "concentrated; no amplification",
        "rdp": "Rényi (moments accountant)",
        "pld": "privacy loss distribution: the one to use",
    }
    rows = [(name, f"{value:.6g}", says[name]) for name, value in comparison.epsilons().items()]
    _print_table(f"ε at δ = {delta:g}", ("accountant", "ε", ""), rows)


@app.command()
def calibrate(
    epsilon: Epsilon,
    delta: Delta,
    sampling_probability: Sampling = 1.0,
    steps: Annotated[int | None, typer.Option(help="Given steps: find the noise.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Given noise: find the number of steps.")
    ] = None,
    accountant: Annotated[str, typer.Option(help="pld or rdp.")] = "pld",
    as_json: AsJson = False,
) -> None:
    """The noise for a target ε, or the number of steps that a target ε allows.

    Example: tacit calibrate --epsilon 2 --delta 1e-5 --sampling-probability 0.01 --steps 1000
    """
    from tacit.accounting import calibration

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
    found = {"noise_multiplier": noise_multiplier, "steps": steps, "epsilon": epsilon}
    _print(
        found | {"delta": delta, "accountant": accountant},
        as_json,
        f"For ε = {epsilon:g} at δ = {delta:g}",
    )


@app.command()
def audit(
    mechanism: Annotated[
        str,
        typer.Argument(
            help="discrete-laplace, discrete-gaussian, geometric, randomized-response, "
            "subset-selection, exponential or sparse-vector."
        ),
    ],
    epsilon: Epsilon = 1.0,
    delta: Annotated[float, typer.Option(help="Of discrete-gaussian; 0 means 1e-5.")] = 0.0,
    samples: Annotated[int, typer.Option(help="Draws of each of two inputs.")] = 200_000,
    confidence: Annotated[float, typer.Option(help="Of the lower bound.")] = 0.99,
    as_json: AsJson = False,
) -> None:
    """Try to refute a mechanism's claim, from its exact law and from its draws.

    Exit code 1 if it is refuted. Example: tacit audit discrete-laplace --epsilon 1
    """
    from tacit.audit import subjects

    report = subjects.audit(
        mechanism, epsilon=epsilon, delta=delta, samples=samples, confidence=confidence
    )
    verdict = "REFUTED" if report.refuted else "not refuted"
    _print(report.to_dict(), as_json, f"{mechanism}: {verdict}")
    if report.refuted:
        raise typer.Exit(REFUSED)


@app.command()
def verify(
    certificate: CertificateFile,
    artifact: Annotated[
        Path | None, typer.Option(help="The released file; by default the one beside FILE.")
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option(help="PEM file of the Ed25519 key that must have signed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Derive the guarantee from the events again; any mismatch or changed byte fails (exit 1).

    Example: tacit verify demo-output/curator.certificate.json
    """
    from tacit.certificate import Certificate, public_key_of

    _must_exist(certificate, artifact, public_key)
    loaded = Certificate.load(certificate)
    if artifact is None and loaded.artifact is not None:
        artifact = certificate.parent / Path(loaded.artifact.name).name
        if not artifact.exists():
            raise errors.CertificateError(
                f"verify: {artifact} must exist beside the certificate. Say --artifact PATH."
            )
    key = public_key_of(public_key.read_bytes()) if public_key else None
    loaded.verify(artifact, key)
    result = {
        "verified": True,
        "guarantee": str(loaded.guarantee),
        "artifact": artifact and str(artifact),
        "signed_by": loaded.signature and loaded.signature[0],
        "seeded": loaded.seeded,
    }
    _print(result, as_json, f"{certificate.name}: verified")


@app.command()
def explain(certificate: CertificateFile, as_json: AsJson = False) -> None:
    """In plain words: who is protected from whom, how well, why, and what is not.

    Example: tacit explain demo-output/curator.certificate.json
    """
    from tacit.certificate import Certificate

    _must_exist(certificate)
    loaded = Certificate.load(certificate)
    text = loaded.explain()
    if as_json:
        return _print_json({"guarantee": str(loaded.guarantee), "explanation": text})
    print(text)


@app.command()
def sign(
    certificate: CertificateFile,
    key: Annotated[Path, typer.Option(help="PEM file of an Ed25519 private key.")],
    as_json: AsJson = False,
) -> None:
    """Add an Ed25519 signature to a certificate, in place.

    Example: openssl genpkey -algorithm ed25519 -out key.pem; tacit sign c.json --key key.pem
    """
    from tacit.certificate import Certificate

    _must_exist(certificate, key)
    signed = Certificate.load(certificate).sign(key.read_bytes())
    signed.save(certificate)
    assert signed.signature is not None
    _print({"signed_by": signed.signature[0]}, as_json, f"{certificate.name}: signed")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for what is released.")] = Path("demo-output"),
    epsilon: Epsilon = 2.0,
    as_json: AsJson = False,
) -> None:
    """A survey answered to a trusted curator and to nobody, certified, on embedded data.

    Example: tacit demo --epsilon 2
    """
    from tacit import demo as demonstration

    outcome = demonstration.run(out, epsilon)
    if as_json:
        return _print_json(outcome.to_dict())
    rows = [
        (str(digit), str(true), str(noisy), f"{count:.0f} ± {2 * deviation:.0f}")
        for digit, (true, noisy, count, deviation) in enumerate(
            zip(
                outcome.true,
                outcome.curator,
                outcome.local,
                outcome.local_deviation,
                strict=True,
            )
        )
    ]
    _print_table(
        "Which digit did 1,797 people write? (± two standard deviations)",
        ("digit", "true, kept secret", "by a trusted curator", "without any trust"),
        rows,
    )
    for name, certificate in outcome.certificates.items():
        print(f"{name}: {certificate.guarantee}")
    print(f"\nReleased files, certificates and the ledger are in {out}. In plain words:\n")
    print(outcome.certificates["local"].explain())


@ledger_app.command("open")
def ledger_open(
    path: LedgerPath,
    name: AccountName,
    adjacency: Annotated[str, typer.Option(help="replace-one, add-remove or any-two-inputs.")],
    unit: Annotated[str, typer.Option(help="record, label, person or client.")] = "record",
    epsilon: BudgetEpsilon = None,
    delta: BudgetDelta = 0.0,
    rho: BudgetRho = None,
    order: BudgetOrder = None,
    as_json: AsJson = False,
) -> None:
    """Open an account with a budget.

    Example: tacit ledger open budget.sqlite patients --epsilon 1 --adjacency replace-one
    --unit person
    """
    from tacit.accounting.ledger import Ledger, line_of_text

    budget = _budget(epsilon, delta, rho, order, {"adjacency": adjacency, "unit": unit})
    line_of_text("ledger open", "account", name)  # before the file is made
    with Ledger(path) as ledger:
        ledger.open(name, budget)
    _print({"account": name, "budget": str(budget)}, as_json, "Opened")


@ledger_app.command("charge")
def ledger_charge(
    path: LedgerPath,
    name: AccountName,
    epsilon: Annotated[float | None, typer.Option(help="Charge this ε (and δ) …")] = None,
    delta: Annotated[float, typer.Option(help="δ of the charge, or at which it is stated.")] = 0.0,
    certificate: Annotated[
        Path | None, typer.Option(help="… or the events of this certificate.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The same key is charged only once.")] = None,
    as_json: AsJson = False,
) -> None:
    """Charge an account; exit code 1 and nothing charged if that would overdraw it.

    Example: tacit ledger charge budget.sqlite patients --epsilon 0.5 --key query-17
    """
    from tacit import events
    from tacit.accounting.ledger import Ledger
    from tacit.certificate import Certificate

    _must_exist(path, certificate)
    with Ledger(path) as ledger:
        scope = ledger.show(name).budget.scope
        if (epsilon is None) == (certificate is None):
            given = "neither" if epsilon is None else "both"
            errors.refuse("charge", "exactly one of --epsilon, --certificate", "given", given)
        event: events.Event
        if certificate is not None:
            event = Certificate.load(certificate).event
        else:
            event = events.Declared(_budget(epsilon, delta, None, None, scope))
        receipt = ledger.charge(name, event, key=key, delta=delta or None)
        left = ledger.show(name)
    result = {"account": name, "key": receipt.key, "repeated": receipt.repeated}
    _print(result | {"spent": str(left.spent)}, as_json, "Charged")


@ledger_app.command("raise")
def ledger_raise(
    path: LedgerPath,
    name: AccountName,
    reason: Annotated[str, typer.Option(help="Why; kept on record.")],
    epsilon: BudgetEpsilon = None,
    delta: BudgetDelta = 0.0,
    rho: BudgetRho = None,
    order: BudgetOrder = None,
    as_json: AsJson = False,
) -> None:
    """Set a larger budget: the only way to refill an account, and always on record.

    Example: tacit ledger raise budget.sqlite patients --epsilon 2 --reason "board, 12 May"
    """
    from tacit.accounting.ledger import Ledger

    _must_exist(path)
    with Ledger(path) as ledger:
        budget = _budget(epsilon, delta, rho, order, ledger.show(name).budget.scope)
        ledger.raise_budget(name, budget, reason)
    _print({"account": name, "budget": str(budget), "reason": reason}, as_json, "Raised")


@ledger_app.command("show")
def ledger_show(
    path: LedgerPath,
    name: Annotated[str | None, typer.Argument(help="The account; all if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what was charged and what is left.

    Example: tacit ledger show budget.sqlite patients
    """
    from tacit.accounting.ledger import Ledger

    _must_exist(path)
    with Ledger(path) as ledger:
        accounts = [ledger.show(one) for one in ([name] if name else ledger.accounts())]
    summary = [
        {
            "account": one.name,
            "budget": str(one.budget),
            "spent": str(one.spent),
            "charges": len(one.charges),
        }
        for one in accounts
    ]
    if as_json:
        return _print_json({"accounts": summary})
    rows = [tuple(str(value) for value in row.values()) for row in summary]
    _print_table("Ledger", ("account", "budget", "spent", "charges"), rows)


def _budget(
    epsilon: float | None,
    delta: float,
    rho: float | None,
    order: float | None,
    scope: dict[str, Any],
) -> Any:
    from tacit.guarantees import ZCDP, ApproxDP, PureDP, RenyiDP

    if (epsilon is None) == (rho is None):
        errors.refuse("budget", "exactly one of --epsilon, --rho", "given", (epsilon, rho))
    if delta and (rho is not None or order is not None):
        errors.refuse("budget", "--delta", "left out of a ρ or Rényi budget", delta)
    if rho is not None:
        if order is not None:
            errors.refuse("budget", "--order", "left out of a ρ budget", order)
        return ZCDP(0.0, rho, **scope)
    assert epsilon is not None
    if order is not None:
        return RenyiDP((order,), (epsilon,), **scope)
    return ApproxDP(epsilon, delta, **scope) if delta else PureDP(epsilon, **scope)


def _must_exist(*paths: Path | None) -> None:
    for path in paths:
        if path is not None and not path.is_file():
            errors.refuse("command line", "path", "an existing file", str(path), "Check the path.")


def _print(values: dict[str, Any], as_json: bool, title: str) -> None:
    if as_json:
        return _print_json(values)
    rows = [(name.replace("_", " "), _cell(value)) for name, value in values.items()]
    _print_table(title, ("", ""), rows)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)


def _print_json(values: dict[str, Any]) -> None:
    finite = {
        name: str(value) if isinstance(value, float) and math.isinf(value) else value
        for name, value in values.items()
    }
    print(json.dumps(finite, ensure_ascii=False, allow_nan=False))


def _print_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    table = Table(title=Text(title), title_justify="left", show_header=any(columns))
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(Text, row))  # not markup: names and paths may hold brackets
    Console().print(table)


def run() -> NoReturn:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    run()
