"""Low-rank adapters (PEFT) on the linear layers of a decoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from peft import LoraConfig, PeftModel, TaskType, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import PreTrainedModel


@dataclass(frozen=True)
class Settings:
    """An adapter's shape: updates are alpha / rank times a product of two matrices of rank columns."""

    rank: int
    alpha: float


def wrap(model: PreTrainedModel, settings: Settings) -> PeftModel:
    """Adds a float32 adapter to all linear layers but the head, in place, and freezes the rest."""
    config = LoraConfig(task_type=TaskType.CAUSAL_LM, r=settings.rank, lora_alpha=settings.alpha,
                        lora_dropout=0.0, target_modules="all-linear")
    return get_peft_model(model, config)


def is_adapter(name: str) -> bool:
    """Whether a parameter of a wrapped model belongs to its adapter."""
    return ".lora_A." in name or ".lora_B." in name


def plain_name(name: str) -> str:
    """The name that a parameter has without an adapter around its layer."""
    return name.replace(".base_layer.", ".")


@contextmanager
def disabled(model: nn.Module) -> Iterator[None]:
    """Has adapted layers compute their frozen weights alone, and leaves requires_grad unchanged."""
    layers = [m for m in model.modules() if isinstance(m, BaseTunerLayer)]
    for layer in layers:
        layer._disable_adapters = True
    try:
        yield
    finally:
        for layer in layers:
            layer._disable_adapters = False
