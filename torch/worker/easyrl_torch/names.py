"""Weights in memory and on disk. transformers renames, fuses and transposes some when it loads
them; files keep the names and shapes of the folder that a model came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import convert_and_load_state_dict_in_model, revert_weight_conversion
from transformers.modeling_utils import LoadStateDictConfig

from .lora import plain_name
from .policy import Policy
from .safetensors_stream import Spec

_LAYER = re.compile(r"^(.*?\.\d+)\.")


class Names:
    """Translates between a policy's weights and a folder's tensors."""

    def __init__(self, policy: Policy) -> None:
        self._model = policy.model
        own = {name: tuple(p.shape) for name, p in policy.weights()}
        buffers = {plain_name(name): tuple(b.shape) for name, b in self._saved_buffers()}
        self.shapes = own | buffers
        self.groups = _groups(self.shapes)

    def tensors(self, policy: Policy) -> dict[str, Tensor]:
        """Returns all that files hold by name: weights, and buffers that are no weights, such as an expert's bias."""
        return dict(policy.weights()) | {plain_name(name): b for name, b in self._saved_buffers()}

    def _saved_buffers(self) -> Iterator[tuple[str, Tensor]]:
        unsaved = {f"{path}.{name}" if path else name
                   for path, module in self._model.named_modules() for name in module._non_persistent_buffers_set}
        return ((name, b) for name, b in self._model.named_buffers() if name not in unsaved)

    def on_disk(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Returns a whole group's tensors, by name in memory, as they are on disk."""
        return revert_weight_conversion(self._model, dict(tensors))

    def specs(self, group: Iterable[str]) -> list[Spec]:
        """Returns name and shape of a group's tensors on disk."""
        empty = {name: torch.empty(self.shapes[name], device="meta") for name in group}
        return [(name, tuple(tensor.shape)) for name, tensor in self.on_disk(empty).items()]

    def in_memory(self, slices: Mapping[str, Any], like: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
        """Reads a folder's tensors and returns this rank's parts, shaped and split as those of `like`, on the CPU.

        Of slices that are split, each rank reads its own part. Raises ValueError if a weight is missing.
        """
        skeleton = self._skeleton(like, dtype)
        config = LoadStateDictConfig(
            dtype=dtype, device_map={"": torch.device("cpu")}, weight_mapping=get_model_conversion_mapping(skeleton))
        found, _ = convert_and_load_state_dict_in_model(skeleton, dict(slices), config)
        missing = sorted(found.missing_keys & like.keys())
        if missing or found.mismatched_keys:
            wrong = missing or sorted(name for name, *_ in found.mismatched_keys)
            raise ValueError(f"weights: {wrong[0]} and {len(wrong) - 1} others are missing or have another shape")
        return {name: _local(skeleton.get_parameter_or_buffer(name).detach()) for name in like}

    def _skeleton(self, like: Mapping[str, Tensor], dtype: torch.dtype) -> nn.Module:
        """Returns a model without memory whose weights are split as those of `like`."""
        with torch.device("meta"):
            skeleton = AutoModelForCausalLM.from_config(self._model.config, dtype=dtype)
        for name, tensor in like.items():
            owner, _, field = name.rpartition(".")
            module = skeleton.get_submodule(owner)
            if field not in module._buffers:
                setattr(module, field, nn.Parameter(_empty_like(tensor, dtype)))
        return skeleton


def _empty_like(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if not isinstance(tensor, DTensor):
        return torch.empty(tensor.shape, dtype=dtype, device="meta")
    part = torch.empty(tensor.to_local().shape, dtype=dtype, device="meta")
    return DTensor.from_local(
        part, tensor.device_mesh, tensor.placements, run_check=False, shape=tensor.shape, stride=tensor.stride())


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _groups(names: Iterable[str]) -> list[list[str]]:
    """Returns the names in order, those of one layer together."""
    groups: dict[str, list[str]] = {}
    for name in names:
        layer = _LAYER.match(name)
        groups.setdefault(layer.group(1) if layer else name, []).append(name)
    return list(groups.values())
