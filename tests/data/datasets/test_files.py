"""Files are found in their places, fetched whole and right, or asked for in one line."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tacit.data.datasets import files
from tacit.data.datasets.files import File, MissingFile
from tacit.privacy import errors

CONTENT = bytes(range(256)) * 1000


class Home(BaseHTTPRequestHandler):
    """Publishes a file, and some that are broken in their own ways."""

    def do_GET(self) -> None:
        body = {"/whole/a.gz": CONTENT, "/other/a.gz": CONTENT[::-1]}.get(self.path)
        body = CONTENT * 2 if self.path == "/long/a.gz" else body
        if self.path == "/cut/a.gz":
            self._answer(CONTENT[:1000], len(CONTENT))
        elif body is None:
            self.send_error(404)
        else:
            self._answer(body, len(body))

    def _answer(self, body: bytes, length: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Home) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def file_at(*homes: str) -> File:
    return File("toy", "a.gz", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), homes)


def test_a_file_is_fetched_once_and_kept(bare: Path, server: str) -> None:
    seen: list[tuple[str, int, int | None]] = []
    file = file_at(f"{server}/whole/")
    assert file.content(progress=lambda *step: seen.append(step)) == CONTENT
    assert [path.name for path in bare.rglob("*") if path.is_file()] == ["a.gz"]
    assert seen[-1] == ("a.gz", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
    nowhere = dataclasses.replace(file, homes=("http://127.0.0.1:9/",))
    assert nowhere.content() == CONTENT


def test_the_second_home_is_asked_when_the_first_fails(bare: Path, server: str) -> None:
    assert file_at(f"{server}/none/", f"{server}/cut/", f"{server}/whole/").content() == CONTENT


@pytest.mark.parametrize(
    ("home", "reason"),
    [
        ("cut", "sent 1,000 of 256,000 bytes"),
        ("other", "sent a file with another checksum"),
        ("long", "sent a file with another checksum"),
        ("none", "answered 404"),
    ],
)
def test_what_is_not_right_is_not_kept(bare: Path, server: str, home: str, reason: str) -> None:
    with pytest.raises(MissingFile) as caught:
        file_at(f"{server}/{home}/").content()
    line = str(caught.value)
    assert line == (
        f"toy: a.gz must be in $TACIT_DATA/toy (TACIT_DATA is not set) or in {bare / 'toy'}, got "
        f"no such file; {server}/{home}/ {reason}. Get it from {server}/{home}/a.gz."
    )
    assert not bare.parent.exists()


def test_without_a_network_the_file_is_asked_for(bare: Path) -> None:
    with pytest.raises(MissingFile, match=r"http://127\.0\.0\.1:9/ cannot be reached\. Get it"):
        file_at("http://127.0.0.1:9/").content()
    assert not bare.parent.exists()


def test_without_fetching_nobody_is_asked(bare: Path, server: str) -> None:
    with pytest.raises(MissingFile, match=r"got no such file\. Get it from"):
        file_at(f"{server}/whole/").content(fetch=False)
    assert not bare.parent.exists()


def test_given_data_come_before_the_cache(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path / "given"))
    places = [tmp_path / "given" / "toy" / "a.gz", bare / "toy" / "a.gz"]
    for place in places:
        place.parent.mkdir(parents=True)
        place.write_bytes(CONTENT)
    assert files.find("toy", ["a.gz"]) == places[0]
    places[0].unlink()
    assert files.find("toy", ["a.gz"]) == places[1]
    places[1].unlink()
    with pytest.raises(MissingFile, match=f"must be in {places[0].parent} or in"):
        file_at("http://127.0.0.1:9/").content(fetch=False)


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT[::-1]])
def test_a_damaged_file_on_disk_is_named(bare: Path, server: str, content: bytes) -> None:
    path = bare / "toy" / "a.gz"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(errors.InvalidData) as caught:
        file_at(f"{server}/whole/").content()
    assert f"{path} must be the published file of 256,000 bytes, got" in str(caught.value)
    assert f"{server}/whole/a.gz." in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_a_cache_that_cannot_be_written_is_one_line(bare: Path, server: str) -> None:
    bare.parent.mkdir()
    bare.write_text("a file where the folder should be")
    with pytest.raises(errors.TacitError, match="the cache directory must be writable, got"):
        file_at(f"{server}/whole/").content()


def test_every_system_has_its_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    for system, folder in (
        ("Linux", "/home/me/.cache/tacit"),
        ("Darwin", "/home/me/Library/Caches/tacit"),
        ("Windows", "/local/tacit"),
    ):
        monkeypatch.setattr("platform.system", lambda system=system: system)
        assert files.cache() == Path(folder)
