r"""One private step: a Poisson sample, its clipped gradients, their sum with noise.

.. math:: \tilde g = \frac{1}{qn}\Big(\sum_{i \in B} g_i \min(1, C/\|g_i\|) + \mathcal{N}(0,
          \sigma^2 C^2 I)\Big)

This is all that any optimiser sees of the data: torch's in `training.train`, or the local steps of
a federated algorithm in a silo. `Schedule.layout` draws the sample and assigns its records to the
slots of a fixed layout; the proof is there.

References
----------
.. [ACG16] Abadi et al. Deep learning with differential privacy. CCS 2016.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tacit.central.training import probing
from tacit.central.training.clipping import Clipper
from tacit.central.training.kinds import Bounding, Steady
from tacit.central.training.noise import Noise
from tacit.central.training.precision import whole_products
from tacit.central.training.ranks import Ranks, of_first, together
from tacit.central.training.scaling import Clipped, Tally
from tacit.central.training.schedule import Schedule
from tacit.privacy import errors
from tacit.privacy.randomness import Randomness

_STATE_BYTES, _STATE_WORDS = 5056, 624  # the state of torch's Mersenne twister

_IN_RANGE = (
    "Labels and indices of all records are in range. On a CUDA device, one that is out of range "
    "ends the process, which reveals that it is there."
)


@dataclass
class NoisyGradients:
    """Noisy mean gradients of a module at its current weights, each on a fresh sample.

    Parameters
    ----------
    clipper : Clipper
        The clipper of the module and its loss, checked by `probing.clipper`.
    rows : tuple of Tensor
        All records, on the first axis.
    noise : Noise
        Noise of standard deviation σC, or as `kinds` has it.
    plan : Schedule
        Decides who is sampled and what a sum is divided by; it does not count draws.
    bounding : Bounding or float
        How gradients are bounded (`kinds`); a number stands for flat clipping to C minus what
        rounding may add, `clip_norm_within`.
    microbatch : int, optional
        Largest number of examples at a time.
    loaded : iterator, optional
        The blocks of each draw in turn, if records are loaded; `rows` then has none, and only
        says what a record looks like.
    ranks : Ranks, optional
        The processes that share a training (`ranks`); `rows` or `loaded` are the part of this one.

    Notes
    -----
    Blanking one record moves the sum by at most C, whatever the weights are. So T draws, each at
    weights that depend on earlier draws and on nothing else of the data, are T Gaussians with
    multiplier σ on Poisson samples [ACG16]_, for zero-out neighbours.

    How gradients are computed is decided here, before any record is read, on made-up rows of
    exactly the shape that will run; modules whose rows cannot be kept apart are refused.
    """

    clipper: Clipper
    rows: tuple[Tensor, ...]
    noise: Noise
    plan: Schedule
    bounding: Bounding | float
    microbatch: int | None = None
    loaded: Iterator[Iterable[tuple[Tensor, ...]]] | None = None
    ranks: Ranks | None = None
    dropped: int = 0
    """Examples that were not finite, counted each time they were sampled. In-house only."""
    _open: bool = field(default=False, init=False, repr=False)

    @property
    def _bounding(self) -> Bounding:
        given = self.bounding
        return Steady(Clipped((given,)), given) if isinstance(given, int | float) else given

    def __post_init__(self) -> None:
        self._secret = SecretDraws(self.noise.stream, self.rows[0].device)
        self.clipper.prepare(self.part.slots, self.microbatch)

    @property
    def part(self) -> Schedule:
        """The part of the plan that this process carries out."""
        return self.plan if self.ranks is None else self.plan.part(self.ranks.rank)

    def draw(self) -> Tensor:
        """Draw a flat gradient in the order of the trained parameters; only within `drawing`."""
        if not self._open:
            raise errors.TacitError(
                f"{self.clipper.where}: draws must be within `drawing`. Use it as a context."
            )
        if self.loaded is not None:
            step = self.clipper.block_size(self.part.slots, self.microbatch)
            scaling = self._bounding.scaling
            return self._noisy(*self.clipper.tallied_blocks(next(self.loaded), step, scaling))
        plan = self.part
        chosen, slots = (one.to(self.rows[0].device) for one in plan.layout(self.noise.stream))
        batch = tuple(_placed(part, chosen, slots, plan.slots) for part in self.rows)
        present = torch.zeros(plan.slots, dtype=torch.bool, device=chosen.device)
        present[slots] = True
        return self._of(batch, present)

    def of(self, batch: tuple[Tensor, ...]) -> Tensor:
        """Do the same on a batch that the caller has sampled."""
        return self._of(tuple(part.clone() for part in batch), None)

    def _of(self, batch: tuple[Tensor, ...], present: Tensor | None) -> Tensor:
        scaling = self._bounding.scaling
        return self._noisy(*self.clipper.tallied(batch, scaling, self.microbatch, present))

    def _noisy(self, sums: Tensor, tally: Tally) -> Tensor:
        self.dropped += tally.dropped
        bounding, ranks, size = self._bounding, self.ranks, self.plan.expected_size
        if ranks is None:
            self.noise.add_to(sums, size)
        else:
            sums, tally = together(ranks, sums, tally, self.noise, size)
        bounding.finish(sums)
        if ranks is None or ranks.rank == 0:
            bounding.settle(tally, self.noise.stream)
        if ranks is not None:
            bounding.restart(of_first(ranks, bounding.clip_norm, sums.device))
        return sums.to(self.clipper.trained[0].dtype)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Set up draws: secret dropout, full precision, buffers restored afterwards."""
        with probing.state_kept(self.clipper.module), self.apart():
            yield

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Set up draws for a while: what is drawn elsewhere in between has no part in them."""
        with self._secret.active(), whole_products():
            self._open = True
            try:
                yield
            finally:
                self._open = False


def _placed(rows: Tensor, chosen: Tensor, slots: Tensor, count: int) -> Tensor:
    """Put the chosen rows in their slots, and blanks elsewhere."""
    placed = rows.new_zeros(count, *rows.shape[1:])
    return placed.index_copy_(0, slots, rows[chosen])


def clip_norm_within(clip_norm: float, plan: Schedule, dtype: torch.dtype) -> float:
    """Return the norm to clip to, so that a rounded sum moves by at most `clip_norm`."""
    return clip_norm / (1 + plan.rounding(dtype))


class SecretDraws:
    """A secret state of torch's generator, for the module's own randomness (dropout, latent noise).

    Draws depend on the place in a batch. If they were known, each example's gradient would depend
    on which others are there; secret and independent draws are as good as one per example. The
    caller's own state is back between blocks, and has no part in what is drawn within.
    """

    def __init__(self, stream: Randomness, device: torch.device) -> None:
        self._stream, self._device = stream, device
        self._state: list[Tensor] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Draw from the secret state, which goes on where the last block ended."""
        on_gpu = self._device.type == "cuda"
        with torch.random.fork_rng(devices=[self._device] if on_gpu else []):
            if not self._state:
                self._begin()
            else:
                torch.set_rng_state(self._state[0])
                if on_gpu:
                    torch.cuda.set_rng_state(self._state[1], self._device)
            try:
                yield
            finally:
                there = [torch.cuda.get_rng_state(self._device)] if on_gpu else []
                self._state = [torch.get_rng_state(), *there]

    def _begin(self) -> None:
        torch.manual_seed(int(self._stream.words(1)[0] >> np.uint64(1)))
        # On the CPU only the last 32 bits of a seed count, and all of those could be tried. So the
        # whole state of the generator, 624 words, comes from the stream.
        state = torch.get_rng_state().numpy()
        if state.size == _STATE_BYTES:
            words = self._stream.words(_STATE_WORDS)
            mixed = (words ^ (words >> np.uint64(32))) & np.uint64(2**32 - 1)
            state[24 : 24 + 8 * _STATE_WORDS].view(np.uint64)[:] = mixed
            torch.set_rng_state(torch.from_numpy(state))


def assumptions(noise: Noise, device: torch.device) -> tuple[str, ...]:
    """List the assumptions behind weights that were trained on this device."""
    stream = noise.stream
    cipher = getattr(stream, "cipher", None)
    if not stream.secure:
        origin = "a seeded generator, for tests"
    elif cipher:
        origin = f"{cipher} keyed by the operating system's entropy"
    else:
        origin = "the operating system's generator"
    return (
        f"Gradient noise is floating-point Gaussian from {origin}. The noisy sums are rounded at "
        f"random to multiples of {noise.grid:.6g}, and are taken to be exactly Gaussian.",
        "Torch computes products and sums of IEEE numbers with one rounding per operation, in any "
        "order. The effect of this rounding is proved to be within the room that clipping leaves.",
        "Weights and settings at the start of training did not depend on these data, nor did "
        "constants of the module or its loss.",
        "The bits that torch's kernels compute for a row depend on that row, the weights and the "
        "shapes, which are fixed, and not on the values of other rows.",
        "The module draws its own random numbers from torch's generator, which has a secret seed.",
        *([_IN_RANGE] if device.type == "cuda" else []),
    )


def limits(unit: str) -> tuple[str, ...]:
    """List what trained weights do not protect."""
    return (
        f"The sampling probability and the divisor of a step, set from the number of {unit}s.",
        "Training losses and the number of dropped examples. Do not release them.",
    )
