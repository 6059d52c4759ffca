"""Callbacks: samples during training, and tolerance for callbacks that fail to write."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from transformers import PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_callback import CallbackHandler
from transformers.utils import logging

from .checkpoint import CheckpointError

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
        ValueError: a prompt has no token; or, when training starts, prompt and continuation need more positions than
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
        for prompt in self.prompts:
            if not tokenizer(prompt, add_special_tokens=False, split_special_tokens=True)["input_ids"]:
                raise ValueError(
                    f"The prompt {prompt!r} has no tokens, but the model needs at least one to continue. Put a word "
                    "into every prompt."
                )

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        longest = max(map(len, self._encode()["input_ids"]))
        new, positions = self.generation["max_new_tokens"], model.config.max_position_embeddings
        if longest + new > positions:
            raise ValueError(
                f"The longest prompt has {longest} tokens and `max_new_tokens` is {new}, but the model has only "
                f"{positions} positions (`max_position_embeddings`). Shorten one of the two."
            )

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        if any("samples" in record and record["step"] == state.global_step for record in state.log_history):
            return  # also when a finished run is started again
        samples = self._continue_prompts(model)
        state.log_history.append({"epoch": state.epoch, "samples": samples, "step": state.global_step})
        if state.is_world_process_zero:
            for sample in samples:
                logger.info(f"step {state.global_step}: {sample}")

    def _encode(self):
        return self.tokenizer(self.prompts, add_special_tokens=False, split_special_tokens=True)

    def _continue_prompts(self, model) -> list[str]:
        encoded = self._encode()
        # Padding in the call that encodes would stay set in the tokenizer, be saved with the next checkpoint, and
        # pad the training batches of a resumed run on the left.
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


class TolerantCallbacks(CallbackHandler):
    """Calls callbacks as transformers does, but training goes on if one cannot write or connect.

    A warning tells it once; the callback is called again at the next event. Errors of a checkpoint, of the model's
    files and of a callback with `is_essential` are still raised.
    """

    def __init__(self, handler: CallbackHandler) -> None:
        self.__dict__.update(vars(handler))
        self._told: list[TrainerCallback] = []

    def call_event(self, event, args, state, control, **kwargs):
        one = copy.copy(self)
        for callback in self.callbacks:
            one.callbacks = [callback]
            try:
                control = CallbackHandler.call_event(one, event, args, state, control, **kwargs)
            except OSError as error:
                if isinstance(error, CheckpointError) or getattr(callback, "is_essential", False):
                    raise
                if callback not in self._told:
                    self._told.append(callback)
                    logger.warning(
                        f"{type(callback).__name__} failed in {event} ({type(error).__name__}: {error}). Training "
                        "continues, but what this callback records may be incomplete."
                    )
        return control


@contextmanager
def own_random_state(seed: int, device: torch.device) -> Iterator[None]:
    """Within this context, torch's generators of the CPU and `device` are seeded; their state is restored after."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices, device_type=device.type):
        torch.default_generator.manual_seed(seed)
        if devices:  # `torch.manual_seed` would seed all devices, but others are not restored
            torch.get_device_module(device).manual_seed(seed)
        yield
