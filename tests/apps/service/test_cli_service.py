"""The service on the command line: owners, participants, crowds, and every bad input on the way."""

from __future__ import annotations

import io
import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import tacit
from tacit.apps.cli import main
from tacit.apps.service import server
from tacit.apps.service.client import Client
from tacit.apps.service.store import Store
from tacit.data import datasets
from tacit.local.learned.codebook import Codebook
from tacit.local.reports import Reports

from .conftest import free_port

SECRET = "Zaphod7531"
Run = Callable[..., Any]
Refuse = Callable[..., str]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mechanism that may leave, one that may not, and rows of people."""
    folder = tmp_path_factory.mktemp("service")
    digits = datasets.load("digits")
    split = digits.collection(0)
    made = Codebook(epsilon=4, people=500, classes=10, unit="person")
    given = {"schema": digits.schema, "seed": 0}
    made.fit(digits.take(split.inhouse), inhouse_public=True, **given).export(folder / "people")
    made.fit(digits.take(split.inhouse), **given).save(folder / "inside")
    row, label = digits.rows[split.test[0]], int(digits.labels[split.test[0]])
    (folder / "me.json").write_text(json.dumps({"row": row.tolist(), "digit": label}))
    values, names = [*row.ravel().tolist(), label], [*(f"p{i}" for i in range(64)), "digit"]
    lines = [",".join(map(str, line)) for line in (names, values)]
    (folder / "me.csv").write_text("\n".join(lines) + "\n")
    (folder / "two.csv").write_text("\n".join([*lines, lines[1]]) + "\n")
    (folder / "bad.csv").write_text("\n".join([lines[0], lines[1] + SECRET]) + "\n")
    (folder / "bad.json").write_text(json.dumps({"row": [SECRET], "digit": 1}))
    (folder / "torn.json").write_text('{"row": ' + SECRET)
    return folder


@pytest.fixture(scope="module")
def served(work: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What `tacit campaign serve --json` says, while it serves."""
    db = tmp_path_factory.mktemp("db") / "campaign.db"
    port = free_port()
    arguments = [
        *("campaign", "serve", work / "people", "--title", "Digits [1]"),
        *("--purpose", "To read digits."),
        *("--db", f"sqlite:///{db}", "--port", port, "--vote-epsilon", 2, "--minimum", 20),
        *("--rate", 10_000, "--json"),
    ]
    command = [sys.executable, "-c", "from tacit.apps.cli import run; run()", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        health = httpx.HTTPTransport(retries=8)  # waits twice as long each time
        with httpx.Client(transport=health, timeout=30) as client:
            assert client.get(f"http://127.0.0.1:{port}/v1/health").status_code == 200
        yield {**said, "db": db}
        process.terminate()
        assert process.wait(timeout=20) == 0
        # It would tell in which order people came.
        assert not Path(f"{db}-wal").exists()


@pytest.fixture(name="key", autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch, served: dict[str, Any], tmp_path: Path) -> str:
    monkeypatch.setenv("TACIT_KEY", served["key"])
    monkeypatch.delenv("TACIT_TOKEN", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    return str(served["key"])


@pytest.fixture(name="token")
def _token(served: dict[str, Any]) -> str:
    with Client(served["page"], key=served["key"]) as owner:
        return owner.invite(1)[0]


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


def kept(folder: Path) -> list[Path]:
    return list(folder.rglob("*-report.json")) + list(folder.rglob("*-vote.json"))


# --- serve and create ----------------------------------------------------------------------------


def test_what_serve_says(served: dict[str, Any]) -> None:
    assert served["guarantee"] == "6-DP (local, any-two-inputs, unit: person)"
    assert served["page"].endswith(f"/c/{served['campaign']}")
    found = httpx.get(served["page"].replace("/c/", "/v1/campaigns/")).json()
    assert (found["title"], found["minimum"]) == ("Digits [1]", 20)
    assert found["artifact"]["sha256"] == served["mechanism"]
    with Client(served["owner_page"], key=served["key"]) as owner:
        assert len(owner.invite(2)) == 2
    secret = Path(f"{served['db']}.secret")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


@pytest.fixture(name="serve")
def _serve(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[tuple[Any, ...], list[dict[str, Any]]]:
    """Arguments of a `serve` that ends at once, and what it would have served with."""
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        server, "serve", lambda store, listener, **given: seen.append({**vars(listener), **given})
    )
    monkeypatch.setattr(server.Listener, "must_be_free", lambda listener: None)
    db = f"sqlite:///{tmp_path}/here.db"
    return ("campaign", "serve", work / "people", "--title", "Digits", "--db", db), seen


def test_serve_goes_on_with_a_campaign(run: Run, serve: Any) -> None:
    arguments, seen = serve
    first = run(*arguments, "--minimum", 30, "--json").json
    again = run(*arguments, "--json").json
    assert again["campaign"] == first["campaign"]
    assert again["key"] == "shown when the campaign was created"
    other = run(*arguments[:4], "Letters", *arguments[5:], "--json").json
    assert other["campaign"] != first["campaign"]
    assert len(seen) == 3
    shown = run(*arguments)
    assert "Keep the owner's key" not in shown.out
    assert first["mechanism"] in shown.out


def test_serve_passes_on_what_it_is_told(run: Run, serve: Any, tmp_path: Path) -> None:
    arguments, seen = serve
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("")
    more = ("--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem", "--rate", 7)
    said = run(
        *arguments, *more, "--host", "::", "--port", 99, "--cors", "https://a.org", "--json",
        *("--trusted-proxies", "10.0.0.1"),
    ).json  # fmt: skip
    assert said["page"].startswith("https://localhost:99/c/")
    (given,) = seen
    assert given["limits"].rate == 7
    assert (given["host"], given["port"], given["cors"]) == ("::", 99, "https://a.org")
    assert given["trusted_proxies"] == "10.0.0.1"
    assert given["tls_cert"] == tmp_path / "cert.pem"


def test_people_were_told_something_else(run: Run, serve: Any, refuse: Refuse) -> None:
    arguments, _ = serve
    run(*arguments, "--minimum", 30, "--vote-epsilon", 2, "--json")
    before = run(*arguments, "--json").json
    for option, value in (("--minimum", 31), ("--vote-epsilon", 3), ("--purpose", "Other")):
        outcome = run(*arguments, option, value)
        assert outcome.code == 2
        assert "must be unchanged" in outcome.err
    assert run(*arguments, "--unlabelled").code == 2
    assert run(*arguments, "--json").json == before


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--port", 0), "port from --port must be a whole number from 1 to 65535, got 0"),
        (("--rate", 0), "limits.rate from --rate must be a number above 0"),
        (("--tls-cert", "missing.pem"), "an existing file"),
        (("--opens", "soon"), "--opens must be a time"),
        (("--opens", "2026-12-01T08:00"), "with a zone"),
        (("--minimum", 0), "minimum must be"),
        (("--quota", 5), "quota must be"),
        (("--vote-epsilon", -1), "epsilon must be above 0"),
        (("--title", ""), "title must be"),
        (("--unlabelled", "--vote-epsilon", 2), "--vote-epsilon must be omitted"),
        (("--tls-cert", __file__), "--tls-cert and --tls-key must be given together"),
    ],
)
def test_serve_refuses(run: Run, serve: Any, more: tuple[Any, ...], reason: str) -> None:
    arguments, seen = serve
    outcome = run(*arguments, *more)
    assert outcome.code == 2, outcome
    assert reason in outcome.err
    assert outcome.out == ""
    assert seen == []


def test_a_port_in_use_is_said_before_anything_is_made(
    run: Run, work: Path, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        db = f"sqlite:///{tmp_path}/none.db"
        said = run("campaign", "serve", work / "people", "--title", "D", "--db", db, "--port", port)
    assert said.code == 2
    assert "--host and --port must be free" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_question_is_told_and_stays(run: Run, serve: Any) -> None:
    arguments, _ = serve
    first = run(*arguments, "--question", "Which digit is it?", "--json").json
    again = run(*arguments, "--question", "Another?")
    assert again.code == 2
    assert "question must be unchanged" in again.err
    assert run(*arguments, "--json").json["campaign"] == first["campaign"]


def test_what_must_not_leave_is_not_served(run: Run, work: Path, serve: Any) -> None:
    arguments, seen = serve
    outcome = run("campaign", "serve", work / "inside", *arguments[3:])
    assert outcome.code == 2
    assert "in-house rows" in outcome.err
    assert run("campaign", "serve", work, *arguments[3:]).code == 2
    assert seen == []


def test_what_must_not_leave_makes_no_database(run: Run, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 4))
    tacit.Partitions(epsilon=1, people=500, classes=2).fit(rows).save(tmp_path / "partitions")
    for command in ("serve", "create"):
        database = ("--db", f"sqlite:///{tmp_path / 'new.db'}")
        outcome = run("campaign", command, tmp_path / "partitions", "--title", "A", *database)
        assert outcome.code == 2
        assert "would reveal the in-house rows" in outcome.err
        assert sorted(path.name for path in tmp_path.iterdir()) == ["partitions"]


def test_databases(run: Run, serve: Any, tmp_path: Path) -> None:
    arguments, _ = serve
    for db, reason in (
        ("nonsense", "like sqlite:///campaign.db"),
        ("mysql://host/name", "SQLite file or PostgreSQL"),
        ("postgresql://host/name", "secret must be given"),
    ):
        outcome = run(*arguments[:-1], db)
        assert outcome.code == 2
        assert reason in outcome.err
    assert run(*arguments).code == 0
    (tmp_path / "other").write_bytes(bytes(32))
    outcome = run(*arguments, "--secret", tmp_path / "other")
    assert "the one that it was created with" in outcome.err


def test_create(run: Run, work: Path, tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path}/new.db"
    arguments = ("campaign", "create", work / "people", "--title", "Digits", "--db", db)
    more = ("--opens", "2026-12-01T08:00Z", "--closes", "2026-12-31T20:00Z", "--quota", 500)
    made = run(*arguments, *more, "--vote-epsilon", 1, "--vote-by-class", "--json").json
    store = Store.open(db)
    (campaign,) = store.campaigns()
    assert campaign.id == made["campaign"]
    assert (campaign.quota, campaign.vote_by_class, campaign.minimum) == (500, True, 100)
    assert str(campaign.opens) == "2026-12-01 08:00:00+00:00"
    store.must_own(campaign.id, made["key"])
    again = run(*arguments)
    assert again.code == 2
    assert "new for this mechanism" in again.err


# --- taking part ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["me.json", "me.csv"])
def test_take_part(
    run: Run, work: Path, served: Any, token: str, tmp_path: Path, name: str
) -> None:
    given = (
        *("campaign", "take-part", served["page"], "--state", tmp_path / "state"),
        *("--token", token),
    )
    first = run(*given, "--data", work / name, "--yes", "--json").json
    assert first["sent"] == "report"
    assert first["guarantee"].startswith("4-DP")
    assert not first["drawn_before"]
    (path,) = kept(tmp_path)
    assert token not in path.read_text()
    # Without the row, and without being asked: the same bytes.
    again = run(*given, "--json").json
    assert (again["receipt"], again["drawn_before"]) == (first["receipt"], True)
    assert run(*given, "--withdraw", first["receipt"], "--json").json == {"withdrawn": True}
    after = run(*given)
    assert after.code == 2
    assert "withdrawn" in after.err


def test_consent(
    run: Run, work: Path, served: Any, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("campaign", "take-part", served["page"], "--token", token, "--data", work / "me.json")
    answer(monkeypatch, "n\n")
    declined = run(*given)
    assert declined.code == 1
    assert "nothing was drawn" in declined.err
    assert kept(tmp_path) == []
    shown = " ".join(declined.out.split())
    for sentence in (
        "Digits [1] To read digits.",
        "one noised report of your row and its label: 4-DP",
        "one noised vote on whether the learned model is right about your row: 2-DP",
        "epsilon = 6",
        served["mechanism"],
        "Never the row.",
    ):
        assert sentence in shown
    answer(monkeypatch, "y\n")
    assert run(*given).code == 0
    assert len(kept(tmp_path / "home" / "tacit")) == 1


def test_where_the_token_comes_from(
    run: Run, work: Path, served: Any, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("--data", work / "me.json", "--yes", "--json")
    answer(monkeypatch, f"{token}\n")
    receipt = run("campaign", "take-part", served["page"], "--token", "-", *more).json["receipt"]
    link = f"{served['page']}#token={token}"
    assert run("campaign", "take-part", link, *more).json["receipt"] == receipt
    monkeypatch.setenv("TACIT_TOKEN", token)
    assert run("campaign", "take-part", served["page"], *more).json["receipt"] == receipt


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (("--at-most", 5.9), "at most 5.9, got 6.0. Nothing was drawn."),
        (("--mechanism", 64 * "0"), "the mechanism must be 000"),
        (("--data", "two.csv"), "a file of one row, got 2"),
        (("--data", "bad.csv"), "must be whole numbers"),
        (("--data", "bad.json"), "the file must hold a JSON object"),
        (("--data", "torn.json"), "the file must hold a JSON object"),
        (("--data", "none.csv"), "an existing file"),
        (("--label", "letter"), "label must be a column of"),
        (("--vote",), "no model has been published"),
    ],
)
def test_take_part_refuses(
    run: Run,
    work: Path,
    served: Any,
    token: str,
    tmp_path: Path,
    more: tuple[Any, ...],
    reason: str,
) -> None:
    more = tuple(work / one if str(one).endswith(("csv", "json")) else one for one in more)
    given = (
        *("campaign", "take-part", served["page"], "--token", token, "--data", work / "me.csv"),
        "--yes",
    )
    outcome = run(*given, *more, "--json")
    assert outcome.code == 2
    assert outcome.out == ""
    assert reason in outcome.err.splitlines()[-1]
    assert SECRET not in outcome.err
    assert kept(tmp_path) == []


def test_a_used_token_is_refused_before_anything_is_asked(
    run: Run, work: Path, served: Any, token: str, tmp_path: Path
) -> None:
    """From a second folder, with nobody to answer the question."""
    given = ("campaign", "take-part", served["page"], "--token", token, "--data", work / "me.json")
    assert run(*given, "--yes", "--json").code == 0
    before = kept(tmp_path)
    for more in ((), ("--yes",)):
        again = run(*given, *more, "--state", tmp_path / "other")
        assert (again.code, again.out) == (2, "")
        assert again.err.count("\n") == 1
        assert "the report of this token is already stored" in again.err
        assert "Nothing was drawn" in again.err
        assert token not in again.err
    assert kept(tmp_path) == before


def test_an_unknown_token_draws_nothing(run: Run, work: Path, served: Any, tmp_path: Path) -> None:
    given = (
        *("campaign", "take-part", served["page"], "--token", "nobody"),
        *("--data", work / "me.json"),
    )
    outcome = run(*given, "--yes")
    assert (outcome.code, outcome.out) == (2, "")
    assert "unknown-token" in outcome.err
    assert kept(tmp_path) == []


def test_limits_that_are_kept_to(run: Run, work: Path, served: Any, token: str) -> None:
    given = (
        *("campaign", "take-part", served["page"], "--token", token, "--data", work / "me.json"),
        "--yes",
    )
    decided = ("--at-most", 6, "--mechanism", served["mechanism"].upper())
    assert run(*given, *decided, "--json").code == 0


def test_without_a_token_or_a_row(run: Run, served: Any, token: str) -> None:
    assert "--token must be given" in run("campaign", "take-part", served["page"]).err
    assert (
        "--data must be given" in run("campaign", "take-part", served["page"], "--token", token).err
    )


def test_no_server(run: Run, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    url = f"http://127.0.0.1:{free_port()}/c/abcdefghijkl"
    outcome = run("campaign", "take-part", url, "--token", token)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "could not be reached" in outcome.err


# --- crowds and owners ---------------------------------------------------------------------------


@pytest.mark.heavy
def test_a_campaign_by_commands(
    run: Run, work: Path, served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invite, crowd, results, reports, learn, votes, close: on a campaign of its own."""
    store = Store.open(f"sqlite:///{served['db']}")
    mechanism = store.campaign(served["campaign"]).mechanism
    settings = {"title": "Own", "purpose": "Tests.", "labelled": True, "minimum": 60}
    made, key = store.create(mechanism, **settings, vote_epsilon=3.0)
    store.engine.dispose()
    page = served["page"].replace(served["campaign"], made.id)
    monkeypatch.setenv("TACIT_KEY", key)

    early = run("campaign", "results", page)
    assert early.code == 2
    assert "There are 0 reports, and results need at least 60" in early.err
    links = tmp_path / "links.txt"
    arguments = ("campaign", "invite", page, "--count", 3, "--out", links)
    assert run(*arguments, "--json").json == {"invitations": 3, "written": str(links)}
    assert stat.S_IMODE(links.stat().st_mode) == 0o600
    found = links.read_text().split()
    assert len(set(found)) == 3
    assert all(link.startswith(f"{page}#token=") for link in found)
    assert run(*arguments).code == 2

    one = run("campaign", "take-part", found[0], "--data", work / "me.csv", "--yes", "--json")
    assert one.json["sent"] == "report"
    people = run("campaign", "crowd", page, "--data", "digits", "--people", 99, "--json").json
    assert people == {"people": 99, "rows": 99, "stored": 99, "refused": {}}
    file = tmp_path / "reports.parquet"
    assert run("campaign", "reports", page, "--out", file).code == 0
    assert len(Reports.read(file)) == 100

    assert run("campaign", "learn", page, "--json").json["reports"] == 100
    voted = run(
        "campaign", "take-part", found[0], "--data", work / "me.json", "--vote", "--yes", "--json"
    )
    assert voted.json["guarantee"].startswith("3-DP")
    shown = run("campaign", "crowd", page, "--data", "digits", "--people", 40, "--vote", "--single")
    assert "40" in shown.out
    few = run("campaign", "results", page, "--confidence", 0.9).out
    assert "41 votes: the accuracy is shown from 60 votes on" in few
    assert "Accuracy" not in few
    assert run("campaign", "crowd", page, "--data", "digits", "--people", 19, "--vote").code == 0
    results = run("campaign", "results", page, "--confidence", 0.8, "--json").json
    assert (results["reports"], results["votes"]) == (100, 60)
    table = run("campaign", "results", page).out
    for words in ("100 reports", "Accuracy by votes", "95% interval", "fake participants"):
        assert words in table

    closed = run("campaign", "close", page, "--json").json
    assert closed == {"state": "closed", "reports": 100, "votes": 60}
    late = run("campaign", "crowd", page, "--data", "digits", "--people", 5)
    assert late.code == 2
    assert "not-open" in late.err


def test_crowds_have_no_seed(run: Run, served: Any) -> None:
    arguments = ("campaign", "crowd", served["page"], "--data", "digits", "--people", 10)
    outcome = run(*arguments, "--seed", 1)
    assert outcome.code == 2
    assert "No such option" in outcome.err
    assert "people must be" in run(*arguments[:-1], 0).err
    assert "batch must be" in run(*arguments, "--batch", 1001).err


def test_owners_need_their_key(
    run: Run, served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_KEY", "wrong")
    arguments = ("campaign", "invite", served["page"], "--count", 1, "--out", tmp_path / "links")
    assert "unknown-key" in run(*arguments).err
    monkeypatch.delenv("TACIT_KEY")
    assert "key must be the owner's" in run(*arguments).err
    assert not (tmp_path / "links").exists()


def test_plain_http_is_said(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    outcome = run("campaign", "take-part", "http://host.invalid/c/abcdefghijkl", "--token", "t")
    assert "http without TLS" in outcome.err.splitlines()[0]


def test_the_commands_load_nothing_of_the_service_until_they_run() -> None:
    code = (
        "import sys; import tacit.apps.cli; "
        "print([n for n in ('httpx', 'fastapi', 'sqlalchemy') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_main_is_the_command() -> None:
    assert main(["campaign", "--help"]) == 0
    assert os.environ["TACIT_KEY"]


# --- the person's budget -------------------------------------------------------------------------


def test_take_part_keeps_one_budget_over_all_campaigns_and_folders(
    run: Run, work: Path, served: Any, token: str, tmp_path: Path
) -> None:
    def part(given: str, *more: Any) -> Any:
        row = ("--data", work / "me.json", "--yes", "--json")
        return run("campaign", "take-part", served["page"], "--token", given, *row, *more)

    said = part(token, "--state", tmp_path / "one").json["budget"]
    assert said == "ε 4 of 8 is used, by 1 answer; 4 is left"
    assert part(token, "--state", tmp_path / "one").json["budget"] == said  # the same draw
    with Client(served["page"], key=served["key"]) as owner:
        second, third = owner.invite(2)
    assert part(second, "--state", tmp_path / "two").json["budget"].endswith("0 is left")
    refused = part(third, "--state", tmp_path / "three")
    assert (refused.code, refused.out) == (1, "")
    (line,) = refused.err.splitlines()
    assert "at most 0, what is left of this person's budget of 8, got 4.0. Nothing was" in line
    assert line.endswith("To decide on more, set --budget.")
    assert not list((tmp_path / "three").glob("*"))
    assert part(third, "--budget", 12).json["budget"].startswith("ε 12 of 12")
    elsewhere = part(third, "--ledger", tmp_path / "mine.sqlite", "--state", tmp_path / "four")
    assert "already stored" in elsewhere.err


def test_the_budget_is_shown_and_set(
    run: Run, work: Path, served: Any, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.sqlite"
    given = ("--ledger", path)
    assert run("campaign", "budget", *given, "--set", 5, "--json").json == {
        "budget": 5.0,
        "spent": 0.0,
        "remaining": 5.0,
        "answers": 0,
        "ledger": str(path),
    }
    answer(monkeypatch, "y\n")
    row = ("--token", token, "--data", work / "me.json")
    shown = run("campaign", "take-part", served["page"], *row, *given)
    assert "Your budget over all campaigns, before this answer: ε 0 of 5" in " ".join(
        shown.out.split()
    )
    table = run("campaign", "budget", *given, "--entries").out
    assert "ε 4 of 5 is used, by 1 answer; 1 is left" in table
    listed = run("campaign", "budget", *given, "--entries", "--json").json["entries"]
    assert [one.get("epsilon") for one in listed] == [None, "4.0"]
    below = run("campaign", "budget", *given, "--set", 3)
    assert below.code == 2
    assert "at least 4, which is spent" in below.err
