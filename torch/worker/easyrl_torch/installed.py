"""Finds what the installed packages lack, before a rank loads a model."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import TypeVar

PACKAGES = ("torch", "transformers", "peft")
# Methods of PreTrainedModel with which it recomputes activations; the first that there is serves.
RECOMPUTE = ("activation_checkpointing_enable", "gradient_checkpointing_enable")

_MODEL = "transformers.PreTrainedModel"
_FSDP = "torch.distributed.fsdp.FSDPModule"

T = TypeVar("T")


class Lacking(RuntimeError):
    """The installed packages lack something. The message names it and the versions."""


@dataclass(frozen=True)
class Need:
    """Something that the ranks use beyond what their modules import."""

    use: str  # what needs it, for people
    names: tuple[str, ...]  # dotted names; any one of them serves


def needs(device: str, dp: int, tp: int, float32: bool, recompute: bool) -> list[Need]:
    """Returns what ranks with these settings need; device is a type, such as "cpu"."""
    found = [Need("attention over shared prompts", (f"{_MODEL}.set_attn_implementation",)),
             Need("access to a model's layers", (f"{_MODEL}.get_decoder",))]
    if device == "cpu":
        found.append(Need("attention on CPUs", ("torch.ops.aten._scaled_dot_product_flash_attention_for_cpu",)))
    if dp > 1 or not float32:
        found += [Need("sums over ranks", (f"{_FSDP}.{name}",))
                  for name in ("set_gradient_divide_factor", "set_force_sum_reduction_for_comms")]
    if tp > 1:
        found.append(Need(f"parallel.tp = {tp}", (f"{_MODEL}._resolve_parallel_plans",)))
    if recompute:
        found.append(Need("train.recompute = true", tuple(f"{_MODEL}.{name}" for name in RECOMPUTE)))
    return found


def check(needed: list[Need]) -> None:
    """Raises Lacking, with one line for everything that is not installed."""
    lacking = [f"{' or '.join(need.names)} for {need.use}" for need in needed if not any(map(_exists, need.names))]
    if lacking:
        raise Lacking(_line("the installed packages lack " + ", and ".join(lacking)))


def importing(load: Callable[[], T]) -> T:
    """Calls load, and raises Lacking if a module that it imports is missing or lacks a name."""
    try:
        return load()
    except ImportError as error:
        raise Lacking(_line(" ".join(str(error).split()))) from error


def versions() -> dict[str, str]:
    """Returns the version of each of PACKAGES, "none" if it is not installed. It imports none, which takes seconds."""
    return {name: _version(name) for name in PACKAGES}


def _version(package: str) -> str:
    version = getattr(sys.modules.get(package), "__version__", None)
    try:
        return version or metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def _line(text: str) -> str:
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    return f"{text}; installed are {found}, expected the versions in torch/worker/requirements.txt"


def _exists(name: str) -> bool:
    """Whether a dotted name is a module's attribute, or an attribute's attribute."""
    parts = name.split(".")
    for at in range(len(parts) - 1, 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:at]))
        except ImportError:
            continue
        try:
            for part in parts[at:]:
                value = getattr(value, part)
        except AttributeError:
            return False
        return True
    return False
