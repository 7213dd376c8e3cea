"""The figure of anonymized representations: task, attackers, bound and ε."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit.apps.plots import canvas
from tacit_papers.figures import look, panels, records
from tacit_papers.figures.look import Look
from tacit_papers.figures.records import Merged, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOOKS = {
    "toggled": Look("toggled", "#D55E00", "s"),
    "simultaneous": Look("simultaneous", "#009E73", "^"),
    "robust": Look("robust", "#0072B2", "o"),
}
_DASHED, _DOTTED = (0, (4, 2)), (0, (1, 1.2))
_KINDS = {
    "task": Look("accuracy on the {regular}", canvas.GREY, ".", "-"),
    "probe": Look("… on the {private}, of the\nstrongest fresh attacker", canvas.GREY, "o", "-"),
    "adversary": Look("… of the adversary of\nthe training", canvas.GREY, "o", _DASHED, "none"),
    "bound": Look("… at most, by (14), if that\nadversary were the best", canvas.GREY, "", _DOTTED),
}
_SHORT = {"task": "task", "probe": "strongest fresh attacker", "adversary": "training's adversary"}
_PROVED = Look("… of any attacker:\nproved ceiling", canvas.INK, ".", (0, (4, 1.5, 1, 1.5)))
_REFERENCES = {"trivial": "prediction alone", "raw": "the rows themselves"}
_ALONE = Look("{regular} as predicted, alone", canvas.INK, "*", "none", size=9.0)
_RAW = Look("the rows themselves", canvas.INK, "X", "none", size=6.0)
_NOTE = (
    "Attackers learn from the training and validation rows and are tested on the test rows. Bars "
    "of the strongest attacker: 95 % for all attackers at once, on the rows of all trials; other "
    "bars: one standard deviation of trials. Without ε there is no guarantee: another attacker may "
    "do better."
)


@records.results_with("a study of anonymization", "training, strength and attackers")
def draw(merged: Merged) -> Figure:
    """Draw six panels: the trade-off, a second task, ε; and each training against λ."""
    clean = [one for one in merged.results if one["epsilon"] is None]
    private = [one for one in merged.results if one["epsilon"] is not None]
    trainings = [name for name in _LOOKS if any(one["training"] == name for one in clean)]
    second = _second_name(clean)
    upper: list[Callable[[Axes], None]] = [lambda axes: _draw_tradeoff(axes, merged, clean)]
    if second is not None:
        upper.append(lambda axes: _draw_second(axes, merged, clean, second))
    if private:
        upper.append(lambda axes: _draw_epsilon(axes, merged, private))
    columns = max(len(upper), len(trainings))
    figure, axes = panels.grid(2, columns)
    for panel, draw in zip(axes[0], upper, strict=False):
        draw(panel)
    for panel, training in zip(axes[1], trainings, strict=False):
        _draw_strengths(panel, merged, clean, training)
    for panel in (*axes[0, len(upper) :], *axes[1, len(trainings) :]):
        panel.set_visible(False)
    look.legend(figure, _sections(merged, trainings, bool(private)))
    task, person = _labels(merged)
    title = f"{merged.name}: keeping the {task}, hiding the {person} ({merged.trials})"
    canvas.frame(figure, title, merged.caption(_NOTE, bars=False))
    return figure


def _sections(
    merged: Merged, trainings: Iterable[str], private: bool
) -> list[tuple[str, list[Look]]]:
    task, person = _labels(merged)
    marks = [*_KINDS.values(), *([_PROVED] if private else []), _ALONE]
    marks += [_RAW] if "raw" in merged.references else []
    named = [
        replace(one, label=one.label.format(regular=task, private=person).strip()) for one in marks
    ]
    named = [replace(one, label=one.label[0].upper() + one.label[1:]) for one in named]
    return [("training", [_LOOKS[name] for name in trainings]), ("what is shown", named)]


def _draw_tradeoff(axes: Axes, merged: Merged, results: Sequence[Result]) -> None:
    """Draw Figure 3 of the paper, and the same with the strongest attacker."""
    task, person = _labels(merged)
    look.tidy(axes, "The trade-off", f"accuracy on the {person}", f"accuracy on the {task}")
    for name, base in _LOOKS.items():
        mine = _by_strength(results, name)
        up, spread = _task(mine)
        for kind, of in (("adversary", _adversary), ("probe", _strongest)):
            across, bars = of(mine)
            upright = spread if kind == "probe" else None  # the same for both
            _plot(axes, across, up, _styled(base, kind), xerr=bars, yerr=upright)
    _draw_reference(axes, merged, "trivial", _ALONE, lambda one: _task([one])[0][0])
    heights = [h for one in results for h in _task([one])[0]]
    low, high = min(heights), max(heights)
    pad = max(0.25 * (high - low), 0.005)
    axes.set_ylim(max(low - pad, 0.0), min(high + pad, 1.0))
    axes.set_xlim(left=0.0)
    _chance(axes, merged, upright=True)


def _draw_second(axes: Axes, merged: Merged, results: Sequence[Result], name: str) -> None:
    """Draw the second task; higher is better, also for errors."""
    _, person = _labels(merged)
    thing, _, measure = name.rpartition("_")
    said = f"RMSE of {thing}, upwards is better" if measure == "rmse" else f"{thing} right"
    look.tidy(axes, f"A second task: {thing}", f"accuracy on the {person}", said.replace("_", " "))

    def height(one: Result) -> float:
        return float(one["second_task"][name]["mean"])

    for training, base in _LOOKS.items():
        mine = _by_strength(results, training)
        across, bars = _strongest(mine)
        _plot(axes, across, [*map(height, mine)], base, xerr=bars)
    for reference, shown in (("trivial", _ALONE), ("raw", _RAW)):
        _draw_reference(axes, merged, reference, shown, height)
    axes.set_xlim(left=0.0)
    if measure == "rmse":
        axes.invert_yaxis()
    _chance(axes, merged, upright=True)


def _draw_epsilon(axes: Axes, merged: Merged, results: Sequence[Result]) -> None:
    """Draw task and attackers against ε, with the proved ceiling."""
    strength = results[0]["strength"]
    look.tidy(axes, f"With a local ε, λ = {strength:g}", "ε of one release", "accuracy")
    epsilons = sorted({one["epsilon"] for one in results})
    for name, base in _LOOKS.items():
        mine = sorted(
            (one for one in results if one["training"] == name), key=lambda one: one["epsilon"]
        )
        if mine:
            across = [one["epsilon"] for one in mine]
            for kind, of in (("task", _task), ("probe", _strongest)):
                up, bars = of(mine)
                _plot(axes, across, up, _styled(base, kind), yerr=bars)
    proved = sorted({(one["epsilon"], one["ceiling"]) for one in results})
    axes.plot(*zip(*proved, strict=True), label="proved ceiling", **_PROVED.options())
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.set_xticks([], minor=True)
    axes.set_ylim(-0.02, 1.02)
    _chance(axes, merged)


def _draw_strengths(axes: Axes, merged: Merged, results: Sequence[Result], training: str) -> None:
    """Draw Figure 4 of the paper, and the same with the strongest attacker."""
    look.tidy(axes, training.capitalize(), "strength λ", "accuracy")
    mine, base = _by_strength(results, training), _LOOKS[training]
    across = [one["strength"] for one in mine]
    for kind, of in (("task", _task), ("adversary", _adversary), ("probe", _strongest)):
        up, bars = of(mine)
        _plot(axes, across, up, _styled(base, kind), yerr=bars)
    bound = _KINDS["bound"].options() | {"color": base.colour, "label": "bound (14)"}
    axes.plot(across, [one["bound_accuracy"] for one in mine], **bound)
    axes.set_ylim(-0.02, 1.02)
    _chance(axes, merged)


# --- points -----------------------------------------------------------------------------------


def _task(results: Sequence[Result]) -> tuple[list[float], Any]:
    return _over_trials(results, "regular_accuracy")


def _adversary(results: Sequence[Result]) -> tuple[list[float], Any]:
    return _over_trials(results, "adversary_accuracy")


def _over_trials(results: Sequence[Result], name: str) -> tuple[list[float], Any]:
    summaries = [records.required(one, name) for one in results]
    deviations = [one.std for one in summaries]
    return [one.mean for one in summaries], deviations if any(deviations) else None


def _strongest(results: Sequence[Result]) -> tuple[list[float], Any]:
    best = [one["strongest_probe"] for one in results]
    heights = [float(one["accuracy"]) for one in best]
    down = [height - one["interval"][0] for height, one in zip(heights, best, strict=True)]
    up = [one["interval"][1] - height for height, one in zip(heights, best, strict=True)]
    return heights, [down, up]


def _plot(
    axes: Axes, across: Sequence[float], up: Sequence[float], shown: Look, **bars: Any
) -> None:
    if across:
        options = shown.options() | {"label": shown.label}
        axes.errorbar(across, up, **bars, capsize=1.5, elinewidth=0.8, **options)


def _styled(base: Look, kind: str) -> Look:
    """Combine the colour of a training with the line and fill of a measure."""
    shown = _KINDS[kind]
    marker = shown.marker if kind == "task" else base.marker
    label = f"{base.label}, {_SHORT[kind]}"
    return replace(base, label=label, marker=marker, line=shown.line, fill=shown.fill)


def _draw_reference(
    axes: Axes, merged: Merged, name: str, shown: Look, height: Callable[[Result], float]
) -> None:
    """Draw a single point at the strongest attacker's accuracy, where it was measured."""
    reference = merged.references.get(name)
    if reference is not None:
        across = _strongest([reference])[0]
        label = _REFERENCES[name]
        axes.plot(across, [height(reference)], label=label, **{**shown.options(), "zorder": 5})


def _chance(axes: Axes, merged: Merged, upright: bool = False) -> None:
    value = merged.reference("chance")
    if value is None:
        return
    line: dict[str, Any] = {"color": canvas.GREY, "linestyle": _DASHED, "linewidth": 0.9}
    text: dict[str, Any] = {"size": canvas.SMALL, "color": canvas.GREY}
    if upright:
        axes.axvline(value.mean, zorder=1, **line)
        across = axes.get_xaxis_transform()
        axes.text(value.mean, 0.985, " chance", transform=across, va="top", **text)
    else:
        axes.axhline(value.mean, zorder=1, label="chance", **line)
        up = axes.get_yaxis_transform()
        axes.text(1.02, value.mean, "chance", transform=up, va="center", **text)


def _by_strength(results: Iterable[Result], training: str) -> list[Result]:
    mine = (one for one in results if one["training"] == training)
    return sorted(mine, key=lambda one: float(one["strength"]))


def _second_name(results: Sequence[Result]) -> str | None:
    """Choose the second task to draw: an error of numbers first, else an accuracy."""
    names = sorted(results[0].get("second_task", {}), key=lambda name: name.endswith("_accuracy"))
    return next((name for name in names if name.endswith(("_rmse", "_accuracy"))), None)


def _labels(merged: Merged) -> tuple[str, str]:
    parameters = merged.parameters
    return str(parameters.get("regular", "task")), str(parameters.get("private", "person"))
