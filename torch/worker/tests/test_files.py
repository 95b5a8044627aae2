"""Checkpoints, adapters and scores of ranks as processes."""

import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import families
from test_worker import gradient, layouts, run, same, weights
from trainer import Trainer, arrays

SHARE = [0, 1, 0, 1, 0]
LORA = dict(rank=4, alpha=8.0)
# Experts that are fused in memory, and a buffer that files hold although nothing trains it.
DEEPSEEK = ("deepseek_v3", dict(
    n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1, first_k_dense_replace=1, moe_intermediate_size=24,
    q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=16, n_shared_experts=1))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return families.make("qwen3", tmp_path_factory.mktemp("model"))


def share(trainer):
    return [place % trainer.settings["dp"] for place in SHARE]


@pytest.fixture(scope="module", params=["weights", "lora", "experts"])
def trained(request, model, tmp_path_factory):
    """A state that two ranks wrote after two steps, and the weights after four."""
    folder = tmp_path_factory.mktemp(request.param)
    settings = dict(lora=LORA) if request.param == "lora" else {}
    if request.param == "experts":
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(families.FAMILIES, "deepseek", DEEPSEEK)
            model = families.make("deepseek", folder / "model")
    with Trainer(folder, model, dp=2, **settings) as trainer:
        norms = run(trainer, (1, 2), share(trainer))
        state = trainer.write("state", folder / "state")
        norms += run(trainer, (3, 4), share(trainer))
        return model, settings, state, norms, weights(trainer, folder / "after")


@pytest.mark.parametrize("shape", [dict(), dict(dp=4), dict(dp=2, mode="lockstep"), dict(dp=2, tp=2)])
def test_another_number_of_ranks_continues(trained, shape, tmp_path):
    model, settings, state, norms, after = trained
    if state.parent.name.startswith(("lora", "experts")) and (shape == dict(dp=4) or "mode" in shape):
        pytest.skip("as with plain weights")
    if settings and "tp" in shape:
        pytest.skip("tensor parallelism does not split adapters")
    with Trainer(tmp_path, model, state=str(state), updates=2, **settings, **shape) as trainer:
        again = trainer.write("state", tmp_path / "again")
        same(load_file(again / "model.safetensors"), load_file(state / "model.safetensors"), 0)
        same(load_file(again / "trainer/optimizer.safetensors"), load_file(state / "trainer/optimizer.safetensors"), 0)
        if shape.get("mode") != "lockstep":
            np.testing.assert_allclose(run(trainer, (3, 4), share(trainer)), norms[2:], rtol=1e-5)
            same(weights(trainer, tmp_path / "after"), after)


def test_a_state_is_a_checkpoint(trained):
    model, settings, state, _, _ = trained
    source, got = load_file(model / "model.safetensors"), load_file(state / "model.safetensors")
    assert {n: t.shape for n, t in source.items()} == {n: t.shape for n, t in got.items()}
    moments = load_file(state / "trainer/optimizer.safetensors")
    assert all(t.dtype == torch.float32 for t in [*got.values(), *moments.values()])
    assert all((t >= 0).all() for n, t in moments.items() if n.startswith("second."))
    if not settings:
        trained = [name for name in source if not name.endswith("correction_bias")]
        assert moments.keys() == {f"{kind}.{name}" for name in trained for kind in ("first", "second")}
    assert not [path for path in state.rglob(".*")]


def test_merged_weights_are_those_of_peft(model, tmp_path):
    with Trainer(tmp_path, model, dp=2, lora=LORA, reference=str(model)) as trainer:
        layout = layouts(1)[0]
        first = trainer.forward(0, 1, layout)
        trainer.backward(0, 1, gradient(first["policy"], 1))
        np.testing.assert_array_equal(first["policy"], first["reference"])
        trainer.step(1, lr=0.1)
        adapter = trainer.write("adapter", tmp_path / "adapter")
        merged = trainer.write("weights", tmp_path / "merged")
        second = trainer.forward(0, 2, layout)
        trainer.order("discard")
        np.testing.assert_array_equal(second["reference"], first["policy"])
        assert abs(second["policy"] - first["policy"]).max() > 1e-3
        np.testing.assert_allclose(trainer.score(layout, merged), second["policy"], atol=1e-5)
        np.testing.assert_array_equal(trainer.score(layout), second["policy"])
        trainer.forward(0, 3, layout)
        trainer.backward(0, 3, gradient(second["policy"], 2))
        trainer.step(2, lr=0.1)
        third = trainer.score(layout)
        assert abs(third - second["policy"]).max() > 1e-3
        np.testing.assert_array_equal(trainer.score(layout, adapter), second["policy"])
        np.testing.assert_array_equal(trainer.score(layout), third)
    base = AutoModelForCausalLM.from_pretrained(model)
    expected = peft.PeftModel.from_pretrained(base, adapter).merge_and_unload().state_dict()
    got = load_file(merged / "model.safetensors")
    same(got, {name: expected[name] for name in got}, 1e-6)


@pytest.mark.parametrize("shape", [dict(), dict(dp=2), dict(dp=2, mode="lockstep"), dict(tp=2), dict(dp=2, lora=LORA)])
def test_scores(shape, model, tmp_path):
    """Other weights are scored, and the policy's own come back bit for bit."""
    other = families.make("qwen3", tmp_path / "other", initializer_range=0.2)
    layout = layouts(3)[2]
    with Trainer(tmp_path, model, **shape) as trainer:
        before = weights(trainer, tmp_path / "before")
        own = trainer.score(layout)
        theirs = trainer.score(layout, other)
        np.testing.assert_array_equal(trainer.score(layout), own)
        same(weights(trainer, tmp_path / "after"), before, 0)
        assert not np.allclose(trainer.score(layout, temperature=2.0), own)
    with Trainer(tmp_path, other) as trainer:
        np.testing.assert_allclose(theirs, trainer.score(layout), atol=1e-5)
    assert abs(own - theirs).max() > 0.1


@pytest.mark.parametrize("shape", [dict(), dict(dp=2), dict(dp=2, mode="lockstep"), dict(dp=2, lora=LORA)])
def test_bfloat16(shape, model, tmp_path):
    """Weights stay float32 between updates, and are published as they compute."""
    layout = layouts(1)[0]
    with Trainer(tmp_path, model, dtype="bfloat16", **shape) as trainer:
        assert {ready.fields["dtype"] for ready in trainer.ready} == {"bfloat16"}
        for place in range(shape.get("dp", 1)):
            trainer.order("forward", None if place else arrays(layout), [place], id=1)
        values = [trainer.logprobs(place, 1) for place in range(shape.get("dp", 1))][0]["policy"]
        for place in range(shape.get("dp", 1)):
            trainer.order("backward", None if place else {"gradient": gradient(values, 1)}, [place], id=1)
        for place in range(shape.get("dp", 1)):
            trainer.answer(place, "passed")
        assert trainer.step(1, lr=1e-5)["norm"] > 0
        published = load_file(trainer.write("weights", tmp_path / "weights") / "model.safetensors")
        state = load_file(trainer.write("state", tmp_path / "state") / "model.safetensors")
    assert {t.dtype for t in published.values()} == {torch.bfloat16}
    assert {t.dtype for t in state.values()} == {torch.float32}
    assert all((t.bfloat16() == published[n]).all() for n, t in state.items())
    if "lora" not in shape:
        source = load_file(model / "model.safetensors")
        assert any((t != source[n]).any() and (published[n] == source[n].bfloat16()).any() for n, t in state.items())
