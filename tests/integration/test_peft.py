"""PEFT's LoRA on both heads: what trains, what is saved, and that adapter, reloaded adapter and merged model agree."""

import json
import logging
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, PromptTuningConfig, TaskType, get_peft_model
from support.families import write_family
from support.files import write_rows
from support.finetuning import make_double_heads_model, make_finetuning_trainer, make_letter_tokenizer, resumes_after
from support.refusals import refusal
from torch import nn

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
    GPT1Int8Config,
    GPT1PretrainingArguments,
    GPT1PretrainingTrainer,
    GPT1Trainer,
    GPT1TrainingArguments,
    prepare_finetuning,
)
from modeling_gpt1.commands import entry, finetune, generate, predict
from tokenization import BlockCollator, Task

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"]


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=2e-5)


def batch_of(shape: tuple[int, ...], labels: list[int] | None = None) -> dict[str, torch.Tensor]:
    input_ids = torch.randint(1, 98, shape, generator=torch.Generator().manual_seed(0))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[0, ..., -2:] = 0
    labels = input_ids if labels is None else torch.tensor(labels)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def descend_and_name_what_moved(model: nn.Module, batch: dict[str, torch.Tensor]) -> set[str]:
    """Two steps of descent on the parameters that are free; names of those that moved."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    free = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(free, lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model.train()(**batch).loss.backward()
        optimizer.step()
    model.eval()
    return {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}


def agree(model: PeftModel, reloaded: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[nn.Module, nn.Module]:
    """The reloaded and the merged model, whose loss and logits are those of the trained one."""
    after, others = model(**batch), (reloaded, model.merge_and_unload())
    for other in others:
        close(other(**batch).logits, after.logits)
        close(other(**batch).loss, after.loss)
    return others


def adapter_files(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_double_heads(tiny_model, tmp_path):
    """Both losses train the adapters of every projection and the whole task head; the shared embeddings stay."""
    base = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice")
    base.save_pretrained(tmp_path / "base")
    model = get_peft_model(base, LoraConfig(r=2, target_modules="all-linear", modules_to_save=["task_head"]))
    batch = batch_of((3, 2, 9), labels=[0, 1, 1])
    before = model(**batch)
    close(before.loss, GPT1DoubleHeadsModel.from_pretrained(tmp_path / "base")(**batch).loss)
    moved = descend_and_name_what_moved(model, batch)
    prefix, places = "base_model.model", [*(f"attn.{x}_proj" for x in "qkvo"), "mlp.up_proj", "mlp.down_proj"]
    adapted = [f"{prefix}.transformer.h.{layer}.{place}" for layer in range(2) for place in places]
    expected = {f"{place}.lora_{factor}.default.weight" for place in adapted for factor in "AB"}
    expected |= {f"{prefix}.task_head.modules_to_save.default.score.weight"}
    # Choices compete, so a bias that they share does nothing; rounding may move it, as it may that of the keys.
    assert moved - {f"{prefix}.task_head.modules_to_save.default.score.bias"} == expected
    after = model(**batch, output_lm_logits=True)
    assert after.task_loss < before.task_loss
    assert after.lm_loss < before.lm_loss

    model.save_pretrained(tmp_path / "adapter")
    assert adapter_files(tmp_path / "adapter") == {"README.md", "adapter_config.json", "adapter_model.safetensors"}
    base = GPT1DoubleHeadsModel.from_pretrained(tmp_path / "base")
    reloaded = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    merged = model.merge_and_unload()
    assert type(merged) is GPT1DoubleHeadsModel
    assert merged.lm_head.weight is merged.transformer.tokens_embed.weight
    for other in (reloaded, merged):
        output = other(**batch, output_lm_logits=True)
        for name in ("loss", "task_loss", "lm_loss", "task_logits", "lm_logits"):
            close(output[name], after[name])
    merged.save_pretrained(tmp_path / "merged")
    close(GPT1ForMultipleChoice.from_pretrained(tmp_path / "merged")(**batch).logits, after.task_logits)
    with pytest.raises(AssertionError):  # the base alone says something else
        close(GPT1ForMultipleChoice.from_pretrained(tmp_path / "base")(**batch).logits, after.task_logits)


def test_the_task_type_of_classification_trains_the_task_head(tiny_model, tmp_path):
    """`TaskType.SEQ_CLS` keeps what is called "score" or "classifier", which `task_head.score` is."""
    model_class = GPT1ForSequenceClassification
    base = tiny_model(model_class, num_labels=3)
    base.save_pretrained(tmp_path / "base")
    model = get_peft_model(base, LoraConfig(r=2, target_modules=PROJECTIONS, task_type=TaskType.SEQ_CLS))
    batch = batch_of((3, 9), labels=[0, 1, 2])
    moved = descend_and_name_what_moved(model, batch)
    heads = {name for name in moved if "task_head" in name}
    head = "base_model.model.task_head.score.modules_to_save.default"
    assert heads == {f"{head}.weight", f"{head}.bias"}
    assert len(moved) == 2 * 12 + 2
    model.save_pretrained(tmp_path / "adapter")
    reloaded = PeftModel.from_pretrained(model_class.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
    agree(model, reloaded, batch)


def test_language_model(tiny_model, tmp_path):
    """The auto class opens base and adapter by the adapter's folder; it generates as the merged model does."""
    tiny_model(GPT1ForCausalLM).save_pretrained(tmp_path / "base")
    base = GPT1ForCausalLM.from_pretrained(tmp_path / "base")
    config = LoraConfig(r=2, target_modules="all-linear", task_type=TaskType.CAUSAL_LM)
    model = get_peft_model(base, config)
    batch = batch_of((2, 9))
    moved = descend_and_name_what_moved(model, batch)
    assert len(moved) == 2 * 12
    assert not any("lm_head" in name or "embed" in name for name in moved)
    model.save_pretrained(tmp_path / "adapter")
    reloaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter").eval()
    assert type(reloaded.get_base_model()) is GPT1ForCausalLM
    options = {"input_ids": batch["input_ids"], "max_new_tokens": 6, "do_sample": False}
    generated = model.generate(**options)
    for other in agree(model, reloaded, batch):
        assert other.generate(**options).tolist() == generated.tolist()


@pytest.mark.parametrize("place", ["", "sub"])
@pytest.mark.parametrize("kind", [TaskType.CAUSAL_LM, TaskType.SEQ_CLS])
def test_an_adapter_that_peft_alone_saved(place, kind, tiny_model, tmp_path):
    """Without a configuration beside it: it has the base's sizes, and the Auto class's `num_labels`."""
    is_text = kind == TaskType.CAUSAL_LM
    auto_class = transformers.AutoModelForCausalLM if is_text else transformers.AutoModelForSequenceClassification
    own_class = GPT1ForCausalLM if is_text else GPT1ForSequenceClassification
    labels = {} if is_text else {"num_labels": 3}
    tiny_model(own_class, do_layer_norm_before=True, **labels).save_pretrained(tmp_path / "base")
    base = own_class.from_pretrained(tmp_path / "base")
    model = get_peft_model(base, LoraConfig(r=2, target_modules=PROJECTIONS, task_type=kind, init_lora_weights=False))
    model.save_pretrained(tmp_path / "adapter" / place)
    assert not (tmp_path / "adapter" / place / "config.json").exists()
    batch = batch_of((3, 9), labels=None if is_text else [0, 1, 2])
    opened = [own_class.from_pretrained(tmp_path / "adapter", **({"subfolder": place} if place else {}))]
    opened += [] if place else [auto_class.from_pretrained(tmp_path / "adapter", **labels)]
    for found in opened:
        assert found.config.do_layer_norm_before
        assert found.config.num_hidden_layers == base.config.num_hidden_layers
        close(found.eval()(**batch).loss, model.eval()(**batch).loss)
    with pytest.raises(AssertionError), model.disable_adapter():
        close(found(**batch).loss, model(**batch).loss)
    base.config.save_pretrained(tmp_path / "adapter" / place)
    tiny_model(own_class, num_hidden_layers=1, **labels).save_pretrained(tmp_path / "base")
    with pytest.raises(ValueError, match=r"base, the base model of the adapter .*adapter, has changed: its .*h\.1\."):
        own_class.from_pretrained(tmp_path / "adapter", **({"subfolder": place} if place else {}))


WORDS = ["the farmer walked .", "she read the letter .", "the river turned green .", "he smiled ."]
TASK = Task("own", "entailment", {"premise": "one", "hypothesis": "two", "label": "label"}, ("no", "maybe", "yes"))
ROWS = [{"one": WORDS[n % 4], "two": WORDS[n % 3], "label": TASK.label_names[n % 3]} for n in range(12)]


@pytest.fixture(params=["gpt1", "openai-gpt"])
def base(request, plain_tokenizer, tmp_path):
    """The folder of a language model without control tokens."""
    folder = tmp_path / "base"
    torch.manual_seed(0)
    sizes = {"vocab_size": len(plain_tokenizer), "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 48}
    if request.param == "gpt1":
        GPT1ForCausalLM(GPT1Config(**sizes, initializer_range=0.2)).save_pretrained(folder)
    else:
        transformers.OpenAIGPTLMHeadModel(
            transformers.OpenAIGPTConfig(**sizes, initializer_range=0.2)
        ).save_pretrained(folder)
    plain_tokenizer.save_pretrained(folder)
    return str(folder)


def lora_trainer(base: str, folder, rows=ROWS, task=TASK, kind=None, **arguments) -> GPT1Trainer:
    torch.manual_seed(1)
    parts = prepare_finetuning(base, task, peft_config=LoraConfig(r=4, task_type=kind))
    numbers = [{**row, "label": TASK.label_names.index(row["label"])} for row in rows]
    settings = {"max_steps": 6, "learning_rate": 0.02, "per_device_train_batch_size": 4, "save_strategy": "no"}
    settings |= {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "logging_steps": 1, **arguments}
    return GPT1Trainer(
        args=GPT1TrainingArguments(str(folder), **settings), train_dataset=numbers, eval_dataset=numbers, **parts
    )


def test_an_adapter_folder_opens_as_a_whole_model(base, tmp_path):
    """With the trained rows of the control tokens, and no others moved; a second adapter may lie on the first."""
    trainer = lora_trainer(base, tmp_path / "run")
    tokens, embed = trainer.processing_class, trainer.model.get_input_embeddings()
    before = embed.weight.detach().clone()
    trainer.train()
    for record in (log for log in trainer.state.log_history if "lm_loss" in log):
        assert record["loss"] == pytest.approx(record["task_loss"] + 0.5 * record["lm_loss"], rel=1e-4)
    trainer.save_model()
    files = adapter_files(tmp_path / "run")
    assert {"adapter_config.json", "adapter_model.safetensors", "config.json", "tokenizer.json"} <= files
    assert "model.safetensors" not in files
    assert (tmp_path / "run" / "adapter_model.safetensors").stat().st_size < 50_000
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "library_name: peft" in card
    assert "| classes | no, maybe, yes |" in card
    (tmp_path / "run" / "README.md").write_text("a user's", encoding="utf-8")
    trainer.save_model()
    assert (tmp_path / "run" / "README.md").read_text(encoding="utf-8") == "a user's"
    batch = trainer.data_collator(trainer.train_dataset)
    expected = trainer.model.to("cpu").eval()(**batch)
    told = refusal(GPT1DoubleHeadsModel.from_pretrained, tmp_path / "run", quantization_config=GPT1Int8Config())
    assert "run is an adapter, which is not merged into quantised weights" in told
    opened = GPT1DoubleHeadsModel.from_pretrained(tmp_path / "run")
    close(opened(**batch).task_logits, expected.task_logits)
    close(opened(**batch).lm_loss, expected.lm_loss)
    changed = (opened.get_input_embeddings().weight != before).any(1).nonzero()[:, 0].tolist()
    assert changed == [tokens.start_token_id, tokens.delimiter_token_id, tokens.extract_token_id]
    assert opened.lm_head.weight is opened.get_input_embeddings().weight
    opened.save_pretrained(tmp_path / "run")
    told = refusal(GPT1DoubleHeadsModel.from_pretrained, tmp_path / "run")
    assert f"holds a whole model and an adapter that was trained on another, {base}. Move adapter_config.json" in told
    trainer.save_model()  # the weights of another save go, and so does an adapter
    assert "model.safetensors" not in adapter_files(tmp_path / "run")
    classify = transformers.pipeline("text-classification", str(tmp_path / "run"), top_k=None)
    row = trainer.train_dataset[0]
    found = {entry["label"]: entry["score"] for entry in classify({"text": row["one"], "text_pair": row["two"]})}
    scores, tolerance = expected.task_logits[0].softmax(-1).tolist(), 1e-5 if classify.device.type == "cpu" else 1e-4
    assert [found[name] for name in TASK.label_names] == pytest.approx(scores, abs=tolerance)
    second = lora_trainer(str(tmp_path / "run"), tmp_path / "second", kind="SEQ_CLS")
    close(second.model.eval()(**batch).task_logits, expected.task_logits)
    second.train()
    second.save_model()
    opened = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "second")
    batch.pop("labels")
    close(opened(**batch).logits, second.model.eval()(**batch).task_logits)
    assert (opened(**batch).logits - expected.task_logits).abs().max() > 1e-3


@pytest.mark.parametrize("base", ["gpt1"], indirect=True)
def test_an_adapter_does_not_replace_the_model_that_it_was_trained_on(base, tmp_path):
    before = {path.name: path.read_bytes() for path in Path(base).iterdir()}
    told = refusal(lora_trainer, base, base)
    assert f"The adapter is trained on the model in {base}, whose files it would replace" in told
    trainer = lora_trainer(base, tmp_path / "run")
    told = refusal(trainer.save_model, str(tmp_path / "run" / ".." / "base"))
    assert "Pass another folder." in told
    assert {path.name: path.read_bytes() for path in Path(base).iterdir()} == before


@pytest.mark.parametrize("tying", [False, True])
@pytest.mark.parametrize("target", [["tokens_embed"], ["lm_head"], ["tokens_embed", "lm_head"]])
@pytest.mark.parametrize("base", ["gpt1"], indirect=True)
def test_an_adapter_of_tied_weights(base, target, tying, tmp_path):
    """Merging adds each change to one of the two weights; opened and saved again they are two."""
    adapter = partial(LoraConfig, target_modules=target, ensure_weight_tying=tying, init_lora_weights=False)
    models = [get_peft_model(GPT1ForCausalLM.from_pretrained(base), adapter())]
    if target == ["lm_head"]:
        told = refusal(prepare_finetuning, base, TASK, peft_config=adapter())
        assert "has lm_head, which is one weight with the embeddings" in told
        assert "or add tokens_embed" in told
    elif not tying:
        models.append(prepare_finetuning(base, TASK, peft_config=adapter())["model"])
    for model, labels in zip(models, (None, [0, 1]), strict=False):
        model.save_pretrained(tmp_path / "adapter")
        model.get_base_model().config.save_pretrained(tmp_path / "adapter")
        model_class = type(model.get_base_model())
        batch = {name: ids % 79 for name, ids in batch_of((2, 9), labels).items()}  # of the vocabulary
        opened = model_class.from_pretrained(tmp_path / "adapter")
        opened.save_pretrained(tmp_path / "whole")
        for found in (opened, model_class.from_pretrained(tmp_path / "whole")):
            close(found(**batch).loss, model.eval()(**batch).loss)


@pytest.mark.parametrize("base", ["gpt1"], indirect=True)
def test_a_run_that_was_cut_goes_on_to_the_bit(base, tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 3}
    whole = lora_trainer(base, tmp_path / "whole", **settings)
    whole.train()
    lora_trainer(base, tmp_path / "cut", **settings).train()
    shutil.rmtree(tmp_path / "cut" / "checkpoint-6")
    again = lora_trainer(base, tmp_path / "cut", **settings)
    with resumes_after(3):
        again.train(resume_from_checkpoint=True)
    weights = whole.model.state_dict()
    moved = {name for name, weight in again.model.state_dict().items() if not torch.equal(weight, weights[name])}
    assert moved == set()


@pytest.mark.parametrize("base", ["gpt1"], indirect=True)
def test_from_the_command_to_predictions_and_texts(base, tmp_path, capsys, caplog):
    rows, run = write_rows(tmp_path / "rows.jsonl", ROWS), str(tmp_path / "run")
    data = ["--traversal", "entailment", "--columns", "premise=one", "hypothesis=two", "label=label"]
    data += ["--validation_file", rows, "--use_cpu", "--disable_tqdm", "true", "--do_eval", "--report_to", "none"]
    training = ["--train_file", rows, "--do_train", "--max_steps", "3", "--learning_rate", "0.02"]
    training += ["--save_strategy", "steps", "--save_steps", "3", *data]
    finetune.main(["--model", base, "--lora_r", "4", "--output_dir", run, *training])
    told = refusal(
        finetune.main, ["--model", base, "--output_dir", run, *training, "--resume_from_checkpoint", "auto"]
    )
    assert "checkpoint-3 was trained with --lora_r 4, and a run cannot go on with None. Pass what" in told
    card = Path(run, "README.md").read_text(encoding="utf-8")
    assert "| adapter | LORA |\n| r | 4 |\n| lora_alpha | 8 |" in card
    loss = json.loads(Path(run, "eval_results.json").read_text())["eval_loss"]
    finetune.main(["--model", run, "--output_dir", str(tmp_path / "again"), *data])
    again = json.loads(Path(tmp_path, "again", "eval_results.json").read_text())["eval_loss"]
    assert again == pytest.approx(loss, rel=1e-5)
    logging.Logger.warning_once.cache_clear()
    predict.main([run, "--file", rows, "--output_file", str(tmp_path / "found.jsonl"), "--device", "cpu"])
    found = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert len(found) == len(ROWS)
    assert found[0]["scores"].keys() == {"no", "maybe", "yes"}
    assert "within the vocabulary" not in caplog.text  # the base's, which has no control tokens
    capsys.readouterr()
    generate.main(["--model", run, "--prompts", "the farmer", "--max_new_tokens", "3", "--device", "cpu"])
    assert len(json.loads(capsys.readouterr().out)["continuations"]) == 1
    finetune.main(["--model", run, "--output_dir", str(tmp_path / "whole"), *training])
    assert "model.safetensors" in adapter_files(tmp_path / "whole")


def test_an_adapter_of_another_family(tmp_path):
    write_family("bert", tmp_path / "base")
    trainer = lora_trainer(str(tmp_path / "base"), tmp_path / "run")
    trainer.train()
    trainer.save_model()
    trainer.create_model_card()
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "This is an adapter of PEFT.\n" in card
    assert "pipeline(" not in card
    assert "`gpt1 predict FOLDER --file" in card
    opened = prepare_finetuning(str(tmp_path / "run"), TASK)["model"].eval()
    batch = trainer.data_collator(trainer.train_dataset)
    close(opened(**batch).logits, trainer.model.eval()(**batch).logits)
    told = refusal(lora_trainer, str(tmp_path / "run"), tmp_path / "second")
    assert "run is an adapter of a bert, to which no second adapter can be added. Leave `peft_config` out" in told


def test_pre_training_with_an_adapter(tmp_path, plain_tokenizer):
    folder, sizes = tmp_path / "base", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 48}
    GPT1ForCausalLM(GPT1Config(vocab_size=len(plain_tokenizer), **sizes)).save_pretrained(folder)
    model = get_peft_model(GPT1ForCausalLM.from_pretrained(folder), LoraConfig(r=2, target_modules="all-linear"))
    rows = [{"input_ids": plain_tokenizer(text, add_special_tokens=False)["input_ids"]} for text in WORDS]
    settings = {"max_steps": 3, "learning_rate": 0.02, "warmup_steps": 0, "save_strategy": "no", "use_cpu": True}
    trainer = GPT1PretrainingTrainer(
        model,
        GPT1PretrainingArguments(str(tmp_path / "run"), report_to="none", disable_tqdm=True, **settings),
        data_collator=BlockCollator(plain_tokenizer),
        train_dataset=rows,
        processing_class=plain_tokenizer,
    )
    trainer.train()
    trainer.save_model()
    ids = torch.tensor([rows[0]["input_ids"]])
    close(GPT1ForCausalLM.from_pretrained(tmp_path / "run")(ids).logits, trainer.model.eval()(ids).logits)


@pytest.mark.parametrize("base", ["gpt1"], indirect=True)
def test_without_peft_one_sentence_says_what_to_install(base, tmp_path, monkeypatch):
    trainer = lora_trainer(base, tmp_path / "run")
    trainer.save_model()
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match="run holds an adapter of PEFT, which is not installed. Run `pip install"):
        GPT1ForCausalLM.from_pretrained(tmp_path / "run")
    rows = write_rows(tmp_path / "rows.jsonl", ROWS)
    words = ["--train_file", rows, "--do_train", "--traversal", "entailment", "--use_cpu", "--columns"]
    words += ["premise=one", "hypothesis=two", "label=label", "--output_dir", str(tmp_path / "other")]
    with pytest.raises(ModuleNotFoundError) as missing:
        finetune.main(["--model", base, "--lora_r", "4", *words])
    assert "peft is not installed" in entry.sentence_of(missing.value)


@pytest.mark.parametrize("base", ["gpt1"], indirect=True)
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"r": 4}, "`peft_config` is a dict. Pass one like `LoraConfig"),
        (LoraConfig(task_type="CAUSAL_LM"), "`task_type` of `peft_config` is CAUSAL_LM, .* Leave `task_type` out"),
    ],
)
def test_other_configurations_are_refused(base, given, sentence):
    with pytest.raises(ValueError, match=sentence):
        prepare_finetuning(base, "rte", peft_config=given)


@pytest.mark.parametrize("base", ["gpt1"], indirect=True)
def test_layers_that_are_reset_are_no_base_of_an_adapter(base):
    """It would be saved without them; nor has a new model layers to keep."""
    with pytest.raises(ValueError, match="`n_transfer` is 0, but an adapter is saved without the layers .* Leave"):
        prepare_finetuning(base, TASK, n_transfer=0, peft_config=LoraConfig(r=2))
    with pytest.raises(ValueError, match="`n_transfer` is 7, but a new model has no trained layers to keep"):
        prepare_finetuning(GPT1Config.from_pretrained(base), TASK, base, n_transfer=7)


@pytest.mark.parametrize("base", ["gpt1"], indirect=True)
def test_another_task_type_that_serves_is_taken(base):
    prepare_finetuning(base, "rte", peft_config=LoraConfig(r=4, task_type=TaskType.FEATURE_EXTRACTION))


@pytest.mark.parametrize("base", ["gpt1"], indirect=True)
def test_a_configuration_is_left_as_it_was_given(base):
    """What is completed are the ids of a tokenizer and the names of a head, which another model does not have."""
    given = LoraConfig(r=4)
    before = given.to_dict()
    completed = prepare_finetuning(base, TASK, peft_config=given)["model"].peft_config["default"]
    assert completed.modules_to_save == ["task_head"]
    assert given.to_dict() == before


def test_virtual_tokens_are_refused(tmp_path):
    base = make_double_heads_model("classification", make_letter_tokenizer())
    sizes = {"token_dim": 32, "num_layers": 2, "num_attention_heads": 4}
    model = get_peft_model(base, PromptTuningConfig(TaskType.SEQ_CLS, num_virtual_tokens=4, **sizes))
    message = refusal(make_finetuning_trainer, "classification", tmp_path, 4, 1, model=model)
    assert "virtual tokens before each sequence (PROMPT_TUNING)" in message
    assert "Use LoRA" in message
