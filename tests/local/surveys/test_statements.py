"""What answers state beside their numbers: certificates, declared sheets, persons, trends."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit.apps.cli import main
from tacit.local.surveys import statements, trends
from tacit.local.surveys.intervals import Estimate
from tacit.privacy import errors
from tacit.privacy.accounting.readers import of_event
from tacit.privacy.certificate import Certificate
from tacit.privacy.randomness import Seeded

QUESTIONS = {
    "smoker": tacit.YesNo(text="Do you smoke?", help="Cigars\ncount."),
    "region": tacit.OneOf(("north", "south")),
    "pets": tacit.SeveralOf(("cat", "dog", "fish")),
    "income": tacit.Number(0, 10, text="What do you earn?", unit="thousand a month"),
}
SHEETS = ["smoker", ("region", "income"), "pets", "income:bins"]


def survey(**changed):
    return tacit.Survey(QUESTIONS, **{"epsilon": 2, "sheets": SHEETS, **changed})


def people(count, seed, shift=0.0):
    drawn = np.random.default_rng(seed)
    return {
        "smoker": drawn.random(count) < 0.2 + shift,
        "region": np.where(drawn.random(count) < 0.5, "south", "north"),
        "pets": ["cat;fish"] * count,
        "income": drawn.uniform(0, 10, count),
    }


def test_the_certificate_of_an_answer_states_both_guarantees():
    made = survey()
    reports = made.release(people(2000, 1), rng=Seeded(1))
    found = made.answer(reports, "mean income by region", delta=1e-7, fake=20)
    certificate = found.certificate
    assert found.guarantee == str(certificate.guarantee) == str(made.guarantee)
    assert found.readers == str(certificate.readers)
    smallest = int(np.bincount(reports.columns["sheet"]).min())
    readers = certificate.readers
    assert (readers.people, readers.fake, readers.guarantee.delta) == (smallest, 20, 1e-7)
    expected = max(of_event(one, smallest - 20, 1e-7).epsilon for one in made.event.events)
    assert readers.guarantee.epsilon == expected
    again = Certificate.from_json(certificate.to_json())
    again.verify()
    for change in ({"people": smallest - 100}, {"fake": 120}):
        with pytest.raises(errors.CertificateError):
            replace(again, readers=replace(readers, **change)).verify()


def test_answers_from_rows_have_no_certificate():
    found = survey().answer(people(50, 1), "share of smoker")
    assert found.certificate is None
    with pytest.raises(errors.InvalidParameter, match="from reports"):
        statements.of_answers([found])


def test_the_questions_are_in_the_certificate_of_reports_and_cannot_be_changed(tmp_path):
    reports = survey().release(people(20, 1))
    about = reports.certificate.about
    assert about[0] == "smoker: Do you smoke? (no, yes). Cigars count."
    assert about[-1] == "income: What do you earn? (0 to 10 thousand a month)."
    assert "Cigars count." in reports.certificate.explain()
    body = json.loads(reports.certificate.to_json())
    body["about"][0] = "smoker: Do you like cigars? (no, yes)."
    with pytest.raises(errors.CertificateError):
        Certificate.from_json(json.dumps(body))
    assert tacit.Reports.read(reports.write(tmp_path / "r.parquet")).certificate.about == about


def test_texts_that_are_not_printed_do_not_reach_a_certificate():
    asked = {"x": tacit.YesNo(text="a\u202eb\x00c", help="\r\n")}
    made = tacit.Survey(asked, epsilon=1)
    assert made.certificate.about == ("x: a b c (no, yes).",)


def test_certificates_of_answers_from_different_reports_are_not_joined():
    made = survey()
    first, second = (
        made.answer(made.release(people(n, 1), rng=Seeded(1)), "share of smoker")
        for n in (900, 950)
    )
    with pytest.raises(errors.InvalidParameter, match="from the same reports"):
        statements.of_answers([first, second])


def test_ask_writes_a_certificate_that_is_bound_to_the_table(tmp_path, capsys):
    made = survey()
    path = made.release(people(3000, 1)).write(tmp_path / "r.parquet")
    out, certificate = tmp_path / "a.csv", tmp_path / "c.json"
    words = ["ask", path, "share of smoker", "mean income", "--out", out, "--certificate"]
    assert main([*map(str, [*words, certificate, "--fake", 5, "--delta", 1e-8])]) == 0
    capsys.readouterr()
    assert main(["account", "verify", str(certificate), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["readers"].startswith("(")
    loaded = Certificate.load(certificate)
    assert (loaded.readers.fake, loaded.readers.guarantee.delta) == (5, 1e-8)
    assert sum(one.startswith("Answered: ") for one in loaded.about) == 2
    out.write_text(out.read_text().replace("mean income", "mean oncome"))
    assert main(["account", "verify", str(certificate)]) == 1


# --- declared sheets ---------------------------------------------------------------------------


def test_sheets_are_declared_by_the_names_of_their_questions():
    made, rows = survey(), people(6, 1)
    assigned = ["smoker", "income+region", ("region", "income"), "income", "income:bins", 1]
    seen = made.release(rows, assigned=assigned).columns["sheet"]
    assert seen.tolist() == [0, 1, 1, 5, 5, 1]


def test_an_option_of_several_is_drawn_for_each_person_without_a_look_at_answers():
    made, rows = survey(), people(3000, 1)
    other = {**rows, "pets": ["dog"] * 3000}
    seen = [
        made.release(one, rng=Seeded(4), assigned=["pets"] * 3000).columns["sheet"]
        for one in (rows, other)
    ]
    assert np.array_equal(*seen)
    counts = np.bincount(seen[0], minlength=6)
    assert counts[[0, 1, 5]].sum() == 0
    assert counts[2:5].min() > 800  # 1,000 expected each, 26 the standard deviation


@pytest.mark.parametrize(
    "assigned",
    [
        ["smoker", "secret"],
        ["smoker"],
        "smoker",
        [True, False],
        [0, 4],
        [0, -1],
        [np.nan, None],
        [["smoker"], [["region"]]],
        [("region",), "smoker"],
    ],
)
def test_other_assignments_are_refused_and_not_repeated(assigned):
    with pytest.raises(errors.InvalidData, match="assigned must be one") as caught:
        survey().release(people(2, 1), assigned=assigned)
    assert "secret" not in str(caught.value)


# --- persons -----------------------------------------------------------------------------------


def test_several_reports_of_a_person_are_paid_for_and_hide_nobody():
    made, names = survey(), [*map(str, range(30))] * 100
    reports = made.release(people(3000, 1), persons=names, most=2)
    assert len(reports) == 60
    assert reports.guarantee.epsilon == 4
    found = made.answer(reports, "share of smoker")
    assert found.certificate.readers.guarantee.epsilon == 4
    assert "several people" not in found.covers
    assert "Several reports of one person" in found.covers
    found.certificate.verify()


def test_rows_without_a_name_and_wrong_names_are_not_reported():
    made = survey()
    names = ["Ada", None, "Ada", "", "Grace"]
    assert len(made.release(people(5, 1), persons=names)) == 2
    with pytest.raises(errors.InvalidData, match="one per row"):
        made.release(people(4, 1), persons=names)


def test_names_and_declared_sheets_go_together():
    made = survey()
    names = ["Ada", None, "Ada", "Grace", "Joan"]
    assigned = ["smoker", "income", "smoker", "region+income", "smoker"]
    seen = made.release(people(5, 1), persons=names, assigned=assigned).columns["sheet"]
    assert seen.tolist() == [0, 1, 0]


# --- trends ------------------------------------------------------------------------------------


def test_a_trend_of_rows_without_noise_is_that_of_the_means():
    made = survey()
    rounds = [people(400, seed, 0.1 * seed) for seed in range(4)]
    found = made.answer(rounds, "trend of share of smoker", times=[1, 2, 4, 8])
    values = [one["smoker"].mean() for one in rounds]
    assert [one.value for one in found.estimates[:-1]] == pytest.approx(values)
    assert found.estimates[-1].value == pytest.approx(np.polyfit([1, 2, 4, 8], values, 1)[0])
    assert [one.label for one in found.estimates][-2:] == ["round 8", "slope per unit of time"]
    assert found.certificate is None


def test_a_trend_by_group_says_how_many_numbers_there_are():
    made = survey()
    rounds = [made.release(people(900, seed), rng=Seeded(seed)) for seed in range(3)]
    found = made.answer(rounds, "trend of mean income by region")
    assert [one.label for one in found.estimates[:4]] == [
        *(f"north, round {place}" for place in (1, 2, 3)),
        "north, slope per round",
    ]
    assert "not all 8 together" in found.covers
    both = made.answer(rounds, "trend of mean income by region", simultaneous=True)
    assert "All 8 hold together" in both.covers
    for one, wide in zip(found.estimates, both.estimates, strict=True):
        assert wide.interval[0] <= one.interval[0] <= one.interval[1] <= wide.interval[1]
    assert statements.DIFFERENT in found.certificate.assumptions
    counts = [np.bincount(one.columns["sheet"]).min() for one in rounds]
    assert found.certificate.readers.people == min(counts)
    found.certificate.verify()


def test_slopes_of_two_rounds_are_differences():
    made = survey()
    rounds = [made.release(people(900, seed), rng=Seeded(seed)) for seed in range(2)]
    slope = made.answer(rounds, "trend of mean income").estimates[-1]
    difference = made.change(*rounds, "mean income").estimates[0]
    assert slope.value == pytest.approx(difference.value)
    assert slope.standard_error == pytest.approx(difference.standard_error)


def test_slopes_cover_the_slope_of_the_population():
    """95 % intervals hold in 93 % of 2,000 series at least: six standard deviations below."""
    drawn, z = np.random.default_rng(0), 1.96
    times, truth, errors_ = np.arange(1.0, 5.0), np.array([0.1, 0.3, 0.2, 0.6]), 0.1
    held = 0
    for values in truth + drawn.normal(0, errors_, (2000, 4)):
        series = [Estimate("", v, errors_, (v - z * errors_, v + z * errors_)) for v in values]
        low, high = trends.slope(series, times, "").interval
        held += low <= np.polyfit(times, truth, 1)[0] <= high
    assert 0.92 * 2000 < held < 0.98 * 2000


def test_the_same_release_is_not_two_rounds():
    made = survey()
    reports = made.release(people(900, 1))
    for rounds in ([reports, reports], [reports[:500], reports[400:]]):
        with pytest.raises(errors.InvalidData, match="occur once"):
            made.answer(rounds, "trend of share of smoker")


@pytest.mark.parametrize("times", [[1, 1, 2], [1, 2], [3, 2, 1], [1, 2, np.nan], "now"])
def test_times_must_be_increasing(times):
    with pytest.raises((errors.InvalidParameter, ValueError), match=r"times|could not"):
        survey().answer([people(9, n) for n in range(3)], "trend of mean income", times=times)


def test_one_round_has_no_trend_and_several_no_single_answer():
    made, rows = survey(), people(90, 1)
    with pytest.raises(errors.InvalidParameter, match="a list"):
        made.answer(rows, "trend of mean income")
    with pytest.raises(errors.InvalidParameter, match="trend"):
        made.answer([rows, rows], "mean income")
    with pytest.raises(errors.InvalidParameter, match="rounds"):
        made.answer([rows], "trend of mean income")


def test_ask_takes_several_files(tmp_path, capsys):
    made, files = survey(), []
    for seed in range(3):
        reports = made.release(people(900, seed))
        files.append(str(reports.write(tmp_path / f"{seed}.parquet")))
    words = ["ask", *files, "trend of mean income", "--times", "2024,2025,2027", "--json"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    names = ["round 2024", "round 2025", "round 2027", "slope per unit of time"]
    assert sorted(told["groups"]) == sorted(names)
    assert main([*words[:-1], "--before", files[0]]) == 2
    assert main(["ask", files[0], "mean income", "--times", "1,2"]) == 2


# --- readers of a survey -----------------------------------------------------------------------


def test_shuffled_takes_a_survey_and_states_what_holds_on_every_sheet():
    made = survey()
    stated = tacit.shuffled(made, people=800, delta=1e-6, fake=10)
    assert stated == tacit.shuffled(made.channel(), people=800, delta=1e-6, fake=10)
    laws = [parts[0].law for parts in made.channel().sheets]
    each = [tacit.shuffled(law, people=790, delta=1e-6).epsilon for law in laws]
    assert stated.epsilon == max(each)
    assert stated.unit == "person"


def test_shuffled_takes_a_survey_with_divided_sheets():
    made = survey(sheets=[("region", "smoker"), "income"], divided=True)
    stated = tacit.shuffled(made, people=3000)
    reports = made.release(people(6000, 1), rng=Seeded(1), assigned=[0, 1] * 3000)
    assert stated == reports.readers().guarantee
