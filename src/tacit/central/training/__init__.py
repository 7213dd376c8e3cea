"""Training of torch modules with a central guarantee: clipped, noised, accounted.

Most users need only `train`, `TrainingLoop` in a loop of their own, or `train_in_order` where
records cannot be sampled at random; `clipped_sum`, `Noise` and `standard_normal` are their parts.
"""

from tacit.central.training.device_stream import DeviceStream
from tacit.central.training.in_order import TrainedInOrder, train_in_order
from tacit.central.training.kinds import AdaptiveClipping, AutomaticClipping, PerLayerClipping
from tacit.central.training.loop import TrainingLoop
from tacit.central.training.noise import Noise, standard_normal
from tacit.central.training.probing import clipped_sum
from tacit.central.training.trained import Trained
from tacit.central.training.training import train

__all__ = [
    "AdaptiveClipping",
    "AutomaticClipping",
    "DeviceStream",
    "Noise",
    "PerLayerClipping",
    "Trained",
    "TrainedInOrder",
    "TrainingLoop",
    "clipped_sum",
    "standard_normal",
    "train",
    "train_in_order",
]
