"""The privacy notice of a campaign and the record of its processing, from its own settings.

They follow the lists of the GDPR's articles 13 and 30. What the owner has not stated is named as
missing; there is no text for it to fall back on. What the settings of a campaign do not hold at
all, like a data protection officer, is listed as what the owner has to add.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tacit.apps.service.campaign import Campaign
from tacit.apps.service.notice import Notice
from tacit.apps.service.papers import MISSING, Line, Paper, Section
from tacit.apps.service.surveys import is_survey
from tacit.data.schema import ArraySchema, Continuous
from tacit.privacy import wording

_TITLES = {
    "organiser": "Responsible",
    "contact": "Contact",
    "retention": "Reports are kept",
    "legal_basis": "Legal basis",
}
_NEITHER = "The settings of a campaign do not hold this. If it applies, the owner has to add it:"
_NO_NAMES = (
    "The service stores no names, no network addresses and no times of answers: of days, only "
    "totals of at least ten people. Whoever hands out invitations may know who got which."
)
_DELETED = (
    "A withdrawal deletes the report from the database. Copies that were made before, such as "
    "backups and reports that the owner downloaded, are not reached by it."
)


def notice(campaign: Campaign) -> Paper:
    """Return what people are told when data are collected from them (GDPR, article 13)."""
    about = campaign.about
    return Paper(
        f"Privacy notice: {campaign.title}",
        "Made from the settings of this campaign. Statements of the owner are given as the owner "
        "made them.",
        (
            Section("Who asks", _stated(about, "organiser", "contact")),
            Section("What for", (Line(campaign.purpose), *_stated(about, "legal_basis"))),
            Section("What is collected", (Line(_collected(campaign)),), _categories(campaign)),
            Section(
                "What the noise guarantees",
                (Line(_guarantee(campaign)),),
                tuple(wording.how_well(campaign.certificate.guarantee)),
            ),
            Section("Who gets it", (), _recipients(campaign)),
            Section("How long", (*_stated(about, "retention"), Line(_until(campaign)))),
            Section("Your rights", (), _rights(about)),
            Section("How to withdraw", (Line(_withdrawal(campaign)), Line(_DELETED))),
            Section(
                "What this notice does not say",
                (Line(_NEITHER),),
                (
                    "a data protection officer, or a representative in the European Union",
                    "transfers to countries outside the European Union",
                    "whether anyone is obliged to take part, and what follows if they do not",
                    "whether decisions about single people are made automatically",
                ),
            ),
        ),
    )


def record(campaign: Campaign, state: str, totals: dict[str, int]) -> Paper:
    """Return the record of this processing activity (GDPR, article 30(1))."""
    about = campaign.about
    counts = ", ".join(f"{what} {count:,}" for what, count in totals.items())
    return Paper(
        f"Record of processing: {campaign.title}",
        f"Campaign {campaign.id}, as of {datetime.now(UTC):%d %B %Y}. Made from the settings of "
        "the campaign. Statements of the owner are given as the owner made them.",
        (
            Section("Controller", _stated(about, "organiser", "contact")),
            Section("Purposes", (Line(campaign.purpose), *_stated(about, "legal_basis"))),
            Section(
                "Categories of people",
                (
                    Line("People who were invited, each with an invitation of their own."),
                    Line(f"So far: {counts}. The campaign is {state}."),
                ),
            ),
            Section(
                "Categories of personal data", (Line(_collected(campaign)),), _categories(campaign)
            ),
            Section("Recipients", (), _recipients(campaign)),
            Section("Time limits", (*_stated(about, "retention"), Line(_until(campaign)))),
            Section("Technical and organisational measures", (), _measures(campaign)),
            Section(
                "What this record does not say",
                (Line(_NEITHER),),
                (
                    "joint controllers, a representative, or a data protection officer",
                    "which people were invited, and how they were chosen",
                    "transfers to third countries or international organisations",
                    "processors, such as whoever operates the server and its backups",
                ),
            ),
        ),
    )


def certificate(campaign: Campaign) -> Paper:
    """Return the certificate of everything that one person sends, to be read and printed."""
    title, *lines = filter(None, campaign.certificate.explain().split("\n"))
    sections: list[Section] = []
    for line in lines:
        if not line.startswith(" "):
            sections.append(Section(line))
        elif sections:
            last = sections[-1]
            sections[-1] = Section(last.title, (), (*last.items, line.strip().removeprefix("- ")))
    identity = Section(
        "Mechanism",
        (
            Line(campaign.mechanism.kind, "Kind"),
            Line(campaign.fingerprint, "SHA-256"),
            Line(str(campaign.round), "Round"),
            Line("tacit account verify certificate.json", "Checked with"),
        ),
    )
    return Paper(f"Certificate: {campaign.title}", title, (*sections, identity))


def _stated(about: Notice, *names: str) -> tuple[Line, ...]:
    given = {name: getattr(about, name) for name in names}
    return tuple(
        Line(text or f"{MISSING}.", _TITLES[name], missing=text is None)
        for name, text in given.items()
    )


def _collected(campaign: Campaign) -> str:
    of = (
        "answers to one sheet of questions, drawn at random"
        if is_survey(campaign.mechanism)
        else ("one row of values and its label" if campaign.labelled else "one row of values")
    )
    vote = " Who wants to can also send one noised vote on the model." if campaign.ballot else ""
    return (
        f"One noised report for each person, made on their own device from {of}. The values "
        f"themselves are not sent.{vote} The values that a report is made from:"
    )


def _categories(campaign: Campaign) -> tuple[str, ...]:
    schema, found = campaign.mechanism.schema, []
    if is_survey(campaign.mechanism):
        found = [_question(name, one) for name, one in campaign.mechanism.questions.items()]
    elif isinstance(schema, ArraySchema):
        found = [_array(schema)]
    else:
        found = [_column(one) for one in schema.columns]
    if campaign.labelled and campaign.channel.classes is not None:
        asked = campaign.question or "the label"
        found.append(f"{_colon(asked)} one of {', '.join(map(str, campaign.channel.classes))}")
    return tuple(found)


def _question(name: str, one: Any) -> str:
    options = getattr(one, "options", None)
    asked = one.text or name
    return f"{_colon(asked)} {', '.join(options)}" if options else f"{asked}{_unit(one)}"


def _colon(asked: str) -> str:
    return asked if asked.endswith(("?", ":", "؟")) else f"{asked}:"


def _column(one: Any) -> str:
    # Columns may have a label and a unit for people.
    name = getattr(one, "label", "") or one.name.replace("_", " ")
    if isinstance(one, Continuous):
        return f"{name}: a number from {one.lower:g} to {one.upper:g}{_unit(one)}"
    return f"{name}: one of {', '.join(one.categories)}"


def _unit(one: Any) -> str:
    unit = getattr(one, "unit", "")
    return f" ({unit})" if unit else ""


def _array(schema: ArraySchema) -> str:
    if schema.image is not None:
        return f"a picture of {' × '.join(map(str, schema.image))} numbers"
    return f"{schema.width} numbers from {schema.lower:g} to {schema.upper:g}"


def _guarantee(campaign: Campaign) -> str:
    what = "the report and the vote together" if campaign.ballot else "the report"
    return (
        f"For {what}, towards everyone who ever sees them: {campaign.certificate.guarantee}. This "
        "holds whatever else they know, and does not expire. The certificate says what it rests "
        "on, and what is not protected."
    )


def _recipients(campaign: Campaign) -> tuple[str, ...]:
    ballot = campaign.ballot is not None
    votes = ", and every vote, which the owner gets as a count" if ballot else ""
    found = [
        "the owner of the campaign: every noised report",
        f"whoever operates the server: every noised report{votes}",
        "everyone with the address of the campaign: how many have answered, and a model if the "
        "owner publishes one"
        if campaign.labelled
        else "everyone with the address of the campaign: how many have answered",
    ]
    return (*found, "readers of what the owner publishes: estimates from the reports")


def _until(campaign: Campaign) -> str:
    closes = "until its owner closes it"
    if campaign.closes is not None:
        closes = f"until {campaign.closes.astimezone(UTC):%d %B %Y, %H:%M} UTC, unless its owner "
        closes += "closes it before"
    return f"The campaign takes answers {closes}. Closing it deletes nothing."


def _rights(about: Notice) -> tuple[str, ...]:
    to = f", from {about.contact}" if about.contact else f" ({MISSING.lower()}: a contact)"
    return (
        "to ask for access to your data, their correction, erasure or restriction, or a copy, and "
        f"to object (GDPR, articles 15 to 21){to}",
        "Without your receipt or invitation, nobody can tell which report is yours, and so cannot "
        "do this for you (article 11)",
        "to withdraw, at any time, as described below (article 7(3), where the legal basis is "
        "consent)",
        "to complain to a supervisory authority (article 77)",
    )


def _withdrawal(campaign: Campaign) -> str:
    what = "report, and another for the vote" if campaign.ballot else "report"
    return (
        f"You get a receipt for your {what}. With it, the page and tacit campaign take-part "
        "--withdraw delete what was sent. Your invitation cannot be used again. Results and models "
        "that were published before stay as they are; after the campaign is closed, results are "
        "not computed again."
    )


def _measures(campaign: Campaign) -> tuple[str, ...]:
    return (
        f"noise on each person's own device, before anything is sent: "
        f"{campaign.certificate.guarantee}",
        "invitations, reports and votes under separate keyed hashes, so that the database does not "
        "say which belong together or whose they are",
        _NO_NAMES,
        f"results only from {campaign.minimum:,} reports on",
        "withdrawn answers are overwritten; results of a closed campaign are not computed again",
        "encryption in transit, if the server is operated with TLS",
    )
