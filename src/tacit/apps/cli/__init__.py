"""The command line: thin commands that check, call and print."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, NoReturn

import click
import typer

from tacit.apps.cli import (
    anonymize,
    audit_model,
    collect,
    demo,
    federate,
    ledger,
    posterior,
    query,
    search,
    service,
    take_part,
    votes,
)
from tacit.apps.cli.console import (
    AsJson,
    must_exist,
    print_json,
    print_table,
    print_text,
    print_values,
)
from tacit.privacy import errors, lazy
from tacit.privacy.decimals import above

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
app.add_typer(ledger.app, name="ledger")
app.add_typer(federate.app, name="federate")
demo.register(app)
collect.register(app)
votes.register(app)
search.register(app)
posterior.register(app)
query.register(app)
anonymize.register(app)
audit_model.register(app)
service.register(app)
take_part.register(app)
for _commands in sorted(entry_points(group="tacit.commands")):  # such as `study`, by tacit-papers
    app.add_typer(_commands.load(), name=_commands.name)

Epsilon = Annotated[float, typer.Option(help="Privacy parameter, above 0.")]
Delta = Annotated[float, typer.Option(help="Probability of failure, in (0, 1).")]
Sampling = Annotated[
    float, typer.Option(help="Probability with which each record is in a step's sample.")
]
CertificateFile = Annotated[Path, typer.Argument(help="A certificate.", metavar="FILE")]
Verified = Annotated[
    Path,
    typer.Argument(help="A certificate, reports, or a directory that holds one.", metavar="PATH"),
]


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
    except ModuleNotFoundError as error:
        return _fail(lazy.hint("this command", error), BAD_INPUT)
    except ImportError as error:
        return _fail(str(error), BAD_INPUT)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _fail(message, BAD_INPUT)
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
    from tacit.privacy.accounting.privacy_loss import compare

    comparison = compare(noise_multiplier, sampling_probability, steps, delta)
    for note in comparison.notes:
        print(note, file=sys.stderr)
    if as_json:
        return print_json(comparison.epsilons())
    says = {
        "naive": "sum of (ε, δ), each step amplified by sampling",
        "advanced": "advanced composition of the same steps",
        "zcdp": "concentrated; no amplification",
        "rdp": "Rényi (moments accountant)",
        "pld": "privacy loss distribution: the one to use",
    }
    rows = [(name, above(value), says[name]) for name, value in comparison.epsilons().items()]
    print_table(f"ε at δ = {above(delta)}", ("accountant", "ε", ""), rows)


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
    found = {"noise_multiplier": noise_multiplier, "steps": steps, "epsilon": epsilon}
    print_values(
        found | {"delta": delta, "accountant": accountant},
        as_json,
        f"For ε = {above(epsilon)} at δ = {above(delta)}",
    )


@app.command()
def audit(
    mechanism: Annotated[
        str,
        typer.Argument(
            help="discrete-laplace, discrete-gaussian, geometric, randomized-response, "
            "subset-selection, exponential, sparse-vector, laplace, gaussian, local-laplace, "
            "local-gaussian, permute-and-flip, integer-table, lattice-geometric or smooth-laplace."
        ),
    ],
    epsilon: Epsilon = 1.0,
    delta: Annotated[
        float, typer.Option(help="Of Gaussian noise and smooth-laplace; 0 means 1e-5.")
    ] = 0.0,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Draws of each of two inputs: 200,000 where not said, 20,000 of smooth-laplace, "
            "which is drawn one at a time."
        ),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="That nothing is refuted which is true.")
    ] = 0.99,
    as_json: AsJson = False,
) -> None:
    """Try to refute a mechanism: its ε by its exact law and its draws, its law by its draws.

    Exit code 1 if it is refuted. Example: tacit audit discrete-laplace --epsilon 1
    """
    from tacit.audit import subjects

    report = subjects.audit(
        mechanism, epsilon=epsilon, delta=delta, samples=samples, confidence=confidence
    )
    print_values(report.to_dict(), as_json, f"{mechanism}: {report.words}")
    if report.refuted:
        raise typer.Exit(REFUSED)


@app.command()
def verify(
    certificate: Verified,
    artifact: Annotated[
        Path | None, typer.Option(help="The released file; by default the one beside FILE.")
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option(help="PEM file of the Ed25519 key that must have signed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Derive the guarantee from the events again; any mismatch or changed byte fails (exit 1).

    Of a mechanism or a model every byte is compared with what its directory says. Example:
    tacit verify demo-output/certificate.json
    """
    from tacit.privacy import events
    from tacit.privacy.certificate import Certificate, public_key_of

    must_exist(artifact, public_key)
    certificate = _of_folder(certificate)
    if certificate.is_dir():
        loaded = _stored(certificate, artifact)
    elif certificate.suffix == ".parquet":
        loaded = _of_reports(certificate)
    else:
        must_exist(certificate)
        loaded = Certificate.load(certificate)
    if artifact is None and loaded.artifact is not None:
        artifact = certificate.parent / Path(loaded.artifact.name).name
        if not artifact.exists() and (certificate.parent / "mechanism").is_dir():
            artifact = certificate.parent / "mechanism"  # as search writes them
        if not artifact.exists():
            raise errors.CertificateError(
                f"verify: {artifact} must exist beside the certificate. Say --artifact PATH."
            )
    key = public_key_of(public_key.read_bytes()) if public_key else None
    loaded.verify(_described(loaded, artifact), key)
    result = {
        "verified": True,
        "guarantee": str(loaded.guarantee),
        "artifact": artifact and str(artifact),
        "signed_by": loaded.signature and loaded.signature[0],
        "seeded": loaded.seeded,
    }
    declared = sum(isinstance(leaf, events.Declared) for leaf in events.leaves(loaded.event))
    if declared:  # nothing there can be derived again
        result["declared"] = declared
    print_values(result, as_json, f"{certificate.name}: verified")


def _of_reports(path: Path) -> Any:
    """The certificate of a file of reports, whose rows are those that it names."""
    from tacit.local.reports import Reports

    must_exist(path)
    try:
        return Reports.read(path).certificate
    except errors.InvalidData as error:
        raise errors.CertificateError(str(error)) from None


def _described(certificate: Any, path: Path | None) -> Any:
    """The released file, or what a saved mechanism or model comes to."""
    from tacit.privacy import artifact

    if path is None or not path.is_dir():
        return path
    try:
        return artifact.bound(certificate, artifact.load(path)).artifact
    except artifact.ArtifactError as error:
        raise errors.CertificateError(f"verify: {error}") from None


def _of_folder(path: Path) -> Path:
    """The certificate in a federation's folder; any other path as it is."""
    inside = path / "certificate.json"
    return inside if inside.is_file() and not any(path.glob("m*.json")) else path


def _stored(directory: Path, artifact: Path | None) -> Any:
    """The certificate of a mechanism or a model, every byte of which was checked."""
    from tacit.privacy.artifact import ArtifactError, load

    if artifact is not None:
        remedy = "A directory holds all that its certificate is about."
        errors.refuse("verify", "--artifact", "left out with a directory", str(artifact), remedy)
    try:
        return load(directory).certificate
    except ArtifactError as error:
        if not any(directory.glob("m*.json")):  # neither mechanism nor model: a wrong question
            raise
        raise errors.CertificateError(str(error)) from None


@app.command()
def explain(
    certificate: Annotated[
        Path,
        typer.Argument(help="A certificate, reports, a mechanism or a model.", metavar="PATH"),
    ],
    as_json: AsJson = False,
) -> None:
    """In plain words: who is protected from whom, how well, why, and what is not.

    Example: tacit explain demo-output/reports.parquet
    """
    from tacit.local.reports import Reports
    from tacit.privacy import artifact
    from tacit.privacy.certificate import Certificate

    inhouse, certificate = None, _of_folder(certificate)
    if certificate.is_dir():
        thing = artifact.load(certificate)
        # An estimator has no rows beside those that its certificate is about.
        loaded, inhouse = thing.certificate, getattr(thing, "inhouse_", None)
    elif certificate.suffix == ".parquet":
        reports = Reports.read(certificate)
        loaded, inhouse = reports.certificate, reports.mechanism.inhouse_
    else:
        must_exist(certificate)
        loaded = Certificate.load(certificate)
    text = loaded.explain()
    if inhouse is not None:
        for part in inhouse.parts:
            whose = f"{part.whose[0].lower()}{part.whose[1:]}"
            text = f"{text}\nTowards {whose}:\n\n{part.certificate.explain()}"
    if as_json:
        values = {"guarantee": str(loaded.guarantee), "explanation": text}
        values |= {} if inhouse is None else {"inhouse_guarantee": str(inhouse.guarantee)}
        return print_json(values)
    print_text(text)


@app.command()
def sign(
    certificate: CertificateFile,
    key: Annotated[Path, typer.Option(help="PEM file of an Ed25519 private key.")],
    as_json: AsJson = False,
) -> None:
    """Add an Ed25519 signature to a certificate, in place.

    Example: openssl genpkey -algorithm ed25519 -out key.pem; tacit sign c.json --key key.pem
    """
    from tacit.privacy.certificate import Certificate

    must_exist(certificate, key)
    signed = Certificate.load(certificate).sign(key.read_bytes())
    signed.save(certificate)
    assert signed.signature is not None
    print_values({"signed_by": signed.signature[0]}, as_json, f"{certificate.name}: signed")


def run() -> NoReturn:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    run()
