"""Papers: headings with paragraphs and lists, as Markdown, as a page to print, and as JSON."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import Any

from tacit.privacy import errors

MISSING = "Not stated by the owner"
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>#|])")
_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <meta name="referrer" content="no-referrer">
  <title>{title}</title>
  <link rel="icon" href="data:,">
  <link rel="stylesheet" href="/static/style.css">
  <link rel="stylesheet" href="/static/desk.css">
  <script type="module" src="/static/paper.js"></script>
</head>
<body class="paper">
<main>
{content}
<p class="actions"><button id="print" type="button" class="plain" hidden>Print</button>{links}</p>
</main>
</body>
</html>
"""


@dataclass(frozen=True)
class Line:
    """A paragraph, with the name of what it states; `missing` if nobody has stated it."""

    text: str
    name: str = ""
    missing: bool = False


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs and, below them, a list."""

    title: str
    lines: tuple[Line, ...] = ()
    items: tuple[str, ...] = ()


@dataclass(frozen=True)
class Paper:
    """A document: a title, what it is about, and sections."""

    title: str
    lead: str
    sections: tuple[Section, ...]

    def to_plain(self) -> dict[str, Any]:
        """Return JSON values, with the whole as Markdown beside its parts."""
        sections = [
            {
                "title": one.title,
                "lines": [vars(line) for line in one.lines],
                "items": list(one.items),
            }
            for one in self.sections
        ]
        parts = {"title": self.title, "lead": self.lead, "sections": sections}
        return {**parts, "markdown": self.to_markdown()}

    @classmethod
    def from_plain(cls, body: Any) -> Paper:
        """Read JSON values that a server sent."""
        try:
            sections = tuple(
                Section(
                    str(one["title"]),
                    tuple(Line(str(x["text"]), str(x["name"]), bool(x["missing"])) for x in lines),
                    tuple(map(str, one["items"])),
                )
                for one in body["sections"]
                for lines in [one["lines"]]
            )
            return cls(str(body["title"]), str(body["lead"]), sections)
        except (KeyError, TypeError):
            raise errors.InvalidData(
                "paper: the server's answer must be complete. Is this a Tacit server?"
            ) from None

    def to_markdown(self) -> str:
        """Return the document as Markdown; whatever people wrote stays plain text."""
        parts = [f"# {_plain(self.title)}", _plain(self.lead)]
        for section in self.sections:
            parts.append(f"## {_plain(section.title)}")
            parts += [_line_in_markdown(line) for line in section.lines]
            if section.items:
                parts.append("\n".join(f"- {_plain(item)}" for item in section.items))
        return "\n\n".join(part for part in parts if part) + "\n"

    def to_html(self, links: str = "") -> str:
        """Return a page to read or print; `links` are elements beside its button."""
        parts = [f"<h1>{escape(self.title)}</h1>", f'<p class="lead">{escape(self.lead)}</p>']
        for section in self.sections:
            lines = "".join(map(_line_in_html, section.lines))
            items = "".join(f"<li>{escape(item)}</li>" for item in section.items)
            listed = f"<ul>{items}</ul>" if items else ""
            parts.append(f"<section><h2>{escape(section.title)}</h2>{lines}{listed}</section>")
        return _PAGE.format(title=escape(self.title), content="\n".join(parts), links=links)


def _plain(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", " ".join(text.split()))


def _line_in_markdown(line: Line) -> str:
    said = f"*{_plain(line.text)}*" if line.missing else _plain(line.text)
    return f"**{_plain(line.name)}:** {said}" if line.name else said


def _line_in_html(line: Line) -> str:
    name = f"<strong>{escape(line.name)}:</strong> " if line.name else ""
    said = f"<em>{escape(line.text)}</em>" if line.missing else escape(line.text)
    return f"<p{' class=missing' if line.missing else ''}>{name}{said}</p>"
