"""Checks at start that a policy computes what the model's own code computes.

Two comparisons of log-probabilities and of all gradients, on a layout with shared prefixes:

* A miniature: few layers, small widths and windows, random float32 weights, sharded as the real model is,
  against the untouched model on separate sequences, unsharded, on this rank. Its tolerances are those of
  float32 rounding, so it finds wrong masks, windows, positions, scalings and tensor-parallel plans whatever
  the size and type of the real model.
* The real model, sharded, against its own forward pass over separate sequences. It finds faults of the
  real weights, shapes and types.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from . import miniature
from .attention import implementations
from .layout import Layout
from .policy import PACKED, SEPARATE, STOCK, Policy

# Segments (length, parent): a group whose responses differ in length, one empty; a conversation whose second
# turn has two responses; and, in the miniature, a tree too large for one dense part.
SMALL = [(23, -1), (9, 0), (0, 0), (17, 0), (12, -1), (8, 4), (11, 5), (5, 5)]
LARGE = SMALL + [(120, -1), (40, 8), (33, 8), (18, 8), (9, 10), (14, 10)]
FLOOR = 1e-3  # a tensor's gradient is compared at no less than this share of the largest norm
CHECKED_TYPES = {"full_attention", "sliding_attention"}
MOVING_ROPE = {"dynamic", "longrope"}  # angles depend on the longest sequence of the batch


@dataclass(frozen=True)
class Tolerance:
    """The largest accepted errors, relative to the reference."""

    logprob: float
    gradient: float


# float32 rounding through tens of layers stays below 1e-5 of a log-probability. Gradients lose a digit in
# their sums.
EXACT = Tolerance(1e-5, 1e-4)
# bfloat16 rounds each activation and logit to 1 part in 256, which leaves some hundredths in gradients. Noise of
# any type makes routers choose other experts for rows with close scores. Faults of code are found by EXACT in
# the miniature; this finds kernels that fail for a type or a shape.
ROUNDED = Tolerance(2e-2, 0.25)


@dataclass(frozen=True)
class Result:
    """The outcome of a comparison."""

    logprob: float  # root mean square of the errors, over that of the log-probabilities (at least 1)
    gradient: float  # largest relative error of a tensor's gradient
    tensor: str  # name of that tensor
    reason: str  # why the check failed, in one line; empty if it passed

    @property
    def passed(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Measured:
    """What one pass computes."""

    logprobs: Tensor  # [targets]
    gradients: dict[str, Tensor]  # by name of parameter


def settle(policy: Policy, build: Callable[[Path], Policy], agree: Callable[[bool], bool],
           whole: Callable[[Tensor], Tensor] | None = None, scale: float = 1.0) -> Result:
    """Sets policy's attention, mode and reason to the fastest that pass on all ranks; arguments as in check.

    agree returns whether all ranks pass True. Raises RuntimeError if no mode passes: then the sharded model is
    not the model of the folder.
    """
    packed = ""
    trials = [(name, PACKED) for name in implementations(policy.device)]
    for policy.attention, mode in trials + [(policy.attention, SEPARATE), (policy.attention, STOCK)]:
        result = check(policy, build, mode, whole, scale)
        if agree(result.passed):
            policy.mode, policy.reason = mode, packed if mode != PACKED else ""
            return result
        reason = result.reason or "the check failed on another rank"
        if mode == PACKED:
            packed = reason
    raise RuntimeError(f"self-check: {reason}")


def check(policy: Policy, build: Callable[[Path], Policy], mode: str = PACKED,
          whole: Callable[[Tensor], Tensor] | None = None, scale: float = 1.0) -> Result:
    """Compares policy in mode with the model's own code; every rank calls it with the same arguments.

    build loads a folder and shards it as policy is, with float32 weights and arithmetic and no adapter; it
    must not keep files of the folder open.
    whole turns one of its gradients into the full tensor (collectively); None knows plain tensors and
    DTensors. scale is what sharding multiplies gradients by if all ranks pass the same layout. Gradients of
    policy are discarded.
    """
    reason = unsupported(policy) if mode == PACKED else ""
    if reason:
        return Result(0.0, 0.0, "", reason)
    try:
        small = check_miniature(policy, build, mode, whole or full_tensor, scale)
        return small if not small.passed else check_real(policy, mode)
    except Exception as error:  # a family's own code may raise anything
        first = str(error).strip().split("\n")[0]
        return Result(0.0, 0.0, "", f"{mode}: {type(error).__name__}: {first}")


def check_miniature(policy: Policy, build: Callable[[Path], Policy], mode: str,
                    whole: Callable[[Tensor], Tensor], scale: float) -> Result:
    """Compares a sharded miniature with an unsharded one of the same weights."""
    with tempfile.TemporaryDirectory() as folder:
        miniature.write(policy.config, Path(folder))
        reference = Policy.from_folder(folder, torch.float32).to(policy.device)
        candidate = build(Path(folder))
    candidate.attention = policy.attention
    layout = sample(LARGE, reference.vocabulary)
    want = measure(reference, layout, STOCK)
    got = measure(candidate, layout, mode)
    gradients = {name: whole(g) / scale for name, g in got.gradients.items()}
    return compare(Measured(got.logprobs, gradients), want, EXACT, "small random model")


def check_real(policy: Policy, mode: str) -> Result:
    """Compares policy with its own code on separate sequences, on the shards of this rank."""
    layout = sample(SMALL, policy.vocabulary)
    want = measure(policy, layout, STOCK)
    want = Measured(want.logprobs, {name: g.clone() for name, g in want.gradients.items()})
    got = measure(policy, layout, mode)
    result = compare(got, want, tolerance(policy), "model")
    policy.zero_grad()
    return result


def unsupported(policy: Policy) -> str:
    """Returns why layouts cannot be packed although a short check may not show it, or nothing."""
    config = policy.config
    types = set(getattr(config, "layer_types", None) or []) - CHECKED_TYPES
    if types:
        return f"layers of type {', '.join(sorted(types))}, expected {' or '.join(sorted(CHECKED_TYPES))}"
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = {p.get("rope_type") for p in [rope, *rope.values()] if isinstance(p, dict)} & MOVING_ROPE
    if kinds:
        return f"rope type {kinds.pop()} depends on the longest sequence"
    return ""


def tolerance(policy: Policy) -> Tolerance:
    """Returns the tolerance for the type that policy computes in, and for its routers."""
    exact = policy.compute_dtype == torch.float32 and not miniature.experts(policy.config)
    return EXACT if exact else ROUNDED


def measure(policy: Policy, layout: Layout, mode: str) -> Measured:
    """Runs layout forward and backward with fixed gradients of the log-probabilities."""
    policy.zero_grad()
    logprobs, _ = policy(layout, 1.0, mode)
    seeds = torch.linspace(-3, 3, len(logprobs), device=logprobs.device).sin()
    (logprobs * seeds).sum().backward()
    gradients = {n: p.grad for n, p in policy.named_parameters() if p.grad is not None}
    return Measured(logprobs.detach(), gradients)


def compare(got: Measured, want: Measured, limits: Tolerance, what: str) -> Result:
    """Compares two passes over one layout; gradients may be DTensors of one placement."""
    size = max(1.0, _rms(want.logprobs))
    error = _rms(got.logprobs - want.logprobs) / size
    if got.gradients.keys() != want.gradients.keys():
        name = min(got.gradients.keys() ^ want.gradients.keys())
        return Result(error, float("inf"), name, f"{what}: {name} has a gradient in one of both only")
    norms = {name: _norm(g) for name, g in want.gradients.items()}
    least = FLOOR * max(norms.values(), default=0.0)
    worst, tensor = 0.0, ""
    for name, g in want.gradients.items():
        relative = _norm(got.gradients[name] - g) / max(norms[name], least, 1e-30)
        if not relative <= worst:
            worst, tensor = relative, name
    reason = ""
    if not error <= limits.logprob:
        reason = f"{what}: log-probabilities differ by {error:.1e}, expected at most {limits.logprob:.0e}"
    elif not worst <= limits.gradient:
        reason = f"{what}: gradient of {tensor} differs by {worst:.1e}, expected at most {limits.gradient:.0e}"
    return Result(error, worst, tensor, reason)


def sample(segments: list[tuple[int, int]], vocabulary: int) -> Layout:
    """Returns a layout of segments (length, parent) with random tokens; all but the roots' are targets."""
    rng = np.random.default_rng(miniature.SEED)
    starts = np.cumsum([0] + [length for length, _ in segments])
    tokens = rng.integers(0, vocabulary, starts[-1])
    positions, rows, targets, ends, lasts = [], [], [], [], []
    for start, (length, parent) in zip(starts, segments):
        first, row = (ends[parent], lasts[parent]) if parent >= 0 else (0, -1)
        own = [row] + list(range(start, start + length))
        if parent >= 0:
            rows += own
            targets += [*tokens[start:start + length], rng.integers(0, vocabulary)]
        positions += range(first, first + length)
        ends.append(first + length)
        lasts.append(own[-1])
    spans = [(start, length, parent) for start, (length, parent) in zip(starts, segments)]
    return Layout.build(tokens, positions, spans, rows, targets, vocabulary)


def full_tensor(x: Tensor) -> Tensor:
    """Gathers a DTensor; returns other tensors as they are."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def _norm(x: Tensor) -> float:
    return float(full_tensor(torch.linalg.vector_norm(x.float())))


def _rms(x: Tensor) -> float:
    return float(x.float().square().mean().sqrt())
