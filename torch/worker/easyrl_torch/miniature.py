"""Small random models of the same architecture as a large one, to check code at little cost."""

from __future__ import annotations

import copy
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.core_model_loading import revert_weight_conversion

VOCABULARY = 512
WIDTHS = dict(hidden_size=256, intermediate_size=256, moe_intermediate_size=64, shared_expert_intermediate_size=64)
EXPERTS = 16
WINDOW = 16  # sliding window in positions, so that short sequences exceed it
GAIN = 1.5  # standard deviation of a matrix's outputs for inputs of 1; large enough for faults to show
SEED = 20


def write(config: PreTrainedConfig, folder: Path) -> None:
    """Writes a float32 model of config's architecture, with the same bits wherever it is called.

    Heads, head sizes, biases, caps and scalings are config's. Layers are the first that include each kind.
    Raises whatever transformers raises for a shape that it does not accept.
    """
    try:
        model = _build(shrink(config, WIDTHS))
    except Exception:  # the architecture ties widths to each other
        model = _build(shrink(config, {}))
    model.config.save_pretrained(folder)  # a model's own save_pretrained writes on one rank alone
    weights = {t.data_ptr(): name for name, t in reversed(model.state_dict().items())}  # tied ones once
    tensors = {name: model.state_dict()[name] for name in weights.values()}
    tensors = {name: t.contiguous() for name, t in revert_weight_conversion(model, tensors).items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def shrink(config: PreTrainedConfig, widths: dict[str, int]) -> PreTrainedConfig:
    """Returns a copy of a decoder's config with few layers, a small vocabulary and at most the given widths."""
    small = copy.deepcopy(config)
    layers = _covering(config)
    _lower(small, {**widths, "num_hidden_layers": layers, "vocab_size": VOCABULARY, "sliding_window": WINDOW})
    for name in ("layer_types", "mlp_layer_types", "no_rope_layers"):
        kinds = getattr(config, name, None)
        if isinstance(kinds, list) and name in vars(config):
            setattr(small, name, kinds[:layers])
    if widths and not getattr(config, "n_group", None):
        least = 2 * (getattr(config, "num_experts_per_tok", None) or 0)
        _lower(small, {name: max(EXPERTS, least) for name in EXPERT_COUNTS})
    for token, name in enumerate(("pad_token_id", "bos_token_id", "eos_token_id")):
        if getattr(small, name, None) is not None:
            setattr(small, name, token)
    return small


EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")


def experts(config: PreTrainedConfig) -> int:
    """The number of experts among which a layer chooses, or 0."""
    return max((getattr(config, name, None) or 0 for name in EXPERT_COUNTS), default=0)


def _covering(config: PreTrainedConfig) -> int:
    """The least number of layers, 2 or more, that has every kind of layer."""
    total, layers = config.num_hidden_layers, 2
    for name in ("layer_types", "mlp_layer_types", "no_rope_layers"):
        kinds = getattr(config, name, None)
        if isinstance(kinds, list) and kinds:
            layers = max(layers, *(kinds.index(kind) + 1 for kind in set(kinds)))
    layers = max(layers, getattr(config, "decoder_sparse_step", None) or 0,
                 (getattr(config, "first_k_dense_replace", None) or 0) + 1)
    return min(total, layers)


def _lower(config: PreTrainedConfig, limits: dict[str, int]) -> None:
    for name, limit in limits.items():
        value = getattr(config, name, None)
        if isinstance(value, int) and value > limit:
            setattr(config, name, limit)


def _build(config: PreTrainedConfig) -> nn.Module:
    with torch.device("cpu"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False)
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim < 2:
                parameter.add_(noise, alpha=0.1)
            else:
                parameter.copy_(noise * (GAIN / parameter.shape[-1] ** 0.5))
    return model
