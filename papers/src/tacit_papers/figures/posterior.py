"""The figure of private posteriors: error, exact privacy, coverage, and ratio of errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.apps.plots import canvas
from tacit_papers.figures import look, panels, records
from tacit_papers.figures.look import Look
from tacit_papers.figures.records import Merged, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    "geometric": Look("geometric noise", "#0072B2", "o"),
    "geometric-remap": Look("geometric, remapped", "#56B4E9", "o", (0, (1, 1.2)), "none"),
    "laplace": Look("Laplace noise on each", "#009E73", "^"),
    "hellinger-smooth": Look("Hellinger, smooth S", "#D55E00", "s"),
    "hellinger-local": Look("Hellinger, local S", "#E69F00", "D", (0, (4, 1.5))),
    "hellinger-global": Look("Hellinger, global S", "#CC79A7", "v", (0, (4, 1.5, 1, 1.5))),
    "hellinger-stated": Look("Hellinger as stated, ε/2S", canvas.INK, "x", (0, (1, 1.2))),
    "hellinger-accuracy": Look("Hellinger with ε/S: refused", "#7a0000", "P", "none"),
}
_CALIBRATED = ("hellinger-smooth", "hellinger-local", "hellinger-global")
_NOISE = {"geometric-remap": 5.0, "geometric": 3.5}
"""Looks with sizes of marks, so that both are seen where they coincide."""

_ERRORS = {"error_half": "Half hold it", "error_tenth": "A tenth hold it", "error_none": "None do"}
_PRIORS = ("o", "s", "^", "D", "v", "P")
_ASIDE = 0.16
_NOTE = (
    "Error: expected Hellinger distance from the posterior without privacy, exact. "
    "Privacy: the exact ε of each table at δ = {delta:g} over the claimed one, one point "
    "per setting. Coverage: naive intervals, exact (white), noise-aware ones, simulated "
    "(filled). Best Hellinger over noise: the best calibrated Hellinger mechanism of each setting "
    "over noise, clamped (filled) and remapped (white), errors averaged over the prior."
)
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


@records.results_with("a posterior study", "records, prior and errors")
def draw(merged: Merged) -> Figure:
    """Draw six panels: the upper ones at one prior and ε, the lower ones over all settings."""
    prior, epsilon = merged.results[0]["prior"], _usual(merged, 1.0)
    figure, axes = panels.grid(2, 3)
    shown = [one for one in merged.results if one["prior"] == prior]
    at = [one for one in shown if one["epsilon"] == epsilon]
    least = min(_mean(one, name) for one in at for name in _ERRORS)
    for panel, (name, title) in zip(axes[0], _ERRORS.items(), strict=True):
        _draw_errors(panel, at, name, f"{title}, ε = {epsilon:g}")
        panel.set_ylim(0.85 * least, 1.1)
        _plain_ticks(panel, "y", _TICKS)
    _draw_privacy(axes[1, 0], merged.results)
    _draw_coverage(axes[1, 1], shown, _usual(merged, 0.5))
    _draw_ratios(axes[1, 2], merged.results)
    look.legend(figure, _sections(merged.results, prior))
    title = "Private posteriors: what the noise costs, and what is really promised"
    canvas.frame(figure, title, _NOTE.format(delta=merged.parameters.get("delta", 1e-6)))
    return figure


def _sections(results: Sequence[Result], prior: str) -> list[tuple[str, list[Look]]]:
    there = {one["mechanism"] for one in results}
    looks = [base for name, base in _LOOKS.items() if name in there]
    priors = dict.fromkeys(one["prior"] for one in results)
    marks = [
        Look(_named(words), canvas.GREY, mark, "none")
        for words, mark in zip(priors, _PRIORS, strict=False)
    ]
    return [(f"errors: {_named(prior)}", looks), ("best over noise: prior", marks)]


def _named(prior: str) -> str:
    return f"Beta({prior.replace(':', ', ')})"


def _usual(merged: Merged, wanted: float) -> float:
    return float(min({one["epsilon"] for one in merged.results}, key=lambda e: abs(e - wanted)))


def _draw_errors(axes: Axes, results: Sequence[Result], name: str, title: str) -> None:
    look.tidy(axes, title, "records n", "expected Hellinger error")
    for mechanism, base in _LOOKS.items():
        line = _line(results, mechanism, name)
        if line and mechanism != "hellinger-accuracy":
            axes.plot(*zip(*line, strict=True), label=base.label, **base.options())
    _by_powers(axes, {one["records"] for one in results})
    axes.set_yscale("log")


def _draw_privacy(axes: Axes, results: Sequence[Result]) -> None:
    look.tidy(axes, "Privacy: exact over claimed ε", "claimed ε", "exact ε / claimed ε")
    epsilons = sorted({one["epsilon"] for one in results})
    sides = {"hellinger-stated": -_ASIDE, "hellinger-smooth": 0.0, "hellinger-accuracy": _ASIDE}
    for mechanism, side in sides.items():
        mine = _of(results, mechanism)
        across = [epsilons.index(one["epsilon"]) + side for one in mine]
        options = {**_LOOKS[mechanism].options(), "linestyle": "none", "alpha": 0.6}
        heights = [_mean(one, "exact_over_claimed") for one in mine]
        axes.plot(across, heights, label=_LOOKS[mechanism].label, **options)
    axes.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
    axes.set_xlim(-0.5, len(epsilons) - 0.5)
    axes.set_ylim(0.4, 1.6)
    _level(axes, 1.0, "the claim")


def _draw_coverage(axes: Axes, results: Sequence[Result], epsilon: float) -> None:
    at = [one for one in results if one["epsilon"] == epsilon]
    look.tidy(axes, f"Coverage of 95 % intervals, ε = {epsilon:g}", "records n", "coverage")
    mechanisms = ("geometric", "laplace", *_CALIBRATED[:2])
    for place, mechanism in enumerate(mechanisms):
        base, label = _LOOKS[mechanism].options(), _LOOKS[mechanism].label
        naive, aware = (_line(at, mechanism, f"{kind}_coverage") for kind in ("naive", "aware"))
        white = {**base, "markerfacecolor": "white"}
        axes.plot(*_columns(naive), label=f"{label}, naive", **white)
        # Beside each other, as all of them are at 95 %.
        moved = [(n * 1.08 ** (place - 1.5), value) for n, value in aware]
        filled = {**base, "linestyle": "none"}
        axes.plot(*_columns(moved), label=f"{label}, noise-aware", **filled)
    _by_powers(axes, {one["records"] for one in at})
    axes.set_ylim(0.0, 1.02)
    _level(axes, 0.95, "95 %")


def _draw_ratios(axes: Axes, results: Sequence[Result]) -> None:
    look.tidy(axes, "Best Hellinger over noise", "n ε", "ratio of errors")
    priors = list(dict.fromkeys(one["prior"] for one in results))
    for noise, size in _NOISE.items():
        base = {**_LOOKS[noise].options(), "linestyle": "none", "markersize": size}
        for prior, mark in zip(priors, _PRIORS, strict=False):
            label = f"over {_LOOKS[noise].label}, {_named(prior)}"
            points = _columns(ratios(results, noise, prior))
            axes.plot(*points, label=label, **{**base, "marker": mark})
    axes.set_xscale("log")
    axes.set_yscale("log")
    _plain_ticks(axes, "y", (0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0))
    _plain_ticks(axes, "x", (1, 10, 100, 1000))
    _level(axes, 1.0, "equal")


def _level(axes: Axes, height: float, label: str) -> None:
    """Draw a line for comparison with a label at its right end; axes may be logarithmic."""
    axes.axhline(height, color=canvas.GREY, linewidth=1.0, zorder=1, label=label)
    axes.text(
        1.02, height, label, transform=axes.get_yaxis_transform(), va="center",
        size=canvas.SMALL, color=canvas.GREY,
    )  # fmt: skip


def ratios(results: Iterable[Result], noise: str, prior: str) -> list[tuple[float, float]]:
    """Return nε and the error of the best calibrated Hellinger mechanism over noise, by setting."""
    settings: dict[tuple[int, float], dict[str, float]] = {}
    for one in results:
        if one["prior"] == prior:
            key = (one["records"], one["epsilon"])
            settings.setdefault(key, {})[one["mechanism"]] = _mean(one, "error")
    return [
        (n * epsilon, min(errors[name] for name in _CALIBRATED if name in errors) / errors[noise])
        for (n, epsilon), errors in sorted(settings.items())
        if noise in errors and set(errors) & set(_CALIBRATED)
    ]


def _of(results: Iterable[Result], mechanism: str) -> list[Result]:
    return [one for one in results if one["mechanism"] == mechanism]


def _line(results: Iterable[Result], mechanism: str, name: str) -> list[tuple[float, float]]:
    """Return a measure against n, where it was measured."""
    return sorted((r["records"], _mean(r, name)) for r in _of(results, mechanism) if name in r)


def _mean(result: Result, name: str) -> float:
    return records.required(result, name).mean


def _columns(points: Sequence[tuple[float, float]]) -> Any:
    return np.array(points).reshape(-1, 2).T


def _by_powers(axes: Axes, sizes: Iterable[int]) -> None:
    axes.set_xscale("log")
    _plain_ticks(axes, "x", sorted(sizes))


def _plain_ticks(axes: Axes, which: str, values: Sequence[float]) -> None:
    """Set tick labels without exponents, within the axis."""
    low, high = getattr(axes, f"get_{which}lim")()
    kept = [value for value in values if low <= value <= high]
    getattr(axes, f"set_{which}ticks")(kept, [f"{value:g}" for value in kept])
    getattr(axes, f"set_{which}ticks")([], minor=True)
