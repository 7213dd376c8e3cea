r"""One run of `train`, as it ships, audited by canaries that were each in or out by a coin.

A canary is a record whose gradient is as long as clipping lets it be, in a direction that no other
record has: a weight of its own, which its loss pulls up. What training adds to that weight is the
canary's clipped gradient each time it is sampled, and the noise. So the weight itself is the score
of a white-box attack, and :math:`\langle \theta_T - \theta_0, u_i \rangle` for the direction
:math:`u_i` of the canary. Guesses of the coins prove a lower bound on ε [SNJ23]_.

Notes
-----
A canary that is left out stays in the data with a loss of zero: it has no gradient, and the number
of records, which is public, is that of the claim. So the neighbours are those that `train` speaks
of: one record's contribution more or less.

Canaries of one training share noise and batches with the records of a module, where one is given,
and clipping takes the norm over all weights together. The module trained beside them is private
towards its records, and its budget is spent.

An audit can only refute. The theorem loses something against a claim with δ above 0 (about 2mδ for
m canaries), and one run shows less than many. With 1,000 canaries a sound training at (8, 1e-5)
showed 2.0 to 2.9 in one step on everybody (25 runs), and in single runs 2.1 in 50 steps on a fifth
of the records and 1.5 in 200 on a twentieth: sampling hides more than this score undoes, as an
attacker who sums up what a canary's weight gained does not know when it was sampled.

References
----------
.. [SNJ23] Steinke, Nasr, Jagielski. Privacy auditing with one (1) training run. NeurIPS 2023.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from tacit.audit import guesses as guessing
from tacit.audit.guesses import Proof
from tacit.central.training.clipping import flat_data
from tacit.central.training.tracing import Loss
from tacit.central.training.training import Trained, train
from tacit.privacy import errors
from tacit.privacy.decimals import above, below
from tacit.privacy.randomness import Randomness

_LOUD = 1e3  # clip norms that a canary would add, were it not clipped


@dataclass(frozen=True)
class TrainingAudit:
    """What one training proves, beside what it claims."""

    epsilon: float
    """Claimed, at `found.delta`."""
    certainty: float
    found: Proof
    trained: Trained = field(repr=False)

    @property
    def refuted(self) -> bool:
        """Whether the claim is false, but for a risk of 1 − `certainty`."""
        return self.found.epsilon > self.epsilon

    @property
    def words(self) -> str:
        """One line: what is proved, beside what is claimed."""
        found = self.found
        return (
            f"{'refuted' if self.refuted else 'not refuted'}: ε ≥ {below(found.epsilon, 3)} at δ = "
            f"{above(found.delta, 3)} (certainty {100 * self.certainty:.6g} %, {found.right} of "
            f"{found.guesses} guesses right, at most {above(found.certifiable, 3)} could be "
            f"shown); claimed: {above(self.epsilon)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        said = {"epsilon": self.epsilon, "certainty": self.certainty, "found": asdict(self.found)}
        return {**said, "refuted": self.refuted, "words": self.words}


def audit_training(
    module: nn.Module | None = None,
    data: Tensor | tuple[Tensor, ...] | None = None,
    loss: Loss | None = None,
    *,
    epsilon: float,
    delta: float,
    canaries: int = 1000,
    guesses: int | None = None,
    certainty: float = 0.99,
    clip_norm: float = 1.0,
    optimizer: str = "sgd",
    learning_rate: float = 0.1,
    rng: Randomness | None = None,
    **options: Any,
) -> TrainingAudit:
    """Train once with canaries, guess which of them were in, and bound ε from below.

    Parameters
    ----------
    module, data, loss : optional
        As for `train`: what is trained beside the canaries, in place. Without them there are only
        canaries, and what is audited is clipping, sampling, noise and their accounting.
    epsilon, delta : float
        The claim.
    canaries : int
        How many; about half of them are in.
    guesses : int, optional
        How many coins are guessed, fixed beforehand. Without it a few numbers share the risk.
    certainty : float
        A true claim is refuted with a chance of 1 − certainty at most.
    clip_norm, optimizer, learning_rate
        As for `train`. With plain "sgd" nothing is lost of what the gradients show.
    rng : Randomness, optional
        Of the coins and of the training.
    options
        Of `train`: batch_size, steps, epochs, noise_multiplier and so on.
    """
    count = errors.whole("audit_training", "canaries", canaries, least=2, most=10**7)
    certainty = errors.probability("audit_training", "certainty", certainty, zero=False)
    inside = guessing.coins(count, guessing.apart(rng))
    if len({part is None for part in (module, data, loss)}) > 1:
        given = [type(part).__name__ for part in (module, data, loss)]
        errors.refuse("audit_training", "module, data and loss", "given together", given)
    records = () if data is None else flat_data(data)
    beside = _Beside(module, count)
    trained = train(
        beside,
        _rows(torch.from_numpy(inside), records),
        _Pull(loss, _LOUD * float(errors.positive("audit_training", "clip_norm", clip_norm))),
        epsilon=epsilon,
        delta=delta,
        clip_norm=clip_norm,
        optimizer=optimizer,
        learning_rate=learning_rate,
        rng=rng,
        **options,
    )
    scores = beside.weights.weight.detach().cpu().numpy()[1:, 0]
    proof = {"delta": delta, "certainty": certainty}
    found = guessing.from_singles(inside, scores, guesses=guesses, rng=rng, **proof)
    return TrainingAudit(float(epsilon), certainty, found, trained)


class _Beside(nn.Module):
    """A module, and a weight for every canary; the first weight is nobody's."""

    def __init__(self, module: nn.Module | None, canaries: int) -> None:
        super().__init__()
        self.module = module
        self.weights = nn.Embedding(canaries + 1, 1)
        nn.init.zeros_(self.weights.weight)
        if module is not None:
            first = next(module.parameters())
            self.weights.to(device=first.device, dtype=first.dtype)


@dataclass(frozen=True)
class _Pull:
    """The loss of a canary pulls its weight up; that of a record is its own."""

    loss: Loss | None
    strength: float

    def __call__(self, beside: _Beside, place: Tensor, present: Tensor, *row: Tensor) -> Tensor:
        pulled: Tensor = -self.strength * present * beside.weights(place)[:, 0]
        if self.loss is None:
            return pulled
        canary = (place > 0).to(pulled.dtype)
        own: Tensor = self.loss(beside.module, *row)
        return canary * pulled + (1 - canary) * own


def _rows(inside: Tensor, records: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Canaries first: whose weight, whether it is there; then, for a module, a record's row."""
    count, others = len(inside), len(records[0]) if records else 0
    device = records[0].device if records else torch.device("cpu")
    place = torch.cat([torch.arange(1, count + 1), torch.zeros(others, dtype=torch.int64)])
    present = torch.cat([inside, torch.zeros(others, dtype=torch.bool)]).to(torch.float32)
    # A canary's row is never looked at, but goes through the module like all others.
    filled = [
        torch.cat([torch.zeros_like(part[:1]).repeat_interleave(count, 0), part])
        for part in records
    ]
    return (place.to(device), present.to(device), *filled)
