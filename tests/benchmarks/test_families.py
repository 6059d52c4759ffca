"""benchmarks/families.py: which steps there are, what a step leaves, and the tables."""

import json

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
    for step, loss in zip(families.sweep(arguments, "roberta"), (3.0, 2.0, 2.5), strict=True):
        finish(step, eval_loss=loss)


def test_the_long_run_waits_for_the_sweep(families, arguments, tmp_path):
    names = [step.folder.name for step in families.steps_of(arguments, "roberta")]
    assert names == ["pretrain-4096-0.0005", "pretrain-4096-0.001", "pretrain-4096-0.002"]
    finish_sweep(families, arguments)
    names = [step.folder.name for step in families.steps_of(arguments, "roberta")]
    assert names[3:7] == ["pretrain-8192-0.001", "zero-shot", "sst2-0", "sst2-1"] and len(names) == 5 + 2 * 8


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


def test_the_tables(families, arguments, plain_tokenizer):
    finish_sweep(families, arguments)
    *_, model, asked = families.steps_of(arguments, "roberta")[:5]
    assert families.read_row(arguments, "roberta") is None
    family = FAMILIES["roberta"]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    tokenizer = family.tokenizer_of(plain_tokenizer)
    built = family.model_class(family.make_config(tokenizer, **sizes))
    built.save_pretrained(model.folder / "out")
    log = [{"tokens_per_second": speed} for speed in (100.0, 300.0, 200.0)]
    (model.folder / "out" / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    finish(model, num_input_tokens_seen=8_200_000, eval_loss=1.5, eval_mlm_loss=1.5, train_loss=2.0)
    answers = {"blimp": {"accuracy": 0.75, "accuracy_binding": 0.5}, "story_cloze": {"accuracy": 0.625}}
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
    assert families.tables({"roberta": row}) == (
        "## Cost\n\n"
        "| family | M parameters | M without embeddings | learning rate | M tokens read | processor hours "
        "| tokens per second | peak GiB | held-out losses |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| roberta | 0.01 | 0.00 | 0.001 | 8.2 | 1.50 | 200 | 1.50 | loss 1.500, mlm_loss 1.500 |\n"
        "\n## Fine-tuned\n\n"
        "| family | sst2 | cola | stsb | rte | story_cloze | snli | mnli | qqp |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| roberta | – | – | – | 60.0 [50.0–70.0] | – | – | 55.0 | – |\n"
        "\n## Without fine-tuning\n\n"
        "| family | method | blimp | story_cloze |\n"
        "| --- | --- | --- | --- |\n"
        "| roberta | pseudo-log-likelihood | 75.0 | 62.5 |\n"
        "\n## BLiMP by phenomenon\n\n"
        "| phenomenon | roberta |\n"
        "| --- | --- |\n"
        "| binding | 50.0 |"
    )
