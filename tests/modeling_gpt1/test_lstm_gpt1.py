"""The LSTM under GPT-1's heads: states, generation, training, saving, refusals; test_properties.py has its formula."""

import json

import pytest
import torch
import transformers
from support.finetuning import CASES, make_finetuning_trainer, make_letter_tokenizer, training_log
from support.refusals import refusal
from support.tensors import close, random_ids

from modeling_gpt1 import (
    CausalLMScorer,
    GPT1ForCausalLM,
    GPT1LSTMConfig,
    GPT1LSTMDoubleHeadsModel,
    GPT1LSTMForCausalLM,
    GPT1LSTMForMultipleChoice,
    GPT1LSTMForSequenceClassification,
    GPT1LSTMModel,
    ScoringRequest,
    modeling_gpt1_lstm,
)
from modeling_gpt1.training.measures import training_flops_per_token

MASK = torch.tensor([[1] * 10, [0] * 4 + [1] * 6, [1] * 5 + [0] * 5, [1, 1, 1, 0, 0, 1, 1, 1, 1, 1], [0] * 10])


def test_the_default_has_the_papers_size():
    with torch.device("meta"):
        model = GPT1LSTMForCausalLM(GPT1LSTMConfig())
    embeddings, lstm, projection, norms = 40478 * 768, 4 * 2048 * (768 + 2048 + 2), 2048 * 768 + 768, 4 * 768
    assert model.num_parameters() == embeddings + lstm + projection + norms == 55_748_864
    assert training_flops_per_token(model) == 6 * (40478 * 768 + 4 * 2048 * (768 + 2048) + 2048 * 768)


def test_a_fresh_model_keeps_what_it_has_read():
    transformers.set_seed(0)
    lstm = GPT1LSTMModel(GPT1LSTMConfig(vocab_size=101, hidden_size=16, lstm_hidden_size=24)).h[0].lstm
    assert lstm.bias_ih_l0.reshape(4, 24).tolist() == [[0.0] * 24, [1.0] * 24, [0.0] * 24, [0.0] * 24]
    assert lstm.bias_hh_l0.abs().max() == 0


@pytest.mark.parametrize("settings", [{}, {"num_beams": 3}, {"do_sample": True}, {"num_return_sequences": 2}])
def test_generation_is_the_same_with_and_without_the_state(tiny_model, settings):
    model, ids = tiny_model(GPT1LSTMForCausalLM), random_ids(3, 6)
    settings = {"num_beams": 2, **settings} if "num_return_sequences" in settings else settings
    mask, generated = MASK[[0, 1, 0], :6], []
    for use_cache in (True, False):
        transformers.set_seed(1)
        options = {"max_new_tokens": 9, "use_cache": use_cache, **settings}
        generated.append(model.generate(ids, attention_mask=mask, **options).tolist())
    assert generated[0] == generated[1]
    assert len({tuple(row[6:]) for row in generated[0]}) > 1


@pytest.mark.parametrize("checkpointing", [False, True])
def test_generation_while_training_is_that_of_evaluation(tiny_model, checkpointing):
    model, ids = tiny_model(GPT1LSTMForCausalLM), random_ids(3, 6)
    settings = {"attention_mask": MASK[[0, 1, 0], :6], "max_new_tokens": 5}
    expected = model.generate(ids, **settings)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    assert torch.equal(model.generate(ids, **settings), expected)


def test_generation_reads_each_token_once(tiny_model):
    model, lengths = tiny_model(GPT1LSTMForCausalLM), []
    model.transformer.tokens_embed.register_forward_hook(lambda module, args, output: lengths.append(args[0].shape[1]))
    model.generate(random_ids(2, 6), max_new_tokens=5)
    assert lengths == [6, 1, 1, 1, 1]


@pytest.mark.parametrize("shares_contexts", [True, False])
def test_the_scorer_is_exact(tiny_model, shares_contexts):
    model = tiny_model(GPT1LSTMForCausalLM)
    requests = [
        ScoringRequest(random_ids(length, seed=length).tolist(), [random_ids(n, seed=n).tolist() for n in (1, 3, 5)])
        for length in (9, 2, 5)
    ]
    scorer = CausalLMScorer(model)
    assert scorer.shares_contexts
    scorer.shares_contexts = shares_contexts
    for request, scores in zip(requests, scorer.score_ids(requests), strict=True):
        for continuation, score in zip(request.continuations, scores, strict=True):
            ids = torch.tensor([[*request.context, *continuation]])
            log_probs = model(ids).logits[0].log_softmax(-1)[len(request.context) - 1 : -1]
            close(torch.tensor(score.token_log_probs), log_probs[range(len(continuation)), continuation])


def test_gradients_with_checkpointing_are_the_same(tiny_model):
    gradients = []
    for checkpointing in (False, True):
        model = tiny_model(GPT1LSTMForCausalLM, resid_pdrop=0.2).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        transformers.set_seed(0)
        model(random_ids(3, 8), labels=random_ids(3, 8)).loss.backward()
        gradients.append([weight.grad for weight in model.parameters()])
    for plain, checkpointed in zip(*gradients, strict=True):
        close(checkpointed, plain)


def test_hidden_states_are_those_of_the_layers(tiny_model):
    model = tiny_model(GPT1LSTMModel)
    outputs = model(random_ids(2, 5), output_hidden_states=True)
    assert [tuple(state.shape) for state in outputs.hidden_states] == [(2, 5, 32)] * 3
    assert torch.equal(outputs.hidden_states[0], model.tokens_embed(random_ids(2, 5)))
    assert torch.equal(outputs.hidden_states[-1], outputs.last_hidden_state)


def test_training_does_not_depend_on_micro_batches(tmp_path):
    records, case = [], "multiple_choice"
    for batch_size, accumulation in ((8, 1), (4, 2)):
        tokenizer = make_letter_tokenizer()
        transformers.set_seed(0)
        dropouts = dict.fromkeys(("embd_pdrop", "resid_pdrop", "classifier_dropout"), 0.0)
        fields = {"vocab_size": len(tokenizer), "hidden_size": 16, "lstm_hidden_size": 24, **dropouts, **CASES[case]}
        model = GPT1LSTMDoubleHeadsModel(GPT1LSTMConfig(**fields))
        trainer = make_finetuning_trainer(case, tmp_path, batch_size, accumulation, model=model)
        records.append([[log["task_loss"], log["lm_loss"], log["grad_norm"]] for log in training_log(trainer)])
        evaluation = trainer.evaluate()
        records[-1].append([evaluation["eval_task_loss"], evaluation["eval_lm_loss"], 0.0])
    assert len(records[0]) == 4
    close(torch.tensor(records[1]), torch.tensor(records[0]))


def test_every_class_opens_what_was_saved(tiny_model, tmp_path):
    language_model = tiny_model(GPT1LSTMForCausalLM)
    language_model.save_pretrained(tmp_path / "lm")
    assert type(transformers.AutoModel.from_pretrained(tmp_path / "lm")) is GPT1LSTMModel
    ids = random_ids(2, 3, 7)
    opened = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "lm").eval()
    assert type(opened) is GPT1LSTMForCausalLM
    close(opened(ids[0]).logits, language_model(ids[0]).logits)  # where weights lie decides the last bit
    for traversal, auto_class, own_class, given_ids in (
        ("multiple_choice", transformers.AutoModelForMultipleChoice, GPT1LSTMForMultipleChoice, ids),
        ("entailment", transformers.AutoModelForSequenceClassification, GPT1LSTMForSequenceClassification, ids[0]),
    ):
        model = tiny_model(GPT1LSTMDoubleHeadsModel, traversal=traversal)
        model.save_pretrained(tmp_path / traversal)
        opened = auto_class.from_pretrained(tmp_path / traversal).eval()
        assert type(opened) is own_class
        close(opened(given_ids).logits, model(given_ids).task_logits)


def test_the_configuration_names_the_classes_of_the_lstm(tiny_model, tmp_path):
    tiny_model(GPT1LSTMDoubleHeadsModel, traversal="multiple_choice").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["model_type"] == "gpt1-lstm"
    assert config["lstm_hidden_size"] == 24
    assert config["auto_map"] == {
        "AutoConfig": "configuration_gpt1_lstm.GPT1LSTMConfig",
        "AutoModel": "modeling_gpt1_lstm.GPT1LSTMModel",
        "AutoModelForCausalLM": "modeling_gpt1_lstm.GPT1LSTMForCausalLM",
        "AutoModelForMultipleChoice": "modeling_gpt1_lstm.GPT1LSTMForMultipleChoice",
        "AutoModelForTokenClassification": "modeling_gpt1_lstm.GPT1LSTMForTokenClassification",
        "AutoModelForQuestionAnswering": "modeling_gpt1_lstm.GPT1LSTMForQuestionAnswering",
    }
    assert not {"num_attention_heads", "attn_pdrop", "intermediate_size", "hidden_act"} & set(config)
    assert type(transformers.AutoConfig.from_pretrained(tmp_path)) is GPT1LSTMConfig


@pytest.fixture
def language_model(tiny_model):
    return tiny_model(GPT1LSTMForCausalLM)


def test_a_mask_of_pairs_of_tokens_is_refused(language_model):
    message = refusal(language_model, random_ids(2, 5), attention_mask=torch.ones(2, 1, 5, 5))
    assert "the shape [2, 1, 5, 5], but an LSTM" in message
    assert "needs the shape [B, past + T]" in message


@pytest.mark.parametrize("shape", [[2, 4], [2, 6], [1, 5]])
def test_a_mask_of_another_shape_is_refused(language_model, shape):
    message = refusal(language_model, random_ids(2, 5), attention_mask=torch.ones(shape))
    assert "needs the shape [2, 5], one column for each token" in message
    assert f"got {shape}" in message


def test_a_mask_of_the_new_tokens_alone_is_refused(language_model):
    ids = random_ids(2, 5)
    state = language_model(ids).past_key_values
    message = refusal(language_model, ids, attention_mask=torch.ones(2, 5), past_key_values=state)
    assert "needs the shape [2, 10], one column for each token" in message
    assert "got [2, 5]" in message


@pytest.mark.parametrize("positions", [[0, 1, 2, 0, 1], [0, 0, 1, 2, 3]])  # also behind a sequence of one token
def test_several_sequences_in_a_row_are_refused(language_model, positions):
    message = refusal(language_model, random_ids(2, 5), position_ids=torch.tensor([positions] * 2))
    assert "Put each sequence into its own row" in message


def test_assisted_generation_is_refused(language_model, tiny_model):
    assistant = tiny_model(GPT1LSTMForCausalLM)
    message = refusal(language_model.generate, random_ids(2, 5), assistant_model=assistant, max_new_tokens=2)
    assert "assisted generation" in message


def test_an_lstm_as_assistant_is_refused(language_model, tiny_model):
    """Drafts that are not accepted would have to leave its state."""
    model = tiny_model(GPT1ForCausalLM)
    message = refusal(model.generate, random_ids(1, 5), assistant_model=language_model, max_new_tokens=9)
    assert "Pass a GPT-1 as `assistant_model`" in message


@pytest.mark.parametrize("is_of_config", [False, True])
def test_a_cache_of_keys_and_values_is_refused(language_model, is_of_config):
    cache = transformers.DynamicCache(config=language_model.config) if is_of_config else transformers.DynamicCache()
    message = refusal(language_model, random_ids(2, 5), past_key_values=cache)
    assert "Pass `model.transformer.new_state()`" in message


def test_a_call_without_tokens_is_refused(language_model):
    assert refusal(language_model) == "Exactly one of `input_ids` and `inputs_embeds` is needed."


def test_the_class_of_another_traversal_names_its_own(tiny_model):
    message = refusal(tiny_model, GPT1LSTMForMultipleChoice, traversal="similarity")
    assert "Open it with GPT1LSTMForSequenceClassification or GPT1LSTMDoubleHeadsModel" in message


@pytest.mark.parametrize("model_class", [GPT1LSTMForCausalLM, GPT1LSTMDoubleHeadsModel])
def test_an_lstm_has_no_plan_of_tensor_parallelism(model_class):
    assert model_class._tp_plan == {}  # transformers refuses it then


@pytest.mark.parametrize("mask", [None, MASK[:, :6]], ids=["whole rows", "padded rows"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_cpu_without_an_lstm_in_half_precision_runs_it_in_single(tiny_model, monkeypatch, mask, dtype):
    monkeypatch.setattr(modeling_gpt1_lstm, "has_lstm_of_autocast", lambda: False)
    model, ids = tiny_model(GPT1LSTMModel), random_ids(5, 6)
    outputs = []
    model.h[0].lstm.register_forward_hook(lambda module, inputs, output: outputs.append(output[1]))
    expected = model(ids, attention_mask=mask).last_hidden_state
    with torch.autocast("cpu", dtype=dtype):
        found = model(ids, attention_mask=mask, use_cache=True)
        model(ids[:, :1], past_key_values=found.past_key_values)
    assert all(map(torch.equal, outputs[1], outputs[0]))
    assert all(part.dtype == torch.float32 for part in outputs[2])
    assert 0 < (found.last_hidden_state - expected).abs().max() < 0.05  # the linear layer computes in half precision


def test_half_precision_weights_are_read_under_autocast(tiny_model, monkeypatch):
    """As in an evaluation with `bf16` and `bf16_full_eval`."""
    monkeypatch.setattr(modeling_gpt1_lstm, "has_lstm_of_autocast", lambda: False)
    model, ids = tiny_model(GPT1LSTMModel), random_ids(3, 6)
    expected = model(ids).last_hidden_state
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model.bfloat16()(ids).last_hidden_state
    assert 0 < (found.float() - expected).abs().max() < 0.1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_an_lstm_trains_under_autocast_on_any_cpu(tiny_model, dtype):
    model, ids = tiny_model(GPT1LSTMForCausalLM).train(), random_ids(3, 6)
    losses = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=dtype, enabled=enabled):
            losses.append(model(ids, labels=ids).loss)
    losses[1].backward()
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=0.01)
    assert model.transformer.h[0].lstm.weight_hh_l0.grad.abs().sum() > 0
