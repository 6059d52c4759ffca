r"""Pre-trains GPT-1 on books or any other text, with a BPE that is learnt from the text or with a given tokenizer.

    gpt1 pretrain --train_files "books/train/*.txt" --validation_files "books/validation/*.txt" \
        --num_merges 8000 --config_overrides hidden_size=256,num_hidden_layers=4,num_attention_heads=4 \
        --per_device_train_batch_size 8 --num_train_epochs 1 --warmup_steps 0.05 --output_dir out/books
    gpt1 pretrain --dataset_name wikitext --dataset_config_name wikitext-103-raw-v1 --streaming \
        --max_steps 10000 --validation_split validation --output_dir out/wikitext
    accelerate launch --config_file "$(gpt1 --launch-configs)"/ddp.yaml --num_processes 8 \
        -m modeling_gpt1.commands pretrain --train_files "books/train/*.txt" --bf16 --output_dir out/gpt1

Written to the output folder: model, tokenizer, card (README.md), the log trainer_state.json and the results. See
docs/pretrain.md, for many machines docs/scale.md.
"""

from .arguments import ARGUMENTS, BASICS, PretrainingParser
from .run import main

PARSER = PretrainingParser

__all__ = ["ARGUMENTS", "BASICS", "PARSER", "main"]
