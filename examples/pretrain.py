"""Pre-trains a small GPT-1 on books, with a BPE of its own. A script to read and edit.

    python examples/pretrain.py --train_files books/train --validation_files books/validation --output_dir out/books

Each file of the folders is one document. Each evaluation prints the held-out perplexity and a sample. `gpt1 pretrain`
does this too. It also reads more kinds of text, resumes and uploads.
"""

import logging
from dataclasses import dataclass, field

from transformers import HfArgumentParser, set_seed

from modeling_gpt1 import (
    GPT1Config,
    GPT1ForCausalLM,
    GPT1PretrainingArguments,
    GPT1PretrainingTrainer,
    SampleCallback,
)
from tokenization import BlockCollator, GPT1Tokenizer, load_blocks, training_texts

# The paper's model is GPT1Config() as it is: 12 layers, 768 wide, 117 M parameters.
SIZE = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}


@dataclass
class Arguments:
    """What to train on."""

    train_files: str = field(metadata={"help": "File, folder or pattern of files."})
    validation_files: str = field(metadata={"help": "The same for held-out text."})
    num_merges: int = field(default=8000, metadata={"help": "Merges of the BPE; the paper's are 40,000."})


@dataclass
class TrainingArguments(GPT1PretrainingArguments):
    """The paper's arguments, except for what a small model and a small corpus need."""

    per_device_train_batch_size: int = field(default=8, metadata={"help": "Blocks per device and micro-batch."})
    num_train_epochs: float = field(default=1.0, metadata={"help": "Epochs over the corpus."})
    warmup_steps: float = field(default=0.05, metadata={"help": "A fraction of all updates, or their number."})


def main(arguments: list[str] | None = None) -> None:
    args, training_args = HfArgumentParser((Arguments, TrainingArguments)).parse_args_into_dataclasses(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    set_seed(training_args.seed)
    tokenizer = GPT1Tokenizer.train(training_texts(args.train_files), args.num_merges)
    model = GPT1ForCausalLM(GPT1Config(vocab_size=len(tokenizer), **SIZE))
    trainer = GPT1PretrainingTrainer(
        model,
        training_args,
        data_collator=BlockCollator(tokenizer),
        train_dataset=load_blocks(args.train_files, tokenizer),  # blocks of 512 tokens
        eval_dataset=load_blocks(args.validation_files, tokenizer),
        processing_class=tokenizer,
        callbacks=[SampleCallback(tokenizer, "it was")],
    )
    trainer.train()
    trainer.save_model()
    trainer.log_metrics("eval", trainer.evaluate())


if __name__ == "__main__":
    main()
