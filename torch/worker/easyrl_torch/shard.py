"""A policy whose weights, gradients and moments are spread over the ranks.

Three modes. "plain": nothing is spread over the data axis. "free": between two updates every
rank holds all weights of its place on the tensor axis and adds up gradients of its own
micro-batches, as many as it gets; one flush adds them over the ranks. "lockstep": layers are
gathered when they run, so all replicas must make the same sequence of passes (ZeRO-3).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from . import tensor_parallel
from .adapter import Adapter
from .layout import Layout
from .mesh import Mesh
from .policy import PACKED, Policy

PLAIN, FREE, LOCKSTEP = "plain", "free", "lockstep"


class Sharded:
    """A policy over the mesh. Methods marked collective are called by all ranks in one order."""

    def __init__(self, policy: Policy, mesh: Mesh, mode: str, dtype: torch.dtype) -> None:
        """Takes over policy, whose weights are whole on every rank, and computes in dtype. Collective."""
        self.policy, self.mesh, self.dtype = policy, mesh, dtype
        partial = tensor_parallel.split(policy.model, mesh.tensor) if mesh.tp > 1 else set()
        self.partial = {name for name, parameter in policy.named_parameters() if parameter in partial}
        self.mode = PLAIN if mesh.dp == 1 and dtype == torch.float32 else mode
        self.adapter: Adapter | None = None  # set by the owner of a policy that has one
        self._units: list[FSDPModule] = []
        if self.mode == PLAIN:
            policy.to(mesh.device)
        else:
            self._shard()
        self.open()

    def _shard(self) -> None:
        precision = MixedPrecisionPolicy()
        if self.dtype != torch.float32:
            precision = MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=torch.float32)
        for module in [*self.policy.layers(), self.policy]:
            fully_shard(module, mesh=self.mesh.data, mp_policy=precision)
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sums
            self._units.append(module)
        for buffer in self.policy.buffers():
            buffer.data = buffer.data.to(self.mesh.device)
        root = self._units[-1]
        if hasattr(root, "set_reduce_scatter_unused_params"):
            root.set_reduce_scatter_unused_params(True)
        if self.mode == FREE:
            root.set_reshard_after_forward(False)

    def open(self) -> None:
        """Makes weights ready for passes. In free mode it gathers them all. Collective."""
        if self.mode != FREE:
            return
        root = self._units[-1]
        root.set_requires_gradient_sync(False)
        root.set_reshard_after_backward(False)
        for unit in self._units:
            unit.unshard()

    def close(self) -> None:
        """Lets go of gathered weights, so that parameters are this rank's shards. Gradients remain. Collective."""
        for unit in self._units:
            unit.reshard()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Has parameters be this rank's shards inside the context. Collective."""
        self.close()
        try:
            yield
        finally:
            self.open()

    def forward(self, layout: Layout | None, temperature: float) -> tuple[Tensor, Tensor]:
        """Returns log-probabilities and entropies [targets]. None is an empty pass of one token. Collective in lockstep."""
        layout = _one_token() if layout is None else layout
        return self.policy(layout, temperature, passes=self._passes(layout))

    def _passes(self, layout: Layout) -> int:
        """Returns the number of passes of the replica that needs most, so that all make as many."""
        if self.mode != LOCKSTEP or self.policy.mode == PACKED:
            return 0
        most = torch.tensor([self.policy.passes(layout)], device=self.mesh.device)
        dist.all_reduce(most, dist.ReduceOp.MAX, group=self.mesh.data.get_group())
        return int(most.item())

    def reduce(self) -> None:
        """Adds gradients up over the data axis, and leaves parameters and gradients as shards. Collective."""
        if self.mode == FREE:
            root = self._units[-1]
            root.set_requires_gradient_sync(True)
            root.set_reshard_after_backward(True)
            logprobs, _ = self.forward(None, 1.0)
            logprobs.backward(torch.zeros_like(logprobs))
        self.close()
        if self.mesh.tp > 1:
            self._reduce_tensor_axis()

    def _reduce_tensor_axis(self) -> None:
        """Completes partial gradients, and keeps copies of one weight equal, whatever the order of kernels."""
        group = self.mesh.tensor.get_group()
        first = dist.get_global_rank(group, 0)
        for name, parameter in self.trained():
            if parameter.grad is None or splits(parameter, "tp"):
                continue
            if name in self.partial:
                dist.all_reduce(local(parameter.grad), group=group)
            else:
                dist.broadcast(local(parameter.grad), first, group=group)

    def trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the parameters that the optimizer updates, in an order that all ranks share."""
        for name, parameter in self.policy.named_parameters():
            if parameter.requires_grad:
                yield name, parameter

    def owns(self, parameter: nn.Parameter) -> bool:
        """Reports whether this rank's part of parameter counts in sums over all ranks."""
        tensor = splits(parameter, "tp") or self.mesh.tensor_rank == 0
        data = splits(parameter, "dp") or self.mesh.data_rank == 0
        return tensor and data

    def gradients(self) -> list[Tensor]:
        """Returns this rank's parts of the reduced gradients, in the order of trained. Collective."""
        for _, parameter in self.trained():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            elif isinstance(parameter, DTensor) and parameter.grad.placements != parameter.placements:
                parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
        return [local(parameter.grad) for _, parameter in self.trained()]

    def clear(self) -> None:
        """Forgets reduced gradients."""
        for parameter in self.policy.parameters():
            parameter.grad = None

    def discard(self) -> None:
        """Forgets all gradients. Collective."""
        self.reduce()
        self.clear()
        self.open()


def local(tensor: Tensor) -> Tensor:
    """Returns this rank's part, which shares memory with tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def splits(tensor: Tensor, axis: str) -> bool:
    """Reports whether tensor is split over the mesh's axis of that name."""
    if not isinstance(tensor, DTensor):
        return False
    names = tensor.device_mesh.mesh_dim_names or ()
    return any(name == axis and not placement.is_replicate() for name, placement in zip(names, tensor.placements))


def _one_token() -> Layout:
    zero = np.zeros(1, np.int64)
    return Layout.build(zero, zero, np.array([0, 1, -1]), zero, zero)
