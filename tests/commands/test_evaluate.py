"""`gpt1 evaluate` on tiny random models: its files, the curves over a run, and what is refused."""

import json

import matplotlib
import pytest
from support.evaluation import only_few_tasks, write_tasks
from support.families import make_family_model, make_family_tokenizer
from support.refusals import refusal

from modeling_gpt1.commands import evaluate
from modeling_gpt1.evaluation import report


@pytest.fixture(scope="module", autouse=True)
def few_definitions():
    with only_few_tasks():
        yield


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return str(write_tasks(tmp_path_factory.mktemp("data")))


def test_one_model(save_model, data_dir, tmp_path, capsys):
    model, output = save_model(tmp_path / "model"), tmp_path / "out"
    arguments = ["--model", model, "--data_dir", data_dir, "--output_dir", str(output), "--device", "cpu"]
    evaluate.main([*arguments, "--tasks", "arc_easy", "copa", "--num_fewshot", "1"])
    results = json.loads((output / "results.json").read_text())
    assert results["asked"] == ["arc_easy", "copa"]
    assert "samples" not in results
    assert results["n-shot"] == {"arc_easy": 1, "copa": 1}
    assert results["n-samples"]["arc_easy"] == {"original": 2, "effective": 2, "chance": 0.25, "split": "test"}
    value = results["results"]["copa"]["acc,none"]
    shown = (output / "table.md").read_text()
    assert f"| copa | validation | 2 | 1 | acc | {value:.4g} ±" in shown
    assert shown in capsys.readouterr().out
    assert "num_fewshot: 1" in (output / "evaluate_run.yaml").read_text()
    with pytest.raises(ValueError, match=r"out has results.json already\. Pass another folder"):
        evaluate.main([*arguments, "--tasks", "copa"])


def test_a_folder_names_its_task_and_no_library_is_heard(save_model, data_dir, tmp_path, monkeypatch, capfd, caplog):
    monkeypatch.chdir(tmp_path)  # no repository, of which git would complain
    arguments = ["--model", save_model(tmp_path / "model"), "--data_dir", data_dir, "--tasks", "copa", "wikitext2_raw"]
    evaluate.main([*arguments, "--device", "cpu"])
    assert json.loads((tmp_path / "evaluation" / "results.json").read_text())["asked"] == ["copa", "wikitext"]
    assert capfd.readouterr().err == ""
    assert [one for one in caplog.messages if "of the tokens" not in one] == []


def test_the_seed_of_the_command_draws_the_examples_that_are_shown(save_model, data_dir, tmp_path, monkeypatch):
    seeds = []

    def note(*args, fewshot_random_seed, **options):
        seeds.append(fewshot_random_seed)

    monkeypatch.setattr("lm_eval.evaluator.simple_evaluate", note)
    where = ["--model", save_model(tmp_path / "model"), "--data_dir", data_dir, "--output_dir", str(tmp_path / "out")]
    evaluate.main([*where, "--tasks", "copa", "--num_fewshot", "1", "--seed", "7", "--device", "cpu"])
    assert seeds == [7]


def test_the_checkpoints_of_a_run(save_model, data_dir, tmp_path):
    for step in (10, 5):
        save_model(tmp_path / "run" / f"checkpoint-{step}", seed=step)
        state = {"num_input_tokens_seen": 100 * step}
        (tmp_path / "run" / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps(state))
    save_model(tmp_path / "run")
    output = tmp_path / "out"
    arguments = ["--checkpoints", str(tmp_path / "run"), "--data_dir", data_dir, "--output_dir", str(output)]
    evaluate.main([*arguments, "--tasks", "copa", "wikitext", "--device", "cpu"])
    curves = json.loads((output / "curves.json").read_text())
    facts = [(curve["task"], curve["metric"], curve["chance"]) for curve in curves]
    assert facts == [("copa", "acc", 0.5), ("wikitext", "word_perplexity", None)]
    for curve in curves:
        assert [(point["step"], point["tokens"]) for point in curve["points"]] == [(5, 500), (10, 1000)]
        for point in curve["points"]:
            results = json.loads((output / f"results-{point['step']}.json").read_text())
            assert results["results"][curve["task"]][f"{curve['metric']},none"] == point["value"]
    assert (output / "curves.png").read_bytes()[:4] == b"\x89PNG"
    assert "checkpoints: " in (output / "evaluate_run-checkpoints.yaml").read_text()


def test_a_task_with_dollars_is_no_formula(tmp_path):
    name = r"runs_$\no$"  # as a formula it is a wrong one
    curve = {"task": name, "metric": "acc", "chance": 0.5, "points": [{"tokens": 9, "value": 0.5, "stderr": None}]}
    with matplotlib.rc_context({"savefig.format": "svg"}), (tmp_path / "tasks.svg").open("wb") as file:
        report.draw([curve], file)
    assert name in (tmp_path / "tasks.svg").read_text()


MODEL = ["--model", "{0}/model"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--checkpoints", "{0}"], "{0} has no checkpoint with a model"),
        ([*MODEL, "--data_dir", "{0}"], "Task 'copa' needs a file validation ("),
        ([*MODEL, "--data_dir", "{0}/rows", "--num_fewshot", "2"], "--num_fewshot is 2, but task 'copa' draws from 2"),
        ([*MODEL, "--tasks", "cop"], "lm-evaluation-harness has no task 'cop' (did you mean 'copa'?)."),
    ],
)
def test_what_is_refused(save_model, tmp_path, arguments, message):
    save_model(tmp_path / "model")
    write_tasks(tmp_path / "rows")
    words = [*(word.format(tmp_path) for word in arguments), "--output_dir", str(tmp_path / "out")]
    words += [] if "--tasks" in words else ["--tasks", "copa"]
    assert refusal(evaluate.main, words).startswith(message.format(tmp_path))


def test_an_output_folder_that_cannot_be_written_is_refused_before_any_work(save_model, tmp_path):
    words = ["--model", save_model(tmp_path / "model"), "--tasks", "copa", "--output_dir", "/proc/out"]
    assert refusal(evaluate.main, words).startswith("`output_dir` is '/proc/out', which is not writable (")


@pytest.mark.parametrize(
    ("family", "head", "kind"),
    [("bert", "ForMaskedLM", "a masked language model"), ("bart", "ForConditionalGeneration", "an encoder-decoder")],
)
def test_a_model_that_is_not_causal_is_refused_before_it_is_opened(family, head, kind, tmp_path):
    make_family_model(family, make_family_tokenizer(family), head).config.save_pretrained(tmp_path / "model")
    words = ["--model", str(tmp_path / "model"), "--tasks", "copa", "--output_dir", str(tmp_path / "out")]
    told = refusal(evaluate.main, words)
    assert told.startswith(f"{tmp_path / 'model'} is {kind}, but copa needs a causal language model. Pass such")
    assert not (tmp_path / "out").exists()


def check_kept(name, folder, words):
    """Whether an evaluation that would write a file is refused, and the file stays."""
    (folder / "out").mkdir()
    (folder / "out" / name).write_text("earlier", encoding="utf-8")
    words = [*words, "--tasks", "copa", "--output_dir", str(folder / "out"), "--device", "cpu"]
    assert f"has {name} already. Pass another folder" in refusal(evaluate.main, words)
    assert (folder / "out" / name).read_text(encoding="utf-8") == "earlier"


@pytest.mark.parametrize("name", ["results.json", "table.md", "evaluate_run.yaml"])
def test_what_an_earlier_evaluation_wrote_is_not_replaced(name, save_model, tmp_path):
    check_kept(name, tmp_path, ["--model", save_model(tmp_path / "model")])


@pytest.mark.parametrize("name", ["results.json", "table.md", "evaluate_run.yaml"])
def test_revision_main_replaces_nothing_of_the_model_itself(name, save_model, tmp_path):
    check_kept(name, tmp_path, ["--model", save_model(tmp_path / "model"), "--revision", "main"])


@pytest.mark.parametrize("name", ["results-old.json", "table-old.md", "evaluate_run-old.yaml"])
def test_what_an_earlier_evaluation_of_a_revision_wrote_is_not_replaced(name, save_model, tmp_path):
    save_model(tmp_path / "model" / "old")
    check_kept(name, tmp_path, ["--model", save_model(tmp_path / "model"), "--revision", "old"])


@pytest.mark.parametrize("name", ["results-5.json", "curves.json", "curves.png", "evaluate_run-checkpoints.yaml"])
def test_what_an_earlier_evaluation_of_checkpoints_wrote_is_not_replaced(name, save_model, tmp_path):
    save_model(tmp_path / "run" / "checkpoint-5")
    check_kept(name, tmp_path, ["--checkpoints", str(tmp_path / "run")])
