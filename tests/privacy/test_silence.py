"""Whatever code of others raises is swallowed; what a signal brings is not."""

from __future__ import annotations

import signal
import threading
import warnings
from typing import Any

import pytest

from tacit.privacy import silence


class Panic(BaseException):
    """As a panic of a Rust extension: no Exception."""


@pytest.mark.parametrize("kind", [ValueError, Panic, SystemExit, KeyboardInterrupt, StopIteration])
def test_an_error_of_the_code_itself_is_swallowed(kind: type[BaseException]) -> None:
    reached: list[object] = []
    with silence.watching() as watch:
        with watch.silent():
            raise kind("a row")
        reached.append(kind)
    assert reached == [kind]


@pytest.mark.filterwarnings("error")
def test_a_warning_is_not_heard() -> None:
    with silence.watching() as watch, watch.silent():
        warnings.warn("a row", stacklevel=1)


@pytest.mark.parametrize("swallowed", [False, True])
def test_an_interrupt_from_outside_is_raised_without_the_text_of_an_error(swallowed: bool) -> None:
    def interrupted() -> None:
        try:
            raise ValueError("a row")
        except ValueError:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                if not swallowed:
                    raise

    # A shell starts processes in the background without Python's handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with (
            silence.watching() as watch,
            pytest.raises(KeyboardInterrupt) as caught,
            watch.silent(),
        ):
            interrupted()
        assert caught.value.__context__ is None
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_what_a_handler_of_the_program_raises_is_raised() -> None:
    def stop(number: int, frame: Any) -> None:
        raise SystemExit(3)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with silence.watching() as watch, pytest.raises(SystemExit), watch.silent():
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is stop
    finally:
        signal.signal(signal.SIGTERM, before)


def test_threads_have_no_handlers_to_watch() -> None:
    reached: list[object] = []

    def work() -> None:
        with silence.watching() as watch:
            with watch.silent():
                raise KeyboardInterrupt
            reached.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reached == [1]
