r"""Private gradients for a training loop of one's own.

The loop object samples, clips, adds noise and accounts. Everything else is the caller's: optimiser,
schedule of the learning rate, evaluation, checkpoints. In each step the trained parameters get a
noisy gradient, in `.grad`; nothing else of the data is seen.

Theorem. If optimiser and caller see nothing of the records but the gradients of T steps, everything
they compute is (ε, δ)-DP for zero-out neighbours, as the T-fold composition of Poisson-sampled
Gaussians is.

Proof. `schedule` bounds a step at weights that depend on earlier steps in any way; the rest is
computed from steps. Evaluations, choices of a learning rate and the time of a checkpoint are such
computations too, if they read nothing else of these records.

Resuming. Let L gradients be lost (`journal`). If nothing of them was shown, what was released is a
function of T gradients on one path. Otherwise L more were released. How many is decided by whoever
resumes, perhaps by what they saw. A composition that is fixed beforehand does not cover that, but
sums of (ε, δ) do [RRUV16]_: the loop then states the sum of what each part costs by itself, with a
δ for each. What L steps cost that somebody watched is the theorem of `resuming`.

References
----------
.. [RRUV16] Rogers, Roth, Ullman, Vadhan. Privacy odometers and filters: pay-as-you-go composition.
   NeurIPS 2016.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from tacit.central.training import kinds, loading, probing, ranks
from tacit.central.training.gradients import NoisyGradients, assumptions, limits
from tacit.central.training.journal import Journal
from tacit.central.training.loading import Loading
from tacit.central.training.noise import Noise
from tacit.central.training.ranks import Ranks, decided
from tacit.central.training.resuming import Lost, Payment, Resuming
from tacit.central.training.schedule import Schedule, schedule
from tacit.central.training.tracing import Loss
from tacit.central.training.trained import Trained
from tacit.privacy import canonical, errors, events
from tacit.privacy.accounting.derivation import guarantee_of
from tacit.privacy.accounting.ledger import LedgerLike
from tacit.privacy.guarantees import Adjacency, Guarantee, Unit
from tacit.privacy.plain import to_plain
from tacit.privacy.randomness import Keystream, Randomness, keystream, source


class TrainingLoop:
    """Noisy gradients of a module, one for each step of a loop.

    Iterating gives the number of the step, from 1, after its noisy gradient was put into `.grad` of
    the trained parameters. Take a step of any optimiser then. The loop ends after `steps` steps.

    Parameters
    ----------
    module : nn.Module
        Parameters that require a gradient are trained. Initial weights must not depend on the data.
    data : Tensor, tuple of Tensor, or map-style data set
        Records on the first axis, on the module's device; or a data set with `len` and places from
        0, whose records are tensors or tuples of tensors. Iterable data sets cannot be sampled: see
        `train_in_order`.
    loss : callable
        `loss(module, *batch)` gives one number per example, shape (n,).
    epsilon, delta, clip_norm, clipping, batch_size, epochs, steps, noise_multiplier, accountant
        As in `train`.
    beside, unit, ledger, account, rng
        As in `train`. The account is charged before the first step.
    microbatch : int, optional
        Largest number of examples at a time: one Poisson sample is spread over several passes,
        whose gradients are accumulated. It is one step, with noise once. Data sets are also loaded
        in pieces of this size.
    example : tensor or tuple of tensors, optional
        What a record of a data set looks like, for instance zeros of its shapes. Records of other
        shapes count for nothing.
    views : int
        How often a record of a data set is drawn, with fresh augmentation each time. Its loss is
        the mean over its views, so the accounting does not depend on their number.
    workers : int
        Processes that fetch records, as in torch's `DataLoader`; 0 fetches in this one.
    group : ProcessGroup, optional
        Processes that train together, such as `torch.distributed.group.WORLD`. All of them make
        this call with the same data and settings; each samples its own part of the records. Initial
        weights are those of the first process, and so are ledger and journal.
    journal : path, optional
        A file in which steps are written down before they are drawn, for `state_dict`.

    Notes
    -----
    Weights, and everything computed from them alone, are (ε, δ)-DP as stated for `train`. This
    covers nothing else that your loop computes from the records: losses, accuracies on them, or
    gradients that you add to `.grad` yourself. In between, torch's generators are yours; the
    module's own random draws come from a secret state.
    """

    def __init__(
        self,
        module: nn.Module,
        data: Any,
        loss: Loss,
        *,
        epsilon: float,
        delta: float,
        clip_norm: float = 1.0,
        clipping: str | kinds.Kind = "flat",
        batch_size: int = 256,
        epochs: float | None = None,
        steps: int | None = None,
        noise_multiplier: float | None = None,
        accountant: str = "pld",
        beside: events.Event | None = None,
        microbatch: int | None = None,
        unit: Unit | str = Unit.RECORD,
        example: Tensor | tuple[Tensor, ...] | None = None,
        views: int = 1,
        workers: int = 0,
        group: Any = None,
        journal: str | os.PathLike[str] | None = None,
        ledger: LedgerLike | None = None,
        account: str | None = None,
        rng: Randomness | None = None,
        _where: str = "TrainingLoop",
    ) -> None:
        self._where, self._unit, self._beside = _where, unit, beside
        self._payment = Payment(_where, ledger, account, delta)
        clip = errors.clip_norm_in_range(_where, clip_norm)
        self._kind = kinds.kind_of(_where, clipping)
        if microbatch is not None:
            microbatch = errors.whole(_where, "microbatch", microbatch, least=1)
        _refuse_wrapped(_where, module)
        self._stream = Keystream() if rng is None else source(rng)
        self._ranks = ranks.ranks_of(_where, group)
        rows, self._loading = loading.rows_of(_where, module, data, example, views, workers)
        loss = loss if self._loading is None else self._loading.loss(loss)
        clipper = probing.clipper(_where, module, loss, rows)
        plan = schedule(
            len(rows[0]) if self._loading is None else len(self._loading.places),
            epsilon=epsilon,
            delta=delta,
            batch_size=batch_size,
            epochs=epochs,
            steps=steps,
            noise_multiplier=noise_multiplier,
            accountant=accountant,
            beside=beside,
        )
        plan, rows = _divided(plan, rows, self._loading, self._ranks)
        self._setting = kinds.Setting(_where, clip, plan, clipper.names, clipper.trained[0].dtype)
        bounding, sigma, _ = self._kind.prepared(self._setting, unit)
        noise = Noise(float(sigma), self._stream)
        self._gradients = NoisyGradients(
            clipper, rows, noise, plan, bounding, microbatch, ranks=self._ranks
        )
        self._journal = None if journal is None else Journal(journal)
        self._owner, self._lost = keystream.process(), Lost()
        self._state_guarantee()  # before any record is read
        self._step, self._open, self._within = 0, False, False

    @property
    def steps(self) -> int:
        """The number of steps that are stated and paid for."""
        return self._gradients.plan.steps

    @property
    def step(self) -> int:
        """The number of steps so far."""
        return self._step

    def __len__(self) -> int:
        """Return the number of steps, for a bar of progress."""
        return self.steps

    def __iter__(self) -> Iterator[int]:
        """Return itself: there is one sequence of steps."""
        return self

    def __next__(self) -> int:
        """Draw the noisy gradient of the next step into `.grad`; return the step's number."""
        clipper = self._gradients.clipper
        if self._step == self.steps:
            clipper.take_back()
            raise StopIteration
        self._refuse_unfit()
        if not self._open:
            self._begin()
        if self._journal is not None and self._is_first:
            self._journal.reserve(self._step + 1)
        # The step is used up before it is drawn, whatever happens then.
        self._step, self._within = self._step + 1, True
        with self._gradients.apart():
            flat = self._gradients.draw()
        clipper.give(flat)
        self._within = False
        return self._step

    @property
    def trained(self) -> Trained:
        """What is stated of the weights: event, guarantee and certificate, for all steps."""
        gradients = self._gradients
        return Trained(
            event=self.event,
            guarantee=self.guarantee,
            noise_multiplier=float(gradients.plan.noise_multiplier),
            sampling_probability=gradients.plan.probability,
            steps=self.steps,
            dropped=gradients.dropped + (0 if self._loading is None else self._loading.dropped),
            seeded=not self._stream.secure,
            assumptions=self._assumptions(),
            not_protected=limits(str(self.guarantee.unit)),
        )

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed training needs, but for weights, optimiser and the secret key.

        Save it with the weights and the optimiser's state after a step of the optimiser. It needs a
        `journal`.
        """
        if self._journal is None:
            remedy = "Pass a path: without one, nobody knows which steps were lost."
            errors.refuse(self._where, "journal", "given for checkpoints", None, remedy)
        self._refuse_unfit()
        if not self._open:
            self._begin()
        known = self._journal.checkpoint(self._step) if self._is_first else {"step": self._step}
        return {**known, "clip_norm": self._gradients.bounding.clip_norm}  # type: ignore[union-attr]

    def load_state_dict(self, state: dict[str, Any], *, shown: bool) -> None:
        """Go on from a checkpoint, before the first step of this loop.

        Parameters
        ----------
        state : dict
            What `state_dict` returned, with the weights of the same moment.
        shown : bool
            Whether anybody has seen anything of the steps after the checkpoint: weights, a curve,
            an evaluation, or a reason to stop. If so, they are charged again before anything is
            drawn. So are, in any case, steps that were drawn when the checkpoint was resumed
            before.

        Notes
        -----
        Noise and samples are drawn under a fresh key. That nothing was shown is an assumption,
        which certificates list.
        """
        where = self._where
        if self._open:
            errors.refuse(where, "load_state_dict", "called before the first step", self._step)
        if self._journal is None:
            errors.refuse(where, "journal", "given to resume", None, "Pass that of the training.")
        if not self._stream.secure:
            remedy = "A seeded stream would draw the same noise again: leave rng out."
            errors.refuse(where, "rng", "a secret stream", type(self._stream).__name__, remedy)
        if not isinstance(shown, bool):
            errors.refuse(where, "shown", "True or False", shown)
        self._must_agree()
        resuming = Resuming(self._journal, self._payment, self._event_of)
        said = decided(where, self._ranks, lambda: resuming.resume(state, shown))
        self._step, self._lost = said[0], Lost.of(said[1:])
        self._state_guarantee()
        self._gradients.bounding.restart(float(state["clip_norm"]))  # type: ignore[union-attr]
        self._start()

    def __reduce__(self) -> Any:
        raise TypeError("TrainingLoop: a copy would draw again the steps that were paid for.")

    @property
    def event(self) -> events.Event:
        """The event of all steps, and of those that were lost and charged again."""
        return self._event

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of the weights."""
        return self._guarantee

    def _state_guarantee(self) -> None:
        delta = self._payment.delta
        self._event = self._lost.event_with(self._event_of, self.steps, delta)
        self._guarantee = guarantee_of(self._event, None if self._lost.charged else delta)

    def _event_of(self, steps: int, alone: bool = False) -> events.Event:
        """Return the event of this many steps, with what ran beside them unless `alone`."""
        setting = self._setting._replace(plan=replace(self._setting.plan, steps=steps))
        event = self._kind.prepared(setting, self._unit).event
        if self._beside is None or alone:
            return event
        return events.Composed((events.towards(self._beside, Adjacency.ZERO_OUT), event))

    @property
    def _is_first(self) -> bool:
        return self._ranks is None or self._ranks.rank == 0

    def _begin(self) -> None:
        """Charge the whole training before any record is read."""
        self._must_agree()

        def first() -> list[int]:
            if self._journal is None:
                self._payment.pay(self._event_of(self.steps), None)
                return [0]
            account = self._payment.account
            text = canonical.text(to_plain(self._event_of(self.steps)))
            name = self._journal.begin(text, account, self.steps)
            try:
                self._payment.pay(self._event_of(self.steps), f"training {name}")
            except BaseException:
                self._journal.forget()  # nothing was drawn
                raise
            return [0]

        decided(self._where, self._ranks, first)
        self._start()

    def _must_agree(self) -> None:
        """Refuse processes that would add other noise, or draw it from a seed."""
        gradients, delta = self._gradients, self._payment.delta
        event = canonical.text(to_plain(self._event_of(self.steps)))
        setting = f"{event} {gradients.plan} {delta} {self._stream.secure}"
        device = gradients.clipper.trained[0].device
        ranks.must_agree(self._where, self._ranks, setting, device)

    def _start(self) -> None:
        gradients, plan = self._gradients, self._gradients.plan
        if self._ranks is not None:
            module = gradients.clipper.module
            for one in (*module.parameters(), *module.buffers()):
                whole = one.data.contiguous()
                self._ranks.send(whole, 0)
                one.data.copy_(whole)
        if self._loading is not None:
            part = gradients.part
            size = gradients.clipper.block_size(part.slots, gradients.microbatch)
            left = plan.steps - self._step
            gradients.loaded = self._loading.steps(part, self._stream, size, left)
        self._open = True

    def _refuse_unfit(self) -> None:
        """Refuse to go on in a fork, or after a step of which only a part was taken."""
        if keystream.process() != self._owner:
            raise errors.TacitError(
                f"{self._where}: it must be used by the process that made it, got a fork. Both "
                "would draw the same steps."
            )
        if self._within and (self._loading is not None or self._ranks is not None):
            remedy = "Resume from a checkpoint."
            errors.refuse(self._where, "the last step", "whole", "an interrupted one", remedy)

    def _assumptions(self) -> tuple[str, ...]:
        return (
            *assumptions(self._gradients.noise, self._gradients.rows[0].device),
            *(loading.ASSUMED if self._loading is not None else ()),
            *(ranks.ASSUMED if self._ranks is not None else ()),
            *self._lost.assumptions(),
        )


def _refuse_wrapped(where: str, module: nn.Module) -> None:
    if isinstance(module, nn.parallel.DistributedDataParallel | nn.DataParallel):
        remedy = "Pass its `module`, and the processes as `group`: the loop adds up their sums."
        errors.refuse(where, "module", "the module itself", type(module).__name__, remedy)


def _divided(
    plan: Schedule, rows: tuple[Tensor, ...], loaded: Loading | None, among: Ranks | None
) -> tuple[Schedule, tuple[Tensor, ...]]:
    """Give every process the records of its own part."""
    if among is None:
        return plan, rows
    places = range(plan.records)
    plan = replace(plan, parts=tuple(len(places[r :: among.size]) for r in range(among.size)))
    if loaded is not None:
        loaded.places = places[among.rank :: among.size]
        return plan, rows
    return plan, tuple(part[among.rank :: among.size] for part in rows)
