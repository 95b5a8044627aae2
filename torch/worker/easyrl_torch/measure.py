"""What passes cost and what a rank holds: operations and bytes."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path

import torch

from . import miniature
from .mesh import Mesh, device_memory
from .policy import Policy
from .shard import FREE, Sharded, local

_COMFORT = 0.6  # share of the device that weights, gradients and moments may take in free mode


def flops(policy: Policy) -> dict[str, float]:
    """Returns the operations of a forward and backward pass per row, per target, and per pair of query and key.

    A multiply-add is two operations, and a backward pass costs two forward passes. Of an expert layer the
    weights of as many experts count as a token uses.
    """
    config = policy.config
    head = policy.model.get_output_embeddings()
    embedding = policy.model.get_input_embeddings().weight
    inner = sum(p.numel() * _used(name, config) for name, p in policy.weights()
                if p.ndim >= 2 and p is not embedding and (head is None or p is not head.weight))
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return {
        "row": 6.0 * inner,
        "target": 6.0 * config.vocab_size * config.hidden_size,
        "key": 12.0 * config.num_hidden_layers * config.num_attention_heads * width,
    }


def _used(name: str, config) -> float:
    experts = miniature.experts(config)
    chosen = getattr(config, "num_experts_per_tok", None)
    if not experts or not chosen or ".experts." not in name:
        return 1.0
    return chosen / experts


def fits_free(parameters: int, trained: int, reference: bool, dtype: torch.dtype, mesh: Mesh) -> bool:
    """Reports whether the device has comfortable room for what free mode holds."""
    width = dtype.itemsize
    whole = parameters * width * (2 if reference else 1) + trained * 4  # gathered weights and gradients
    spread = (parameters + 3 * trained) * 4 / mesh.dp  # float32 weights, gradients and moments
    room = device_memory(mesh.device)
    if mesh.device.type == "cpu":
        room //= int(os.environ.get("LOCAL_WORLD_SIZE", mesh.world))
    return (whole + spread) / mesh.tp <= _COMFORT * room


class Memory:
    """Accounts for the bytes of one rank's device."""

    def __init__(self, models: Sequence[Sharded], trained: int) -> None:
        """models are the policy, of which `trained` values are trained, and its reference, if any."""
        policy = models[0]
        self._device = policy.mesh.device
        shards = sum(local(p).nbytes for m in models for p in m.policy.parameters())
        whole = sum(p.numel() for m in models for p in m.policy.parameters()) // policy.mesh.tp
        own = sum(local(p).numel() for p in policy.policy.parameters() if p.requires_grad)
        free = policy.mode == FREE
        self.weights = shards + (whole * policy.dtype.itemsize if free else 0)
        self.gradients = 4 * (trained // policy.mesh.tp if free else own)
        self.optimizer = 8 * own
        self._floor = 0

    def start(self) -> None:
        """Counts as activations what comes to be held from now on."""
        if self._device.type == "cpu":
            self._floor = _resident()
            return
        accelerator = getattr(torch, self._device.type)
        accelerator.reset_peak_memory_stats(self._device)
        self._floor = accelerator.memory_allocated(self._device)

    def report(self) -> dict[str, int]:
        """Returns bytes by purpose. Activations are what the peak leaves, and zero before the first pass."""
        if self._device.type == "cpu":
            peak = _resident_peak()
        else:
            peak = getattr(torch, self._device.type).max_memory_allocated(self._device)
        return {
            "weights": self.weights, "gradients": self.gradients, "optimizer": self.optimizer,
            "activations": max(0, peak - self._floor - self.gradients),
        }


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _resident_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def synchronize(device: torch.device) -> None:
    """Waits for the device."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)
