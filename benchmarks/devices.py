"""Compare codewords and latents of one artifact on the CPU and on another device.

    python benchmarks/devices.py --device cuda

Prints how many of 10,000 images of the size of MNIST change their codeword (invariant encoder,
1,024 cells), and how many grid steps of VLM latents differ by one, or by more. The weights are
untrained, which makes no difference here.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

import tacit
from tacit.local import graphs
from tacit.local.learned import invariant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=10_000)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    # Smooth blobs, since independent pixels would not resemble images.
    coarse = rng.random((args.rows, 7, 7)).repeat(4, axis=1).repeat(4, axis=2)
    images = (255 * coarse).astype(np.uint8)
    schema = tacit.ArraySchema(784, 0, 255, image=(28, 28))
    rows = schema.rows(images)
    features = invariant.fit(schema, rows[:2000], 0, epochs=1, batch=500)
    here, there = features.transform(rows), features.on(args.device).transform(rows)
    cells = here[:: len(here) // 1024][:1024]
    moved = graphs.nearest(here, cells) != graphs.nearest(there, cells)
    mechanism = tacit.VLM(epsilon=1).fit(images[:2000], epochs=1)
    steps = np.abs(mechanism.encode(images) - mechanism.on(args.device).encode(images))
    result = {
        "rows": args.rows,
        "codewords_changed": int(moved.sum()),
        "largest_difference_of_features": float(np.abs(here - there).max()),
        "latents": int(steps.size),
        "latents_one_step_off": int((steps == 1).sum()),
        "latents_further_off": int((steps > 1).sum()),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
