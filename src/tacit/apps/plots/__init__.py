"""Pictures that commands draw. Nothing here loads matplotlib before one is drawn."""

from tacit.apps.plots.canvas import check_target, save
from tacit.apps.plots.estimates import answers
from tacit.apps.plots.pictures import picture

__all__ = ["answers", "check_target", "picture", "save"]
