"""Tiny tokenizers made from a few sentences, and tiny models with random weights."""

import json
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

from modeling_gpt1 import GPT1Config
from tokenization.text.tokenization_gpt1 import GPT1Tokenizer

SENTENCES = [
    "the old farmer walked to the market because he needed a new plough .",
    "a quiet girl read the letter twice and then she smiled at her brother .",
    "nobody in the village knew why the river had turned green in the night .",
    "the film was slow , but the last scene made the whole room laugh .",
    "he paid five dollars for the ticket and forgot it on the train .",
]


# transformers' tokenizer for openai-gpt splits it before "'", the released code before "n't".
SPLIT_IN_TWO_WAYS = "he didn't need the ticket"


def byte_level(sentences: list[str]) -> transformers.TokenizersBackend:
    """A tokenizer as GPT-2's: words begin with their space."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    sizes = {"vocab_size": 300, "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    trainer = trainers.BpeTrainer(**sizes, special_tokens=["<|end|>"], show_progress=False)
    backend.train_from_iterator(sentences, trainer)
    return transformers.TokenizersBackend(tokenizer_object=backend, bos_token="<|end|>", eos_token="<|end|>")


def write_bpe(tokenizer: GPT1Tokenizer, folder: Path, vocab="vocab.json", merges="merges.txt") -> None:
    """Two files, by default of the names that openai-gpt's tokenizer has."""
    bpe = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    (folder / vocab).write_text(json.dumps(bpe["vocab"]))
    (folder / merges).write_text("#version: 0.2\n" + "\n".join(map(" ".join, bpe["merges"])) + "\n")


TINY_FIELDS = {"vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY_FIELDS |= {"max_position_embeddings": 24}
TINY_FIELDS |= dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop", "classifier_dropout"), 0.0)


def make_tiny_config(**fields) -> GPT1Config:
    return GPT1Config(**{**TINY_FIELDS, **fields})


def randomise_weights(model: nn.Module, seed: int = 0) -> nn.Module:
    """Every weight random and large, biases and layer norms too, so that no mix-up of two weights stays unseen."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = 0.3 * torch.randn(weight.shape, generator=generator)
        weight.data = (noise + 1 if ".ln_" in name and name.endswith("weight") else noise).to(weight.dtype)
    return model


def make_tiny_model(model_class: type, seed: int = 0, **fields) -> nn.Module:
    if model_class.config_class is GPT1Config:
        config = make_tiny_config(**fields)
    else:
        of_transformer = ("num_attention_heads", "attn_pdrop")
        shared = {name: value for name, value in TINY_FIELDS.items() if name not in of_transformer}
        config = model_class.config_class(**{**shared, "lstm_hidden_size": 24, **fields})
    return randomise_weights(model_class(config), seed).eval()
