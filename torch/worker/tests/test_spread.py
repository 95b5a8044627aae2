"""The self-check on real meshes of processes."""

import os
import traceback

import pytest
import torch

from easyrl_torch import selfcheck, tensor_parallel
from easyrl_torch.mesh import Mesh, Place
from easyrl_torch.policy import PACKED, SEPARATE, Policy
from easyrl_torch.shard import FREE, LOCKSTEP, Sharded
from easyrl_torch.spread import Spread
from families import make
from trainer import _ranks, free_port


def rank_main(environment, answers, dp, tp, mode, folder, family, fault):
    os.environ.update(environment)
    rank, world = int(environment["RANK"]), dp * tp
    mesh = Mesh(Place(rank, world, rank), torch.device("cpu"), dp, tp)
    if fault == "norms":
        split = tensor_parallel.split
        tensor_parallel.split = lambda model, mesh: split(model, mesh) and set()
    elif fault == "mask" and rank == world - 1:
        from test_selfcheck import plant_mask
        plant_mask(pytest.MonkeyPatch())
    elif fault in ("slow", "memory"):
        plant_slow(fault == "memory" and rank == world - 1)

    def build(path):
        return Spread(Sharded(Policy.from_folder(path), mesh, mode, torch.float32))
    try:
        subject = build(folder)
        result = selfcheck.settle(subject, build, mesh.all)
        answers.put((rank, subject.policy.mode, subject.policy.reason, result, subject.policy.slowdown))
    except Exception as error:
        traceback.print_exc()
        answers.put((rank, "", str(error), None, 0.0))
    mesh.close()


def plant_slow(full):
    """Has attention fall back. With full, the passes that time the fallback run out of memory."""
    from test_selfcheck import plant_flex
    patch = pytest.MonkeyPatch()
    plant_flex(patch, lambda rows: True)
    packed = Policy._packed

    def planted(self, layout):
        if full and len(layout) > 400:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return packed(self, layout)
    patch.setattr(Policy, "_packed", planted)


def settle(dp, tp, mode, folder, family, fault=""):
    """Returns mode, reason, result and slowdown of each rank, in order."""
    answers, port = _ranks.Queue(), free_port()
    environments = [dict(RANK=str(r), WORLD_SIZE=str(dp * tp), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                         OMP_NUM_THREADS="1") for r in range(dp * tp)]
    processes = [_ranks.Process(target=rank_main, args=(e, answers, dp, tp, mode, make(family, folder), family, fault),
                                daemon=True) for e in environments]
    for process in processes:
        process.start()
    try:
        return [answer[1:] for answer in sorted((answers.get(timeout=60) for _ in processes), key=lambda a: a[0])]
    finally:
        for process in processes:
            process.kill()


@pytest.mark.parametrize("dp, tp, mode, family", [
    (2, 1, FREE, "gemma2"), (2, 1, LOCKSTEP, "gpt_oss"), (1, 2, FREE, "qwen3"), (1, 2, FREE, "qwen3_moe"),
    (2, 2, LOCKSTEP, "qwen3")])
def test_passes(dp, tp, mode, family, tmp_path):
    for settled, reason, result, _ in settle(dp, tp, mode, tmp_path, family):
        assert (settled, reason) == (PACKED, "")
        assert result.logprob < 1e-5 and result.gradient < 1e-4


def test_finds_norms_without_all_reduce(tmp_path):
    for mode, reason, *_ in settle(1, 2, FREE, tmp_path, "qwen3", "norms"):
        assert mode == "" and "self-check: small random model: gradient of" in reason and "norm.weight" in reason


def test_one_rank_fails(tmp_path):
    reasons = settle(2, 1, LOCKSTEP, tmp_path, "llama", "mask")
    assert [mode for mode, *_ in reasons] == [SEPARATE, SEPARATE]
    assert all("differ" in reason or "another rank" in reason for _, reason, *_ in reasons), reasons


@pytest.mark.parametrize("dp, tp, mode", [(2, 1, FREE), (2, 1, LOCKSTEP), (1, 2, FREE)])
def test_times_a_fallback(dp, tp, mode, tmp_path):
    for settled, reason, result, slowdown in settle(dp, tp, mode, tmp_path, "llama", "slow"):
        assert settled == PACKED and reason.startswith("easyrl_flex: KernelError") and result.passed
        assert slowdown > 0


def test_one_rank_lacks_memory_to_time_a_fallback(tmp_path):
    for settled, reason, result, slowdown in settle(2, 1, FREE, tmp_path, "llama", "memory"):
        assert settled == PACKED and reason.startswith("easyrl_flex: KernelError") and result.passed
        assert slowdown == 0
