"""Everything private of Flower that this library touches, in one place.

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
"""What Flower and Ray read from the environment. A run installs nothing and tells nobody."""
PROMPT: Mapping[str, str] = MappingProxyType({"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"})
"""Lets Flower's processes look for work five times a second, not once."""
HUSHED: Mapping[str, str] = MappingProxyType({"FLWR_LOG_LEVEL": "WARNING"})
"""Lets a SuperLink's log leave out who answered when: a guarantee for clients hides it."""
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
_PLAIN = frozenset("fiub")  # numbers and bits: no objects, texts or dates


@contextmanager
def identity(run_id: int) -> Iterator[None]:
    """Let messages be made outside a run of Flower's own, as those of a server with this run."""
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
    """A run that nobody registered; workflows ask a grid for one."""
    return Run.create_empty(run_id)


def delivered(message: Message, message_id: str) -> Message:
    """A message as its receiver gets it: with an id, and records that are the receiver's own.

    Bytes are shared, since nobody can change them; names and values are copied, since mods do.
    """
    message.metadata.__dict__["_message_id"] = message_id
    records = {name: _copied(record) for name, record in message.content.items()}
    copy = Message.__new__(Message)
    copy.__dict__.update(_metadata=message.metadata, _content=content(records), _error=None)
    return copy


def content(records: Mapping[str, ArrayRecord | ConfigRecord | MetricRecord]) -> RecordDict:
    """What a message holds, of records that are known to be some: without a check of each."""
    made = RecordDict()
    made.__dict__["_data"] = dict(records)
    return made


def failure(message: Message, error: Exception) -> Message:
    """The reply of a node whose app raised, as Flower words it."""
    reason = f"{type(error)}:<'{error}'>"
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)


def array_record(arrays: Mapping[str, npt.NDArray[Any]]) -> ArrayRecord:
    """Arrays as Flower carries them: in numpy's own file format."""
    made = {}
    for name, array in arrays.items():
        # The same bytes as Flower's own constructor, whose header costs more than a small array.
        kind, header = _header(array.dtype, array.shape)
        made[name] = _array(kind, array.shape, _NUMPY, header + array.tobytes())
    return _record(made)


def read_arrays(record: ArrayRecord) -> dict[str, npt.NDArray[Any] | None]:
    """Arrays of a record that anyone may have written; None where one cannot be read."""
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
    """A record of arrays that are known to be some, without a check of each."""
    record = ArrayRecord()
    record.__dict__["_data"] = arrays
    return record


def _array(dtype: str, shape: tuple[int, ...], stype: str, data: bytes) -> Array:
    """An array as its constructor makes it, without ten checks of types that are known."""
    made = Array.__new__(Array)
    made.__dict__.update(dtype=dtype, shape=shape, stype=stype, data=data)
    return made


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
    found = _described(data[:start])
    if found is None:
        return None
    shape, dtype, fortran = found
    count = math.prod(shape)
    if len(data) - start != count * dtype.itemsize:
        return None
    try:
        flat = np.frombuffer(data, dtype, count, start)
        return flat.reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError):  # more dimensions, or larger ones, than there can be
        return None


@lru_cache(maxsize=1024)
def _described(header: bytes) -> tuple[tuple[int, ...], np.dtype[Any], bool] | None:
    """Shape, type and order from a header of version 1; None where it is another one, or none."""
    try:
        stream = BytesIO(header)
        if np.lib.format.read_magic(stream) != (1, 0):
            return None
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception:  # a stranger's header: TokenError, MemoryError and RecursionError too
        return None
    if dtype.kind not in _PLAIN or any(size < 0 for size in shape):
        return None
    return shape, dtype, fortran
