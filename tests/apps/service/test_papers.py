"""Papers and exports: what they state is what the campaign states, and nothing else."""

from __future__ import annotations

import csv
import io
import re
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text
from pyarrow import parquet

from tacit.apps.plots import canvas
from tacit.apps.service import cells, exports, processing
from tacit.apps.service.campaign import Campaign
from tacit.apps.service.notice import Notice
from tacit.apps.service.papers import MISSING, Line, Paper, Section
from tacit.apps.service.store import Store
from tacit.apps.service.summaries import Summaries
from tacit.data.schema import Categorical, Continuous, TableSchema
from tacit.local.learned.partitions import Partitions
from tacit.privacy.randomness import Seeded

from .conftest import SETTINGS
from .test_app import Asked
from .test_desk import ABOUT
from .test_frozen import filled
from .test_store import released
from .test_surveys import survey

TABLE = TableSchema(
    (
        Continuous("age", 18, 90),
        Continuous("monthly_income", 0, 100),
        Categorical("zone", ("north", "south")),
    )
)


def people(count: int, seed: int) -> tuple[dict[str, Any], Any]:
    drawn = np.random.default_rng(seed)
    old = drawn.random(count) < 0.4
    return {
        "age": np.where(old, drawn.uniform(70, 90, count), drawn.uniform(18, 40, count)),
        "monthly_income": drawn.uniform(0, 100, count),
        "zone": np.where(old, "north", "south"),
    }, old.astype(int)


@pytest.fixture(scope="module", name="parts")
def _parts() -> Partitions:
    made = Partitions(epsilon=4, classes=2, people=800, partitions=2, codewords=4, unit="person")
    return made.fit(people(400, 0)[0], schema=TABLE, inhouse_public=True)


@pytest.fixture(name="collected")
def _collected(store: Store, parts: Partitions) -> str:
    symbols = parts.release(*people(800, 1), rng=Seeded(2))
    columns = {name: column.tolist() for name, column in symbols.columns.items()}
    given = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return filled(store, parts, given, vote_epsilon=None, minimum=100)[0]


@pytest.mark.parametrize("which", ["notice", "record"])
def test_what_is_missing_is_named_and_nothing_is_invented(mechanism: Any, which: str) -> None:
    def made(about: Notice) -> str:
        campaign = Campaign(id="x" * 12, mechanism=mechanism, about=about, **SETTINGS)
        given = () if which == "notice" else ("open", {"invited": 3})
        return str(getattr(processing, which)(campaign, *given).to_markdown())

    bare, full = made(Notice()), made(Notice.from_plain(ABOUT))
    named = ("Responsible", "Contact", "Legal basis", "Reports are kept")
    for name in named:
        assert f"**{name}:** *{MISSING}.*" in bare
        assert f"**{name}:** *" not in full
    unmarked = re.sub(r"\\(.)", r"\1", full)
    for text in (ABOUT["organiser"], ABOUT["contact"], ABOUT["retention"], ABOUT["legal_basis"]):
        assert text in unmarked
        assert text not in bare
    assert SETTINGS["purpose"] in unmarked
    assert "4-DP" in full or "6-DP" in full


def test_every_value_that_is_asked_for_is_in_the_notice(parts: Partitions) -> None:
    table = Campaign(id="x" * 12, mechanism=parts, **{**SETTINGS, "vote_epsilon": None})
    text = processing.notice(table).to_markdown()
    for words in ("age: a number from 18 to 90", "monthly income", "zone: one of north, south"):
        assert words in text
    asked = survey()
    settings = {**SETTINGS, "labelled": False, "vote_epsilon": None}
    text = processing.notice(Campaign(id="x" * 12, mechanism=asked, **settings)).to_markdown()
    for name, one in asked.questions.items():
        assert (one.text or name) in text


def test_what_people_wrote_is_text_and_no_markup() -> None:
    wrote = "<img src=x onerror=alert(1)> & [a](javascript:b) *c*"
    paper = Paper(wrote, wrote, (Section(wrote, (Line(wrote, "Name"),), (wrote,)),))
    assert "<img" not in paper.to_html()
    assert paper.to_html().count("&lt;img") == 6
    assert "<img" not in paper.to_markdown().replace("\\<", "")
    assert "](" not in paper.to_markdown().replace("\\]", "")
    assert Paper.from_plain(paper.to_plain()) == paper


def test_pages_and_papers_over_http(store: Store, mechanism: Any) -> None:
    asked = Asked(store, mechanism, about=Notice.from_plain(ABOUT))
    with asked.http as http:
        name = asked.campaign.id
        page = http.get(f"/c/{name}/notice").text
        assert ABOUT["organiser"] in page
        assert asked.campaign.fingerprint in http.get(f"/c/{name}/certificate").text
        assert http.get(f"{asked.base}/notice").json()["markdown"].startswith("# Privacy notice")
        assert http.get(f"{asked.base}/record").status_code == 401
        record = http.get(f"{asked.base}/record", headers=asked.owner).json()
        assert "invited 0, answered 0, withdrawn 0" in record["markdown"]
        assert http.get("/c/nonexistent1/notice").status_code == 404
        for kind in ("csv", "parquet", "png"):
            assert http.get(f"{asked.base}/results.{kind}").status_code == 401
            few = http.get(f"{asked.base}/results.{kind}", headers=asked.owner)
            assert few.json()["type"] == "tacit:too-few"


def test_a_table_of_all_estimates(store: Store, mechanism: Any, digits: Any) -> None:
    name, receipts = filled(store, mechanism, released(mechanism, digits, 200))
    store.withdraw(name, receipts[0])
    summary = Summaries(store).of(name, 0.95)
    lines = list(csv.reader(io.StringIO(exports.as_csv(summary).decode())))
    assert lines[0] == list(exports.COLUMNS)
    table = parquet.read_table(io.BytesIO(exports.as_parquet(summary)))
    assert table.schema.metadata[b"withdrawn_reports"] == b"1"
    assert table.num_rows == len(lines) - 1
    labels = [row for row in table.to_pylist() if row["estimate"] == "share of label"]
    assert [row["of"] for row in labels] == [str(one["class"]) for one in summary["classes"]]
    for row, one in zip(labels, summary["classes"], strict=True):
        assert (row["value"], [row["low"], row["high"]]) == (one["share"], one["interval"])
    picture = exports.as_png(summary, "Digits")
    assert picture.startswith(b"\x89PNG")
    assert picture == exports.as_png(summary, "Digits")


@pytest.mark.parametrize("text", ["$5 to $10", r"$\frac{$", r"\$x$ \\", "a_b^c"])
def test_a_picture_takes_what_people_wrote_for_no_formula(text: str) -> None:
    shares = {"classes": [{"class": text, "share": 0.5, "interval": [0.25, 0.75]}]}
    counts = {"reports": 10, "votes": 0, "confidence": 0.95}
    summary = {**shares, **counts, "codewords": [], "accuracy": None, "withdrawn": {"words": text}}
    assert exports.as_png(summary, text).startswith(b"\x89PNG")
    assert Text(text=canvas.plain(text))._preprocess_math(canvas.plain(text)) == (text, False)


def test_a_cell_of_the_table_is_no_formula() -> None:
    one = {"class": '=2+3"', "share": 0.5, "interval": [0.25, 0.75]}
    summary = {"classes": [one], "codewords": [], "accuracy": None}
    assert exports.as_csv(summary).decode().splitlines()[1] == (
        '"share of label","\'=2+3""",0.5,0.25,0.75'
    )


def test_an_answer_without_ends_stays_empty() -> None:
    answers = [
        {"question": "mean age", "value": None, "interval": [None, 3.0]},
        {"question": "mean x by y", "groups": {"a": 1.0}, "interval": {"a": [0.5, None]}},
        {"question": "share z", "problem": "nobody"},
    ]
    summary = {"classes": [], "codewords": [], "accuracy": None, "answers": answers}
    rows = list(csv.reader(io.StringIO(exports.as_csv(summary).decode())))[1:]
    assert rows == [["mean age", "", "", "", "3.0"], ["mean x by y", "a", "1.0", "0.5", ""]]


def test_groups_of_partitions_are_estimated_and_told_apart(
    store: Store, parts: Partitions, collected: str
) -> None:
    summary = Summaries(store).of(collected, 0.95)
    rows, labels = people(800, 1)
    clean = parts.encode_rows(TABLE.rows(rows))
    assert len(summary["partitions"]) == 2
    inside = total = 0
    for one in summary["partitions"]:
        truth = np.bincount(clean[:, one["partition"]], minlength=4) / 800
        for entry in one["codewords"]:
            low, high = entry["interval"]
            # The people of a partition are a sample of all: half as many again as its own error.
            room = 3 * (0.25 / one["reports"]) ** 0.5
            inside += low - room <= truth[entry["codeword"]] <= high + room
            total += 1
    assert inside == total
    typical = cells.typical(parts)
    assert typical is not None
    ages = 18 + 72 * np.stack([one[:, 0] for one in typical])
    old = [clean[labels == 1, at] for at in range(2)]
    for at in range(2):
        cell = np.bincount(old[at], minlength=4).argmax()
        young = np.bincount(clean[labels == 0, at], minlength=4).argmax()
        assert ages[at][cell] > ages[at][young]


def test_groups_of_few_reports_are_not_shown(store: Store, parts: Partitions) -> None:
    symbols = parts.release(*people(150, 1), rng=Seeded(2))
    columns = {name: column.tolist() for name, column in symbols.columns.items()}
    given = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    name, _ = filled(store, parts, given, vote_epsilon=None, minimum=100)
    assert Summaries(store).of(name, 0.95)["partitions"] == []
