"""Canaries through whole fits, at two central budgets: one JSON object on stdout.

`Codebook.fit`, `VLM.fit` and `train` run many times with and without a canary, and
`tacit.audit.canaries` bounds ε from what they released, with confidence. A lower bound above the
claim would refute the fit. The run also includes mutants, which must be refuted, and single steps
of training, seen by an attacker who knows the sampling probability (the strongest score).

    python benchmarks/canaries.py [--runs 120] [--seconds 300]

`not_refuted` and `mutants_refuted` must be true. Audits that do not fit into the time are skipped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit import VLM, Codebook
from tacit.audit.canaries import canary_bound, matched_filter, one_run_bound
from tacit.audit.statistical import Bound
from tacit.central.training import train
from tacit.data.schema import ArraySchema
from tacit.local.learned import private_quantizer
from tacit.privacy.errors import InvalidParameter
from tacit.privacy.gaussian import noise_multiplier_for

DELTA, CONFIDENCE = 1e-5, 0.999
CLAIMS = (5.0, 1.0)
SCHEMA = ArraySchema(4, lower=0.0, upper=255.0)
GREY = np.repeat(np.array([[127], [128]], np.uint8), 4, axis=1).repeat(30, axis=0)
ALONE = np.array([0, 0, 0, 255], np.uint8)
WIDTH, OTHERS, MOST_WEIGHTS = 4, 59, 2000
LOUD = np.array([0, 1e3, 0, 0], np.float32)


def audit(fit: Any, data: Any, canary: Any, runs: int, **options: Any) -> Bound:
    return canary_bound(fit, data, canary, runs=runs, delta=DELTA, confidence=CONFIDENCE, **options)


# --- codebook and VLM ------------------------------------------------------------------------


def codebook(claim: float) -> Callable[[Any], np.ndarray]:
    def fit(raw: np.ndarray) -> np.ndarray:
        central: dict[str, Any] = {"central_epsilon": claim, "central_delta": DELTA}
        codebook = Codebook(epsilon=1, codewords=3, features="raw", **central)
        try:
            arrays = codebook.fit(raw, schema=SCHEMA).parts()[1]
        except InvalidParameter:  # a refusal is a release too
            return np.zeros(0)
        apart = np.log(np.ptp(arrays["prototypes"], axis=1).max() + 1e-9)
        said = [arrays["counts"].sum(), arrays["counts"].max(), apart]
        return np.concatenate([*(np.ravel(arrays[name]) for name in sorted(arrays)), said])

    return fit


def spared(name: str, claim: float, runs: int) -> Bound:
    """Fit with so large a share of the budget for one query that it has no noise."""
    kept = private_quantizer.SHARES[name]
    private_quantizer.SHARES[name] = 1e9
    try:
        return audit(codebook(claim), GREY, ALONE, runs)
    finally:
        private_quantizer.SHARES[name] = kept


def vlm(claim: float, **options: Any) -> Callable[[Any], np.ndarray]:
    def fit(raw: np.ndarray) -> np.ndarray:
        vlm = VLM(epsilon=1, latent_dimension=2, central_epsilon=claim, central_delta=DELTA)
        settings: dict[str, Any] = {"batch_size": len(raw), "epochs": 2, "public_rows": None}
        vlm.fit(raw, schema=SCHEMA, **settings, **options)
        arrays = vlm.parts()[1]
        # Only the weights next to inputs and outputs, and all biases, of half a million weights.
        seen = [arrays[name] for name in sorted(arrays) if arrays[name].size <= MOST_WEIGHTS]
        return np.concatenate([np.ravel(array) for array in seen])

    return fit


# --- training --------------------------------------------------------------------------------


def minus_output(module: nn.Module, rows: Tensor) -> Tensor:
    """Make the gradient the row itself, whatever the weights."""
    return -module(rows)[:, 0]


def linear(width: int) -> nn.Linear:
    module = nn.Linear(width, 1, bias=False)
    nn.init.zeros_(module.weight)
    return module


def trained(claim: float, steps: int, batch: int, whole: bool) -> Callable[[Any], np.ndarray]:
    """Return the final weights, or the noisy gradient of every step."""

    def fit(rows: np.ndarray) -> np.ndarray:
        module, path = linear(rows.shape[1]), []
        settings: dict[str, Any] = {"epsilon": claim, "delta": DELTA, "optimizer": "sgd"}
        train(
            module,
            torch.from_numpy(rows),
            minus_output,
            batch_size=batch,
            steps=steps,
            learning_rate=1.0,
            progress=lambda *_: path.append(module.weight.detach().numpy().ravel().copy()),
            **settings,
        )
        return np.diff(path, axis=0, prepend=0).ravel() * batch if whole else path[-1]

    return fit


def step_by_step(multiplier: float, probability: float, steps: int) -> Callable[[Any], np.ndarray]:
    r"""Compute the log-likelihood ratio of all steps.

    .. math:: \sum_t \ln(1 - q + q e^{(x_t - 1/2)/z^2})
    """

    def score(draws: np.ndarray) -> np.ndarray:
        along = draws[:, : steps * WIDTH].reshape(len(draws), steps, WIDTH)[..., 1]
        odds = np.exp((along - 0.5) / multiplier**2)
        return np.asarray(np.log1p(probability * (odds - 1)).sum(axis=1))

    return score


def final_weights(claim: float, runs: int) -> float:
    """Audit one step on all records by the final weights."""
    others, nobody = np.zeros((OTHERS, WIDTH), np.float32), np.zeros(WIDTH, np.float32)
    fit = trained(claim, 1, OTHERS + 1, whole=False)
    return audit(fit, others, LOUD, runs, absent=nobody, scores=[matched_filter(LOUD)]).epsilon


def every_step(claim: float, runs: int, batch: int = 15, steps: int = 10) -> float:
    """Audit sampled steps, each seen by an attacker who knows sampling probability and noise."""
    others, nobody = np.zeros((OTHERS, WIDTH), np.float32), np.zeros(WIDTH, np.float32)
    options: dict[str, Any] = {"epsilon": claim, "delta": DELTA, "steps": steps}
    rows = torch.zeros(OTHERS + 1, WIDTH)
    ran = train(linear(WIDTH), rows, minus_output, batch_size=batch, **options)
    score = step_by_step(ran.noise_multiplier, ran.sampling_probability, steps)
    fit = trained(claim, steps, batch, whole=True)
    return audit(fit, others, LOUD, runs, absent=nobody, scores=[score]).epsilon


def one_run(spent: float) -> float:
    """Audit one training that spends `spent` with 1,000 canaries, at a δ that these can show."""
    count, delta = 1000, 1e-9
    multiplier = Fraction(noise_multiplier_for(spent, delta))

    def fit(rows: np.ndarray) -> np.ndarray:
        module = linear(count)
        options: dict[str, Any] = {"batch_size": count, "steps": 1, "optimizer": "sgd"}
        options |= {"epsilon": spent * (1 + 1e-6), "delta": delta}
        data = torch.from_numpy(rows)
        train(module, data, minus_output, noise_multiplier=float(multiplier) * 1.0001, **options)
        return module.weight.detach().numpy().ravel()

    bound = one_run_bound(
        fit,
        np.zeros((0, count), np.float32),
        100 * np.eye(count, dtype=np.float32),
        lambda released: released,
        guesses=300,
        absent=np.zeros(count, np.float32),
        delta=delta,
        confidence=CONFIDENCE,
    )
    return bound.epsilon


# --- all of it -------------------------------------------------------------------------------


def right(claim: float, runs: int) -> dict[str, Callable[[], float]]:
    return {
        "codebook_lower_bound": lambda: audit(codebook(claim), GREY, ALONE, runs).epsilon,
        "vlm_lower_bound": lambda: audit(vlm(claim), GREY, ALONE, runs).epsilon,
        "train_lower_bound": lambda: final_weights(claim, 12 * runs),
        "train_sampled_lower_bound": lambda: every_step(claim, 3 * runs),
        "one_run_lower_bound": lambda: one_run(claim),
    }


def wrong(claim: float, runs: int) -> dict[str, Callable[[], float]]:
    return {
        "codebook_no_noise_on_counts": lambda: spared("counts", claim, runs).epsilon,
        "codebook_no_noise_on_prototypes": lambda: spared("prototypes", claim, runs).epsilon,
        "one_run_that_spends_30": lambda: one_run(30.0),
    }


def figures(runs: int, seconds: float) -> dict[str, Any]:
    started = time.monotonic()
    table: dict[str, Any] = {"delta": DELTA, "confidence": CONFIDENCE, "runs": runs, "skipped": []}

    def measured(name: str, audits: dict[str, Callable[[], float]]) -> list[float]:
        bounds = table[name] = {}
        for what, bound in audits.items():
            if time.monotonic() - started > seconds:
                table["skipped"].append(f"{name}: {what}")
                continue
            bounds[what] = bound()
            print(f"{name} {what} {bounds[what]:.3f}", file=sys.stderr, flush=True)
        return list(bounds.values())

    # Mutants first: an audit that does not refute them shows nothing about the correct fits.
    least = min(CLAIMS)
    refuted = [bound > least for bound in measured(f"mutants_at_{least:g}", wrong(least, runs))]
    kept = [
        bound <= claim
        for claim in CLAIMS
        for bound in measured(f"claimed_{claim:g}", right(claim, runs))
    ]
    # Without a measurement nothing is shown.
    table |= {
        "not_refuted": bool(kept) and all(kept),
        "mutants_refuted": bool(refuted) and all(refuted),
    }
    return table | {"seconds": round(time.monotonic() - started)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=int, default=120, help="number of fits with the canary, and without it"
    )
    parser.add_argument(
        "--seconds", type=float, default=300, help="start no audit after this many seconds"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(figures(options.runs, options.seconds), indent=2))


if __name__ == "__main__":
    main()
