r"""An encoder that keeps the task and loses the person, as a scikit-learn transformer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from tacit.anonymize import storage
from tacit.anonymize.labelling import same_length
from tacit.local.inhouse import Protection
from tacit.privacy import artifact, devices, errors
from tacit.privacy.certificate import Certificate
from tacit.privacy.events import Declared
from tacit.privacy.guarantees import Adjacency, Guarantee, NotPrivate, Unit
from tacit.privacy.randomness import Randomness

if TYPE_CHECKING:
    from torch import nn

    from tacit.anonymize.fitting import Fitted, Problem
    from tacit.anonymize.training import Schedule

Floats = npt.NDArray[np.float32]
Progress = Callable[[str, int, int], None]

TRAININGS = ("toggled", "simultaneous", "robust")
NOTHING = NotPrivate(adjacency=Adjacency.ANY_TWO_INPUTS, unit=Unit.RECORD)
DETERMINISTIC = (
    "No differential privacy: the encoder is deterministic, and hides people only from attackers "
    "that are no better than those it was tried against."
)
FORGETFUL = (
    "The encoder is its owner's module: it keeps nothing of a row outside of itself, as in a file "
    "or in a variable of its program, and neither ends nor signals the process that it runs in."
)
LINKED = "Several representations of one person: each is one more chance to recognise them."

OUTPUTS = ("default", "pandas")

_WHERE = "AnonymizingEncoder"


class AnonymizingEncoder(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[misc,call-arg]
    r"""Representations from which the regular label can be read, and the private ones cannot.

    Parameters
    ----------
    strength : float
        λ ≥ 0: what hiding the private labels is worth, beside the task.
    training : {"robust", "toggled", "simultaneous"}
        Codes of few values, whose information on the person is counted exactly (see
        `tacit.anonymize.codes`); or against an adversary in turn, or at once by gradient reversal.
        Only the first stands against attackers that are trained afresh.
    encoder : tuple of int, or torch.nn.Module
        Units of its layers, or a module from (n, p) inputs to (n, d) representations.
    branches : tuple of int, or callable
        Units of the hidden layers of every branch, or a function of inputs and outputs that makes
        a module.
    dropout : float
        Of the layers.
    dimensions : int, optional
        Length of a representation, by one more linear layer; else the encoder's last one. With ε it
        is 8 unless said.
    styles : int
        Of the robust codes: kinds that each class is divided into.
    epsilon : float, optional
        What one released representation may cost its record: local ε. Representations are then
        bounded, and `transform` adds exact noise. Without it nothing is promised.
    schedule : Schedule, optional
        How long and how fast: `tacit.anonymize.training.Schedule`.
    unit : {"record", "person"}
        Whom ε protects: a person where everyone releases one row once.
    seed : int
        Of what is learned. The noise of a release has none.
    device : str
        "auto", "cpu" or "cuda".

    Attributes
    ----------
    classes_ : Classes
        Values of the regular label and of every private one.
    guarantee_ : Guarantee
        Of one released representation: not private, unless `epsilon` is given.
    history_ : list of dict
        Held-out losses, round by round.
    prototypes_ : array (cells, p), robust only
        What the rows of each cell look like on average: means of in-house rows, of a single one
        where a cell has one. They are for use in-house.

    Notes
    -----
    Without `epsilon` an encoder is a deterministic function: **no differential privacy**. How well
    it hides people is an empirical matter: ask `tacit.anonymize.probe`, not the adversary that it
    was trained against. The rows that it is fitted on are not protected from whoever gets the
    encoder; `export` refuses to hand it out unless they are public.

    References
    ----------
    .. [FPBD22] Feutry, Piantanida, Bengio, Duhamel. Learning anonymized representations with
       adversarial neural networks. 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from tacit import AnonymizingEncoder
    >>> rng = np.random.default_rng(0)
    >>> task, person = rng.integers(2, size=(2, 400))
    >>> rows = np.c_[task, person, task] + rng.normal(0, 0.1, (400, 3))
    >>> encoder = AnonymizingEncoder(styles=2, device="cpu").fit(rows, task, private=person)
    >>> encoder.score(rows, task) > 0.95, encoder.transform(rows).shape
    (True, (400, 4))
    """

    def __init__(
        self,
        strength: float = 1.0,
        *,
        training: str = "robust",
        encoder: Sequence[int] | nn.Module = (256, 256, 256),
        branches: Sequence[int] | Callable[[int, int], nn.Module] = (128, 128),
        dropout: float = 0.1,
        dimensions: int | None = None,
        styles: int = 8,
        epsilon: float | None = None,
        schedule: Schedule | None = None,
        unit: str = "record",
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.strength = strength
        self.training = training
        self.encoder = encoder
        self.branches = branches
        self.dropout = dropout
        self.dimensions = dimensions
        self.styles = styles
        self.epsilon = epsilon
        self.schedule = schedule
        self.unit = unit
        self.seed = seed
        self.device = device

    # --- fitting -------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        private: Any,
        validation: tuple[Any, Any, Any] | None = None,
        inhouse_public: bool = False,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from rows whose labels and people are known in-house.

        Parameters
        ----------
        X : array (n, p) or images (n, h, w), or a table
            Rows.
        y : array (n,)
            Regular labels: words or whole numbers.
        private : array (n,) or (n, m), or a table
            What is to be hidden: one label, or several at once.
        validation : (X, y, private), optional
            Rows that say when to stop; else a seventh of those given.
        inhouse_public : bool
            Whether the owner states that these rows are public.
        """
        problem = self._posed(X, y, private, validation)
        return self._take(problem, problem.solve(self.strength, progress), inhouse_public)

    def frontier(
        self,
        strengths: Sequence[float],
        X: Any,
        y: Any,
        *,
        private: Any,
        validation: tuple[Any, Any, Any] | None = None,
        inhouse_public: bool = False,
        progress: Progress | None = None,
    ) -> list[AnonymizingEncoder]:
        """Fitted encoders, the weakest strength first, each begun where the one before ended."""
        chosen = sorted({_strength(one) for one in strengths})
        if not chosen:
            errors.refuse("frontier", "strengths", "one or more numbers", strengths)
        problem = self._posed(X, y, private, validation)
        found: list[AnonymizingEncoder] = []
        start: Fitted | None = None
        for strength in chosen:
            start = problem.solve(strength, progress, start)
            made = type(self)(**{**self.get_params(deep=False), "strength": strength})
            found.append(made._take(problem, start, inhouse_public))
        return found

    def _posed(self, X: Any, y: Any, private: Any, validation: Any) -> Problem:
        from tacit.anonymize import fitting

        self._check()
        device = devices.resolve(_WHERE, self.device)
        return fitting.posed(self, X, y, private, validation, device)

    def _check(self) -> None:
        _strength(self.strength)
        errors.choice(_WHERE, "training", self.training, TRAININGS)
        errors.whole(_WHERE, "styles", self.styles, least=1, most=2**12)
        errors.whole(_WHERE, "seed", self.seed, least=0)
        errors.within(_WHERE, "dropout", self.dropout, "[0, 1)")
        errors.choice(_WHERE, "unit", str(self.unit), ("record", "person"))
        if self.epsilon is not None:
            errors.epsilon_in_range(_WHERE, self.epsilon)

    def _take(self, problem: Problem, fitted: Fitted, public: bool) -> Self:
        self.reader_, self.classes_, self.local_ = problem.reader, problem.classes, problem.local
        self.networks_, self.history_ = fitted.networks, fitted.history
        self.representation_size_ = problem.width(fitted.networks.encoder)
        self.settings_ = self.get_params(deep=False)
        self.__dict__.pop("prototypes_", None)
        if fitted.prototypes is not None:
            self.prototypes_ = fitted.prototypes
        self.inhouse_ = Protection.none(public)
        return self

    # --- what it does --------------------------------------------------------------------------

    def transform(self, X: Any) -> Any:
        """What may be handed out of each row: with ε, an exact release, drawn anew at every call.

        Without ε the same row always gives the same representation, and nothing is promised.
        """
        shown = self._shown(X)
        if getattr(self, "_output", "default") == "default":
            return shown
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(shown, columns=self.get_feature_names_out())

    def set_output(self, *, transform: str | None = None) -> Self:
        """Let `transform` give a data frame; without the rows' index, which may name people."""
        if transform is not None:
            self._output = errors.choice("set_output", "transform", transform, OUTPUTS)
        return self

    def _shown(self, X: Any) -> Floats:
        return self.represent(X) if self._fitted().local_ is None else self.release(X)

    def release(self, X: Any, rng: Randomness | None = None) -> Floats:
        """Representations with the noise that ε asks for; refused where no ε was given.

        Rows that do not fit what was learned (NaN, other columns) are refused, all of them. The
        certificate is that of releases without a seeded `rng`, which is for tests.
        """
        local = self._fitted().local_
        if local is None:
            remedy = "Fit with epsilon, or use transform, which promises nothing."
            errors.refuse("release", "epsilon", "given", None, remedy)
        return local.release(self.represent(X), rng)

    def represent(self, X: Any) -> Floats:
        """Clean representations (n, d), for use in-house.

        A module of one's own might mix the rows of a batch, or remember them. With ε each row goes
        through a copy of it alone, and one row comes out: a row that were in the release of another
        would cost ε there, too.
        """
        from tacit.anonymize.training import represent, represent_alone

        inputs = self._fitted().reader_.read(X, "transform")
        encoder = self.networks_.encoder
        if self.local_ is None or storage.plain(self.settings_):
            return np.asarray(represent(encoder, inputs).numpy())
        return represent_alone(encoder, inputs, self.representation_size_)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Regular labels, as read off what `transform` gives."""
        return self.predict_from(self._shown(X))

    def predict_from(self, representation: Any) -> npt.NDArray[Any]:
        """Regular labels of representations, as whoever receives them would read them."""
        chances = self._branch(self._fitted().networks_.regular, representation)
        labels: npt.NDArray[Any] = np.array(self.classes_.regular)
        return np.asarray(labels[chances.argmax(axis=1)])

    def score(self, X: Any, y: Any) -> float:
        """Share of rows whose regular label is read right off their representation."""
        codes = self._fitted().classes_.regular_codes("score", y)
        same_length("score", len(codes), X=len(X))
        chances = self._branch(self.networks_.regular, self._shown(X))
        return float((chances.argmax(axis=1) == codes).mean())

    def adversary(self, representation: Any) -> dict[str, Floats]:
        """Chances of every value of each private label, as the adversary of the training sees it.

        It is the weakest judge there is: `tacit.anonymize.probe` trains others. What `export` wrote
        has none.
        """
        branches = self._fitted().networks_.private
        return {
            name: self._branch(branch, representation)
            for name, branch in zip(self.classes_.private, branches, strict=True)
        }

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Names of the columns of a representation."""
        names = [f"representation{i}" for i in range(self._fitted().representation_size_)]
        return np.array(names, dtype=object)

    def _branch(self, branch: nn.Module, representation: Any) -> Floats:
        import torch

        given = torch.as_tensor(np.array(representation, np.float32))
        with torch.no_grad():
            return np.asarray(branch(given).softmax(dim=1).numpy())

    def _fitted(self) -> Self:
        if not hasattr(self, "networks_"):
            raise NotFittedError("AnonymizingEncoder: it must be fitted first. Call fit.")
        return self

    # --- what it promises ----------------------------------------------------------------------

    @property
    def guarantee_(self) -> Guarantee:
        """Of one representation that `transform` gives."""
        local = self._fitted().local_
        return NOTHING if local is None else local.guarantee

    @property
    def certificate(self) -> Certificate:
        """Of one representation that `transform` gives: without ε, that nothing is promised."""
        local = self._fitted().local_
        event = Declared(NOTHING) if local is None else local.event
        said = (DETERMINISTIC,) if local is None else ()
        own = local is not None and not storage.plain(self.settings_)
        return Certificate.issue(
            event,
            assumptions=(FORGETFUL,) if own else (),
            not_protected=(*said, self.inhouse_.sentence, LINKED),
        )

    # --- storage -------------------------------------------------------------------------------

    kind = "anonymizing-encoder"

    def save(self, path: str | Path) -> Path:
        """Write a directory for use in-house; see `tacit.artifact`."""
        return artifact.save(self._fitted(), path)

    def export(self, path: str | Path) -> Path:
        """Write what people run on their devices; refused unless the in-house rows are public.

        It names nobody: private labels, the branches that recognise them and the prototypes stay.
        """
        if not self._fitted().inhouse_.may_leave:
            remedy = "If they are, fit with inhouse_public=True (--inhouse-public)."
            errors.refuse("export", "in-house rows", "public", "others", remedy)
        return storage.nameless(self).save(path)

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """JSON-ready parameters, and weights."""
        return storage.parts(self._fitted())

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> AnonymizingEncoder:
        """Rebuild what `parts` took apart."""
        return storage.rebuilt(cls, parameters, arrays)


def _strength(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        errors.refuse(_WHERE, "strength", "a finite number, 0 or more", value)
    return float(value)
