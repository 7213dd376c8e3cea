"""Names of questions and options: whatever can be declared can be asked about."""

from __future__ import annotations

import pytest

import tacit
from tacit.local.surveys import grammar
from tacit.privacy import errors

ODD = ["How old are you?", "of", "by", "net income", "a,b", "a", "a+b", "Etage no. 3.", "x by y"]
OPTIONS = ("short of breath", "none: well", "a=b", "4:5")
GROUPS = ("rock and roll", "rock", "roll and rock")


@pytest.mark.parametrize("name", ODD)
def test_every_name_can_be_asked_about(name):
    made = tacit.Survey(
        {name: tacit.Number(0, 10), "Which ward?": tacit.OneOf(GROUPS), "s": tacit.YesNo()},
        epsilon=2,
        sheets=[("Which ward?", name), f"{name}:bins", (f"{name}:moments", "s")],
    )
    rows = {name: [3.0] * 300, "Which ward?": ["rock", "roll and rock"] * 150, "s": ["no"] * 300}
    reports = made.release(rows)
    for question in (f"mean {name}", f"mean of {name}?", f"median {name}.", f"variance of {name}"):
        assert made.answer(reports, question).estimates[0].label == name
    for question in (f"mean {name} by Which ward?", f"MEAN {name} BY Which ward?"):
        assert [one.label for one in made.answer(reports, question).estimates] == list(GROUPS)
    both = "Which ward?=rock and Which ward?=roll and rock"
    (found,) = made.answer(reports, f"difference of {name} between {both}").estimates
    assert found.label == "rock − roll and rock"
    slopes = made.answer(reports, f"regression of {name} on s").estimates
    assert [one.label for one in slopes] == ["intercept", "s"]
    assert [one.label for one in grammar.targets(made, f"regression of s on {name}")] == [
        "intercept",
        name,
    ]


def test_names_with_commas_are_told_apart_from_lists():
    made = tacit.Survey({one: tacit.Number(0, 1) for one in ("a", "b", "a,b", "y")}, epsilon=1)
    asked = {"a, b": ["a", "b"], "a,b": ["a,b"], "a,b, a": ["a,b", "a"], "b,a,b": ["b", "a,b"]}
    for listed, names in asked.items():
        targets = grammar.targets(made, f"regression of y on {listed}")
        assert [one.label for one in targets] == ["intercept", *names]


def test_options_may_be_any_texts():
    made = tacit.Survey(
        {"symptoms": tacit.SeveralOf(OPTIONS), "stay": tacit.Number(0, 30)},
        epsilon=2,
        sheets=[("symptoms", "stay")],
    )
    reports = made.release({"symptoms": [list(OPTIONS[:2])] * 400, "stay": [4] * 400})
    assert [one.label for one in made.answer(reports, "share of symptoms").estimates] == [*OPTIONS]
    for option in OPTIONS:
        assert len(made.answer(reports, f"mean stay by symptoms={option}").estimates) == 2
        assert made.answer(reports, f"share of symptoms={option}").estimates
    assert made.plan(1000, ["mean stay by symptoms=4:5", "share of symptoms"]).best.goals
    assert len(made.release({"symptoms": ["4:5"], "stay": [4]}, assigned=["stay+symptoms"])) == 1


def test_a_difference_between_yes_and_no_says_of_which_question():
    questions = {"x": tacit.Number(0, 1), "s": tacit.YesNo(), "t": tacit.YesNo()}
    made = tacit.Survey(questions, epsilon=1)
    assert grammar.targets(made, "difference of x between s=yes and s=no")[0].label == "yes − no"
    groups = tacit.OneOf(GROUPS)
    ambiguous = tacit.Survey({"x": tacit.Number(0, 1), "g": groups}, epsilon=1)
    with pytest.raises(errors.InvalidParameter, match="two options of one question"):
        grammar.targets(ambiguous, "difference of x between rock and roll and rock")
    for pair in ("yes and no", "s=yes and t=no", "s=yes and s=yes", "s=yes", "s and t"):
        with pytest.raises(errors.InvalidParameter, match="write smoker=yes and smoker=no"):
            grammar.targets(made, f"difference of x between {pair}")


NOBODY = ["", " ", " a", "a  b", "a\n", "a\u0000", "\ud800", "a:b", "pets=cat", "x" * 121, 3, None]


@pytest.mark.parametrize("name", NOBODY, ids=repr)
def test_a_name_that_nobody_could_ask_about_is_refused_at_once(name):
    with pytest.raises(errors.InvalidParameter, match="the name of a question must be"):
        tacit.Survey({name: tacit.YesNo(), "pets": tacit.SeveralOf(("cat", "dog"))}, epsilon=1)


def test_options_that_look_like_measures_are_refused():
    with pytest.raises(errors.InvalidParameter, match="without :mean"):
        tacit.SeveralOf(("x", "x:bins"))


@pytest.mark.parametrize("text", ["\ud800", "a\x00", "a\nb"], ids=ascii)
@pytest.mark.parametrize("kind", [tacit.OneOf, tacit.SeveralOf])
def test_options_that_files_and_databases_cannot_hold_are_refused(kind, text):
    """Reports were drawn, and then could not be written."""
    with pytest.raises(errors.InvalidParameter, match="control characters"):
        kind((text, "x"))


@pytest.mark.parametrize("what", ["text", "help", "unit"])
def test_half_characters_are_refused_before_anybody_answers(what):
    with pytest.raises(errors.InvalidParameter, match="surrogates"):
        tacit.Survey({"a": tacit.YesNo(**{what: "\ud800"})}, epsilon=1)


def test_sheets_with_too_many_joint_answers_are_refused_at_once():
    """A report of a million symbols took minutes, and hundreds of kilobytes."""
    names = "abcde"
    asked = {one: tacit.Number(0, 1) for one in names}
    joint = tuple(f"{one}:bins" for one in names)
    with pytest.raises(errors.InvalidParameter, match="at most 65,536 joint answers"):
        tacit.Survey(asked, epsilon=1, sheets=[joint])
    assert tacit.Survey(asked, epsilon=1, sheets=[joint], divided=True).release(
        {one: [0.5] for one in names}
    )
