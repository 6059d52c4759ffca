"""Callbacks: samples during training, a warning of a plateau, and tolerance for callbacks that fail to write."""

import copy
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
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


class PlateauCallback(TrainerCallback):
    """Warns once if a pre-training has learnt only how frequent each token is, and learns no more.

    A decoder with norms after the sums can stay there for thousands of updates if its learning rate rises too fast.
    The warning comes when warm-up has ended at least `2 * num_updates` ago, the mean loss of the last `num_updates`
    is no lower than that of those before, and it is no better than the entropy of single tokens.

    The losses are those of the log. The entropy is that of the labels of the last batches, whose references `see`
    keeps. They are read only when the loss has stopped falling, so a step never waits for its device.

    Args:
        num_updates (`int`, defaults to 100): updates that are compared with as many before.
    """

    NUM_LABELS = 2**16
    STILL_FALLS = 0.01  # of the loss
    NO_BETTER = 0.1  # nats below the entropy, a tenth of the perplexity

    def __init__(self, num_updates: int = 100) -> None:
        self.num_updates = num_updates
        self._labels: deque[torch.Tensor] = deque()
        self._entropy: float | None = None
        self._has_warned = False

    def see(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Keeps the labels of a batch, and forgets those of old ones."""
        if self._entropy is None and inputs.get("labels") is not None:
            self._labels.append(inputs["labels"])
            while sum(labels.numel() for labels in self._labels) - self._labels[0].numel() >= self.NUM_LABELS:
                self._labels.popleft()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self._has_warned or "loss" not in (logs or {}) or not self._labels and self._entropy is None:
            return
        warmup = args.get_warmup_steps(state.max_steps)
        loss = self._stuck_at(state.log_history, warmup)
        if loss is None:
            return
        if self._entropy is None:
            self._entropy = entropy_of(torch.cat([labels.flatten() for labels in self._labels]))
            self._labels.clear()
        if not loss >= self._entropy - self.NO_BETTER:  # also if it is not a number
            return
        self._has_warned = True
        if state.is_world_process_zero:
            logger.warning(
                f"The training loss is {loss:.2f} at update {state.global_step} and has stopped falling. It is no "
                f"better than {self._entropy:.2f}, the entropy of single tokens, so the model has learnt only how "
                "frequent each token is. It may stay there for long. Start again with a longer warm-up or a smaller "
                f"learning rate: this run has `warmup_steps` {warmup} and `learning_rate` {args.learning_rate:g}; try "
                f"{max(5 * warmup, 2 * self.num_updates)} or {args.learning_rate / 4:g}."
            )

    def _stuck_at(self, history: Sequence[Mapping], warmup: int) -> float | None:
        """The mean loss of the last updates, or None if it still falls or warm-up is not long over."""
        logs = [(record["step"], record["loss"]) for record in history if "loss" in record]
        spans = [(before, step, loss) for (before, _), (step, loss) in zip([(0, 0.0), *logs], logs, strict=False)]
        now = logs[-1][0]
        length = max(self.num_updates, now - spans[-1][0])
        if now - 2 * length < warmup:
            return None
        recent, earlier = mean_loss(spans, now - length, now), mean_loss(spans, now - 2 * length, now - length)
        falls = recent is None or earlier is None or recent < (1 - self.STILL_FALLS) * earlier
        return None if falls else recent


def mean_loss(spans: Sequence[tuple[int, int, float]], after: int, until: int) -> float | None:
    """Mean of the logged losses whose updates lie in the interval, by number of updates."""
    within = [(step - before, loss) for before, step, loss in spans if before >= after and step <= until]
    return sum(number * loss for number, loss in within) / sum(n for n, _ in within) if within else None


def entropy_of(labels: torch.Tensor) -> float:
    """Entropy of single tokens in nats, without ignored ones. The correction is that of Miller and Madow (1955)."""
    counts = labels[labels >= 0].unique(return_counts=True)[1].double()
    shares = counts / counts.sum()
    return float(-(shares * shares.log()).sum() + (len(counts) - 1) / (2 * counts.sum())) if len(counts) else math.inf


class TolerantCallbacks(CallbackHandler):
    """Calls callbacks as transformers does, but training goes on if one cannot write or connect.

    A warning reports each such callback once; the callback is called again at the next event. Errors of a checkpoint,
    of the model's files and of a callback with `is_essential` are still raised.

    Args:
        handler (`CallbackHandler`): the trainer's handler, which this one replaces.
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
            except CheckpointError:
                raise
            except OSError as error:
                if getattr(callback, "is_essential", False):
                    raise
                self._tell(callback, event, error)
        return control

    def _tell(self, callback: TrainerCallback, event: str, error: OSError) -> None:
        if not any(callback is told for told in self._told):
            self._told.append(callback)
            logger.warning(
                f"{type(callback).__name__} failed in {event} ({type(error).__name__}: {error}). Training continues, "
                "but what this callback records may be incomplete. Its further failures are not reported."
            )


@contextmanager
def own_random_state(seed: int, device: torch.device) -> Iterator[None]:
    """Within this context, torch's generators of the CPU and `device` are seeded; their state is restored after."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices, device_type=device.type):
        torch.default_generator.manual_seed(seed)
        if devices:  # `torch.manual_seed` would seed all devices, but others are not restored
            torch.get_device_module(device).manual_seed(seed)
        yield
