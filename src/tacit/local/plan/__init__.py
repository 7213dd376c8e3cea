"""Plans of a collection: the accuracy to expect, and the number of people for a target."""

from tacit.local.plan.intervals import Interval as Interval
from tacit.local.plan.planning import MOST_ROWS as MOST_ROWS
from tacit.local.plan.planning import Plan as Plan
from tacit.local.plan.planning import plan as plan
