"""What the owner of a campaign states to people about it, and the texts in other languages.

Nothing here is derived, and nothing is filled in: what the owner does not state stays missing, and
pages and documents say so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tacit.privacy import errors

STATEMENTS = {"organiser": 200, "contact": 300, "retention": 300, "legal_basis": 500}
"""The statements, with the largest number of characters of each."""
TEXTS = {"title": 200, "purpose": 2000, "question": 200}
"""The texts that may be given in other languages."""
WORDS = "words"
"""What else people read of the owner's: questions, help, units, options, columns, labels."""
MOST_LANGUAGES, MOST_WORDS, LONGEST_WORD = 40, 5_000, 2_000
ENGLISH = "en"

_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,2}")
_INVISIBLE = str.maketrans("", "", "\u200c\u200d\u200e\u200f")
"""Marks that Arabic, Hebrew, Persian or Hindi texts need: they join letters and set directions."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Who asks, how long answers are kept, and the owner's texts by language.

    Parameters
    ----------
    organiser : str, optional
        Who is responsible, as people know them: a name and an address.
    contact : str, optional
        Whom people can write to.
    retention : str, optional
        How long the reports are kept, as the owner states it: "until 31 March 2027".
    legal_basis : str, optional
        Legal basis of the processing, as the owner states it: "consent (GDPR art. 6(1)(a))".
    language : str
        Language of the campaign's title, purpose and question.
    texts : dict
        Title, purpose and question in other languages, by language: {"de": {"title": "…"}}. Its
        "words" translate whatever else people read of the owner's, such as a survey's questions,
        help, units and options, or a table's columns, categories and labels: {"north": "Norden"}.
    """

    organiser: str | None = None
    contact: str | None = None
    retention: str | None = None
    legal_basis: str | None = None
    language: str = ENGLISH
    texts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, longest in STATEMENTS.items():
            if (text := getattr(self, name)) is not None:
                must_be_a_line(name, text, longest)
        _must_be_a_language("language", self.language)
        _must_be_texts(self.texts)

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the statements that the owner has not made."""
        return tuple(name for name in STATEMENTS if getattr(self, name) is None)

    def to_plain(self) -> dict[str, Any]:
        """Return JSON values, with None for what is not stated."""
        return asdict(self)

    @classmethod
    def from_plain(cls, body: Any) -> Notice:
        """Read JSON values; what is left out is not stated."""
        known = (*STATEMENTS, "language", "texts")
        if not isinstance(body, Mapping) or not set(body) <= set(known):
            condition = f"an object with some of {', '.join(known)}, and no others"
            raise errors.InvalidParameter(f"notice: it must be {condition}.")
        given = {name: value for name, value in body.items() if value is not None}
        return cls(**given)

    @classmethod
    def read(cls, path: Path) -> Notice:
        """Read a JSON file."""
        try:
            return cls.from_plain(json.loads(path.read_bytes()))
        except (ValueError, RecursionError):
            raise errors.InvalidData(f"{path}: the file must hold a JSON object.") from None


def must_be_a_line(name: str, text: Any, longest: int) -> None:
    """Refuse what is not one printable line of text, in whatever language."""
    good = isinstance(text, str) and bool(text.strip()) and len(text) <= longest
    if not good or not text.translate(_INVISIBLE).isprintable():
        errors.refuse("campaign", name, f"one line of 1 to {longest} characters", text)


def _must_be_a_language(name: str, tag: Any) -> None:
    if not isinstance(tag, str) or not _LANGUAGE.fullmatch(tag):
        errors.refuse("campaign", name, "a language tag like de or pt-BR", tag)


def _must_be_texts(texts: Any) -> None:
    if not isinstance(texts, Mapping) or len(texts) > MOST_LANGUAGES:
        condition = f"an object of at most {MOST_LANGUAGES} languages"
        errors.refuse("campaign", "texts", condition, type(texts).__name__)
    for tag, given in texts.items():
        _must_be_a_language("a language of texts", tag)
        if not isinstance(given, Mapping) or not given or not set(given) <= {*TEXTS, WORDS}:
            condition = f"an object with some of {', '.join((*TEXTS, WORDS))}, and no others"
            raise errors.InvalidParameter(f"campaign: texts.{tag} must be {condition}.")
        for name, text in given.items():
            if name == WORDS:
                _must_be_words(f"texts.{tag}.{WORDS}", text)
            else:
                must_be_a_line(f"texts.{tag}.{name}", text, TEXTS[name])


def _must_be_words(name: str, words: Any) -> None:
    """Refuse what does not translate words, each of them into one line."""
    known = isinstance(words, Mapping) and all(isinstance(word, str) for word in words)
    if not known or len(words) > MOST_WORDS:
        condition = f"an object of at most {MOST_WORDS:,} texts, by the text that each translates"
        errors.refuse("campaign", name, condition, type(words).__name__)
    for word, text in words.items():
        must_be_a_line(f"{name}[{word[:40]!r}]", text, LONGEST_WORD)
