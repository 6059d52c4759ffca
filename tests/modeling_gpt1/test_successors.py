"""GPT-2 and GPT-3 as configurations: fields, sizes, initial weights, the place of the norms, locally banded attention.

GPT-Neo of transformers, an independent decoder with dense and banded layers in turn, is the reference of the whole.
"""

import json
import math

import pytest
import torch
from support.packing import planned
from support.refusals import refusal
from support.tensors import close, random_ids
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers import (
    DynamicCache,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    StaticCache,
    masking_utils,
)
from transformers.integrations import flex_attention as flex

from modeling_gpt1 import (
    CausalLMScorer,
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1Model,
    ScoringRequest,
    packing_gpt1,
)
from modeling_gpt1.packing_gpt1 import row_masks
from modeling_gpt1.training import cpu_attention
from modeling_gpt1.training.cpu_attention import choose_cpu_attention
from modeling_gpt1.training.measures import training_flops_per_token

GPT2 = {"do_layer_norm_before": True, "rescale_prenorm_residual": True}
GPT3 = {**GPT2, "sliding_window": 3}
SMALL = {**GPT2, "vocab_size": 50257}
PADDED = {"left": [[1] * 9, [0] * 4 + [1] * 5], "right": [[1] * 9, [1] * 5 + [0] * 4], "none": [[1] * 9, [1] * 9]}


# ---- Fields


def test_the_default_is_gpt1(tmp_path):
    """Without an attribute `layer_types`: where there is one, `generate` makes masks that older code cannot read."""
    config = GPT1Config()
    assert config.do_layer_norm_before is config.rescale_prenorm_residual is False
    assert config.sliding_window is None
    assert config.attention_of_layers == ["full_attention"] * 12
    config.save_pretrained(tmp_path)
    for saved in (config.to_dict(), json.loads((tmp_path / "config.json").read_text())):
        assert "layer_types" not in saved
    assert not hasattr(GPT1Config.from_pretrained(tmp_path), "layer_types")
    assert not hasattr(GPT1Config(layer_types=None), "layer_types")


def test_a_band_alone_means_dense_and_banded_layers_in_turn(tmp_path):
    config = GPT1Config(n_layer=5, sliding_window=7)
    in_turn = ["full_attention", "sliding_attention"] * 2 + ["full_attention"]
    assert config.layer_types == config.attention_of_layers == in_turn
    config.save_pretrained(tmp_path)
    opened = GPT1Config.from_pretrained(tmp_path)
    assert (opened.layer_types, opened.sliding_window) == (in_turn, 7)
    assert GPT1Config.from_pretrained(tmp_path, sliding_window=9).layer_types == in_turn
    banded = ["sliding_attention"]
    assert GPT1Config(n_layer=1, sliding_window=7, layer_types=banded).attention_of_layers == banded
    GPT1Config(n_layer=5).save_pretrained(tmp_path)
    assert GPT1Config.from_pretrained(tmp_path, sliding_window=9).attention_of_layers == in_turn


@pytest.mark.parametrize(
    ("fields", "given", "needed"),
    [
        ({"sliding_window": 0}, "`sliding_window` is 0", "at least 1"),
        ({"num_hidden_layers": 3}, "`num_hidden_layers` (3)", "the number of `layer_types` (2)"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "'chunked_attention'", "'full_attention' (dense)"),
        ({"sliding_window": None}, "'sliding_attention', but `sliding_window` is None", "Pass the number of tokens"),
    ],
)
def test_impossible_values_are_refused(tiny_model, tmp_path, fields, given, needed):
    """Also by `from_pretrained`, where they change a configuration that was valid when it was made."""
    in_turn = {"num_hidden_layers": 2, "sliding_window": 3, "layer_types": ["full_attention", "sliding_attention"]}
    tiny_model(GPT1ForCausalLM, **GPT2, **in_turn).save_pretrained(tmp_path)
    for message in (
        refusal(GPT1Config, **{**in_turn, **fields}),
        refusal(GPT1ForCausalLM.from_pretrained, tmp_path, **fields),
    ):
        assert given in message
        assert needed in message
    valid = GPT1ForCausalLM.from_pretrained(tmp_path, num_hidden_layers=1, layer_types=["sliding_attention"])
    assert valid.transformer.h[0].attn.sliding_window == 3


@pytest.mark.parametrize(
    ("fields", "number"),
    [
        # 12 blocks of 7 087 872, the last norm's 2 · 768, and 768 for each token and position.
        ({**SMALL, "max_position_embeddings": 1024}, 124_439_808),
        ({**SMALL, "max_position_embeddings": 2048, "sliding_window": 256}, 125_226_240),
    ],
    ids=["gpt2", "gpt3"],
)
def test_the_small_models_have_the_published_number_of_weights(fields, number):
    with torch.device("meta"):
        model = GPT1ForCausalLM(GPT1Config(**fields))
        theirs = GPT2LMHeadModel(GPT2Config(n_positions=fields["max_position_embeddings"]))
    model.tie_weights()
    assert model.num_parameters() == theirs.num_parameters() == number
    assert number == 12 * 7_087_872 + 2 * 768 + 768 * (50257 + fields["max_position_embeddings"])


def test_weights_that_end_in_the_residual_start_smaller(tiny_config):
    """σ / √N with N = 2 · 8 residual layers, as transformers' GPT-2 draws them, and no other weight."""
    torch.manual_seed(0)
    ours = GPT1ForCausalLM(tiny_config(num_hidden_layers=8, hidden_size=64, **GPT2))
    sizes = {"vocab_size": 101, "n_positions": 24, "bos_token_id": None, "eos_token_id": None}
    for model in (ours, GPT2LMHeadModel(GPT2Config(**sizes, n_embd=64, n_layer=8, n_head=4))):
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight", "c_proj.weight")):
                assert weight.std().item() == pytest.approx(0.02 / math.sqrt(2 * 8), rel=0.06), name
            elif ".ln_" not in name and name.endswith("weight"):
                assert weight.std().item() == pytest.approx(0.02, rel=0.06), name
            elif name.endswith("bias"):
                assert weight.abs().max() == 0, name
    as_gpt1 = GPT1ForCausalLM(tiny_config(num_hidden_layers=1, hidden_size=64, do_layer_norm_before=True))
    assert as_gpt1.transformer.h[0].mlp.down_proj.weight.std().item() == pytest.approx(0.02, rel=0.06)


@pytest.fixture
def neo_and_ours(randomise, tiny_config):
    """Makes a random GPT-Neo and ours with its weights; GPT-Neo has no 1/√d in attention, and no biases before it."""

    def make(**fields):
        sizes = {"vocab_size": 101, "hidden_size": 32, "num_heads": 4, "max_position_embeddings": 24}
        types = {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 3}
        dropouts = {"embed_dropout": 0.0, "resid_dropout": 0.0, "attention_dropout": 0.0}
        theirs = randomise(GPTNeoForCausalLM(GPTNeoConfig(**sizes, **types, **dropouts, attn_implementation="eager")))
        ours = GPT1ForCausalLM(tiny_config(**{**GPT3, **fields}))
        weights = theirs.state_dict()
        for name, weight in ours.state_dict().items():
            name = name.replace("tokens_embed", "wte").replace("positions_embed", "wpe")
            name = name.replace("up_proj", "c_fc").replace("down_proj", "c_proj")
            attention = name.replace(".attn.o_proj", ".attn.attention.out_proj").replace(".attn.", ".attn.attention.")
            name = attention.replace("attention.attention", "attention") if ".attn." in name else name
            if name.endswith("_proj.bias") and name not in weights:
                weight.zero_()
            else:
                weight.copy_(weights[name] * (8**0.5 if "q_proj" in name else 1))
        return theirs.eval(), ours.eval()

    return make


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_are_those_of_gpt_neo(neo_and_ours, side, implementation):
    theirs, ours = neo_and_ours()
    ours.set_attn_implementation(implementation)
    mask = torch.tensor(PADDED[side])
    batch = {"input_ids": random_ids(2, 9), "attention_mask": mask}
    expected = theirs(**batch, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits
    assert expected.std() > 1
    close(ours(**batch).logits[mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize(
    "fault",
    [
        {"sliding_window": 4},
        {"layer_types": ["sliding_attention", "full_attention"]},
        {"layer_types": ["full_attention"] * 2},
        {"hidden_act": "gelu"},
    ],
    ids=lambda fault: next(iter(fault)),
)
def test_the_comparison_sees_a_wrong_model(neo_and_ours, fault):
    theirs, ours = neo_and_ours(**fault)
    ids = random_ids(2, 9)
    with pytest.raises(AssertionError):
        close(ours(ids).logits, theirs(ids).logits)


def test_blocks_of_banded_training_are_plain_attention_under_the_same_noise(tiny_model, monkeypatch):
    """Gradients of the model, whose dropout in the blocks drops nothing."""
    calls = []

    def kept_bits(weights, num_dropped, generator):
        calls.append(num_dropped)
        return torch.full(weights.shape, -1, dtype=torch.int32)

    def dropout(tensor, p, training, inplace=False):
        return tensor / (1 - p)

    monkeypatch.setattr(cpu_attention, "_kept_bits", kept_bits)
    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
    gradients = {}
    for implementation in ("eager", "sdpa"):
        model = tiny_model(GPT1ForCausalLM, attn_pdrop=0.4, **GPT3).train()
        model.set_attn_implementation(implementation)
        choose_cpu_attention(model, "cpu")
        ids = random_ids(2, 9)
        model(ids, attention_mask=torch.tensor(PADDED["right"]), labels=ids).loss.backward()
        gradients[implementation] = {name: weight.grad for name, weight in model.named_parameters()}
    assert calls == [round(0.4 * 2**16)] * 4  # forward and backward of two layers
    close(gradients["sdpa"], gradients["eager"])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_agrees(randomise, tiny_config, monkeypatch):
    """Its band, computed by torch without a compiled kernel; the test of GPT-1's dense layers compiles one."""

    def make_block_mask(**kwargs):
        return create_block_mask(**{**kwargs, "_compile": False})

    monkeypatch.setattr(flex, "WrappedFlexAttention", lambda training: lambda: flex_attention)
    monkeypatch.setattr(masking_utils, "create_block_mask", make_block_mask)
    mask, states = torch.tensor(PADDED["left"]), {}
    for implementation in ("eager", "flex_attention"):
        model = randomise(GPT1Model(tiny_config(**GPT3))).eval()
        model.set_attn_implementation(implementation)
        with torch.no_grad():
            states[implementation] = model(random_ids(2, 9), attention_mask=mask).last_hidden_state[mask.bool()]
    close(states["flex_attention"], states["eager"])


def test_training_compiles_to_one_graph_and_with_checkpointing_is_the_same(tiny_model):
    batch = {"input_ids": random_ids(2, 9), "labels": random_ids(2, 9), "attention_mask": torch.tensor(PADDED["left"])}
    gradients = {}
    for way in ("plain", "compiled", "checkpointed"):
        model = tiny_model(GPT1ForCausalLM, **GPT3).train()
        if way == "checkpointed":
            model.gradient_checkpointing_enable({"use_reentrant": False})
        step = torch.compile(model, fullgraph=True, backend="eager") if way == "compiled" else model
        step(**batch).loss.backward()
        gradients[way] = {name: weight.grad for name, weight in model.named_parameters()}
    close(gradients["compiled"], gradients["plain"])
    close(gradients["checkpointed"], gradients["plain"])


# ---- Caches and generation


@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("knows_the_layers", [True, False])
def test_calls_that_share_a_dynamic_cache_are_one_call(tiny_model, window, knows_the_layers):
    """Also in the cache of someone who does not tell it which layers are banded, and which keeps all tokens."""
    model = tiny_model(GPT1ForCausalLM, **{**GPT3, "sliding_window": window})
    ids, cache = random_ids(2, 9), DynamicCache(config=model.config if knows_the_layers else None)
    parts = [model(part, past_key_values=cache, use_cache=True).logits for part in ids.split([4, 1, 4], dim=1)]
    close(torch.cat(parts, dim=1), model(ids, use_cache=False).logits)


@pytest.fixture
def banded_model(tiny_model):
    model = tiny_model(GPT1ForCausalLM, tie_word_embeddings=False, **GPT3)
    model.generation_config = GenerationConfig(pad_token_id=0)
    return model


def test_a_decoding_step_with_a_static_cache_compiles_to_one_graph(banded_model):
    """With the masks of both kinds that `generate` makes before it."""
    ids, cache = random_ids(2, 10), StaticCache(banded_model.config, max_cache_len=24)
    expected = banded_model(ids, use_cache=False).logits
    step = torch.compile(banded_model, fullgraph=True, backend="eager")
    with torch.no_grad():
        banded_model(ids[:, :7], past_key_values=cache)
        for place in range(7, 10):
            mask = torch.ones(2, place + 1, dtype=torch.int64)
            inputs = banded_model.prepare_inputs_for_generation(
                ids[:, : place + 1], attention_mask=mask, past_key_values=cache, next_sequence_length=1
            )
            assert set(inputs["attention_mask"]) == {"full_attention", "sliding_attention"}
            close(step(**inputs).logits[:, -1], expected[:, place])


def test_scores_of_shared_contexts_are_those_of_whole_sequences(banded_model):
    requests = [
        ScoringRequest(random_ids(length, seed=length).tolist(), [random_ids(n, seed=n).tolist() for n in (1, 3, 6)])
        for length in (2, 9, 5)
    ]
    scorer = CausalLMScorer(banded_model)
    shared = scorer.score_ids(requests)
    whole = (scorer.score_ids([(context, [ids])])[0] for context, several in requests for ids in several)
    for ours, expected in zip(sum(shared, []), sum(whole, []), strict=True):
        assert ours.token_log_probs == pytest.approx(expected.token_log_probs, abs=1e-5)


def choices(num_examples=4):
    """Multiple choice `[B, C, T]` with common contexts of 7 tokens, padded on the right."""
    ids = random_ids(num_examples, 3, 12)
    ids[:, :, :7] = ids[:, :1, :7]
    lengths = 9 + torch.arange(num_examples * 3).view(num_examples, 3, 1) % 4
    mask = (torch.arange(12) < lengths).long()
    return {"input_ids": ids, "attention_mask": mask, "labels": torch.arange(num_examples) % 3}


def losses_and_gradients(model, batch):
    model.zero_grad()
    outputs = model(**batch)
    outputs.loss.backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    return {"task_logits": outputs.task_logits.detach(), "lm_loss": outputs.lm_loss.detach(), **gradients}


@pytest.mark.parametrize("shared", [True, False], ids=["common contexts", "ragged rows"])
def test_packed_task_sequences_are_as_padded_ones(tiny_model, monkeypatch, shared):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice" if shared else "classification", **GPT3)
    batch = choices()
    if not shared:
        batch = {name: tensor[:, 0] if tensor.dim() == 3 else tensor % 2 for name, tensor in batch.items()}
    packed = losses_and_gradients(model, planned(batch))
    made = planned(batch)["plan"]
    assert (made.row_is_shared is not None) == shared
    close(packed, losses_and_gradients(model, batch))
    # Negative control: without the band the packed sequences are others.
    unbanded = dict.fromkeys(("full_attention", "sliding_attention"), row_masks(made, None)["full_attention"])
    monkeypatch.setattr(packing_gpt1, "row_masks", lambda *args: unbanded)
    with pytest.raises(AssertionError):
        close(packed, losses_and_gradients(model, planned(batch)))


def test_operations_of_training_count_the_bands():
    with torch.device("meta"):
        model = GPT1ForCausalLM(GPT1Config(**SMALL, max_position_embeddings=2048, sliding_window=256))
    matrices = 12 * 12 * 768**2 + 768 * 50257
    assert training_flops_per_token(model) == 6 * matrices + 12 * 768 * (6 * 2048 + 6 * 256)
