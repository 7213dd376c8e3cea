"""Settings of a server: which place wins, what is refused, and what is never shown."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit.apps.service import server, settings
from tacit.apps.service.door import DoorLimits
from tacit.apps.service.handling import Limits
from tacit.apps.service.server import Listener
from tacit.apps.service.settings import KNOWN, Settings, of_command_line
from tacit.apps.service.store import Store
from tacit.privacy import errors

PASSWORD = "hunter2-Zaphod"
Run = Callable[..., Any]


def gather(
    text: str = "", environment: dict[str, str] | None = None, *, path: Path, **given: Any
) -> Settings:
    file = path / "serve.toml"
    file.write_text(text)
    options = of_command_line({name.replace("__", "."): value for name, value in given.items()})
    return Settings.gather(options, environment or {}, file)


# --- precedence ----------------------------------------------------------------------------------


def test_every_place_overrides_the_next(tmp_path: Path) -> None:
    text = "port = 1\n[limits]\nrate = 1\nat_once = 1\n"
    environment = {"TACIT_PORT": "2", "TACIT_LIMITS_RATE": "2"}
    found = gather(text, environment, path=tmp_path, port=3)
    assert [found[name] for name in ("port", "limits.rate", "limits.at_once", "host")] == [
        *(3, 2.0, 1),
        "127.0.0.1",
    ]
    sources = [found.source(name) for name in ("port", "limits.rate", "limits.at_once", "host")]
    assert sources == ["--port", "TACIT_LIMITS_RATE", "serve.toml", "default"]


@pytest.mark.parametrize("name", KNOWN)
def test_every_setting_can_be_stated_in_every_place(name: str, tmp_path: Path) -> None:
    """With the same outcome, which is not the default."""
    setting = KNOWN[name]
    if isinstance(setting.default, int | float) or setting.kind.parse is int:
        text = toml = str((setting.default or 10) + 7)
    else:
        text = "127.0.0.2" if name in ("host", "trusted_proxies") else "other"
        toml = json.dumps(text)
    file = tmp_path / "serve.toml"
    file.write_text(f"{name} = {toml}\n")  # a dotted key is a table
    found = [
        Settings.gather(of_command_line({}, [f"{name}={text}"]), {}),
        Settings.gather({}, {setting.variable: text}),
        Settings.gather({}, {}, file),
    ]
    (value,) = {one[name] for one in found}
    assert value != setting.default
    assert str(value) in (text, f"{text}.0")
    assert [one.source(name) for one in found] == ["--set", setting.variable, "serve.toml"]


def test_every_limit_is_a_setting() -> None:
    for section, of in (("limits", Limits), ("door", DoorLimits)):
        names = {f"{section}.{field.name}" for field in dataclasses.fields(of)}
        assert names == {name for name in KNOWN if name.startswith(f"{section}.")}
    assert {field.name for field in dataclasses.fields(Listener)} <= set(KNOWN)


def test_defaults_are_those_of_the_library() -> None:
    found = Settings.gather({}, {})
    assert (found.limits, found.at_door, found.listener) == (Limits(), DoorLimits(), Listener())
    assert {one["from"] for one in found.shown()} == {"default"}


def test_requests_at_once_follow_the_rate_unless_they_are_stated(tmp_path: Path) -> None:
    assert gather(path=tmp_path, limits__rate=7.0).limits == Limits(rate=7, burst=28)
    assert gather(path=tmp_path, limits__rate=0.1).limits.burst == 1
    stated = gather("limits.burst = 9", {"TACIT_LIMITS_RATE": "inf"}, path=tmp_path).limits
    assert (stated.rate, stated.burst) == (math.inf, 9)


def test_an_empty_variable_is_not_set() -> None:
    assert Settings.gather({}, {"TACIT_CORS": "", "TACIT_PORT": ""})["port"] == 8000


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("port = '1'", "port from serve.toml must be a whole number from 1 to 65535, got '1'"),
        ("port = true", "port from serve.toml must be a whole number"),
        ("port = 70000", "to 65535, got 70000"),
        ("limits.rate = nan", "limits.rate from serve.toml must be a number above 0"),
        ("limits.rate = -1", "limits.rate from serve.toml must be a number above 0"),
        ("limits.burst = 0.5", "limits.burst from serve.toml must be a number from 1, got 0.5"),
        ("door.headers = 2.5", "door.headers from serve.toml must be a whole number from 1"),
        ("door.hedaers = 2", "got 'door.hedaers'. Did you mean door.headers?"),
        ("host = ['::']", "host from serve.toml must be text in one line"),
        ("host = ''", "host from serve.toml must be text in one line"),
        ("host = \n", "serve.toml must be TOML (at line 1, column 8)"),
        ("[limits\n", "serve.toml must be TOML (at line 1, column 8)"),
    ],
)
def test_files_that_are_refused(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidParameter) as refused:
        gather(text, path=tmp_path)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"TACIT_PORT": "tcp://10.0.0.1:80"}, "port from TACIT_PORT must be a whole number"),
        ({"TACIT_DOOR_SECONDS": "soon"}, "door.seconds from TACIT_DOOR_SECONDS must be a number"),
        ({"TACIT_LIMITS_RTE": "1"}, "Did you mean TACIT_LIMITS_RATE?"),
    ],
)
def test_variables_that_are_refused(environment: dict[str, str], reason: str) -> None:
    with pytest.raises(errors.InvalidParameter) as refused:
        Settings.gather({}, environment)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        (["limits.rate"], "--set must be NAME=VALUE"),
        (["rate=1"], "must be one of the settings, got 'rate'"),
        (["limits.rate=x"], "limits.rate from --set must be a number above 0"),
        (["door.headers=1", "door.headers=2"], "must be stated once"),
        (["port=1"], "port on the command line must be stated once"),
    ],
)
def test_command_lines_that_are_refused(pairs: list[str], reason: str) -> None:
    with pytest.raises(errors.InvalidParameter) as refused:
        Settings.gather(of_command_line({"port": 5}, pairs), {})
    assert reason in str(refused.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "none.toml", "No such file"), (tmp_path, "Is a directory")):
        with pytest.raises(errors.InvalidParameter, match=reason):
            Settings.gather({}, {}, path)
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 20) + b"#")
    with pytest.raises(errors.InvalidParameter, match="at most 1 MiB"):
        Settings.gather({}, {}, tmp_path / "large.toml")


# --- passwords -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:{PASSWORD}@host/name",
        f"postgresql://host/name?password={PASSWORD}",
        f"nonsense {PASSWORD}",
    ],
)
def test_passwords_are_never_shown(address: str, tmp_path: Path) -> None:
    found = gather(f"db = {json.dumps(address)}", path=tmp_path)
    assert PASSWORD not in json.dumps(found.shown())
    assert PASSWORD not in repr(found)


@pytest.mark.parametrize("line", [f"db = ['{PASSWORD}']", f"db = {PASSWORD}", f"db = '{PASSWORD}"])
def test_refusals_quote_no_password(line: str, tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidParameter) as refused:
        gather(line, path=tmp_path)
    assert PASSWORD not in str(refused.value)
    assert "serve.toml" in str(refused.value)


def test_a_pair_without_a_name_is_not_quoted() -> None:
    with pytest.raises(errors.InvalidParameter) as refused:
        of_command_line({}, [PASSWORD])
    assert PASSWORD not in str(refused.value)


def test_the_password_of_the_database_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a/b@c: d\n")
    found = gather(
        "db = 'postgresql://me@host/name'", path=tmp_path, db_password_file=tmp_path / "password"
    )
    assert settings.make_url(found.database).password == "a/b@c: d"
    assert "a/b" not in json.dumps(found.shown())
    assert gather("db = 'sqlite:///x.db'", path=tmp_path).database == "sqlite:///x.db"
    for db in ("sqlite:///x.db", "nonsense"):
        with pytest.raises(errors.InvalidParameter, match="PostgreSQL"):
            assert gather(
                f"db = '{db}'", path=tmp_path, db_password_file=tmp_path / "password"
            ).database
    with pytest.raises(errors.InvalidParameter, match="a file that this user can read"):
        assert gather(
            "db = 'postgresql://me@host/name'", path=tmp_path, db_password_file=tmp_path / "none"
        ).database


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture(name="served")
def _served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the server would have been started with."""
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        server, "serve", lambda store, listener, **given: seen.append({"to": listener, **given})
    )
    monkeypatch.setattr(server.Listener, "must_be_free", lambda listener: None)
    return seen


def test_the_command_uses_all_places(
    run: Run, served: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(f"db = 'sqlite:///{tmp_path}/a.db'\nshutdown_seconds = 3\ndoor.headers = 9\n")
    monkeypatch.setenv("TACIT_SETTINGS", str(file))
    monkeypatch.setenv("TACIT_DOOR_PER_ADDRESS", "17")
    assert run("campaign", "serve", "--port", 99, "--set", "limits.unknown_rate=2").code == 0
    (given,) = served
    assert given["at_door"] == DoorLimits(headers=9, per_address=17)
    assert given["limits"] == Limits(unknown_rate=2)
    assert (given["to"].port, given["shutdown_seconds"], given["cors"]) == (99, 3, None)
    assert (tmp_path / "a.db").exists()


def test_settings_are_shown_and_nothing_is_started(
    run: Run, served: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TACIT_DB", f"postgresql://me:{PASSWORD}@host/name")
    said = run("campaign", "serve", "--print-settings", "--rate", 5)
    assert PASSWORD not in said.out
    for words in ("postgresql://me:***@host/name", "TACIT_DB", "limits.rate", "--rate", "default"):
        assert words in said.out
    listed = run("campaign", "serve", "--print-settings", "--json").json["settings"]
    assert [one["setting"] for one in listed] == list(KNOWN)
    assert served == []
    assert list(tmp_path.iterdir()) == []


def test_a_database_is_served_without_making_a_campaign(
    run: Run, served: list[Any], mechanism: Any, tmp_path: Path
) -> None:
    db = ("--db", f"sqlite:///{tmp_path}/a.db")
    assert run("campaign", "serve", *db, "--json").json["pages"] == {}
    store = Store.open(db[1])
    campaign, _ = store.create(mechanism, title="A", purpose="B")
    store.engine.dispose()
    said = run("campaign", "serve", *db, "--json").json
    assert said["pages"] == {campaign.id: f"http://127.0.0.1:8000/c/{campaign.id}"}
    assert f"/c/{campaign.id}" in run("campaign", "serve", *db).out
    assert len(served) == 3
    assert len(Store.open(db[1]).campaigns()) == 1


def test_half_a_campaign_is_refused(run: Run, served: list[Any], tmp_path: Path) -> None:
    for more, reason in (
        (("--title", "A"), "ARTIFACT must be given with --title"),
        (("--minimum", 5), "ARTIFACT must be given with --minimum"),
        ((tmp_path,), "--title must be given with ARTIFACT"),
    ):
        said = run("campaign", "serve", *more, "--db", f"sqlite:///{tmp_path}/a.db")
        assert said.code == 2
        assert reason in said.err
    assert served == []
    assert list(tmp_path.iterdir()) == []
