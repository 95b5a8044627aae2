"""Times the quickstart step in TRL for `go run ./bench`.

    python trl_step.py THREADS STEPS

The script trains the final model of runs/quickstart/sft with TRL's GRPOTrainer: the
quickstart's prompts, 32 per step, groups of 8, at most 48 new tokens, one update per
batch, no reference model. It prints the seconds of each step after the first.
"""
import json
import sys
import tempfile
import time

import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback

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


def main():
    threads, steps = int(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    rows = [json.loads(line) for line in open(DATA)][:32 * (steps + 1)]
    data = Dataset.from_list([{"prompt": r["prompt"], "answer": str(r["answer"])} for r in rows])
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=MODEL + "/tokenizer.json", eos_token="<eos>", pad_token="<pad>", padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    clock = Clock()
    with tempfile.TemporaryDirectory() as out:
        config = trl.GRPOConfig(
            output_dir=out, use_cpu=True, bf16=False, fp16=False, report_to="none", save_strategy="no", logging_steps=1000, disable_tqdm=True,
            per_device_train_batch_size=256, num_generations=8, gradient_accumulation_steps=1, steps_per_generation=1,
            max_completion_length=48, temperature=1.0, max_steps=steps + 1, learning_rate=1.5e-4, adam_beta2=0.99, max_grad_norm=1.0,
            beta=0.0, gradient_checkpointing=False, optim="adamw_torch_fused", dataloader_num_workers=0)
        trainer = trl.GRPOTrainer(model=model, reward_funcs=reward, args=config, train_dataset=data, processing_class=tokenizer, callbacks=[clock])
        trainer.train()
    seconds = [b - a for a, b in zip(clock.at, clock.at[1:])]
    print(json.dumps({"seconds": {"": seconds[1:]}, "version": f"trl {trl.__version__}, torch {torch.__version__}"}))


if __name__ == "__main__":
    main()
