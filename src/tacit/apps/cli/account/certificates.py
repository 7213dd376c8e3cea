"""`tacit account verify`, `explain`, `sign`: certificates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.apps.cli.console import must_exist, print_json, print_text, print_values
from tacit.apps.cli.groups import command
from tacit.apps.cli.options import SETTINGS, AsJson
from tacit.privacy import errors

_SQLITE = b"SQLite format 3\x00"
CertificateFile = Annotated[Path, typer.Argument(help="A certificate.", metavar="FILE")]
Verified = Annotated[
    Path,
    typer.Argument(
        help="A certificate, a file of reports, or a directory that holds one.", metavar="PATH"
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    panel = "Certificates"
    command(app, panel, "tacit account verify demo-output/certificate.json")(verify)
    command(app, panel, "tacit account explain demo-output/reports.parquet")(explain)
    command(app, panel, "tacit account sign certificate.json --key key.pem")(sign)


def verify(
    certificate: Verified,
    artifact: Annotated[
        Path | None,
        typer.Option(help="Released file.", show_default="the one beside the certificate"),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option(help="PEM file of the Ed25519 public key to check with."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Derive the guarantee from the events again, and compare every byte of what was released.

    The exit code is 1 if anything differs. For a directory, such as a mechanism or a model, every
    file in it is compared with the hashes that it states.
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
        _must_not_be_ledger("verify", certificate)
        loaded = Certificate.load(certificate)
    if artifact is None and loaded.artifact is not None:
        artifact = _beside(certificate, loaded.artifact.name)
    key = public_key_of(public_key.read_bytes()) if public_key else None
    loaded.verify(_described(loaded, artifact), key)
    result = {
        "verified": True,
        "guarantee": str(loaded.guarantee),
        **({} if loaded.readers is None else {"readers": str(loaded.readers)}),
        "artifact": artifact and str(artifact),
        "signed_by": loaded.signature and loaded.signature[0],
        "seeded": loaded.seeded,
    }
    declared = sum(isinstance(leaf, events.Declared) for leaf in events.leaves(loaded.event))
    if declared:  # nothing there can be derived again
        result["declared"] = declared
    print_values(result, as_json, f"{certificate.name}: verified")


def _beside(certificate: Path, name: str) -> Path:
    """Find the artifact that a certificate names, in the certificate's own folder."""
    path = certificate.parent / Path(name).name
    if not path.exists() and (certificate.parent / "mechanism").is_dir():
        path = certificate.parent / "mechanism"  # where search writes it
    if not path.exists():
        raise errors.CertificateError(
            f"verify: {path} must exist beside the certificate. Give --artifact PATH."
        )
    return path


def _of_reports(path: Path) -> Any:
    """Read the certificate of a file of reports, and check the rows that it names."""
    from tacit.local.reports import Reports

    must_exist(path)
    try:
        return Reports.read(path).certificate
    except errors.InvalidData as error:
        raise errors.CertificateError(str(error)) from None


def _described(certificate: Any, path: Path | None) -> Any:
    """Describe what was released: a file by its path, a directory by its content."""
    from tacit.privacy import artifact

    if path is None or not path.is_dir():
        return path
    try:
        return artifact.bound(certificate, artifact.load(path)).artifact
    except artifact.ArtifactError as error:
        raise errors.CertificateError(f"verify: {error}") from None


def _of_folder(path: Path) -> Path:
    """Find the certificate in a federation's folder; return any other path as it is."""
    inside = path / "certificate.json"
    return inside if inside.is_file() and not any(path.glob("m*.json")) else path


def _stored(directory: Path, artifact: Path | None) -> Any:
    """Load the certificate of a mechanism or a model, and check every byte of the directory."""
    from tacit.privacy.artifact import ArtifactError, load

    if artifact is not None:
        remedy = "A directory holds everything that its certificate names."
        errors.refuse("verify", "--artifact", "left out with a directory", str(artifact), remedy)
    try:
        return load(directory).certificate
    except ArtifactError as error:
        if not any(directory.glob("m*.json")):  # neither a mechanism nor a model: bad input
            raise
        raise errors.CertificateError(str(error)) from None


def explain(
    certificate: Annotated[
        Path,
        typer.Argument(
            help="A certificate, a file of reports, or a directory that holds one.", metavar="PATH"
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Explain a certificate in plain words: who is protected from whom, how well, and why."""
    loaded, inhouse = _with_inhouse(_of_folder(certificate))
    text = loaded.explain()
    if inhouse is not None:
        for part in inhouse.shown:
            whose = f"{part.whose[0].lower()}{part.whose[1:]}"
            text = f"{text}\nTowards {whose}:\n\n{part.certificate.explain()}"
    if as_json:
        values = {"guarantee": str(loaded.guarantee), "explanation": text}
        values |= {} if inhouse is None else {"inhouse_guarantee": str(inhouse.guarantee)}
        return print_json(values)
    print_text(text)


def _with_inhouse(path: Path) -> tuple[Any, Any]:
    """Load a certificate, and the protection of in-house rows where there are any."""
    from tacit.local.reports import Reports
    from tacit.privacy import artifact
    from tacit.privacy.certificate import Certificate

    if path.is_dir():
        thing = artifact.load(path)
        # An estimator has no rows other than those that its certificate is about.
        return thing.certificate, getattr(thing, "inhouse_", None)
    if path.suffix == ".parquet":
        reports = Reports.read(path)
        # A survey was fitted on no rows.
        return reports.certificate, getattr(reports.mechanism, "inhouse_", None)
    must_exist(path)
    _must_not_be_ledger("explain", path)
    return Certificate.load(path), None


def _must_not_be_ledger(where: str, path: Path) -> None:
    """Refuse a ledger, which is an SQLite file, and name the command for it."""
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            remedy = f"It is a ledger: use tacit account ledger show {path}."
            errors.refuse(where, "file", "a certificate", path.name, remedy)


def sign(
    certificate: CertificateFile,
    key: Annotated[
        Path, typer.Option(help="PEM file of an Ed25519 private key.", rich_help_panel=SETTINGS)
    ],
    as_json: AsJson = False,
) -> None:
    """Add an Ed25519 signature to a certificate, in place.

    `openssl genpkey -algorithm ed25519 -out key.pem` makes a key.
    """
    from tacit.privacy.certificate import Certificate

    must_exist(certificate, key)
    signed = Certificate.load(certificate).sign(key.read_bytes())
    signed.save(certificate)
    assert signed.signature is not None
    print_values({"signed_by": signed.signature[0]}, as_json, f"{certificate.name}: signed")
