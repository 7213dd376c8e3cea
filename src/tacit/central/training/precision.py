"""Products in whole precision, whatever the surroundings ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import torch

_PRODUCTS = [
    *(("cuda", kind) for kind in ("matmul", "conv", "rnn")),
    *(("mkldnn", kind) for kind in ("matmul", "conv", "rnn")),
]
_DEVICES = ("cpu", "cuda")

_T = TypeVar("_T")


@contextmanager
def whole_products() -> Iterator[None]:
    """Compute products in whole precision, by kernels that the shapes alone choose.

    Nothing around it lowers the precision. `torch.autocast` would measure norms in bfloat16 and add
    up in float64. TF32 or bfloat16 within float32, which torch has for convolutions on CUDA by
    default, shortens both factors of a product to 11 digits or fewer, and what is summed may then
    be longer by 2^-10 than the norm that it was clipped by, for which `Schedule.rounding` has no
    room. Nor are cuDNN algorithms chosen by a race, or free to add up in the order of arrival: with
    those a row's gradient changes its last bits from run to run.
    """
    with ExitStack() as stack:
        for device in _DEVICES:
            stack.enter_context(torch.autocast(device, enabled=False))
        kept = _Settings()
        stack.callback(kept.put_back)
        kept.switch_off()
        yield


class _Settings:
    """What torch is asked to do with float32 on the whole, and since 2.9 for each kind apart."""

    def __init__(self) -> None:
        self._get = getattr(torch._C, "_get_fp32_precision_getter", None)
        self._put = getattr(torch._C, "_set_fp32_precision_setter", None)
        self._kinds = [self._get(*one) for one in _PRODUCTS] if self._get else []
        cudnn = torch.backends.cudnn
        self._matmul = _read(torch.get_float32_matmul_precision, "highest")
        tf32 = _read(lambda: cudnn.allow_tf32, True)
        self._cudnn = tf32, cudnn.deterministic, cudnn.benchmark

    def switch_off(self) -> None:
        self._set("highest", (False, True, False), ["ieee"] * len(self._kinds))

    def put_back(self) -> None:
        self._set(self._matmul, self._cudnn, self._kinds)

    def _set(self, matmul: str, cudnn: tuple[bool, bool, bool], kinds: list[str]) -> None:
        # The settings for each kind come last: those on the whole write over them.
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic, _ = cudnn
        torch.backends.cudnn.benchmark = cudnn[2]
        if self._put is not None:
            for one, kind in zip(_PRODUCTS, kinds, strict=True):
                self._put(*one, kind)


def _read(setting: Callable[[], _T], usual: _T) -> _T:
    """Return a setting on the whole, which torch refuses to tell where kinds have their own."""
    try:
        return setting()
    except RuntimeError:
        return usual
