"""Release of a table: on this machine, or on the workers of a Ray cluster.

Both engines run the function `reports_of` over the parts of a table, with the same artifact and the
same checks; every worker draws noise from the entropy of its own operating system. With Ray every
part is read by the worker that releases it: raw rows enter neither Ray's object store nor its logs,
and only reports come back, in the order of the rows.
"""

from __future__ import annotations

import io
import logging
import os
import secrets
import socket
import sys
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.data import tables
from tacit.local.persons import ASSUMED_ONE, PerPerson, chosen
from tacit.local.report_files import Columns
from tacit.local.reports import Reports
from tacit.privacy import artifact, errors

ENGINES = ("local", "ray")

_SILENT = logging.CRITICAL + 1


def parts(data: Path) -> list[Path]:
    """List the files of a table: one, or the Parquet parts of a folder, sorted by name."""
    if not data.is_dir():
        return [data]
    files = [path for path in sorted(data.glob("*.parquet")) if path.name[0] not in "._"]
    if not files:
        remedy = "Name them *.parquet."
        errors.refuse("data", "folder", "one that holds Parquet parts", str(data), remedy)
    # Engines that write such folders may leave parts without rows.
    return [path for path in files if tables.count(path) != 0] or files


def count(files: Sequence[Path]) -> int | None:
    """Count the rows of all files if their metadata states them, else return None."""
    counts = [tables.count(path) for path in files]
    return None if None in counts else sum(filter(None, counts))


@dataclass(frozen=True)
class Persons:
    """The column that names people, and the rows of each file that were drawn."""

    column: str
    per_person: PerPerson
    kept: tuple[npt.NDArray[np.bool_], ...]

    @classmethod
    def drawn(cls, files: Sequence[Path], schema: Any, column: str, limit: PerPerson) -> Persons:
        """Read the names alone, in all files, and draw each person's rows."""
        names, sizes, kinds = [], [], set()
        for path in files:
            own: list[Any] = []
            for batch in tables.batches(path, schema, words=(column,)):
                must_be_column(path, column, batch.schema.names)
                kinds.add(_kind(path, column, batch.schema.field(column).type))
                own += batch.column(column).to_pylist()
            names += own
            sizes.append(len(own))
        kept = chosen(_alike(names, kinds, column), limit.most, where="privatize")
        return cls(column, limit, tuple(np.split(kept, np.cumsum(sizes)[:-1])))

    @property
    def count(self) -> int:
        """How many rows were drawn."""
        return int(sum(one.sum() for one in self.kept))


def must_be_column(path: Path, column: str, names: Sequence[str]) -> None:
    """Refuse a column of names that a file does not have."""
    if column not in names:
        remedy = "Check that it has a header."
        errors.refuse("privatize", "--person", f"a column of {path}", column, remedy)


def _kind(path: Path, column: str, kind: Any) -> str:
    """Return what the names of a file are, by its declared type: no name decides it."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "words"
    if types.is_integer(kind):
        return "whole numbers"
    if types.is_float64(kind):
        return "numbers"
    if types.is_null(kind):
        return "none"
    wanted = f"a column of {path} with words or numbers"
    errors.refuse("privatize", "--person", wanted, f"{column} ({kind})")


def _alike(names: list[Any], kinds: set[str], column: str) -> list[Any]:
    """Return names by which a person is the same in all files, or refuse."""
    if "words" in kinds and kinds & {"whole numbers", "numbers"}:
        remedy = "Write words everywhere."
        errors.refuse("privatize", "--person", "of one type in all files", column, remedy)
    # A file with a missing name often holds floats: large numbers are rounded there.
    return [one if one is None else float(one) for one in names] if "numbers" in kinds else names


def release(
    engine: str,
    mechanism: Any,
    files: Sequence[Path],
    label: str | None,
    persons: Persons | None = None,
) -> Generator[Reports, None, None]:
    """Yield the reports of all rows, in batches and in order; close the generator when done.

    Parameters
    ----------
    engine : {"local", "ray"}
        Ray uses the cluster of this program, or of `RAY_ADDRESS`, or a local one for this run.
    mechanism
        A fitted mechanism.
    files : sequence of Path
        CSV or Parquet; every worker of the cluster must see them under the same path.
    label : str, optional
        The column that holds the label, if it is reported too.
    persons : Persons, optional
        Whose row each is, and which rows of a person are reported; by default all rows are.
    """
    kept = [None] * len(files) if persons is None else list(persons.kept)
    column = None if persons is None else persons.column
    per_person = ASSUMED_ONE if persons is None else persons.per_person
    for reports in _released(engine, mechanism, files, label, column, kept):
        yield replace(reports, per_person=per_person)


def _released(
    engine: str,
    mechanism: Any,
    files: Sequence[Path],
    label: str | None,
    column: str | None,
    kept: Sequence[npt.NDArray[np.bool_] | None],
) -> Generator[Reports, None, None]:
    if errors.choice("privatize", "engine", engine, ENGINES) == "ray":
        yield from _on_ray(mechanism, files, label, column, kept)
        return
    for path, own in zip(files, kept, strict=True):
        yield from reports_of(mechanism, path, label, column, own)


def reports_of(
    mechanism: Any,
    path: Path,
    label: str | None,
    column: str | None = None,
    kept: npt.NDArray[np.bool_] | None = None,
) -> Iterator[Reports]:
    """Yield the reports of one file's rows, or of those that were kept; errors name the file.

    Other rows, and the names in `column`, are dropped before anything is computed from them.
    """
    outcome = getattr(mechanism, "outcome", None)
    told = tables.words_of(mechanism.classes, label) if outcome is None else label
    words = [one for one in (told, column) if one]
    begin = 0
    for batch in tables.batches(path, mechanism.schema, words=words):
        if kept is not None:
            own = kept[begin : begin + batch.num_rows]
            begin += batch.num_rows
            batch = _only(batch, own, column)
        if not batch.num_rows:
            continue
        rows, labels = tables.split_label(batch, label, path)
        with tables.naming(path):
            if labels is not None:
                labels = _told(mechanism, labels, f"column {label!r}")
            released = mechanism.release(rows, labels)
        yield released


def _only(batch: Any, kept: npt.NDArray[np.bool_], column: str | None) -> Any:
    """Keep these rows, without the column of names."""
    import pyarrow as pa

    return batch.filter(pa.array(kept)).drop_columns([column])


def _told(mechanism: Any, values: Any, where: str) -> Any:
    """Convert the labels or outcomes of a file to what the mechanism takes."""
    if getattr(mechanism, "outcome", None) is not None:
        return tables.as_numbers(values, where)
    return tables.as_classes(values, mechanism.classes, where)


# --- on a Ray cluster ------------------------------------------------------------------------


def _on_ray(
    mechanism: Any,
    files: Sequence[Path],
    label: str | None,
    column: str | None,
    kept: Sequence[npt.NDArray[np.bool_] | None],
) -> Generator[Reports, None, None]:
    paths = [str(path.absolute()) for path in files]
    chosen_bytes = [b"" if one is None else one.tobytes() for one in kept]
    items = [
        {"part": index, "path": path, "kept": own}
        for index, (path, own) in enumerate(zip(paths, chosen_bytes, strict=True))
    ]
    settings = {"packed": artifact.pack(mechanism), "label": label, "column": column}
    with _cluster() as ray:
        data = ray.data.from_items(items, override_num_blocks=len(items))
        data = data.map_batches(
            _released_part, fn_kwargs=settings, batch_size=1, batch_format="pyarrow"
        )
        data.context.execution_options.preserve_order = True
        data.context.enable_progress_bars = False
        try:
            before = (-1, 0)
            for part, batch, refusal, packed in _arrived(data):
                if refusal:
                    raise errors.InvalidData(refusal.replace(paths[part], str(files[part])))
                _must_follow(before, (part, batch))
                before = (part, batch)
                yield Reports(mechanism, _unpacked(packed), mechanism.channel(label is not None))
            _must_follow(before, (len(files), 0))
        finally:
            del data  # which also stops what still runs


def _must_follow(before: tuple[int, int], now: tuple[int, int]) -> None:
    """Refuse batches that Ray repeated, as a row must be released once, and batches it lost."""
    if now not in ((before[0], before[1] + 1), (before[0] + 1, 0)):
        raise errors.TacitError("privatize: Ray repeated or lost a part. Run it again.")


def _arrived(data: Any) -> Iterator[tuple[int, int, str, bytes]]:
    for block in data.iter_batches(batch_size=None, batch_format="pyarrow"):
        yield from (tuple(row.values()) for row in block.to_pylist())


def _released_part(
    given: Any, packed: bytes, label: str | None, column: str | None = None
) -> Iterator[Any]:
    """Release one part on a worker: yield a line per batch of reports, or one with the error.

    Errors are returned as values, because Ray would log them with whatever they quote. Only our own
    messages are known to quote no data.
    """
    (item,) = given.to_pylist()
    part, path, batch = item["part"], Path(item["path"]), -1
    kept = None if column is None else np.frombuffer(item["kept"], bool)
    try:
        mechanism = artifact.unpack(packed, "privatize")
        for batch, reports in enumerate(reports_of(mechanism, path, label, column, kept)):
            yield _line(part, batch, "", _packed(reports.columns))
    except errors.TacitError as error:
        yield _line(part, batch + 1, str(error), b"")
    except Exception as error:
        reason = f"{path}: a worker failed with {type(error).__name__}. Try --engine local."
        yield _line(part, batch + 1, reason, b"")


def _line(part: int, batch: int, refusal: str, packed: bytes) -> Any:
    import pyarrow as pa

    return pa.table(
        {"part": [part], "batch": [batch], "refusal": [refusal], "reports": pa.array([packed])}
    )


def _packed(columns: Columns) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **columns)  # type: ignore[arg-type]
    return buffer.getvalue()


def _unpacked(packed: bytes) -> Columns:
    with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
        return dict(arrays)


@contextmanager
def _cluster() -> Iterator[Any]:
    """Connect Ray to this program's cluster, else to RAY_ADDRESS, else to a local one."""
    ray = _ray()
    with _quiet():
        started = not ray.is_initialized()
        if started:
            _start(ray)
        try:
            yield ray
        except ray.exceptions.RayError as error:
            # Its message may contain data; its logs stay on the cluster.
            raise errors.TacitError(
                f"privatize: Ray stopped with {type(error).__name__}. See its logs."
            ) from None
        finally:
            if started:
                ray.shutdown()


def _start(ray: Any) -> None:
    address = _address()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {} if address else {"include_dashboard": False}
    try:
        _must_answer(address or "local")
        ray.init(address=address or "local", log_to_driver=False, logging_level=_SILENT, **options)
    except (OSError, RuntimeError, ValueError) as error:
        where = f"at RAY_ADDRESS={address}" if address else "on this machine"
        raise errors.TacitError(
            f"privatize: a Ray cluster must answer {where}, got {type(error).__name__}. "
            "Start one, or use --engine local."
        ) from None


def _must_answer(address: str) -> None:
    """Check that the address answers: Ray itself would retry for minutes."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Ray's loggers and its deprecation warnings."""
    loggers = [logging.getLogger(name) for name in ("ray", "ray.data")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(_SILENT)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _address() -> str | None:
    """Return the address of an existing cluster; "local" means a new one."""
    address = os.environ.get("RAY_ADDRESS", "")
    return None if address in ("", "local") else address


def _lock() -> None:
    """Require a fresh token to join our own cluster, which listens on the network.

    Ray reads these variables when it is imported, so they must be set before, and stay set.
    """
    if _address() or os.environ.get("RAY_AUTH_MODE") == "token":
        return
    if sys.modules.get("ray") is None:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    elif not sys.modules["ray"].is_initialized():
        raise errors.TacitError(
            "privatize: Ray must be started by you, as it was imported before, with RAY_AUTH_MODE="
            "token against strangers on the network. Call ray.init, or use --engine local."
        )


def _ray() -> Any:
    _lock()
    try:
        import ray
        import ray.data
    except ImportError:
        raise errors.TacitError(
            "privatize: --engine ray needs the ray package. pip install 'tacit[ray]'."
        ) from None
    return ray
