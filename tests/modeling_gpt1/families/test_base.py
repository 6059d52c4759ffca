"""Configurations of the families: common names of sizes, own names, and the lengths of blocks."""

import pytest
from support.families import make_family_tokenizer
from support.refusals import refusal
from transformers import AutoTokenizer, DistilBertConfig, LlamaConfig, RobertaConfig, T5Config

from modeling_gpt1.families import FAMILIES, family_to_pretrain
from tokenization import GPT1Tokenizer

TRANSFORMERS = [name for name in FAMILIES if name != "gpt1-lstm"]


def sizes_of(config):
    """Width, layers, heads and inner width, by the names of each configuration."""
    if config.model_type == "bart":
        sides = [
            (config.encoder_layers, config.encoder_attention_heads, config.encoder_ffn_dim),
            (config.decoder_layers, config.decoder_attention_heads, config.decoder_ffn_dim),
        ]
        assert sides[0][1:] == sides[1][1:]
        return config.d_model, sides[0][0] + sides[1][0], *sides[0][1:]
    inner = config.n_inner if config.model_type == "gpt2" else config.intermediate_size
    return config.hidden_size, config.num_hidden_layers, config.num_attention_heads, inner


@pytest.mark.parametrize("family", TRANSFORMERS)
def test_sizes_have_common_names(family):
    family = FAMILIES[family]
    assert sizes_of(family.make_config()) == (768, 12, 12, 3072)
    assert family.block_length(family.make_config(pad_token_id=0)) == 512
    sizes = {"hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 48}
    config = family.make_config(**sizes, max_position_embeddings=67, pad_token_id=0)
    assert sizes_of(config) == (32, 4, 2, 48)
    assert config.max_position_embeddings == 67
    assert family.block_length(config) == 67 - {"bert": 3, "albert": 3, "roberta": 3, "bart": 2}.get(family.name, 0)


def test_sizes_have_the_configurations_own_names_too():
    gpt2 = FAMILIES["gpt2"].make_config(n_embd=24, n_head=2, n_layer=3, n_positions=40, n_inner=50)
    assert sizes_of(gpt2) == (24, 3, 2, 50)
    assert gpt2.max_position_embeddings == 40
    bart = FAMILIES["bart"].make_config(d_model=24, encoder_layers=3, decoder_attention_heads=4)
    assert (bart.d_model, bart.encoder_layers, bart.decoder_layers) == (24, 3, 6)
    assert (bart.encoder_attention_heads, bart.decoder_attention_heads) == (12, 4)
    bart = FAMILIES["bart"].make_config(num_hidden_layers=3)
    assert (bart.encoder_layers, bart.decoder_layers) == (2, 1)


def test_positions_of_robertas_own_padding():
    config = RobertaConfig(max_position_embeddings=514, pad_token_id=1)
    family = FAMILIES["roberta"]
    assert (family.longest_sequence(config), family.block_length(config)) == (512, 510)


@pytest.mark.parametrize("config", [DistilBertConfig(), T5Config(), LlamaConfig()])
def test_a_folder_of_no_family_is_refused(config, tmp_path):
    """It once opened as a GPT-1 of random weights."""
    config.save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match=f"type {config.model_type!r}, which cannot be pre-trained here.* or --family"
    ):
        family_to_pretrain(str(tmp_path))


def test_a_block_has_positions_for_all_its_tokens():
    """The LSTM alone has none."""
    for name, needed in (("gpt1", 65), ("gpt3", 65), ("bart", 67)):
        config = FAMILIES[name].make_config(max_position_embeddings=64)
        with pytest.raises(ValueError, match=f"65 tokens .* need {needed} positions with {name}, but .* 64"):
            FAMILIES[name].block_length(config, 65)
        assert FAMILIES[name].block_length(config, 0) == 0
    assert FAMILIES["gpt1-lstm"].block_length(FAMILIES["gpt1-lstm"].make_config(), 5000) == 5000


@pytest.fixture(scope="module")
def bpe():
    return GPT1Tokenizer.train(iter(["the cat sat", "a dog ran home"]), num_merges=20, show_progress=False)


def test_a_tokenizer_of_another_library_has_its_own_form(tmp_path):
    bert = make_family_tokenizer("bert")
    made = FAMILIES["bart"].pretraining_tokenizer(bert)
    made.save_pretrained(tmp_path)
    assert set(AutoTokenizer.from_pretrained(tmp_path)("a", "b")) == {"input_ids", "attention_mask"}
    config = FAMILIES["bart"].make_config(made)
    ends = (config.bos_token_id, config.eos_token_id, config.decoder_start_token_id, config.forced_eos_token_id)
    assert ends == (bert.cls_token_id, *[bert.sep_token_id] * 3)
    assert None not in ends


@pytest.mark.parametrize("family", ["gpt1", "gpt1-lstm", "gpt2", "gpt3"])
def test_a_tokenizer_of_masked_models_is_not_for_those_that_continue_text(family, bpe):
    with pytest.raises(ValueError, match=rf"writes \[CLS\] before each text.*but {family} reads texts alone"):
        FAMILIES[family].pretraining_tokenizer(FAMILIES["bert"].pretraining_tokenizer(bpe))


def test_the_family_of_a_folder(tmp_path):
    found = {}
    for name, family in FAMILIES.items():
        family.config_class().save_pretrained(tmp_path / name)
        found[name] = family_to_pretrain(str(tmp_path / name)).name
    # GPT-2's folders open as GPT-1 with GPT-2's options, GPT-3 is such a configuration.
    assert found == {**{name: name for name in FAMILIES}, "gpt2": "gpt1", "gpt3": "gpt1"}


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "gpt1-lstm"])
def test_the_inner_size_is_four_times_the_width_that_is_given(name):
    """As of GPT-1's own configuration, so that families of one size differ in nothing else."""
    config = FAMILIES[name].make_config(hidden_size=24, num_hidden_layers=2, num_attention_heads=2)
    inner = getattr(config, "n_inner", None) or getattr(config, "encoder_ffn_dim", None) or config.intermediate_size
    assert inner == 96


def test_bart_needs_a_layer_for_each_side():
    message = refusal(FAMILIES["bart"].make_config, num_hidden_layers=1)
    assert "`num_hidden_layers` is 1, but BART's encoder and decoder share them" in message
