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

    runner = worker.model_runner
    reload = getattr(runner, "reload_weights", None)
    with set_current_vllm_config(worker.vllm_config):
        # Pass tensors, not a path: the path would stay in the model's configuration and
        # depend on the load format that the server was started with.
        if reload and "weights_iterator" in inspect.signature(reload).parameters:
            reload(weights_iterator=_tensors(path))
        else:
            _load_in_place(runner.get_model(), worker.vllm_config.model_config, path)
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _load_in_place(model, config, path: str) -> None:
    """For vLLM without reload_weights(weights_iterator): unquantized models only."""
    import torch

    if config.quantization is not None:
        raise ValueError("this vLLM cannot load new weights into a quantized model")
    with torch.inference_mode():
        loaded = model.load_weights(_tensors(path))
    if loaded is None:
        return  # the model does not report loaded names
    missing = {name for name, _ in model.named_parameters()} - set(loaded)
    if missing:
        raise ValueError(f"{path} lacks {len(missing)} of the model's tensors, such as {min(missing)}")


def _tensors(path: str):
    from safetensors import safe_open

    with safe_open(path, framework="pt", device="cpu") as f:
        for name in f.keys():
            yield name, f.get_tensor(name)
