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

import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from . import miniature
from .attention import implementations
from .layout import Layout, separate
from .measure import synchronize
from .policy import PACKED, SEPARATE, STOCK, Policy

# Segments (length, parent): a group whose responses differ in length, one empty; a conversation whose second
# turn has two responses; a prompt with one response; and, in the miniature, a tree too large for one dense part.
# Both have at least flex.BLOCK rows, from which on kernels are those of large layouts, and an odd number of them.
SMALL = [(23, -1), (9, 0), (0, 0), (17, 0), (12, -1), (8, 4), (11, 5), (5, 5), (19, -1), (27, 8)]
LARGE = SMALL + [(120, -1), (40, 10), (33, 10), (18, 10), (9, 12), (14, 12)]
RESPONSES, PROMPT = 4, 512  # of the group that slowdown passes; its responses are half as long as the prompt
REASON = 300  # characters of an exception that a reason keeps
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

    logprob: float = 0.0  # root mean square of the errors, over that of the log-probabilities (at least 1)
    gradient: float = 0.0  # largest relative error of a tensor's gradient
    tensor: str = ""  # name of that tensor
    reason: str = ""  # why the check failed, in one line; empty if it passed

    @property
    def passed(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Measured:
    """What one pass forward and backward computes."""

    logprobs: Tensor  # [targets]
    gradients: dict[str, Tensor]  # by name of parameter


class Subject:
    """A policy on one rank."""

    def __init__(self, policy: Policy):
        self.policy = policy

    def measure(self, layout: Layout, mode: str, whole: bool) -> Measured:
        """Runs layout with fixed gradients of the log-probabilities; every rank of the policy calls it alike.

        With whole, gradients are those of one pass over layout by one rank. Otherwise they may be parts,
        or multiples, the same in each call.
        """
        del whole
        self.policy.zero_grad()
        logprobs = pass_layout(self.policy, layout, mode)
        gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad
                     for name, p in self.policy.named_parameters() if p.requires_grad}
        self.policy.zero_grad()
        return Measured(logprobs, gradients)

    @property
    def apart(self) -> bool:
        """Whether run involves no other rank."""
        return True

    def run(self, layout: Layout, mode: str) -> None:
        """Runs layout forward and backward. Gradients add up until forget."""
        pass_layout(self.policy, layout, mode)

    def forget(self) -> None:
        """Forgets the gradients of run, also if a run has failed; every rank of the policy calls it."""
        self.policy.zero_grad()


def pass_layout(policy: Policy, layout: Layout, mode: str) -> Tensor:
    """Runs layout forward and backward, and returns the log-probabilities; gradients add up in policy."""
    logprobs, _ = policy(layout, 1.0, mode)
    (logprobs * torch.linspace(-3, 3, len(logprobs), device=logprobs.device).sin()).sum().backward()
    return logprobs.detach()


Build = Callable[[Path], Subject]  # loads and shards a folder in float32, without adapter, as the subject is
Agree = Callable[[bool], bool]  # whether all ranks pass True


def settle(subject: Subject, build: Build, agree: Agree) -> Result:
    """Sets the attention and mode of subject's policy to the fastest that pass on all ranks.

    If they are not the first choice, it also sets the reason and the slowdown. Raises RuntimeError if no mode
    passes: then the sharded model is not the model of the folder.
    """
    policy, reasons = subject.policy, []
    trials = [(name, PACKED) for name in implementations(policy.device)]
    trials += [(trials[-1][0], SEPARATE), (trials[-1][0], STOCK)]
    for policy.attention, mode in trials:
        result = check(subject, build, agree, mode)
        if result.passed:
            policy.mode, policy.reason = mode, "; ".join(reasons)
            policy.slowdown = slowdown(subject, agree) if reasons else 0.0
            return result
        reasons.append(f"{policy.attention if mode == PACKED else mode + ' sequences'}: {result.reason}")
    raise RuntimeError(f"self-check: {result.reason}")


def slowdown(subject: Subject, agree: Agree) -> float:
    """Returns how much a fallback costs, for a group of RESPONSES responses to a prompt.

    A policy in mode PACKED: how many times as long a pass forward and backward takes as one over separate sequences
    through the family's own attention; 0 if a pass fails, for example because it takes more memory than training
    will. In lockstep and with tensor parallelism a failed pass ends the rank, since others may wait in theirs. Other modes: how many times the rows of a shared prompt and its responses they compute. Every rank of the
    policy calls it alike.
    """
    policy = subject.policy
    layout = sample(group(policy.max_positions), policy.vocabulary)
    if policy.mode != PACKED:
        return sum(map(len, separate(layout).sequences)) / len(layout)
    taken = {}
    try:
        for mode in (PACKED, SEPARATE):
            taken[mode] = _seconds(subject, layout, mode)
    except Exception as error:
        if not subject.apart:  # others may wait within their pass
            raise
        traceback.print_exception(error, file=sys.stderr)
    subject.forget()
    policy.mode = PACKED
    if not agree(SEPARATE in taken):
        return 0.0
    return taken[PACKED] / max(taken[SEPARATE], 1e-9)


def group(max_positions: int | None) -> list[tuple[int, int]]:
    """Returns the segments of a group that fits a model."""
    prompt = max(2, min(PROMPT, (max_positions or PROMPT * 2) // 2))
    return [(prompt, -1)] + [(prompt // 2, 0)] * RESPONSES


def _seconds(subject: Subject, layout: Layout, mode: str) -> float:
    """Returns the shorter time of two passes, after one that compiles."""
    subject.run(layout, mode)
    times = []
    for _ in range(2):
        synchronize(subject.policy.device)
        start = time.perf_counter()
        subject.run(layout, mode)
        synchronize(subject.policy.device)
        times.append(time.perf_counter() - start)
    return min(times)


def check(subject: Subject, build: Build, agree: Agree, mode: str = PACKED) -> Result:
    """Compares subject in mode with the model's own code; every rank calls it with the same arguments.

    Either all ranks pass or none. What this rank's result lacks is a fault of another. Gradients of subject are
    discarded.
    """
    reason = unsupported(subject.policy) if mode == PACKED else ""
    if reason:
        return Result(reason=reason)
    with tempfile.TemporaryDirectory() as folder:
        stages = _stages(subject, build, mode, Path(folder))
        for _ in range(STAGES):
            result = _next(stages)
            if not agree(result.passed):
                return Result(reason="the check failed on another rank") if result.passed else result
    return result


def _next(stages: Iterator[Result]) -> Result:
    try:
        return next(stages)
    except Exception as error:  # a family's own code may raise anything
        traceback.print_exception(error, file=sys.stderr)
        first = str(error).strip().split("\n")[0]
        return Result(reason=f"{type(error).__name__}: {first}"[:REASON])


STAGES = 3


def _stages(subject: Subject, build: Build, mode: str, folder: Path) -> Iterator[Result]:
    """Yields the outcomes of STAGES stages; ranks compute apart only in the first."""
    policy = subject.policy
    miniature.write(policy.config, folder)
    reference = Subject(Policy.from_folder(folder, torch.float32).to(policy.device))
    layout = sample(LARGE, reference.policy.vocabulary)
    want = reference.measure(layout, STOCK, whole=True)
    yield Result()
    candidate = build(folder)
    candidate.policy.attention = policy.attention
    yield compare(candidate.measure(layout, mode, whole=True), want, EXACT, "small random model")
    yield check_real(subject, mode)


def check_real(subject: Subject, mode: str) -> Result:
    """Compares subject with its own code on separate sequences, on the shards of this rank."""
    layout = sample(SMALL, subject.policy.vocabulary)
    want = subject.measure(layout, STOCK, whole=False)
    got = subject.measure(layout, mode, whole=False)
    return compare(got, want, tolerance(subject.policy), "model")


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


def compare(got: Measured, want: Measured, limits: Tolerance, what: str) -> Result:
    """Compares two passes over one layout; gradients are whole, or the same parts."""
    size = max(1.0, _rms(want.logprobs))
    error = _rms(got.logprobs - want.logprobs) / size
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


def _norm(x: Tensor) -> float:
    x = x.to_local() if isinstance(x, DTensor) else x
    return float(torch.linalg.vector_norm(x.float()))


def _rms(x: Tensor) -> float:
    return float(x.float().square().mean().sqrt())
