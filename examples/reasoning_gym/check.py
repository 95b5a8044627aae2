"""Lists the environments of reasoning-gym that grade safely, and on standard error why others are refused.

    examples/reasoning_gym/venv/bin/python examples/reasoning_gym/check.py [ENVIRONMENT …]
"""
import contextlib
import io
import json
import sys

import guard
import reasoning_gym
import reward
from reasoning_gym.factory import DATASETS

SIZE = 5  # entries to check
PARTIAL = 0.3  # credit for a wrong answer


def portable(name, entry):
    """Returns the entry as reward.py reads it. Raises ValueError if it is not JSON or its own answer scores less than 1."""
    try:
        read = json.loads(json.dumps(entry, allow_nan=False))
    except (TypeError, ValueError) as e:
        raise ValueError(f"its entries are not JSON: {e}") from None
    if not isinstance(entry["answer"], str):
        raise ValueError("its entries have no answer")
    before, got = guard.refused, scored(name, read, read["answer"])
    if got < 1:
        raise ValueError("it runs answers as code" if guard.refused > before else f"its own answer scores {got:.2f}")
    return read


def scored(name, entry, answer):
    return reward.score(name, json.loads(json.dumps(entry)), f"<answer>{answer}</answer>")


def fault(name):
    """Returns why an environment is refused, or None."""
    try:
        data = reasoning_gym.create_dataset(name, size=SIZE, seed=0)
        entries = [data[i] for i in range(SIZE)]
    except Exception as e:
        return f"it does not build: {type(e).__name__}: {e}"
    try:
        entries = [portable(name, e) for e in entries]
    except ValueError as e:
        return str(e)
    swapped = []
    for own in entries:
        others = [e["answer"] for e in entries if e["answer"] != own["answer"]]
        swapped += [scored(name, own, other) for other in others]
        probes = {"no answer": "", "0": "0", "nan": "nan", "the question": own["question"]}
        if others:  # a scorer that searches for the right answer finds it in the list
            probes["a list of answers"] = ", ".join(SIZE * others + [own["answer"]])
            probes["lines of answers"] = "\n".join(SIZE * others + [own["answer"]])
        for what, text in probes.items():
            if text != own["answer"] and (got := scored(name, own, text)) > PARTIAL:
                return f"{what} scores {got:.2f}"
    if swapped and (got := sum(swapped) / len(swapped)) > PARTIAL:
        return f"the answers to other questions score {got:.2f} on average"
    return None


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(DATASETS):
        with contextlib.redirect_stdout(io.StringIO()):  # some environments print
            why = fault(name)
        if why:
            print(f"{name} is refused: {why}", file=sys.stderr)
        else:
            print(name)
