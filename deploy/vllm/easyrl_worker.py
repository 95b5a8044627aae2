"""Weights from a folder for vLLM's workers, called through /collective_rpc.

    VLLM_SERVER_DEV_MODE=1 PYTHONPATH=deploy/vllm \
        vllm serve MODEL --worker-extension-cls easyrl_worker.EasyRL --logprobs-mode processed_logprobs

A label names the weights that a worker holds. It is empty from the start of an
update to its end and in a process that has had none, so that a worker never
claims weights that it may not have.
"""

import inspect
import os


class EasyRL:
    """Methods that vLLM adds to its worker class."""

    def easyrl_load(self, folder: str, label: str) -> str:
        """Makes folder/model.safetensors the weights and returns the label."""
        self._easyrl_label = ""
        runner = self.model_runner
        reload = getattr(runner, "reload_weights", None)
        if reload and "weights_path" in inspect.signature(reload).parameters:
            reload(weights_path=folder)
        else:
            _load_in_place(runner, folder)
        self._easyrl_label = label
        return label

    def easyrl_held(self) -> str:
        """Returns the label of what this worker serves."""
        return getattr(self, "_easyrl_label", "")


def _load_in_place(runner, folder: str) -> None:
    """For vLLM without reload_weights(weights_path): unquantized models only."""
    import torch
    from safetensors import safe_open

    if runner.vllm_config.model_config.quantization is not None:
        raise ValueError("this vLLM cannot load new weights into a quantized model")

    def tensors():
        with safe_open(os.path.join(folder, "model.safetensors"), framework="pt", device="cpu") as f:
            for name in f.keys():
                yield name, f.get_tensor(name)

    with torch.inference_mode():
        runner.model.load_weights(tensors())
    if torch.cuda.is_available():
        torch.cuda.synchronize()
