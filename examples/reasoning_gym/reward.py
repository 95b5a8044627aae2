"""Scores responses with the environments of reasoning-gym: a program for reward kind "command"."""
import functools, json, math, re, sys
import guard, reasoning_gym
LONGEST, reported = 8192, set()  # characters of an answer; kinds of exceptions on standard error
@functools.cache
def environment(name):
    data = reasoning_gym.create_dataset(name, size=1, seed=0)
    return data.score_answer(answer=data[0]["answer"], entry=data[0]), data  # imports what scoring needs, unguarded
def score(name, entry, response):  # of the text in the last <answer>…</answer>, else of the last line
    data, marked = environment(name)[1], re.findall(r"<answer>((?:(?!<answer>).)*?)</answer>", response, re.S)
    answer = (marked or response.strip().splitlines() or [""])[-1].strip()
    try:
        if len(answer) > LONGEST: raise ValueError(f"the answer has {len(answer)} characters, expected at most {LONGEST}")
        with guard.limits(): value = float(data.score_answer(answer=answer, entry=entry))
        if not math.isfinite(value): raise ValueError(f"score {value}")
        return min(max(value, 0.0), 1.0)
    except Exception as e:
        if (kind := (name, type(e))) not in reported: print(f"{name}: {type(e).__name__}: {e}; the answer scores 0", file=sys.stderr)
        return reported.add(kind) or 0.0
if __name__ == "__main__":
    replies, sys.stdout = sys.stdout, sys.stderr  # some environments print
    for asked in map(json.loads, sys.stdin.buffer):
        try: reply = {"score": score(asked["source"], asked["answer"], asked["response"])}
        except Exception as e: reply = {"error": f"{type(e).__name__}: {e}"}  # not the response's fault
        print(json.dumps({"id": asked["id"], **reply}), file=replies, flush=True)
