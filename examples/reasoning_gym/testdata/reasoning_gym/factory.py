"""Environments of a stand-in for reasoning-gym, which tests use without installing it. Each adds two numbers."""
import fractions


class Sums:
    def __init__(self, size, seed):
        self.size, self.seed = size, seed

    def __getitem__(self, i):
        a, b = 100 * (self.seed + 1) + i, 7
        return {"question": f"{a}+{b}=", "answer": str(a + b), "metadata": {"source_index": i, "sum": a + b}}

    def score_answer(self, answer, entry):
        assert isinstance(answer, str)
        return 1.0 if answer == entry["answer"] else 0.01


class Repeats(Sums):
    def __getitem__(self, i):
        return super().__getitem__(i // 2)


class Silent(Sums):
    def __getitem__(self, i):
        return super().__getitem__(i) | {"answer": None}


class Fractions(Sums):
    def __getitem__(self, i):
        return super().__getitem__(i) | {"metadata": {"sum": fractions.Fraction(1, 2)}}


class Tuples(Sums):
    def __getitem__(self, i):
        return super().__getitem__(i) | {"metadata": {"sum": (1, 2)}}

    def score_answer(self, answer, entry):
        return float(entry["metadata"]["sum"] == (1, 2))


class Rarely(Sums):
    """Refuses its own answer to the tenth question."""

    def score_answer(self, answer, entry):
        return 0.5 if entry["metadata"]["source_index"] == 9 else super().score_answer(answer, entry)


class Literals(Sums):
    """Also takes a list of digits, which it evaluates."""

    def score_answer(self, answer, entry):
        return super().score_answer(answer if answer.isdigit() else "".join(str(c) for c in eval(answer)), entry)


class Code(Sums):
    def score_answer(self, answer, entry):
        return float(eval(f"int({answer})") == entry["metadata"]["sum"])


class Truthy(Sums):
    def score_answer(self, answer, entry):
        return float(bool(answer))


class Empty(Sums):
    def score_answer(self, answer, entry):
        return 1.0 if answer == "" else super().score_answer(answer, entry)


class NaN(Sums):
    def score_answer(self, answer, entry):
        return min(1.0, float(answer)) if answer == "nan" else super().score_answer(answer, entry)  # 1


class Echo(Sums):
    def score_answer(self, answer, entry):
        return 1.0 if answer == entry["question"] else super().score_answer(answer, entry)


class Contains(Sums):
    def score_answer(self, answer, entry):
        return float(entry["answer"] in answer)


class Close(Sums):
    def score_answer(self, answer, entry):
        return 0.0 if not answer.isdigit() else max(0.0, 1 - abs(int(answer) - entry["metadata"]["sum"]) / 50)


class Wide(Sums):
    """Prints the answer and scores what it says."""

    def score_answer(self, answer, entry):
        print(answer)
        return 1.0 if answer == entry["answer"] else float(answer)


class Slow(Sums):
    def score_answer(self, answer, entry):
        while answer == "wait":
            pass
        return super().score_answer(answer, entry)


class Large(Sums):
    def score_answer(self, answer, entry):
        return float(len(bytearray(8 << 30))) if answer == "large" else super().score_answer(answer, entry)


DATASETS = {c.__name__.lower(): (c, None) for c in Sums.__subclasses__() + [Sums]}
