"""Times one kind of work in PyTorch for `go run ./bench`.

    python torch_work.py KIND MODEL THREADS ITERATIONS

The script prints one JSON object with the seconds of each iteration after the
first. The decoder is optimized for CPUs: fused attention, RMS norm and AdamW, no
padding if sequences have equal lengths, logits of the response only.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

MODELS = {
    "0.8M": dict(hidden=128, layers=4, heads=4, kv=2, dim=32, ffn=384, vocab=53),
    "25M": dict(hidden=512, layers=8, heads=8, kv=4, dim=64, ffn=1536, vocab=4096),
}


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        h, d = c["hidden"], c["dim"]
        self.n1, self.n2 = nn.Parameter(torch.ones(h)), nn.Parameter(torch.ones(h))
        self.nq, self.nk = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))
        self.qkv = nn.Linear(h, (c["heads"] + 2 * c["kv"]) * d, bias=False)
        self.o = nn.Linear(c["heads"] * d, h, bias=False)
        self.gate_up = nn.Linear(h, 2 * c["ffn"], bias=False)
        self.down = nn.Linear(c["ffn"], h, bias=False)

    def forward(self, x, cos, sin, mask):
        c, (b, t, h) = self.c, x.shape
        d = c["dim"]
        y = F.rms_norm(x, (h,), self.n1, 1e-6)
        q, k, v = self.qkv(y).split([c["heads"] * d, c["kv"] * d, c["kv"] * d], -1)
        q = rope(F.rms_norm(q.view(b, t, -1, d), (d,), self.nq, 1e-6).transpose(1, 2), cos, sin)
        k = rope(F.rms_norm(k.view(b, t, -1, d), (d,), self.nk, 1e-6).transpose(1, 2), cos, sin)
        v = v.view(b, t, -1, d).transpose(1, 2)
        rep = c["heads"] // c["kv"]
        k, v = k.repeat_interleave(rep, 1), v.repeat_interleave(rep, 1)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, -1))
        g, u = self.gate_up(F.rms_norm(x, (h,), self.n2, 1e-6)).chunk(2, -1)
        return x + self.down(F.silu(g) * u)


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Decoder(nn.Module):
    def __init__(self, c, most=1024):
        super().__init__()
        self.embed = nn.Embedding(c["vocab"], c["hidden"])
        nn.init.normal_(self.embed.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = nn.Parameter(torch.ones(c["hidden"]))
        f = torch.arange(most)[:, None] * 1e4 ** (-torch.arange(0, c["dim"], 2) / c["dim"])[None]
        self.register_buffer("cos", torch.cat((f, f), -1).cos())
        self.register_buffer("sin", torch.cat((f, f), -1).sin())

    def forward(self, ids, first=0, mask=None):
        """Returns the logits of positions from first on."""
        x = self.embed(ids)
        t = ids.shape[1]
        for block in self.blocks:
            x = block(x, self.cos[:t], self.sin[:t], mask)
        x = F.rms_norm(x[:, first:], (x.shape[-1],), self.norm, 1e-6)
        return F.linear(x, self.embed.weight)


def logprobs(model, ids, first, mask=None):
    logits = model(ids[:, :-1], first, mask)
    return -F.cross_entropy(logits.flatten(0, 1), ids[:, first + 1:].flatten(), reduction="none").view(ids.shape[0], -1)


def train(model, c, batch, length):
    opt = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    ids = torch.randint(c["vocab"], (batch, length))

    def step():
        opt.zero_grad(set_to_none=True)
        (-logprobs(model, ids, 0).mean()).backward()
        opt.step()
    return step


# Lengths of the prompt and of a group's responses, in tokens.
PROMPT, RESPONSES = 448, [32, 41, 50, 59, 69, 78, 87, 96]


def grpo(model, c):
    """Returns a GRPO step on a padded group: policy, old policy and reference."""
    opt = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=True)
    others = [Decoder(c), Decoder(c)]
    most = max(RESPONSES)
    prompt = torch.randint(c["vocab"], (1, PROMPT)).expand(len(RESPONSES), -1)
    ids = torch.cat((prompt, torch.randint(c["vocab"], (len(RESPONSES), most))), 1)
    weight = (torch.arange(most)[None] < torch.tensor(RESPONSES)[:, None]).float()
    advantage = torch.randn(len(RESPONSES), 1)

    def step():
        with torch.no_grad():
            old, ref = (logprobs(o, ids, PROMPT - 1) for o in others)
        opt.zero_grad(set_to_none=True)
        logp = logprobs(model, ids, PROMPT - 1)
        ratio = (logp - old).exp()
        kl = (ref - logp).exp() - (ref - logp) - 1
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage) - 0.01 * kl
        (-(gain * weight).sum() / weight.sum()).backward()
        opt.step()
    return step


def generate(name, c):
    """Samples 8 responses of 64 tokens to each of 64 prompts of 16, at temperature 1."""
    from transformers import Qwen3Config, Qwen3ForCausalLM
    config = Qwen3Config(vocab_size=c["vocab"], hidden_size=c["hidden"], intermediate_size=c["ffn"], num_hidden_layers=c["layers"],
                         num_attention_heads=c["heads"], num_key_value_heads=c["kv"], head_dim=c["dim"], tie_word_embeddings=True,
                         eos_token_id=None, bos_token_id=None, pad_token_id=0, max_position_embeddings=1024)
    model = Qwen3ForCausalLM(config).eval()
    ids = torch.randint(c["vocab"], (64, 16))

    def step():
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                                 num_return_sequences=8, max_new_tokens=64, min_new_tokens=64, use_cache=True)
        assert out.shape == (512, 80), out.shape
    return step


def main():
    kind, name, threads, iterations = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    c = MODELS[name]
    if kind == "generate":
        step = generate(name, c)
    elif kind in ("grpo", "grpo-compiled"):
        step = grpo(compiled(Decoder(c), kind), c)
    else:
        batch, length = {"0.8M": (64, 64), "25M": (8, 512)}[name]
        step = train(compiled(Decoder(c), kind), c, batch, length)
    seconds = []
    for _ in range(iterations + 1):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    print(json.dumps({"seconds": {"": seconds[1:]}, "version": "torch " + torch.__version__}))


def compiled(model, kind):
    return torch.compile(model) if kind.endswith("-compiled") else model


if __name__ == "__main__":
    main()
