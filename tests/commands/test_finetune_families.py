"""`gpt1 finetune` and `gpt1 predict` with models of other families, in this process on made-up rows."""

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from support.families import SIZES, make_family_model, make_family_tokenizer, write_family
from support.files import read_rows, save_folder, write_rows
from support.finetuning import resumes_after
from support.refusals import refusal

from modeling_gpt1 import GPT1DoubleHeadsModel, prepare_finetuning
from modeling_gpt1.commands import finetune, predict
from modeling_gpt1.families.checks import num_embeddings
from modeling_gpt1.families.probing import limit_of_tokens
from tokenization import Task, load_files

PAIRS = [("ann sees the fish", "she is old"), ("the cat is new", "fish"), ("ben goes home", "a lazy dog eats")]
ROWS = {
    "classification": [{"one": one, "label": ["sad", "happy"][index % 2]} for index, (one, _) in enumerate(PAIRS)],
    "entailment": [{"one": one, "two": two, "label": index % 2} for index, (one, two) in enumerate(PAIRS)],
    "regression": [{"one": one, "two": two, "label": 0.5 * index - 1} for index, (one, two) in enumerate(PAIRS)],
    "multiple_choice": [
        {"one": "ann sees", "ask": "what", "ends": ["the dog", "old ben"], "label": 0},
        {"one": "the cat", "ask": "where", "ends": ["home", "a park", "very lazy"], "label": 2},
    ],
}
ROWS["similarity"] = ROWS["entailment"]
COLUMNS = {"classification": ["text=one"], "entailment": ["premise=one", "hypothesis=two"]}
COLUMNS |= {"similarity": ["text_a=one", "text_b=two"], "regression": ["text_a=one", "text_b=two"]}
COLUMNS |= {"multiple_choice": ["context=one", "question=ask", "choices=ends"]}
FAMILIES = {
    **{"classification": ("gpt2", "--auto_model"), "entailment": ("bart",), "similarity": ("bert", "--both_orders")},
    **{"regression": ("t5",), "multiple_choice": ("roberta",)},
}
WRITTEN = {
    *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"),
    *("train_results.json", "eval_results.json", "predict_results.json", "all_results.json"),
    *("trainer_state.json", "eval_predictions.jsonl", "predictions.jsonl", "run.yaml"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A folder of each family that is used here, as after pre-training, and one that `gpt1 finetune` made of it."""
    root = tmp_path_factory.mktemp("families")
    for kind, (family, *flags) in FAMILIES.items():
        write_family(family, root / family)
        more = [*flags, "--do_eval", "--do_predict", "--test_file", rows_file(kind, root)]
        run(kind, root, root / family, root / f"{kind}-tuned", *more)
    return root


def rows_file(kind: str, folder: Path, times: int = 1) -> str:
    return write_rows(folder / f"{kind}-{times}.jsonl", ROWS[kind] * times)


def data_of(kind: str, folder: Path) -> list[str]:
    files = ["--train_file", rows_file(kind, folder, 4), "--validation_file", rows_file(kind, folder)]
    traversal = ["similarity", "--regression"] if kind == "regression" else [kind]
    return [*files, "--traversal", *traversal, "--columns", *COLUMNS[kind]]


def entailment_task(folder: Path) -> Task:
    columns = {"premise": "one", "hypothesis": "two"}
    return load_files({"train": rows_file("entailment", folder)}, "entailment", columns)[0]


def run(kind: str, folder: Path, model: Path, output: Path, *more: str) -> None:
    words = ["--model", str(model), "--output_dir", str(output), "--use_cpu", "--disable_tqdm", "true", "--do_train"]
    words += ["--per_device_train_batch_size", "4", "--max_steps", "2", "--save_strategy", "no"]
    finetune.main([*data_of(kind, folder), *words, "--learning_rate", "1e-2", "--seed", "3", *more])


def by_hand(kind: str, folder: Path) -> list[list[float]]:
    """Scores of each row by transformers alone."""
    head = "MultipleChoice" if kind == "multiple_choice" else "SequenceClassification"
    auto_class = getattr(transformers, f"AutoModelFor{head}")
    model, tokenizer = auto_class.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)
    scores = []
    for row in ROWS[kind]:
        if kind == "multiple_choice":
            ends = [f"{row['ask']} {end}" for end in row["ends"]]
            batch = tokenizer([row["one"]] * len(ends), ends, padding=True, return_tensors="pt")
            batches = [{name: tensor[None] for name, tensor in batch.items()}]
        else:
            texts = [row["one"], row["two"]] if "two" in row else [row["one"]]
            orders = [texts, texts[::-1]] if kind == "similarity" else [texts]
            batches = [tokenizer(*order, return_tensors="pt") for order in orders]
        with torch.no_grad():
            logits = torch.stack([model(**batch).logits[0] for batch in batches]).mean(0)
        scores.append([logits.item()] if kind == "regression" else logits.softmax(-1).tolist())
    return scores


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_fine_tuned_folder_predicts_as_transformers_does(kind, folders, capsys):
    output = folders / f"{kind}-tuned"
    assert {path.name for path in output.iterdir()} - {"confusion_matrix.png"} == WRITTEN  # which needs an extra
    results = json.loads((output / "eval_results.json").read_text(encoding="utf-8"))
    metrics = {"eval_pearson", "eval_spearmanr"} if kind == "regression" else {"eval_accuracy"}
    assert {"eval_loss", *metrics} <= results.keys()
    assert not {"eval_lm_loss", "eval_task_loss"} & results.keys()

    predictions = read_rows((output / "predictions.jsonl").read_text(encoding="utf-8"))
    capsys.readouterr()
    predict.main([str(output), "--file", rows_file(kind, folders), "--device", "cpu"])
    records = read_rows(capsys.readouterr().out)
    for prediction, record, scores in zip(predictions, records, by_hand(kind, output), strict=True):
        if kind == "regression":
            assert [prediction["score"], record["score"]] == pytest.approx(scores * 2, abs=1e-5)
            continue
        for one in (prediction, record):
            found = one["scores"] if kind == "multiple_choice" else list(one["scores"].values())
            assert found == pytest.approx(scores, abs=1e-5)
        assert prediction["label"] == record["label"]


@pytest.fixture(scope="module")
def scorer(folders):
    """A decoder that was fine-tuned on choices with both losses."""
    output = folders / "scorer"
    run("multiple_choice", folders, folders / "gpt2", output, "--auto_model", "--lm_coef", "0.5", "--do_eval")
    return output


def test_a_decoder_predicts_choices_by_its_scores_of_pairs(folders, scorer, capsys):
    capsys.readouterr()
    predict.main([str(scorer), "--file", rows_file("multiple_choice", folders), "--device", "cpu"])
    records = read_rows(capsys.readouterr().out)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(scorer)
    tokenizer = transformers.AutoTokenizer.from_pretrained(scorer)
    for record, row in zip(records, ROWS["multiple_choice"], strict=True):
        pairs = [tokenizer(row["one"], f"{row['ask']} {end}", return_tensors="pt") for end in row["ends"]]
        with torch.no_grad():
            scores = torch.cat([model(**pair).logits[0] for pair in pairs])
        assert record["scores"] == pytest.approx(scores.softmax(-1).tolist(), abs=1e-5)


def test_an_evaluation_of_choices_by_a_decoder_has_both_losses_and_a_metric(scorer):
    results = json.loads((scorer / "eval_results.json").read_text(encoding="utf-8"))
    assert {"eval_task_loss", "eval_lm_loss", "eval_accuracy"} <= results.keys()


def test_the_card_of_a_decoder_that_scores_choices_shows_how_to_score_a_pair(scorer):
    card = (scorer / "README.md").read_text(encoding="utf-8")
    assert 'pipeline("text-classification", ' in card
    assert '"text_pair": "the second text"' in card


def test_a_fine_tuned_folder_is_evaluated_without_training(folders, tmp_path):
    """The folder knows its task, and has the loss of its run's end."""
    words = ["--validation_file", rows_file("similarity", folders), "--do_eval", "--use_cpu"]
    finetune.main([*words, "--model", str(folders / "similarity-tuned"), "--output_dir", str(tmp_path)])
    trained, opened = (
        json.loads((folder / "eval_results.json").read_text(encoding="utf-8"))["eval_loss"]
        for folder in (folders / "similarity-tuned", tmp_path)
    )
    assert opened == pytest.approx(trained, abs=1e-6)


def test_the_card_speaks_of_the_family(folders):
    card = (folders / "similarity-tuned" / "README.md").read_text(encoding="utf-8")
    for line in (
        "A model of transformers' type `bert` (BertForSequenceClassification, 23,106 parameters), fine-tuned with",
        "| examples | 12 for training, 3 for evaluation |",
        "- Texts longer than 96 tokens were cut.",
        "the model read each pair in both orders",
        "Minimised: L2, the task's loss",
    ):
        assert line in card
    assert "GPT-1" not in card
    assert "lower case" not in card
    assert "Citation" not in card


def test_gpt2_opens_as_gpt1_without_auto_model(folders):
    task = entailment_task(folders)
    assert type(prepare_finetuning(folders / "gpt2", task)["model"]) is GPT1DoubleHeadsModel
    parts = prepare_finetuning(folders / "gpt2", task, auto_model=True)
    assert type(parts["model"]) is transformers.GPT2ForSequenceClassification
    assert parts["model"].config.pad_token_id == parts["processing_class"].eos_token_id == 0


def test_what_the_tokenizer_pads_with_and_what_is_cut_are_said(folders, tmp_path, caplog):
    write_family("llama", tmp_path / "llama")
    with caplog.at_level(logging.INFO):
        run("entailment", folders, tmp_path / "llama", tmp_path / "out", "--max_length", "12")
    said = caplog.messages
    assert "The tokenizer has no padding token: it pads with its end-of-text token, </s>." in said
    file = rows_file("entailment", folders, 4)
    assert f"train: 12 rows of {file} (0 8, 1 4), 12 cut to 12 tokens, 0.0% of the tokens unknown" in said
    assert transformers.AutoConfig.from_pretrained(tmp_path / "out").pad_token_id == 2


def test_scores_do_not_depend_on_padding_whatever_the_configuration_calls_padding(folders, tmp_path):
    """A decoder scores the last token that its configuration does not call padding."""
    write_family("gpt2", tmp_path / "gpt2")
    content = json.loads((tmp_path / "gpt2" / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "gpt2" / "config.json").write_text(json.dumps(content | {"pad_token_id": 1}), encoding="utf-8")
    parts = prepare_finetuning(tmp_path / "gpt2", entailment_task(folders), auto_model=True)
    model, collator = parts["model"].eval(), parts["data_collator"]
    with torch.no_grad():
        alone = torch.cat([model(**collator([row])).logits for row in ROWS["entailment"]])
        torch.testing.assert_close(model(**collator(ROWS["entailment"])).logits, alone, rtol=0, atol=1e-5)


def test_a_model_without_a_table_of_tokens(folders, tmp_path):
    """CANINE hashes characters, so no number of weights is to be compared with its vocabulary of a million."""
    sizes = {**SIZES, "num_hash_buckets": 64, "downsampling_rate": 2, "local_transformer_stride": 8}
    canine = transformers.CanineModel(transformers.CanineConfig(**sizes))
    save_folder(tmp_path / "canine", canine, transformers.CanineTokenizer(model_max_length=64))
    with pytest.raises(NotImplementedError):
        transformers.CanineModel(transformers.CanineConfig(**sizes)).get_input_embeddings()
    parts = prepare_finetuning(tmp_path / "canine", entailment_task(folders))
    assert parts["model"](**parts["data_collator"](ROWS["entailment"])).loss.isfinite()


def test_embeddings_without_a_table_of_weights_are_not_counted():
    model = transformers.BertModel(transformers.BertConfig(**SIZES))
    assert num_embeddings(model) == model.config.vocab_size
    model.set_input_embeddings(torch.nn.Identity())
    assert num_embeddings(model) == 0


def test_positions_in_a_table_of_another_class():
    """I-BERT's tables are quantised, and its positions begin after that of padding, as RoBERTa's."""
    config = transformers.IBertConfig(**{**SIZES, "max_position_embeddings": 98}, pad_token_id=1)
    model = transformers.IBertModel(config)
    assert not isinstance(model.embeddings.position_embeddings, torch.nn.Embedding)
    assert limit_of_tokens(model) == 96


def test_a_head_of_choices_scores_one_text_each(folders, tmp_path):
    """Its configuration may call any number `num_labels`."""
    path = tmp_path / "choices" / "config.json"
    shutil.copytree(folders / "multiple_choice-tuned", tmp_path / "choices")
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"id2label": {"0": "a", "1": "b"}}))
    with pytest.raises(ValueError, match="has 1 scores, but classification-4 needs 2"):
        run("classification", folders, tmp_path / "choices", tmp_path / "out")
    run("classification", folders, tmp_path / "choices", tmp_path / "out", "--ignore_mismatched_sizes")
    run("multiple_choice", folders, tmp_path / "choices", tmp_path / "further")


def test_a_resumed_run_repeats(folders, tmp_path):
    """With dropout, whose random state a checkpoint keeps."""
    config = transformers.BertConfig.from_pretrained(folders / "bert", hidden_dropout_prob=0.1)
    model = make_family_model("bert", make_family_tokenizer("bert"), "Model")
    model.config = config
    save_folder(tmp_path / "start", model, make_family_tokenizer("bert"))
    steps = ["--save_strategy", "steps", "--save_steps", "1", "--max_steps", "3"]
    run("entailment", folders, tmp_path / "start", tmp_path / "out", *steps)
    weights = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").state_dict()
    checkpoint = ["--resume_from_checkpoint", str(tmp_path / "out" / "checkpoint-1")]
    with resumes_after(1):
        run("entailment", folders, tmp_path / "start", tmp_path / "again", *steps, *checkpoint)
    again = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "again").state_dict()
    torch.testing.assert_close(again, weights, rtol=0, atol=0)


@pytest.fixture(scope="module")
def wrong_folders(folders, tmp_path_factory):
    root = tmp_path_factory.mktemp("wrong")
    make_family_model("bert", make_family_tokenizer("bert"), "Model").save_pretrained(root / "no tokenizer")
    tokenizer = make_family_tokenizer("bert")
    write_family("bert", root / "classes", "ForSequenceClassification")
    write_family("bert", root / "more tokens")
    tokenizer.add_tokens(["Paris"])
    tokenizer.save_pretrained(root / "more tokens")
    write_family("llama", root / "no padding")
    tokenizer = make_family_tokenizer("llama")
    tokenizer.eos_token = None
    tokenizer.save_pretrained(root / "no padding")
    return root


# Kind, words of the command line, and parts of the sentence.
MODEL = "--model"
WRONG = [
    ("multiple_choice", [MODEL, "{made}/bart"], "'multiple_choice' of a model of type 'bart'", "another family"),
    ("entailment", [MODEL, "{made}/bert", "--lm_coef", "0.5"], "`lm_coef` is 0.5", "leave `lm_coef` out"),
    ("entailment", [MODEL, "{wrong}/no padding"], "LlamaTokenizer", "Set its `pad_token`"),
    ("entailment", [MODEL, "{wrong}/no tokenizer"], "only 5 special ones", "Pass the tokenizer that belongs"),
    ("entailment", [MODEL, "{made}/bert", "--n_transfer", "1"], "`n_transfer` is 1", "Leave it out"),
    ("entailment", [MODEL, "{made}/bert", "--max_length", "128"], "128 tokens", "positions for 96"),
    ("regression", [MODEL, "{made}/similarity-tuned"], "2 scores, but regression-4 needs 1", "mismatched_sizes"),
    ("multiple_choice", [MODEL, "{wrong}/classes"], "2 scores, but multiple_choice-4 needs 1"),
    ("entailment", [MODEL, "{wrong}/more tokens"], "has 54 tokens, but the model has embeddings for 53"),
    ("classification", [MODEL, "{made}/bert", "--both_orders"], "'classification'", "Leave `both_orders` out"),
]


@pytest.mark.parametrize(("kind", "words", "parts"), [(kind, words, parts) for kind, words, *parts in WRONG])
def test_wrong_uses(kind, words, parts, folders, wrong_folders, tmp_path):
    words = [word.format(made=folders, wrong=wrong_folders) for word in words]
    words = [*data_of(kind, folders), *words, "--do_train", "--use_cpu", "--output_dir", str(tmp_path)]
    told = refusal(finetune.main, words)
    assert [part for part in parts if part not in told] == [], told


def test_a_classifier_whose_task_is_unknown_is_not_evaluated(folders, tmp_path):
    write_family("bert", tmp_path / "bert", "ForSequenceClassification")
    words = [*data_of("entailment", folders), "--do_eval", "--output_dir", str(tmp_path / "out"), "--use_cpu"]
    with pytest.raises(ValueError, match="task head for entailment, named in its config.json, but .* has none"):
        finetune.main([*words, "--model", str(tmp_path / "bert")])
    with pytest.raises(ValueError, match="bert names no traversal or no columns. Pass --columns, or a folder"):
        predict.main([str(tmp_path / "bert"), "--file", rows_file("entailment", folders)])


def test_code_of_a_model_runs_with_consent_alone(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(transformers.dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    shutil.copytree(folders / "bert", tmp_path / "own")
    marker, config = tmp_path / "ran", json.loads((tmp_path / "own" / "config.json").read_text(encoding="utf-8"))
    names = {"AutoConfig": "own.OwnConfig", "AutoModelForSequenceClassification": "own.OwnForSequenceClassification"}
    (tmp_path / "own" / "config.json").write_text(json.dumps(config | {"model_type": "own", "auto_map": names}))
    (tmp_path / "own" / "own.py").write_text(
        "from pathlib import Path\n"
        "from transformers import BertConfig, BertForSequenceClassification\n"
        f"Path({str(marker)!r}).touch()\n"
        "class OwnConfig(BertConfig):\n    model_type = 'own'\n"
        "class OwnForSequenceClassification(BertForSequenceClassification):\n    config_class = OwnConfig\n"
    )
    assert "trust_remote_code=True" in refusal(run, "entailment", folders, tmp_path / "own", tmp_path / "out")
    assert not marker.exists()
    run("entailment", folders, tmp_path / "own", tmp_path / "out", "--trust_remote_code")
    assert marker.exists()


def test_a_decoder_is_trained_with_the_auxiliary_objective(folders, tmp_path):
    """Its results have both losses, its folder is transformers' classifier, and its card names λ."""
    llama = write_family("llama", tmp_path / "llama", "ForCausalLM")
    run("entailment", tmp_path, llama, tmp_path / "run", "--do_eval", "--lm_coef", "0.5", "--freeze_lm_head")
    results = json.loads((tmp_path / "run" / "eval_results.json").read_text())
    assert results["eval_loss"] == pytest.approx(results["eval_task_loss"] + 0.5 * results["eval_lm_loss"], rel=1e-6)
    content = json.loads((tmp_path / "run" / "config.json").read_text())
    assert content["architectures"] == ["LlamaForSequenceClassification"]
    assert "| lm_coef (λ) | 0.5 |" in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
