"""The owner's desk from Python: drafts, days, papers and exports of one campaign."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.apps.service.connection import Connection, read_object, to_json
from tacit.apps.service.papers import Paper
from tacit.privacy import errors

EXPORTS = (".csv", ".parquet", ".png")


@dataclass(frozen=True)
class Desk:
    """What an owner does beside collecting; `Client.desk` makes it with the owner's key."""

    _connection: Connection
    _key: str

    def edit(self, **changes: Any) -> dict[str, Any]:
        """Change what people will be told about a draft; return its description.

        `changes` are those of title, purpose, question, opens, closes, minimum, quota and about
        that are to change, as JSON values; of `about`, what is left out stays.
        """
        return self._post("/draft", {"changes": changes})

    def open(self) -> dict[str, Any]:
        """Open a draft, which then takes answers and stays as it is; return its description."""
        return self._post("/open", {})

    def timeline(self) -> dict[str, Any]:
        """Return how many were invited, opened the page, answered and withdrew, over time."""
        return self._get("/timeline")

    def robust(self, forged: int, confidence: float = 0.95) -> dict[str, Any]:
        """Return shares with intervals that hold if at most so many reports are forged."""
        content = self._connection.get(
            "/robust", bearer=self._key, forged=forged, confidence=confidence
        )
        return read_object(content)

    def export(self, path: Path, confidence: float = 0.95) -> Path:
        """Write all estimates to a new file: .csv, .parquet, or a picture of them as .png."""
        if path.suffix not in EXPORTS:
            errors.refuse("export", "file", f"one of {', '.join(EXPORTS)}", path.name)
        content = self._connection.get(
            f"/results{path.suffix}", bearer=self._key, confidence=confidence
        )
        with path.open("xb") as file:
            file.write(content)
        return path

    def record(self) -> Paper:
        """Return the record of processing (GDPR, article 30), from the campaign's settings."""
        return Paper.from_plain(self._get("/record"))

    def _get(self, path: str) -> dict[str, Any]:
        return read_object(self._connection.get(path, bearer=self._key))

    def _post(self, path: str, content: dict[str, Any]) -> dict[str, Any]:
        return self._connection.post(path, to_json(content), bearer=self._key)
