"""Products in full precision, whatever the caller has set."""

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
    """Compute products in full precision, with kernels that only the shapes decide.

    No outer setting lowers the precision. `torch.autocast` would measure norms in bfloat16 and add
    up in float64. TF32 or bfloat16 within float32, the default of torch for convolutions on CUDA,
    shortens both factors of a product to 11 bits or fewer; a summed gradient may then be longer by
    2^-10 than the norm by which it was clipped, for which `Schedule.rounding` has no room. cuDNN
    algorithms are neither chosen by timing nor free to add in the order of arrival: either would
    change the last bits of a row's gradient from run to run.
    """
    with ExitStack() as stack:
        for device in _DEVICES:
            stack.enter_context(torch.autocast(device, enabled=False))
        kept = _Float32Settings()
        stack.callback(kept.put_back)
        kept.switch_off()
        yield


class _Float32Settings:
    """Torch's settings for float32: the global one, and since 2.9 one for each kind of product."""

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
        # The settings of each kind come last, because the global one overwrites them.
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic, _ = cudnn
        torch.backends.cudnn.benchmark = cudnn[2]
        if self._put is not None:
            for one, kind in zip(_PRODUCTS, kinds, strict=True):
                self._put(*one, kind)


def _read(setting: Callable[[], _T], usual: _T) -> _T:
    """Return a global setting, which torch refuses to report if the kinds differ."""
    try:
        return setting()
    except RuntimeError:
        return usual
