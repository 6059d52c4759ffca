"""benchmarks/families.py: which steps there are, what a step leaves, and the page."""

import json
import sys

import pytest

from modeling_gpt1.commands.entry import flags
from modeling_gpt1.training.families import FAMILIES


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


def finish_sweep(families, arguments):
    for step, loss in zip(families.sweep(arguments, "roberta"), (4.0, 3.0, 2.0, 2.5), strict=True):
        finish(step, eval_loss=loss)


def test_the_long_run_waits_for_the_sweep(families, arguments):
    names = [step.folder.name for step in families.steps_of(arguments, "roberta")]
    assert names == [f"pretrain-4096-{rate}" for rate in (0.00025, 0.0005, 0.001, 0.002)]
    finish_sweep(families, arguments)
    names = [step.folder.name for step in families.steps_of(arguments, "roberta")]
    assert names[4:8] == ["pretrain-8192-0.001", "zero-shot", "sst2-0", "sst2-1"] and len(names) == 6 + 2 * 8


def test_a_family_without_the_head_leaves_out_the_task(families):
    whole = "sst2 cola stsb rte story_cloze snli mnli qqp".split()
    without = [task for task in whole if task != "story_cloze"]
    assert {family: families.tasks_of(family) for family in FAMILIES} == {
        family: without if family == "bart" else whole for family in FAMILIES
    }


def test_the_commands_have_these_flags(families, arguments):
    finish_sweep(families, arguments)
    for family in FAMILIES:
        for step in (
            families.steps_of(arguments, "roberta") if family == "roberta" else families.sweep(arguments, family)
        ):
            command, *words = step.words
            assert flags.prepare(command, [*words, step.output, "out"])[-2:] == [step.output, "out"]


def test_a_step_counts_the_time_of_all_attempts(families, tmp_path, monkeypatch):
    step = families.Step(tmp_path / "step", ("pretrain",), "--output_dir", "all_results.json")
    monkeypatch.setattr(families.sys, "executable", "/bin/false")
    with pytest.raises(SystemExit) as stopped:
        families.run(step)
    assert str(stopped.value) == f"{step.folder}: status 1. Its output.txt ends with the reason."
    assert not step.is_done
    (step.folder / "attempts.json").write_text(json.dumps({"processor_seconds": 70.0, "peak_bytes": 2**40}))
    monkeypatch.setattr(families.sys, "executable", "/bin/echo")
    families.run(step)
    done = json.loads((step.folder / "done.json").read_text())
    assert 70 <= done["processor_seconds"] < 80 and done["peak_bytes"] == 2**40
    assert f"pretrain --output_dir {step.folder / 'out'}\n" in (step.folder / "output.txt").read_text()


def test_the_page(families, arguments, plain_tokenizer):
    finish_sweep(families, arguments)
    *_, model, asked = families.steps_of(arguments, "roberta")[:6]
    assert families.read_row(arguments, "roberta") is None
    family = FAMILIES["roberta"]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    tokenizer = family.tokenizer_of(plain_tokenizer)
    built = family.model_class(family.make_config(tokenizer, **sizes))
    built.save_pretrained(model.folder / "out")
    log = [
        {"tokens_per_second": 100.0, "num_input_tokens_seen": 720_000},
        {"eval_loss": 3.0, "num_input_tokens_seen": 720_000},
        {"tokens_per_second": 300.0, "num_input_tokens_seen": 1_800_000},
        {"tokens_per_second": 200.0, "num_input_tokens_seen": 2_520_000},
        {"eval_loss": 1.5, "num_input_tokens_seen": 2_520_000},
    ]
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
    assert families.page({"roberta": row}, families.TASKS, ["--books", "my books"]) == (
        "# Families on the same tokens\n\n"
        "Each family was pre-trained once, so no figure tells how much another pre-training would differ: the seeds "
        "are those of fine-tuning. Sizes and tokens are small, and say nothing of the order of large models.\n\n"
        "## Cost\n\n"
        "| family | M parameters | M without embeddings | learning rate | M tokens read | processor hours "
        "| tokens per second | peak GiB | held-out losses |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| roberta | 0.01 | 0.00 | 0.001 | 8.2 | 1.50 | 200 | 1.50 | loss 1.500, mlm_loss 1.500 |\n\n"
        "## Fine-tuned\n\nThe metric of the task × 100: the mean of the seeds, and their range.\n\n"
        "| family | sst2 | cola | stsb | rte | story_cloze | snli | mnli | qqp |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| roberta | – | – | – | 60.0 [50.0–70.0] | – | – | 55.0 | – |\n\n"
        "## Without fine-tuning\n\nAccuracy × 100, and its standard error.\n\n"
        "| family | method | blimp | story_cloze |\n"
        "| --- | --- | --- | --- |\n"
        "| roberta | pseudo-log-likelihood | 75.0 ± 2.5 | 64.0 ± 1.0 |\n\n"
        "## BLiMP by phenomenon\n\n"
        "| phenomenon | roberta |\n"
        "| --- | --- |\n"
        "| binding | 50.0 |\n\n"
        "## Command\n\n```sh\npython benchmarks/families.py --books 'my books'\n```"
    )


def made_row(families, loss, zero_shot, curve=(), **scores):
    asked = {"blimp": {"accuracy": zero_shot, "num_rows": 900}}
    return families.Row(10, 5, {}, 1e-3, {"loss": loss}, list(curve), asked, "method", scores)


def test_what_the_figures_support(families):
    """A lead needs every seed, or two standard errors; what lies closer is named as level."""
    rows = {
        "gpt1": made_row(families, 4.0, 0.60, sst2=[0.80, 0.84], rte=[0.55, 0.53]),
        "bert": made_row(families, 2.0, 0.57, sst2=[0.79, 0.81], rte=[0.54, 0.52]),
        "gpt1-lstm": made_row(families, 3.0, 0.55, sst2=[0.60, 0.62], rte=[0.40, 0.42]),
    }
    text = sys.modules["families_page"].verdict(rows, ["sst2", "rte", "cola"])
    assert text == (
        "After fine-tuning, gpt1 has the highest mean over sst2 and rte, 68.0 [67.5–68.5], ahead of bert and "
        "gpt1-lstm. A lead is one of every seed. On no single task has one a lead. On blimp without fine-tuning gpt1 "
        "is highest and not told apart from bert. By held-out perplexity the order of next-token models is gpt1-lstm "
        "(20.1) and gpt1 (54.6); the others' losses do not compare. Each family was pre-trained once, so no figure "
        "tells how much another pre-training would differ: the seeds are those of fine-tuning. Sizes and tokens are "
        "small, and say nothing of the order of large models."
    )
    rows["bert"].scores["sst2"] = [0.70, 0.72]
    text = sys.modules["families_page"].verdict(rows, ["sst2"])
    assert text.startswith(
        "After fine-tuning, gpt1 has the highest mean over sst2, 82.0 [80.0–84.0], ahead of bert and gpt1-lstm. A "
        "lead is one of every seed. On single tasks the leads are: gpt1 on sst2. On blimp"
    )
    for row in rows.values():
        row.scores["sst2"] = row.scores["sst2"][:1]
    text = sys.modules["families_page"].verdict(rows, ["sst2"])
    assert "With one seed any difference counts as a lead. On single tasks the leads are: gpt1 on sst2." in text


def test_the_curves(families):
    pytest.importorskip("matplotlib")
    curve = [(1_000_000, 0.5, 5.0), (2_000_000, 1.25, 4.0)]
    rows = {"gpt1": made_row(families, 4.0, 0.6, curve), "bart": made_row(families, 4.0, 0.6, curve[:1])}
    rows["gpt2"] = made_row(families, 4.0, 0.6)  # without evaluations
    axes = families.draw(rows).axes
    assert [panel.get_title() for panel in axes] == ["next token"] * 2 + ["restored text"] * 2
    assert [[line.get_label() for line in panel.lines] for panel in axes] == [["gpt1"], ["gpt1"], ["bart"], ["bart"]]
    assert [list(panel.lines[0].get_xdata()) for panel in axes[:2]] == [[1.0, 2.0], [0.5, 1.25]]
    assert list(axes[0].lines[0].get_ydata()) == [5.0, 4.0]
