"""`gpt1 evaluate` on tiny random models: its files, the curves over a run, the card, and what is refused."""

import json

import pytest
from helpers_evaluation import only_few_tasks, write_rows

from modeling_gpt1 import GPT1ForCausalLM
from modeling_gpt1.commands import evaluate


@pytest.fixture(scope="module", autouse=True)
def few_definitions():
    with only_few_tasks():
        yield


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = write_rows(tmp_path_factory.mktemp("data"))
    rows = [{"sentence": "the film was slow", "label": 0}, {"sentence": "the film was new", "label": 1}]
    for name in ("sst2", "cola"):
        (folder / name).mkdir()
        for split in ("train", "validation"):
            (folder / name / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(folder)


@pytest.fixture
def save_model(plain_tokenizer, tiny_model):
    def save(folder, seed=0, with_tokenizer=True):
        model = tiny_model(GPT1ForCausalLM, seed, vocab_size=len(plain_tokenizer), max_position_embeddings=64)
        model.save_pretrained(folder)
        if with_tokenizer:
            plain_tokenizer.save_pretrained(folder)
        return str(folder)

    return save


def test_one_model(save_model, data_dir, tmp_path, capsys):
    model, output = save_model(tmp_path / "model"), tmp_path / "out"
    arguments = ["--model", model, "--data_dir", data_dir, "--output_dir", str(output), "--device", "cpu"]
    evaluate.main([*arguments, "--tasks", "arc_easy", "copa", "paper_sst2", "--num_fewshot", "1"])
    results = json.loads((output / "results.json").read_text())
    assert results["asked"] == ["arc_easy", "copa", "paper_sst2"] and "samples" not in results
    assert results["n-shot"] == {"arc_easy": 1, "copa": 1, "paper_sst2": 1}
    assert results["n-samples"]["arc_easy"] == {"original": 2, "effective": 2, "chance": 0.25, "split": "test"}
    value = results["results"]["copa"]["acc,none"]
    shown = (output / "table.md").read_text()
    assert f"| copa | validation | 2 | 1 | acc | {value:.4g} ±" in shown and shown in capsys.readouterr().out
    assert "num_fewshot: 1" in (output / "evaluate_run.yaml").read_text()


def test_a_folder_names_its_task_and_git_is_not_heard(save_model, data_dir, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)  # no repository
    arguments = ["--model", save_model(tmp_path / "model"), "--data_dir", data_dir, "--tasks", "lambada"]
    evaluate.main([*arguments, "--output_dir", "out", "--device", "cpu"])
    assert json.loads((tmp_path / "out" / "results.json").read_text())["asked"] == ["lambada_standard"]
    assert "fatal" not in capfd.readouterr().err


def test_the_folder_of_a_run_keeps_its_settings_and_paper_tasks_tell_their_split(save_model, tmp_path):
    model = save_model(tmp_path / "run")
    (tmp_path / "run" / "run.yaml").write_text("seed: 1\n")
    rows = [{"sentence": f"the film was slow {number}", "label": number % 2} for number in range(5)]
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "validation.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments = ["--model", model, "--data_dir", str(tmp_path), "--output_dir", model, "--device", "cpu"]
    evaluate.main([*arguments, "--tasks", "paper_sst2", "--max_eval_samples", "4"])
    assert (tmp_path / "run" / "run.yaml").read_text() == "seed: 1\n"
    assert "| paper_sst2 | validation | 4 of 5 | 0 | acc |" in (tmp_path / "run" / "table.md").read_text()
    found = json.loads((tmp_path / "run" / "results.json").read_text())["results"]["paper_sst2"]
    value = found["acc,none"]
    assert 0 < value < 1 and found["acc_stderr,none"] == pytest.approx((value * (1 - value) / 3) ** 0.5)


def test_heuristics_are_calibrated_and_shown_rows_where_they_can_be(save_model, data_dir, tmp_path, asked):
    """CoLA's is a threshold: it has neither."""
    arguments = ["--model", save_model(tmp_path / "model"), "--data_dir", data_dir, "--device", "cpu"]
    names = ["--tasks", "paper_cola", "paper_sst2", "--num_fewshot", "1"]
    found = []
    for calibrate in ("false", "true"):
        output = tmp_path / calibrate
        evaluate.main([*arguments, *names, "--calibrate", calibrate, "--output_dir", str(output)])
        found.append(json.loads((output / "results.json").read_text()))
    plain, calibrated = found
    assert plain["n-shot"] == calibrated["n-shot"] == {"paper_cola": 0, "paper_sst2": 1}
    assert plain["results"]["paper_cola"] == calibrated["results"]["paper_cola"]
    assert "mcc,none" in plain["results"]["paper_cola"]
    cola, sst2 = ([result.scores for _, result in asked[task]] for task in ("cola", "sst2"))
    assert cola[0] == cola[1]
    for scores, calibrated_scores in zip(*sst2, strict=True):
        assert scores != pytest.approx(calibrated_scores, abs=0.01)


def test_the_checkpoints_of_a_run(save_model, data_dir, tmp_path):
    for step in (10, 5):
        save_model(tmp_path / "run" / f"checkpoint-{step}", seed=step, with_tokenizer=step == 5)
        state = {"num_input_tokens_seen": 100 * step}
        (tmp_path / "run" / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps(state))
    save_model(tmp_path / "run")
    output = tmp_path / "out"
    arguments = ["--checkpoints", str(tmp_path / "run"), "--data_dir", data_dir, "--output_dir", str(output)]
    evaluate.main([*arguments, "--tasks", "copa", "wikitext", "--device", "cpu"])
    curves = json.loads((output / "curves.json").read_text())
    assert [(curve["task"], curve["metric"], curve["chance"]) for curve in curves] == [
        ("copa", "acc", 0.5),
        ("wikitext", "word_perplexity", None),
    ]
    for curve in curves:
        assert [(point["step"], point["tokens"]) for point in curve["points"]] == [(5, 500), (10, 1000)]
        for point in curve["points"]:
            results = json.loads((output / f"results-{point['step']}.json").read_text())
            assert results["results"][curve["task"]][f"{curve['metric']},none"] == point["value"]
    assert (output / "curves.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--model", "{model}", "--num_fewshot", "-1"], "--num_fewshot is -1"),
        (["--model", "{model}", "--batch_tokens", "0"], "--batch_tokens is 0"),
        (["--model", "{model}", "--device", "gpu"], "--device gpu"),
        (["--checkpoints", "{empty}"], "{empty} has no checkpoint with a model"),
        (["--model", "{model}", "--data_dir", "{empty}"], "Task 'copa' needs a file validation ("),
        (["--model", "{model}", "--tasks", "cop"], "lm-evaluation-harness has no task 'cop'."),
        (["--model", "{model}", "--tasks", "paper_rte"], "Task 'rte' has no zero-shot heuristic."),
    ],
)
def test_what_is_refused(save_model, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    names = {"model": save_model(tmp_path / "model"), "empty": str(tmp_path / "empty")}
    words = [word.format(**names) for word in arguments]
    tasks = [] if "--tasks" in words else ["--tasks", "copa"]
    with pytest.raises(ValueError) as error:
        evaluate.main([*words, *tasks, "--output_dir", str(tmp_path / "out")])
    assert str(error.value).startswith(message.format(**names))


def test_more_shots_than_rows(save_model, data_dir, tmp_path):
    arguments = ["--model", save_model(tmp_path / "model"), "--data_dir", data_dir, "--tasks", "copa"]
    with pytest.raises(ValueError, match="--num_fewshot 2 needs as many rows and one more to draw from"):
        evaluate.main([*arguments, "--num_fewshot", "2", "--output_dir", str(tmp_path / "out"), "--device", "cpu"])
