"""What a run leaves behind for its reader: its log as JSON lines, and samples of what the model writes by then."""

import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from transformers.trainer_utils import denumpify_detensorize
from transformers.utils import logging

logger = logging.get_logger(__name__)

LOG_NAME = "log.jsonl"


class JsonLinesCallback(TrainerCallback):
    r"""Writes every record of `state.log_history` to a file at once, one JSON object a line.

    `step` and `epoch` come first, then the others by name. A figure that is not finite is null: JSON has no such
    numbers, and text in its place would make the whole column text to those who read tables. Only the main process
    writes.

    A resumed run goes on where its checkpoint was written: the records after that and a line that a kill has torn are
    dropped, so that the file is that of a run never interrupted, but for times. The log of another run is set aside as
    `log.1.jsonl`, `log.2.jsonl`, …: refusing to start would stop a job that was killed before its first checkpoint and
    is started again. A Trainer that only evaluates writes nothing.

    Args:
        path (`str`, *optional*): the file. Default: `log.jsonl` in `output_dir`.
    """

    def __init__(self, path: str | os.PathLike | None = None):
        self.path = path
        self._num_written: int | None = None  # how much of `state.log_history` the file has; `None` before a training

    def on_train_begin(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        path, lines = self._path(args), [_to_json(record) for record in state.log_history]
        path.parent.mkdir(parents=True, exist_ok=True)
        found = _whole_lines(path)
        is_this_run = lines and found[: len(lines)] == lines[: len(found)]
        if found and not is_this_run:
            _set_aside(path)
        _replace(path, "".join(lines))
        self._num_written = len(lines)

    def on_log(self, args, state, control, **kwargs):
        if not state.is_world_process_zero or self._num_written is None:
            return
        records = state.log_history[self._num_written :]
        with self._path(args).open("a", encoding="utf-8") as file:
            file.writelines(map(_to_json, records))
        self._num_written += len(records)

    # Other callbacks put records there too, as SampleCallback does; of those given later they come at the next event.
    on_evaluate = on_save = on_train_end = on_log

    def _path(self, args) -> Path:
        return Path(args.output_dir, LOG_NAME) if self.path is None else Path(self.path)


class SampleCallback(TrainerCallback):
    r"""Lets the model continue some prompts at every evaluation, and training never notices.

    The continuations are drawn with a random state of their own, the same at every evaluation, so that samples of two
    steps differ by what was learnt between them; the state that training draws from is left as it was. They go to
    this module's logger at level INFO, and as a record `{"step", "epoch", "samples"}` into `state.log_history`, which
    [`JsonLinesCallback`] writes. Evaluations of several data sets at one step make one sample.

    All processes generate, which costs no time beyond that of one: a model sharded by FSDP2 or ZeRO-3 can only run on
    all of them together. Only the main process logs.

    Args:
        tokenizer ([`GPT1Tokenizer`]): encodes the prompts and decodes what follows.
        prompts (`str` or `list[str]`): texts to continue.
        max_new_tokens (`int`, defaults to 40): tokens of each continuation.
        top_k (`int`, defaults to 40): the most likely tokens to draw from.
        seed (`int`, defaults to 0): of the random state.

    Raises:
        ValueError: a prompt without a token; when training starts, prompt and continuation longer than the model's
            positions.
    """

    def __init__(
        self, tokenizer, prompts: str | Sequence[str], max_new_tokens: int = 40, top_k: int = 40, seed: int = 0
    ) -> None:
        self.tokenizer, self.seed = tokenizer, seed
        self.prompts = [prompts] if isinstance(prompts, str) else list(prompts)
        self.generation = {"do_sample": True, "top_k": top_k, "max_new_tokens": max_new_tokens}
        for prompt in self.prompts:
            if not tokenizer(prompt, add_special_tokens=False)["input_ids"]:
                raise ValueError(
                    f"The prompt {prompt!r} has no token, but the model needs one to go on from. Give every prompt a "
                    "word."
                )

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        longest = max(map(len, self.tokenizer(self.prompts, add_special_tokens=False)["input_ids"]))
        new, positions = self.generation["max_new_tokens"], model.config.max_position_embeddings
        if longest + new > positions:
            raise ValueError(
                f"The longest prompt has {longest} tokens and `max_new_tokens` is {new}, but the model has only "
                f"{positions} positions (`max_position_embeddings`). Shorten one of the two."
            )

    def on_evaluate(self, args, state, control, model=None, **kwargs):
        if any("samples" in record and record["step"] == state.global_step for record in state.log_history):
            return  # also where a run that was over is started again
        samples = self._continue_prompts(model)
        state.log_history.append({"epoch": state.epoch, "samples": samples, "step": state.global_step})
        if state.is_world_process_zero:
            for sample in samples:
                logger.info(f"step {state.global_step}: {sample}")

    def _continue_prompts(self, model) -> list[str]:
        encoded = self.tokenizer(self.prompts, add_special_tokens=False)
        # Padding within the call would stay with the tokenizer, be saved with the next checkpoint, and pad the
        # training batches of a resumed run on the left.
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
    """Within, torch draws from generators seeded anew, on the CPU and on `device`; after, from where it was."""
    devices = [] if device.type == "cpu" else [device]
    with torch.random.fork_rng(devices, device_type=device.type):
        torch.default_generator.manual_seed(seed)
        if devices:  # `torch.manual_seed` would seed all devices, of which others are not put back
            torch.get_device_module(device).manual_seed(seed)
        yield


def _to_json(record: dict[str, Any]) -> str:
    first = {name: record[name] for name in ("step", "epoch") if name in record}
    record = {**first, **dict(sorted(record.items()))}  # a checkpoint sorts them too
    return json.dumps(_finite(denumpify_detensorize(record)), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _whole_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return [line for line in lines if line.endswith("\n")]


def _set_aside(path: Path) -> None:
    number = 1
    while (kept := path.with_name(f"{path.stem}.{number}{path.suffix}")).exists():
        number += 1
    path.rename(kept)
    logger.warning(f"{path} is not the log of what this run goes on from. It is kept as {kept}.")


def _replace(path: Path, text: str) -> None:
    """At once, so that a kill leaves either the old file or the new one."""
    beside = path.with_name(f"{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


__all__ = ["JsonLinesCallback", "SampleCallback"]
