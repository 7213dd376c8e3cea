"""Training of torch modules with a central guarantee: clipped, noised, accounted.

Most users need only `train`; `clipped_sum`, `Noise` and `standard_normal` are its parts.
"""

from tacit.central.training.kinds import AdaptiveClipping, AutomaticClipping, PerLayerClipping
from tacit.central.training.noise import Noise, standard_normal
from tacit.central.training.probing import clipped_sum
from tacit.central.training.training import Trained, train

__all__ = [
    "AdaptiveClipping",
    "AutomaticClipping",
    "Noise",
    "PerLayerClipping",
    "Trained",
    "clipped_sum",
    "standard_normal",
    "train",
]
