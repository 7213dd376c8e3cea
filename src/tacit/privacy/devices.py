"""The device on which networks are trained: the processor, or a GPU that torch sees."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.random import mtrand

from tacit.privacy import errors


def resolve(where: str, device: str, *, used: bool = True) -> str:
    """Return torch's name of a device that exists.

    Parameters
    ----------
    where : str
        The caller's name, for the message.
    device : str
        "cpu", "cuda", one GPU of several as "cuda:1", or "auto": a GPU if there is one.
    used : bool
        Whether anything will be trained. If not, "auto" means "cpu" and torch is not loaded.

    Examples
    --------
    >>> resolve("fit", "cpu")
    'cpu'
    """
    name = str(device)
    if name == "cpu" or (name == "auto" and not used):
        return "cpu"
    wanted = re.fullmatch(r"cuda(?::(\d{1,4}))?", name)
    if name != "auto" and wanted is None:
        errors.refuse(where, "device", "auto, cpu, cuda or cuda:0, cuda:1, …", device)
    count = _count()
    if wanted is None:
        return "cuda" if count else "cpu"
    if not count:
        reason = "is not installed (pip install 'tacit[learn]')" if count is None else "sees no GPU"
        remedy = f"For a GPU, check its driver and that torch is built for it: torch {reason}."
        errors.refuse(where, "device", "cpu or auto on this machine", device, remedy)
    if int(wanted[1] or 0) >= count:
        errors.refuse(where, "device", f"below cuda:{count}, as there are {count} GPUs", device)
    return name


def _count() -> int | None:
    """Return the number of GPUs that torch sees; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Seed the global generators of torch, numpy and Python; restore them afterwards."""
    import torch

    # torch.random.fork_rng and torch.manual_seed would cost as much as a client's step.
    torch_before, python_before = torch.get_rng_state(), random.getstate()
    numpy_before = mtrand.get_bit_generator()
    cuda_before = torch.cuda.get_rng_state(device) if device.startswith("cuda") else None
    try:
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        mtrand.set_bit_generator(np.random.MT19937(seed))
        if cuda_before is not None:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield
    finally:
        torch.set_rng_state(torch_before)
        random.setstate(python_before)
        mtrand.set_bit_generator(numpy_before)
        if cuda_before is not None:
            torch.cuda.set_rng_state(cuda_before, device)
