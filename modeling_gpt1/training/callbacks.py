"""Samples and readable lines during training."""

import os
import weakref
from collections.abc import Sequence

import torch
from transformers import PreTrainedTokenizerBase, ProgressCallback, Trainer, TrainerCallback
from transformers.utils import logging

from ..inference.generation import continue_prompts, encode_prompts
from .checkpoint import check_weights

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
        ValueError: when training starts, a prompt has no token, or needs with its continuation too many positions.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompts: str | Sequence[str],
        max_new_tokens: int = 40,
        top_k: int = 40,
        seed: int = 0,
    ) -> None:
        self.tokenizer = tokenizer
        self.seed = seed
        self.prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        self.generation = {"do_sample": True, "top_k": top_k, "max_new_tokens": max_new_tokens}

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        encode_prompts(model, self.tokenizer, self.prompts, self.generation["max_new_tokens"])

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        if any("samples" in record and record["step"] == state.global_step for record in state.log_history):
            return  # also when a finished run is started again
        device = model.device  # the evaluation has switched dropout off, and the next update switches it on
        with torch.random.fork_rng([] if device.type == "cpu" else [device], device_type=device.type):
            torch.manual_seed(self.seed)
            texts = continue_prompts(model, self.tokenizer, self.prompts, **self.generation)
        samples = [prompt + text for prompt, (text,) in zip(self.prompts, texts, strict=True)]
        state.log_history.append({"epoch": state.epoch, "samples": samples, "step": state.global_step})
        if state.is_world_process_zero:
            for sample in samples:
                logger.info(f"step {state.global_step} · {' '.join(sample.split())}")


# Figures of the log that a line leaves out; trainer_state.json and `gpt1 plot` have them.
_UNSAID = (
    "epoch",
    "grad_norm",
    "mfu",
    "total_flos",
    "num_input_tokens_seen",
    "train_tokens_per_second",
    "runtime",
    "samples_per_second",
    "steps_per_second",
    "model_preparation_time",
)


def readable(figures: dict[str, float]) -> str:
    """Figures of a log in words: `loss 6.55 · perplexity 701 · 6,020 tokens/s · lr 2.0e-3`."""
    words = []
    rate = []  # at the end of the line
    for name, value in figures.items():
        number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"
        if name == "tokens_per_second":
            words.append(f"{number} tokens/s")
        elif name == "learning_rate":
            rate.append(f"lr {value:.1e}".replace("e-0", "e-").removesuffix("e+00"))
        elif not name.endswith(_UNSAID):
            score = name.removeprefix("eval_").removeprefix("predict_").replace("_", " ")
            words.append(f"{score} {number}")
    return " · ".join(words + rate)


class ReadableLog(TrainerCallback):
    """Writes each log as a line to this module's logger at level INFO, in place of transformers' dictionaries.

    `evaluated` names what evaluations measure.
    """

    def __init__(self, evaluated: str) -> None:
        self.evaluation = f"evaluation of {evaluated}" if evaluated else "evaluation"
        self.last_line = ""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not state.is_world_process_zero or "train_loss" in logs:  # the end of a training
            return
        parts = [readable(logs)]
        if not {"loss", "learning_rate"} & logs.keys():
            parts.insert(0, self.evaluation)
        if state.max_steps:
            parts.insert(0, f"step {state.global_step}/{state.max_steps}")
        line = " · ".join(filter(None, parts))
        if line != self.last_line:  # the last evaluation may repeat that of the last update
            logger.info(line)
        self.last_line = line


class ProgressBar(ProgressCallback):
    """transformers' bar, one at a time: that of a training says when an evaluation interrupts it. No logs."""

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        self.current_step = state.global_step  # a resumed run goes on where it was; what went before has no speed
        if self.training_bar is not None:
            self.training_bar.n = self.training_bar.initial = self.current_step

    def on_prediction_step(self, args, state, control, **kwargs):
        if self.training_bar is None:
            super().on_prediction_step(args, state, control, **kwargs)
        else:
            self.training_bar.set_postfix_str("evaluating")

    def on_evaluate(self, args, state, control, **kwargs):
        super().on_evaluate(args, state, control, **kwargs)
        if self.training_bar is not None:
            self.training_bar.set_postfix_str("")

    on_log = TrainerCallback.on_log  # nothing


class SavePoints(TrainerCallback):
    """Saves the model after certain updates to folders of the output folder, which stay; and logs the words read.

    Args:
        trainer: the trainer.
        updates: after which update each folder is saved, by its name.
        words_per_update: words of the text that an update reads, on average.
    """

    def __init__(self, trainer: Trainer, updates: dict[str, int], words_per_update: float) -> None:
        self._trainer = weakref.proxy(trainer)
        self.updates = updates
        self.words_per_update = words_per_update

    def on_step_end(self, args, state, control, **kwargs):
        for name, update in self.updates.items():
            if update == state.global_step:
                check_weights(self._trainer, args.output_dir)
                with self._trainer.throughput.paused():
                    self._trainer.save_model(os.path.join(args.output_dir, name), _internal_call=True)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs or "train_loss" in logs:  # the second is the record of the whole run
            num_words = round(state.global_step * self.words_per_update)
            logs["words_seen"] = num_words
            state.log_history[-1]["words_seen"] = num_words
