"""Ranks as processes: whatever the mesh and the mode, the same norms and weights."""

from functools import cache

import numpy as np
import pytest
from safetensors.torch import load_file

import families
from trainer import Trainer, arrays

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


def step_lockstep(trainer, step, share):
    """One sequence for all replicas, two micro-batches in flight: F0 F1 B0 F2 B1 …; the others' are empty."""
    places, count = trainer.settings["dp"], len(GROUPS)
    rounds = max(share.count(place) for place in range(places)) + 1  # and one round that is empty everywhere
    own = [[i for i in range(count) if share[i] == place] + [None] * rounds for place in range(places)]
    values = {}

    def forward(number):
        for place in range(places):
            i = own[place][number]
            trainer.order("forward", arrays(None if i is None else layouts(step)[i]), trainer.replica(place), id=number)
        for place in range(places):
            values[place, number] = trainer.logprobs(place, number).get("policy")

    def backward(number):
        for place in range(places):
            logprobs = values[place, number]
            seed = None if logprobs is None else {"gradient": gradient(logprobs, step)}
            trainer.order("backward", seed, trainer.replica(place), id=number)
        for place in range(places):
            assert trainer.answer(place * trainer.tp, "passed").fields["id"] == number

    forward(0)
    for number in range(1, rounds):
        forward(number)
        backward(number - 1)
    backward(rounds - 1)
    return trainer.step(step)["norm"]


@pytest.mark.parametrize("dp, tp, share, recompute", [
    (2, 1, [0, 0, 1, 0, 0], True), (4, 1, [3, 3, 0, 1, 3], False), (2, 2, [1, 1, 0, 1, 1], True)])
def test_lockstep(dp, tp, share, recompute, one, model, tmp_path):
    with Trainer(tmp_path, model, dp=dp, tp=tp, mode="lockstep", recompute=recompute) as trainer:
        assert {ready.fields["mode"] for ready in trainer.ready} == {"lockstep"}
        norms = [step_lockstep(trainer, step, share) for step in range(1, STEPS + 1)]
        got = weights(trainer, tmp_path / "weights")
    np.testing.assert_allclose(norms, one[0], rtol=1e-5)
    same(got, one[1])


@pytest.mark.parametrize("shape", [dict(), dict(dp=2), dict(dp=2, mode="lockstep")])
def test_discarded_work_leaves_no_trace(shape, one, model, tmp_path):
    """One micro-batch has gradients, another only log-probabilities when all are forgotten."""
    with Trainer(tmp_path, model, **shape) as trainer:
        places = range(shape.get("dp", 1))
        for number in (1, 2):
            trainer.order("forward", arrays(layouts(2)[number]), id=number)
            for place in places:
                trainer.logprobs(place, number)
        trainer.order("backward", {"gradient": np.ones(len(layouts(2)[1].rows), np.float32)}, id=1)
        for place in places:
            trainer.answer(place, "passed")
        trainer.order("discard")
        share = [i % len(places) for i in range(5)]
        norm = step_lockstep(trainer, 1, share) if "mode" in shape else run(trainer, [1], share)[0]
    np.testing.assert_allclose(norm, one[0][0], rtol=1e-5)


def without_layouts():
    """Has layouts of shared prefixes fail the self-check."""
    from test_selfcheck import plant_mask

    plant_mask(pytest.MonkeyPatch())


@pytest.mark.parametrize("mode", ["free", "lockstep"])
def test_separate_sequences(mode, one, model, tmp_path):
    """Replicas that must pass sequences one by one, not equally many."""
    share = [0, 0, 1, 0, 0]
    with Trainer(tmp_path, model, prepare=without_layouts, dp=2, mode=mode, recompute=True) as trainer:
        assert not trainer.ready[0].fields["packed"] and "log-probabilities differ" in trainer.ready[0].fields["reason"]
        pass_step = step_lockstep if mode == "lockstep" else lambda t, step, share: run(t, [step], share)[0]
        norms = [pass_step(trainer, step, share) for step in range(1, STEPS + 1)]
        got = weights(trainer, tmp_path / "weights")
    np.testing.assert_allclose(norms, one[0], rtol=1e-5)
    same(got, one[1])


@pytest.mark.parametrize("family, dp, tp", [("qwen3_moe", 2, 2), ("gemma3", 2, 2), ("qwen2", 1, 2)])
def test_families(family, dp, tp, tmp_path):
    """Experts that are fused in memory, tied heads, biases."""
    model = families.make(family, tmp_path / "model")
    results = []
    for name, shape in [("one", {}), ("spread", dict(dp=dp, tp=tp))]:
        with Trainer(tmp_path, model, reference=str(model), **shape) as trainer:
            norms = run(trainer, (1, 2), [i % shape.get("dp", 1) for i in range(5)])
            results.append((norms, weights(trainer, tmp_path / name)))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)
    same(results[0][1], results[1][1])
    source = load_file(model / "model.safetensors")
    assert {n: t.shape for n, t in source.items()} == {n: t.shape for n, t in results[1][1].items()}
