"""What the installed packages lack is named before a model loads."""

import sys

import pytest
import torch
from torch.distributed.fsdp import FSDPModule
from transformers import PreTrainedModel

import families
from easyrl_torch import installed
from test_faults import started

SETTINGS = dict(device="cpu", dp=2, tp=2, float32=False, recompute=True)


def test_nothing_lacks():
    installed.check(installed.needs(**SETTINGS))


@pytest.mark.parametrize("owner, names, text, without", [
    (PreTrainedModel, ["activation_checkpointing_enable", "gradient_checkpointing_enable"],
     "transformers.PreTrainedModel.activation_checkpointing_enable or "
     "transformers.PreTrainedModel.gradient_checkpointing_enable for train.recompute = true", dict(recompute=False)),
    (PreTrainedModel, ["_resolve_parallel_plans"],
     "transformers.PreTrainedModel._resolve_parallel_plans for parallel.tp = 2", dict(tp=1)),
    (FSDPModule, ["set_gradient_divide_factor"],
     "torch.distributed.fsdp.FSDPModule.set_gradient_divide_factor for sums over ranks", dict(dp=1, float32=True)),
])
def test_names_what_settings_need(owner, names, text, without, monkeypatch):
    for name in names:
        monkeypatch.delattr(next(base for base in owner.__mro__ if name in vars(base)), name)
    with pytest.raises(installed.Lacking) as raised:
        installed.check(installed.needs(**SETTINGS))
    line = str(raised.value)
    assert line.startswith(f"the installed packages lack {text}; installed are torch {torch.__version__}, transformers 5.")
    assert line.endswith("expected the versions in torch/worker/requirements.txt") and "\n" not in line
    installed.check(installed.needs(**{**SETTINGS, **without}))


def test_one_of_two_names_serves(monkeypatch):
    monkeypatch.delattr(PreTrainedModel, "activation_checkpointing_enable")
    installed.check(installed.needs(**SETTINGS))


def test_names_everything_at_once():
    with pytest.raises(installed.Lacking, match="lack torch.no.name for a, and transformers.X.y or os.path.z for b; "):
        installed.check([installed.Need("a", ("torch.no.name",)), installed.Need("b", ("transformers.X.y", "os.path.z")),
                         installed.Need("c", ("os.path.join",))])


def without_recompute():
    del PreTrainedModel.activation_checkpointing_enable
    del PreTrainedModel.gradient_checkpointing_enable


def without_flex():
    """As a torch that has flex_attention without all its names."""
    from torch.nn.attention import flex_attention

    import easyrl_torch

    del flex_attention.AuxRequest
    for name in [name for name in sys.modules if name.startswith("easyrl_torch.") and name != "easyrl_torch.worker"]:
        vars(easyrl_torch).pop(name.removeprefix("easyrl_torch."), None)
        del sys.modules[name]


@pytest.mark.parametrize("prepare, text", [
    (without_recompute, "the installed packages lack transformers.PreTrainedModel.activation_checkpointing_enable or "),
    (without_flex, "cannot import name 'AuxRequest' from 'torch.nn.attention.flex_attention'"),
])
def test_a_rank_says_it_before_it_loads(prepare, text, tmp_path):
    """The model's folder does not exist, which loading would find."""
    with started(tmp_path, tmp_path / "nowhere", prepare=prepare, recompute=True) as trainer:
        trainer.order("welcome", **trainer.settings)
        line = trainer.failure(0)
        assert line.startswith(text) and f"installed are torch {torch.__version__}, transformers " in line
        assert trainer.exits() == [1]


def test_other_settings_do_not_need_it(tmp_path):
    with started(tmp_path, families.make("llama", tmp_path / "model"), prepare=without_recompute) as trainer:
        trainer.welcome()
