"""Fine-tunes a pre-trained model on a task of the paper, and evaluates it. A script to read and edit.

    python examples/finetune_task.py --task rte --model openai-community/openai-gpt --output_dir out/rte
    python examples/finetune_task.py --task story_cloze --data_dir data --model out/books --output_dir out/cloze \
        --num_train_epochs 5 --lm_coef 0

`gpt1 finetune` does this too. It also checks more before it starts, predicts, resumes and uploads.
"""

from dataclasses import dataclass, field

from transformers import HfArgumentParser, set_seed

from modeling_gpt1 import GPT1Trainer, GPT1TrainingArguments, prepare_finetuning
from tokenization import get_task, load_task


@dataclass
class Arguments:
    """Which model to fine-tune on which task."""

    task: str = field(default="rte", metadata={"help": "A task of the paper, such as sst2, stsb, race."})
    data_dir: str | None = field(default=None, metadata={"help": "Folder with its files. Default: download."})
    model: str = field(default="openai-community/openai-gpt", metadata={"help": "Folder or hub id."})


def main(arguments: list[str] | None = None) -> None:
    args, training_args = HfArgumentParser((Arguments, GPT1TrainingArguments)).parse_args_into_dataclasses(arguments)
    set_seed(training_args.seed)
    task = get_task(args.task)
    rows = load_task(task, args.data_dir)
    if missing := [split for split in (task.train_split, task.validation_splits[0]) if split not in rows]:
        raise ValueError(f"{args.data_dir or task.hub_path} has no split {missing[0]!r}. Add its file.")
    trainer = GPT1Trainer(
        args=training_args,
        train_dataset=rows[task.train_split],
        eval_dataset=rows[task.validation_splits[0]],
        # Model, tokenizer, batches and metrics, as the task needs them.
        **prepare_finetuning(args.model, task),
    )
    trainer.train()
    trainer.save_model()
    trainer.log_metrics("eval", trainer.evaluate())


if __name__ == "__main__":
    main()
