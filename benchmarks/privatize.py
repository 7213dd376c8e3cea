"""Speed and memory of `release`, compared with the bare feature or encoder pass.

    python benchmarks/privatize.py

Prints one JSON object: the time of `release` of rows of the size of MNIST over that of the pass
which it needs (features, projection and cells for the codebook, the encoder network for the VLM),
rows per second of the codebook, and the peak memory of the streaming command line for 10⁵ and 10⁶
rows of 64 columns. Ratios are medians of interleaved rounds; 2 is half the speed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tacit

ROUNDS = 5


def ratio(numerator: Callable[[], Any], denominator: Callable[[], Any]) -> tuple[float, float]:
    """Return the median ratio over interleaved rounds, and the seconds of the first."""
    pairs = []
    for _ in range(ROUNDS):
        seconds = []
        for work in (denominator, numerator):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
        pairs.append((seconds[1] / seconds[0], seconds[1]))
    return statistics.median(r for r, _ in pairs), statistics.median(s for _, s in pairs)


def images(count: int) -> tuple[Any, Any]:
    """Load MNIST if $TACIT_DATA has it, else strokes of the same size."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, count)
    path = Path(os.environ.get("TACIT_DATA", "../shared/data"), "mnist")
    if (path / "train-images-idx3-ubyte.gz").is_file():
        import gzip

        with gzip.open(path / "train-images-idx3-ubyte.gz") as file:
            pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 28, 28)
        return pixels[rng.integers(0, len(pixels), count)], labels
    return (rng.random((count, 28, 28)) * 255).astype(np.uint8), labels


def codebook(rows: int) -> tuple[float, float]:
    raw, labels = images(rows)
    mechanism = tacit.Codebook(epsilon=1, people=13_500, classes=10).fit(raw[:2000])
    checked = mechanism.schema.rows(raw)

    def bare() -> None:
        from tacit.local.learned.features import blocks

        for block in blocks(checked):
            mechanism.features_.transform(block)

    over, seconds = ratio(lambda: mechanism.release(raw, labels), bare)
    return over, rows / seconds


def vlm(rows: int) -> float:
    import torch

    raw, labels = images(rows)
    mechanism = tacit.VLM(epsilon=1, classes=10).fit(raw[:2000], epochs=1)

    def bare() -> None:
        with torch.inference_mode():
            for start in range(0, rows, 4096):
                block = raw[start : start + 4096].reshape(-1, 784).astype(np.float32) / 255
                mechanism.encoder_(torch.from_numpy(block))

    return ratio(lambda: mechanism.release(raw, labels), bare)[0]


def memory(rows: int, folder: Path) -> float:
    """Return the peak resident megabytes of `tacit collect privatize` on this many rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    data, mechanism = folder / f"{rows}.parquet", folder / "mechanism"
    names = [f"x{i}" for i in range(64)]
    if not mechanism.exists():
        tacit.Codebook(epsilon=2, codewords=20).fit(
            {name: rng.random(2000) for name in names}
        ).save(mechanism)
    schema = pa.schema([(name, pa.float32()) for name in names])
    with pq.ParquetWriter(data, schema) as writer:
        for _ in range(rows // 10_000):
            block = {name: rng.random(10_000, dtype=np.float32) for name in names}
            writer.write_table(pa.table(block, schema))
    out = folder / f"{rows}-reports.parquet"
    code = (
        "import resource, sys; from tacit.apps.cli import main\n"
        f"words = ['collect', 'privatize', {str(mechanism)!r}, {str(data)!r}]\n"
        f"code = main([*words, '--out', {str(out)!r}])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, file=sys.stderr)\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stderr.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rows", type=int, default=5_000, help="number of rows for the speed of the codebook"
    )
    parser.add_argument("--vlm-rows", type=int, default=100_000)
    args = parser.parse_args()
    over, speed = codebook(args.rows)
    result: dict[str, float] = {
        "codebook_over_forward": round(over, 3),
        "vlm_over_forward": round(vlm(args.vlm_rows), 3),
        "rows_per_second": round(speed),
    }
    with tempfile.TemporaryDirectory() as name:
        result["memory_mb_1e5"] = round(memory(100_000, Path(name)))
        result["memory_mb_1e6"] = round(memory(1_000_000, Path(name)))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
