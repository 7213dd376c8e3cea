"""Figures: they say what the records say, their text can be read, and their files open."""

from __future__ import annotations

import itertools
import subprocess
import sys

import matplotlib.colors
import numpy as np
import pytest
from PIL import Image

from tacit.federated.algorithms import ALGORITHMS
from tacit.privacy.errors import InvalidData, InvalidParameter, TacitError
from tacit_papers import figures as plots

MNIST = {
    "rows": 70000,
    "inhouse": 45000,
    "people": 13500,
    "voters": 1500,
    "test": 2500,
    "classes": [str(i) for i in range(10)],
}
CURVES = {"codebook": (0.97, 0.5), "vlm": (0.85, 4.0), "direct": (0.12, 1.0)}
EPSILONS = (1, 2, 4, 6, 8, 10)


def measured(value, trials=3, spread=0.01):
    values = [round(value + spread * (i - (trials - 1) / 2), 6) for i in range(trials)]
    std = float(np.std(values, ddof=1)) if trials > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": std, "trials": values}


def accuracy(mechanism, epsilon, chance):
    top, half = CURVES.get(mechanism, (0.9, 2.0))
    return chance + (max(top, chance) - chance) * epsilon**2 / (epsilon**2 + half**2)


def spread_by_class(mean, classes, trials):
    means = [mean * (1 - 0.2 * (i % 7) / 7 * (1.1 - mean)) for i in range(classes)]
    return {
        "mean": means,
        "std": [0.01 if trials > 1 else 0.0] * classes,
        "trials": [means] * trials,
    }


def without(record, name):
    return {key: value for key, value in record.items() if key != name}


def collect_result(mechanism, epsilon, central, level, trials, classes, private=True):
    chance = 1 / classes
    loss = {"inf": 1.0, 5: 0.9, 1: 0.75}[central] * (0.95 if level == "feature" else 1)
    mean = max(accuracy(mechanism, epsilon, chance) * loss, chance)
    result = {
        "mechanism": mechanism,
        "features": "scattering" if mechanism == "codebook" else None,
        "level": level,
        "epsilon": epsilon,
        "central_epsilon": central,
        "clean_accuracy": measured(mean, trials),
        "by_class": spread_by_class(mean, classes, trials),
        "guarantee": "…",
    }
    if private:
        spent = 0.7 * epsilon
        ceiling = np.exp(spent) / (np.exp(spent) + classes - 1)
        result["private_accuracy"] = measured(max(ceiling * mean, chance), trials)
        low = chance + (ceiling - chance) * 0.6
        result["ceilings"] = {"epsilon": spent, "laplace": low, "universal": ceiling}
    return result


def record(study, results, references=None, *, data=None, **parameters):
    return {
        "study": study,
        "parameters": {"data": "mnist", "seed": 0, "quick": False, **parameters},
        "versions": {},
        "data": MNIST if data is None else data,
        "seconds": 1.0,
        "results": results,
        "references": references or {},
        "runs": [],
    }


def collect(
    central="inf", levels=("latent",), trials=3, epsilons=EPSILONS, private=True, classes=10, **more
):
    results = [
        collect_result(mechanism, epsilon, central, level, trials, classes, private)
        for mechanism, epsilon, level in itertools.product(CURVES, epsilons, levels)
    ]
    references = {"chance": 1 / classes, "no_privacy": measured(0.985, trials, 0.001)}
    data = {**MNIST, "classes": [str(i) for i in range(classes)]}
    return record("collect", results, references, **{"data": data, **more})


def novel_class(levels=("latent",), trials=3):
    results = [
        without(collect_result(m, e, c, level, trials, 2, False), "by_class")
        for m, e, c, level in itertools.product(("codebook", "vlm"), EPSILONS, ("inf", 5), levels)
    ]
    data = {"inhouse": 40000, "heldout": 2500, "people": 6000, "test": 2000}
    return record("novel-class", results, {"chance": 0.5}, data=data, new=9)


def join(trials=3, **more):
    means = {"codebook": 0.62, "vlm": 0.6, "direct": 0.53}
    results = [
        {
            "mechanism": mechanism,
            "epsilon": epsilon,
            "semi_private_accuracy": measured(
                0.52 + (top - 0.52) * epsilon / (epsilon + 2), trials
            ),
        }
        for (mechanism, top), epsilon in itertools.product(means.items(), EPSILONS)
    ]
    references = {
        "chance": 0.5,
        "clean_only": measured(0.524, trials, 0.004),
        "all_clean": measured(0.638, trials, 0.004),
    }
    data = {"inhouse": 9000, "people": 2000, "test": 1900}
    return record("join", results, references, data=data, **{"join": "signal", **more})


def search(trials=3):
    results = []
    for mechanism, epsilon in itertools.product(("codebook", "vlm"), (2, 4, 10)):
        mean = accuracy(mechanism, epsilon, 0.1)
        candidates = [
            {
                "settings": {"radius": r},
                "estimated": measured(mean - 0.03 * r, trials, 0.03)["trials"],
                "test": measured(mean - 0.035 * r, trials)["trials"],
            }
            for r in range(6)
        ]
        estimates = candidates[0]["estimated"]
        results.append(
            {
                "mechanism": mechanism,
                "epsilon": epsilon,
                "estimated_accuracy": measured(mean, trials, 0.03),
                "interval": [[value - 0.06, min(value + 0.06, 1)] for value in estimates],
                "test_accuracy": measured(mean, trials),
                "winner": [{"radius": 0}] * trials,
                "paper": {"radius": 2} if mechanism == "vlm" else None,
                "candidates": candidates,
            }
        )
    return record("search", results, {"chance": 0.1})


TASKS = {"digit": 0.1, "parity": 0.5, "at least 5": 0.5, "has a loop": 0.6}


def agnostic(trials=3, epsilons=(1, 2, 4, 10), tasks=TASKS):
    results = [
        {
            "mechanism": mechanism,
            "epsilon": epsilon,
            "task": task,
            "clean_accuracy": measured(accuracy(mechanism, epsilon, chance) * 0.98, trials),
            "dedicated_accuracy": measured(accuracy(mechanism, epsilon, chance), trials),
            "chance": chance,
        }
        for mechanism, epsilon, (task, chance) in itertools.product(
            ("codebook", "vlm"), epsilons, tasks.items()
        )
    ]
    return record("agnostic", results)


CASES = {
    "collect": [collect()],
    "collect-central": [collect("inf"), collect(5), collect(1)],
    "collect-levels": [collect("inf", ("latent", "feature")), collect(5, ("latent", "feature"))],
    "collect-one-trial": [collect(trials=1, quick=True)],
    "collect-one-epsilon": [collect(epsilons=(4,))],
    "collect-clean-only": [collect(private=False)],
    "collect-many-classes": [collect(classes=62)],
    "collect-wide": [collect(epsilons=(0.5, 1, 2, 4, 8, 16, 50, 100))],
    "novel-class": [novel_class()],
    "novel-class-levels": [novel_class(("feature", "latent"), trials=1)],
    "join": [join()],
    "search": [search()],
    "search-one-trial": [search(1)],
    "agnostic": [agnostic()],
    "agnostic-one-epsilon": [agnostic(1, (4,))],
    "agnostic-many-tasks": [agnostic(tasks={f"task {i}": 0.5 for i in range(6)})],
}
OKABE_ITO = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}


@pytest.fixture(scope="module", name="figures")
def _figures():
    """Every case drawn once, with its text where it will be."""
    found = {name: plots.draw(records) for name, records in CASES.items()}
    for figure in found.values():
        figure.draw_without_rendering()
    return found


def panel(figure, title):
    found = [axes for axes in figure.axes if axes.get_title(loc="left").startswith(title)]
    assert len(found) == 1
    return found[0]


def curves(axes):
    """What is drawn with error bars: places, means, deviations, and the line itself."""
    for container in axes.containers:
        line, _, bars = container
        ends = [segment[:, 1] for segment in bars[0].get_segments()] if bars else []
        reach = [float(high - low) / 2 for low, high in ends]
        yield line.get_xdata(), line.get_ydata(), reach, line


def levels(axes):
    """Heights of the lines that cross a panel."""
    return sorted(
        float(line.get_ydata()[0]) for line in axes.lines if list(line.get_xdata()) == [0, 1]
    )


def labels(figure):
    (legend,) = figure.legends
    return [text.get_text().strip() for text in legend.get_texts()]


def texts(figure):
    """Everything to be read, and where it is."""
    (legend,) = figure.legends
    found = [figure._suptitle, figure._supxlabel, *legend.get_texts()]
    for axes in figure.axes:
        if axes.axison:
            found += [axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title, *axes.texts]
            found += [*shown_ticks(axes.xaxis), *shown_ticks(axes.yaxis)]
    return [(one.get_text().strip(), one.get_window_extent()) for one in found if one.get_text()]


def shown_ticks(axis):
    low, high = sorted(axis.get_view_interval())
    return [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]


def near(values):
    return pytest.approx(values, abs=1e-9)


# --- every figure --------------------------------------------------------------------------------


def assert_legible(figure):
    figure.draw_without_rendering()
    said = texts(figure)
    for text, box in said:
        assert box.x0 >= 0, text
        assert box.y0 >= 0, text
        assert box.x1 <= figure.bbox.x1, text
        assert box.y1 <= figure.bbox.y1, text
    for (one, box), (other, beside) in itertools.combinations(said, 2):
        across = min(box.x1, beside.x1) - max(box.x0, beside.x0)
        up = min(box.y1, beside.y1) - max(box.y0, beside.y0)
        assert across <= 1 or up <= 1, (one, other)


@pytest.mark.parametrize("name", CASES)
def test_text_is_inside_and_never_overlaps(figures, name):
    assert_legible(figures[name])


@pytest.mark.parametrize("data", [f"{'long_' * 20}.csv", f"{'a long ' * 9}name.csv"])
def test_a_long_name_fits_beside_the_legend(data):
    record = join()
    record["parameters"]["data"] = data
    assert_legible(plots.draw([record]))


@pytest.mark.parametrize("name", CASES)
def test_the_legend_covers_no_panel(figures, name):
    (legend,) = figures[name].legends
    box = legend.get_window_extent()
    assert not any(box.overlaps(axes.get_window_extent()) for axes in figures[name].axes)


@pytest.mark.parametrize("name", CASES)
def test_data_are_inside_their_panels(figures, name):
    for axes in figures[name].axes:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        for across, means, _, _ in curves(axes):
            assert all(left <= x <= right for x in across)
            assert all(bottom <= y <= top for y in means)


@pytest.mark.parametrize("name", CASES)
def test_axes_are_labelled_and_share_the_scale(figures, name):
    shown = [axes for axes in figures[name].axes if axes.axison]
    scales = [axes.get_ylim() for axes in shown if not axes.get_xlabel().startswith("class")]
    assert len(set(scales)) == 1
    for axes in shown:
        assert axes.get_xlabel().startswith(("local ε of a", "class ("))
        assert axes.get_ylabel().startswith("accuracy")
        assert axes.get_title(loc="left")


@pytest.mark.parametrize("name", CASES)
def test_title_and_caption_say_data_sizes_and_trials(figures, name):
    title = figures[name].get_suptitle().replace("\n", " ")
    caption = figures[name].get_supxlabel().replace("\n", " ")
    assert title.startswith("MNIST: ")
    result = CASES[name][0]["results"][0]
    (*_, trials) = (result[key]["trials"] for key in result if key.endswith("accuracy"))
    assert title.endswith("(1 trial)" if len(trials) == 1 else "(3 trials)")
    assert f"{CASES[name][0]['data']['inhouse']:,} in-house" in caption
    assert f"{CASES[name][0]['data']['people']:,} people" in caption
    deviations = "search" not in name  # whose bars are intervals
    assert ("95 % interval" in caption) != deviations
    assert ("No error bars: 1 trial." in caption) == (deviations and len(trials) == 1)
    assert ("one standard deviation of 3 trials" in caption) == (deviations and len(trials) == 3)
    assert ("Quick run" in caption) == CASES[name][0]["parameters"]["quick"]


def test_drawing_changes_no_record_and_not_the_next_figure():
    records = [collect(), collect(5)]
    before = repr(records)
    first = [figure.get_axes() for figure in (plots.draw(records), plots.draw(records))]
    assert repr(records) == before
    assert len(first[0]) == len(first[1])


# --- data collection -----------------------------------------------------------------------------


def test_curves_are_the_means_and_error_bars_the_deviations(figures):
    axes = panel(figures["collect"], "Clean accuracy")
    found = list(curves(axes))
    assert len(found) == 3
    for mechanism, (across, means, reach, _) in zip(CURVES, found, strict=True):
        mine = [r for r in CASES["collect"][0]["results"] if r["mechanism"] == mechanism]
        assert list(across) == list(EPSILONS)
        assert list(means) == near([r["clean_accuracy"]["mean"] for r in mine])
        assert reach == near([r["clean_accuracy"]["std"] for r in mine])


def test_points_are_drawn_by_epsilon_whatever_their_order():
    record = collect()
    record["results"].reverse()
    across, *_ = next(curves(panel(plots.draw([record]), "Clean")))
    assert list(across) == list(EPSILONS)


def test_one_trial_has_no_error_bars(figures):
    for axes in figures["collect-one-trial"].axes:
        assert all(reach == [] for _, _, reach, _ in curves(axes))


def test_private_accuracy_stands_under_its_ceilings(figures):
    axes = panel(figures["collect"], "Private accuracy")
    results = CASES["collect"][0]["results"][: len(EPSILONS)]
    for name in ("universal", "laplace"):
        heights = near([result["ceilings"][name] for result in results])
        assert sum(list(line.get_ydata()) == heights for line in axes.lines) == 1
    assert [text.get_text() for text in axes.texts] == [
        "chance", "ceiling of\nLaplace", "ceiling of any\nmechanism",
    ]  # fmt: skip
    assert next(curves(axes))[1] == near([r["private_accuracy"]["mean"] for r in results])


def test_where_mechanisms_spend_differently_the_highest_ceiling_is_drawn():
    record = collect()
    for result in record["results"]:
        if result["mechanism"] == "vlm":
            result["ceilings"] = {"epsilon": 1, "laplace": 0.99, "universal": 0.995}
    axes = panel(plots.draw([record]), "Private accuracy")
    assert any(list(line.get_ydata()) == near([0.995] * 6) for line in axes.lines)


def test_reference_lines_are_at_their_heights(figures):
    assert levels(panel(figures["collect"], "Clean")) == near([0.1, 0.985])
    assert levels(panel(figures["collect"], "Private")) == near([0.1])
    ceilings = CASES["collect-one-epsilon"][0]["results"][0]["ceilings"]
    expected = sorted([0.1, ceilings["laplace"], ceilings["universal"]])
    assert levels(panel(figures["collect-one-epsilon"], "Private")) == near(expected)


def test_central_guarantees_of_three_records_differ_in_line_and_fill(figures):
    figure = figures["collect-central"]
    assert labels(figure) == [
        "mechanism", "codebook", "VLM", "direct noising",
        "central ε", "∞", "5", "1",
        "by class", "ε = 1", "ε = 10",
    ]  # fmt: skip
    lines = [line for _, _, _, line in curves(panel(figure, "Clean"))]
    assert len(lines) == 9
    looks = {
        (line.get_linestyle(), line.get_fillstyle(), line.get_markerfacecolor())
        for line in lines[:3]
    }
    assert len(looks) == 3
    assert lines[0].get_linestyle() == "-"
    assert lines[0].get_markerfacecolor() == lines[0].get_color()
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 3


def test_central_guarantees_are_not_explained_where_there_are_none(figures):
    assert "central ε" not in labels(figures["collect"])
    assert "central ε" in labels(plots.draw([collect(5)]))


def test_colours_are_safe_and_markers_distinct():
    record = collect()
    extra = [
        {**r, "features": "invariant"} for r in record["results"] if r["mechanism"] == "codebook"
    ]
    extra += [{**r, "mechanism": "other"} for r in extra]
    record["results"] += extra
    figure = plots.draw([record])
    lines = [line for _, _, _, line in curves(panel(figure, "Clean"))]
    colours = {matplotlib.colors.to_hex(line.get_color()) for line in lines}
    assert len(colours) == len({line.get_marker() for line in lines}) == 5
    assert colours <= OKABE_ITO
    assert {"codebook, scattering", "codebook, invariant", "VLM", "other"} <= set(labels(figure))
    record["results"].reverse()
    assert labels(plots.draw([record]))[1:3] == ["codebook, scattering", "codebook, invariant"]


def test_levels_have_a_row_each(figures):
    figure = figures["collect-levels"]
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == [
        f"{panel}, {level} level"
        for level in ("latent", "feature")
        for panel in ("Clean accuracy", "Private accuracy", "By class, codebook")
    ]
    first, second = (next(curves(panel(figure, f"Clean accuracy, {x}")))[1] for x in ("lat", "fea"))
    assert list(second) == pytest.approx([0.95 * value for value in first], abs=1e-5)


def test_a_result_without_a_level_is_in_every_row():
    record = collect(levels=("latent", "feature"))
    record["results"] = [
        {**r, "level": None if r["mechanism"] == "direct" else r["level"]}
        for r in record["results"]
        if (r["mechanism"], r["level"]) != ("direct", "feature")
    ]
    figure = plots.draw([record])
    assert [len(list(curves(panel(figure, f"Clean accuracy, {x}")))) for x in ("lat", "fea")] == [
        3,
        3,
    ]


def test_what_knows_no_levels_is_in_every_row_and_what_knows_them_is_not():
    record = collect(levels=("latent", "feature"))
    record["results"] = [
        result
        for result in record["results"]
        if (result["mechanism"], result["level"]) != ("codebook", "feature")
    ]
    record["results"] += [
        {**result, "mechanism": "vlm-paper"}
        for result in record["results"]
        if (result["mechanism"], result["level"]) == ("vlm", "latent")
    ]
    figure = plots.draw([record])
    first, second = (
        [list(means) for _, means, _, _ in curves(panel(figure, f"Clean accuracy, {level}"))]
        for level in ("latent", "feature")
    )
    assert (len(first), len(second)) == (4, 3)
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert panel(figure, "By class, VLM, feature")


def test_a_mechanism_made_for_one_level_is_in_no_other_row():
    record = collect(levels=("latent", "feature"))
    record["results"] += [
        {**result, "mechanism": "vlm-tuned"}
        for result in record["results"]
        if (result["mechanism"], result["level"]) == ("vlm", "latent")
    ]
    figure = plots.draw([record])
    assert [len(list(curves(panel(figure, f"Clean accuracy, {x}")))) for x in ("lat", "fea")] == [
        4,
        3,
    ]


def test_classes_of_a_mechanism_without_levels_are_named_without_one():
    record = collect(levels=("latent", "feature"))
    record["results"] = [
        result
        for result in record["results"]
        if (result["mechanism"], result["level"]) != ("codebook", "feature")
    ]
    record["results"] += [
        {**result, "features": "invariant"}
        for result in record["results"]
        if result["mechanism"] == "codebook"
    ]
    figure = plots.draw([record])
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[2::3] == ["By class, codebook, scattering", "By class, VLM, feature level"]
    assert_legible(figure)


def places(axes):
    """Where the first point of every curve is drawn, in pixels."""
    return [line.get_transform().transform(line.get_xydata()[0])[0] for *_, line in curves(axes)]


def test_error_bars_of_one_epsilon_do_not_cover_each_other(figures):
    figure = figures["collect-central"]
    found = places(panel(figure, "Clean"))
    assert len(found) == 9
    assert all(one < next_one for one, next_one in itertools.pairwise(found))
    assert max(found) - min(found) < 10 * figure.dpi / 72
    # A curve that was moved could seem to cross its ceiling.
    assert len(set(places(panel(figure, "Private")))) == 1
    assert "side by side" in figure.get_supxlabel().replace("\n", " ")


def test_without_private_accuracy_there_is_no_panel_for_it(figures):
    titles = [axes.get_title(loc="left") for axes in figures["collect-clean-only"].axes]
    assert titles == ["Clean accuracy", "By class, codebook"]
    assert "eiling" not in figures["collect-clean-only"].get_supxlabel()


def test_classes_are_shown_at_the_smallest_and_largest_epsilon():
    record = collect()
    for result in record["results"]:
        if result["epsilon"] == 1:
            result["by_class"]["mean"][3] = 0.4
    axes = panel(plots.draw([record]), "By class, codebook")
    results = record["results"]
    (_, few, reach, _), (_, many, _, _) = curves(axes)
    assert list(few) == near(results[0]["by_class"]["mean"])
    assert list(many) == near(results[5]["by_class"]["mean"])
    assert reach == near([0.01] * 10)
    assert axes.get_xlabel() == "class (3 loses most to the noise)"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == MNIST["classes"]


def test_where_no_class_loses_none_is_named():
    record = collect()
    for result in record["results"]:
        result["by_class"]["mean"] = [0.0, 1.0] * 5
    assert panel(plots.draw([record]), "By class").get_xlabel() == "class"


def test_error_bars_and_ceilings_are_inside_even_of_unequal_classes():
    record = collect(classes=2)
    for result in record["results"]:
        result["clean_accuracy"] = result["private_accuracy"] = measured(0.76)
        result["by_class"] |= {"mean": [0.95, 0.4], "std": [0.01, 0.1]}
        result["ceilings"]["laplace"] = 0.55
    figure = plots.draw([record])
    assert panel(figure, "By class").get_ylim()[0] <= 0.3
    assert panel(figure, "Private").get_ylim()[0] <= 0.55


def test_long_class_names_and_file_names_fit():
    names = ["Fully Paid on time and in full", "Charged Off", "Late"]
    data = {**MNIST, "classes": names}
    figure = plots.draw(
        [{**collect(classes=3, data=data), "parameters": {"data": "a/b/loans.csv"}}]
    )
    figure.draw_without_rendering()
    assert figure.get_suptitle().startswith("loans.csv: ")
    assert panel(figure, "Clean").get_ylabel() == "accuracy on clean records"
    ticks = panel(figure, "By class").get_xticklabels()
    boxes = [tick.get_window_extent() for tick in ticks]
    assert not any(a.overlaps(b) for a, b in itertools.pairwise(boxes))
    assert ticks[0].get_text() == "Fully Paid on t…"


def test_many_classes_are_named_in_part(figures):
    axes = panel(figures["collect-many-classes"], "By class")
    assert len(next(curves(axes))[0]) == 62
    assert len(axes.get_xticklabels()) <= 24


def test_a_wide_range_of_epsilon_is_drawn_by_powers(figures):
    assert panel(figures["collect-wide"], "Clean").get_xscale() == "log"
    assert panel(figures["collect"], "Clean").get_xscale() == "linear"


# --- other studies -------------------------------------------------------------------------------


def test_novel_class(figures):
    (axes,) = figures["novel-class"].axes
    assert "new class 9" in figures["novel-class"].get_suptitle()
    assert len(list(curves(axes))) == 4
    assert levels(axes) == near([0.5])
    titles = [axes.get_title(loc="left") for axes in figures["novel-class-levels"].axes]
    assert titles == ["New class or not, latent level", "New class or not, feature level"]


def test_join_has_bands_for_clean_columns(figures):
    (axes,) = figures["join"].axes
    assert levels(axes) == near([0.5, 0.524, 0.638])
    bands = sorted((box.get_y(), box.get_height()) for box in axes.patches)
    assert [low for low, _ in bands] == near([0.52, 0.634])
    assert [height for _, height in bands] == near([0.008, 0.008])
    assert [text.get_text() for text in axes.texts] == ["chance", "clean only", "all columns clean"]
    assert labels(figures["join"]) == ["mechanism", "codebook", "VLM", "direct noising"]
    assert "Columns: signal." in figures["join"].get_supxlabel()


def test_labels_of_equal_references_stand_apart():
    record = join()
    record["references"] = {name: measured(0.5) for name in ("clean_only", "all_clean", "chance")}
    figure = plots.draw([record])
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 3
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_missing_references_are_not_drawn():
    record = join()
    record["references"] = {"chance": None}
    assert levels(plots.draw([record]).axes[0]) == []


def test_search_shows_every_interval_beside_the_test(figures):
    axes = panel(figures["search"], "VLM")
    mine = [r for r in CASES["search"][0]["results"] if r["mechanism"] == "vlm"]
    drawn = [c.get_segments()[0] for c in axes.collections if c not in _error_bars(axes)]
    assert [tuple(ends[:, 1]) for ends in drawn] == [
        near(tuple(interval)) for result in mine for interval in result["interval"]
    ]
    tested = [float(means[0]) for _, means, _, _ in curves(axes)]
    assert tested == near([result["test_accuracy"]["mean"] for result in mine])
    dots = [line for line in axes.lines if line.get_marker() == "."]
    assert len(dots) == 2 * 5 * 3
    papers = [float(line.get_ydata()[0]) for line in axes.lines if line.get_marker() == "D"]
    expected = [np.mean(r["candidates"][2][name]) for r in mine for name in ("estimated", "test")]
    assert papers == near(expected)


def _error_bars(axes):
    return [bar for container in axes.containers for bar in container[2]]


def test_search_takes_intervals_as_a_summary_and_candidates_by_trial():
    record = search()
    for result in record["results"]:
        result["interval"] = {"mean": [0, 1], "std": [0, 0], "trials": result["interval"]}
        result["candidates"] = [
            [
                {"settings": c["settings"], "estimated": c["estimated"][i]}
                for c in result["candidates"]
            ]
            for i in range(3)
        ]
    figure = plots.draw([record])
    lines = panel(figure, "VLM").lines
    heights = [float(line.get_ydata()[0]) for line in lines if line.get_marker() in ".D"]
    expected = [c["estimated"] for r in search()["results"][3:] for c in r["candidates"]]
    assert heights == near([np.mean(trials) for trials in expected])
    assert "the paper's settings" in labels(figure)


def test_agnostic_has_a_panel_for_each_task(figures):
    figure = figures["agnostic"]
    assert [axes.get_title(loc="left") for axes in figure.axes] == list(TASKS)
    for axes, (task, chance) in zip(figure.axes, TASKS.items(), strict=True):
        shared, dedicated, *others = curves(axes)
        mine = [r for r in CASES["agnostic"][0]["results"] if r["task"] == task]
        mine = [r for r in mine if r["mechanism"] == "codebook"]
        assert list(shared[1]) == near([r["clean_accuracy"]["mean"] for r in mine])
        assert list(dedicated[1]) == near([r["dedicated_accuracy"]["mean"] for r in mine])
        assert len(others) == 2
        assert shared[3].get_linestyle() != dedicated[3].get_linestyle()
        assert levels(axes) == near([chance])
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4", "10"]


# --- what is refused -----------------------------------------------------------------------------


def changed(**fields):
    record = collect()
    record["results"][0] |= fields
    return record


REFUSED = {
    "records must be at least one": [],
    "study must be 'collect' in every record, got 'join'": [collect(), join()],
    "data must be 'mnist' in every record, got 'adult'": [
        collect(), {**collect(5), "parameters": {"data": "adult"}}
    ],
    "join must be 'signal' in every record, got 'paper'": [join(), join(join="paper")],
    "people must be 13500 in every record, got 5": [
        collect(), collect(5, data={**MNIST, "people": 5})
    ],
    "must not hold the same point twice": [collect(), collect()],
    "study must be one of agnostic, anonymize": [{**collect(), "study": "magic"}],
    "a record must have study, parameters and results": [without(collect(), "results")],
    "a record must have study, parameters and results.": ["a string"],
    "a record must have study, parameters and results. Give": [{**collect(), "parameters": {}}],
    "at least one result": [{**collect(), "results": []}],
    "epsilon must be finite": [changed(epsilon="inf")],
    "epsilon of every result must be a number": [changed(epsilon=-1)],
    "central_epsilon of every result must be a number": [changed(central_epsilon="none")],
    "clean_accuracy of every result must be a number": [changed(clean_accuracy=None)],
    "clean_accuracy of every result must": [changed(clean_accuracy={"mean": 0.5})],
    "clean_accuracy of every result": [
        changed(clean_accuracy={"mean": float("nan"), "std": 0, "trials": [1]})
    ],
    "private_accuracy of every result must be a number": [changed(private_accuracy="good")],
    "by_class of every result must be": [changed(by_class={"mean": [0.5], "std": []})],
    "by_class must have one number per class": [collect(data={**MNIST, "classes": ["a", "b"]})],
    "a search must have an interval for each estimate": [
        {**search(), "results": [without(search()["results"][0], "interval")]}
    ],
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_bad_records_are_refused_in_one_line(message):
    with pytest.raises((InvalidData, InvalidParameter)) as error:
        plots.draw(REFUSED[message])
    assert str(error.value).startswith("plots: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


# --- files ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="small")
def _small():
    return plots.draw([join()])


def test_a_png_opens_and_is_not_blank(small, tmp_path):
    plots.save(small, tmp_path / "a.PNG")
    with Image.open(tmp_path / "a.PNG") as image:
        assert image.size == tuple(round(200 * inches) for inches in small.get_size_inches())
        pixels = np.asarray(image.convert("L"))
    assert pixels[0, 0] == 255
    assert 0.01 < (pixels < 200).mean() < 0.5


def test_svg_and_pdf_are_what_they_say(small, tmp_path):
    for name, begin in {"a.svg": b"<?xml", "a.pdf": b"%PDF"}.items():
        plots.save(small, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begin)
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_the_same_figure_is_the_same_file(tmp_path, suffix):
    images = [("x", [[0.0, 1.0]])]
    for name in ("a", "b"):
        plots.save(plots.picture(images, images), tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a.jpg", "file must be one of .png, .svg, .pdf, got 'a.jpg'"),
        ("a", "file must be one of .png, .svg, .pdf"),
        ("none/a.png", "path must be in an existing folder"),
        ("folder.png", "path must be a file"),
    ],
)
def test_bad_paths_are_refused_and_nothing_is_written(small, tmp_path, path, message):
    (tmp_path / "folder.png").mkdir()
    for attempt in (plots.check_target, lambda target: plots.save(small, target)):
        with pytest.raises(InvalidParameter) as error:
            attempt(tmp_path / path)
        assert message in str(error.value)
        assert "\n" not in str(error.value)
    assert [found.name for found in tmp_path.rglob("*")] == ["folder.png"]


def test_a_file_that_cannot_be_written_is_one_line(small, tmp_path):
    (tmp_path / "a.png").symlink_to(tmp_path / "none" / "a.png")
    with pytest.raises(InvalidParameter, match=r"path must be writable, got .*No such file"):
        plots.save(small, tmp_path / "a.png")


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_matplotlib_is_loaded_by_the_first_figure_and_pyplot_never():
    code = (
        "import sys; from tacit import plots; print('matplotlib' in sys.modules)\n"
        "plots.picture([('a', [[0, 1]])], [('b', [[1, 0]])])\n"
        "print('matplotlib' in sys.modules, 'matplotlib.pyplot' in sys.modules)"
    )
    assert python(code).split() == ["False", "True", "False"]


def test_without_matplotlib_one_line_says_how_to_get_it():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from tacit import errors, plots\n"
        "for call in (lambda: plots.picture([('a', [[0]])], [('b', [[0]])]),"
        " lambda: plots.check_target('a.png')):\n"
        "    try: call()\n"
        "    except errors.TacitError as error: print(error)"
    )
    line = "plots: figures need the matplotlib package. pip install 'tacit[plots]'.\n"
    assert python(code) == 2 * line


# --- one record before and after -----------------------------------------------------------------


def test_a_picture_shows_its_images_under_their_titles():
    digit, blurred = np.eye(8), np.full((8, 8), 0.5)
    figure = plots.picture(
        [("one person's digit", digit)],
        [("what a report of ε = 4 shows", blurred), ("direct", 1 - digit)],
    )
    assert [text.get_text() for text in figure.texts] == ["before", "after"]
    shown = [axes.images[0] for axes in figure.axes]
    assert [axes.get_title().replace("\n", " ").replace("\xa0", " ") for axes in figure.axes] == [
        "one person's digit", "what a report of ε = 4 shows", "direct",
    ]  # fmt: skip
    for image, expected in zip(shown, (digit, blurred, 1 - digit), strict=True):
        assert np.array_equal(image.get_array(), expected)
        assert image.get_clim() == (0, 1)
    figure.draw_without_rendering()
    boxes = [axes.title.get_window_extent() for axes in figure.axes]
    boxes += [text.get_window_extent() for text in figure.texts]
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
    assert max(box.y1 for box in boxes) <= figure.bbox.y1


def test_a_picture_saved_is_in_grey(tmp_path):
    images = [("x", np.linspace(0, 1, 64).reshape(8, 8))]
    plots.save(plots.picture(images, images), tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    inside = pixels[-100:-50, 60:260]
    assert np.ptp(inside, axis=2).max() == 0
    assert len(np.unique(inside)) >= 8


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros(5), "an image must have 2 dimensions, got 1"),
        (np.zeros((2, 2, 3)), "an image must have 2 dimensions, got 3"),
        (np.full((2, 2), 255), "an image must lie in [0, 1]. Scale it or clip it."),
        (np.array([[0.0, np.nan]]), "must be finite"),
        (np.zeros((0, 3)), "must not be empty"),
        ("text", "must be numbers"),
    ],
)
def test_bad_images_are_refused(image, message):
    with pytest.raises(TacitError) as error:
        plots.picture([("fine", np.eye(2))], [("bad", image)])
    assert str(error.value).startswith("picture: after: ")
    assert message in str(error.value)
    assert "255" not in str(error.value)


def test_a_picture_without_images_is_refused():
    with pytest.raises(InvalidParameter, match="picture: before must be at least one"):
        plots.picture([], [("x", np.eye(2))])


def test_rounding_beyond_one_is_no_matter():
    images = [("x", np.array([[1 + 1e-9, -1e-9]]))]
    assert len(plots.picture(images, images).axes) == 2


# --- federated -----------------------------------------------------------------------------------


def federated_result(algorithm, partition, rounds):
    reached = [None if value is None else float(value) for value in rounds]
    middle = sorted(reached, key=lambda value: 1e9 if value is None else value)[1]
    sizes = [None if value is None else value * 192_800 for value in reached]
    return {
        "model": "64-32-10",
        "algorithm": algorithm,
        "partition": partition,
        "trials": 3,
        "rounds_to": {"0.8": 3.0, "0.9": middle},
        "bytes_to": {"0.8": 6e5, "0.9": None if middle is None else middle * 192_800},
        "best_accuracy": 0.95,
        "own_accuracy": 0.6,
        "by_trial": {
            "rounds_to": {"0.8": [2, 3, 4], "0.9": reached},
            "bytes_to": {"0.8": [4e5, 6e5, 8e5], "0.9": sizes},
            "best_accuracy": [0.94, 0.95, 0.96],
            "own_accuracy": [0.5, 0.6, 0.7],
        },
    }


FEDERATED = tuple(ALGORITHMS)
SPLITS = (
    *("iid", "unbalanced", "covariate-shift", "dirichlet", "shards"),
    *("concept-drift", "concept-shift"),
)


@pytest.mark.parametrize("splits", [SPLITS, SPLITS[:1]])
def test_a_federated_study_is_legible(splits):
    results = [
        federated_result(name, split, (4 + place, 10, None if split == "shards" else 30))
        for place, name in enumerate(FEDERATED)
        for split in splits
    ]
    given = {"clients": 10, "participation": 0.5, "rounds": 60}
    data = {"training": 1437, "test": 360, "targets": ["0.8", "0.9"]}
    figure = plots.draw([record("federated", results, data=data, **given)])
    assert_legible(figure)
    assert labels(figure)[1:] == ["FedSGD", "FedAvg", "FedProx", "FSVRG", "FedDyn", "Sub-FedAvg"]
    assert "50 % of them in every round" in figure._supxlabel.get_text().replace("\n", " ")
    rounds = panel(figure, "Rounds to 90")
    level = [line for line in rounds.lines if len(set(line.get_ydata())) == 1]
    reach = max(max(line.get_xdata()) for line in level)
    assert (reach > 60) == ("shards" in splits)  # a trial that never got there


def test_what_no_run_reached_is_drawn_as_such():
    results = [federated_result(name, "shards", (None, None, None)) for name in FEDERATED]
    given = {"clients": 10, "participation": 1.0, "rounds": 60}
    figure = plots.draw([record("federated", results, data={"targets": ["0.8", "0.9"]}, **given)])
    assert_legible(figure)
    places = [line for line in panel(figure, "Rounds to 90").lines if len(line.get_xdata()) == 1]
    assert all(line.get_xdata()[0] > 60 for line in places)
    assert {line.get_markerfacecolor() for line in places} == {"white"}
