r"""The variational Laplace mechanism: a learned latent, clipped, on a grid, with exact noise.

An encoder learned on in-house rows without labels gives a latent h(x) of d numbers. On a person's
device it is put on a grid of step g, scaled in integers into the ℓ1 ball of R = ⌊l/g⌋ steps, and
released with discrete Laplace noise,

.. math:: P(\tilde z \mid x) = \prod_{i=1}^d \tanh\!\left(\frac{1}{2t}\right)
          e^{-|\tilde z_i - \mu_i(x)|/t}, \qquad t = \frac{2R}{\varepsilon_x}

A label is released beside it by K-ary randomized response: ε is split into (1 − s)ε for the row and
sε for the label. `noise="gaussian"` is the variant with an ℓ2 ball, a normal variable rounded to
the grid, and (ε, δ).

References
----------
.. [000] Mansbridge et al. Learning to noise: application-agnostic data sharing with local
   differential privacy. 2020. Section 3.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tacit.data import labels, schema_inference
from tacit.data.schema import ArraySchema, Rows, Schema
from tacit.local.additive_channels import LatentChannel
from tacit.local.inhouse import Protection, Target
from tacit.local.learned import encoders, private_variational, variational, vlm_storage
from tacit.local.learned.base import Learned
from tacit.local.learned.variational import Training
from tacit.local.report_files import Columns
from tacit.local.reports import Reports
from tacit.privacy import artifact, devices, errors
from tacit.privacy.guarantees import Adjacency, Unit
from tacit.privacy.mechanisms import DiscreteLaplace, Gaussian
from tacit.privacy.mechanisms.bounding import GridBall
from tacit.privacy.randomness import Randomness

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

LEVELS = ("latent", "feature")
_BLOCK_ROWS = 4096
_FAR = 2.0**100  # beyond every ball, and a float32


class VLM(Learned[LatentChannel]):
    """A mechanism learned without labels; people report a noised latent, and a flipped label.

    Parameters
    ----------
    epsilon : float
        Local privacy parameter of one report, label included. Without a label, all of it goes to
        the latent.
    latent_dimension : int
        d.
    radius : float
        l, of the ball that latents are scaled into.
    pretraining_epsilon : float or "learned"
        The noise while training: that of a report of the latent alone at this ε, or learned.
    classes : int or sequence, optional
        The labels that people may have: C means 0, …, C − 1. Without it no label can be reported.
    label_share : float
        s, the label's share of ε; the paper's λ is 1 − s.
    noise : {"laplace", "gaussian"}
        Pure ε-DP, or (ε, δ).
    delta : float, optional
        δ of the Gaussian noise; none for Laplace.
    likelihood : {"logits", "bernoulli", "mixed"}, optional
        Law of rows given latents while training; by default the one that fits their type.
    grid : float, optional
        g, a power of two; by default about a thousandth of a quarter of the radius.
    unit : Unit
        The unit of a report: "person" if everyone reports one row once.
    central_epsilon, central_delta : float, optional
        The total cost of encoder and decoder to the in-house rows, by DP-Adam: see
        `tacit.learned.private_variational`. Without it the rows are not protected.

    Attributes
    ----------
    inhouse_ : Protection
        The protection of the in-house rows: see `tacit.inhouse`.

    Notes
    -----
    ε-DP for any two rows, labels included: any two vectors of the ball are within 2R steps of each
    other, whatever the encoder does, and basic composition adds the label's share. Decoding is
    post-processing.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> images, digits = load_digits(return_X_y=True)
    >>> mechanism = VLM(epsilon=4, classes=10).fit(images[:500], image=(8, 8), epochs=1)
    >>> print(mechanism.release(images[500:], digits[500:]).guarantee)
    4-DP (local, any-two-inputs, unit: record)
    """

    kind: ClassVar[str] = "vlm"

    def __init__(
        self,
        *,
        epsilon: float,
        latent_dimension: int = 8,
        radius: float = 5.0,
        pretraining_epsilon: float | str = 15.0,
        classes: int | Sequence[Any] | None = None,
        label_share: float = 0.5,
        noise: str = "laplace",
        delta: float | None = None,
        likelihood: str | None = None,
        grid: float | None = None,
        unit: Unit | str = Unit.RECORD,
        central_epsilon: float | None = None,
        central_delta: float | None = None,
    ) -> None:
        where = "VLM"
        self.central = Target.of(where, central_epsilon, central_delta)
        self.unit = Unit.of(where, unit)
        self.epsilon: Fraction = errors.epsilon_in_range(where, epsilon)
        self.latent_dimension = errors.whole(
            where, "latent_dimension", latent_dimension, least=1, most=2**14
        )
        self.noise = errors.choice(where, "noise", noise, tuple(variational.ORDERS))
        self.delta = variational.checked_delta(where, self.noise, delta)
        self.ball = GridBall(where, radius, grid, order=variational.ORDERS[self.noise])
        _ = self.ball.radius_steps
        self.pretraining_epsilon = variational.checked_pretraining(where, pretraining_epsilon)
        self.classes = None if classes is None else labels.declare(where, classes)
        labels.split(where, epsilon, label_share)
        self.label_share: Fraction = errors.rational(where, "label_share", label_share)
        if likelihood is not None:
            errors.choice(where, "likelihood", likelihood, variational.LIKELIHOODS)
        self.likelihood = likelihood
        self.device = "cpu"

    @property
    def radius(self) -> float:
        """The radius l, as given."""
        return float(self.ball.radius)

    def fit(
        self,
        raw: Any,
        *,
        schema: Schema | None = None,
        image: tuple[int, int] | None = None,
        seed: int = 0,
        device: str = "cpu",
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        inhouse_public: bool = False,
        public_rows: Any = "synthetic",
        two_stage: str | None = None,
        trained: str | None = None,
        rng: Randomness | None = None,
        progress: variational.Progress | None = None,
    ) -> Self:
        """Learn encoder and decoder from in-house rows, and the bounds if no schema is given.

        The default is 20 epochs, or more to make 2,000 steps. The fitted mechanism computes on the
        CPU; see `on`.

        Parameters
        ----------
        device : str
            Where to train: "cpu", "cuda", "cuda:1", or "auto" for a GPU where there is one.
        inhouse_public : bool
            State that the in-house rows are public; certificates say so.
        public_rows : rows, "synthetic" or None
            With a central guarantee: rows that weights are fitted to before they see the in-house
            rows. "synthetic" means pen strokes for images, and random weights otherwise; None means
            random weights.
        two_stage : {"paper"}, optional
            With a central ε: train as the paper does, for comparison. Nothing is proved of it.
        trained : {"both", "encoder", "decoder"}, optional
            With a central guarantee: the networks that DP-Adam trains; another one keeps its
            initial weights. By default both, and in two stages the encoder.
        rng : Randomness, optional
            The generator of the noise of a central guarantee.
        """
        device = devices.resolve("VLM.fit", device)
        self._forget_fit()
        given = schema or _inferred(raw, image, self.central is not None)
        rows = given.rows(raw, "VLM.fit")
        seed = errors.whole("VLM.fit", "seed", seed, least=0)
        batch = 128 if batch_size is None else batch_size
        usual = Training(epochs=max(20, math.ceil(2000 * batch / len(rows))))
        plain = Training.of(epochs, batch_size, learning_rate, usual)
        objective = self._objective(given, seed, device)
        protection = Protection.none(inhouse_public)
        self.losses_: list[float] = []
        if self.central is not None:
            private = private_variational.PrivateFit(
                objective,
                rows,
                self.central,
                Training.of(epochs, batch_size, learning_rate, private_variational.USUAL),
                private_variational.checked_trained(trained, two_stage),
                inhouse_public,
                seed,
                device,
                rng,
                progress,
            )
            if two_stage is None:
                protection = private.from_public(given, public_rows)
            else:
                fresh = self._objective(given, seed + 1, device)
                protection = private.two_stage(plain, (fresh.encoder, fresh.decoder))
        else:
            if two_stage is not None or trained is not None:
                errors.refuse("VLM.fit", "central_epsilon", "given with two_stage or trained", None)
            self.losses_ = variational.train(
                objective, rows, plain, seed=seed, device=device, progress=progress
            )
        self.spread_ = objective.spread.value
        self._set(given, objective.encoder.to("cpu"), objective.decoder.to("cpu"))
        self.inhouse_ = protection
        return self

    def _objective(self, given: Schema, seed: int, device: str) -> variational.Objective:
        return variational.Objective.start(
            given,
            self.latent_dimension,
            self.likelihood,
            variational.Spread(
                variational.spread_for(self.pretraining_epsilon, self.radius, self.delta),
                self.pretraining_epsilon == "learned",
            ),
            self.radius,
            self.noise,
            seed,
            device,
        )

    def _set(self, given: Schema, encoder: nn.Sequential, decoder: nn.Sequential) -> None:
        self._forget_channels()
        self._schema = given
        self._law = variational.law_of(given, self.likelihood)
        self._front = encoders.front_end(given)
        self.encoder_ = encoder.eval().requires_grad_(False)
        self.decoder_ = decoder.eval().requires_grad_(False)

    def on(self, device: str) -> VLM:
        """Return the same fitted mechanism, computing on another device."""
        other = self._copy()
        other.device = devices.resolve("VLM.on", device)
        other.encoder_ = copy.deepcopy(self.encoder_).to(other.device)
        other.decoder_ = copy.deepcopy(self.decoder_).to(other.device)
        return other

    def _channel_alone(self) -> VLM:
        other = self._copy()
        other._schema = other.encoder_ = other.decoder_ = None  # type: ignore[assignment]
        other._law = other._front = None  # type: ignore[assignment]
        other.losses_ = []
        # Its trained value is not part of the channel.
        other.spread_ = variational.spread_for(self.pretraining_epsilon, self.radius, self.delta)
        return other

    # --- the channel ---------------------------------------------------------------------------

    def _shown(self) -> dict[str, Any]:
        given = {"latent_dimension": self.latent_dimension, "radius": self.radius}
        return {**given, "noise": self.noise, "label_share": self.label_share}

    def _make_channel(self, labelled: bool) -> LatentChannel:
        row, flip = self.epsilon, None
        if labelled:
            row, label = labels.split("VLM", self.epsilon, self.label_share)
            flip = labels.flip(self.classes, label, "VLM", self.unit)
        return LatentChannel(
            noise=self._noise(row),
            dimension=self.latent_dimension,
            ball=self.ball,
            label=flip,
            classes=self.classes if labelled else None,
            stated_delta=self.delta,
        )

    def _noise(self, epsilon: Fraction) -> DiscreteLaplace | Gaussian:
        steps = 2 * self.ball.radius_steps
        scope: dict[str, Any] = {"adjacency": Adjacency.ANY_TWO_INPUTS, "unit": self.unit}
        if self.delta is None:
            return DiscreteLaplace(epsilon=epsilon, sensitivity=steps, **scope)
        return Gaussian(sensitivity=steps, epsilon=float(epsilon), delta=self.delta, **scope)

    # --- on a person's device ------------------------------------------------------------------

    def encode_rows(self, rows: Rows) -> Integers:
        """Return clipped latents in grid steps, (n, d), for checked rows."""
        encoded = np.empty((len(rows), self.latent_dimension), np.int64)
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = rows[start : start + _BLOCK_ROWS]
            encoded[start : start + _BLOCK_ROWS] = self.ball.clip(self._outputs(block))
        return encoded

    def _outputs(self, rows: Rows) -> Floats:
        """Compute the encoder's outputs; arrays have neither missing values nor codes."""
        with encoders.inference():
            if isinstance(self._schema, ArraySchema):
                inputs = torch.as_tensor(rows.numbers, device=self.device)
            else:
                inputs = self._front(rows, self.device)
            outputs: Tensor = self.encoder_(inputs)
        # Every row gets a latent, whatever the weights: a missing report would reveal something.
        finite = np.nan_to_num(outputs.cpu().numpy(), nan=0.0, posinf=_FAR, neginf=-_FAR)
        return np.asarray(finite, np.float32)

    # --- what a learner may ask ----------------------------------------------------------------

    def clean_features(self, raw: Any, level: str = "latent") -> Floats:
        """Return the latents of clean rows, or the rows that they are decoded to."""
        return self._features(self.encode(raw), level, None)

    def released_features(
        self, reports: Reports | Columns, level: str = "latent", sample: bool = False, seed: int = 0
    ) -> Floats:
        """Return released latents, or decoded rows: the mean, or a draw from the decoder.

        Drawn rows are post-processing: privacy does not depend on `seed`.
        """
        columns = reports.columns if isinstance(reports, Reports) else reports
        return self._features(columns["latent"], level, seed if sample else None)

    def posterior(self, reports: Reports, inhouse: Any) -> Floats:
        """Compute P(in-house row j | released latent i), (n, m), if people look like these rows.

        `inhouse` holds clean grid steps, as `encode` gives them.
        """
        released, clean = (
            torch.as_tensor(np.asarray(steps, np.float32), device=self.device)
            for steps in (reports.columns["latent"], inhouse)
        )
        law = self.channel(reports.labelled).noise.event
        return np.asarray(variational.posterior(law, released, clean).cpu().numpy())

    def _features(self, steps: Integers, level: str, seed: int | None) -> Floats:
        latents = (steps * self.ball.step).astype(np.float32)
        if errors.choice("VLM", "level", level, LEVELS) == "latent":
            return latents
        self._must_encode()
        generator = torch.Generator(self.device).manual_seed(seed or 0)
        decoded = []
        with encoders.inference():
            for start in range(0, len(latents), _BLOCK_ROWS):
                block = torch.as_tensor(latents[start : start + _BLOCK_ROWS], device=self.device)
                law, parameters = self._law, self.decoder_(block)
                rows = law.mean(parameters) if seed is None else law.sample(parameters, generator)
                decoded.append(rows.cpu().numpy())
        return np.concatenate(decoded)

    # --- storage -------------------------------------------------------------------------------

    def onnx(self) -> bytes | None:
        """Export the encoder as a graph: rows to latents that are not on their grid yet."""
        if self.encoder_ is None:
            return None
        from tacit.local.learned.onnx import network_encoder

        return network_encoder(self.schema, self.encoder_)

    def parts(self) -> tuple[dict[str, Any], artifact.Arrays]:
        """Return JSON-ready parameters and weights."""
        self._must_be_fitted()
        return vlm_storage.parts(self)

    @classmethod
    def from_parts(cls, parameters: dict[str, Any], arrays: artifact.Arrays) -> VLM:
        """Rebuild what `parts` took apart."""
        return vlm_storage.rebuilt(cls, parameters, arrays)


def _inferred(raw: Any, image: tuple[int, int] | None, private: bool) -> Schema:
    read = schema_inference.of_bytes if private else schema_inference.infer
    return read(raw, image, "VLM.fit")
