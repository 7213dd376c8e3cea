"""A survey's report in a real browser against Python's: same words, same tables, same law."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Error
from scipy.stats import chi2

import tacit
from tacit.apps.service import device
from tacit.local.surveys.questions import STEPS

from .browser import browser_fixture, call_fixture  # noqa: F401

pytestmark = pytest.mark.heavy

SIGNIFICANCE, DRAWS = 1e-6, 40_000
QUESTIONS = {
    "smoker": tacit.YesNo(),
    "region": tacit.OneOf(("north", "south", "west")),
    "pets": tacit.SeveralOf(("cat", "dog")),
    "income": tacit.Number(-3, 10.5),
    "age": tacit.Number(0, 1),
    "born": tacit.Date("1950-01-01", "2010-12-31"),
}
JOINT = ["smoker", ("region", "income"), "pets", ("age:moments", "smoker"), "born:bins"]
MADE = "const survey = new m.Survey(given.told);"


def survey(sheets=JOINT, epsilon=1.3, divided=False):
    return tacit.Survey(QUESTIONS, epsilon=epsilon, sheets=sheets, divided=divided)


def told(made):
    found = device.describe(made, made.channel(), None)
    assert json.loads(json.dumps(found)) == found
    return found


SURVEYS = {
    "joint": survey(),
    "divided": survey([("smoker", "income", "age:moments"), "region"], divided=True),
    "three levels": survey(["income", ("born", "smoker")], epsilon=3.5),
    "every option": survey([("pets", "region")], epsilon=0.4),
    "numbers": survey(["income", ("born", "region", "smoker")], epsilon=4),
    "numbers with divided epsilon": survey([("age", "born", "region")], epsilon=3, divided=True),
}


class Recorded:
    """A stream of words that remembers them."""

    secure = False

    def __init__(self, seed):
        self.rng, self.said = np.random.default_rng(seed), []

    def words(self, count):
        drawn = self.rng.integers(0, 2**64, size=count, dtype=np.uint64)
        self.said += [str(word) for word in drawn]
        return drawn


def answers(made, seed):
    """One person's encoded answers, at the edges now and then."""
    rng, channel = np.random.default_rng(seed), made.channel()
    raw = [int(rng.choice([0, most, rng.integers(0, most + 1)])) for most in channel.most]
    return dict(zip(channel.variables, raw, strict=True))


def encoded(raws):
    return np.array([list(raws.values())])


@pytest.mark.parametrize("name", SURVEYS)
def test_the_same_words_give_the_same_report(call: Any, name: str) -> None:
    made, cases = SURVEYS[name], []
    for seed in range(150):
        stream, raws = Recorded(seed), answers(made, seed)
        drawn = made.channel().release(encoded(raws), stream)
        report = {key: column[0].tolist() for key, column in drawn.items()}
        cases.append({"words": stream.said, "raws": raws, "report": report})
    got = call(
        "survey",
        f"""(m, given) => {{ {MADE} return given.cases.map(({{ words, raws }}) => {{
            let at = 0; const rng = {{ word: () => BigInt(words[at++]) }};
            const report = survey.release({{ sheet: survey.assign(rng), raws }}, null, rng);
            return [report, at - words.length]; }}); }}""",
        {"told": told(made), "cases": cases},
    )
    # A draw of two words in Python may use half of one; here every draw is one.
    assert [one[0] for one in got] == [case["report"] for case in cases]
    assert {one[1] for one in got} == {0}
    assert len({case["report"]["sheet"] for case in cases}) == len(made.channel().sheets)


def outputs(channel):
    """Every report that there can be."""
    for number, parts in enumerate(channel.sheets):
        for sets in itertools.product(*(part.sent.outputs().tolist() for part in parts)):
            row = [symbol for one in sets for symbol in one]
            yield {"sheet": number, "symbols": row + [-1] * (channel.width - len(row))}


SMALL = {
    "joint": survey(["smoker", ("region", "income"), ("age:moments", "smoker")], epsilon=0.8),
    "divided": survey([("smoker", "income"), "age:moments"], epsilon=2, divided=True),
    "number": survey(["income"], epsilon=4),
}


def table(call, made, raws):
    found = call(
        "survey",
        f"""(m, given) => {{ {MADE} return given.reports.map((report) => given.raws.map(
            (raws) => survey.probability(report, raws).map(String))); }}""",
        {"told": told(made), "reports": list(outputs(made.channel())), "raws": raws},
    )
    return [[Fraction(int(a), int(b)) for a, b in row] for row in found]


@pytest.mark.parametrize("name", SMALL)
def test_exact_tables_are_equal_and_keep_epsilon(call: Any, name: str) -> None:
    made = SMALL[name]
    channel, raws = made.channel(), [answers(made, seed) for seed in range(12)]
    found, listed = table(call, made, raws), list(outputs(channel))
    columns = {key: np.array([one[key] for one in listed]) for key in ("sheet", "symbols")}
    for at, raw in enumerate(raws):
        expected = np.exp(channel.log_prob(columns, np.repeat(encoded(raw), len(listed), axis=0)))
        own = [row[at] for row in found]
        assert np.allclose([float(one) for one in own], expected, rtol=1e-11)
        assert sum(own) == 1  # exactly
        # Which sheet is reported does not depend on answers.
        for sheet in range(len(channel.sheets)):
            held = [p for p, one in zip(own, listed, strict=True) if one["sheet"] == sheet]
            assert sum(held) == Fraction(1, len(channel.sheets))
    worst = max(max(row) / min(row) for row in found)
    assert 1 < worst <= Fraction(math.exp(made.epsilon) * (1 + 1e-12))


def test_a_rounded_number_keeps_its_expectation_exactly(call: Any) -> None:
    """Before the noise: the mean of the levels is the encoded answer, in whole numbers."""
    made = SURVEYS["three levels"]
    body = f"""(m, given) => {{ {MADE} const [one] = survey.asked(0);
        return given.raws.map((raw) => Array.from({{ length: one.levels }},
          (_, level) => one.probability(level, raw).map(String))); }}"""
    raws = [0, 1, STEPS // 3, STEPS // 2, STEPS - 1, STEPS]
    found = call("survey", body, {"told": told(made), "raws": raws})
    for raw, chances in zip(raws, found, strict=True):
        exact = [Fraction(int(a), int(b)) for a, b in chances]
        assert sum(exact) == 1
        mean = sum(level * chance for level, chance in enumerate(exact))
        assert mean / (len(exact) - 1) == Fraction(raw, STEPS)


# --- by draws --------------------------------------------------------------------------------

DRAWN = """async (m, given) => { const { SystemEntropy } = await import('/randomness.js');
    const rng = new SystemEntropy(), survey = new m.Survey(given.told), seen = {}; MUTANT
    for (let at = 0; at < given.draws; at++) {
      const drawn = { sheet: survey.assign(rng), raws: given.raws };
      const one = JSON.stringify(survey.release(drawn, null, rng));
      seen[one] = (seen[one] ?? 0) + 1;
    }
    return seen; }"""
MUTANTS = {
    "the sheet follows an answer": """const fair = survey.assign.bind(survey);
        survey.assign = (rng) => (rng.word() % 10n ? fair(rng) : given.raws.smoker);""",
    "rounded to the nearest": """const one = survey.sheets[1][0].measures[1];
        one.draw = (raw) => Number(raw > 524288);""",
    "rounded up too often": """const one = survey.sheets[1][0].measures[1];
        const own = one.draw.bind(one);
        one.draw = (raw, rng) => own(Math.min(raw + 250000, 1048576), rng);""",
    "twice the same coin": """const pair = survey.sheets[2][0].measures[0];
        pair.draw = (raw, rng) => 2 * Number(Number(rng.word() % 1048576n) < raw);""",
    "no noise once in a while": """const { channel } = survey.sheets[0][0];
        const noised = channel.release.bind(channel);
        channel.release = (own, rng) => (rng.word() % 5n ? noised(own, rng) : [own]);""",
}
RAWS = {"smoker": 1, "region": 2, "pets=cat": 1, "pets=dog": 0,
        "income": STEPS // 5, "age": STEPS // 3, "born": 7}  # fmt: skip


def p_value(call, made, mutant=""):
    """How well draws of the browser's own entropy fit Python's law."""
    channel, listed = made.channel(), list(outputs(made.channel()))
    columns = {key: np.array([one[key] for one in listed]) for key in ("sheet", "symbols")}
    chances = np.exp(channel.log_prob(columns, np.repeat(encoded(RAWS), len(listed), axis=0)))
    given = {"told": told(made), "raws": RAWS, "draws": DRAWS}
    found = call("survey", DRAWN.replace("MUTANT", mutant), given)
    counts = np.array([found.pop(json.dumps(one, separators=(",", ":")), 0) for one in listed])
    assert found == {}  # nothing that Python cannot release
    expected = DRAWS * chances
    rare = expected < 20
    counts, expected = (np.append(one[~rare], one[rare].sum()) for one in (counts, expected))
    assert expected[-1] < 0.05 * DRAWS
    used = expected > 5
    return float(chi2.sf((((counts - expected) ** 2)[used] / expected[used]).sum(), used.sum() - 1))


@pytest.mark.parametrize("name", SMALL)
def test_draws_follow_the_exact_law(call: Any, name: str) -> None:
    assert p_value(call, SMALL[name]) > SIGNIFICANCE


@pytest.mark.parametrize("mutant", MUTANTS)
def test_another_law_is_noticed(call: Any, mutant: str) -> None:
    assert p_value(call, SMALL["joint"], MUTANTS[mutant]) < SIGNIFICANCE


# --- answers ---------------------------------------------------------------------------------


def test_answers_are_encoded_as_in_python(call: Any) -> None:
    rng = np.random.default_rng(0)
    people = [
        {
            "smoker": str(rng.choice(["yes", "no"])),
            "region": str(rng.choice(["north", "south", "west"])),
            "pets": list(rng.choice(["cat", "dog"], 1)),
            "income": float(rng.choice([rng.uniform(-5, 13), 0.1, 3.75, -3, 10.5])),
            "age": float(rng.choice([rng.random(), 0.5, (rng.integers(2**20) + 0.5) / 2**20])),
            "born": str(np.datetime64("1949-06-01") + int(rng.integers(23_000))),
        }
        for _ in range(300)
    ]
    made = survey([("smoker", "region", "income"), "pets", ("age", "born:bins")])
    columns = {name: [one[name] for one in people] for name in QUESTIONS}
    expected = made.encode(columns)
    named = [
        {**one, **{f"pets={pet}": "yes" if pet in one["pets"] else "no" for pet in ("cat", "dog")}}
        for one in people
    ]
    got = call(
        "survey",
        f"""(m, given) => {{ {MADE} return given.people.map((answers) => Object.assign({{}},
            ...survey.sheets.map((_, sheet) => survey.encode({{ sheet, answers }}).raws))); }}""",
        {"told": told(made), "people": named},
    )
    for row, own in zip(expected.tolist(), got, strict=True):
        assert own == dict(zip(made.channel().variables, row, strict=True))


def test_what_is_no_answer_is_refused_before_anything_is_drawn(call: Any) -> None:
    body = f"""(m, given) => {{ {MADE} return survey.release({{ sheet: 1, raws: given.raws }}, null,
        {{ word: () => {{ throw new Error("drawn"); }} }}); }}"""
    for wrong in ({"region": 3}, {"region": -1}, {"region": None}, {"income": 0.5},
                  {"income": STEPS + 1}, {"income": None}):  # fmt: skip
        with pytest.raises(Error, match="one of those declared"):
            call("survey", body, {"told": told(survey()), "raws": RAWS | wrong})


# --- descriptions ----------------------------------------------------------------------------


def changed(place, value):
    found = told(survey())
    *path, last = place
    inner = found
    for step in path:
        inner = inner[step]
    inner[last] = value
    return found


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("channel", "steps"), 0),
        (("channel", "steps"), 0.5),
        (("channel", "sheets"), []),
        (("channel", "sheets", 0), []),
        (("channel", "sheets", 0, 0, "measures"), []),
        (("channel", "sheets", 0, 0, "measures", 0, 0), "unknown"),
        (("channel", "sheets", 0, 0, "measures", 0, 1), "mean"),
        (("channel", "sheets", 0, 0, "measures", 0, 2), 3),
        (("channel", "sheets", 1, 0, "measures", 1, 1), "option"),
        (("channel", "sheets", 1, 0, "measures", 1, 1), "exactly"),
        (("channel", "sheets", 1, 0, "measures", 1, 2), 4096),
        (("channel", "sheets", 0, 0, "law", "categories"), 7),
        (("channel", "sheets", 1, 0, "law", "groups"), 2),
        (("channel", "sheets", 1, 0, "law", "groups"), 2**20),
        (("channel", "sheets", 1, 0, "law", "base"), ["1"] * 64),
        (("channel", "sheets", 1, 0, "law", "base"), ["1", *["0"] * 64]),
        (("channel", "sheets", 1, 0, "law", "base"), [str(2**51)] * 65),
        (("channel", "sheets", 1, 0, "law", "most"), ["1"] * 65),
        (("channel", "sheets", 1, 0, "measures", 1, 1), "moments"),
        (("channel", "sheets", 1, 0, "measures"), [["income", "mean", 65]]),
        (("channel", "sheets", 1, 0, "law", "kind"), "randomized-response"),
        (("channel", "sheets", 0, 0, "law", "inclusion"), str(2**64)),
        (("schema", "questions", "region", "options"), ["north", "south"]),
        # So wide that large answers became NaN and were refused, which told of them.
        (
            ("schema", "questions", "income"),
            {"kind": "number", "lower": -1.7e308, "upper": 1.7e308},
        ),
        (("labelled",), True),
    ],
)
def test_descriptions_that_do_not_fit_are_refused(call: Any, place: Any, value: Any) -> None:
    with pytest.raises(Error, match=r"does not match|would not protect"):
        call("survey", f"(m, given) => {{ {MADE} }}", {"told": changed(place, value)})


def test_every_sheet_counts_for_the_cost(call: Any) -> None:
    """Whichever sheet has less noise than stated, it is refused, and so are too many parts."""
    body = "async (m, given) => (await m.deviceOf(given.told, null)).cost.epsilon"
    for made in SURVEYS.values():
        cost = call("device", body, {"told": told(made)})
        assert cost == pytest.approx(float(made.epsilon), abs=1e-9)
    for sheet in range(len(survey().channel().sheets)):
        cheat = told(survey())
        law = cheat["channel"]["sheets"][sheet][0]["law"]
        if law["kind"] == "grouped-mean":
            law["most"] = [str(2 * int(weight)) for weight in law["most"]]
        else:
            law["inclusion"] = str((int(law["inclusion"]) + 2**64) // 2)
        with pytest.raises(Error, match="weaker than this survey states"):
            call("device", body, {"told": cheat})
    twice = told(survey())
    twice["channel"]["sheets"][0] *= 2
    with pytest.raises(Error, match="weaker than this survey states"):
        call("device", body, {"told": twice})
