r"""An encoder that keeps the task and hides the person, as a scikit-learn transformer."""

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

    from tacit.anonymize.fitting import Fitted, FittingProblem
    from tacit.anonymize.training import AdversarialSchedule

Floats = npt.NDArray[np.float32]
Progress = Callable[[str, int, int], None]

TRAININGS = ("toggled", "simultaneous", "robust")
NOTHING = NotPrivate(adjacency=Adjacency.ANY_TWO_INPUTS, unit=Unit.RECORD)
DETERMINISTIC = (
    "No differential privacy: the encoder is deterministic, and hides people only from attackers "
    "that are no better than those that were tried."
)
FORGETFUL = (
    "The encoder is its owner's module: it stores nothing about a row outside itself, such as in a "
    "file or a global variable, and neither ends nor signals the process that it runs in."
)
LINKED = "Several representations of one person: each is one more chance to recognize them."

OUTPUTS = ("default", "pandas")

_WHERE = "AnonymizingEncoder"


class AnonymizingEncoder(TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):  # type: ignore[misc,call-arg]
    r"""An encoder to representations that keep a regular label and hide private labels.

    Parameters
    ----------
    strength : float
        λ ≥ 0, the weight of hiding the private labels relative to the task.
    training : {"robust", "toggled", "simultaneous"}
        "robust" learns codes with few values, whose information about the person is counted exactly
        (see `tacit.anonymize.codes`). The others train against an adversary, alternately or
        simultaneously by gradient reversal. Only "robust" resists freshly trained attackers.
    encoder : tuple of int, or torch.nn.Module
        Units of its layers, or a module from (n, p) inputs to (n, d) representations.
    branches : tuple of int, or callable
        Units of the hidden layers of every branch, or a function of the numbers of inputs and
        outputs that builds a module.
    dropout : float
        Dropout rate of the layers.
    dimensions : int, optional
        Length of a representation, by an additional linear layer; by default that of the encoder's
        last layer. With ε the default is 8.
    styles : int
        Number of styles into which the robust codes divide each class.
    epsilon : float, optional
        Local ε of one released representation. Representations are then bounded, and `transform`
        adds exact noise. Without it there is no guarantee.
    schedule : AdversarialSchedule, optional
        Duration and rates of training: `tacit.anonymize.training.AdversarialSchedule`.
    unit : {"record", "person"}
        The unit that ε protects: a person, if everyone releases one row once.
    seed : int
        Seed of training. The noise of a release has none.
    device : str
        "auto", "cpu" or "cuda".

    Attributes
    ----------
    classes_ : Classes
        Values of the regular label and of every private label.
    guarantee_ : Guarantee
        Guarantee of one released representation: not private, unless `epsilon` is given.
    history_ : list of dict
        Held-out losses of each round.
    prototypes_ : array (cells, p), robust only
        Mean in-house row of each cell, which is a single row if the cell has only one. They are
        for use in-house.

    Notes
    -----
    Without `epsilon` an encoder is a deterministic function: **no differential privacy**. How well
    it hides people is an empirical question: use `tacit.anonymize.probe`, not the adversary that it
    was trained against. The rows that it is fitted on are not protected from anyone who has the
    encoder; `export` refuses to write it unless they are public.

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
    >>> round(encoder.score(rows, task), 2), encoder.transform(rows).shape
    (1.0, (400, 4))
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
        schedule: AdversarialSchedule | None = None,
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
        """Fit on in-house rows whose labels and people are known.

        Parameters
        ----------
        X : array (n, p) or images (n, h, w), or a table
            Rows.
        y : array (n,)
            Regular labels: strings or whole numbers.
        private : array (n,) or (n, m), or a table
            Labels to hide: one, or several at once.
        validation : (X, y, private), optional
            Rows for early stopping; by default a seventh of the given rows.
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
        """Fit one encoder per strength, in increasing order, each starting from the one before."""
        chosen = sorted({_strength(one) for one in strengths})
        if not chosen:
            errors.refuse("frontier", "strengths", "one or more numbers", strengths)
        problem = self._posed(X, y, private, validation)
        encoders: list[AnonymizingEncoder] = []
        start: Fitted | None = None
        for strength in chosen:
            start = problem.solve(strength, progress, start)
            encoder = type(self)(**{**self.get_params(deep=False), "strength": strength})
            encoders.append(encoder._take(problem, start, inhouse_public))
        return encoders

    def _posed(self, X: Any, y: Any, private: Any, validation: Any) -> FittingProblem:
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

    def _take(self, problem: FittingProblem, fitted: Fitted, public: bool) -> Self:
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
        """Compute what may be handed out: with ε, an exact release, drawn anew at every call.

        Without ε a row always has the same representation, and there is no guarantee.
        """
        shown = self._shown(X)
        if getattr(self, "_output", "default") == "default":
            return shown
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(shown, columns=self.get_feature_names_out())

    def set_output(self, *, transform: str | None = None) -> Self:
        """Let `transform` return a data frame, without the rows' index, which may name people."""
        if transform is not None:
            self._output = errors.choice("set_output", "transform", transform, OUTPUTS)
        return self

    def _shown(self, X: Any) -> Floats:
        return self.represent(X) if self._fitted().local_ is None else self.release(X)

    def release(self, X: Any, rng: Randomness | None = None) -> Floats:
        """Release representations with the noise of ε; refused if there is no ε.

        If any row does not fit the schema (NaN, other columns) all rows are refused. The
        certificate is about releases without a seeded `rng`, which is for tests.
        """
        local = self._fitted().local_
        if local is None:
            remedy = "Fit with epsilon, or use transform, which has no guarantee."
            errors.refuse("release", "epsilon", "given", None, remedy)
        return local.release(self.represent(X), rng)

    def represent(self, X: Any) -> Floats:
        """Compute representations (n, d) without noise, for use in-house.

        A user's own module might mix the rows of a batch, or remember them. With ε each row goes
        alone through its own copy of the module, and one row comes out: a row that influenced the
        release of another would cost ε there, too.
        """
        from tacit.anonymize.training import represent, represent_alone

        inputs = self._fitted().reader_.read(X, "transform")
        encoder = self.networks_.encoder
        if self.local_ is None or storage.plain(self.settings_):
            return np.asarray(represent(encoder, inputs).numpy())
        return represent_alone(encoder, inputs, self.representation_size_)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict regular labels from what `transform` returns."""
        return self.predict_from(self._shown(X))

    def predict_from(self, representation: Any) -> npt.NDArray[Any]:
        """Predict regular labels from representations, as a recipient would."""
        chances = self._branch(self._fitted().networks_.regular, representation)
        labels: npt.NDArray[Any] = np.array(self.classes_.regular)
        return np.asarray(labels[chances.argmax(axis=1)])

    def score(self, X: Any, y: Any) -> float:
        """Compute the accuracy of the regular label, predicted from representations."""
        codes = self._fitted().classes_.regular_codes("score", y)
        same_length("score", len(codes), X=len(X))
        chances = self._branch(self.networks_.regular, self._shown(X))
        return float((chances.argmax(axis=1) == codes).mean())

    def adversary(self, representation: Any) -> dict[str, Floats]:
        """Predict probabilities of each private label with the adversary of the training.

        It is the weakest attacker; `tacit.anonymize.probe` trains others. An exported encoder has
        none.
        """
        branches = self._fitted().networks_.private
        return {
            name: self._branch(branch, representation)
            for name, branch in zip(self.classes_.private, branches, strict=True)
        }

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[Any]:
        """Return the names of the columns of a representation."""
        names = [f"representation{i}" for i in range(self._fitted().representation_size_)]
        return np.array(names, dtype=object)

    def _branch(self, branch: nn.Module, representation: Any) -> Floats:
        import torch

        inputs = torch.as_tensor(np.array(representation, np.float32))
        with torch.no_grad():
            return np.asarray(branch(inputs).softmax(dim=1).numpy())

    def _fitted(self) -> Self:
        if not hasattr(self, "networks_"):
            raise NotFittedError("AnonymizingEncoder: it must be fitted first. Call fit.")
        return self

    # --- what it promises ----------------------------------------------------------------------

    @property
    def guarantee_(self) -> Guarantee:
        """The guarantee of one representation that `transform` returns."""
        local = self._fitted().local_
        return NOTHING if local is None else local.guarantee

    @property
    def certificate(self) -> Certificate:
        """The certificate of one representation; without ε it states that there is no guarantee."""
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

        Private labels, the branches that predict them and the prototypes are left out.
        """
        if not self._fitted().inhouse_.may_leave:
            remedy = "If they are, fit with inhouse_public=True (--inhouse-public)."
            errors.refuse("export", "in-house rows", "public", "others", remedy)
        return storage.nameless(self).save(path)

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return parameters, ready for JSON, and weights."""
        return storage.parts(self._fitted())

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> AnonymizingEncoder:
        """Rebuild an encoder from what `parts` returned."""
        return storage.rebuilt(cls, parameters, arrays)


def _strength(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        errors.refuse(_WHERE, "strength", "a finite number, 0 or more", value)
    return float(value)
