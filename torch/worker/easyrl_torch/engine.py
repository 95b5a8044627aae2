"""What a rank computes: passes, updates and files of its models. It knows no connection."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import transformers
from torch import Tensor

from . import files, lora, measure, selfcheck
from .adapter import Adapter
from .layout import Layout
from .mesh import Mesh
from .optimizer import AdamW, Result, Settings, Shard
from .policy import PACKED, Policy
from .shard import FREE, LOCKSTEP, Sharded, local
from .spread import Spread

_SEED = 20  # of new adapters, so that they are the same on all ranks


@dataclass(frozen=True)
class Job:
    """What the trainer wants from the ranks; the fields of its welcome."""

    model: str  # folder of the weights
    state: str  # folder of weights and moments to continue from, or ""
    reference: str  # folder of the reference's weights, or ""
    mode: str  # "auto", "free" or "lockstep"
    dtype: str  # "auto", "float32" or "bfloat16"
    recompute: bool
    temperature: float
    optimizer: Settings
    lora: lora.Settings | None

    def compute_dtype(self, device: torch.device) -> torch.dtype:
        """Returns the type that passes compute in: "auto" is float32 on CPUs, otherwise bfloat16."""
        automatic = torch.float32 if device.type == "cpu" else torch.bfloat16
        types = {"auto": automatic, "float32": torch.float32, "bfloat16": torch.bfloat16}
        if self.dtype not in types:
            raise ValueError(f"dtype is {self.dtype}, expected one of {', '.join(types)}")
        return types[self.dtype]


class Engine:
    """The models of one rank. Its methods are called in one order on all ranks, except that ranks in
    free mode make passes of their own."""

    def __init__(self, job: Job, mesh: Mesh) -> None:
        """Loads everything. Raises ValueError and OSError for what cannot be loaded."""
        self.job, self.mesh, self.dtype = job, mesh, job.compute_dtype(mesh.device)
        if job.lora is not None and mesh.tp > 1:
            raise ValueError(f"tp is {mesh.tp}, expected 1 with LoRA")
        transformers.utils.logging.disable_progress_bar()
        torch.manual_seed(_SEED)
        policy = Policy.from_folder(
            job.model, torch.float32 if job.lora is None else self.dtype, recompute=job.recompute, lora=job.lora)
        self.names = files.Names(policy)
        self.parameters = sum(p.numel() for _, p in policy.weights())
        self.trained = sum(p.numel() for p in policy.parameters() if p.requires_grad)
        mode = self._choose_mode()
        self.flops = measure.flops(policy)
        self.policy = Sharded(policy, mesh, mode, self.dtype)
        if job.lora is not None:
            self.policy.adapter = Adapter(policy, job.lora.alpha / job.lora.rank)
        self.mode = LOCKSTEP if self.policy.mode == LOCKSTEP else FREE
        selfcheck.settle(Spread(self.policy), self._build, mesh.all)
        self.reference = self._load_reference()
        models = [self.policy] if self.reference is None else [self.policy, self.reference]
        for model in models:
            model.close()
        self._memory = measure.Memory(models, self.trained)
        self.optimizer = AdamW(job.optimizer, mesh, self._shards())
        for model in models:
            model.open()
        if job.state:
            with self.policy.closed():
                files.load_state(self.policy, self.names, self.optimizer, job.state)
        self._flight: dict[int, Tensor] = {}  # log-probabilities that wait for their gradient
        self._memory.start()

    def _choose_mode(self) -> str:
        if self.job.mode not in ("auto", FREE, LOCKSTEP):
            raise ValueError(f"mode is {self.job.mode}, expected auto, {FREE} or {LOCKSTEP}")
        if self.job.mode != "auto":
            return self.job.mode
        second = bool(self.job.reference) and self.job.lora is None
        fits = measure.fits_free(self.parameters, self.trained, second, self.dtype, self.mesh)
        return FREE if self.mesh.all(fits) else LOCKSTEP

    def _build(self, folder: Path) -> Spread:
        """Spreads a folder over the ranks as the policy is, to check it."""
        policy = Policy.from_folder(folder, recompute=self.job.recompute)
        return Spread(Sharded(policy, self.mesh, self.policy.mode, torch.float32))

    def _load_reference(self) -> Sharded | None:
        if not self.job.reference or self.job.lora is not None:
            return None  # the reference of an adapter is what it adapts
        policy = Policy.from_folder(self.job.reference, self.dtype)
        policy.requires_grad_(False)
        policy.attention, policy.mode = self.policy.policy.attention, self.policy.policy.mode
        return Sharded(policy, self.mesh, self.mode, self.dtype)

    def _shards(self) -> list[Shard]:
        return [
            Shard(name, local(p.detach()), torch.zeros_like(local(p.detach())), torch.zeros_like(local(p.detach())),
                  decays=p.ndim >= 2 and not name.endswith("bias"), owned=self.policy.owns(p))
            for name, p in self.policy.trained()
        ]

    def forward(self, number: int, layout: Layout | None) -> dict[str, np.ndarray]:
        """Computes a micro-batch, or an empty one if layout is None, and keeps it for backward.

        Returns arrays "policy", "entropy" and, with a reference, "reference"; none for an empty one.
        """
        if number in self._flight:
            raise ValueError(f"forward {number}: this micro-batch has been computed already")
        empty = layout is None or not len(layout.rows)
        if empty and self.mode != LOCKSTEP:
            self._flight[number] = torch.zeros(0)
            return {}
        layout = None if empty else layout
        with torch.no_grad():
            reference = self._pass_reference(layout)
        logprobs, entropy = self.policy.forward(layout, self.job.temperature)
        self._flight[number] = logprobs
        if empty:
            return {}
        arrays = {"policy": logprobs.detach(), "entropy": entropy}
        if reference is not None:
            arrays["reference"] = reference
        return {name: value.float().cpu().numpy() for name, value in arrays.items()}

    def _pass_reference(self, layout: Layout | None) -> Tensor | None:
        if self.reference is not None:
            return self.reference.forward(layout, self.job.temperature)[0]
        if self.job.reference:
            with self.policy.policy.reference():
                return self.policy.forward(layout, self.job.temperature)[0]
        return None

    def in_flight(self) -> list[int]:
        """Returns the micro-batches that wait for their backward."""
        return list(self._flight)

    def backward(self, number: int, gradient: np.ndarray | None) -> None:
        """Adds a micro-batch's gradients; `gradient` [targets] is d loss / d policy, None for an empty one."""
        if number not in self._flight:
            raise ValueError(f"backward {number}: this micro-batch has not been computed")
        logprobs = self._flight.pop(number)
        if not logprobs.numel():
            return
        if gradient is None:
            seed = torch.zeros_like(logprobs)
        elif gradient.size == logprobs.numel():
            seed = torch.from_numpy(np.array(gradient)).to(logprobs)
        else:
            raise ValueError(
                f"backward {number}: {gradient.size} gradients, expected {logprobs.numel()}, one per target")
        logprobs.backward(seed)
        measure.synchronize(self.mesh.device)

    def discard(self) -> None:
        """Forgets micro-batches without backward, and all gradients. Collective."""
        self._flight.clear()
        self.policy.discard()

    def score(self, folder: str, layout: Layout, temperature: float) -> np.ndarray:
        """Returns log-probabilities [targets] under a folder's weights without adapter, under a folder's adapter, or,
        if folder is "", the policy's. Collective."""
        loaded = files.loaded(self.policy, self.names, folder) if folder else nullcontext()
        whole = folder and self.policy.adapter is not None and not files.is_adapter(folder)
        plain = self.policy.policy.reference() if whole else nullcontext()
        with loaded, plain, torch.no_grad():
            return self.policy.forward(layout, temperature)[0].float().cpu().numpy()

    def step(self, update: int, scale: float, lr: float, clip: float) -> Result:
        """Applies the gradients and clears them. Collective."""
        if self._flight:
            raise ValueError(f"step {update}: {len(self._flight)} micro-batches have no gradient yet")
        self.policy.reduce()
        try:
            return self.optimizer.step(self.policy.gradients(), update, scale, lr, clip)
        finally:
            self.policy.clear()
            self.policy.open()

    def write(self, what: str, folder: str) -> None:
        """Writes "weights", "state" or "adapter" to folder. Collective."""
        writers = {"weights": files.write_weights, "state": files.write_state, "adapter": files.write_adapter}
        if what not in writers:
            raise ValueError(f"write {what}, expected one of {', '.join(writers)}")
        with self.policy.closed():
            writers[what](self.policy, self.names, self.optimizer, folder)
        if self.mesh.world > 1:
            dist.barrier()

    def memory(self) -> dict[str, int]:
        """Returns the bytes that this rank holds, and at most held for activations."""
        return self._memory.report()

    def description(self) -> dict[str, Any]:
        """Returns the fields of ready."""
        policy = self.policy.policy
        return {
            "parameters": self.parameters, "trained": self.trained, "vocabulary": policy.vocabulary,
            "max_positions": policy.max_positions or 0, "packed": policy.mode == PACKED,
            "attention": policy.attention, "reason": policy.reason, "slowdown": policy.slowdown, "mode": self.mode,
            "dtype": str(self.dtype).removeprefix("torch."), "memory": self.memory(), "flops": self.flops,
        }
