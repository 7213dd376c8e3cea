r"""The objective: the loss of the task, and the distance of the adversary's loss from guessing.

.. math:: \mathcal L_\lambda = \mathcal L_r
          + \lambda \sum_m \bigl| \mathcal L_{p,m}^{\mathrm{obj}} - \mathcal L_{p,m} \bigr|,
          \qquad \mathcal L_r = -\frac1n \sum_i \log Q(y_i \mid u_i),
.. math:: \mathcal L_p = -\frac1n \sum_i \log Q(z_i \mid u_i), \qquad
          \mathcal L_p^{\mathrm{obj}} = -\frac1n \sum_i \sum_z \hat P_Z(z) \log Q(z \mid u_i).

These are equations 12 and 19 to 21 of [FPBD22]_, summed over private labels m. Equation 15 of the
paper has a minus where 12 has a plus: with it the encoder would be rewarded for revealing people.

The adversary is never pushed beyond guessing: if its loss is above that of a guess, the absolute
value pulls it back. Gradient reversal ([GL15]_) has no such limit.

References
----------
.. [FPBD22] Feutry, Piantanida, Bengio, Duhamel. Learning anonymized representations with
   adversarial neural networks. 2022.
.. [GL15] Ganin, Lempitsky. Unsupervised domain adaptation by backpropagation. ICML 2015.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def shares(codes: Tensor, classes: int) -> Tensor:
    r"""Compute :math:`\hat P_Z`, the share of each class."""
    return torch.bincount(codes, minlength=classes).float() / len(codes)


def entropy(chances: Tensor) -> float:
    """Compute the entropy in nats: the loss of a guess that knows only these shares."""
    return float(torch.special.entr(chances).sum())


def guessing_loss(logits: Tensor, chances: Tensor) -> Tensor:
    r"""Compute :math:`\mathcal L_p^{\mathrm{obj}}`, with the empirical distribution of labels."""
    return -(F.log_softmax(logits, dim=1) @ chances).mean()


def anonymizing(
    strength: float,
    regular: tuple[Tensor, Tensor],
    private: Sequence[tuple[Tensor, Tensor, Tensor]],
) -> Tensor:
    """Compute the encoder's objective from logits and codes, and the shares of private labels."""
    loss = F.cross_entropy(*regular)
    for logits, codes, chances in private:
        gap = guessing_loss(logits, chances) - F.cross_entropy(logits, codes)
        loss = loss + strength * gap.abs()
    return loss


def reversed_gradient(values: Tensor, strength: float) -> Tensor:
    """Return the values, with a gradient that is multiplied by −λ on its way back."""
    return (1 + strength) * values.detach() - strength * values
