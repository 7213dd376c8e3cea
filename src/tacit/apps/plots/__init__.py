"""Pictures that the demonstration draws. Nothing here loads matplotlib before one is drawn."""

from tacit.apps.plots.canvas import check_target, save
from tacit.apps.plots.pictures import picture

__all__ = ["check_target", "picture", "save"]
