"""Writes training and held-out prompts of reasoning-gym's environments as JSON lines with prompt, answer and source.

    examples/reasoning_gym/venv/bin/python examples/reasoning_gym/make_data.py --out runs/reasoning-gym/data countdown gcd spell_backward
"""
import argparse
import contextlib
import io
import json
import pathlib
import sys

import check
import reasoning_gym


def rows(name, size, seed):
    """Yields the rows of distinct questions. Reports entries whose own answer does not grade."""
    data = reasoning_gym.create_dataset(name, size=size, seed=seed)
    asked, repeated, faults = set(), 0, []
    for i in range(size):
        entry = data[i]
        if entry["question"] in asked:
            repeated += 1
            continue
        asked.add(entry["question"])
        try:
            yield {"prompt": entry["question"], "answer": check.portable(name, entry), "source": name}
        except ValueError as e:
            faults.append(str(e))
    if repeated or faults:
        print(f"{name}: dropped {repeated} repeated and {len(faults)} refused entries of {size}", *faults[:1], sep="; ", file=sys.stderr)


def main():
    flags = argparse.ArgumentParser(description="Writes prompts of reasoning-gym's environments as JSON lines.")
    flags.add_argument("environments", nargs="+", help="names; check.py lists them")
    flags.add_argument("--out", type=pathlib.Path, required=True, help="output folder for train.jsonl and test.jsonl")
    flags.add_argument("--train", type=int, default=1000, help="training prompts of each environment, fewer if questions repeat")
    flags.add_argument("--test", type=int, default=50, help="held-out prompts of each environment")
    flags.add_argument("--seed", type=int, default=1, help="random seed of the data")
    args = flags.parse_args()
    with contextlib.redirect_stdout(io.StringIO()):  # some environments print
        refused = [f"{name} is refused: {why}" for name in args.environments if (why := check.fault(name))]
        if refused:
            sys.exit("\n".join(refused))
        args.out.mkdir(parents=True, exist_ok=True)
        with open(args.out / "train.jsonl", "w", encoding="utf-8") as train, open(args.out / "test.jsonl", "w", encoding="utf-8") as test:
            for name in args.environments:
                # One data set for both: entry i of most environments is drawn with seed + i, so that neighboring seeds share entries.
                for i, row in enumerate(rows(name, args.train + args.test, args.seed)):
                    print(json.dumps(row), file=test if i < args.test else train)


if __name__ == "__main__":
    main()
