"""Runs clients that others wrote against easyrl serve and checks what they receive.

    python check.py URL MODEL_DIR [CLIENT …]
"""

import asyncio
import importlib.metadata
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROMPTS = ["914+807=", "1+1=", "250+250="]
TASKS, ANSWERS = 4, 2  # of verifiers, with each client
CHAT = [{"role": "user", "content": PROMPTS[0]}]


class Check:
    """Counts what holds and stops at the first that does not."""

    def __init__(self):
        self.count = 0

    def __call__(self, ok, what):
        if not ok:
            raise SystemExit(f"error: {what}")
        self.count += 1

    def equal(self, got, want, what):
        self(got == want, f"{what} is {got!r}, expected {want!r}")


def with_openai(url, name, model, check):
    """Completions and chats, whole and streamed, in batches, and refusals."""
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    check.equal([m.id for m in client.models.list()], [name], "model")
    ask = {"model": name, "max_tokens": 40, "seed": 7}
    whole = client.completions.create(prompt=PROMPTS, n=2, logprobs=2, **ask)
    check.equal(len(whole.choices), 2 * len(PROMPTS), "choices")
    for c in whole.choices:
        check.equal(len(c.logprobs.tokens), len(c.logprobs.token_logprobs), "log-probabilities")
    texts = [""] * len(whole.choices)
    for chunk in client.completions.create(prompt=PROMPTS, n=2, stream=True, **ask):
        for c in chunk.choices:
            texts[c.index] += c.text
    check.equal(texts, [c.text for c in whole.choices], "stream")

    echo = client.completions.create(prompt=PROMPTS, echo=True, logprobs=3, model=name, max_tokens=0)
    for c, prompt in zip(echo.choices, PROMPTS):
        check.equal(c.text, prompt, "echo")
        check.equal("".join(c.logprobs.tokens), prompt, "tokens of the echo")
        check.equal(c.logprobs.token_logprobs[0], None, "first log-probability")
        check(all(l < 0 for l in c.logprobs.token_logprobs[1:]), "log-probabilities of the prompt")
        check(all(len(top) in (3, 4) for top in c.logprobs.top_logprobs[1:]), "alternatives")
    cut = client.completions.create(prompt=PROMPTS[0], extra_body={"truncate_prompt_tokens": 3}, **ask)
    check.equal(cut.usage.prompt_tokens, 3, "tokens of a truncated prompt")

    answer = client.chat.completions.create(messages=CHAT, logprobs=True, top_logprobs=2, n=2, **ask)
    check.equal(len(answer.choices), 2, "chat choices")
    check.equal(sum(len(c.logprobs.content) for c in answer.choices), answer.usage.completion_tokens, "chat log-probabilities")
    text = ""
    for chunk in client.chat.completions.create(messages=CHAT, stream=True, stream_options={"include_usage": True}, **ask):
        text += "".join(c.delta.content or "" for c in chunk.choices if c.index == 0)
    check.equal(text, answer.choices[0].message.content, "chat stream")
    asynchronous = openai.AsyncOpenAI(base_url=url + "/v1", api_key="none")

    async def together():
        return await asyncio.gather(*(asynchronous.chat.completions.create(messages=CHAT, **ask) for _ in range(16)))

    check.equal({a.choices[0].message.content for a in asyncio.run(together())}, {text}, "concurrent answers with one seed")

    limit = client.models.list().data[0].max_model_len
    for refused, param, code in (
        ({"max_tokens": limit}, "max_tokens", "context_length_exceeded"),
        ({"extra_body": {"min_p": 2}}, "min_p", None),
        ({"presence_penalty": 1}, "presence_penalty", None),
        ({"extra_body": {"colour": "red"}}, "colour", None),
    ):
        try:
            client.completions.create(**{"prompt": PROMPTS[0], **ask, **refused})
            check(False, f"{refused} was accepted")
        except openai.BadRequestError as e:
            check.equal((e.param, e.code), (param, code), f"refusal of {refused}")


def with_litellm(url, name, model, check):
    """Completions, chats and streams, and the error that makes routers try another model."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.suppress_debug_info = True
    ask = {"api_base": url + "/v1", "api_key": "none", "seed": 7, "max_tokens": 40}
    for provider in ("openai", "hosted_vllm"):
        whole = litellm.completion(model=f"{provider}/{name}", messages=CHAT, **ask)
        text = whole.choices[0].message.content
        check(text, "no text")
        check(whole.usage.completion_tokens > 0, "no usage")
        chunks = litellm.completion(model=f"{provider}/{name}", messages=CHAT, stream=True, **ask)
        check.equal("".join(c.choices[0].delta.content or "" for c in chunks), text, "stream")
        try:
            litellm.completion(model=f"{provider}/{name}", messages=CHAT, **{**ask, "max_tokens": 100000})
            check(False, "a request beyond the context was accepted")
        except litellm.ContextWindowExceededError:
            check(True, "")
    for c in litellm.text_completion(model=f"text-completion-openai/{name}", prompt=PROMPTS, **ask).choices:
        check(c.text, "no text")


def with_lm_eval(url, name, model, check):
    """Log-likelihoods of local-completions, in batches and one by one, and generation."""
    import requests
    from lm_eval import simple_evaluate
    from lm_eval.api.instance import Instance
    from lm_eval.api.registry import get_model

    def client(**more):
        return get_model("local-completions")(base_url=url + "/v1/completions", model=name, tokenizer=str(model),
                                              tokenizer_backend="huggingface", max_length=256, **more)

    pairs = [(f"{a}+{b}=", f"<think>{s}" if odd else str(s)) for a in (12, 305, 750) for b in (9, 48, 187)
             for odd, s in ((0, a + b), (1, a + b), (0, a - b))]
    asked = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
    want = None
    for more in ({}, {"batch_size": 5}, {"batch_size": 4, "num_concurrent": 4}, {"tokenized_requests": False}):
        got = client(**more).loglikelihood(asked)
        check.equal(len(got), len(asked), "log-likelihoods")
        check(all(math.isfinite(l) and l < 0 for l, _ in got), "log-likelihoods")
        want = want or got
        check.equal(got, want, f"log-likelihoods with {more}")
    tokenizer = client().tokenizer
    for (context, answer), (likelihood, greedy) in zip(pairs, want):  # what sampling would record
        ids, more = tokenizer(context).input_ids, tokenizer(answer).input_ids
        body = {"token_ids": ids + more, "sampling_params": {"max_tokens": 1, "prompt_logprobs": 1}}
        entries = requests.post(url + "/inference/v1/generate", json=body, timeout=60).json()["prompt_logprobs"][len(ids):]
        check(abs(sum(e[str(t)]["logprob"] for e, t in zip(entries, more)) - likelihood) < 1e-5, "log-likelihood")
        check.equal(all(e[str(t)]["logprob"] == max(v["logprob"] for v in e.values()) for e, t in zip(entries, more)), greedy, "greedy")
    answers = client(batch_size=2).generate_until([Instance("generate_until", {}, (p, {"until": ["\n"], "max_gen_toks": 40}), 0) for p in PROMPTS])
    check.equal(len(answers), len(PROMPTS), "generated answers")

    with tempfile.TemporaryDirectory() as folder:
        sums = Path(folder, "sums.jsonl")
        rows = [{"question": f"{a}+{b}=", "choices": [str(a + b + d) for d in (0, 1, 10, 100)], "label": 0}
                for a in range(105, 905, 100) for b in range(111, 711, 150)]
        sums.write_text("".join(json.dumps(row) + "\n" for row in rows))
        Path(folder, "sums.yaml").write_text((HERE / "sums.yaml").read_text().replace("SUMS", str(sums)))
        from lm_eval.tasks import TaskManager

        results = simple_evaluate(model=client(batch_size=8), tasks=["sums"], task_manager=TaskManager(include_path=folder, include_defaults=False),
                                  bootstrap_iters=0)
        check.equal(len(results["samples"]["sums"]), len(rows), "samples")


def with_verifiers(url, name, model, check):
    """vf-eval with its plain client, which chats, and its train client, which sends token IDs."""
    vf_eval = Path(sys.executable).with_name("vf-eval")
    for kind in ("eval", "train"):
        with tempfile.TemporaryDirectory() as folder:
            command = [str(vf_eval), "sums", "-m", name, "-n", str(TASKS), "-r", str(ANSWERS), "-o", folder, "--run.name", kind, "--no-push", "--no-rich",
                       "--env.agent.harness.id", "null", "--env.agent.runtime.type", "subprocess", "--client.type", kind, "--client.base-url", url + "/v1", "--sampling.max-tokens", "48"]
            if kind == "train":
                command += ["--client.renderer-model-name", str(model)]
            env = {**os.environ, "PYTHONPATH": str(HERE), "PATH": f"{vf_eval.parent}:{os.environ['PATH']}"}
            ran = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=False)
            check(ran.returncode == 0, f"vf-eval with client {kind}: {ran.stderr[-2000:]}")
            episodes = [json.loads(line) for line in Path(folder, kind, "traces.jsonl").read_text().splitlines()]
            check.equal(len(episodes), TASKS * ANSWERS, f"episodes of client {kind}")
            for episode in episodes:
                check.equal(episode["errors"], [], f"errors of client {kind}")
                answer = episode["traces"][0]["nodes"][-1]
                check.equal(answer["message"]["role"], "assistant", "last role")
                if kind == "train":
                    check(answer["token_ids"], "no token ids")
                    check.equal(len(answer["logprobs"]), len(answer["token_ids"]), "log-probabilities")
                    check(all(l <= 0 for l in answer["logprobs"]), "log-probabilities")


CLIENTS = {"openai": with_openai, "litellm": with_litellm, "lm-eval": with_lm_eval, "verifiers": with_verifiers}


def main():
    url, model, names = sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3:] or list(CLIENTS)
    for name in names:
        check = Check()
        CLIENTS[name](url, model.name, model, check)
        print(f"{name} {importlib.metadata.version(name)}: {check.count} checks", flush=True)


if __name__ == "__main__":
    main()
