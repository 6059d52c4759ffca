"""Rows, models and runs that the trainer tests share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch.utils.data import Dataset
from transformers.trainer_callback import CallbackHandler

from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel, GPT1Trainer, GPT1TrainingArguments
from modeling_gpt1.configuration_gpt1 import is_regression
from tokenization.batches.traversal_collator import TraversalCollator
from tokenization.text.tokenization_gpt1 import GPT1Tokenizer

WORDS = [
    "ann",
    "ben",
    "cat",
    "dog",
    "eats",
    "fish",
    "goes",
    "home",
    "is",
    "just",
    "kind",
    "lazy",
    "my",
    "new",
    "old",
    "park",
    "red",
    "sees",
    "the",
    "under",
    "very",
    "warm",
]
CASES = {
    "classification": {"traversal": "classification", "num_labels": 3},
    "entailment": {"traversal": "entailment", "num_labels": 2},
    "similarity": {"traversal": "similarity", "num_labels": 2},
    "regression": {"traversal": "similarity", "num_labels": 1, "problem_type": "regression"},
    "multiple_choice": {"traversal": "multiple_choice"},
}
COLUMNS = {
    "classification": {"text": "a", "label": "label"},
    "entailment": {"premise": "a", "hypothesis": "b", "label": "label"},
    "similarity": {"text_a": "a", "text_b": "b", "label": "label"},
    "multiple_choice": {"context": "a", "choices": "options", "label": "label"},
}


class Rows(Dataset):
    """Rows of unequal lengths, made from a fixed seed; multiple choice has two to four options."""

    def __init__(self, case: str, num_rows: int = 24):
        generator = torch.Generator().manual_seed(5)

        def text(longest: int) -> str:
            length = int(torch.randint(1, longest, (), generator=generator))
            return " ".join(WORDS[i] for i in torch.randint(len(WORDS), (length,), generator=generator).tolist())

        self.rows = []
        for index in range(num_rows):
            options = [text(7) for _ in range(2 + index % 3)]
            row = {"a": text(15), "b": text(9), "options": options, "label": index % 2}
            if case == "regression":
                row["label"] = 0.3 * index
            self.rows.append(row)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict:
        return self.rows[index]


def make_letter_tokenizer() -> GPT1Tokenizer:
    """Letters as tokens: the same in every process."""
    letters = sorted(set("".join(WORDS)))
    pieces = ["<unk>", *letters, *(letter + "</w>" for letter in letters), "\n</w>"]
    tokenizer = GPT1Tokenizer(vocab={piece: index for index, piece in enumerate(pieces)}, merges=[])
    tokenizer.add_control_tokens()
    return tokenizer


def make_small_config(vocab_size: int, dropout: float = 0.0, **fields) -> GPT1Config:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.1}
    dropouts = dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), dropout)
    return GPT1Config(vocab_size=vocab_size, **{**sizes, **dropouts, **fields})


def make_double_heads_model(
    case: str, tokenizer: GPT1Tokenizer, lm_coef: float = 0.5, dropout: float = 0.0
) -> GPT1DoubleHeadsModel:
    torch.manual_seed(0)
    fields = {"max_position_embeddings": 96, "classifier_dropout": dropout, "lm_coef": lm_coef, **CASES[case]}
    return GPT1DoubleHeadsModel(make_small_config(len(tokenizer), dropout, **fields))


def make_traversal_collator(model: GPT1DoubleHeadsModel, tokenizer: GPT1Tokenizer) -> TraversalCollator:
    traversal = model.config.traversal
    regression = is_regression(model.config)
    return TraversalCollator(tokenizer, traversal, COLUMNS[traversal], max_length=96, regression=regression)


# Of a short training that leaves nothing behind.
QUIET = dict(warmup_steps=0, logging_steps=1, save_strategy="no", use_cpu=True, disable_tqdm=True, report_to="none")
# Of one whose numbers are compared.
SETTINGS = {
    **QUIET,
    "max_steps": 3,
    # Adam would blow up rounding errors of gradients that are zero in exact arithmetic, as of the key biases.
    "optim": "sgd",
    "learning_rate": 0.05,
    "train_sampling_strategy": "sequential",
    "remove_unused_columns": False,
    "weight_decay": 0.01,
}


def settings_of(output_dir: str | os.PathLike, batch_size: int, accumulation: int, **others) -> dict:
    """Arguments of a run whose numbers are compared."""
    sizes = {"per_device_train_batch_size": batch_size, "gradient_accumulation_steps": accumulation}
    return {"output_dir": str(output_dir), **sizes, **SETTINGS, **others}


def make_finetuning_trainer(
    case: str,
    output_dir: str | os.PathLike,
    batch_size: int,
    accumulation: int,
    lm_coef: float = 0.5,
    dropout: float = 0.0,
    trainer_class=GPT1Trainer,
    arguments_class=GPT1TrainingArguments,
    model: GPT1DoubleHeadsModel | None = None,
    **arguments,
) -> GPT1Trainer:
    tokenizer = make_letter_tokenizer()
    if model is None:
        model = make_double_heads_model(case, tokenizer, lm_coef, dropout)
    args = arguments_class(**settings_of(output_dir, batch_size, accumulation, **arguments))
    parts = {"data_collator": make_traversal_collator(model, tokenizer), "processing_class": tokenizer}
    parts |= {"train_dataset": Rows(case), "eval_dataset": Rows(case, num_rows=11)}
    return trainer_class(model=model, args=args, **parts)


def without_times(log_history: list[dict]) -> list[dict]:
    """The log but for times, which differ between two runs."""
    times = ("second", "runtime", "mfu")
    return [{key: record[key] for key in record if not any(time in key for time in times)} for record in log_history]


def training_log(trainer) -> list[dict[str, float]]:
    """Train, and give loss, components and gradient norm of each update."""
    trainer.train()
    keys = ("loss", "task_loss", "lm_loss", "grad_norm")
    return [{key: log[key] for key in keys if key in log} for log in trainer.state.log_history if "loss" in log]


@contextmanager
def resumes_after(step: int | None) -> Iterator[None]:
    """Checks that the training in this context goes on after update `step`, or has no update left if that is None.

    The runs of the tests are seeded: one that starts anew ends as a resumed one does.
    """
    begun = []
    begin = CallbackHandler.on_step_begin

    def note(handler, args, state, control):
        begun.append(state.global_step)
        return begin(handler, args, state, control)

    with mock.patch.object(CallbackHandler, "on_step_begin", note):
        yield
    assert begun[:1] == ([] if step is None else [step]), f"It begins after update {begun[:1]} and not {step}."
