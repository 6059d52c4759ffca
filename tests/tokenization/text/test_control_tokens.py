"""Control tokens for a model whose vocabulary was padded."""

from types import SimpleNamespace

import pytest

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM
from tokenization import GPT1Tokenizer, add_control_tokens
from tokenization.text.control_tokens import check_vocabulary, has_size_for

SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}


def make_tokenizer(num_tokens):
    pieces = ["<unk>", *(f"{chr(0x4E00 + index)}</w>" for index in range(num_tokens - 1))]
    return GPT1Tokenizer(vocab={piece: index for index, piece in enumerate(pieces)}, merges=[])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("num_tokens, padded, grown", [(98, 128, 128), (126, 128, 129), (128, 128, 131)])
def test_a_padded_vocabulary_grows_only_if_it_must(num_tokens, padded, grown, when):
    tokenizer = make_tokenizer(num_tokens)
    model = GPT1ForCausalLM(GPT1Config(vocab_size=num_tokens, **SIZES))
    if when == "before":
        model.resize_token_embeddings(num_tokens, pad_to_multiple_of=64)
        assert model.config.vocab_size == padded
        assert add_control_tokens(tokenizer, model) == 3
        assert model.config.vocab_size == grown
    else:
        add_control_tokens(tokenizer, model)
        model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)
        grown = model.config.vocab_size
    assert add_control_tokens(tokenizer, model) == 0  # as where it is opened again
    assert model.config.vocab_size == len(model.get_input_embeddings().weight) == grown
    assert model.config.extract_token_id == tokenizer.extract_token_id == num_tokens + 2
    check_vocabulary(model.config, tokenizer)


@pytest.mark.parametrize(
    "vocab_size, num_tokens, num_shards, fits",
    [
        *[(40_481, 40_481, 1, True), (40_512, 40_481, 1, True), (40_664, 40_481, 23, True)],
        *[(40_481, 40_478, 1, False), (40_478, 40_481, 1, False), (40_664, 40_481, 1, False)],
    ],
)
def test_a_vocabulary_fits_a_model_up_to_the_next_multiple(vocab_size, num_tokens, num_shards, fits):
    config = SimpleNamespace(vocab_size=vocab_size, distributed_config=SimpleNamespace(fsdp_size=num_shards))
    assert has_size_for(config, num_tokens) is fits


def test_a_check_completes_model_and_tokenizer_from_each_other():
    tokenizer = make_tokenizer(8)
    add_control_tokens(tokenizer)
    config = GPT1Config(vocab_size=len(tokenizer), max_position_embeddings=16, **SIZES)
    assert (config.extract_token_id, tokenizer.model_max_length > 16) == (None, True)
    check_vocabulary(config, tokenizer)
    assert (config.start_token_id, config.delimiter_token_id, config.extract_token_id) == (8, 9, 10)
    assert tokenizer.model_max_length == 16
