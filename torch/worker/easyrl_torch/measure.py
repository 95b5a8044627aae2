"""What passes cost and what a rank holds: operations and bytes."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

import torch

from .mesh import Mesh, device_memory

if TYPE_CHECKING:
    from .optimizer import AdamW
    from .policy import Policy
    from .shard import Sharded

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
    experts = getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None)
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


def memory(policy: Sharded, reference: Sharded | None, optimizer: AdamW) -> dict[str, int]:
    """Returns bytes by purpose: computed, except activations, which on an accelerator are what the peak leaves."""
    mesh = policy.mesh
    parameters = list(policy.policy.parameters())
    held = sum(s.weight.nbytes for s in optimizer.shards)
    whole = sum(p.numel() for p in parameters) // mesh.tp
    trained = sum(p.numel() for p in parameters if p.requires_grad) // mesh.tp
    weights = whole * policy.dtype.itemsize if policy.mode == "free" else 0
    weights += held + sum(p.nbytes for p in reference.policy.parameters()) // mesh.tp if reference else held
    gradients = trained * 4 if policy.mode == "free" else held
    moments = 2 * held
    peak = _peak(mesh.device)
    return {
        "weights": int(weights), "gradients": int(gradients), "optimizer": int(moments),
        "activations": max(0, int(peak - weights - gradients - moments)),
    }


def _peak(device: torch.device) -> int:
    if device.type == "cpu":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return getattr(torch, device.type).max_memory_allocated(device)


def reset_peak(device: torch.device) -> None:
    """Forgets the peak so far, where the device can."""
    if device.type != "cpu":
        getattr(torch, device.type).reset_peak_memory_stats(device)


def synchronize(device: torch.device) -> None:
    """Waits for the device."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)
