"""Declare the parameters of a study: `option`, and those that many studies have."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tacit.privacy import errors
from tacit_papers.engine import checks
from tacit_papers.engine.parameters import Option

FILES = {
    "json": "The record; a study that was stopped goes on from it.",
    "plot": "The figure: .png, .svg or .pdf.",
}
"""Options of every study that are no parameters."""


def option(
    default: Any,
    help: str = "",
    *,
    choices: Sequence[str] | None = None,
    check: checks.Check | None = None,
    kw_only: bool = False,
    **more: Any,
) -> Any:
    """Declare a field of a study's parameters; see `Option`.

    `choices` are listed in the help, and every word must be one of them.
    """
    if choices is not None:
        several = "one or more of" if isinstance(default, tuple) else "one of"
        listed = f"{several} {', '.join(choices)}."
        check, help = (
            checks.one_of(choices),
            f"{help}: {listed}" if help else f"{listed[0].upper()}{listed[1:]}",
        )
    declared = Option(help, check, **more)
    return dataclasses.field(default=default, kw_only=kw_only, metadata={"option": declared})


def delta(default: float, help: str) -> Any:
    """Declare δ of a guarantee."""
    return option(default, help, check=checks.probability)


def trials(help: str = "Trials, each with its own split and noise.", default: int = 3) -> Any:
    """Declare the number of trials; one in a quick run."""
    return option(default, help, check=checks.whole(1, 1000), quick=1)


def seed(help: str = "Seed of the first trial; trial t has seed + t.", default: int = 0) -> Any:
    """Declare the seed of all randomness."""
    return option(default, help, check=checks.whole(0, errors.LARGEST_INTEGER))


def device(default: str = "auto") -> Any:
    """Declare the device for networks; it is kept as resolved, never "auto"."""
    return option(default, "Device: auto, cpu, cuda or cuda:0, …", check=checks.device)


def quick(help: str = "Few rows, one trial, hardly any training: does it run?") -> Any:
    """Declare whether this is a quick run."""
    return option(False, help)
