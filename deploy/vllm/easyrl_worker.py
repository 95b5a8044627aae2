"""Loads weights from a folder into vLLM's workers, called through /collective_rpc.

    VLLM_SERVER_DEV_MODE=1 PYTHONPATH=deploy/vllm \
        vllm serve MODEL --worker-extension-cls easyrl_worker.EasyRL --logprobs-mode processed_logprobs

A label names the weights that a worker holds. It is empty during an update and in a
process that has had none, so that a worker never claims weights that it may not have.
"""

import inspect
import logging
import os


class EasyRL:
    """Methods that vLLM adds to its worker class."""

    def easyrl_load(self, folder: str, label: str) -> str:
        """Loads folder/model.safetensors and returns the label.

        It returns a failure as text, since vLLM answers an exception with a bare
        status 500. Each of several workers reads the whole file and keeps its shard.
        """
        self._easyrl_label = ""
        try:
            _load(self, os.path.join(folder, "model.safetensors"))
        except Exception as e:
            logging.getLogger("vllm.easyrl").exception("load %s", folder)
            return f"{type(e).__name__}: {e}"
        self._easyrl_label = label
        return label

    def easyrl_held(self) -> str:
        """Returns the label of the weights that this worker serves."""
        return getattr(self, "_easyrl_label", "")


def _load(worker, path: str) -> None:
    import torch
    from vllm.config import set_current_vllm_config

    runner, config = worker.model_runner, worker.vllm_config
    model = runner.get_model()
    parameters = {name.replace(".base_layer.", ".") for name, _ in model.named_parameters()}
    reload = getattr(runner, "reload_weights", None)
    with set_current_vllm_config(config):
        # Pass tensors, not a path: the path would stay in the model's configuration and
        # depend on the load format that the server was started with.
        if reload and _takes_tensors(reload):
            loaded = _reload(reload, model, path)
        elif config.model_config.quantization is None:
            with torch.inference_mode():
                loaded = model.load_weights(_tensors(path))
        else:
            raise ValueError("this vLLM cannot load new weights into a quantized model")
        _process_tied(model)
    if config.model_config.quantization is None:
        whole = getattr(config.parallel_config, "pipeline_parallel_size", 1) == 1
        _check(path, model, parameters, loaded, whole)
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _takes_tensors(reload) -> bool:
    """Reports whether vLLM's reload can be called with weights_iterator, by name or among any keywords."""
    try:
        inspect.signature(reload).bind(weights_iterator=None)
    except (TypeError, ValueError):
        return False
    return True


def _reload(reload, model, path: str):
    """Calls vLLM's reload and returns the names of the parameters that it loaded."""
    loaded = None
    load = model.load_weights

    def recorded(*args, **kwargs):
        nonlocal loaded
        loaded = load(*args, **kwargs)
        return loaded

    experts, packed = _packed_experts(model), set()
    for _, kernel in experts:
        kernel.process_weights_after_loading = _recorded(kernel, packed)
    model.load_weights = recorded
    try:
        reload(weights_iterator=_tensors(path))
    finally:
        del model.load_weights
        for _, kernel in experts:
            del kernel.process_weights_after_loading
    for layer, kernel in experts:
        if layer.quant_method.moe_kernel.fused_experts is kernel and kernel not in packed:
            kernel.process_weights_after_loading(layer)
    return loaded


def _packed_experts(model) -> list:
    """Returns the layers of experts on CPUs with their kernels, which pack weights.

    A kernel packs them after the first load. After a reload vLLM 0.32 does not call it, and
    it would read the new weights as if they were packed.
    """
    layers = []
    for layer in model.modules():
        kernel = getattr(getattr(layer, "quant_method", None), "moe_kernel", None)
        experts = getattr(kernel, "fused_experts", None)
        if not hasattr(experts, "process_weights_after_loading"):
            continue
        if all(p.device.type == "cpu" for p in layer.parameters(recurse=False)):
            layers.append((layer, experts))
    return layers


def _recorded(kernel, called: set):
    """Returns the kernel's process_weights_after_loading, which adds the kernel to called."""
    process = kernel.process_weights_after_loading

    def recorded(layer):
        called.add(kernel)
        process(layer)

    return recorded


def _process_tied(model) -> None:
    """Processes layers that use another layer's parameters, as after the first load.

    A reload has no tensor for such a layer and skips it. A head tied to the embedding
    would compute with the copy of the older weights that it packed for the CPU.
    """
    seen = set()
    for layer in model.modules():
        parameters = {id(p) for p in layer.parameters(recurse=False)}
        process = getattr(getattr(layer, "quant_method", None), "process_weights_after_loading", None)
        if process and parameters & seen:
            process(layer)
        seen |= parameters


def _check(path: str, model, parameters: set, loaded, whole: bool) -> None:
    """Raises an error unless the file and the parameters correspond and all were loaded.

    whole is False if other workers hold parts of the model.
    """
    from safetensors import safe_open

    with safe_open(path, framework="pt", device="cpu") as f:
        names = set(f.keys())
    experts = _experts(model)
    sources = {p: experts.get(p) or _sources(model, p) for p in parameters}
    lacking = set().union(*sources.values()) - names
    if lacking:
        raise ValueError(f"{path} lacks {len(lacking)} of the model's tensors, such as {min(lacking)}")
    loaded = parameters if loaded is None else set(loaded)  # not every model reports them
    ignored = {p for p in parameters if p not in loaded}
    if whole:
        ignored |= names.difference(loaded, *sources.values())
    if ignored:
        raise ValueError(f"vLLM did not load {len(ignored)} of the tensors in {path}, such as {min(ignored)}")


def _sources(model, parameter: str) -> set:
    """Returns the names of the tensors that vLLM stacks into a parameter."""
    for stack, parts in getattr(model, "packed_modules_mapping", {}).items():
        if f".{stack}." in parameter:
            return {parameter.replace(f".{stack}.", f".{part}.") for part in parts}
    return {parameter}


def _experts(model) -> dict:
    """Returns the names of the tensors that vLLM stacks into the parameters of experts."""
    sources = {}
    for name, module in model.named_modules():
        mapping = getattr(module, "get_expert_mapping", None)
        layer, found, _ = name.partition("experts")
        if not found or mapping is None:
            continue
        for stack, part, _, _ in mapping():
            stack = stack.removeprefix("experts.")
            for parameter, _ in module.named_parameters(recurse=False):
                if parameter.startswith(stack):
                    tensor = layer + part + parameter.removeprefix(stack)
                    sources.setdefault(f"{name}.{parameter}", set()).add(tensor)
    return sources


def _tensors(path: str):
    from safetensors import safe_open

    with safe_open(path, framework="pt", device="cpu") as f:
        for name in f.keys():
            yield name, f.get_tensor(name)
