"""The command line: one JSON object or one line of error, and nothing written on the way."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from tacit import Certificate
from tacit.apps.cli import main
from tacit.audit import subjects
from tacit.privacy import events
from tacit.privacy.accounting.ledger import Ledger
from tacit.privacy.certificate import Artifact
from tacit.privacy.guarantees import ApproxDP, PureDP
from tacit.privacy.mechanisms import DiscreteLaplace, RandomizedResponse

MECHANISMS = (
    *("discrete-laplace", "randomized-response", "subset-selection", "discrete-gaussian"),
    *("memoized-response", "projective-geometry-response", "local-mean", "local-vector"),
    *("geometric", "exponential", "sparse-vector", "laplace", "gaussian", "local-laplace"),
    *("local-gaussian", "permute-and-flip", "integer-table", "lattice-geometric", "smooth-laplace"),
)
APPROXIMATE = ("discrete-gaussian", "gaussian", "local-gaussian", "smooth-laplace")
EXACT = (
    *("geometric", "randomized-response", "subset-selection", "exponential", "sparse-vector"),
    *("permute-and-flip", "integer-table", "memoized-response", "projective-geometry-response"),
    *("local-mean", "local-vector"),
)
SCOPE: dict[str, Any] = {"adjacency": "replace-one", "unit": "record"}


@dataclasses.dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on standard output, read strictly."""
        found = json.loads(self.out, parse_constant=_no_constant)
        assert isinstance(found, dict)
        assert self.out.count("\n") == 1
        return found


def _no_constant(name: str) -> NoReturn:
    raise AssertionError(f"{name} is not JSON")


Run = Callable[..., Outcome]


@pytest.fixture(name="run")
def _run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Run:
    """Run the command line in an empty folder, wide enough that no table breaks a line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file and folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"(folder)"
        for path in sorted(folder.rglob("*"))
    }


def refused(outcome: Outcome, *codes: int) -> str:
    """The one line of an error."""
    assert outcome.code in codes
    assert outcome.out == ""
    assert outcome.err.endswith("\n")
    (line,) = outcome.err.splitlines()
    assert line.startswith("tacit: ")
    assert "Traceback" not in line
    return line


def certified(folder: Path, name: str = "counts.json", **options: Any) -> Path:
    """A certificate beside its artifact."""
    artifact = folder / name
    artifact.write_text("[1, 2, 3]\n")
    event = DiscreteLaplace(epsilon=1.0, sensitivity=1, adjacency="replace-one").event
    certificate = Certificate.issue(event, artifact=artifact, **options)
    return certificate.save(folder / "c.json")


def keys(folder: Path) -> tuple[Path, Path]:
    """PEM files of a private and a public key."""
    key = ed25519.Ed25519PrivateKey.generate()
    private, public = folder / "key.pem", folder / "public.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return private, public


# --- help ---------------------------------------------------------------------------------------


# --- account, calibrate -------------------------------------------------------------------------

TRAINING = ("--sampling-probability", "0.01", "--delta", "1e-5")


def test_account_of_a_training_run(run: Run) -> None:
    outcome = run(
        "account", "compose", "--noise-multiplier", 1, "--steps", 1000, *TRAINING, "--json"
    )
    assert outcome.code == 0
    assert set(outcome.json) == {"naive", "advanced", "zcdp", "rdp", "pld"}
    # RDP and PLD as dp-accounting has them; the rest from closed forms.
    assert outcome.json["rdp"] == pytest.approx(2.1014, rel=1e-3)
    assert outcome.json["pld"] == pytest.approx(1.8282, rel=2e-3)
    rho, log = 500.0, math.log(1e5)
    assert rho < outcome.json["zcdp"] < rho + 2 * math.sqrt(rho * log)
    assert outcome.json["zcdp"] == pytest.approx(648.78, rel=1e-3)
    assert outcome.json["naive"] == pytest.approx(924.1, rel=1e-3)
    assert outcome.json["advanced"] == pytest.approx(543.4, rel=1e-3)


def test_account_as_a_table(run: Run) -> None:
    outcome = run("account", "compose", "--noise-multiplier", 2, "--steps", 1, "--delta", "1e-5")
    assert outcome.code == 0
    for name in ("naive", "advanced", "zcdp", "rdp", "pld"):
        assert name in outcome.out


def test_account_says_where_it_falls_back(run: Run) -> None:
    arguments = ("--noise-multiplier", 0.25, "--steps", 10, *TRAINING, "--json")
    outcome = run("account", "compose", *arguments)
    assert outcome.code == 0
    assert outcome.json["pld"] == outcome.json["rdp"]
    assert "fell back to RDP" in outcome.err


def test_calibrate_a_plain_gaussian(run: Run) -> None:
    outcome = run("account", "calibrate", "--epsilon", 1, "--delta", "1e-5", "--steps", 1, "--json")
    assert outcome.code == 0
    assert set(outcome.json) == {"noise_multiplier", "steps", "epsilon", "delta", "accountant"}
    assert outcome.json["noise_multiplier"] == pytest.approx(3.730632, rel=1e-6)
    found = outcome.json["noise_multiplier"]
    back = run(
        "account", "compose", "--noise-multiplier", found, "--steps", 1, "--delta", "1e-5", "--json"
    )
    assert 0.999 < back.json["pld"] <= 1.0 + 1e-9


def test_calibrate_steps(run: Run) -> None:
    arguments = ("--epsilon", 1, "--delta", "1e-5", "--noise-multiplier", 10, "--json")
    steps = run("account", "calibrate", *arguments).json["steps"]
    assert steps == math.floor((10 / 3.730632) ** 2)  # n draws with z are one with z/√n


@pytest.mark.slow
@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_calibrate_inverts_account(run: Run, accountant: str) -> None:
    target = (
        *("account", "calibrate", "--epsilon", 2, *TRAINING, "--accountant", accountant),
        "--json",
    )
    found = run(*target, "--steps", 1000).json["noise_multiplier"]
    back = run(
        "account", "compose", "--noise-multiplier", found, "--steps", 1000, *TRAINING, "--json"
    )
    assert 1.99 < back.json[accountant] <= 2.0
    steps = run(*target, "--noise-multiplier", found).json["steps"]
    assert steps >= 1000
    assert steps < 1010


# --- audit --------------------------------------------------------------------------------------


SURE = ("--confidence", "0.999999")


@pytest.mark.quick(2)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_audit(run: Run, mechanism: str) -> None:
    # The draws are the operating system's: the confidence is what keeps a false alarm away.
    count = 4000 if mechanism in ("permute-and-flip", "smooth-laplace") else 20_000
    outcome = run(
        "account", "audit", mechanism, *SURE, "--epsilon", 1, "--samples", count, "--json"
    )
    assert outcome.code == 0
    found = outcome.json
    assert set(found) == {
        *("mechanism", "claimed_epsilon", "claimed_delta", "exact_epsilon"),
        *("lower_bound", "confidence", "samples", "law_p_value", "law_finding"),
    }
    assert found["mechanism"] == mechanism
    assert found["claimed_epsilon"] == pytest.approx(1.0, abs=1e-6)
    assert found["claimed_delta"] == pytest.approx(1e-5 if mechanism in APPROXIMATE else 0.0)
    assert found["confidence"] == 0.999999
    assert found["samples"] == count
    assert 0.0 <= found["lower_bound"] <= 1.0
    assert 0.0 < found["law_p_value"] <= 1.0
    assert found["law_finding"] is None
    if mechanism in ("discrete-laplace", "geometric", "randomized-response", "local-laplace"):
        assert found["lower_bound"] > 0.5
    if mechanism in EXACT:
        loose = mechanism in ("integer-table", "memoized-response")
        assert (0.7 if loose else 0.9) < found["exact_epsilon"] <= 1.0
    else:
        assert found["exact_epsilon"] is None


def test_audit_as_a_table(run: Run) -> None:
    outcome = run("account", "audit", "geometric", *SURE, "--epsilon", 0.5, "--samples", 2000)
    assert outcome.code == 0
    assert "geometric: not refuted" in outcome.out
    assert "lower bound" in outcome.out
    assert "finding" not in outcome.out  # nothing was found


def test_audit_takes_a_delta(run: Run) -> None:
    arguments = ("--epsilon", 0.5, "--delta", "1e-3", "--confidence", 0.9, "--samples", 2000)
    found = run("account", "audit", "discrete-gaussian", *arguments, "--json").json
    assert (found["claimed_epsilon"], found["claimed_delta"]) == (0.5, 1e-3)
    assert found["confidence"] == 0.9


@pytest.mark.quick(3)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("epsilon", ["0.05", "1.5"])
def test_audit_at_other_epsilons(run: Run, mechanism: str, epsilon: str) -> None:
    arguments = ("--epsilon", epsilon, "--samples", 1000, *SURE, "--json")
    found = run("account", "audit", mechanism, *arguments).json
    assert found["claimed_epsilon"] == pytest.approx(float(epsilon), rel=1e-6)
    assert found["lower_bound"] <= float(epsilon)


class Liar:
    """Claims 1 and gives its input away."""

    def __init__(self) -> None:
        honest = RandomizedResponse(categories=2, epsilon=30.0)
        self.guarantee = PureDP(epsilon=1.0, adjacency="any-two-inputs", unit="record")
        self.event = events.Declared(self.guarantee)
        self.release, self.log_prob = honest.release, honest.log_prob


@pytest.mark.parametrize("is_infinite", [False, True])
def test_audit_exits_with_1_if_it_refutes(
    run: Run, monkeypatch: pytest.MonkeyPatch, is_infinite: bool
) -> None:
    table = None
    if is_infinite:
        rows = [[0.0, -math.inf], [-math.inf, 0.0]]
        table = subjects.exact.Table(subjects.np.array(rows), ((0, 1),))
    subject = subjects.Subject(Liar(), 0, 1, table)  # type: ignore[arg-type]
    monkeypatch.setitem(subjects.SUBJECTS, "liar", lambda epsilon, delta: subject)
    outcome = run("account", "audit", "liar", "--samples", 2000, "--json")
    assert outcome.code == 1
    assert outcome.json["lower_bound"] > 1  # which is read strictly: infinity is no JSON
    outcome = run("account", "audit", "liar", "--samples", 2000)
    assert outcome.code == 1
    assert "REFUTED" in outcome.out


# --- certificates -------------------------------------------------------------------------------


def test_verify_explain_sign(run: Run, tmp_path: Path) -> None:
    path = certified(tmp_path)
    private, public = keys(tmp_path)
    found = run("account", "verify", path, "--json")
    assert found.code == 0
    assert found.json == {
        "verified": True,
        "guarantee": "1-DP (central, replace-one, unit: record)",
        "artifact": str(tmp_path / "counts.json"),
        "signed_by": None,
        "seeded": False,
    }
    assert "verified" in run("account", "verify", path).out
    assert "signed by" not in run("account", "verify", path).out  # nobody has

    assert "not signed" in refused(run("account", "verify", path, "--public-key", public), 1)
    signed = run("account", "sign", path, "--key", private, "--json")
    assert signed.code == 0
    assert set(signed.json) == {"signed_by"}
    found = run("account", "verify", path, "--public-key", public, "--json")
    assert found.code == 0
    assert found.json["signed_by"] == signed.json["signed_by"]
    assert len(found.json["signed_by"]) == 64

    explained = run("account", "explain", path, "--json")
    assert explained.code == 0
    assert set(explained.json) == {"guarantee", "explanation"}
    text = run("account", "explain", path).out
    assert text.split() == explained.json["explanation"].split()
    assert longest(text) <= 80 < longest(explained.json["explanation"])
    for heading in ("Who is protected", "How well", "Why", "Assumptions", "Not protected"):
        assert heading in text
    assert "2.72" in text
    assert re.search(r"2\.(7|68) ?%", text)
    assert re.search(r"73\.[12] ?%", text)


def longest(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_verify_with_the_wrong_key(run: Run, tmp_path: Path) -> None:
    path = certified(tmp_path)
    private, _ = keys(tmp_path)
    run("account", "sign", path, "--key", private)
    _, other = keys(tmp_path)
    assert "key" in refused(run("account", "verify", path, "--public-key", other), 1)


def test_verify_says_when_it_is_seeded(run: Run, tmp_path: Path) -> None:
    from tacit.privacy.randomness import Seeded

    path = certified(tmp_path, rng=Seeded(1))
    assert run("account", "verify", path, "--json").json["seeded"] is True
    assert "SEEDED" in run("account", "explain", path).out


@pytest.mark.parametrize("damage", ["changed", "truncated", "missing", "folder"])
def test_verify_looks_at_the_artifact(run: Run, tmp_path: Path, damage: str) -> None:
    path = certified(tmp_path)
    artifact = tmp_path / "counts.json"
    shutil.copy(artifact, tmp_path / "elsewhere.json")
    if damage == "changed":
        artifact.write_text("[1, 2, 4]\n")
    elif damage == "truncated":
        artifact.write_text("[1, 2, 3]")
    else:
        artifact.unlink()
        if damage == "folder":
            artifact.mkdir()
    before = snapshot(tmp_path)
    refused(run("account", "verify", path), 1)
    refused(run("account", "verify", path, "--json"), 1)
    assert snapshot(tmp_path) == before
    assert run("account", "verify", path, "--artifact", tmp_path / "elsewhere.json").code == 0


def rewritten(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a certificate and recompute its digest."""
    body = json.loads(path.read_text(encoding="utf-8"))
    del body["digest"]
    change(body)
    text = json.dumps(body, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    body["digest"] = hashlib.sha256(text.encode()).hexdigest()
    text = json.dumps(body, sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def test_verify_derives_the_guarantee_again(run: Run, tmp_path: Path) -> None:
    path = certified(tmp_path)
    rewritten(path, lambda body: body["guarantee"].update(epsilon=0.01))
    assert "0.01-DP" in refused(run("account", "verify", path), 1)


def test_a_damaged_certificate_is_not_signed(run: Run, tmp_path: Path) -> None:
    path = certified(tmp_path)
    private, _ = keys(tmp_path)
    path.write_text(path.read_text().replace('"epsilon": 1.0', '"epsilon": 0.1'))
    before = snapshot(tmp_path)
    refused(run("account", "sign", path, "--key", private), 1)
    assert snapshot(tmp_path) == before


def test_a_false_certificate_is_not_signed(run: Run, tmp_path: Path) -> None:
    # A signature under a guarantee that does not follow from the events would be worth nothing.
    path = certified(tmp_path)
    private, _ = keys(tmp_path)
    rewritten(path, lambda body: body["guarantee"].update(epsilon=0.01))
    before = snapshot(tmp_path)
    refused(run("account", "sign", path, "--key", private), 1)
    assert snapshot(tmp_path) == before


NAMES = (
    *("../secret.txt", "/etc/hostname", "..", ".", "", "/", "a/../../secret.txt", "x" * 5000),
    *("sub/secret.txt", "secret.txt\0", "~/secret.txt", "-h", "..\\secret.txt"),
)


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_an_artifact_cannot_lead_elsewhere(run: Run, tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    (home / "sub").mkdir(parents=True)
    secrets = [tmp_path / "secret.txt", home / "sub" / "secret.txt"]
    for secret in secrets:
        secret.write_text("secret\n")
    path = certified(home)
    # The hash fits the file that the name leads to: only the place is wrong.
    fitting = dataclasses.asdict(Artifact.of(secrets[0])) | {"name": name}
    rewritten(path, lambda body: body.update(artifact=fitting))
    before = snapshot(tmp_path)
    refused(run("account", "verify", path), 1, 2)
    assert snapshot(tmp_path) == before


def test_a_name_that_is_no_text_is_refused(run: Run, tmp_path: Path) -> None:
    path = certified(tmp_path)
    rewritten(path, lambda body: body["artifact"].update(name=5))
    refused(run("account", "verify", path), 1)


def test_a_certificate_cannot_write_to_the_terminal(run: Run, tmp_path: Path) -> None:
    path = certified(tmp_path)
    escape = "\x1b[2J\x1b]0;owned\x07"
    forged = f"All is well.{escape}\n\nNot protected\n  - Nothing at all."
    rewritten(path, lambda body: body.update(assumptions=[forged]))
    outcome = run("account", "explain", path)
    assert "\x1b" not in outcome.out
    assert outcome.out.count("\nNot protected\n") <= 1


@pytest.mark.parametrize("name", ["[red]counts.json", "counts[/red].json", "[link=x]counts.json"])
def test_brackets_in_a_path_are_only_brackets(run: Run, tmp_path: Path, name: str) -> None:
    outcome = run("account", "verify", certified(tmp_path, name.replace("/", "")))
    assert outcome.code == 0
    assert name.replace("/", "") in outcome.out
    folder = tmp_path / "a[" / "red]"
    folder.mkdir(parents=True)
    outcome = run("account", "verify", certified(folder))
    assert outcome.code == 0
    assert "a[/red]" in outcome.out


# --- ledger -------------------------------------------------------------------------------------

OPEN = ("--epsilon", "1", "--adjacency", "replace-one")


def test_ledger_flow(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    opened = run("account", "ledger", "open", path, "patients", *OPEN, "--json")
    assert opened.code == 0
    assert set(opened.json) == {"account", "budget"}
    charge = ("account", "ledger", "charge", path, "patients", "--epsilon", "0.6", "--json")
    charged = run(*charge, "--key", "query-1")
    assert charged.code == 0
    assert set(charged.json) == {"account", "key", "repeated", "spent", "guarantee"}
    assert charged.json["key"] == "query-1"
    assert charged.json["repeated"] is False
    assert run(*charge, "--key", "query-1").json["repeated"] is True
    shown = run("account", "ledger", "show", path, "patients", "--json")
    assert shown.code == 0
    assert shown.json == {
        "accounts": [
            {
                "account": "patients",
                "budget": "1-DP (central, replace-one, unit: record)",
                "spent": "epsilon = 0.6",
                "remaining": "epsilon = 0.4",
                "guarantee": "0.6-DP (central, replace-one, unit: record)",
                "charges": 1,
                "marks": 0,
            }
        ]
    }
    assert "patients" in run("account", "ledger", "show", path).out


def test_a_ledger_lists_its_entries_and_tells_marks_from_charges(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    run("account", "ledger", "open", path, "patients", *OPEN)
    with Ledger(path) as ledger:
        for key, epsilon in (("run", 0.25), ("run, round 1", 0.0)):
            ledger.charge("patients", events.Declared(PureDP(epsilon=epsilon, **SCOPE)), key=key)
    (shown,) = run("account", "ledger", "show", path, "--entries", "--json").json["accounts"]
    assert (shown["charges"], shown["marks"]) == (1, 1)
    opened, priced, mark = shown["entries"]
    assert opened["reason"] == "opened"
    assert (priced["key"], priced["amount"]) == ("run", {"epsilon": "1/4", "delta": "0"})
    assert set(mark["amount"].values()) == {"0"}
    told = run("account", "ledger", "show", path, "--entries").out
    assert "epsilon = 0.25" in told
    assert "nothing (a mark)" in told
    assert "nothing" not in run("account", "ledger", "show", path).out


def test_a_ledger_shows_whole_guarantees_and_keys_in_80_columns(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path, key = tmp_path / "budget.sqlite", "k" * 60
    run("account", "ledger", "open", path, "patients", *OPEN)
    run("account", "ledger", "charge", path, "patients", "--epsilon", "0.25", "--key", key)
    told = run("account", "ledger", "show", path, "--entries").out
    assert "0.25-DP (central, replace-one, unit: record)" in told
    assert "…" not in told
    assert told.count("k") >= len(key)


def test_a_raised_account_has_a_guarantee_at_a_delta(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    run("account", "ledger", "open", path, "a", "--rho", "0.1", *OPEN[2:])
    run("account", "ledger", "charge", path, "a", "--epsilon", "0.1")
    assert (
        run("account", "ledger", "raise", path, "a", "--rho", "0.2", "--reason", "board").code == 0
    )
    (plain,) = run("account", "ledger", "show", path, "--json").json["accounts"]
    assert plain["guarantee"].startswith("unproven")
    (shown,) = run("account", "ledger", "show", path, "--delta", "1e-6", "--json").json["accounts"]
    with Ledger(path) as ledger:
        assert shown["guarantee"] == str(ledger.show("a").at_delta(1e-6))
    refused(run("account", "ledger", "show", path, "--delta", "0"), 2)


def test_raising_epsilon_keeps_delta(run: Run, tmp_path: Path) -> None:
    path, reason = tmp_path / "budget.sqlite", ("--reason", "board")
    run("account", "ledger", "open", path, "a", *OPEN, "--delta", "1e-6")
    raised = run("account", "ledger", "raise", path, "a", "--epsilon", "2", *reason, "--json")
    assert raised.json["budget"].startswith("(2, 1e-06)-DP")
    assert "opened" in refused(
        run("account", "ledger", "raise", path, "a", "--epsilon", "3", "--delta", "1e-5", *reason),
        2,
    )
    for notion, option in (
        (("--rho", "1"), "--rho"),
        (("--epsilon", "1", "--order", "8"), "order"),
    ):
        name = option.strip("-")
        run("account", "ledger", "open", path, name, *notion, *OPEN[2:])
        line = refused(run("account", "ledger", "raise", path, name, "--epsilon", "2", *reason), 2)
        assert f"given by {'--epsilon and --order' if name == 'order' else '--rho'}" in line


def test_an_empty_ledger_says_so(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    Ledger(path).close()
    assert "No account" in run("account", "ledger", "show", path).out
    assert run("account", "ledger", "show", path, "--json").json == {"accounts": []}


def test_an_overdraft_is_refused_and_changes_nothing(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    run("account", "ledger", "open", path, "patients", *OPEN)
    run("account", "ledger", "charge", path, "patients", "--epsilon", "0.6")
    shown = run("account", "ledger", "show", path, "--json").json
    before = snapshot(tmp_path)
    for amount in ("0.4000001", "0.5", "700", "1e300"):
        line = refused(
            run("account", "ledger", "charge", path, "patients", "--epsilon", amount), 1, 2
        )
        assert "charged" in line or amount == "1e300"
        assert snapshot(tmp_path) == before
    overdraft = run("account", "ledger", "charge", path, "patients", "--epsilon", "0.5", "--json")
    assert overdraft.code == 1
    assert run("account", "ledger", "show", path, "--json").json == shown
    assert run("account", "ledger", "charge", path, "patients", "--epsilon", "0.4").code == 0
    refused(run("account", "ledger", "charge", path, "patients", "--epsilon", "1e-9"), 1)


def test_a_failure_probability_is_not_free(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "budget.sqlite"
    run("account", "ledger", "open", path, "pure", *OPEN)
    charge = ("account", "ledger", "charge", path, "pure", "--epsilon", "0.1", "--delta", "1e-9")
    refused(run(*charge), 1)
    run("account", "ledger", "open", path, "approximate", *OPEN, "--delta", "1e-6")
    assert run("account", "ledger", "charge", path, "approximate", *charge[5:]).code == 0


def test_events_of_a_certificate_are_charged(run: Run, tmp_path: Path) -> None:
    path, certificate = tmp_path / "budget.sqlite", certified(tmp_path)
    run("account", "ledger", "open", path, "patients", *OPEN)
    charge = ("account", "ledger", "charge", path, "patients", "--certificate", certificate)
    assert run(*charge, "--json").json["guarantee"].startswith("1-DP")
    refused(run(*charge), 1)
    # Not what it states: what its events give.
    rewritten(certificate, lambda body: body["guarantee"].update(epsilon=0.0))
    refused(run(*charge), 1)


@pytest.mark.parametrize(
    ("options", "budget"),
    [
        (("--rho", "0.5"), "(0, 0.5)-zCDP"),
        (("--epsilon", "1", "--delta", "1e-6"), "(1, 1e-06)-DP"),
        (("--epsilon", "1", "--order", "8"), "Rényi DP"),
    ],
)
def test_other_budgets(run: Run, tmp_path: Path, options: tuple[str, ...], budget: str) -> None:
    path = tmp_path / "budget.sqlite"
    where = (
        *("account", "ledger", "open", path, "a", "--adjacency", "add-remove", "--unit", "person"),
    )
    assert run(*where, *options, "--json").json["budget"].startswith(budget)
    assert run("account", "ledger", "charge", path, "a", "--epsilon", "0.5").code == 0
    refused(run("account", "ledger", "charge", path, "a", "--epsilon", "1"), 1)


@pytest.mark.parametrize(
    "name", ["[/red]", "[bold]x", "[link=http://x]", "a\\[b", "ε é 日本", "a'b"]
)
def test_an_account_may_have_any_name(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / "budget.sqlite"
    opened = run("account", "ledger", "open", path, name, *OPEN)
    assert opened.code == 0
    assert name in opened.out
    charged = run("account", "ledger", "charge", path, name, "--epsilon", "0.5", "--key", name)
    assert charged.code == 0
    assert name in charged.out
    shown = run("account", "ledger", "show", path)
    assert shown.code == 0
    assert name in shown.out
    assert run("account", "ledger", "show", path, "--json").json["accounts"][0]["account"] == name


# --- bad input ----------------------------------------------------------------------------------

ACCOUNT = ("account", "compose", "--noise-multiplier", "1", "--steps", "10", "--delta", "1e-5")
CALIBRATE = ("account", "calibrate", "--epsilon", "1", "--delta", "1e-5", "--steps", "10")
AUDIT = ("account", "audit", "geometric", "--samples", "1000", *SURE)
VERIFY, EXPLAIN = ("account", "verify", "c.json"), ("account", "explain", "c.json")
SIGN = ("account", "sign", "c.json", "--key", "key.pem")
LEDGER_OPEN = ("account", "ledger", "open", "new.sqlite", "a", *OPEN)
LEDGER_CHARGE = ("account", "ledger", "charge", "budget.sqlite", "a", "--epsilon", "0.1")
LEDGER_SHOW = ("account", "ledger", "show", "budget.sqlite")
NOT_POSITIVE = ("nan", "inf", "-inf", "0", "-1", "text", "", "1e400")


def with_option(command: tuple[str, ...], option: str, value: str) -> tuple[str, ...]:
    if option in command:
        position = command.index(option) + 1
        return (*command[:position], value, *command[position + 1 :])
    return (*command, option, value)


def without(command: tuple[str, ...], option: str) -> tuple[str, ...]:
    position = command.index(option)
    return command[:position] + command[position + 2 :]


BAD: list[tuple[str, ...]] = [
    *(with_option(ACCOUNT, "--noise-multiplier", value) for value in NOT_POSITIVE),
    *(with_option(ACCOUNT, "--delta", value) for value in (*NOT_POSITIVE, "1", "1.5")),
    *(with_option(ACCOUNT, "--steps", value) for value in (*NOT_POSITIVE, "1.5", "9" * 30)),
    *(with_option(ACCOUNT, "--sampling-probability", value) for value in (*NOT_POSITIVE, "1.1")),
    *(without(ACCOUNT, name) for name in ("--noise-multiplier", "--delta", "--steps")),
    *(with_option(CALIBRATE, "--epsilon", value) for value in (*NOT_POSITIVE, "701", "1e300")),
    *(with_option(CALIBRATE, "--delta", value) for value in (*NOT_POSITIVE, "1")),
    *(with_option(CALIBRATE, "--steps", value) for value in NOT_POSITIVE),
    *(with_option(CALIBRATE, "--sampling-probability", value) for value in NOT_POSITIVE),
    with_option(CALIBRATE, "--noise-multiplier", "1"),
    with_option(CALIBRATE, "--accountant", "magic"),
    *(without(CALIBRATE, name) for name in ("--epsilon", "--delta", "--steps")),
    *(with_option(AUDIT, "--epsilon", value) for value in (*NOT_POSITIVE, "701")),
    *(with_option(AUDIT, "--confidence", value) for value in (*NOT_POSITIVE, "1", "99")),
    *(with_option(AUDIT, "--samples", value) for value in (*NOT_POSITIVE, "999", "1.5", "9" * 30)),
    *(with_option(AUDIT, "--delta", value) for value in ("nan", "inf", "-1", "text", "1")),
    (
        "account",
        "audit",
    ),
    ("account", "audit", "nonsense"),
    ("account", "audit", ""),
    ("account", "audit", "geometric", "exponential"),
    ("account", "audit", "--json"),
    # Of the right type, and beyond what the mechanism can do.
    ("account", "audit", "discrete-laplace", "--epsilon", "1e-300"),
    ("account", "audit", "randomized-response", "--epsilon", "1e-300"),
    ("account", "audit", "subset-selection", "--epsilon", "1e-300"),
    ("account", "audit", "sparse-vector", "--epsilon", "1e-300"),
    (
        "account",
        "verify",
    ),
    ("account", "verify", "missing.json"),
    ("account", "verify", "folder"),
    ("account", "verify", ""),
    (*VERIFY, "--artifact", "missing"),
    (*VERIFY, "--artifact", "folder"),
    (*VERIFY, "--public-key", "missing"),
    (*VERIFY, "--public-key", "folder"),
    (*VERIFY, "--public-key", "garbage"),
    (*VERIFY, "--public-key", "key.pem"),
    (
        "account",
        "explain",
    ),
    ("account", "explain", "missing.json"),
    ("account", "explain", "folder"),
    ("account", "sign", "c.json"),
    ("account", "sign", "--key", "key.pem"),
    ("account", "sign", "missing.json", "--key", "key.pem"),
    ("account", "sign", "c.json", "--key", "missing.pem"),
    ("account", "sign", "c.json", "--key", "folder"),
    ("account", "verify", "two\nlines"),
    *(with_option(LEDGER_OPEN, "--epsilon", value) for value in ("nan", "inf", "-1", "text", "")),
    *(with_option(LEDGER_OPEN, "--delta", value) for value in ("nan", "inf", "-1", "text", "1")),
    with_option(LEDGER_OPEN, "--adjacency", "neighbours"),
    with_option(LEDGER_OPEN, "--unit", "household"),
    with_option(LEDGER_OPEN, "--rho", "1"),
    *(with_option(LEDGER_OPEN, "--order", value) for value in ("nan", "inf", "1", "0", "text")),
    *(
        with_option(without(LEDGER_OPEN, "--epsilon"), "--rho", value)
        for value in ("nan", "inf", "-1", "text")
    ),
    without(LEDGER_OPEN, "--epsilon"),
    without(LEDGER_OPEN, "--adjacency"),
    ("account", "ledger", "open", "new.sqlite", *OPEN),
    ("account", "ledger", "open", "new.sqlite", "", *OPEN),
    ("account", "ledger", "open", "new.sqlite", "two\nlines", *OPEN),
    ("account", "ledger", "open", "folder", "b", *OPEN),
    ("account", "ledger", "open", "missing/new.sqlite", "b", *OPEN),
    ("account", "ledger", "open", "garbage", "b", *OPEN),
    ("account", "ledger", "open", "budget.sqlite", "a", *OPEN),
    *(with_option(LEDGER_CHARGE, "--epsilon", value) for value in ("nan", "inf", "-1", "text", "")),
    *(with_option(LEDGER_CHARGE, "--delta", value) for value in ("nan", "inf", "-1", "text", "1")),
    with_option(LEDGER_CHARGE, "--certificate", "c.json"),
    with_option(LEDGER_CHARGE, "--key", ""),
    without(LEDGER_CHARGE, "--epsilon"),
    (*without(LEDGER_CHARGE, "--epsilon"), "--certificate", "missing.json"),
    (*without(LEDGER_CHARGE, "--epsilon"), "--certificate", "folder"),
    ("account", "ledger", "charge", "budget.sqlite", "nobody", "--epsilon", "0.1"),
    ("account", "ledger", "charge", "missing.sqlite", "a", "--epsilon", "0.1"),
    ("account", "ledger", "charge", "folder", "a", "--epsilon", "0.1"),
    ("account", "ledger", "charge", "garbage", "a", "--epsilon", "0.1"),
    (*LEDGER_SHOW, "nobody"),
    ("account", "ledger", "show", "missing.sqlite"),
    ("account", "ledger", "show", "folder"),
    ("account", "ledger", "show", "garbage"),
    ("account", "ledger", "show"),
    ("account", "ledger", "close"),
    ("magic",),
    ("--magic",),
    ("account", "compose", "--magic"),
]

UNVERIFIED: list[tuple[str, ...]] = [
    ("account", "verify", "garbage"),
    ("account", "verify", "empty"),
    ("account", "verify", "object.json"),
    ("account", "verify", "counts.json"),
    (*VERIFY, "--artifact", "garbage"),
    (*VERIFY, "--public-key", "public.pem"),
    ("account", "explain", "garbage"),
    ("account", "explain", "object.json"),
    ("account", "sign", "garbage", "--key", "key.pem"),
    ("account", "sign", "c.json", "--key", "garbage"),
    ("account", "sign", "c.json", "--key", "public.pem"),
    (*without(LEDGER_CHARGE, "--epsilon"), "--certificate", "garbage"),
    (*without(LEDGER_CHARGE, "--epsilon"), "--certificate", "object.json"),
    with_option(LEDGER_CHARGE, "--epsilon", "2"),
]


@pytest.fixture(name="template", scope="module")
def _template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of each: what is right, and what is not."""
    folder = tmp_path_factory.mktemp("template")
    certified(folder)
    keys(folder)
    (folder / "folder").mkdir()
    (folder / "garbage").write_bytes(b"\xff\x00 not JSON, not a database, not a key\n")
    (folder / "empty").write_bytes(b"")
    (folder / "object.json").write_text("{}\n")
    with Ledger(folder / "budget.sqlite") as ledger:
        ledger.open("a", PureDP(epsilon=1.0, **SCOPE))
        ledger.charge("a", events.Declared(PureDP(epsilon=0.5, **SCOPE)))
    return folder


@pytest.fixture(name="furnished")
def _furnished(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path, dirs_exist_ok=True))


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_is_one_line_and_exit_code_2(
    run: Run, furnished: Path, arguments: tuple[str, ...]
) -> None:
    before = snapshot(furnished)
    refused(run(*arguments), 2)
    assert snapshot(furnished) == before


@pytest.mark.parametrize("arguments", UNVERIFIED, ids=" ".join)
def test_what_does_not_verify_is_one_line_and_exit_code_1(
    run: Run, furnished: Path, arguments: tuple[str, ...]
) -> None:
    before = snapshot(furnished)
    refused(run(*arguments), 1)
    assert snapshot(furnished) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ACCOUNT,
        CALIBRATE,
        AUDIT,
        VERIFY,
        EXPLAIN,
        SIGN,
        LEDGER_OPEN,
        LEDGER_CHARGE,
        LEDGER_SHOW,
    ],
    ids=" ".join,
)
def test_the_commands_that_were_spoiled_are_right(
    run: Run, furnished: Path, arguments: tuple[str, ...]
) -> None:
    # Else the tests above would show nothing.
    outcome = run(*arguments, "--json")
    assert outcome.code == 0
    assert outcome.json
    assert outcome.err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("account", "audit", "discrete-gaussian", "--epsilon", "1e-300"),
        ("account", "audit", "discrete-gaussian", "--epsilon", "700"),
        ("account", "audit", "discrete-gaussian", "--delta", "0.99"),
        ("account", "audit", "discrete-gaussian", "--delta", "1e-300"),
        ("account", "audit", "exponential", "--epsilon", "1e-300"),
        ("account", "audit", "exponential", "--epsilon", "700"),
        ("account", "audit", "subset-selection", "--epsilon", "700"),
        ("account", "audit", "randomized-response", "--epsilon", "700"),
    ],
    ids=" ".join,
)
def test_extreme_numbers_are_answered_or_refused(run: Run, arguments: tuple[str, ...]) -> None:
    outcome = run(*arguments, *SURE, "--samples", "1000", "--json")
    if outcome.code == 0:
        assert outcome.json["lower_bound"] <= outcome.json["claimed_epsilon"]
    else:
        refused(outcome, 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("account", "ledger", "open", "x.sqlite", "a", "--rho", "1", "--delta", "0.5"),
        (
            *("account", "ledger", "open", "x.sqlite", "a", "--epsilon", "1", "--order", "2"),
            *("--delta", "0.5"),
        ),
        ("account", "ledger", "open", "x.sqlite", "a", "--rho", "1", "--order", "2"),
    ],
    ids=" ".join,
)
def test_options_that_would_be_ignored_are_refused(
    run: Run, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    refused(run(*arguments, "--adjacency", "replace-one"), 2)
    assert snapshot(tmp_path) == {}


def test_errors_do_not_show_the_private_key(run: Run, tmp_path: Path) -> None:
    path = certified(tmp_path)
    private, _ = keys(tmp_path)
    private.write_bytes(private.read_bytes().replace(b"PRIVATE KEY", b"PRIVATE KEZ"))
    line = refused(run("account", "sign", path, "--key", private), 1)
    secret = private.read_text().splitlines()[1]
    assert secret not in line


def test_a_certificate_of_two_notions_is_explained(run: Run, tmp_path: Path) -> None:
    event = events.Composed(
        (
            events.Laplace(Fraction(1), Fraction(2), **SCOPE),
            events.Declared(ApproxDP(epsilon=0.1, delta=1e-6, **SCOPE)),
        )
    )
    path = Certificate.issue(event).save(tmp_path / "c.json")
    assert run("account", "verify", path).code == 0
    assert "Declared" in run("account", "explain", path).out


# --- the real thing -----------------------------------------------------------------------------


def console(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).with_name("tacit")
    return subprocess.run(
        [str(script), *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )


@pytest.mark.heavy
def test_the_console_script(tmp_path: Path) -> None:
    arguments = ("account", "audit", "randomized-response", *SURE, "--samples", "2000", "--json")
    done = console(*arguments, folder=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["exact_epsilon"] == pytest.approx(1.0)
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.heavy
def test_the_console_script_refuses(tmp_path: Path) -> None:
    done = console("account", "verify", "missing.json", folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    certified(tmp_path)
    (tmp_path / "counts.json").write_text("other\n")
    done = console("account", "verify", "c.json", folder=tmp_path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
