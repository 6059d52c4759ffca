"""Decoders of other families trained on L3: what the trainer's numbers must not depend on, and what is saved."""

import json
import pickle
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from support.decoders import (
    CHOICE_TASK,
    TASK,
    decoder_tokenizer,
    make_decoder_trainer,
    prepare_decoder,
    write_decoder,
)
from support.finetuning import Rows, resumes_after, training_log
from support.refusals import refusal
from transformers import AutoModelForSequenceClassification, dynamic_module_utils

from modeling_gpt1 import prepare_finetuning
from modeling_gpt1.families.auxiliary import HEAD_FILE, auxiliary_head
from tokenization import Task

PARTS = ("loss", "task_loss", "lm_loss", "grad_norm")


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory):
    """A decoder's folder, written once."""
    written = {}

    def folder(name: str, **options):
        if name not in written:
            written[name] = write_decoder(name, tmp_path_factory.mktemp("decoder"), **options)
        return written[name]

    return folder


def weights_of(trainer) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in trainer.model.state_dict().items()}


@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2"])
@pytest.mark.parametrize(("batch_size", "accumulation"), [(1, 8), (2, 4)])
def test_losses_gradients_and_weights_do_not_depend_on_micro_batches(
    name, batch_size, accumulation, folder_of, tmp_path
):
    """19 rows: the last update has three."""
    folder = folder_of(name)
    whole = make_decoder_trainer(prepare_decoder(folder), tmp_path)
    cut = make_decoder_trainer(prepare_decoder(folder), tmp_path, batch_size, accumulation)
    for log, expected in zip(training_log(cut), training_log(whole), strict=True):
        assert log.keys() == expected.keys() == {*PARTS}
        assert log == pytest.approx(expected, rel=2e-6)
    torch.testing.assert_close(weights_of(cut), weights_of(whole), rtol=0, atol=1e-6)


@pytest.mark.parametrize("lm_coef", [0.0, 0.5])
@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_choices_scored_as_pairs_do_not_depend_on_micro_batches(lm_coef, padding_side, folder_of, tmp_path):
    """Rows have two to four choices, so that a micro-batch has others than the whole."""
    logs, weights = [], []
    for batch_size, accumulation in ((8, 1), (1, 8), (2, 4)):
        parts = prepare_decoder(folder_of("llama"), lm_coef, padding_side, CHOICE_TASK)
        trainer = make_decoder_trainer(parts, tmp_path, batch_size, accumulation)
        logs.append(training_log(trainer))
        weights.append(weights_of(trainer))
    for found_logs, found_weights in zip(logs[1:], weights[1:], strict=True):
        for log, expected in zip(found_logs, logs[0], strict=True):
            assert log == pytest.approx(expected, rel=2e-6)
        torch.testing.assert_close(found_weights, weights[0], rtol=0, atol=1e-6)


def test_an_evaluation_of_choices_has_the_accuracy_of_the_best_choice(folder_of, tmp_path):
    parts = prepare_decoder(folder_of("llama"), task=CHOICE_TASK)
    trainer = make_decoder_trainer(parts, tmp_path, per_device_eval_batch_size=4)
    rows = Rows("classification", 11).rows
    right = []
    for row in rows:
        batch = parts["data_collator"]([row])
        ids = batch["input_ids"][0]
        with torch.no_grad():
            scores = trainer.model(ids, attention_mask=batch["attention_mask"][0]).logits  # [C, 1]
        right.append(scores.argmax().item() == row["label"])
    assert trainer.evaluate()["eval_accuracy"] == pytest.approx(sum(right) / len(right))


def test_the_loss_is_the_sum_of_its_parts(folder_of, tmp_path):
    trainer = make_decoder_trainer(prepare_decoder(folder_of("llama"), lm_coef=0.3), tmp_path)
    for log in training_log(trainer):
        assert log["loss"] == pytest.approx(log["task_loss"] + 0.3 * log["lm_loss"], rel=1e-6)


@pytest.mark.parametrize("batch_size", [1, 11])
def test_an_evaluation_is_exact_whatever_its_batches(batch_size, folder_of, tmp_path):
    parts = prepare_decoder(folder_of("llama"))
    trainer = make_decoder_trainer(parts, tmp_path, per_device_eval_batch_size=batch_size)
    losses = trainer.evaluate()
    lm_losses = []
    for row in Rows("classification", 11).rows:
        batch = parts["data_collator"]([row])
        ids = batch["input_ids"]
        with torch.no_grad():
            hidden_states = trainer.model.model(ids).last_hidden_state
            logits = hidden_states @ auxiliary_head(trainer.model).weight.T
        lm_losses.append(torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:]).item())
    assert losses["eval_lm_loss"] == pytest.approx(sum(lm_losses) / len(lm_losses), rel=1e-6)
    assert losses["eval_loss"] == pytest.approx(losses["eval_task_loss"] + 0.5 * losses["eval_lm_loss"], rel=1e-9)


@pytest.mark.parametrize(
    ("prepared", "given", "names"),
    [
        (None, None, {"loss"}),
        (0.5, 0.0, {"loss"}),
        (0.5, None, {"loss", "task_loss", "lm_loss", "lm_perplexity"}),
    ],
)
def test_the_losses_of_an_evaluation_are_known_before_it(prepared, given, names, folder_of, tmp_path):
    trainer = make_decoder_trainer(prepare_decoder(folder_of("llama"), lm_coef=prepared), tmp_path, lm_coef=given)
    found = {name.removeprefix("eval_") for name in trainer.evaluate()}
    assert {name for name in found if name.endswith(("loss", "perplexity"))} == names == set(trainer._loss_names())


def test_a_loss_of_the_objective_chooses_no_checkpoint_without_it(folder_of, tmp_path):
    settings = {"save_strategy": "best", "eval_strategy": "steps", "eval_steps": 1}
    parts = prepare_decoder(folder_of("llama"), lm_coef=None)
    trainer = make_decoder_trainer(parts, tmp_path, metric_for_best_model="lm_loss", **settings)
    told = "is 'lm_loss' (did you mean 'loss'?). Pass one that an evaluation has: loss, accuracy."
    assert told in refusal(trainer.train)
    assert trainer.state.global_step == 0


def test_predictions_are_the_scores_alone(folder_of, tmp_path):
    trainer = make_decoder_trainer(prepare_decoder(folder_of("llama")), tmp_path)
    assert trainer.predict(Rows("classification", 5)).predictions.shape == (5, 2)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_without_the_objective_the_classifier_is_trained_as_before(name, folder_of, tmp_path):
    folder = folder_of(name)
    plain = make_decoder_trainer(prepare_decoder(folder, lm_coef=None), tmp_path)
    with_head = make_decoder_trainer(prepare_decoder(folder), tmp_path, lm_coef=0.0)
    assert training_log(with_head) == training_log(plain)
    found = weights_of(with_head)
    found.pop("auxiliary_head.weight", None)
    torch.testing.assert_close(found, weights_of(plain), rtol=0, atol=0)


def test_the_weight_of_the_arguments_is_that_of_the_loss(folder_of, tmp_path):
    of_arguments = make_decoder_trainer(prepare_decoder(folder_of("llama")), tmp_path, lm_coef=0.1)
    of_model = make_decoder_trainer(prepare_decoder(folder_of("llama"), lm_coef=0.1), tmp_path)
    assert training_log(of_arguments) == training_log(of_model)


def test_the_trainer_says_how_to_open_a_classifier_with_the_objective(folder_of, tmp_path):
    parts = prepare_decoder(folder_of("llama"), lm_coef=None)
    told = refusal(make_decoder_trainer, parts, tmp_path, lm_coef=0.5)
    assert "`lm_coef` is 0.5, but LlamaForSequenceClassification has no language-model head" in told
    assert "prepare_finetuning(…, lm_coef=0.5)" in told


def test_sharded_models_with_the_objective_are_refused(folder_of, tmp_path):
    trainer = make_decoder_trainer(prepare_decoder(folder_of("llama")), tmp_path)
    trainer.is_fsdp_enabled = True
    told = refusal(trainer._set_up_own_model, trainer.model)
    assert "which FSDP and DeepSpeed would not save" in told
    assert "or leave `lm_coef` out" in told


def test_an_output_matrix_is_trained_unless_it_is_frozen(folder_of, tmp_path):
    for is_frozen in (False, True):
        parts = prepare_decoder(folder_of("llama"), freeze_lm_head=is_frozen)
        before = auxiliary_head(parts["model"]).weight.detach().clone()
        trainer = make_decoder_trainer(parts, tmp_path)
        trainer.train()
        assert torch.equal(auxiliary_head(trainer.model).weight, before) == is_frozen


# ---- Saved files


def test_a_run_resumes_to_the_bit_with_an_output_matrix_of_its_own(folder_of, tmp_path):
    settings = {"optim": "adamw_torch", "save_strategy": "steps", "save_steps": 1}
    whole = make_decoder_trainer(prepare_decoder(folder_of("llama")), tmp_path, **settings)
    whole.train()
    resumed = make_decoder_trainer(prepare_decoder(folder_of("llama")), tmp_path / "resumed", **settings)
    with resumes_after(1):
        resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    torch.testing.assert_close(weights_of(resumed), weights_of(whole), rtol=0, atol=0)


def test_the_output_matrix_lies_beside_checkpoints_and_not_in_the_result(folder_of, tmp_path):
    trainer = make_decoder_trainer(prepare_decoder(folder_of("llama")), tmp_path, save_strategy="steps", save_steps=3)
    trainer.train()
    trainer.save_model()
    kept = load_file(tmp_path / "checkpoint-3" / HEAD_FILE)
    assert torch.equal(kept["weight"], auxiliary_head(trainer.model).weight)
    assert not (tmp_path / HEAD_FILE).exists()
    plain = AutoModelForSequenceClassification.from_pretrained(folder_of("llama"), num_labels=2)
    assert load_file(tmp_path / "model.safetensors").keys() == plain.state_dict().keys()
    assert load_file(tmp_path / "checkpoint-3" / "model.safetensors").keys() == plain.state_dict().keys()


def test_the_best_model_has_its_own_output_matrix(folder_of, tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    settings |= {"load_best_model_at_end": True, "metric_for_best_model": "eval_lm_loss", "greater_is_better": True}
    trainer = make_decoder_trainer(prepare_decoder(folder_of("llama")), tmp_path, **settings)
    trainer.train()
    best = trainer.state.best_model_checkpoint
    assert not best.endswith("checkpoint-3")
    assert torch.equal(load_file(f"{best}/{HEAD_FILE}")["weight"], auxiliary_head(trainer.model).weight)


@pytest.mark.parametrize(
    ("was_frozen", "told", "remedy"),
    [
        (True, f"checkpoint-1 has no {HEAD_FILE}", "Pass the `freeze_lm_head` or `freeze` that it had"),
        (False, f"checkpoint-1 has a trained output matrix, {HEAD_FILE}", "leave out the `freeze_lm_head` or"),
    ],
)
def test_a_resume_that_trains_other_weights_is_refused(was_frozen, told, remedy, folder_of, tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 1, "max_steps": 1}
    parts = prepare_decoder(folder_of("llama"), freeze_lm_head=was_frozen)
    make_decoder_trainer(parts, tmp_path, **settings).train()
    parts = prepare_decoder(folder_of("llama"), freeze_lm_head=not was_frozen)
    other = make_decoder_trainer(parts, tmp_path, **settings)
    found = refusal(other.train, resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    assert told in found
    assert remedy in found


@pytest.mark.parametrize(
    ("name", "second", "told"), [("llama", 0.1, "0.5 and is 0.1"), ("llama tied", None, "0.5 and is 0.0")]
)
def test_another_weight_of_the_objective_is_told_at_a_resume(name, second, told, folder_of, tmp_path, caplog):
    settings = {"save_strategy": "steps", "save_steps": 1}
    make_decoder_trainer(prepare_decoder(folder_of(name)), tmp_path, max_steps=1, **settings).train()
    caplog.clear()
    resumed = make_decoder_trainer(prepare_decoder(folder_of(name), lm_coef=second), tmp_path, max_steps=2, **settings)
    resumed.train(resume_from_checkpoint="auto")
    assert f"with other settings: lm_coef was {told}. Pass" in caplog.text


def test_a_result_without_the_objective_names_no_weight_of_an_earlier_one(folder_of, tmp_path):
    for lm_coef in (0.5, None):
        start = folder_of("llama tied") if lm_coef else tmp_path / "0.5"
        trainer = make_decoder_trainer(prepare_decoder(start, lm_coef=lm_coef), tmp_path / str(lm_coef))
        trainer.train()
        trainer.save_model()
        config = json.loads((tmp_path / str(lm_coef) / "config.json").read_text(encoding="utf-8"))
        assert config.get("lm_coef") == lm_coef


def test_a_token_without_a_row_of_the_output_matrix_is_refused(folder_of, tmp_path):
    parts = prepare_decoder(folder_of("llama"))
    parts["processing_class"].add_tokens("<new>")
    parts["model"].resize_token_embeddings(len(parts["processing_class"]))
    told = refusal(make_decoder_trainer, parts, tmp_path)
    num_rows = len(auxiliary_head(parts["model"]).weight)
    assert f"has {num_rows + 1} tokens, but the output matrix of the auxiliary objective has {num_rows} rows" in told
    assert "Resize the embeddings of the causal model, save it, and pass its folder" in told


def test_a_model_with_the_objective_can_be_pickled(folder_of):
    model = prepare_decoder(folder_of("llama"))["model"]
    copied = pickle.loads(pickle.dumps(model))
    assert type(copied) is type(model)
    torch.testing.assert_close(copied.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert torch.equal(auxiliary_head(copied).weight, auxiliary_head(model).weight)


OPEN_ELSEWHERE = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("modeling_gpt1", "tokenization"):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import torch
from peft import AutoPeftModelForSequenceClassification
from transformers import AutoTokenizer, pipeline
texts = {"text": "ann sees", "text_pair": "a dog"}
classifier = pipeline("text-classification", sys.argv[1], device="cpu")
answer = classifier([texts])[0]
adapted = AutoPeftModelForSequenceClassification.from_pretrained(sys.argv[2], num_labels=2).eval()
scorer = pipeline("text-classification", sys.argv[3], device="cpu", function_to_apply="none")
encoded = AutoTokenizer.from_pretrained(sys.argv[2])("ann sees", "a dog", return_tensors="pt")
with torch.no_grad():
    scores = adapted(**encoded).logits[0].tolist()
print(json.dumps([type(classifier.model).__name__, answer, scores, scorer([texts])[0]["score"]]))
"""


@pytest.mark.parametrize("task_type", [None, "SEQ_CLS"])
def test_an_adapter_is_trained_on_both_losses(task_type, folder_of, tmp_path):
    """Before the first update it changes nothing: the losses are those of the whole model. The matrix is frozen."""
    peft = pytest.importorskip("peft")
    parts = prepare_decoder(folder_of("llama"), peft_config=peft.LoraConfig(r=2, task_type=task_type))
    trainer = make_decoder_trainer(parts, tmp_path / "adapter")
    logs = training_log(trainer)
    whole = training_log(make_decoder_trainer(prepare_decoder(folder_of("llama")), tmp_path / "whole"))
    trained = {name for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    assert logs[0]["lm_loss"] == pytest.approx(whole[0]["lm_loss"], rel=1e-6)
    assert logs[0]["task_loss"] == pytest.approx(whole[0]["task_loss"], rel=1e-6)
    assert logs[-1]["lm_loss"] != pytest.approx(whole[-1]["lm_loss"], rel=1e-6)
    assert {name for name in trained if "lora" not in name} == {
        "base_model.model.score.modules_to_save.default.weight"
    }


def test_an_adapter_of_three_classes_opens_with_what_its_base_does_not_say(tmp_path):
    peft = pytest.importorskip("peft")
    task = Task("own", "entailment", TASK.columns, ("no", "maybe", "yes"))
    base = write_decoder("llama", tmp_path / "base", pad_token_id=None)
    parts = prepare_decoder(base, task=task, peft_config=peft.LoraConfig(r=2, task_type="SEQ_CLS"))
    trainer = make_decoder_trainer(parts, tmp_path / "adapter")
    trainer.train()
    trainer.save_model()
    batch = trainer.data_collator([{"a": "ann sees", "b": "a dog"}, {"a": "ann", "b": "a dog sees ann"}])
    open_adapter = peft.AutoPeftModelForSequenceClassification.from_pretrained
    adapted = open_adapter(tmp_path / "adapter", num_labels=3, pad_token_id=decoder_tokenizer().pad_token_id).eval()
    with torch.no_grad():
        torch.testing.assert_close(adapted(**batch).logits, trainer.model.eval()(**batch).logits, rtol=0, atol=1e-6)
    assert "Cannot handle batch sizes > 1 if no padding token is defined" in refusal(
        open_adapter(tmp_path / "adapter", num_labels=3), **batch
    )


def test_an_adapter_keeps_the_new_head_beside_other_modules(folder_of, tmp_path):
    peft = pytest.importorskip("peft")
    peft_config = peft.LoraConfig(r=2, modules_to_save=["embed_tokens"])
    parts = prepare_decoder(folder_of("llama"), peft_config=peft_config)
    trainer = make_decoder_trainer(parts, tmp_path)
    trainer.train()
    trainer.save_model()
    weights = load_file(tmp_path / "adapter_model.safetensors")
    assert torch.equal(weights["base_model.model.score.weight"], trainer.model.score.modules_to_save.default.weight)
    assert peft_config.modules_to_save == ["embed_tokens"]  # the user's own stays as it was


def test_an_adapter_does_not_train_the_output_matrix(folder_of):
    peft = pytest.importorskip("peft")
    peft_config = peft.LoraConfig(r=2, modules_to_save=["score", "auxiliary_head"])
    told = refusal(prepare_decoder, folder_of("llama"), peft_config=peft_config)
    assert "`modules_to_save` of `peft_config` has auxiliary_head, the output matrix of" in told
    assert "Leave it out." in told


def test_an_adapter_learns_from_the_language_model_loss(folder_of, tmp_path):
    peft = pytest.importorskip("peft")
    gradients = []
    for lm_coef in (0.0, 0.5):
        parts = prepare_decoder(folder_of("llama"), peft_config=peft.LoraConfig(r=2))
        trainer = make_decoder_trainer(parts, tmp_path, lm_coef=lm_coef)
        gradients.append(training_log(trainer)[0]["grad_norm"])
    assert gradients[0] != pytest.approx(gradients[1], rel=1e-3)


def test_saved_folders_open_where_this_package_cannot_be_imported(folder_of, tmp_path):
    """The whole model in a pipeline, the adapter in PEFT's class, and the scorer of choices, of which it is one."""
    peft = pytest.importorskip("peft")
    trainers = {}
    adapter = peft.LoraConfig(r=2, task_type="SEQ_CLS")
    for kind, peft_config, task in (("whole", None, TASK), ("adapter", adapter, TASK), ("choices", None, CHOICE_TASK)):
        parts = prepare_decoder(folder_of("llama"), peft_config=peft_config, task=task)
        trainers[kind] = make_decoder_trainer(parts, tmp_path / kind)
        trainers[kind].train()
        trainers[kind].save_model()
    folders = [str(tmp_path / kind) for kind in trainers]
    command = [sys.executable, "-c", OPEN_ELSEWHERE, *folders]
    output = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    class_name, answer, adapter_scores, score_of_pair = json.loads(output.stdout.splitlines()[-1])
    batch = trainers["whole"].data_collator([{"a": "ann sees", "b": "a dog"}])
    with torch.no_grad():
        scores = trainers["whole"].model.eval()(**batch).logits[0].softmax(0)
        expected = trainers["adapter"].model.eval()(**batch).logits[0].tolist()
        expected_score = trainers["choices"].model.eval()(**batch).logits.item()
    assert class_name == "LlamaForSequenceClassification"
    assert answer["label"] == TASK.label_names[scores.argmax()]
    assert answer["score"] == pytest.approx(scores.max().item(), abs=1e-6)
    assert adapter_scores == pytest.approx(expected, abs=1e-6)
    assert score_of_pair == pytest.approx(expected_score, abs=1e-6)


# ---- Ways of training


def test_gradient_checkpointing_changes_nothing(folder_of, tmp_path):
    plain, checkpointed = (
        make_decoder_trainer(prepare_decoder(folder_of("llama")), tmp_path, gradient_checkpointing=is_on)
        for is_on in (False, True)
    )
    for log, expected in zip(training_log(checkpointed), training_log(plain), strict=True):
        assert log == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_half_precision_is_near(name, folder_of, tmp_path):
    plain, half = (
        make_decoder_trainer(prepare_decoder(folder_of(name)), tmp_path, bf16=is_half) for is_half in (False, True)
    )
    for log, expected in zip(training_log(half), training_log(plain), strict=True):
        assert log["lm_loss"] == pytest.approx(expected["lm_loss"], rel=2e-2)


def test_compilation_changes_nothing(folder_of, tmp_path):
    """Graphs of the forward pass that also gives the language-model loss, and of its gradients."""
    graphs = torch._dynamo.utils.counters["stats"]
    logs, counts = [], []
    for is_on in (False, True):
        trainer = make_decoder_trainer(
            prepare_decoder(folder_of("gpt2")),
            tmp_path,
            rows=Rows("classification", 8),
            torch_compile=is_on,
            torch_compile_backend="aot_eager" if is_on else None,
        )
        before = graphs["unique_graphs"]
        logs.append(training_log(trainer))
        counts.append(graphs["unique_graphs"] - before)
    for log, expected in zip(logs[1], logs[0], strict=True):
        assert log == pytest.approx(expected, rel=1e-5)
    assert counts[0] == 0
    assert counts[1] > 0


def test_the_side_of_padding_changes_nothing(folder_of, tmp_path):
    right, left = (
        make_decoder_trainer(prepare_decoder(folder_of("llama"), padding_side=side), tmp_path)
        for side in ("right", "left")
    )
    for log, expected in zip(training_log(left), training_log(right), strict=True):
        assert log == pytest.approx(expected, rel=1e-5)


def test_pairs_in_both_orders_have_the_mean_of_two_losses(folder_of, tmp_path):
    task = type(TASK)("own", "similarity", {"text_a": "a", "text_b": "b", "label": "label"}, ("no", "yes"))
    parts = prepare_finetuning(
        folder_of("llama"), task, decoder_tokenizer(), auto_model=True, lm_coef=0.5, both_orders=True
    )
    row = {"a": "ann sees", "b": "a dog", "label": 1}
    turned = {"a": "a dog", "b": "ann sees", "label": 1}
    trainer = make_decoder_trainer(parts, tmp_path)
    both = trainer.evaluate([row])["eval_lm_loss"]
    parts["data_collator"].both_orders = False
    single = prepare_finetuning(folder_of("llama"), task, decoder_tokenizer(), auto_model=True, lm_coef=0.5)
    one_order = make_decoder_trainer(single, tmp_path)
    alone = [one_order.evaluate([one])["eval_lm_loss"] for one in (row, turned)]
    assert both == pytest.approx(sum(alone) / 2, rel=1e-6)
    assert alone[0] != pytest.approx(alone[1], rel=1e-3)


# ---- Models that bring code

OWN_CODE = """
from transformers import GPT2Config, GPT2LMHeadModel, GPT2ForSequenceClassification

class OwnConfig(GPT2Config):
    model_type = "own"

class OwnForCausalLM(GPT2LMHeadModel):
    config_class = OwnConfig

class OwnForSequenceClassification(GPT2ForSequenceClassification):
    config_class = OwnConfig
"""


def test_a_model_that_brings_its_code_is_trained_by_consent(folder_of, tmp_path, monkeypatch):
    """Its losses are those of the GPT-2 whose weights it has."""
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder = shutil.copytree(folder_of("gpt2"), tmp_path / "own")
    (folder / "own.py").write_text(OWN_CODE, encoding="utf-8")
    classes = ("ForCausalLM", "ForSequenceClassification")
    names = {"AutoConfig": "own.OwnConfig"} | {f"AutoModel{kind}": f"own.Own{kind}" for kind in classes}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own", "auto_map": names}))
    assert "trust_remote_code=True" in refusal(prepare_decoder, folder)

    parts = prepare_decoder(folder, trust_remote_code=True)
    logs = training_log(make_decoder_trainer(parts, tmp_path / "out"))

    assert type(parts["model"]).__name__ == "OwnForSequenceClassification"
    assert logs == training_log(make_decoder_trainer(prepare_decoder(folder_of("gpt2")), tmp_path / "gpt2"))
