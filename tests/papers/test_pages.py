"""Pages about results say what the records say, and are not out of date."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tacit_papers.engine import registry

ROOT = Path(__file__).parents[2]


@pytest.fixture(name="site")
def _site(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return importlib.import_module("tacit_papers.pages.site")


def measure(*trials: float) -> dict[str, Any]:
    mean = sum(trials) / len(trials)
    squares = sum((value - mean) ** 2 for value in trials)
    std = (squares / (len(trials) - 1)) ** 0.5 if len(trials) > 1 else 0.0
    return {"mean": mean, "std": std, "trials": list(trials)}


def around(mean: float) -> dict[str, Any]:
    return measure(mean - 0.01, mean, mean + 0.01)


def result(mechanism: str, epsilon: float, clean: float, **more: Any) -> dict[str, Any]:
    usual = {"level": "latent", "central_epsilon": "inf", "clean_accuracy": around(clean)}
    features = {"features": "scattering"} if mechanism == "codebook" else {}
    return {"mechanism": mechanism, "epsilon": epsilon, **features, **usual, **more}


def record(study: str, data: str, results: list[Any], **more: Any) -> dict[str, Any]:
    parameters = {
        "data": data,
        "mechanisms": list(dict.fromkeys(r["mechanism"] for r in results)),
        "epsilons": [1.0, 2.5],
        "central": ["inf", 5.0],
        "trials": 3,
        "seed": 0,
        "quick": False,
        **more.pop("parameters", {}),
    }
    sizes = {"inhouse": 45_000, "people": 13_500, "voters": 1_500, "test": 2_500}
    return {
        "study": study,
        "parameters": parameters,
        "versions": {"tacit": "0.1.0", "device": "two cores"},
        "data": {**sizes, "classes": ["no", "yes"], "taken_as_public": []},
        "seconds": 812.3,
        "results": results,
        "references": {"chance": 0.5, "no_privacy": around(0.95)},
        **more,
    }


def made(site: ModuleType, folder: Path, **records: Any) -> dict[str, str]:
    for name, content in records.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    # Numbers hold non-breaking spaces, which are hard to tell from others in a test.
    return {name: page.replace("\u00a0", " ") for name, page in site.pages(folder).items()}


def collected(codebook: float = 0.9, vlm: float = 0.7, **more: Any) -> dict[str, Any]:
    results = [
        result(name, epsilon, base + epsilon / 100)
        for name, base in (("codebook", codebook), ("vlm", vlm))
        for epsilon in (1.0, 2.0)
    ]
    return record("collect", "mnist", results, **more)


def paragraph(page: str, start: str) -> str:
    return next(text for text in page.split("\n\n") if text.startswith(start))


def test_committed_pages_are_those_of_the_committed_records(site: ModuleType) -> None:
    folder = ROOT / "docs" / "results"
    committed = {path.name: path.read_text() for path in folder.glob("*.md")}
    assert committed == site.pages(ROOT / "papers" / "results"), "run: make docs"


def test_lists_of_studies_and_options_are_not_out_of_date(site: ModuleType) -> None:
    made = site.reference.pages(ROOT / "docs")
    assert made == {name: (ROOT / "docs" / name).read_text() for name in made}, "run: make docs"
    for study in registry.names():
        assert f"\n## tacit study {study}\n" in made["cli.md"]
        assert f"(cli.md#tacit-study-{study})" in made["studies.md"]


def test_without_records_every_section_says_how_to_make_one(
    site: ModuleType, tmp_path: Path
) -> None:
    pages = site.pages(tmp_path)
    assert set(pages) == {"index.md", *(f"{name}.md" for name in registry.names())}
    for data in ("mnist", "lending_club", "adult"):
        assert f"tacit study collect --data {data} --json" in pages["collect.md"]
    assert "\n## Adult\n" in pages["join.md"]
    assert "There are no records yet" in pages["index.md"]
    assert "not measured" in pages["index.md"]
    assert not any(re.search(r"\{[a-z]", page) for page in pages.values())


def test_values_come_from_the_records(site: ModuleType, tmp_path: Path) -> None:
    page = made(site, tmp_path, a=collected())["collect.md"]
    assert "| codebook | 0.910 ± 0.010 | 0.920 ± 0.010 |" in page
    assert "the codebook reaches 0.920 ± 0.010; the VLM 0.720 ± 0.010." in page
    assert "45,000 in-house images, 13,500 people" in page
    assert "Without privacy: 0.950 ± 0.010." in page
    assert "codebook −0.040 at ε = 1 and −0.030 at ε = 2" in page
    other = made(site, tmp_path, a=collected(codebook=0.8))["collect.md"]
    assert "the codebook reaches 0.820 ± 0.010; the VLM 0.720 ± 0.010." in other


def test_an_order_is_claimed_only_where_it_is_there(site: ModuleType, tmp_path: Path) -> None:
    def claim(**bases: float) -> str:
        page = made(site, tmp_path, a=collected(**bases))["collect.md"]
        return paragraph(page.partition("### Clean")[2], "**") if bases else page

    assert "**codebook** has the highest mean at every ε (1 and 2)" in claim(codebook=0.9, vlm=0.7)
    assert "smallest lead is 0.200, over vlm" in claim(codebook=0.9, vlm=0.7)
    assert "**vlm** has the highest mean at every ε" in claim(codebook=0.6, vlm=0.7)
    assert "within one standard deviation" in claim(codebook=0.705, vlm=0.7)
    assert "within one standard deviation of" not in claim(codebook=0.9, vlm=0.7)


def test_no_order_is_said_to_be_none(site: ModuleType, tmp_path: Path) -> None:
    results = [
        result("codebook", 1.0, 0.9),
        result("vlm", 1.0, 0.6),
        result("codebook", 8.0, 0.9),
        result("vlm", 8.0, 0.99),
    ]
    page = made(site, tmp_path, a=record("collect", "mnist", results))["collect.md"]
    assert "No mechanism is best throughout." in page
    assert "**codebook** at ε = 1; **vlm** at ε = 8" in page
    assert "highest mean at every ε" not in page


def test_one_mechanism_and_one_trial_claim_nothing(site: ModuleType, tmp_path: Path) -> None:
    only = {**result("codebook", 2.0, 0.9), "clean_accuracy": measure(0.9)}
    page = made(site, tmp_path, a=record("collect", "mnist", [only]))["collect.md"]
    assert "Only codebook was run." in page
    assert "| codebook | 0.900 |" in page
    assert "Everything is above chance (0.500), in one trial." in page


def test_an_epsilon_of_one_mechanism_is_no_comparison(site: ModuleType, tmp_path: Path) -> None:
    results = [result("codebook", 1.0, 0.9), result("vlm", 1.0, 0.6), result("vlm", 8.0, 0.8)]
    page = made(site, tmp_path, a=record("collect", "mnist", results))["collect.md"]
    assert "**codebook** has the highest mean at every ε (1)" in page
    apart = [result("codebook", 1.0, 0.9), result("vlm", 8.0, 0.8)]
    page = made(site, tmp_path, a=record("collect", "mnist", apart))["collect.md"]
    assert "*Not measured yet: two mechanisms at the same ε.*" in page
    assert "highest" not in page


def test_chance(site: ModuleType, tmp_path: Path) -> None:
    results = [result("codebook", 1.0, 0.9), result("direct", 1.0, 0.505)]
    page = made(site, tmp_path, a=record("collect", "mnist", results))["collect.md"]
    assert "Not above chance (0.500) by more than one standard deviation: direct at ε = 1." in page
    page = made(site, tmp_path, a=collected())["collect.md"]
    assert "Everything is above chance (0.500) by more than one standard deviation." in page


def test_what_was_not_measured_is_said(site: ModuleType, tmp_path: Path) -> None:
    page = made(site, tmp_path, a=collected())["collect.md"]
    assert "*Not measured yet: a central ε.*" in page
    assert "*Not measured yet: accuracy on rows that are themselves reported.*" in page
    assert "*There is no figure yet.*" in page
    assert "no record of this study on `adult`" in page


def test_lines_are_in_order_whatever_the_files_are_called(site: ModuleType, tmp_path: Path) -> None:
    def of(name: str, features: str | None, **more: Any) -> dict[str, Any]:
        return record("collect", "mnist", [result(name, 2.0, 0.5, features=features, **more)])

    page = made(
        site,
        tmp_path,
        a=of("direct", None),
        b=of("codebook", "invariant"),
        c=of("vlm", None, level="feature"),
        d=of("vlm", None, central_epsilon=1.0),
        e=of("vlm", None),
        f=of("codebook", "scattering"),
    )["collect.md"]
    lines = [line.split(" | ")[0][2:] for line in page.splitlines() if " 0.500 ± " in line]
    assert lines[:6] == [
        "codebook, scattering features",
        "codebook, invariant features",
        "vlm, latent level, central ε = ∞",
        "vlm, latent level, central ε = 1",
        "vlm, feature level, central ε = ∞",
        "direct",
    ]


def test_records_of_one_study_are_put_together(site: ModuleType, tmp_path: Path) -> None:
    central = record("collect", "mnist", [result("codebook", 2.0, 0.8, central_epsilon=5.0)])
    decoded = record("collect", "mnist", [result("vlm", 2.0, 0.75, level="feature")])
    page = made(site, tmp_path, a=collected(), b=central, c=decoded)["collect.md"]
    assert "| codebook, central ε = ∞ | 0.910 ± 0.010 | 0.920 ± 0.010 |" in page
    assert "| codebook, central ε = 5 |  | 0.800 ± 0.010 |" in page
    assert "not proved: codebook, central ε = 5: −0.120 (ε = 2) to −0.120 (ε = 2)." in page
    assert "vlm, feature level: +0.030 (ε = 2) to +0.030 (ε = 2)." in page
    assert "**codebook** has the highest mean" in page
    assert "the codebook reaches 0.920" in page  # not the one with a central guarantee


def test_the_same_twice_is_refused(site: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"b\.json: codebook, scattering.* at ε = 1 is in another"):
        made(site, tmp_path, a=collected(), b=collected())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"study": "collect"}', "3"])
def test_what_is_no_record_is_refused(site: ModuleType, tmp_path: Path, text: str) -> None:
    (tmp_path / "broken.json").write_text(text)
    with pytest.raises(ValueError, match=r"broken\.json: a record must have "):
        site.pages(tmp_path)


def ceiling(epsilon: float, private: float) -> dict[str, Any]:
    ceilings = {"epsilon": 0.7 * epsilon, "laplace": 0.4, "universal": 0.6}
    return result("codebook", epsilon, 0.9, private_accuracy=around(private), ceilings=ceilings)


def test_ceilings(site: ModuleType, tmp_path: Path) -> None:
    below = record("collect", "mnist", [ceiling(1.0, 0.3), ceiling(2.0, 0.5)])
    page = made(site, tmp_path, a=below)["collect.md"]
    assert "Above the ceiling of additive Laplace noise: codebook at ε = 2." in page
    assert "Nothing is above the ceiling of any channel." in page
    assert "| *ceiling of any channel, 0.7 ε on the row* | 0.600 | 0.600 |" in page
    above = record("collect", "mnist", [ceiling(1.0, 0.3), ceiling(2.0, 0.61)])
    page = made(site, tmp_path, a=above)["collect.md"]
    assert "Above the ceiling of any channel: codebook at ε = 2." in page
    assert "Nothing is above" not in page


def test_whom_the_noise_hurts(site: ModuleType, tmp_path: Path) -> None:
    results = [
        result("codebook", epsilon, 0.9, by_class={"mean": means, "std": [0, 0], "trials": []})
        for epsilon, means in ((1.0, [0.5, 0.9]), (8.0, [0.9, 0.8]))
    ]
    page = made(site, tmp_path, a=record("collect", "mnist", results))["collect.md"]
    assert "At ε = 1, codebook does worst on class no (0.500) and best on class yes" in page
    assert "At ε = 8, codebook does worst on class yes (0.800)" in page
    assert "less unequal at the larger ε" in page
    assert "| yes | 0.900 | 0.800 |" in page


def test_the_command_makes_the_record(site: ModuleType, tmp_path: Path) -> None:
    given = collected(parameters={"schema": "/home/me/people.json", "features": None})
    page = made(site, tmp_path, mine=given)["collect.md"]
    block = next(b for b in re.findall(r"^```\n(.*?)^```", page, re.M | re.S) if "mine.json" in b)
    command = shlex.split(block.replace("\\\n", ""))
    options = dict(zip(command[3::2], command[4::2], strict=True))
    assert options["--epsilons"] == "1,2.5"
    assert options["--central"] == "inf,5"
    assert options["--mechanisms"] == "codebook,vlm"
    assert options["--seed"] == "0"
    assert options["--schema"] == "people.json"
    assert "--quick" not in command
    assert "--features" not in command
    assert (
        "--quick" in made(site, tmp_path, mine=collected(parameters={"quick": True}))["collect.md"]
    )


def test_other_data_get_a_section_and_figures_a_link(site: ModuleType, tmp_path: Path) -> None:
    given = record("collect", "/home/me/people.csv", [result("direct", 1.0, 0.9)])
    made(site, tmp_path, a=given)
    groups = site.provenance.group(site.provenance.read(tmp_path))
    assert site.drawing.refresh(tmp_path, groups) == ["figures/collect-people.csv"]
    assert site.drawing.refresh(tmp_path, groups) == []
    page = made(site, tmp_path)["collect.md"]
    assert "\n## people.csv\n" in page
    assert "/home/me" not in page
    alt = (
        "![Clean accuracy: accuracy on clean records against local ε of a report. direct noising: "
    )
    assert f"{alt}0.9 at 1. Line “no privacy” at 0.95. Line “chance” at 0.5.]" in page
    for name in ("1.svg", "legend.svg"):
        assert f"](../../papers/results/figures/collect-people.csv/{name})" in page
        assert (tmp_path / "figures" / "collect-people.csv" / name).stat().st_size < 100_000
    (tmp_path / "a.json").unlink()
    assert site.drawing.refresh(tmp_path, {}) == []
    assert not (tmp_path / "figures" / "collect-people.csv").exists()


def test_committed_figures_are_those_of_the_committed_records(
    site: ModuleType, tmp_path: Path
) -> None:
    results = ROOT / "papers" / "results"
    groups = site.provenance.group(site.provenance.read(results))
    for path in results.iterdir():
        (tmp_path / path.name).symlink_to(path)
    assert site.drawing.refresh(tmp_path, groups) == [], "run: make docs"
    (tmp_path / "figures").unlink()
    few = {key: one for key, one in groups.items() if key[0] in ("join", "federated", "threats")}
    drawn = site.drawing.refresh(tmp_path, few, every=True)
    for name in drawn:
        again, before = (
            json.loads((f / name / "figure.json").read_text()) for f in (tmp_path, results)
        )
        assert again == before, "run: python -m tacit_papers.pages.site --redraw"


def images() -> list[tuple[str, str, str]]:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = re.compile(r"!\[([^]]*)\]\(([^)]*)\)")
    return [(page.name, *match) for page in pages for match in shown.findall(page.read_text())]


def test_every_image_says_what_is_seen() -> None:
    for page, alt, file in images():
        assert file.endswith(".svg"), page
        assert len(alt) > 30, (page, file)
        digits = len(re.findall(r"\d", alt))
        assert alt.startswith("Legend. ") or digits >= 3, (page, file, alt)
        path = ROOT / "docs" / "results" / file if "papers/results" in file else None
        assert path is None or path.exists(), (page, file)


def joined(split: str, room: float, **gains: float) -> dict[str, Any]:
    results = [
        {"mechanism": name, "epsilon": 4.0, "semi_private_accuracy": around(0.6 + gain)}
        for name, gain in gains.items()
    ]
    references = {"chance": 0.5, "clean_only": around(0.6), "all_clean": around(0.6 + room)}
    parameters = {"join": split}
    return record("join", "lending_club", results, references=references, parameters=parameters)


def test_join(site: ModuleType, tmp_path: Path) -> None:
    signal = joined("signal", 0.1, codebook=0.05, direct=0.0)
    page = made(site, tmp_path, paper=joined("paper", 0.0, codebook=0.0), signal=signal)["join.md"]
    first, second = page.split("## Lending Club, split ")[1:]
    assert first.startswith('"paper"')
    assert "next to nothing to gain" in first
    assert "codebook at no ε." in first
    assert "next to nothing to gain" not in second
    assert "codebook at ε = 4 (50% of what there is to gain, at ε = 4)" in second
    assert "direct at no ε (0% of" in second


def test_novel_class(site: ModuleType, tmp_path: Path) -> None:
    given = record("novel-class", "mnist", [result("codebook", 2.0, 0.9)], parameters={"new": 9})
    page = made(site, tmp_path, a=given)["novel-class.md"]
    assert "## MNIST, new class 9" in page
    assert "| codebook | 0.900 ± 0.010 |" in page


def test_search(site: ModuleType, tmp_path: Path) -> None:
    found = {
        "mechanism": "vlm",
        "epsilon": 2.0,
        "estimated_accuracy": measure(0.70, 0.80),
        "test_accuracy": measure(0.72, 0.70),
        "interval": [[0.65, 0.75], [0.75, 0.85]],
        "winner": [{"radius": 5, "likelihood": "normal"}, {"radius": 10}],
        "paper": {"radius": 7.5},
        "candidates": [
            {"settings": {"radius": 5}, "estimated": [0.7, 0.6], "test": [0.72, 0.74]},
            {"settings": {"radius": 10}, "estimated": [0.6, 0.8], "test": [0.70, 0.70]},
        ],
    }
    page = made(site, tmp_path, a=record("search", "mnist", [found]))["search.md"]
    assert "1 of 2 intervals hold the accuracy on test rows; the estimate is 0.060" in page
    assert "by 0.020 to 0.020 on average over trials (most: vlm at ε = 2)" in page
    assert "| vlm | 2 | radius 5, likelihood normal<br>radius 10 | radius 7.5 |" in page


def test_agnostic(site: ModuleType, tmp_path: Path) -> None:
    results = [
        result("codebook", 2.0, clean, task=task, dedicated_accuracy=around(0.9), chance=chance)
        for task, clean, chance in (("digit", 0.88, 0.1), ("parity", 0.5, 0.5))
    ]
    page = made(site, tmp_path, a=record("agnostic", "mnist", results))["agnostic.md"]
    assert "codebook but for parity at ε = 2." in page
    assert "codebook −0.400 (parity, ε = 2) to −0.020 (digit, ε = 2)." in page
    assert "| codebook, task: digit | 0.880 ± 0.010 |" in page


def hospitals(lead: float, epsilons: tuple[float | None, ...] = (1.0, None)) -> dict[str, Any]:
    """Three hospitals ahead of one by so much at every ε; pretraining adds nothing."""
    paid = {"noise_multiplier": 4.0, "sampling_probability": 0.25, "rounds": 6, "steps": 24}
    paid["spent_epsilon"] = 0.9
    results = [
        {
            "mechanism": None,
            "model": model,
            "task": task,
            "epsilon": epsilon,
            **{name: around(0.5 + (lead if task[0] == "t" else 0)) for name in ("mcc", "accuracy")},
            **{f"{name}_validation": around(0.8) for name in ("mcc", "accuracy")},
            **paid,
        }
        for model in ("scratch", "pretrained")
        for task in ("three hospitals", "one hospital alone")
        for epsilon in epsilons
    ]
    asked = {"epsilons": list(epsilons), "delta": 1.9e-4, "settings": {}, "public_data": "mnist"}
    asked |= {"mechanisms": [], "central": ["inf"]}
    found = record("primia", "pneumoniamnist", results, parameters=asked)
    shares = {"training": 0.75, "validation": 0.74, "test": 0.625}
    found["data"] |= {
        "rows": 30,
        "training": 19,
        "validation": 5,
        "hospitals": [10, 9],
        "ill": shares,
    }
    found["data"]["published"] = {"epsilon": 1.0, "mcc": 0.78}
    return found


def test_hospitals(site: ModuleType, tmp_path: Path) -> None:
    def page(lead: float) -> str:
        return made(site, tmp_path, a=hospitals(lead))["primia.md"]

    assert "| from scratch, three hospitals | 0.600 ± 0.010 | 0.600 ± 0.010 |" in page(0.1)
    assert "- from scratch, test images: ahead at ε = 1, and without privacy." in page(0.1)
    assert "ahead of one by more than two standard errors in 2, behind in 0, and in 2" in page(0.1)
    assert "- pretrained, test images: **behind** at ε = 1, and without privacy." in page(-0.1)
    assert "- pretrained, test images: no difference that trials can tell at ε = 1" in page(0.01)
    assert "falls by 0.200 to 0.300" in page(0.1)
    assert "changes by −0.300 to +0.100" in page(0.4)
    assert "hospitals of 10 and 9." in page(0.1)
    assert "from scratch 0.600 ± 0.010 on test images and 0.800 ± 0.010 on" in page(0.1)
    assert "| from scratch | 1 | 4.00 | 0.250 | 6 | 24 | 0.9000 |" in page(0.1)
    assert "tacit study primia --epsilons 1,inf --trials 3 --seed 0 --delta 0.00019" in page(0.1)


def test_one_trial_of_hospitals_tells_nothing(site: ModuleType, tmp_path: Path) -> None:
    found = hospitals(0.1)
    for one in found["results"]:
        one["mcc"] = measure(one["mcc"]["mean"])
    page = made(site, tmp_path, a=found)["primia.md"]
    assert "test images: ahead" not in page
    assert "| from scratch, test images | +0.100 | +0.100 |" in page


def test_targets(site: ModuleType, tmp_path: Path) -> None:
    index = made(site, tmp_path, a=collected(codebook=0.85))["index.md"]
    start = "| collect, mnist: codebook, scattering"
    rows = [line for line in index.splitlines() if line.startswith(start)]
    short = "short by 0.050 at ε = 2; not measured at ε = 4, 6 and 10"
    assert f"| 0.860 / 0.870 / – / – / – | {short} |" in rows[0]
    assert "central ε = 5" in rows[1]
    assert rows[1].endswith("| not measured |")
    index = made(site, tmp_path, a=collected(codebook=0.91))["index.md"]
    assert "| met; not measured at ε = 4, 6 and 10 |" in index


def test_writing_touches_only_what_changed(site: ModuleType, tmp_path: Path) -> None:
    results, out = tmp_path / "results", tmp_path / "pages"
    results.mkdir()
    made = site.pages(results)
    assert len(site.write(made, out)) == len(list(registry.TEMPLATES.glob("*.md")))
    assert site.write(made, out) == []
    (out / "join.md").write_text("by hand")
    assert site.write(made, out) == ["join.md"]


def test_every_page_is_in_the_navigation(site: ModuleType) -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    config = SimpleNamespace(nav=[{"Home": "index.md"}, {"Results": []}])
    (_, added) = site.on_config(config).nav
    navigation += "".join(f": {path}\n" for page in added["Results"] for path in page.values())
    pages = [p.relative_to(ROOT / "docs") for p in (ROOT / "docs").glob("*.md")]
    pages += [p.relative_to(ROOT / "docs") for p in (ROOT / "docs" / "results").glob("*.md")]
    missing = [page for page in pages if not re.search(f": {page.as_posix()}( #|\n)", navigation)]
    assert not missing
