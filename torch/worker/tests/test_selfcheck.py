"""The self-check passes right code and finds planted faults."""

from pathlib import Path

import numpy as np
import pytest
import torch

from easyrl_torch import attention, lora, selfcheck
from easyrl_torch.kernels import Scores
from easyrl_torch.layout import Layout
from easyrl_torch.policy import PACKED, SEPARATE, STOCK, Policy
from families import FAMILIES, make

alone = bool  # one rank agrees with itself


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
    assert subject.policy.mode == SEPARATE and subject.policy.reason == "the check failed on another rank"


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
