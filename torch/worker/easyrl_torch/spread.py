"""The self-check of a policy that is spread over ranks."""

from __future__ import annotations

from torch import Tensor

from .layout import Layout
from .selfcheck import Measured, Subject, pass_layout
from .shard import LOCKSTEP, Sharded


class Spread(Subject):
    """A sharded policy without gradients. All ranks pass the same layout, and call measure in one order."""

    def __init__(self, sharded: Sharded):
        super().__init__(sharded.policy)
        self.policy.compute_dtype = sharded.dtype
        self._sharded = sharded

    def measure(self, layout: Layout, mode: str, whole: bool) -> Measured:
        """Sets the policy's mode. Parts of gradients are sums over the replicas."""
        sharded, self.policy.mode = self._sharded, mode
        logprobs = pass_layout(self.policy, layout, mode)
        sharded.reduce()
        sharded.gradients()  # fills in missing ones
        gradients = {name: p.grad for name, p in sharded.trained()}
        if whole:
            gradients = {name: _whole(g) / sharded.mesh.dp for name, g in gradients.items()}
        sharded.clear()
        sharded.open()
        return Measured(logprobs, gradients)

    @property
    def apart(self) -> bool:
        """Whether run involves no other rank."""
        return self._sharded.mode != LOCKSTEP and self._sharded.mesh.tp == 1

    def run(self, layout: Layout, mode: str) -> None:
        """Sets the policy's mode."""
        self.policy.mode = mode
        super().run(layout, mode)

    def forget(self) -> None:
        """Collective."""
        self._sharded.discard()


def _whole(x: Tensor) -> Tensor:
    """Gathers a DTensor; returns other tensors as they are."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x
