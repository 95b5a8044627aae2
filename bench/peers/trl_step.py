"""Times a GRPO step in TRL for `go run ./bench`.

    python trl_step.py quickstart|long THREADS STEPS

The script trains with TRL's GRPOTrainer, groups of 8, one update per batch, no reference
model: the final model of runs/quickstart/sft on the quickstart's prompts, 32 per step,
at most 48 new tokens; or a random model of 25 M parameters on 2 random prompts of 448
tokens per step, 96 new tokens. It prints the seconds of each step after the first.
"""
import json
import random
import sys
import tempfile
import time

import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config, TrainerCallback

MODEL = "runs/quickstart/sft/checkpoints/step-000450"
DATA = "runs/quickstart/data/train.jsonl"


def reward(completions, answer, **_):
    def right(text, want):
        if text.startswith("<think>") and text.count("</think>") == 1:
            text = text.split("</think>")[1]
        return float(text == str(want))
    return [right(c, a) for c, a in zip(completions, answer)]


class Clock(TrainerCallback):
    def __init__(self):
        self.at = []

    def on_step_begin(self, *_args, **_kwargs):
        if not self.at:
            self.at.append(time.perf_counter())

    def on_step_end(self, *_args, **_kwargs):
        self.at.append(time.perf_counter())


def quickstart(steps):
    """Returns the quickstart's model, tokenizer, rows, reward, prompts per step and new tokens."""
    rows = [json.loads(line) for line in open(DATA)][:32 * (steps + 1)]
    rows = [{"prompt": r["prompt"], "answer": str(r["answer"])} for r in rows]
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=MODEL + "/tokenizer.json", eos_token="<eos>", pad_token="<pad>", padding_side="left")
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32), tokenizer, rows, reward, 32, 48


def long(steps):
    """Returns what quickstart returns, for the model of 25 M parameters."""
    letters = [chr(ord("一") + i) for i in range(4094)]
    vocab = {"<eos>": 0, "<pad>": 1} | {c: i + 2 for i, c in enumerate(letters)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocab, [])), eos_token="<eos>", pad_token="<pad>", padding_side="left")
    config = Qwen3Config(
        hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, head_dim=64,
        vocab_size=4096, max_position_embeddings=1024, rope_theta=1e4, tie_word_embeddings=True, eos_token_id=0, pad_token_id=1)
    rng = random.Random(1)
    rows = [{"prompt": "".join(rng.choices(letters, k=448)), "answer": ""} for _ in range(2 * (steps + 1))]

    def half(completions, **_):
        return [float(c[:1] < letters[2048]) for c in completions]
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32), tokenizer, rows, half, 2, 96


def main():
    kind, threads, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    model, tokenizer, rows, score, prompts, new = {"quickstart": quickstart, "long": long}[kind](steps)
    data = Dataset.from_list(rows)
    clock = Clock()
    with tempfile.TemporaryDirectory() as out:
        config = trl.GRPOConfig(
            output_dir=out, use_cpu=True, bf16=False, fp16=False, report_to="none", save_strategy="no", logging_steps=1000, disable_tqdm=True,
            per_device_train_batch_size=8 * prompts, num_generations=8, gradient_accumulation_steps=1, steps_per_generation=1,
            max_completion_length=new, temperature=1.0, max_steps=steps + 1, learning_rate=1.5e-4, adam_beta2=0.99, max_grad_norm=1.0,
            beta=0.0, gradient_checkpointing=False, optim="adamw_torch_fused", dataloader_num_workers=0)
        trainer = trl.GRPOTrainer(model=model, reward_funcs=score, args=config, train_dataset=data, processing_class=tokenizer, callbacks=[clock])
        trainer.train()
    seconds = [b - a for a, b in zip(clock.at, clock.at[1:])]
    print(json.dumps({"seconds": {"": seconds[1:]}, "version": f"trl {trl.__version__}, torch {torch.__version__}"}))


if __name__ == "__main__":
    main()
