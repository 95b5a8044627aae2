"""A rank that runs out of memory names the micro-batches that it holds."""

import numpy as np
import pytest
import torch

import families
from easyrl_torch import worker
from test_faults import started
from test_worker import layouts
from trainer import arrays

SMALL, LARGE = layouts(1)[1], layouts(1)[0]  # of 10 and 17 rows


def full():
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def full_forward():
    """Runs out of memory in forward passes of more than 10 rows."""
    from easyrl_torch.policy import Policy

    packed = Policy._packed
    Policy._packed = lambda self, layout: full() if len(layout) == len(LARGE) else packed(self, layout)


def full_backward():
    """Runs out of memory in backward passes of more than 10 rows."""
    from easyrl_torch.policy import Policy

    packed = Policy._packed

    def planted(self, layout):
        hidden = packed(self, layout)
        if len(layout) == len(LARGE):
            hidden.register_hook(lambda gradient: full())
        return hidden
    Policy._packed = planted


def failed(trainer, rank=0):
    """Returns the fields of the message with which a rank fails."""
    while True:
        message = trainer.ranks[rank].receive()
        assert message is not None, trainer.errors.read_text()
        if message.kind == "failed":
            return message.fields


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return families.make("llama", tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("mode, dp", [("free", 1), ("lockstep", 2)])
def test_forward(mode, dp, model, tmp_path):
    with started(tmp_path, model, prepare=full_forward, mode=mode, dp=dp) as trainer:
        trainer.welcome()
        for rank in range(dp):
            trainer.order("forward", arrays(SMALL), [rank], id=3)
        for rank in range(dp):
            trainer.logprobs(rank, 3)
        for rank in range(dp):
            trainer.order("forward", arrays(LARGE), [rank], id=5)
        fields = failed(trainer)
        assert fields["error"] == "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
        assert fields["out_of_memory"] == [3, 5]


def test_backward(model, tmp_path):
    with started(tmp_path, model, prepare=full_backward) as trainer:
        trainer.welcome()
        trainer.forward(0, 3, SMALL)
        values = trainer.forward(0, 5, LARGE)["policy"]
        trainer.order("backward", {"gradient": np.ones_like(values)}, id=5)
        assert failed(trainer)["out_of_memory"] == [3, 5]
        assert trainer.exits() == [1]


def test_score(model, tmp_path):
    with started(tmp_path, model, prepare=full_forward) as trainer:
        trainer.welcome()
        trainer.forward(0, 3, SMALL)
        trainer.order("score", arrays(LARGE), id=7, model="", temperature=1.0)
        assert failed(trainer)["out_of_memory"] == [3, 7]
        assert trainer.exits() == [1]


def test_another_failure_names_none(model, tmp_path):
    with started(tmp_path, model) as trainer:
        trainer.welcome()
        trainer.order("backward", {"gradient": np.ones(1, np.float32)}, id=5)
        assert failed(trainer).keys() == {"error"}


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error, expected", [
    (torch.OutOfMemoryError("CUDA out of memory."), True),
    (MemoryError(), True),
    (RuntimeError("NPU out of memory. Tried to allocate 20.00 MiB"), True),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory"), True),
    (caused(RuntimeError("backend='inductor' raised"), torch.OutOfMemoryError("CUDA out of memory.")), True),
    (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
    (ValueError("prompt: what is out of memory?"), False),
    (ConnectionError("the trainer closed the connection"), False),
])
def test_knows_a_lack_of_memory(error, expected):
    assert worker.out_of_memory(error) is expected
