"""benchmarks/families.py: which steps there are, their order, what a step leaves, and the page."""

import json
import threading
from pathlib import Path

import pytest

from modeling_gpt1.commands.arguments import parser_of
from modeling_gpt1.families import FAMILIES


@pytest.fixture
def arguments(families, tmp_path):
    words = ["--books", "books", "--data_dir", "data", "--work_dir", str(tmp_path), "--seeds", "2"]
    return families.parse([*words, "--families", "roberta", "--tokens", "8192", "--sweep_tokens", "4096"])


def finish(step, **results):
    """Leaves what a finished step leaves."""
    out = step.folder / "out" if step.result else step.folder
    out.mkdir(parents=True, exist_ok=True)
    (out / (step.result or "out")).write_text(json.dumps(results))
    (step.folder / "done.json").write_text(json.dumps({"processor_seconds": 5400.0, "peak_bytes": 3 * 2**29}))


def finish_sweep(families, arguments, family="roberta"):
    for step, loss in zip(families.sweep(arguments, family), (4.0, 3.0, 2.0, 2.5), strict=True):
        finish(step, eval_loss=loss)


def test_each_stage_waits_for_the_one_before_and_each_step_runs_once(families, arguments, monkeypatch):
    """Families take turns. Steps of the sweep meet at a barrier, which two at once pass and one alone would not."""
    arguments.jobs = 2
    arguments.families = ["roberta", "bart"]
    ran = []
    barrier = threading.Barrier(2)
    sweeps = [step for family in arguments.families for step in families.sweep(arguments, family)]
    losses = dict(zip((step.folder for step in sweeps), (4.0, 3.0, 2.0, 2.5) * 2, strict=True))

    def run(step):
        if step in sweeps:
            barrier.wait(timeout=30)
        ran.append(step.folder)
        finish(step, eval_loss=losses.get(step.folder))

    monkeypatch.setattr(families, "run", run)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(families.os, "cpu_count", lambda: 8)
    families.run_all(arguments)
    assert families.os.environ["OMP_NUM_THREADS"] == "4"
    assert len(ran) == len(set(ran)) == 2 * (4 + 1 + 1) + 2 * (8 + 7)
    names = [f"{folder.parent.name} {folder.name}" for folder in ran]
    assert {name.partition("-")[0] for name in names[:2]} == {"roberta pretrain", "bart pretrain"}
    assert sorted(names[8:10]) == ["bart pretrain-8192-0.001", "roberta pretrain-8192-0.001"]
    assert sorted(names[10:12]) == ["bart zero-shot", "roberta zero-shot"]
    tuned = [name.removeprefix("roberta ") for name in names[12:] if name.startswith("roberta")]
    tasks = ["sst2", "cola", "stsb", "rte", "story_cloze", "snli", "mnli", "qqp"]
    assert sorted(tuned) == sorted(f"{task}-0.0005-{seed}" for seed in (0, 1) for task in tasks)
    families.run_all(arguments)
    assert len(ran) == len(set(ran))


def test_a_task_without_rows_is_told_before_hours_of_work(families, arguments, tmp_path, monkeypatch):
    arguments.data_dir = tmp_path / "data"
    monkeypatch.setattr(families, "TASKS", {"snli": None})
    (arguments.data_dir / "snli").mkdir(parents=True)
    for split, missing in (("test", "train"), ("train", "validation")):
        row = json.dumps({"premise": "a", "hypothesis": "b", "label": 1})
        (arguments.data_dir / "snli" / f"{split}.jsonl").write_text(f"{row}\n")
        with pytest.raises(SystemExit, match=f"^{arguments.data_dir}: snli has no split {missing}.* Add its file.$"):
            families.check_data(arguments)
    (arguments.data_dir / "snli" / "test.jsonl").rename(arguments.data_dir / "snli" / "validation.jsonl")
    families.check_data(arguments)


def test_the_commands_have_these_flags(families, arguments):
    finish_sweep(families, arguments)
    parsers = {command: parser_of(command) for command in ("pretrain", "finetune", "zero-shot")}
    for family in FAMILIES:
        stages = families.stages_of(arguments, family)
        assert {*families.TASKS} - {*families.tasks_of(family)} == ({"story_cloze"} if family == "bart" else set())
        assert [len(stage) for stage in stages] == ([4, 1, 1 + 2 * 8] if family == "roberta" else [4])
        for step in sum(stages, []):
            command, *words = step.words
            given, _ = parsers[command].parse_known_args([*words, step.output, "out"])
            assert getattr(given, step.output.removeprefix("--")) == "out"


def test_a_step_counts_the_time_of_all_attempts(families, tmp_path, monkeypatch):
    step = families.Step(tmp_path / "step", ("pretrain",), "--output_dir", "all_results.json")
    monkeypatch.setattr(families.sys, "executable", "/bin/false")
    with pytest.raises(SystemExit) as stopped:
        families.run(step)
    assert str(stopped.value) == f"{step.folder}: status 1. Its output.txt ends with the reason."
    assert not step.is_done
    (step.folder / "processor_seconds.json").write_text('{"attempts":1, "seconds": 70.0, "peak_bytes": 1099511627776}')
    monkeypatch.setattr(families.sys, "executable", "/bin/echo")
    families.run(step)
    done = json.loads((step.folder / "done.json").read_text())
    assert 70 <= done["processor_seconds"] < 80
    assert done["peak_bytes"] == 2**40
    assert f"pretrain --output_dir {step.folder / 'out'}\n" in (step.folder / "output.txt").read_text()


def test_what_is_read_of_a_family(families, arguments, plain_tokenizer):
    finish_sweep(families, arguments)
    model = families.long_run(arguments, "roberta")
    asked = families.asking(arguments, model)
    assert families.read_row(arguments, "roberta") is None
    family = FAMILIES["roberta"]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    built = family.model_class(family.make_config(family.pretraining_tokenizer(plain_tokenizer), **sizes))
    built.save_pretrained(model.folder / "out")
    log, seen = [], "num_input_tokens_seen"
    for tokens, speed, loss in ((720_000, 100.0, 3.0), (1_800_000, 300.0, None), (2_520_000, 200.0, 1.5)):
        log += [{"tokens_per_second": speed, seen: tokens}, *([{"eval_loss": loss, seen: tokens}] if loss else [])]
    (model.folder / "out" / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    finish(model, num_input_tokens_seen=8_200_000, eval_loss=1.5, eval_mlm_loss=1.5, train_loss=2.0)
    answers = {
        "blimp": {"accuracy": 0.75, "accuracy_binding": 0.5, "num_rows": 300},
        "story_cloze": {"accuracy": 0.64, "num_rows": 2304},
    }
    finish(asked, results=[{"method": "pseudo-log-likelihood", "tasks": answers}])
    for seed, score in enumerate((0.5, 0.7)):
        finish(families.fine_tuning(arguments, model, "rte", seed), eval_accuracy=score, eval_loss=1.0)
    both = {"eval_validation_matched_accuracy": 0.5, "eval_validation_mismatched_accuracy": 0.6}
    finish(families.fine_tuning(arguments, model, "mnli", 0), **both)

    row = families.read_row(arguments, "roberta")
    embeddings = built.roberta.embeddings
    tables = (embeddings.word_embeddings, embeddings.position_embeddings, embeddings.token_type_embeddings)
    assert row.parameters == built.num_parameters()
    assert row.without_embeddings == row.parameters - sum(table.weight.numel() for table in tables)
    assert row.curve == [(720_000, 2.0, 3.0), (2_520_000, 4.0, 1.5)]
    assert (row.learning_rate, row.cost["tokens_per_second"], row.method) == (1e-3, 200, "pseudo-log-likelihood")
    assert row.loss == {"loss": 1.5, "mlm_loss": 1.5}
    assert row.zero_shot == answers
    of_tasks = {task: scores for task, scores in row.scores.items() if scores}
    assert of_tasks == {"rte": [0.5, 0.7], "mnli": [pytest.approx(0.55)]}


def test_the_published_page_has_the_measured_figures(families):
    """The newest page is that of the figures beside it, so a change of the page reaches it too."""
    path = max((Path(families.__file__).parent / "results").glob("????-??-??-families.json"))
    measured = json.loads(path.read_text())
    rows = {family: families.Row(**row) for family, row in measured["results"].items()}
    text = families.page(rows, families.TASKS, measured["machine"])
    assert path.with_suffix(".md").read_text() == f"{text}\n\n![Learning curves]({path.stem}.png)\n"
