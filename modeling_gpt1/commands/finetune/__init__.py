r"""Fine-tunes GPT-1 on a task of the paper or on your own data, with language modelling as auxiliary objective.
Models of other families, such as BERT, BART or Llama, are fine-tuned with transformers' own classifiers.

    gpt1 finetune --task sst2 --model openai-community/openai-gpt \
        --do_train --do_eval --do_predict --output_dir out/sst2
    gpt1 finetune --train_file train.csv --validation_file dev.csv --traversal entailment \
        --columns premise=text hypothesis=claim label=verdict --model my-gpt1 \
        --do_train --do_eval --output_dir out/own
    accelerate launch --num_processes 4 -m modeling_gpt1.commands finetune --task sst2 …

Written to the output folder: model, tokenizer, card (README.md), the results of each split, and predictions.jsonl of
the test split. See docs/finetune.md and docs/own-data.md.
"""

from .arguments import ARGUMENTS, BASICS
from .run import main

__all__ = ["ARGUMENTS", "BASICS", "main"]
