"""Tiny random models of other families with tokenizers of their classes, and runs of GPT1Trainer on them."""

import functools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from modeling_gpt1 import GPT1Trainer, GPT1TrainingArguments
from support.finetuning import COLUMNS, WORDS, Rows, settings_of
from tokenization import TraversalCollator

EXAMPLES_PER_UPDATE = 8
POSITIONS = 96
NO_DROPOUT = {
    "bert": {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "distilbert": {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0},
    "bart": {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "classifier_dropout": 0.0},
    "t5": {"dropout_rate": 0.0, "classifier_dropout": 0.0},
    "gpt2": {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0},
}
NO_DROPOUT["roberta"] = NO_DROPOUT["bert"]
NO_DROPOUT["albert"] = {**NO_DROPOUT["bert"], "classifier_dropout_prob": 0.0}
NO_DROPOUT["electra"] = {**NO_DROPOUT["bert"], "summary_last_dropout": 0.0}
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 64, "max_position_embeddings": POSITIONS}
# Random weights of the usual size would give all rows nearly the same score.
CONFIGS = {
    "bert": ("BertConfig", {**SIZES, "initializer_range": 0.2}),
    "roberta": ("RobertaConfig", {**SIZES, "max_position_embeddings": POSITIONS + 2, "initializer_range": 0.2}),
    "albert": ("AlbertConfig", {**SIZES, "embedding_size": 16, "initializer_range": 0.2}),
    "distilbert": (
        "DistilBertConfig",
        {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": POSITIONS}
        | {"initializer_range": 0.2},
    ),
    "electra": ("ElectraConfig", {**SIZES, "embedding_size": 16, "initializer_range": 0.2}),
    "modernbert": ("ModernBertConfig", {**SIZES, "initializer_range": 0.2}),
    "bart": (
        "BartConfig",
        {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "init_std": 0.2}
        | {"decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
        | {"max_position_embeddings": POSITIONS},
    ),
    "t5": ("T5Config", {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}),
    "gpt2": (
        "GPT2Config",
        {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": POSITIONS, "initializer_range": 0.2},
    ),
    "llama": ("LlamaConfig", {**SIZES, "initializer_range": 0.2}),
}
FAMILIES = tuple(CONFIGS)
OF_CHOICES = ("bert", "roberta", "albert", "distilbert", "electra", "modernbert")
# Family, traversal and whether a pair is read in both orders.
CASES = {
    **{f"{family} pair": (family, "entailment", False) for family in FAMILIES},
    **{f"{family} choices": (family, "multiple_choice", False) for family in OF_CHOICES},
    "bert both orders": ("bert", "similarity", True),
    "t5 both orders": ("t5", "similarity", True),
}


def make_family_tokenizer(family: str) -> PreTrainedTokenizerBase:
    """Letters as tokens, in the class of the family's tokenizer."""
    letters = sorted(set("".join(WORDS)))
    if family in ("bert", "distilbert", "electra"):
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
        return transformers.BertTokenizer(vocab=_ids(tokens))
    if family in ("roberta", "bart"):
        tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "Ġ", *letters]
        return transformers.RobertaTokenizer(vocab=_ids(tokens), merges=[])
    if family == "albert":
        pieces = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁", *letters]
        return transformers.AlbertTokenizer(vocab=[(piece, -1.0) for piece in pieces])
    if family == "t5":
        pieces = ["<pad>", "</s>", "<unk>", "▁", *letters, "<extra_id_0>"]
        return transformers.T5Tokenizer(vocab=[(piece, -1.0) for piece in pieces], extra_ids=1)
    if family == "gpt2":
        return transformers.GPT2Tokenizer(vocab=_ids(["<|endoftext|>", "Ġ", *letters]), merges=[])
    if family == "llama":
        vocab = _ids(["<unk>", "<s>", "</s>", "▁", *letters])
        return transformers.LlamaTokenizer(vocab=vocab, merges=[], add_bos_token=True)
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Ġ", *letters]  # ModernBERT's has no class of its own
    backend = Tokenizer(models.BPE(vocab=_ids(tokens), merges=[], unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.TokenizersBackend(
        tokenizer_object=backend,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
        model_input_names=["input_ids", "attention_mask"],
    )


def _ids(tokens: list[str]) -> dict[str, int]:
    return {token: index for index, token in enumerate(tokens)}


def make_family_model(family: str, tokenizer: PreTrainedTokenizerBase, head: str, **fields) -> PreTrainedModel:
    """A random model without dropout; `head` ends the name of its class, such as "ForSequenceClassification"."""
    torch.manual_seed(0)
    name, sizes = CONFIGS[family]
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "bos", "eos")}
    if family == "bart":
        ids |= {"decoder_start_token_id": tokenizer.eos_token_id}
    if family == "t5":
        ids |= {"decoder_start_token_id": tokenizer.pad_token_id}
    if family == "modernbert":
        ids |= {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    fields = {**sizes, **NO_DROPOUT.get(family, {}), **ids, **fields}
    config = getattr(transformers, name)(vocab_size=len(tokenizer), **fields)
    return getattr(transformers, f"{name.removesuffix('Config')}{head}")(config)


def write_family(family: str, folder: Path, head: str = "Model") -> Path:
    """A folder as it is after pre-training: a model without head, and the tokenizer beside it."""
    tokenizer = make_family_tokenizer(family)
    make_family_model(family, tokenizer, head).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_family_trainer(
    case: str,
    output_dir: str | os.PathLike,
    batch_size: int,
    accumulation: int,
    num_rows: int = 24,
    compute_loss_func: Callable | None = None,
    **settings,
) -> GPT1Trainer:
    family, traversal, both_orders = CASES[case]
    tokenizer = make_family_tokenizer(family)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    head = "ForMultipleChoice" if traversal == "multiple_choice" else "ForSequenceClassification"
    # The rows of choices have two to four of them.
    rows = "multiple_choice" if traversal == "multiple_choice" else "classification"
    options = {"max_length": POSITIONS, "both_orders": both_orders}
    parts = {"data_collator": TraversalCollator(tokenizer, traversal, COLUMNS[traversal], **options)}
    parts |= {"train_dataset": Rows(rows, num_rows), "eval_dataset": Rows(rows, 11), "processing_class": tokenizer}
    model = make_family_model(family, tokenizer, head)
    args = GPT1TrainingArguments(**settings_of(output_dir, batch_size, accumulation, **settings))
    return GPT1Trainer(model=model, args=args, **parts, compute_loss_func=compute_loss_func)


def record_of(trainer) -> dict:
    trainer.train()
    history = [record for record in trainer.state.log_history if "loss" in record]
    return {
        "log": [{name: record[name] for name in ("loss", "grad_norm")} for record in history],
        "eval_loss": trainer.evaluate()["eval_loss"],
        "weights": trainer.model.state_dict(),
    }


@functools.cache
def whole_record(case: str) -> dict:
    """What one process records that takes each update as one batch; 19 rows: the last of a pass has three."""
    with tempfile.TemporaryDirectory() as folder:
        return record_of(make_family_trainer(case, folder, EXAMPLES_PER_UPDATE, 1, num_rows=19))
