"""Compares log-likelihoods from easyrl serve with those of transformers, in float32.

    python reference.py URL MODEL_DIR
"""

import json
import sys
import urllib.request
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TEXTS = ["914+807=<think>4+7+0=11;1+0+1=2;9+8+0=17</think>1721", "1+1=2", "250+250=500", "12-9*3;(4,5)?\n"]


def main():
    url, model = sys.argv[1], Path(sys.argv[2]).resolve()
    tokenizer = AutoTokenizer.from_pretrained(model)
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    ask = {"model": model.name, "prompt": [tokenizer(t).input_ids for t in TEXTS], "echo": True, "max_tokens": 0, "logprobs": 1}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(ask).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        choices = json.load(answer)["choices"]
    largest, tokens, greedy = 0.0, 0, 0
    for ids, choice in zip(ask["prompt"], choices):
        with torch.no_grad():
            want = net(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
        for row, token, got, top in zip(want, ids[1:], choice["logprobs"]["token_logprobs"][1:], choice["logprobs"]["top_logprobs"][1:]):
            largest = max(largest, abs(float(row[token]) - got))
            greedy += (int(row.argmax()) == token) == (got == max(top.values()))
            tokens += 1
    print(f"{tokens} tokens: largest difference {largest:.1e}, {greedy} agree on being the likeliest")
    if largest > 1e-4 or greedy < tokens:
        raise SystemExit("error: the log-probabilities differ, expected at most 1e-4 and the same likeliest tokens")


if __name__ == "__main__":
    main()
