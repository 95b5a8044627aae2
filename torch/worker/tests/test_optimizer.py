"""AdamW against easyrl's formula, and what an update reports."""

import math

import numpy as np
import pytest
import torch

from easyrl_torch.optimizer import AdamW, Settings, Shard

SETTINGS = Settings(beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)


class Alone:
    """The mesh of one rank."""

    device = torch.device("cpu")

    def sum(self, values):
        return values


def shard(name, shape, seed, decays=True, owned=True):
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return Shard(name, weight, torch.zeros(shape), torch.zeros(shape), decays, owned)


def gradients(update):
    generator = torch.Generator().manual_seed(100 + update)
    return [torch.randn(shape, generator=generator) * 30 for shape in ((5, 7), (7,), (0, 7))]


def formula(w, m, v, g, update, lr, decay):
    """Loshchilov and Hutter 2019, algorithm 2, in float64."""
    m = SETTINGS.beta1 * m + (1 - SETTINGS.beta1) * g
    v = SETTINGS.beta2 * v + (1 - SETTINGS.beta2) * g * g
    step = m / (1 - SETTINGS.beta1**update) / (np.sqrt(v / (1 - SETTINGS.beta2**update)) + SETTINGS.eps)
    return w * (1 - lr * decay) - lr * step, m, v


@pytest.mark.parametrize("clip", [0.0, 1.0, 1e6])
def test_updates_follow_the_formula(clip):
    shards = [shard("matrix", (5, 7), 1), shard("norm", (7,), 2, decays=False), shard("empty", (0, 7), 3)]
    optimizer = AdamW(SETTINGS, Alone(), shards)
    expected = [(s.weight.double().numpy(), np.zeros(s.weight.shape), np.zeros(s.weight.shape)) for s in shards]
    for update in (1, 2, 7):
        scale, lr = 0.25, 1e-2 / update
        scaled = [scale * g.double().numpy() for g in gradients(update)]
        norm = math.sqrt(sum((g * g).sum() for g in scaled))
        factor = min(1, clip / norm) if clip else 1
        result = optimizer.step(gradients(update), update, scale, lr, clip)
        assert result.norm == pytest.approx(norm, rel=1e-6) and result.finite and result.weights_finite
        for i, (s, g) in enumerate(zip(shards, scaled)):
            expected[i] = formula(*expected[i], factor * g, update, lr, SETTINGS.weight_decay if s.decays else 0.0)
    for s, (w, m, v) in zip(shards, expected):
        np.testing.assert_allclose(s.weight, w, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(s.first, m, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(s.second, v, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_gradients_that_are_not_finite_change_nothing(value):
    shards = [shard("matrix", (5, 7), 1), shard("norm", (7,), 2, decays=False), shard("empty", (0, 7), 3)]
    optimizer = AdamW(SETTINGS, Alone(), shards)
    before = [s.weight.clone() for s in shards]
    wrong = gradients(1)
    wrong[1][3] = value
    result = optimizer.step(wrong, 1, 1.0, 0.1, 1.0)
    assert not result.finite and result.weights_finite and result.norm == 0
    assert all((s.weight == b).all() and not s.first.any() and not s.second.any() for s, b in zip(shards, before))


def test_weights_that_are_not_finite_are_reported():
    shards = [shard("matrix", (5, 7), 1), shard("norm", (7,), 2, decays=False), shard("empty", (0, 7), 3)]
    result = AdamW(SETTINGS, Alone(), shards).step(gradients(1), 1, 1.0, math.inf, 0.0)
    assert result.finite and not result.weights_finite


def test_copies_count_once_in_the_norm():
    shards = [shard("matrix", (5, 7), 1, owned=False), shard("norm", (7,), 2), shard("empty", (0, 7), 3)]
    result = AdamW(SETTINGS, Alone(), shards).step(gradients(1), 1, 1.0, 0.1, 0.0)
    assert result.norm == pytest.approx(gradients(1)[1].norm().item())


def test_no_gradients_decay_nothing_but_matrices():
    shards = [shard("matrix", (5, 7), 1), shard("norm", (7,), 2, decays=False), shard("empty", (0, 7), 3)]
    before = [s.weight.clone() for s in shards]
    result = AdamW(SETTINGS, Alone(), shards).step([torch.zeros_like(s.weight) for s in shards], 1, 1.0, 0.5, 1.0)
    assert result.norm == 0 and result.finite
    torch.testing.assert_close(shards[0].weight, before[0] * 0.95)
    assert (shards[1].weight == before[1]).all()
