"""The adapter of a sharded policy: merged into weights, and as a folder of PEFT."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from .lora import is_adapter
from .safetensors_stream import Spec

FILE = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
_PREFIX = "base_model."


class Adapter:
    """The trained matrices of a policy with low-rank adapters."""

    def __init__(self, policy: nn.Module, scale: float) -> None:
        """scale multiplies the product of two matrices."""
        self._policy, self._scale = policy, scale
        self.specs: list[Spec] = [(peft_name(name), tuple(p.shape)) for name, p in self._parameters()]

    def tensors(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields PEFT's name and the matrix, in the order of specs."""
        for name, parameter in self._parameters():
            yield peft_name(name), parameter

    def merged(self, weight: str, value: Tensor, gather: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns a whole weight with the adapter of its layer added, in float32, or value if it has none."""
        own = {}
        for name, parameter in self._parameters():
            layer, _, kind = name.removeprefix("model.").partition(".lora_")
            if f"{layer}.weight" == weight:
                own[kind[0]] = gather(parameter.detach()).float()
        if not own:
            return value
        return value.float() + self._scale * (own["B"] @ own["A"]).to(value.device)

    def write_config(self, folder: Path) -> None:
        """Writes PEFT's description of the adapter."""
        config = self._policy._adapter.peft_config["default"]
        config.inference_mode = True
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            config.save_pretrained(temporary)
            os.replace(Path(temporary) / CONFIG, folder / CONFIG)

    def _parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return ((name, p) for name, p in self._policy.named_parameters() if is_adapter(name))


def peft_name(name: str) -> str:
    """Returns the name that PEFT's files have for a parameter of a policy: model.X.lora_A.default.weight."""
    return _PREFIX + name.replace(".default.", ".")
