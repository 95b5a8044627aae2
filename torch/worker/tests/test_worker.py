"""Ranks as processes: whatever the mesh and the mode, the same norms and weights."""

from functools import cache

import numpy as np
import pytest
from safetensors.torch import load_file

import families
from trainer import Trainer

GROUPS = [[(9, -1), (5, 0), (3, 0)], [(4, -1), (6, 0)], [(7, -1), (2, 0), (0, 0), (5, 1)], [(5, -1), (4, 0)], [(3, -1), (8, 0), (1, 0)]]
STEPS = 5


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return families.make("qwen3", tmp_path_factory.mktemp("model"))


@cache
def layouts(step):
    return [families.layout(group, seed=10 * step + i) for i, group in enumerate(GROUPS)]


def gradient(logprobs, step):
    """A gradient that depends on what the model computed and differs from target to target."""
    return ((np.arange(len(logprobs)) % 3 - 0.7) * np.exp(0.1 * logprobs) * (1 + step)).astype(np.float32)


def step_free(trainer, step, order):
    """Passes of one step; order lists (place, layout), two of a place in flight."""
    flight = []
    for number, (place, i) in enumerate(order):
        flight.append((place, number, trainer.forward(place, number, layouts(step)[i])["policy"]))
        if len(flight) == 2:
            place, number, values = flight.pop(1 if step % 2 else 0)
            trainer.backward(place, number, gradient(values, step))
    for place, number, values in flight:
        trainer.backward(place, number, gradient(values, step))
    return trainer.step(step)["norm"]


def run(trainer, steps, share):
    """Trains; share gives the place of each layout. Returns the norms."""
    return [step_free(trainer, step, [(share[i], i) for i in range(len(GROUPS))]) for step in steps]


def weights(trainer, folder):
    return load_file(trainer.write("weights", folder) / "model.safetensors")


def same(a, b, limit=1e-5):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].shape == b[name].shape
        assert (a[name] - b[name]).abs().max().item() <= limit, name


@pytest.fixture(scope="module")
def one(model, tmp_path_factory):
    """Norms and weights of one rank."""
    folder = tmp_path_factory.mktemp("one")
    with Trainer(folder, model) as trainer:
        return run(trainer, range(1, STEPS + 1), [0] * 5), weights(trainer, folder / "weights")


def test_one_rank_trains(one, model):
    norms, after = one
    assert all(np.isfinite(norms)) and len(set(norms)) == STEPS
    before = load_file(model / "model.safetensors")
    assert before.keys() == after.keys() and any((before[n] != after[n]).any() for n in before)


@pytest.mark.parametrize("dp, tp, share", [(2, 1, [0, 0, 1, 0, 0]), (2, 1, [0, 0, 0, 0, 0]), (4, 1, [0, 3, 1, 3, 0]), (1, 2, [0] * 5), (2, 2, [0, 1, 1, 0, 1])])
def test_free(dp, tp, share, one, model, tmp_path):
    with Trainer(tmp_path, model, dp=dp, tp=tp) as trainer:
        assert {ready.fields["mode"] for ready in trainer.ready} == {"free"}
        norms = run(trainer, range(1, STEPS + 1), share)
        got = weights(trainer, tmp_path / "weights")
    np.testing.assert_allclose(norms, one[0], rtol=1e-5)
    same(got, one[1])
