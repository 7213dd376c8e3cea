"""The constant of the rule for codewords: their impurity at several numbers per class.

    python benchmarks/rule.py

Codebooks of several sizes on the 8 × 8 digits that come with scikit-learn, scattering and raw
features, five random halves each. Prints the share of rows of the other half whose digit is not the
most frequent one of their codeword, and that share times K/C, which the rule takes as constant.
"""

from __future__ import annotations

import json
import warnings

import numpy as np
from sklearn.datasets import load_digits

import tacit
from tacit.local.learned.rule import IMPURITY

PER_CLASS = (1.2, 2, 4, 8)


def impurity(features: str, codewords: int, seed: int) -> float:
    images, digits = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(digits))
    inhouse, rest = order[::2], order[1::2]
    mechanism = tacit.Codebook(epsilon=1, codewords=codewords, features=features)
    mechanism.fit(images[inhouse], image=(8, 8), seed=seed)
    table = np.zeros((mechanism.codewords_, 10))
    np.add.at(table, (mechanism.encode(images[inhouse]), digits[inhouse]), 1)
    return float(np.mean(table.argmax(axis=1)[mechanism.encode(images[rest])] != digits[rest]))


def main() -> None:
    warnings.simplefilter("ignore")
    lines = []
    for features in ("scattering", "raw"):
        for ratio in PER_CLASS:
            mean_impurity = np.mean(
                [impurity(features, round(10 * ratio), seed) for seed in range(5)]
            )
            lines.append(
                {
                    "features": features,
                    "codewords_per_class": ratio,
                    "impurity": round(float(mean_impurity), 3),
                    "constant": round(float(mean_impurity * ratio), 3),
                }
            )
    print(json.dumps({"in_use": IMPURITY, "measured": lines}, indent=1))


if __name__ == "__main__":
    main()
