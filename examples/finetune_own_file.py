"""Fine-tunes a pre-trained model on a file of your own, and asks what it learnt. A script to read and edit.

The file (.jsonl, .csv or .parquet) has a text and a class in each row; the classes may be words:

    python examples/finetune_own_file.py --train_file reviews.csv --validation_file held_out.csv \
        --text body --label verdict --model openai-community/openai-gpt --output_dir out/reviews

For two texts per row, numbers to predict or several answers to choose from, change `TRAVERSAL` and the columns. The
table of traversals in docs/own-data.md lists their roles.
"""

from dataclasses import dataclass, field

from transformers import HfArgumentParser, pipeline, set_seed

from modeling_gpt1 import GPT1Trainer, GPT1TrainingArguments, prepare_finetuning
from tokenization import load_files

TRAVERSAL = "classification"  # or entailment, similarity, multiple_choice


@dataclass
class Arguments:
    """Which model to fine-tune on which file."""

    train_file: str = field(metadata={"help": "Rows to train on."})
    validation_file: str = field(metadata={"help": "Rows to evaluate on."})
    text: str = field(default="text", metadata={"help": "Column with the text."})
    label: str = field(default="label", metadata={"help": "Column with the class."})
    model: str = field(default="openai-community/openai-gpt", metadata={"help": "Folder or hub id."})


def main(arguments: list[str] | None = None) -> None:
    args, training_args = HfArgumentParser((Arguments, GPT1TrainingArguments)).parse_args_into_dataclasses(arguments)
    set_seed(training_args.seed)
    files = {"train": args.train_file, "validation": args.validation_file}
    task, rows = load_files(files, TRAVERSAL, {"text": args.text, "label": args.label})
    trainer = GPT1Trainer(
        args=training_args,
        train_dataset=rows["train"],
        eval_dataset=rows["validation"],
        **prepare_finetuning(args.model, task),
    )
    trainer.train()
    trainer.save_model()
    trainer.log_metrics("eval", trainer.evaluate())

    # The saved folder knows the names of its classes, and the pipeline opens it by its path.
    # A text that is longer than the model reads is cut, as in training.
    classify = pipeline("text-classification", training_args.output_dir, device=training_args.device, truncation=True)
    texts = rows["validation"][:3][args.text]
    for text, answer in zip(texts, classify(texts), strict=True):
        print(f"{answer['label']} ({answer['score']:.2f}): {text}")


if __name__ == "__main__":
    main()
