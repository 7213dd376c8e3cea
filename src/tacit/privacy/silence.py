"""Silence for users' code that runs on people's rows: nothing that it raises is revealed.

An error that one row can cause is a release. So a pass over raw rows may end in any way (an
`Exception`, a panic of a Rust extension, `SystemExit`, its own `KeyboardInterrupt`, a warning), and
the result is the same: there is no answer.

Ctrl-C still ends the program. Python raises it from a signal handler in the main thread, so errors
of handlers are distinguished from errors of the code itself, and are raised again.

Notes
-----
It is assumed that the code neither ends its own process (`os._exit`, a fault) nor sends it a
signal.
"""

from __future__ import annotations

import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Watch:
    """A record of errors that signal handlers raised, separate from errors of the running code."""

    def __init__(self) -> None:
        self._brought: BaseException | None = None

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Suppress errors and warnings of the block; raise only what a signal handler raised."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except BaseException:  # whatever it is, it must not be revealed
            pass
        self.check()

    def check(self) -> None:
        """Raise what a signal handler raised, even if the code suppressed it."""
        if self._brought is not None:
            brought, self._brought = self._brought, None
            # Without the errors that were being handled: their texts may quote rows.
            brought.__context__ = brought.__cause__ = None
            raise brought.with_traceback(None)

    def hearing(self, handler: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
        """Wrap a handler, to record what it raises."""

        def heard(number: int, frame: Any) -> Any:
            try:
                return handler(number, frame)
            except BaseException as error:
                self._brought = error
                raise

        return heard


@contextmanager
def watching() -> Iterator[Watch]:
    """Watch the handlers of all signals while the block runs, and restore them afterwards."""
    watch = Watch()
    if threading.current_thread() is not threading.main_thread():
        yield watch  # handlers run only in the main thread: no signal can raise here
        return
    before = {one: signal.getsignal(one) for one in signal.valid_signals()}
    handlers = {one: handler for one, handler in before.items() if callable(handler)}
    for number, handler in handlers.items():
        signal.signal(number, watch.hearing(handler))
    try:
        yield watch
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
