"""A Hugging Face causal language model as a policy over layouts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from . import lora as adapters
from .attention import PLAN, SEGMENTS, Plan
from .installed import RECOMPUTE
from .layout import Layout, separate

PACKED = "packed"  # one pass over the layout's rows
SEPARATE = "separate"  # sequences that repeat their prefixes, through the family's own attention
STOCK = "stock"  # as SEPARATE, through the family's own head too, with the logits of all rows
LOGITS = 1 << 25  # largest number of logits held at once
SEQUENCE_ROWS = 1 << 14  # largest number of padded rows of a batch of separate sequences


class Policy(nn.Module):
    """Computes log-probabilities and entropies of a layout's targets.

    The model keeps its own code: positions and attention come from the layout. Names of parameters are
    those of the model behind the prefix "model."; see weights.
    """

    def __init__(self, model: PreTrainedModel, attention: str = SEGMENTS, recompute: bool = False,
                 lora: adapters.Settings | None = None):
        super().__init__()
        self.model = model.eval()
        self.attention = attention  # implementation for PACKED
        self.mode = PACKED
        self.reason = ""  # why a faster attention or mode was rejected; empty if none was
        self.slowdown = 0.0  # see selfcheck.slowdown; 0 if reason is empty, or if it is not known
        self.compute_dtype = model.dtype  # differs from the weights' under mixed precision
        self._stock = self._current = model.config._attn_implementation
        object.__setattr__(self, "_adapter", adapters.wrap(model, lora) if lora else None)
        if recompute:
            self._recompute_layers()

    @classmethod
    def from_folder(cls, path: str | Path, dtype: torch.dtype = torch.float32, attention: str = SEGMENTS,
                    recompute: bool = False, lora: adapters.Settings | None = None, **options) -> Policy:
        """Loads a folder's safetensors without network, remote code or pickles; options go to from_pretrained."""
        model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True, use_safetensors=True,
                                                     trust_remote_code=False, **options)
        return cls(model, attention, recompute, lora)

    @property
    def config(self):
        """The configuration of the decoder."""
        return self.model.config.get_text_config()

    @property
    def vocabulary(self) -> int:
        return self.config.vocab_size

    @property
    def max_positions(self) -> int | None:
        return getattr(self.config, "max_position_embeddings", None)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def _decoder(self) -> nn.Module:
        """The module whose last hidden states the model's head takes."""
        model = self.model
        found = (model.base_model, model.get_decoder(), getattr(model, "model", model))
        return next((module for module in found if module is not model), model)

    def layers(self) -> list[nn.Module]:
        """The decoder's layers, in order."""
        decoder = self.model.get_decoder()
        if hasattr(decoder, "layers"):
            return list(decoder.layers)
        lists = [m for m in decoder.modules() if isinstance(m, nn.ModuleList)]
        return list(max(lists, key=len, default=[]))

    def weights(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields each weight once under the model's own name, without adapters.

        A tied head appears only as the embedding. Experts that the model fuses keep their fused names.
        """
        for name, parameter in self.model.named_parameters():
            if not adapters.is_adapter(name):
                yield adapters.plain_name(name), parameter

    def reference(self) -> AbstractContextManager:
        """Turns the adapter off inside the context; RuntimeError without one."""
        if self._adapter is None:
            raise RuntimeError("policy: reference without an adapter")
        return adapters.disabled(self.model)

    def train(self, mode: bool = True) -> Policy:
        """Keeps dropout off; see _recompute_layers."""
        del mode
        return self

    def forward(self, layout: Layout, temperature: float = 1.0, mode: str | None = None,
                passes: int = 0) -> tuple[Tensor, Tensor]:
        """Returns log-probabilities and entropies [targets] in float32; entropies carry no gradient.

        Logits are divided by temperature. mode replaces self.mode for this call; a backward pass must
        come before a call with another mode if layers are recomputed. If separate sequences need fewer
        than the given number of passes, passes of one token, which change nothing, make up for it.
        """
        mode = mode or self.mode
        if not len(layout.rows):
            nothing = torch.zeros(0, device=self.device)
            return nothing, nothing
        targets = torch.from_numpy(layout.targets).to(self.device)
        if mode == PACKED:
            hidden = self._packed(layout)[torch.from_numpy(layout.rows).to(self.device)]
        elif mode == SEPARATE:
            hidden = self._separate(layout, self._hidden, passes)
        elif mode == STOCK:
            return _score(self._separate(layout, self._logits, passes), targets, temperature)
        else:
            raise ValueError(f"policy: mode is {mode!r}, expected {PACKED}, {SEPARATE} or {STOCK}")
        return self._head(hidden, targets, temperature)

    def passes(self, layout: Layout) -> int:
        """The number of times that forward runs the decoder in the policy's mode."""
        return 1 if self.mode == PACKED else len(list(_batches(separate(layout).sequences)))

    def _packed(self, layout: Layout) -> Tensor:
        """[rows, hidden] of one pass over the layout."""
        self._use(self.attention)
        ids, positions = (torch.from_numpy(x).to(self.device)[None] for x in (layout.tokens, layout.positions))
        plan = Plan(layout, self.device)
        out = self._decoder(input_ids=ids, position_ids=positions, use_cache=False, **{PLAN: plan})
        return out.last_hidden_state[0]

    def _separate(self, layout: Layout, run, passes: int) -> Tensor:
        """Runs batches of separate sequences and returns their rows [targets, …] in layout's order."""
        self._use(self._stock)
        parts = separate(layout)
        pieces, order = [], []
        for batch in _batches(parts.sequences):
            ids = np.zeros((len(batch), max(len(parts.sequences[i]) for i in batch)), np.int64)
            for j, i in enumerate(batch):
                ids[j, :len(parts.sequences[i])] = parts.sequences[i]
            out = run(torch.from_numpy(ids).to(self.device))
            for j, i in enumerate(batch):
                targets = np.flatnonzero(parts.sequence == i)
                pieces.append(out[j, torch.from_numpy(parts.row[targets]).to(self.device)])
                order.append(targets)
            passes -= 1
        for _ in range(passes):
            pieces[0] = pieces[0] + 0.0 * run(torch.zeros(1, 1, dtype=torch.int64, device=self.device)).sum()
        inverse = np.argsort(np.concatenate(order))
        return torch.cat(pieces)[torch.from_numpy(inverse).to(self.device)]

    def _hidden(self, ids: Tensor) -> Tensor:
        return self._decoder(input_ids=ids, use_cache=False).last_hidden_state

    def _logits(self, ids: Tensor) -> Tensor:
        return self.model(input_ids=ids, use_cache=False).logits

    def _head(self, hidden: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Scores targets from their hidden states, in chunks that the backward pass recomputes."""
        chunk = max(1, LOGITS // self.vocabulary)
        results = []
        for h, t in zip(hidden.split(chunk), targets.split(chunk)):
            results.append(checkpoint(self._head_chunk, h, t, temperature, use_reentrant=False,
                                      preserve_rng_state=False))
        logprobs, entropies = zip(*results)
        return torch.cat(logprobs), torch.cat(entropies)

    def _head_chunk(self, hidden: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        with _decoder_returns(self._decoder, hidden[None]):
            logits = self.model(inputs_embeds=hidden[None], use_cache=False).logits[0]
        return _score(logits, targets, temperature)

    def _use(self, implementation: str) -> None:
        if implementation != self._current:
            self.model.set_attn_implementation(implementation)
            self._current = implementation

    def _recompute_layers(self) -> None:
        """Has each layer's backward pass recompute its activations.

        transformers asks for the layer's training flag. Its children keep theirs off, and with it dropout.
        """
        enable = next(method for name in RECOMPUTE if (method := getattr(self.model, name, None)))
        enable({"use_reentrant": False, "preserve_rng_state": False})
        for layer in self.layers():
            layer.training = True


def _score(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """[n, vocabulary] logits to log-probabilities of targets, and entropies without gradient."""
    logprobs, total = _LogProbabilities.apply(logits, targets, temperature)
    with torch.no_grad():  # after what the backward pass needs, so that it does not recompute this
        scaled = logits.detach().float() / temperature
        probabilities = (scaled - total[:, None]).exp_()
        entropies = total - probabilities.mul_(scaled).nan_to_num_(0.0).sum(-1)
    return logprobs, entropies


class _LogProbabilities(torch.autograd.Function):
    """Log-probabilities [n] of targets [n] under logits [n, vocabulary] divided by temperature, and log-sum-exps [n]."""

    @staticmethod
    def forward(ctx, logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        scaled = logits.float() / temperature
        total = torch.logsumexp(scaled, -1)
        ctx.save_for_backward(logits, targets, total)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(total)
        return scaled.gather(-1, targets[:, None])[:, 0] - total, total

    @staticmethod
    def backward(ctx, grad: Tensor, _):
        logits, targets, total = ctx.saved_tensors
        grad = (grad / ctx.temperature)[:, None]
        out = (logits.float() / ctx.temperature).sub_(total[:, None]).exp_().mul_(-grad)
        return out.scatter_add_(-1, targets[:, None], grad).to(logits.dtype), None, None


class _Output(BaseModelOutput):
    """A decoder's output whose further fields, whatever a family calls them, are None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


@contextmanager
def _decoder_returns(decoder: nn.Module, hidden: Tensor):
    """Has decoder return hidden [1, n, hidden], so that the model's call applies only its head."""
    decoder.forward = lambda *args, **kwargs: _Output(last_hidden_state=hidden)
    try:
        yield
    finally:
        del decoder.forward


def _batches(sequences: list[np.ndarray]) -> Iterator[list[int]]:
    """Yields indices of sequences of one length, or close to it, up to SEQUENCE_ROWS rows with padding.

    Padding follows a sequence, where causal models do not see it.
    """
    batch: list[int] = []
    for i in sorted(range(len(sequences)), key=lambda i: -len(sequences[i])):
        longest = len(sequences[batch[0]]) if batch else 0
        if batch and ((len(batch) + 1) * longest > SEQUENCE_ROWS or len(sequences[i]) < 0.75 * longest):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
