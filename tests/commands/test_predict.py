"""A fine-tuned folder knows its task: `gpt1 predict`, `gpt1 finetune --do_predict`; its run.yaml repeats the run."""

import csv
import json
from pathlib import Path

import datasets
import pytest
import torch

from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel
from modeling_gpt1.commands import entry, finetune, predict

SIZE = "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,max_position_embeddings=32"
GOOD, BAD = "the whole room will laugh .", "nobody in the village smiled ."
ROWS = {
    "classification": [{"review": GOOD, "mood": "happy"}, {"review": BAD, "mood": "sad"}],
    "multiple_choice": [
        {"story": "he needed a plough .", "ends": ["he walked to the market .", "slow ."], "label": 0},
        {"story": "the letter came .", "ends": ["green .", "she smiled .", "the river turned ."], "label": 1},
    ],
    "regression": [{"one": GOOD, "two": GOOD, "label": 1.0}, {"one": GOOD, "two": BAD, "label": -1.0}],
}
COLUMNS = {
    "classification": ["text=review", "label=mood"],
    "multiple_choice": ["context=story", "choices=ends"],
    "regression": ["text_a=one", "text_b=two"],
}


def write_rows(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read_lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def folders(plain_tokenizer, tmp_path_factory):
    """A model of each kind, fine-tuned for one update, with its predictions of a test file."""
    root = tmp_path_factory.mktemp("folders")
    plain_tokenizer.save_pretrained(root / "tokenizer")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", root / "cache")
        for kind, rows in ROWS.items():
            file = write_rows(root / f"{kind}.jsonl", rows)
            traversal = ["similarity", "--regression"] if kind == "regression" else [kind]
            finetune.main(
                [
                    *("--train_file", file, "--test_file", file, "--traversal", *traversal),
                    *("--columns", *COLUMNS[kind], "--tokenizer_name", str(root / "tokenizer")),
                    *("--config_overrides", SIZE, "--output_dir", str(root / kind), "--use_cpu", "--do_train"),
                    *("--do_predict", "--max_steps", "1", "--learning_rate", "1e-2", "--save_strategy", "no"),
                    *("--disable_tqdm", "true"),
                ]
            )
        yield root


@pytest.mark.parametrize("kind", ROWS)
def test_a_folder_predicts_what_its_run_predicted(kind, folders, capsys):
    predict.main([str(folders / kind), "--file", str(folders / f"{kind}.jsonl"), "--device", "cpu"])
    records = read_lines(capsys.readouterr().out)
    expected = read_lines((folders / kind / "predictions.jsonl").read_text(encoding="utf-8"))
    for record, of_run in zip(records, expected, strict=True):
        if kind == "classification":
            assert list(record["scores"]) == ["happy", "sad"]
            record["scores"] = list(record["scores"].values())
        record.pop("truncated", None)  # which the run counts in its log
        assert record == {
            name: value if isinstance(value, str | int) else pytest.approx(value, abs=1e-6)
            for name, value in of_run.items()
        }


def test_a_csv_file_has_a_line_for_each_row_whatever_it_holds(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "CHUNK", 2)
    rows = ["text,note", f"{BAD},a", '"",b', f"{GOOD},c", "  ,d", f"{BAD},e"]
    (tmp_path / "new.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    words = [str(folders / "classification"), "--file", str(tmp_path / "new.csv"), "--columns", "text=text"]
    predict.main([*words, "--output_file", str(tmp_path / "out.csv"), "--batch_size", "2"])
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["index", "label", "score_happy", "score_sad", "truncated", "error"]
    assert [line["index"] for line in lines] == ["0", "1", "2", "3", "4"]
    needed = "it needs at least one word. Remove or correct the row."
    assert [line["error"] for line in lines] == [
        *("", f"text (column 'text') holds the empty text ''; {needed}"),
        *("", f"text (column 'text') holds the empty text '  '; {needed}", ""),
    ]
    assert lines[1]["label"] == lines[1]["score_sad"] == ""
    assert {**lines[0], "index": "4"} == lines[4] != {**lines[2], "index": "4"}
    assert float(lines[0]["score_happy"]) + float(lines[0]["score_sad"]) == pytest.approx(1)


@pytest.mark.parametrize("ending", predict.ENDINGS)
def test_an_interrupted_prediction_leaves_the_older_file(ending, folders, tmp_path, monkeypatch):
    calls, describe = [], predict.Predictor.describe

    def interrupted(self, logits):
        calls.append(output.read_text())
        if len(calls) == 2:
            raise KeyboardInterrupt
        return describe(self, logits)

    output = tmp_path / f"out{ending}"
    output.write_text("old\n")
    monkeypatch.setattr(predict.Predictor, "describe", interrupted)
    monkeypatch.setattr(predict, "CHUNK", 1)
    words = [str(folders / "classification"), "--file", str(folders / "classification.jsonl")]
    with pytest.raises(KeyboardInterrupt):
        predict.main([*words, "--output_file", str(output)])
    assert calls == ["old\n", "old\n"]
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(output.name, "old\n")]


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("multiple_choice", ["index", "label", "scores", "truncated", "error"]),
        ("regression", ["index", "score", "truncated", "error"]),
    ],
)
def test_columns_of_choices_and_numbers(kind, columns, folders, tmp_path):
    file, output = str(folders / f"{kind}.jsonl"), tmp_path / "out.csv"
    predict.main(["--model", str(folders / kind), "--file", file, "--output_file", str(output)])
    with output.open(encoding="utf-8", newline="") as lines:
        first, second = csv.DictReader(lines)
    assert list(first) == columns
    if kind == "multiple_choice":
        assert [len(line["scores"].split()) for line in (first, second)] == [2, 3]


def test_rows_that_were_cut_say_so(folders, tmp_path, capsys):
    rows = [{"review": " ".join([GOOD] * 9)}, {"review": GOOD}, {"review": ""}, {"review": " ".join([BAD] * 9)}]
    words = [
        str(folders / "classification"),
        "--file",
        write_rows(tmp_path / "long.jsonl", rows),
        "--max_length",
        "28",
    ]
    predict.main(words)
    printed = capsys.readouterr()
    assert [record.get("truncated") for record in read_lines(printed.out)] == [True, None, None, True]
    assert printed.err.splitlines()[-1] == "2 of 4 rows were cut to 28 tokens: those with the field `truncated`."
    predict.main([*words, "--output_file", str(tmp_path / "out.csv")])
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        assert [line["truncated"] for line in csv.DictReader(file)] == ["True", "", "", "True"]
    predict.main([str(folders / "classification"), "--file", write_rows(tmp_path / "short.jsonl", rows[1:3])])
    assert capsys.readouterr().err.count("were cut") == 1  # of the .csv file


def test_predict_reads_as_much_as_fine_tuning_did(folders, plain_tokenizer, tmp_path, capsys):
    file = write_rows(tmp_path / "rows.jsonl", [*ROWS["classification"], {"review": f"{GOOD} {BAD}", "mood": "sad"}])
    data = ["--traversal", "classification", "--columns", *COLUMNS["classification"]]
    words = ["--test_file", file, "--use_cpu", "--do_predict", "--disable_tqdm", "true", "--save_strategy", "no"]
    start = ["--tokenizer_name", str(folders / "tokenizer"), "--config_overrides", SIZE, "--max_length", "28"]
    output = tmp_path / "short"
    finetune.main(
        [*words, *data, *start, *("--train_file", file, "--do_train", "--max_steps", "1")]
        + ["--output_dir", str(output)]
    )
    finetune.main([*words, "--model", str(output), "--output_dir", str(tmp_path / "again")])
    capsys.readouterr()
    predict.main([str(output), "--file", file, "--device", "cpu"])
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1] == "1 of 3 rows were cut to 28 tokens: those with the field `truncated`."
    expected = [record["scores"] for record in read_lines((output / "predictions.jsonl").read_text(encoding="utf-8"))]
    again = read_lines((tmp_path / "again" / "predictions.jsonl").read_text(encoding="utf-8"))
    found = read_lines(printed.out)
    for place, scores in enumerate(expected):
        assert list(found[place]["scores"].values()) == pytest.approx(scores, abs=1e-6)
        assert again[place]["scores"] == pytest.approx(scores, abs=1e-6)


def test_finetune_asks_a_fine_tuned_folder_for_its_task(folders, tmp_path):
    model, file = folders / "regression", folders / "regression.jsonl"
    words = ["--model", str(model), "--test_file", str(file), "--do_predict", "--output_dir", str(tmp_path / "new")]
    finetune.main([*words, "--use_cpu", "--disable_tqdm", "true"])
    again = read_lines((tmp_path / "new" / "predictions.jsonl").read_text(encoding="utf-8"))
    first = read_lines((model / "predictions.jsonl").read_text(encoding="utf-8"))
    assert [record["score"] for record in again] == pytest.approx([record["score"] for record in first], abs=1e-6)
    assert (tmp_path / "new" / "eval_run.yaml").exists() and not (tmp_path / "new" / "run.yaml").exists()


def test_a_run_is_repeated_by_its_settings(folders, tmp_path):
    settings = ["--config", str(folders / "classification" / "run.yaml")]
    entry.main(["finetune", *settings, "--output_dir", str(tmp_path)])
    first = GPT1DoubleHeadsModel.from_pretrained(folders / "classification").state_dict()
    again = GPT1DoubleHeadsModel.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


def refusal(*words: str) -> str:
    with pytest.raises(ValueError) as error:
        predict.main(list(words))
    return str(error.value)


def test_refusals(folders, tmp_path):
    file, model = str(folders / "classification.jsonl"), str(folders / "classification")
    other = write_rows(tmp_path / "other.jsonl", [{"text": GOOD}])
    (tmp_path / "here").mkdir()
    GPT1Config(n_embd=8, n_head=2).save_pretrained(tmp_path / "plain")
    GPT1Config(n_embd=8, n_head=2, traversal="classification").save_pretrained(tmp_path / "old")
    assert "No model was given" in refusal("--file", file)
    assert f"{other} has no column 'review' for the role text" in refusal(model, "--file", other)
    assert "it is a language model" in refusal(str(tmp_path / "plain"), "--file", file)
    assert "Pass --columns, such as --columns text=review" in refusal(str(tmp_path / "old"), "--file", file)
    assert "Pass a name that ends in .jsonl or .csv" in refusal(model, "--file", file, "--output_file", "out.txt")
    for same in (other, str(tmp_path / "here" / ".." / "other.jsonl")):
        told = refusal(model, "--file", other, "--output_file", same)
        assert f"--output_file {same} is the --file, whose rows the predictions would replace" in told
    assert read_lines(Path(other).read_text(encoding="utf-8")) == [{"text": GOOD}]


def test_a_folder_without_a_task_head_is_refused(folders, tmp_path):
    """A config alone does not make a classifier: its head would be random."""
    base = GPT1DoubleHeadsModel.from_pretrained(folders / "classification").transformer
    base.save_pretrained(tmp_path)
    for path in (folders / "classification").glob("tokenizer*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    told = refusal(str(tmp_path), "--file", str(folders / "classification.jsonl"))
    assert f"--model {tmp_path} lacks weights: task_head.score.bias, task_head.score.weight" in told
