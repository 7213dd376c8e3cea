"""Write a made-up table like that of sensors: 128 columns, 6 activities that are no round clusters.

    python benchmarks/sensors.py sensors.csv
    tacit study tables --data sensors.csv --label activity --trials 2

Activities are curved filaments in five hidden dimensions, blurred by persons and by noise; columns
are smooth functions of these on different scales, some with heavy tails and some rounded. Nothing
in the library was tuned on it.
"""

import argparse

import numpy as np
import pandas as pd

ACTIVITIES = ("bike", "drive", "run", "sit", "stairs", "walk")
SHARES = (0.12, 0.14, 0.16, 0.24, 0.12, 0.22)
ROWS, HIDDEN, SMOOTH, COLUMNS, PERSONS = 9500, 5, 40, 128, 60


def hidden(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Place every row on the filament of its activity."""
    along, places = rng.uniform(0, 1, len(labels)), np.zeros((len(labels), HIDDEN))
    for label in range(len(ACTIVITIES)):
        mine = labels == label
        centre = rng.normal(size=HIDDEN) * 1.2
        turns, phase = rng.uniform(1.5, 3), rng.uniform(0, 6)
        across, up = np.linalg.qr(rng.normal(size=(HIDDEN, 2)))[0].T
        angle = turns * along[mine] * np.pi / 2 + phase
        circle = np.cos(angle)[:, None] * across + np.sin(angle)[:, None] * up
        places[mine] = centre + 1.6 * circle
    places += rng.normal(0, 0.22, places.shape)
    persons = rng.normal(0, 0.25, (PERSONS, HIDDEN))
    return places + persons[rng.integers(0, PERSONS, len(labels))]


def measured(places: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Compute the columns."""
    weights = rng.normal(size=(HIDDEN, SMOOTH)) / np.sqrt(HIDDEN)
    smooth = np.tanh(places @ weights + rng.normal(size=SMOOTH))
    smooth = np.hstack([smooth, places])
    mixed = smooth @ rng.normal(size=(SMOOTH + HIDDEN, COLUMNS)) / 6
    columns = mixed + rng.normal(0, 0.35, mixed.shape)
    columns[:, 100:] = np.sinh(columns[:, 100:] * 2)
    columns[:, :20] *= 1000
    columns[:, 20:30] = np.round(columns[:, 20:30] * 10)
    return columns.astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="the CSV file to write")
    rng = np.random.default_rng(7)
    labels = rng.choice(len(ACTIVITIES), ROWS, p=SHARES)
    columns = measured(hidden(labels, rng), rng)
    table = pd.DataFrame(columns, columns=[f"s{i:03d}" for i in range(COLUMNS)])
    table["activity"] = np.array(ACTIVITIES)[labels]
    table.to_csv(parser.parse_args().out, index=False)


if __name__ == "__main__":
    main()
