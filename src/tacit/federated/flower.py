"""All uses of Flower's private interfaces, in one place.

The rest uses only what Flower documents: `ClientApp`, `ServerApp`, `Strategy`, `Grid`, `Message`
and the records. What is here may break with a new version of Flower; nothing else should.

Importing this module turns off Flower's telemetry and its check for updates, for this process and
those that it starts.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

OFFLINE: Mapping[str, str] = MappingProxyType(
    {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray's own next default; else it warns
    }
)
"""Environment variables for Flower and Ray: a run installs nothing and reports to nobody."""
PROMPT: Mapping[str, str] = MappingProxyType({"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"})
"""Makes Flower's processes poll for work five times a second instead of once."""
HUSHED: Mapping[str, str] = MappingProxyType({"FLWR_LOG_LEVEL": "WARNING"})
"""Keeps out of a SuperLink's log who replied when, which a guarantee for clients hides."""
os.environ.update(OFFLINE)  # before the import: Flower reads them then

from flwr.app import (  # noqa: E402
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp  # noqa: E402
from flwr.common.constant import ErrorCode  # noqa: E402
from flwr.serverapp import ServerApp  # noqa: E402
from flwr.supercore.run import Run as Run  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

_NUMPY = "numpy.ndarray"  # Flower's name for bytes as numpy.save writes them
_PLAIN = frozenset("fiub")  # numbers and bits: no objects, strings or dates


@contextmanager
def identity(run_id: int) -> Iterator[None]:
    """Allow messages to be created outside Flower's own runs, as by the server of this run."""
    names = ("_task_id", "_run_id", "_node_id")
    before = [getattr(TaskIdentity, name) for name in names]
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = run_id, run_id, 1
    try:
        yield
    finally:
        for name, value in zip(names, before, strict=True):
            setattr(TaskIdentity, name, value)


@contextmanager
def quiet(level: int = logging.ERROR) -> Iterator[None]:
    """Keep Flower's log off the screen below this level."""
    logger = logging.getLogger("flwr")
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)


def empty_run(run_id: int) -> Run:
    """Create a run that nobody registered; workflows ask a grid for one."""
    return Run.create_empty(run_id)


def delivered(message: Message, message_id: str) -> Message:
    """Return a message as its receiver gets it: with an id, and with its own copy of the records.

    Bytes are shared, since they are immutable; names and values are copied, since mods change them.
    """
    message.metadata.__dict__["_message_id"] = message_id
    records = {name: _copied(record) for name, record in message.content.items()}
    copy = Message.__new__(Message)
    copy.__dict__.update(_metadata=message.metadata, _content=content(records), _error=None)
    return copy


def content(records: Mapping[str, ArrayRecord | ConfigRecord | MetricRecord]) -> RecordDict:
    """Build the content of a message from records, without Flower's type check of each."""
    built = RecordDict()
    built.__dict__["_data"] = dict(records)
    return built


def failure(message: Message, error: Exception) -> Message:
    """Build the reply of a node whose app raised, in Flower's wording."""
    reason = f"{type(error)}:<'{error}'>"
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def array_record(arrays: Mapping[str, npt.NDArray[Any]]) -> ArrayRecord:
    """Convert arrays to Flower's record, in numpy's file format."""
    converted = {}
    for name, array in arrays.items():
        # The same bytes as Flower's own constructor, whose header costs more than a small array.
        kind, header = _header(array.dtype, array.shape)
        converted[name] = _array(kind, array.shape, _NUMPY, header + array.tobytes())
    return _record(converted)


def read_arrays(record: ArrayRecord) -> dict[str, npt.NDArray[Any] | None]:
    """Read the arrays of an untrusted record; None for one that cannot be read."""
    return {name: _read(array) for name, array in record.items()}


def simulate(server: ServerApp, client: ClientApp, nodes: int, cpus: int = 1) -> Context:
    """Run both apps in Flower's own simulation, on Ray."""
    from flwr.simulation.run_simulation import _run_simulation
    from flwr.supercore.telemetry import EventType

    resources = {"client_resources": {"num_cpus": cpus, "num_gpus": 0.0}}
    return _run_simulation(
        num_supernodes=nodes,
        client_app=client,
        server_app=server,
        backend_config=resources,  # type: ignore[arg-type]
        exit_event=EventType.PYTHON_API_RUN_SIMULATION_LEAVE,
    ).context


def _copied(record: Any) -> Any:
    if not isinstance(record, ArrayRecord):
        return record.copy()
    return _record(
        {name: _array(one.dtype, one.shape, one.stype, one.data) for name, one in record.items()}
    )


def _record(arrays: dict[str, Array]) -> ArrayRecord:
    """Build a record of arrays, without Flower's type check of each."""
    record = ArrayRecord()
    record.__dict__["_data"] = arrays
    return record


def _array(dtype: str, shape: tuple[int, ...], stype: str, data: bytes) -> Array:
    """Build an array as its constructor does, without its ten type checks."""
    array = Array.__new__(Array)
    array.__dict__.update(dtype=dtype, shape=shape, stype=stype, data=data)
    return array


@lru_cache(maxsize=1024)
def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[str, bytes]:
    buffer = BytesIO()
    described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, described)
    return dtype.name, buffer.getvalue()


def _read(array: Array) -> npt.NDArray[Any] | None:
    data = array.data
    if array.stype != _NUMPY or len(data) < 10:
        return None
    start = 10 + int.from_bytes(data[8:10], "little")
    described = _described(data[:start])
    if described is None:
        return None
    shape, dtype, fortran = described
    count = math.prod(shape)
    if len(data) - start != count * dtype.itemsize:
        return None
    try:
        flat = np.frombuffer(data, dtype, count, start)
        return flat.reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError):  # more or larger dimensions than numpy supports
        return None


@lru_cache(maxsize=1024)
def _described(header: bytes) -> tuple[tuple[int, ...], np.dtype[Any], bool] | None:
    """Read shape, type and order from a header of version 1; None for any other header."""
    try:
        stream = BytesIO(header)
        if np.lib.format.read_magic(stream) != (1, 0):
            return None
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception:  # an untrusted header may raise TokenError, MemoryError or RecursionError
        return None
    if dtype.kind not in _PLAIN or any(size < 0 for size in shape):
        return None
    return shape, dtype, fortran
