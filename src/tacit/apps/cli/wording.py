"""The library's errors in the words of a command: its options instead of keyword arguments."""

from __future__ import annotations

import re

import click

from tacit.privacy import errors

_OF_DATA = ("data", "rows")  # also words for what is in a file: only commands mean the option
_SUBJECT = re.compile(r"(?:^|(?<=: ))[a-z_]+(?:(?:, | and | or )[a-z_]+)*(?= of '| must\b)")
_KEYWORD = re.compile(r"(?<![\w.'\"-])([a-z_]+)=(\{.*?\}|\[.*?\]|\(.*?\)|'[^']*'|[\w.]+)")
_CALLS = {"raise_budget": "tacit account ledger raise"}
_ELSEWHERE = ("central_epsilon", "central_delta", "inhouse_public")
"""Parameters that are options of other commands, under the same names."""
_PHRASES = {
    "mechanism with --central": "mechanism by tacit collect fit with --central",
    "Fit a StudentClassifier with": "Learn a student by tacit collect learn with",
    "bounds and categories: ": "bounds and categories, in a file that tacit collect draft begins: ",
    "or state that the rows are public": "or state that the rows are public (--inhouse-public)",
}
_WORD = re.compile(r"(?<![\w.'\"-])[a-z_]+(?![\w'\"=(])")


def spoken(message: object) -> str:
    """Write a warning with the options of the command that runs, if one does."""
    context = click.get_current_context(silent=True)
    return str(message) if context is None else in_options(message, context.command)


def in_options(error: object, command: click.Command) -> str:
    """Write an error or a warning with the options of a command.

    `where: name must be …` becomes `where: --name must be …`, and `name=value` in a remedy becomes
    `--name value`. Names that the command has no option for stay as they are, and so does the
    subject of an error about data: a column may have the name of an option.
    """
    options = {str(one.name): one for one in command.params if isinstance(one, click.Option)}

    def option(match: re.Match[str], *, anywhere: bool = False) -> str:
        parameter = options.get(match[0])
        if parameter is None or (anywhere and "_" not in match[0]):
            return f"--{match[0].replace('_', '-')}" if match[0] in _ELSEWHERE else match[0]
        return parameter.opts[0]

    def subject(match: re.Match[str]) -> str:
        return match[0] if match[0] in _OF_DATA else _WORD.sub(option, match[0])

    def keyword(match: re.Match[str]) -> str:
        parameter = options.get(match[1])
        if parameter is None:
            return match[0]
        return parameter.opts[0] if parameter.is_flag else f"{parameter.opts[0]} {_value(match[2])}"

    text = str(error)
    if not isinstance(error, errors.InvalidData):
        text = _SUBJECT.sub(subject, text)
    text = _KEYWORD.sub(keyword, text)
    text = _WORD.sub(lambda match: option(match, anywhere=True), text)
    for words, spoken_words in _PHRASES.items():
        text = text.replace(words, spoken_words)
    for call, command_line in _CALLS.items():
        text = text.replace(f"Use {call} ", f"Use {command_line} ")
    return re.sub(r"(--[a-z-]+) \(\1\)", r"\1", text)  # some remedies name both


def _value(text: str) -> str:
    """Write a Python value as a command line takes it: `{'age': (0, 100)}` as `age=0:100`."""
    if text[0] == "{":
        name, _, value = text[1:-1].partition(": ")
        return f"{_value(name)}={_value(value)}"
    if text[0] in "([":
        parts = [_value(part) for part in text[1:-1].split(", ")]
        return (":" if text[0] == "(" else ",").join(parts)
    return text.strip("'")
