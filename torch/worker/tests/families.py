"""Tiny random models of the families that the tests cover, and layouts for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from easyrl_torch.layout import Layout

VOCABULARY = 64
SHAPE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=512,
             tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
GEMMA = dict(query_pre_attn_scalar=8, sliding_window=12, layer_types=["sliding_attention", "full_attention"],
             tie_word_embeddings=True)
FAMILIES = {
    "llama": ("llama", {}),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True)),
    "qwen3": ("qwen3", {}),
    "mistral": ("mistral", dict(sliding_window=12)),
    "gemma2": ("gemma2", dict(GEMMA, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma3": ("gemma3_text", GEMMA),
    "qwen3_moe": ("qwen3_moe", dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                                    norm_topk_prob=True)),
    "gpt_oss": ("gpt_oss", dict(num_local_experts=4, num_experts_per_tok=2, sliding_window=12,
                                layer_types=["sliding_attention", "full_attention"],
                                rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    "deepseek_v3": ("deepseek_v3", dict(
        num_key_value_heads=4, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=12,
        n_routed_experts=8, n_group=2, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=24, first_k_dense_replace=1)),
    "cohere": ("cohere", dict(logit_scale=0.25, tie_word_embeddings=True)),
    "granite": ("granite", dict(logits_scaling=4.0, attention_multiplier=0.2, embedding_multiplier=3.0)),
}
OTHERS = {  # layouts cannot be packed, or not by their code
    "nemotron": ("nemotron", {}),
    "bloom": ("bloom", dict(n_head=4, n_layer=2)),
    "llama4": ("llama4_text", dict(num_local_experts=4, intermediate_size_mlp=48)),
}


def make(family: str, folder: Path, **changes) -> Path:
    """Writes a random model of a family to folder; large weights make its faults visible."""
    kind, own = {**FAMILIES, **OTHERS}[family]
    config = AutoConfig.for_model(kind, **{**SHAPE, **own, "initializer_range": 0.3, **changes})
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    return folder


def layout(segments: list[tuple[int, int]], seed: int = 0, vocabulary: int = VOCABULARY) -> Layout:
    """Random tokens in segments of (length, parent); each token but a root's first is a target."""
    rng = np.random.default_rng(seed)
    tokens, positions, spans, rows, targets = [], [], [], [], []
    ends, lasts = [], []
    for length, parent in segments:
        first, row = (ends[parent], lasts[parent]) if parent >= 0 else (0, -1)
        start, own = len(tokens), rng.integers(0, vocabulary, length + (parent >= 0))
        for i, token in enumerate(own):
            if row >= 0:
                rows.append(row)
                targets.append(token)
            if i < length:
                row = start + i
        tokens += own[:length].tolist()
        positions += range(first, first + length)
        spans.append((start, length, parent))
        ends.append(first + length)
        lasts.append(row)
    return Layout.build(tokens, positions, spans, rows, targets, vocabulary)


GROUPS = [(17, -1), (9, 0), (5, 0), (0, 0), (21, 0), (14, -1), (6, 5), (11, 6), (8, 6), (3, 5)]
