"""Samples during training."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback
from transformers.utils import logging

from ..inference.generation import encode_prompts

logger = logging.get_logger(__name__)


class SampleCallback(TrainerCallback):
    r"""Continues some prompts at every evaluation, without any effect on the training.

    Each evaluation draws with the same random state, so two samples differ only by what the model learnt in between.
    The random state of the training does not change. The samples go to this module's logger at level INFO, and into
    `state.log_history` as a record `{"step", "epoch", "samples"}`. If several data sets are evaluated
    at one step, there is one sample.

    All processes generate, because a model sharded by FSDP2 or ZeRO-3 can only run on all of them together. This takes
    no longer than generating in one process. Only the main process logs.

    Args:
        tokenizer ([`GPT1Tokenizer`]): encodes the prompts and decodes the continuations.
        prompts (`str` or `list[str]`): texts to continue.
        max_new_tokens (`int`, defaults to 40): tokens of each continuation.
        top_k (`int`, defaults to 40): number of most likely tokens to sample from.
        seed (`int`, defaults to 0): seed of the random state.

    Raises:
        ValueError: when training starts, a prompt has no token, or needs with its continuation more positions than
            the model has.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompts: str | Sequence[str],
        max_new_tokens: int = 40,
        top_k: int = 40,
        seed: int = 0,
    ) -> None:
        self.tokenizer, self.seed = tokenizer, seed
        self.prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        self.generation = {"do_sample": True, "top_k": top_k, "max_new_tokens": max_new_tokens}

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        self._encode(model)

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        if any("samples" in record and record["step"] == state.global_step for record in state.log_history):
            return  # also when a finished run is started again
        samples = self._continue_prompts(model)
        state.log_history.append({"epoch": state.epoch, "samples": samples, "step": state.global_step})
        if state.is_world_process_zero:
            for sample in samples:
                logger.info(f"step {state.global_step}: {sample}")

    def _encode(self, model) -> list[list[int]]:
        return encode_prompts(model, self.tokenizer, self.prompts, self.generation["max_new_tokens"])

    def _continue_prompts(self, model) -> list[str]:
        # Padding in the call that encodes would stay set in the tokenizer, be saved with the next checkpoint, and
        # pad the training batches of a resumed run on the left.
        encoded = {"input_ids": self._encode(model)}
        inputs = self.tokenizer.pad(encoded, padding_side="left", return_tensors="pt").to(model.device)
        was_training = model.training
        model.eval()
        try:
            with own_random_state(self.seed, model.device):
                sequences = model.generate(**inputs, **self.generation)
        finally:
            model.train(was_training)
        starts = (inputs["attention_mask"] == 0).sum(1).tolist()
        return [self.tokenizer.decode(ids[start:]) for ids, start in zip(sequences, starts, strict=True)]


@contextmanager
def own_random_state(seed: int, device: torch.device) -> Iterator[None]:
    """Within this context, torch's generators of the CPU and `device` are seeded; their state is restored after."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices, device_type=device.type):
        torch.default_generator.manual_seed(seed)
        if devices:  # `torch.manual_seed` would seed all devices, but others are not restored
            torch.get_device_module(device).manual_seed(seed)
        yield
