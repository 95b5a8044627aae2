"""AdamW on this rank's parts of the weights (Loshchilov and Hutter 2019, algorithm 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Sequence

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from .mesh import Mesh


@dataclass(frozen=True)
class Settings:
    """What does not change from update to update."""

    beta1: float
    beta2: float
    eps: float
    weight_decay: float


@dataclass
class Shard:
    """This rank's part of one trained tensor. Weight and moments are float32 and of one shape."""

    name: str
    weight: Tensor  # shares memory with the model
    first: Tensor
    second: Tensor
    decays: bool  # a matrix; norms and biases do not decay
    owned: bool  # the one of several equal copies that counts in sums over the ranks


@dataclass(frozen=True)
class Result:
    """What came of an update."""

    norm: float  # of the scaled gradients, before clipping; 0 if not finite
    finite: bool  # the gradients were finite; otherwise nothing changed
    weights_finite: bool


class AdamW:
    """The optimizer of one rank. Its whole state is the shards' moments."""

    def __init__(self, settings: Settings, mesh: Mesh, shards: Sequence[Shard]) -> None:
        self.settings, self.shards, self._mesh = settings, list(shards), mesh

    def step(self, gradients: Sequence[Tensor], update: int, scale: float, lr: float, clip: float) -> Result:
        """Applies one update from `scale` times the gradients, one for each shard.

        `update` counts from 1 and determines the bias corrections. A global norm above `clip` is
        scaled down to it; 0 does not clip. All ranks call it; the gradients are overwritten.
        """
        if gradients:
            torch._foreach_mul_(list(gradients), scale)
        norm = self._norm(gradients)
        if not math.isfinite(norm):
            return Result(0.0, False, self._finite_weights())
        if clip > 0 and norm > clip:
            torch._foreach_mul_(list(gradients), clip / norm)
        for decays in (True, False):
            self._apply(gradients, decays, update, lr)
        return Result(norm, True, self._finite_weights())

    def _apply(self, gradients: Sequence[Tensor], decays: bool, update: int, lr: float) -> None:
        chosen = [(s, g) for s, g in zip(self.shards, gradients) if s.decays == decays and s.weight.numel()]
        if not chosen:
            return
        fused = self._mesh.device.type in ("cpu", "cuda")  # without temporary copies
        device = self._mesh.device if fused else "cpu"
        made = [torch.tensor(float(update - 1), device=device) for _ in chosen]
        adamw(
            [s.weight for s, _ in chosen], [g for _, g in chosen], [s.first for s, _ in chosen], [s.second for s, _ in chosen],
            [], made, foreach=not fused, fused=fused, amsgrad=False, lr=lr, beta1=self.settings.beta1, beta2=self.settings.beta2,
            eps=self.settings.eps, weight_decay=self.settings.weight_decay if decays else 0.0, maximize=False,
        )

    def _norm(self, gradients: Sequence[Tensor]) -> float:
        """Returns the norm over all ranks' shards, each counted once."""
        owned = [g for s, g in zip(self.shards, gradients) if s.owned and g.numel()]
        return math.sqrt(self._mesh.sum(_squares(owned, self._mesh.device)).item())

    def _finite_weights(self) -> bool:
        squares = _squares([s.weight for s in self.shards if s.weight.numel()], self._mesh.device)
        return math.isfinite(self._mesh.sum(squares).item())


def _squares(tensors: list[Tensor], device: torch.device) -> Tensor:
    """Returns the sum of squares of all elements [1], in float64 where the device has it."""
    wide = torch.float32 if device.type == "npu" else torch.float64
    if not tensors:
        return torch.zeros(1, dtype=wide, device=device)
    norms = torch.stack(torch._foreach_norm(tensors)).to(wide)
    return norms.square().sum().reshape(1)
