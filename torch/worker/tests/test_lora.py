"""Adapters: what they train, and the policy without them."""

import pytest
import torch

from easyrl_torch.lora import Settings, is_adapter
from easyrl_torch.policy import PACKED, Policy
from families import GROUPS, layout, make


@pytest.fixture
def folder(tmp_path):
    return make("qwen3", tmp_path)


def adapted(folder, dtype=torch.float32, **options):
    policy = Policy.from_folder(folder, dtype, lora=Settings(4, 8.0), **options)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return policy


def test_reference_is_the_base(folder):
    policy, base, forest = adapted(folder), Policy.from_folder(folder), layout(GROUPS)
    flags = [p.requires_grad for p in policy.parameters()]
    with torch.no_grad():
        trained = policy(forest)[0]
        with policy.reference():
            assert torch.equal(policy(forest)[0], base(forest)[0])
        assert torch.equal(policy(forest)[0], trained)
    assert not torch.allclose(trained, base(forest)[0])
    assert flags == [p.requires_grad for p in policy.parameters()]
    with pytest.raises(RuntimeError, match="reference without an adapter"):
        base.reference()


@pytest.mark.parametrize("recompute", [False, True])
def test_trains_the_adapter_alone(folder, recompute):
    policy = adapted(folder, torch.bfloat16, recompute=recompute)
    policy(layout(GROUPS))[0].sum().backward()
    for name, parameter in policy.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad == is_adapter(name)
        assert parameter.dtype == (torch.float32 if is_adapter(name) else torch.bfloat16)
    adapters = [name for name, _ in policy.named_parameters() if is_adapter(name)]
    assert len(adapters) == 2 * 7 * 2  # matrices, linear layers of a decoder layer, layers
    assert not any("lm_head" in name for name in adapters)


def test_weights_keep_their_names(folder):
    names = dict(Policy.from_folder(folder).weights())
    assert names.keys() == dict(adapted(folder).weights()).keys()


def test_recompute_gives_the_same_gradients(folder):
    found = []
    for recompute in (False, True):
        torch.manual_seed(3)
        policy = adapted(folder, recompute=recompute)
        policy(layout(GROUPS), 1.0, PACKED)[0].sum().backward()
        found.append({n: p.grad for n, p in policy.named_parameters() if p.grad is not None})
    for name, gradient in found[0].items():
        assert torch.equal(gradient, found[1][name]), name
