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
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    tied = head is not None and head.weight is embedding.weight
    if tied:
        head.weight = nn.Parameter(embedding.weight.detach())  # the plan names both
    apply_tensor_parallelism(model, mesh, {name: style for name, style in plan.items() if name not in partial})
    if tied:
        _tie(head, embedding)
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


def _tie(head: nn.Module, embedding: nn.Module) -> None:
    ways = [getattr(module.weight, "placements", None) for module in (head, embedding)]
    if ways[0] != ways[1]:
        raise ValueError(f"tensor parallelism splits the tied head by {ways[0]}, expected {ways[1]} as the embedding")
    head.weight = embedding.weight
