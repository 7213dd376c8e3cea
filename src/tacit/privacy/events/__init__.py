"""Events: frozen records of what ran. Accounting composes them; a certificate lists them.

An event contains the numbers that the proof needs and nothing about the data. A constructor refuses
numbers that would invalidate the guarantee. Each kind of draw states its own theorem
(`guarantee_at`) and its own words; `tacit.accounting` derives the guarantee of a whole tree.
"""

from __future__ import annotations

import inspect

from tacit.privacy.events.base import *
from tacit.privacy.events.choices import *
from tacit.privacy.events.gaussian import *
from tacit.privacy.events.laplace import *
from tacit.privacy.events.memoized import *
from tacit.privacy.events.objective_perturbation import *
from tacit.privacy.events.projective import *
from tacit.privacy.events.signs import *
from tacit.privacy.events.summed import *

KINDS: dict[str, type[Event]] = {
    name: kind
    for name, kind in sorted(globals().items())
    if inspect.isclass(kind) and issubclass(kind, Event) and kind not in (Event, Single, Leaf)
}
"""All concrete events by name: what ledgers and certificates can hold."""
