"""Packed layouts against the models' own forward pass over separate sequences."""

import pytest
import torch
from transformers import PreTrainedModel

from easyrl_torch import policy as p
from families import FAMILIES, GROUPS, layout, make

# One tree above parts.SMALL_TREE rows, so that parts merge.
LARGE = [(120, -1)] + [(10 + 7 * i, 0) for i in range(6)] + [(13, 3), (15, 3)]


def run(policy, forest, mode, temperature=0.7):
    """Log-probabilities, entropies and gradients of a fixed sum."""
    policy.zero_grad()
    logprobs, entropies = policy(forest, temperature, mode)
    seeds = torch.linspace(-1, 1, len(logprobs)).sin()
    (logprobs * seeds).sum().backward()
    return logprobs.detach(), entropies, {n: g.grad.clone() for n, g in policy.named_parameters() if g.grad is not None}


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("forest", [GROUPS, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_equals_separate(family, forest, recompute, tmp_path):
    policy = p.Policy.from_folder(make(family, tmp_path), recompute=recompute)
    forest = layout(forest)
    want = run(policy, forest, p.STOCK)
    for mode in (p.SEPARATE, p.PACKED):
        got = run(policy, forest, mode)
        assert got[0].dtype == torch.float32
        assert (got[0] - want[0]).abs().max() < 1e-5 * max(1, want[0].abs().max())
        assert (got[1] - want[1]).abs().max() < 1e-4
        assert got[2].keys() == want[2].keys()
        for name, gradient in want[2].items():
            assert (got[2][name] - gradient).norm() <= 1e-5 * gradient.norm() + 1e-7, name


def test_recompute_under_its_older_name(monkeypatch, tmp_path):
    """transformers 5.17 has only gradient_checkpointing_enable."""
    monkeypatch.setattr(PreTrainedModel, "gradient_checkpointing_enable", PreTrainedModel._activation_checkpointing_enable)
    monkeypatch.delattr(PreTrainedModel, "activation_checkpointing_enable")
    policy = p.Policy.from_folder(make("llama", tmp_path), recompute=True)
    assert all(layer.gradient_checkpointing and layer.training for layer in policy.layers())
