"""Makes testdata/: small random decoders and what PyTorch transformers computes with them.

    python3 -m venv v && v/bin/pip install torch transformers safetensors && v/bin/python make.py [CASE …]

Without cases, all are made anew. For each case a Hugging Face folder, and golden.json with token ids, the log-probability of each token but the first given
those before it, and stepped.safetensors: the weights after one step of torch.optim.AdamW on the mean of their negatives.
"""
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import (AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

LR, BETAS, EPS, DECAY = 1e-2, (0.9, 0.95), 1e-8, 0.1
BASE = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            vocab_size=37, max_position_embeddings=256, initializer_range=0.3, rms_norm_eps=1e-6,
            bos_token_id=None, eos_token_id=1, pad_token_id=None)


def rope(**kw):
    return dict(rope_parameters=dict(rope_theta=10000.0, **kw))


CASES = {
    "llama": (LlamaConfig, LlamaForCausalLM, dict(tie_word_embeddings=False, rms_norm_eps=1e-5)),
    "llama-mha-tied": (LlamaConfig, LlamaForCausalLM, dict(tie_word_embeddings=True, num_key_value_heads=4)),
    "llama-linear": (LlamaConfig, LlamaForCausalLM, dict(tie_word_embeddings=False, **rope(rope_type="linear", factor=3.0))),
    "llama-dynamic": (LlamaConfig, LlamaForCausalLM, dict(tie_word_embeddings=False, **rope(rope_type="dynamic", factor=2.0))),
    "llama-llama3": (LlamaConfig, LlamaForCausalLM, dict(tie_word_embeddings=True, head_dim=16, **rope(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64))),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, dict(tie_word_embeddings=True)),
    "qwen2-yarn": (Qwen2Config, Qwen2ForCausalLM, dict(tie_word_embeddings=False, **rope(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=64))),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, dict(tie_word_embeddings=True, head_dim=8)),
    "qwen3-yarn": (Qwen3Config, Qwen3ForCausalLM, dict(tie_word_embeddings=False, head_dim=10, **rope(
        rope_type="yarn", factor=2.5, original_max_position_embeddings=100, attention_factor=1.3))),
}

# Folders as others write them: what to save them with, and fields of config.json to set, or with None to take out. What
# transformers reads from such a folder is what is compared with.
SMALL = dict(hidden_size=16, intermediate_size=24)
WIDE = dict(hidden_size=32, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1)
FOLDERS = {
    "mistral": (MistralConfig, MistralForCausalLM, dict(sliding_window=None, **SMALL), {}, {}),
    "mistral-window": (MistralConfig, MistralForCausalLM, dict(sliding_window=256, head_dim=6, **SMALL), {}, {}),
    "qwen2-window-unused": (Qwen2Config, Qwen2ForCausalLM, SMALL, {},
                            dict(use_sliding_window=True, sliding_window=8, max_window_layers=2, layer_types=None)),
    "qwen2-window-off": (Qwen2Config, Qwen2ForCausalLM, SMALL, {},
                         dict(use_sliding_window=None, sliding_window=8, max_window_layers=0, layer_types=None)),
    "llama-old-yarn": (LlamaConfig, LlamaForCausalLM, WIDE, {}, dict(
        rope_parameters=None, rope_theta=500.0, head_dim=None, tie_word_embeddings=None, dtype=None, hidden_act=None,
        rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=128, mscale=0.7, mscale_all_dim=0.4,
                          beta_fast=8, beta_slow=0.5, truncate=False))),
    "qwen2-yarn-of-lengths": (Qwen2Config, Qwen2ForCausalLM, WIDE, {}, dict(
        rope_parameters=dict(rope_type="yarn", rope_theta=2000.0, factor="null", original_max_position_embeddings=32))),
    "qwen3-old-dynamic": (Qwen3Config, Qwen3ForCausalLM, dict(head_dim=128, num_hidden_layers=1, num_attention_heads=2,
                                                              num_key_value_heads=1, **SMALL), {}, dict(
        rope_parameters=None, rope_theta=3000.0, head_dim=None, layer_types=None,
        rope_scaling=dict(rope_type="dynamic", factor=4.0, original_max_position_embeddings=40))),
    "llama-old-mha": (LlamaConfig, LlamaForCausalLM, dict(num_key_value_heads=4, **SMALL), {}, dict(
        rope_parameters=None, num_key_value_heads=None, rope_scaling="null", rms_norm_eps=None)),
    "qwen2-bf16-shards": (Qwen2Config, Qwen2ForCausalLM, dict(tie_word_embeddings=True, **SMALL),
                          dict(dtype=torch.bfloat16, max_shard_size=4000), {}),
    "llama-f16": (LlamaConfig, LlamaForCausalLM, dict(tie_word_embeddings=False, **SMALL), dict(dtype=torch.float16), {}),
}


def scores(model, ids):
    logits = model(torch.tensor([ids])).logits[0].float()
    return torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def make(name, config_class, model_class, extra, out):
    torch.manual_seed(sum(map(ord, name)))
    config = config_class(**{**BASE, **extra})
    model = model_class(config).float().eval()
    with torch.no_grad():  # norms and biases that matter
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))
    model.save_pretrained(out, safe_serialization=True)
    finish(name, model, out)


def make_folder(name, config_class, model_class, extra, how, fields, out):
    torch.manual_seed(sum(map(ord, name)))
    model = model_class(config_class(**{**BASE, **extra})).float()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(0.2 * torch.randn_like(p))
    model.to(how.get("dtype", torch.float32)).save_pretrained(out, max_shard_size=how.get("max_shard_size", "5GB"))
    config = json.loads((out / "config.json").read_text())
    set_fields(config, fields)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    finish(name, AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval(), out)


def set_fields(config, fields):
    for key, value in fields.items():
        if value is None:
            config.pop(key, None)
        elif isinstance(value, dict):
            config[key] = {}
            set_fields(config[key], value)
        else:
            config[key] = None if value == "null" else value


def finish(name, model, out):
    """What the model of a folder computes."""
    (out / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(0, model.config.vocab_size, (150,)).tolist()
    logprobs = scores(model, ids)
    groups = [dict(params=[p for p in model.parameters() if p.dim() > 1], weight_decay=DECAY),
              dict(params=[p for p in model.parameters() if p.dim() == 1], weight_decay=0.0)]
    step = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS)
    (-logprobs.mean()).backward()
    step.step()
    stepped = {k: v.detach().contiguous() for k, v in model.named_parameters()}
    save_file(stepped, out / "stepped.safetensors")
    golden = dict(ids=ids, logprobs=[round(x, 7) for x in logprobs.tolist()], lr=LR, beta1=BETAS[0], beta2=BETAS[1], eps=EPS,
                  weight_decay=DECAY)
    (out / "golden.json").write_text(json.dumps(golden) + "\n")


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    root = pathlib.Path(__file__).parent / "testdata"
    wanted = sys.argv[1:] or [*CASES, *FOLDERS]
    for case in wanted:
        shutil.rmtree(root / case, ignore_errors=True)
        if case in CASES:
            make(case, *CASES[case], root / case)
        else:
            make_folder(case, *FOLDERS[case], root / case)
