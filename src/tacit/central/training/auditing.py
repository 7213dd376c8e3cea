r"""An audit of one run of `train` by canaries, each included or left out by a coin.

A canary is a record whose gradient is as long as clipping allows, in a direction that no other
record has: a weight of its own, which its loss increases. Training adds the canary's clipped
gradient to that weight each time it is sampled, and the noise. So the weight itself is the score of
a white-box attack: :math:`\langle \theta_T - \theta_0, u_i \rangle` for the direction :math:`u_i`
of the canary. Guesses of the coins prove a lower bound on ε [SNJ23]_.

Notes
-----
A canary that is left out stays in the data with a loss of zero: it has no gradient, and the public
number of records is that of the claim. So the neighbours are those of `train`: one record is there,
or its place is blank.

If a module is given, canaries share noise and batches with its records, and clipping takes the norm
over all weights together. The module trained beside them is private towards its records, and its
budget is spent.

An audit can only refute. The theorem loses something against a claim with δ above 0 (about 2mδ for
m canaries), and one run shows less than many. With 1,000 canaries, a sound training at (8, 1e-5)
showed an ε of 2.0 to 2.9 in one step on all records (25 runs); single runs showed 2.1 in 50 steps
on a fifth of the records, and 1.5 in 200 steps on a twentieth. Sampling hides more than this score
uncovers: an attacker who adds up what a weight gained does not know when its canary was sampled.

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
from tacit.central.training.trained import Trained
from tacit.central.training.training import train
from tacit.privacy import errors
from tacit.privacy.decimals import above, below
from tacit.privacy.randomness import Randomness

_LOUD = 1e3  # the gradient norm of a canary before clipping, in clip norms


@dataclass(frozen=True)
class TrainingAudit:
    """What one training proves, next to what it claims."""

    epsilon: float
    """The claimed ε, at `proof.delta`."""
    certainty: float
    proof: Proof
    trained: Trained = field(repr=False)

    @property
    def refuted(self) -> bool:
        """Return whether the claim is false, at a risk of 1 − `certainty`."""
        return self.proof.epsilon > self.epsilon

    @property
    def words(self) -> str:
        """Return one line: what is proved, next to what is claimed."""
        proof = self.proof
        return (
            f"{'refuted' if self.refuted else 'not refuted'}: ε ≥ {below(proof.epsilon, 3)} at δ = "
            f"{above(proof.delta, 3)} (certainty {100 * self.certainty:.6g} %, {proof.right} of "
            f"{proof.guesses} guesses right, at most {above(proof.certifiable, 3)} could be "
            f"shown); claimed: {above(self.epsilon)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        claim = {"epsilon": self.epsilon, "certainty": self.certainty}
        proof = {"proof": asdict(self.proof), "refuted": self.refuted, "words": self.words}
        return {**claim, **proof}


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
    """Train once with canaries, guess which of them were included, and bound ε from below.

    Parameters
    ----------
    module, data, loss : optional
        A module to train beside the canaries, in place, as in `train`. By default there are only
        canaries, and the audit covers clipping, sampling, noise and their accounting.
    epsilon, delta : float
        The claim.
    canaries : int
        Number of canaries; about half of them are included.
    guesses : int, optional
        Number of coins to guess, fixed beforehand. By default a few numbers share the risk.
    certainty : float
        A true claim is refuted with probability at most 1 − certainty.
    clip_norm, optimizer, learning_rate
        As in `train`. Plain "sgd" keeps all that the gradients show.
    rng : Randomness, optional
        Randomness of the coins and of the training.
    options
        Further options of `train`: batch_size, steps, epochs, noise_multiplier and so on.
    """
    certainty = errors.probability("audit_training", "certainty", certainty, zero=False)
    made = Canaries(module, data, loss, canaries=canaries, clip_norm=clip_norm, rng=rng)
    trained = train(
        made.module,
        made.data,
        made.loss,
        epsilon=epsilon,
        delta=delta,
        clip_norm=clip_norm,
        optimizer=optimizer,
        learning_rate=learning_rate,
        rng=rng,
        **options,
    )
    return made.audit(
        trained, epsilon=epsilon, delta=delta, guesses=guesses, certainty=certainty, rng=rng
    )


class Canaries:
    """Canaries for a training of one's own: train `module` on `data` with `loss`, then `audit`.

    Parameters
    ----------
    module, data, loss : optional
        A module to train beside the canaries, in place, and its records, as tensors.
    canaries : int
        Their number; coins decide which of them are included.
    clip_norm : float
        The clip norm of the training.
    rng : Randomness, optional
        Randomness of the coins.
    """

    def __init__(
        self,
        module: nn.Module | None = None,
        data: Tensor | tuple[Tensor, ...] | None = None,
        loss: Loss | None = None,
        *,
        canaries: int = 1000,
        clip_norm: float = 1.0,
        rng: Randomness | None = None,
    ) -> None:
        count = errors.whole("audit_training", "canaries", canaries, least=2, most=10**7)
        self._inside = guessing.coins(count, guessing.apart(rng))
        if len({part is None for part in (module, data, loss)}) > 1:
            given = [type(part).__name__ for part in (module, data, loss)]
            errors.refuse("audit_training", "module, data and loss", "given together", given)
        records = () if data is None else flat_data(data)
        strength = _LOUD * float(errors.positive("audit_training", "clip_norm", clip_norm))
        self._beside = _Beside(module, count)
        self.module: nn.Module = self._beside
        self.data = _rows(torch.from_numpy(self._inside), records)
        self.loss: Loss = _Pull(loss, strength)

    def audit(
        self,
        trained: Trained,
        *,
        epsilon: float,
        delta: float,
        guesses: int | None = None,
        certainty: float = 0.99,
        rng: Randomness | None = None,
    ) -> TrainingAudit:
        """Guess from the weights which canaries were included, and compare with the claim."""
        scores = self._beside.weights.weight.detach().cpu().numpy()[1:, 0]
        level = {"delta": delta, "certainty": certainty}
        proof = guessing.from_singles(self._inside, scores, guesses=guesses, rng=rng, **level)
        return TrainingAudit(float(epsilon), certainty, proof, trained)


class _Beside(nn.Module):
    """A module, and one weight per canary; the first weight belongs to no canary."""

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
    """The loss: that of a canary increases its weight, that of a record is the given one."""

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
    """Build the rows, canaries first: their weight, whether they are included, a record's row."""
    count, others = len(inside), len(records[0]) if records else 0
    device = records[0].device if records else torch.device("cpu")
    place = torch.cat([torch.arange(1, count + 1), torch.zeros(others, dtype=torch.int64)])
    present = torch.cat([inside, torch.zeros(others, dtype=torch.bool)]).to(torch.float32)
    # A canary's row has no effect, but passes through the module like all others.
    filled = [
        torch.cat([torch.zeros_like(part[:1]).repeat_interleave(count, 0), part])
        for part in records
    ]
    return (place.to(device), present.to(device), *filled)
