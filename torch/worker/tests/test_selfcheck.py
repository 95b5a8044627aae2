"""The self-check passes right code and finds planted faults."""

from pathlib import Path

import numpy as np
import pytest
import torch

from easyrl_torch import attention, flex, lora, selfcheck
from easyrl_torch.kernels import Scores
from easyrl_torch.layout import Layout
from easyrl_torch.policy import PACKED, SEPARATE, STOCK, Policy
from families import FAMILIES, make

alone = bool  # one rank agrees with itself


class KernelError(RuntimeError):
    """What a compiler raises."""


def plant_flex(monkeypatch, fails) -> list[int]:
    """Has the CPU use flex_attention, with a stand-in for the compiled one that has a backward pass.

    It raises where fails(rows) is true. Returns the list to which it adds the rows of its calls.
    """
    seen = []

    def dense(query, key, value, score_mod, block_mask, scale, enable_gqa, return_aux):
        seen.append(query.shape[2])
        if fails(query.shape[2]):
            raise KernelError("NoValidChoicesError: No choices to select.\nSet TORCHDYNAMO_VERBOSE=1 for more.")
        assert score_mod is None and return_aux is None
        index = torch.arange(query.shape[2])
        mask = block_mask.mask_mod(0, 0, index[:, None], index[None])
        mask = mask | ~mask.any(-1, keepdim=True)  # padding sees nothing
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=enable_gqa)
    monkeypatch.setattr(flex, "_compiled", lambda: dense)
    monkeypatch.setattr(selfcheck, "implementations", lambda device: [attention.FLEX, attention.SEGMENTS])
    return seen


def load(path: Path, **options) -> selfcheck.Subject:
    return selfcheck.Subject(Policy.from_folder(path, **options))


@pytest.mark.parametrize("family", FAMILIES)
def test_passes(family, tmp_path):
    subject = load(make(family, tmp_path))
    result = selfcheck.check(subject, load, alone)
    assert result.passed, result.reason
    assert result.logprob < 2e-6 and result.gradient < 2e-5
    assert all(p.grad is None for p in subject.policy.parameters())


@pytest.mark.parametrize("family, mode, reason", [
    ("nemotron", SEPARATE, "does not hand keywords to its attention"), ("bloom", SEPARATE, "log-probabilities differ"),
    ("llama4", SEPARATE, "layers of type chunked_attention")])
def test_falls_back(family, mode, reason, tmp_path):
    subject = load(make(family, tmp_path))
    assert selfcheck.settle(subject, load, alone).passed
    assert subject.policy.mode == mode and reason in subject.policy.reason


def flat(layout: Layout) -> Layout:
    """One segment whose rows see all earlier rows, at the positions of layout."""
    return Layout(layout.tokens, layout.positions, np.array([[0, len(layout), -1]]), layout.rows, layout.targets)


def plant_mask(monkeypatch):
    init = attention.Plan.__init__
    monkeypatch.setattr(attention.Plan, "__init__", lambda self, layout, device: init(self, flat(layout), device))


def plant_window(monkeypatch):
    parts = attention.Plan.parts
    monkeypatch.setattr(attention.Plan, "parts", lambda self, window: parts(self, window and window + 1))


def plant_positions(monkeypatch):
    packed = Policy._packed

    def shifted(self, layout):
        return packed(self, Layout(layout.tokens, np.arange(len(layout)), layout.segments, layout.rows, layout.targets))
    monkeypatch.setattr(Policy, "_packed", shifted)


def plant_softcap(monkeypatch):
    monkeypatch.setattr(attention, "Scores", lambda scale, softcap: Scores(scale, None))


def plant_scale(monkeypatch):
    monkeypatch.setattr(attention, "Scores", lambda scale, softcap: Scores(scale * 1.001, softcap))


@pytest.mark.parametrize("family, plant", [
    ("llama", plant_mask), ("mistral", plant_window), ("gemma3", plant_window), ("qwen3", plant_positions),
    ("gemma2", plant_softcap), ("qwen3_moe", plant_mask), ("gemma3", plant_scale)])
def test_finds_faults(family, plant, monkeypatch, tmp_path):
    subject = load(make(family, tmp_path))
    plant(monkeypatch)
    for result in (selfcheck.check(subject, load, alone), selfcheck.check_real(subject, PACKED)):
        assert "differ" in result.reason, result
    result = selfcheck.settle(subject, load, alone)
    assert result.passed and subject.policy.mode == SEPARATE and "differ" in subject.policy.reason


def test_finds_windows_beyond_the_check(monkeypatch, tmp_path):
    subject = load(make("mistral", tmp_path, sliding_window=400))
    plant_window(monkeypatch)
    assert selfcheck.check_real(subject, PACKED).passed
    assert "small random model: log-probabilities differ" in selfcheck.check(subject, load, alone).reason


@pytest.mark.parametrize("fault", ["a part of the norms' gradients", "a double gradient"])
def test_finds_wrong_shards(fault, tmp_path):
    """A plan without the norms' all-reduce leaves each rank a part of their gradients."""
    def sharded(path: Path) -> selfcheck.Subject:
        subject = load(path)
        for name, parameter in subject.policy.named_parameters():
            if "norm" in fault and name.endswith("q_norm.weight"):
                parameter.register_hook(lambda g: g * torch.linspace(0, 1, len(g)))
            elif "double" in fault and name.endswith("o_proj.weight"):
                parameter.register_hook(lambda g: 2 * g)
        return subject
    subject = load(make("qwen3", tmp_path))
    result = selfcheck.check(subject, sharded, alone)
    assert "gradient of model.model.layers" in result.reason
    with pytest.raises(RuntimeError, match="self-check: small random model: gradient"):
        selfcheck.settle(subject, sharded, alone)


def test_another_rank_decides(tmp_path):
    subject = load(make("llama", tmp_path))
    votes = iter([True, False, True, True, True])
    assert selfcheck.settle(subject, load, lambda passed: next(votes)).passed
    assert subject.policy.mode == SEPARATE
    assert subject.policy.reason == "easyrl_segments: the check failed on another rank"


def test_layouts_are_large_enough():
    """Both layouts have the rows from which on kernels are those of large layouts, and fill no block."""
    for segments in (selfcheck.SMALL, selfcheck.LARGE):
        rows = len(selfcheck.sample(segments, 64))
        assert rows >= 128 and rows % 2 == 1


def test_uses_the_kernel_of_training(monkeypatch, tmp_path):
    """A kernel for short layouts that does not compile is used neither in the check nor in training."""
    seen = plant_flex(monkeypatch, lambda rows: rows < 128)
    subject = load(make("llama", tmp_path))
    assert selfcheck.settle(subject, load, alone).passed
    policy = subject.policy
    assert (policy.attention, policy.mode, policy.reason, policy.slowdown) == (attention.FLEX, PACKED, "", 0.0)
    assert {131, 365} <= set(seen)
    for segments in ([(1, -1), (0, 0)], [(23, -1), (9, 0), (17, 0)], [(120, -1), (137, 0)]):
        policy(selfcheck.sample(segments, policy.vocabulary))[0].sum().backward()
    assert min(seen) >= 128


def test_keeps_why_attention_was_rejected(monkeypatch, tmp_path):
    plant_flex(monkeypatch, lambda rows: True)
    subject = load(make("llama", tmp_path))
    assert selfcheck.settle(subject, load, alone).passed
    policy = subject.policy
    assert (policy.attention, policy.mode) == (attention.SEGMENTS, PACKED)
    assert policy.reason == "easyrl_flex: KernelError: NoValidChoicesError: No choices to select."
    assert policy.slowdown > 0
    assert all(p.grad is None for p in policy.parameters())


@pytest.mark.parametrize("failing", ["_packed", "_separate"])
def test_a_cost_that_takes_too_much_memory_is_unknown(failing, monkeypatch, tmp_path):
    """The passes that time a fallback are larger than those of the check, and may be larger than training's."""
    plant_flex(monkeypatch, lambda rows: True)
    run = getattr(Policy, failing)

    def planted(self, layout, *args):
        if len(layout) > 400:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return run(self, layout, *args)
    monkeypatch.setattr(Policy, failing, planted)
    subject = load(make("llama", tmp_path))
    assert selfcheck.settle(subject, load, alone).passed
    policy = subject.policy
    assert (policy.attention, policy.mode, policy.slowdown) == (attention.SEGMENTS, PACKED, 0.0)
    assert policy.reason.startswith("easyrl_flex: KernelError")
    assert all(p.grad is None for p in policy.parameters())


def test_keeps_every_reason(monkeypatch, tmp_path):
    plant_flex(monkeypatch, lambda rows: True)
    plant_mask(monkeypatch)
    subject = load(make("llama", tmp_path))
    assert selfcheck.settle(subject, load, alone).passed
    first, second = subject.policy.reason.split("; ")
    assert first.startswith("easyrl_flex: KernelError") and second.startswith("easyrl_segments: small random model: log-prob")
    assert subject.policy.mode == SEPARATE and subject.policy.slowdown == 2.0, "four copies of a prompt of 256, 4 × 128"


def test_a_long_error_is_cut(monkeypatch, tmp_path):
    def fails(self, layout):
        raise KernelError("x" * 10_000)
    monkeypatch.setattr(Policy, "_packed", fails)
    assert len(selfcheck.check(load(make("llama", tmp_path)), load, alone).reason) == 300


@pytest.mark.parametrize("changes, reason", [
    (dict(rope_parameters=dict(rope_type="dynamic", rope_theta=1e4, factor=2.0)), "rope type dynamic"),
    (dict(layer_types=["chunked_attention", "full_attention"]), "layers of type chunked_attention")])
def test_unsupported(changes, reason, tmp_path):
    subject = load(make("qwen3", tmp_path))
    for name, value in changes.items():
        setattr(subject.policy.config, name, value)
    assert reason in selfcheck.check(subject, load, alone).reason


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3_moe"])
def test_bfloat16(family, monkeypatch, tmp_path):
    subject = load(make(family, tmp_path), dtype=torch.bfloat16)
    result = selfcheck.check(subject, load, alone)
    assert result.passed, result.reason
    plant_mask(monkeypatch)
    assert not selfcheck.check_real(subject, PACKED).passed


def test_adapter(monkeypatch, tmp_path):
    subject = load(make("qwen3", tmp_path), lora=lora.Settings(4, 8))
    assert selfcheck.check(subject, load, alone).passed
    plant_mask(monkeypatch)
    assert not selfcheck.check_real(subject, PACKED).passed


def test_stock_equals_itself(tmp_path):
    result = selfcheck.check(load(make("llama", tmp_path)), load, alone, STOCK)
    assert result.passed and result.logprob == 0 and result.gradient == 0
