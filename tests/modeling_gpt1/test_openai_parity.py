"""GPT-1 against transformers' OpenAIGPT classes at random weights, and one block against a float64 formula.

Each comparison is also made with a model that is wrong in one place, and must then fail.
"""

import copy
import json
import logging
import math

import pytest
import torch
from safetensors.torch import load_file
from support.hub_code import HUB_CODE
from transformers import OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel, OpenAIGPTLMHeadModel, OpenAIGPTModel

from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM, GPT1ForSequenceClassification, GPT1Model
from modeling_gpt1.modeling_gpt1 import GPT1Block
from tokenization import TraversalCollator, add_speaker_tokens

PAIRS = [
    pytest.param(OpenAIGPTModel, GPT1Model, id="base"),
    pytest.param(OpenAIGPTLMHeadModel, GPT1ForCausalLM, id="lm"),
    pytest.param(OpenAIGPTDoubleHeadsModel, GPT1DoubleHeadsModel, id="double-heads"),
]


@pytest.fixture
def openai_model(randomise):
    sizes = {"vocab_size": 101, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24, "num_labels": 1}
    dropouts = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}

    def make(model_class, **fields):
        return randomise(model_class(OpenAIGPTConfig(**{**sizes, **dropouts, **fields}))).eval()

    return make


class Records(logging.Handler):
    def __init__(self):
        super().__init__(level=logging.WARNING)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


@pytest.fixture
def warnings_of_transformers():
    handler, logger = Records(), logging.getLogger("transformers")
    logger.addHandler(handler)
    yield handler.messages
    logger.removeHandler(handler)


@pytest.fixture
def pair(openai_model, tmp_path, warnings_of_transformers):
    """Makes an OpenAIGPT model and ours, read from its folder without a warning, a missing or an unexpected weight."""

    def make(openai_class, our_class, saving=None, fields=None, **overrides):
        theirs = openai_model(openai_class, **(fields or {}))
        theirs.save_pretrained(tmp_path / "openai", **(saving or {}))
        ours, report = our_class.from_pretrained(tmp_path / "openai", output_loading_info=True, **overrides)
        assert {name: keys for name, keys in report.items() if keys} == {}
        assert warnings_of_transformers == []
        return theirs, ours.eval()

    return make


def batch_for(model) -> dict:
    generator = torch.Generator().manual_seed(1)
    if isinstance(model, (OpenAIGPTDoubleHeadsModel, GPT1DoubleHeadsModel)):
        batch = {"input_ids": torch.randint(101, (3, 2, 9), generator=generator)}
        batch["mc_token_ids"] = torch.tensor([[8, 3], [0, 8], [5, 6]])
        return batch
    return {"input_ids": torch.randint(101, (3, 9), generator=generator)}


def outputs_of(model, **batch) -> dict[str, torch.Tensor]:
    """The outputs that both sides have, under our names."""
    if isinstance(model, GPT1DoubleHeadsModel):
        outputs = model(**batch, output_lm_logits=True)
        return {"lm_logits": outputs.lm_logits, "task_logits": outputs.task_logits}
    outputs = model(**batch)
    if isinstance(model, OpenAIGPTDoubleHeadsModel):
        return {"lm_logits": outputs.logits, "task_logits": outputs.mc_logits}
    name = "last_hidden_state" if isinstance(model, (OpenAIGPTModel, GPT1Model)) else "logits"
    return {name: outputs[name]}


def assert_same(ours: dict, theirs: dict, atol: float):
    assert ours.keys() == theirs.keys()
    for name in theirs:
        torch.testing.assert_close(ours[name], theirs[name], atol=atol, rtol=atol, msg=lambda text, at=name: at + text)


LAYERS = {"attn.o_proj": "attn.c_proj", "mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"}


def in_openai_layout(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Our weights or their gradients under OpenAIGPT's names: q, k and v fused, matrices [in, out]."""
    renamed = {}
    for name, tensor in tensors.items():
        if ".attn.q_proj." in name:
            parts = [tensors[name.replace("q_proj", projection)] for projection in ("q_proj", "k_proj", "v_proj")]
            renamed[name.replace("q_proj", "c_attn")] = torch.cat(parts).T if tensor.dim() == 2 else torch.cat(parts)
        elif ".k_proj." in name or ".v_proj." in name:
            continue
        elif any(ours in name for ours in LAYERS):
            ours = next(ours for ours in LAYERS if ours in name)
            renamed[name.replace(ours, LAYERS[ours])] = tensor.T if tensor.dim() == 2 else tensor
        else:
            renamed[name.replace("task_head.score", "multiple_choice_head.summary")] = tensor
    return renamed


def gradients_of(model, outputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Gradients of one fixed random projection of all outputs."""
    model.zero_grad()
    generator = torch.Generator().manual_seed(2)
    total = 0.0
    for name in sorted(outputs):
        projection = torch.randn(outputs[name].shape, generator=generator)
        total = total + (outputs[name] * projection).sum() / math.sqrt(projection.numel())
    total.backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


def swap_queries_and_keys(model):
    for block in model.base_model.h:
        block.attn.q_proj, block.attn.k_proj = block.attn.k_proj, block.attn.q_proj


def norms_first(self, hidden_states, *args, **kwargs):
    attention_output, _ = self.attn(self.ln_1(hidden_states), *args, **kwargs)
    hidden_states = hidden_states + attention_output
    return hidden_states + self.mlp(self.ln_2(hidden_states))


@pytest.mark.parametrize(("openai_class", "our_class"), PAIRS)
def test_outputs_and_gradients_are_those_of_openai_gpt(pair, openai_class, our_class):
    theirs, ours = pair(openai_class, our_class)
    batch = batch_for(theirs)
    their_outputs, our_outputs = outputs_of(theirs, **batch), outputs_of(ours, **batch)
    assert min(output.std().item() for output in their_outputs.values()) > 0.1
    assert_same(our_outputs, their_outputs, atol=1e-5)

    their_gradients, our_gradients = gradients_of(theirs, their_outputs), gradients_of(ours, our_outputs)
    assert min(gradient.abs().max().item() for gradient in their_gradients.values()) > 1e-3
    assert_same(in_openai_layout(our_gradients), their_gradients, atol=1e-4)


@pytest.mark.parametrize("fault", ["exact_gelu", "norms_first", "swapped_queries_and_keys"])
@pytest.mark.parametrize(("openai_class", "our_class"), PAIRS)
def test_the_comparison_sees_a_wrong_model(pair, monkeypatch, openai_class, our_class, fault):
    overrides = {"hidden_act": "gelu"} if fault == "exact_gelu" else {}
    theirs, ours = pair(openai_class, our_class, **overrides)
    if fault == "norms_first":
        monkeypatch.setattr(GPT1Block, "forward", norms_first)
    if fault == "swapped_queries_and_keys":
        swap_queries_and_keys(ours)
    batch = batch_for(theirs)
    their_outputs, our_outputs = outputs_of(theirs, **batch), outputs_of(ours, **batch)
    with pytest.raises(AssertionError):
        assert_same(our_outputs, their_outputs, atol=1e-5)
    their_gradients = gradients_of(theirs, their_outputs)
    our_gradients = in_openai_layout(gradients_of(ours, our_outputs))
    with pytest.raises(AssertionError):
        assert_same(our_gradients, their_gradients, atol=1e-4)


@pytest.mark.parametrize(("openai_class", "our_class"), PAIRS[:2])
def test_token_types_positions_and_right_padding_are_those_of_openai_gpt(pair, openai_class, our_class):
    theirs, ours = pair(openai_class, our_class)
    generator = torch.Generator().manual_seed(3)
    batch = {
        **batch_for(theirs),
        "token_type_ids": torch.randint(101, (3, 9), generator=generator),
        # Increasing: another order would tell packed sequences apart.
        "position_ids": torch.rand(3, 24, generator=generator).argsort(-1)[:, :9].sort(-1).values,
    }
    assert_same(outputs_of(ours, **batch), outputs_of(theirs, **batch), atol=1e-5)
    without_types = {name: tensor for name, tensor in batch.items() if name != "token_type_ids"}
    with pytest.raises(AssertionError):
        assert_same(outputs_of(ours, **without_types), outputs_of(theirs, **batch), atol=1e-5)

    embedded = {"inputs_embeds": torch.randn(2, 5, 32, generator=generator)}
    assert_same(outputs_of(ours, **embedded), outputs_of(theirs, **embedded), atol=1e-5)

    attention_mask = torch.tensor([[1] * 9, [1] * 4 + [0] * 5, [1] + [0] * 8])
    padded = {**batch_for(theirs), "attention_mask": attention_mask}
    (their_output,), (our_output,) = outputs_of(theirs, **padded).values(), outputs_of(ours, **padded).values()
    real = attention_mask.bool()
    torch.testing.assert_close(our_output[real], their_output[real], atol=1e-5, rtol=1e-5)


def test_a_dialogue_is_read_as_by_openai_gpt(pair):
    """Two candidates, speakers by token types, and the language-modelling loss of the last one's reply alone."""
    theirs, ours = pair(OpenAIGPTDoubleHeadsModel, GPT1DoubleHeadsModel)
    generator = torch.Generator().manual_seed(5)
    input_ids = torch.randint(101, (3, 2, 12), generator=generator)
    token_type_ids = torch.where(torch.arange(12) < 7, 90, 91).expand(3, 2, 12)
    shared = {"input_ids": input_ids, "token_type_ids": token_type_ids, "mc_token_ids": torch.full((3, 2), 11)}
    is_reply = (torch.arange(12) >= 7).expand(3, 2, 12) & torch.tensor([False, True])[:, None]
    answers = torch.tensor([1, 1, 1])
    expected = theirs(**shared, labels=input_ids.masked_fill(~is_reply, -100), mc_labels=answers)
    output = ours(**shared, labels=answers, lm_mask=is_reply)
    # Theirs is a mean over all targets; ours over those of each candidate, then over the candidates.
    torch.testing.assert_close(2 * output.lm_loss, expected.loss, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.task_loss, expected.mc_loss, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.task_logits, expected.mc_logits, atol=1e-5, rtol=1e-5)
    (expected.mc_loss + 0.25 * expected.loss).backward()
    output.loss.backward()  # λ = 0.5
    their_gradients = {name: weight.grad for name, weight in theirs.named_parameters()}
    our_gradients = in_openai_layout({name: weight.grad for name, weight in ours.named_parameters()})
    assert_same(our_gradients, their_gradients, atol=1e-4)
    assert (ours(**shared, labels=answers).lm_loss - output.lm_loss).abs() > 0.01


SPEAKERS = ["<speaker1>", "<speaker2>"]
DIALOGUES = [
    {"turns": ["he paid", "nobody smiled", "a film"], "candidates": ["the girl", "the old farmer", "no"], "label": 1},
    {"turns": ["she"], "candidates": ["the river", "he walked to", "a quiet night"], "label": 2},
]


@pytest.mark.parametrize("plan", [True, False])
def test_dialogues_of_the_collator_have_the_losses_of_openai_gpt(pair, tiny_tokenizer, plan):
    """Two speakers, distractors, replies of other lengths; the language model learns the right reply alone."""
    theirs, ours = pair(OpenAIGPTDoubleHeadsModel, GPT1DoubleHeadsModel, None, {"n_positions": 64})
    tokenizer = copy.deepcopy(tiny_tokenizer)
    add_speaker_tokens(tokenizer)
    rows = [{**row, "messages": messages_of(row["turns"])} for row in DIALOGUES]
    columns = {"context": "messages", "choices": "candidates", "label": "label"}
    batch = TraversalCollator(tokenizer, "multiple_choice", columns, 64, lm_on_right_choice=True, plan=plan)(rows)
    assert set(batch["token_type_ids"].unique().tolist()) == set(tokenizer.convert_tokens_to_ids(SPEAKERS))

    targets = batch["input_ids"].masked_fill(~batch["lm_mask"], -100)
    shared = {name: batch[name] for name in ("input_ids", "token_type_ids", "mc_token_ids")}
    lm_loss = 0
    for row in range(len(rows)):  # theirs is a mean over the targets of a batch
        alone = {name: tensor[row : row + 1] for name, tensor in shared.items()}
        lm_loss = lm_loss + theirs(**alone, labels=targets[row : row + 1]).loss / len(rows)
    mc_loss = theirs(**shared, mc_labels=batch["labels"]).mc_loss
    output = ours(**batch)
    torch.testing.assert_close(3 * output.lm_loss, lm_loss, atol=1e-5, rtol=1e-5)  # ours is a mean over the choices
    torch.testing.assert_close(output.task_loss, mc_loss, atol=1e-5, rtol=1e-5)

    (mc_loss + 0.5 * lm_loss / 3).backward()
    output.loss.backward()
    their_gradients = {name: weight.grad for name, weight in theirs.named_parameters()}
    our_gradients = in_openai_layout({name: weight.grad for name, weight in ours.named_parameters()})
    assert_same(our_gradients, their_gradients, atol=1e-4)
    everything = ours(**{name: value for name, value in batch.items() if name != "lm_mask"})
    assert (everything.lm_loss - output.lm_loss).abs() > 0.01


def messages_of(turns: list[str]) -> list[dict]:
    """A conversation that the user begins, behind a persona."""
    roles = ["user", "assistant"] * len(turns)
    messages = [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)]
    return [{"role": "system", "content": "the old farmer"}, *messages]


def test_opening_a_folder_without_a_task_head_does_warn(openai_model, tmp_path, warnings_of_transformers):
    openai_model(OpenAIGPTLMHeadModel).save_pretrained(tmp_path)
    _, report = GPT1ForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert report["missing_keys"] == {"task_head.score.weight", "task_head.score.bias"}
    assert "task_head.score.weight" in "\n".join(warnings_of_transformers)


def test_own_folder_is_plain_linear_layers_and_opens_again(openai_model, tmp_path):
    openai_model(OpenAIGPTLMHeadModel, n_layer=1).save_pretrained(tmp_path / "openai")
    opened = GPT1ForCausalLM.from_pretrained(tmp_path / "openai").eval()
    opened.save_pretrained(tmp_path / "own")
    written = {path.name for path in (tmp_path / "own").iterdir()}
    assert written == {"config.json", "generation_config.json", "model.safetensors", *HUB_CODE}
    assert load_file(tmp_path / "own" / "model.safetensors").keys() == opened.state_dict().keys() - {"lm_head.weight"}
    assert json.loads((tmp_path / "own" / "config.json").read_text())["model_type"] == "gpt1"

    batch = batch_for(opened)
    for config in ({}, {"config": opened.config}):
        reopened = GPT1ForCausalLM.from_pretrained(tmp_path / "own", **config).eval()
        assert reopened.config.model_type == "gpt1"
        assert torch.equal(reopened(**batch).logits, opened(**batch).logits)


@pytest.mark.parametrize(
    ("fields", "saving"),
    [({}, {"max_shard_size": "20KB"}), ({"tie_word_embeddings": False}, {}), ({"afn": "relu"}, {})],
    ids=["in shards", "untied head", "relu"],
)
def test_folders_of_other_kinds_open_alike(pair, fields, saving):
    theirs, ours = pair(OpenAIGPTLMHeadModel, GPT1ForCausalLM, saving, fields)
    assert ours.config.hidden_act == ("relu" if fields.get("afn") else "gelu_pytorch_tanh")
    assert (ours.lm_head.weight is ours.transformer.tokens_embed.weight) == ("tie_word_embeddings" not in fields)
    assert_same(outputs_of(ours, **batch_for(ours)), outputs_of(theirs, **batch_for(ours)), atol=1e-5)


@pytest.mark.parametrize("prefix", ["", "transformer."])
def test_a_folder_of_an_old_release_opens(openai_model, tmp_path, prefix):
    """A `.bin` file with the mask buffers, the names without a prefix, or the tied head beside the embeddings."""
    theirs = openai_model(OpenAIGPTLMHeadModel)
    weights = {prefix + name: weight for name, weight in theirs.transformer.state_dict().items()}
    weights |= {f"{prefix}h.{layer}.attn.bias": torch.ones(1, 1, 24, 24) for layer in range(2)}
    if prefix:
        weights["lm_head.weight"] = theirs.lm_head.weight.detach()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    theirs.config.save_pretrained(tmp_path)
    ours, report = GPT1ForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert {name: keys for name, keys in report.items() if keys} == {}
    assert_same(outputs_of(ours.eval(), **batch_for(ours)), outputs_of(theirs, **batch_for(ours)), atol=1e-5)


def test_the_configuration_of_an_openai_folder_is_ours(openai_model, tmp_path):
    theirs = openai_model(OpenAIGPTDoubleHeadsModel, afn="gelu", embd_pdrop=0.2, layer_norm_epsilon=1e-4)
    theirs.config.summary_first_dropout = 0.3
    theirs.save_pretrained(tmp_path)
    config = GPT1Config.from_pretrained(tmp_path)
    read = {name: getattr(config, name) for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    assert read == {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    assert (config.max_position_embeddings, config.intermediate_size, config.vocab_size) == (24, 128, 101)
    assert (config.hidden_act, config.embd_pdrop, config.layer_norm_epsilon) == ("gelu_pytorch_tanh", 0.2, 1e-4)
    assert (config.traversal, config.classifier_dropout) == ("multiple_choice", 0.3)
    saved = config.to_dict()
    assert saved["model_type"] == "gpt1"
    assert [name for name in saved if name.startswith(("summary", "n_", "_from", "afn"))] == []
