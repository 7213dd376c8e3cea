r"""A representation with few values: the predicted class, and a style that hides people.

Expression 6 of [FPBD22]_, :math:`\mathcal L_r + \lambda\, I(\hat P_Z; \hat Q_{U \mid Z})`, is the
paper's goal. The paper replaces it, because the posterior of Z is unknown in high dimensions, by
the loss of an adversary, and a better adversary finds what that one missed. If U has finitely many
values the best adversary is a table, and the information is a sum. So U here is a cell: the
predicted class ŷ, and one of k styles, chosen by a network to preserve the appearance of rows,

.. math:: \min \; \frac{E \lVert x - c_{\hat y, s(x)} \rVert^2}{E \lVert x - c_{\hat y} \rVert^2}
          + \lambda \sum_m I\bigl((\hat y, s); Z_m\bigr), \qquad
          I(C; Z) = \sum_{c, z} P(c, z) \log \frac{P(c, z)}{P(c) P(z)},

with c the mean of the rows of a cell. No attacker on a cell, freshly trained or not, has a higher
accuracy than :math:`\sum_c \max_z P(c, z)`: see `bounds.code_ceiling`. With one style a cell is the
predicted class alone.

References
----------
.. [FPBD22] Feutry, Piantanida, Bengio, Duhamel. Learning anonymized representations with
   adversarial neural networks. 2022.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

STEPS, BATCH = 300, 8192
_HIDDEN, _RATE, _DECAY = 256, 2e-3, 1e-4
_TINY = 1e-9


class CodeEncoder(nn.Module):
    """A module from inputs to indicators of cells.

    Parameters
    ----------
    classifier : Module
        Module from inputs to logits of the regular label.
    inputs, classes, styles : int
        Numbers of input columns, of classes of the regular label, and of styles per class.
    """

    def __init__(self, classifier: nn.Module, inputs: int, classes: int, styles: int) -> None:
        super().__init__()
        self.classifier, self.classes, self.styles = classifier, classes, styles
        hidden = nn.Linear(inputs, _HIDDEN)
        self.style = nn.Sequential(hidden, nn.ReLU(), nn.Linear(_HIDDEN, classes * styles))

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.classes * self.styles

    def style_logits(self, inputs: Tensor, predicted: Tensor) -> Tensor:
        """Compute logits (n, k) of the styles of each row's predicted class."""
        logits = self.style(inputs).reshape(-1, self.classes, self.styles)
        own: Tensor = logits[torch.arange(len(inputs), device=inputs.device), predicted]
        return own

    def codes(self, inputs: Tensor) -> Tensor:
        """Compute the cell of each row."""
        predicted: Tensor = self.classifier(inputs).argmax(dim=1)
        return predicted * self.styles + self.style_logits(inputs, predicted).argmax(dim=1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the one-hot indicator of each row's cell."""
        return F.one_hot(self.codes(inputs), self.cells).to(inputs.dtype)

    def reader(self) -> nn.Linear:
        """Return the regular branch, which reads the class from the cell."""
        linear = nn.Linear(self.cells, self.classes, bias=False)
        with torch.no_grad():
            linear.weight.copy_(torch.eye(self.classes).repeat_interleave(self.styles, dim=1))
        return linear.requires_grad_(False)


def learn_styles(
    encoder: CodeEncoder,
    inputs: Tensor,
    private: Sequence[tuple[Tensor, int]],
    strength: float,
    seed: int,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Fit the styles by Adam on batches of rows; the classifier stays as it is."""
    if encoder.styles == 1:
        return
    order = torch.Generator().manual_seed(seed)
    encoder.eval()
    predicted = _predicted(encoder, inputs)
    optimizer = torch.optim.Adam(encoder.style.parameters(), lr=_RATE, weight_decay=_DECAY)
    for step in range(STEPS):
        if progress is not None:
            progress("styles", step, STEPS)
        chosen = torch.randperm(len(inputs), generator=order)[:BATCH].to(inputs.device)
        rows, classes = inputs[chosen], predicted[chosen]
        member = membership(encoder.style_logits(rows, classes), classes, encoder.classes)
        loss = unexplained(member, rows, classes, encoder.classes)
        for codes, count in private:
            loss = loss + strength * information(member, codes[chosen], count)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def membership(logits: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Compute the membership of each row in each cell, (n, classes · k); rows sum to 1."""
    hot = F.one_hot(predicted, classes).to(logits.dtype)
    return (hot.unsqueeze(2) * logits.softmax(dim=1).unsqueeze(1)).flatten(1)


def unexplained(member: Tensor, rows: Tensor, predicted: Tensor, classes: int) -> Tensor:
    """Divide the mean squared distance from cells' means by that from classes' means."""
    hot = F.one_hot(predicted, classes).to(rows.dtype)
    total = rows.square().sum()
    return (total - _explained(member, rows)) / (total - _explained(hot, rows)).clamp(min=_TINY)


def information(member: Tensor, private: Tensor, count: int) -> Tensor:
    """Compute the empirical mutual information of cells and private label, in nats."""
    joint = member.T @ F.one_hot(private, count).to(member.dtype) / len(member)
    independent = joint.sum(dim=1, keepdim=True) * joint.sum(dim=0, keepdim=True)
    return (joint * torch.log((joint + _TINY) / (independent + _TINY))).sum()


@torch.no_grad()
def prototypes(encoder: CodeEncoder, inputs: Tensor) -> Tensor:
    """Compute the mean row of each cell; an empty cell gets the mean of its class."""
    member = encoder(inputs)
    counts = member.sum(dim=0)
    means = member.T @ inputs / counts.clamp(min=1).unsqueeze(1)
    of_class = encoder.reader().weight.to(inputs.device)
    by_class = of_class @ (member.T @ inputs) / (of_class @ counts).clamp(min=1).unsqueeze(1)
    return torch.where(counts.unsqueeze(1) > 0, means, of_class.T @ by_class)


def _explained(member: Tensor, rows: Tensor) -> Tensor:
    counts = member.sum(dim=0).clamp(min=_TINY)
    return ((member.T @ rows).square().sum(dim=1) / counts).sum()


@torch.no_grad()
def _predicted(encoder: CodeEncoder, inputs: Tensor) -> Tensor:
    parts = torch.split(inputs, BATCH)
    return torch.cat([encoder.classifier(part).argmax(dim=1) for part in parts])
