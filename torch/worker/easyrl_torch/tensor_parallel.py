"""Tensor parallelism by the plan that transformers has for a family."""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from transformers import PreTrainedModel
from transformers.distributed import DistributedConfig
from transformers.distributed.tensor_parallel import apply_tensor_parallelism

# The plan's style for weights that every rank has, and applies to its own heads alone: each
# rank then computes a part of their gradient.
_PARTIAL = "replicated_with_grad_allreduce"


def split(model: PreTrainedModel, mesh: DeviceMesh) -> set[nn.Parameter]:
    """Splits the model's weights over the mesh, in place.

    Returns the weights whose gradients are sums over the mesh. transformers would add them up
    after each backward pass, which counts earlier passes again while gradients accumulate; the
    caller does it once. Raises ValueError if the family has no plan or its sizes do not divide.
    """
    plan, _, _ = model._resolve_parallel_plans(DistributedConfig(tp_size=mesh.size()))
    _check(model, plan, mesh.size())
    partial = {name for name, style in plan.items() if style == _PARTIAL}
    tied = model.get_output_embeddings() is not None and (
        model.get_output_embeddings().weight is model.get_input_embeddings().weight)
    apply_tensor_parallelism(model, mesh, {name: style for name, style in plan.items() if name not in partial})
    if tied:
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
    return {
        parameter
        for name, module in model.named_modules() if name in partial
        for parameter in module.parameters(recurse=False)
    }


def _check(model: PreTrainedModel, plan: dict[str, str], size: int) -> None:
    config = model.config.get_text_config()
    split_heads = any(style.startswith("colwise") and name.endswith(("q_proj", "k_proj")) for name, style in plan.items())
    for field in ("num_attention_heads", "num_key_value_heads"):
        count = getattr(config, field, None)
        if split_heads and count is not None and count % size:
            raise ValueError(f"tp is {size}, expected a divisor of {field}, which is {count}")
