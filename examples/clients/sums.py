"""Three-digit addition as a taskset of verifiers."""

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.rsplit("</think>")[-1] == self.data.answer)


class SumConfig(vf.TasksetConfig):
    num_tasks: int = 8


class SumTaskset(vf.Taskset[SumTask, SumConfig]):
    def load(self) -> list[SumTask]:
        pairs = [(137 + 71 * i, 864 - 53 * i) for i in range(self.config.num_tasks)]
        return [SumTask(SumData(prompt=f"{a}+{b}=", answer=str(a + b)), self.config.task) for a, b in pairs]


__all__ = ["SumTaskset"]
