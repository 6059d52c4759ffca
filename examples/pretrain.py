r"""Pre-trains GPT-1 on text files, with its own BPE or a given tokenizer.

A small model with a BPE of its own, on a folder of books (a file is a document):

    python examples/pretrain.py --train_files "books/train/*.txt" --validation_files "books/validation/*.txt" \
        --num_merges 8000 --config_overrides hidden_size=256,num_hidden_layers=4,num_attention_heads=4 \
        --per_device_train_batch_size 8 --num_train_epochs 1 --warmup_steps 0.05 --output_dir out/books

The paper's 117 M parameters and 40 000 merges on several GPUs:

    accelerate launch --config_file examples/accelerate/ddp.yaml --num_processes 8 examples/pretrain.py \
        --train_files "books/train/*.txt" --bf16 --output_dir out/gpt1

Further training of a checkpoint: `--model_name_or_path out/books` instead of `--num_merges` and `--config_overrides`.
An interrupted run goes on with `--resume_from_checkpoint true`; `--help` lists every argument.

Written to the output folder: model, tokenizer, card (README.md), train_results.json, eval_results.json and
all_results.json. `examples/finetune.py --model_name_or_path` takes the folder as it is.
"""

import glob
import logging
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from datasets import Dataset, load_dataset
from finetune import check_output_folder, parse_overrides, where_to_resume
from transformers import DataCollatorForLanguageModeling, HfArgumentParser, set_seed

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, GPT1PretrainingArguments, GPT1PretrainingTrainer
from tokenization import GPT1Tokenizer, pack_batch

logger = logging.getLogger(__name__)


@dataclass
class PretrainingRunArguments:
    """What to pre-train, and on what."""

    train_files: list[str] = field(
        metadata={"help": "Text files to train on, or patterns of them; one document each."}
    )
    validation_files: list[str] = field(
        default_factory=list, metadata={"help": "Text files to measure perplexity on, or patterns of them."}
    )
    model_name_or_path: str | None = field(
        default=None, metadata={"help": "A checkpoint to train further: folder or hub id. Default: a fresh model."}
    )
    config_overrides: str | None = field(
        default=None,
        metadata={"help": "Fields of a fresh model: hidden_size=256,num_hidden_layers=4. Default: the paper's size."},
    )
    tokenizer_name: str | None = field(
        default=None, metadata={"help": "Tokenizer: folder or hub id. Default: the model's, or a BPE of the files."}
    )
    num_merges: int = field(default=40_000, metadata={"help": "Merges of the BPE, where one is trained."})
    block_length: int | None = field(
        default=None, metadata={"help": "Tokens of a block. Default: the positions that the model has."}
    )
    num_workers: int | None = field(default=None, metadata={"help": "Processes that tokenise. Default: one."})
    prompt: str = field(default="it was", metadata={"help": "Text that is continued at the end."})

    def __post_init__(self):
        if self.model_name_or_path is not None and self.config_overrides is not None:
            raise ValueError(
                f"--config_overrides {self.config_overrides} describes a fresh model, but --model_name_or_path "
                f"{self.model_name_or_path} is a trained one. Leave one of them out."
            )
        self.train_files = find_files("--train_files", self.train_files)
        self.validation_files = find_files("--validation_files", self.validation_files)


def find_files(flag: str, patterns: list[str]) -> list[str]:
    files = []
    for pattern in patterns:
        found = sorted(path for path in glob.glob(pattern, recursive=True) if Path(path).is_file())
        if not found:
            raise ValueError(
                f"{flag} {pattern} matches no file. Pass the path of a text file, or a pattern such as *.txt."
            )
        files += found
    return files


def load_tokenizer(run_args: PretrainingRunArguments, training_args: GPT1PretrainingArguments) -> GPT1Tokenizer:
    """The given tokenizer, or a BPE of the training files that the main process trains and the others read."""
    given = run_args.tokenizer_name or run_args.model_name_or_path
    if given is not None:
        return GPT1Tokenizer.from_pretrained(given)
    resumed = where_to_resume(training_args) is not None
    with training_args.main_process_first(local=False, desc="training the BPE"):
        if training_args.process_index == 0 and not resumed:
            GPT1Tokenizer.train(run_args.train_files, run_args.num_merges).save_pretrained(training_args.output_dir)
        return GPT1Tokenizer.from_pretrained(training_args.output_dir)


def load_model(run_args: PretrainingRunArguments, tokenizer: GPT1Tokenizer) -> GPT1ForCausalLM:
    if run_args.model_name_or_path is not None:
        return GPT1ForCausalLM.from_pretrained(run_args.model_name_or_path)
    return GPT1ForCausalLM(GPT1Config(vocab_size=len(tokenizer), **parse_overrides(run_args.config_overrides or "")))


def load_blocks(
    files: list[str], tokenizer: GPT1Tokenizer, block_length: int, run_args: PretrainingRunArguments
) -> Dataset | None:
    """Rows of `input_ids`, cut from each file on its own; the last row of a file is shorter."""
    if not files:
        return None
    documents = load_dataset("text", data_files=files, sample_by="document", split="train")

    def to_blocks(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        ids = tokenizer(batch["text"], add_special_tokens=False, return_attention_mask=False, verbose=False)
        return pack_batch(ids, block_length)

    blocks = documents.map(
        to_blocks,
        batched=True,
        batch_size=4,
        remove_columns=["text"],
        num_proc=run_args.num_workers,
        desc="tokenising",
    )
    return blocks.filter(lambda ids: len(ids) > 1, input_columns="input_ids", desc="dropping blocks of one token")


def continue_text(model: GPT1ForCausalLM, tokenizer: GPT1Tokenizer, prompt: str) -> str:
    """Up to 40 sampled tokens after the prompt."""
    inputs = tokenizer(prompt, add_special_tokens=False, return_tensors="pt").to(model.device)
    room = model.config.max_position_embeddings - inputs["input_ids"].shape[1]
    with torch.no_grad():
        ids = model.eval().generate(**inputs, do_sample=True, top_k=40, max_new_tokens=min(40, room))
    return tokenizer.decode(ids[0])


def main(arguments: list[str] | None = None) -> None:
    parser = HfArgumentParser((PretrainingRunArguments, GPT1PretrainingArguments))
    run_args, training_args = parser.parse_args_into_dataclasses(arguments)
    check_output_folder(training_args)
    logging.basicConfig(format="%(message)s")
    logger.setLevel(logging.INFO if training_args.should_log else logging.WARNING)
    if training_args.should_log:
        transformers.logging.set_verbosity_warning()
    set_seed(training_args.seed)

    tokenizer = load_tokenizer(run_args, training_args)
    model = load_model(run_args, tokenizer)
    block_length = run_args.block_length or model.config.max_position_embeddings
    with training_args.main_process_first(desc="tokenising"):
        train_blocks = load_blocks(run_args.train_files, tokenizer, block_length, run_args)
        validation_blocks = load_blocks(run_args.validation_files, tokenizer, block_length, run_args)
    logger.info(f"{len(train_blocks)} blocks of up to {block_length} tokens from {len(run_args.train_files)} files")

    trainer = GPT1PretrainingTrainer(
        model,
        training_args,
        # Pads the last row of each file; the padding is no target.
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        train_dataset=train_blocks,
        eval_dataset=validation_blocks,
        processing_class=tokenizer,
    )
    result = trainer.train(resume_from_checkpoint=where_to_resume(training_args))
    trainer.save_model()
    trainer.log_metrics("train", result.metrics)
    trainer.save_metrics("train", result.metrics)
    if validation_blocks is not None:
        metrics = trainer.evaluate()
        trainer.log_metrics("eval", metrics)
        trainer.save_metrics("eval", metrics)
    if training_args.push_to_hub:
        trainer.push_to_hub()
    else:
        trainer.create_model_card()
    if trainer.is_world_process_zero():
        logger.info(continue_text(trainer.accelerator.unwrap_model(trainer.model), tokenizer, run_args.prompt))
    trainer.accelerator.wait_for_everyone()
    trainer.accelerator.end_training()  # a process group left open can abort the process as it exits


if __name__ == "__main__":
    main()
