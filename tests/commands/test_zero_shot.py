"""`gpt1 zero-shot` on a tiny random model: its file of results, checkpoints, splits, and other families."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from sklearn.metrics import accuracy_score, matthews_corrcoef
from support.files import save_folder, write_rows
from support.refusals import refusal
from support.tiny import SPLIT_IN_TWO_WAYS

from modeling_gpt1 import GPT1ForCausalLM
from modeling_gpt1.commands import zero_shot
from modeling_gpt1.families import FAMILIES
from modeling_gpt1.inference.heuristics import load_questions
from modeling_gpt1.storage.locking import writer_of_new_file
from tokenization import GPT1Tokenizer

PAIRS = [("the old farmer smiled", "smiled old the farmer the"), ("he paid for it", "paid it he for for")]


def write(folder, split, rows):
    write_rows(folder / f"{split}.jsonl", rows)


@pytest.fixture
def data_dir(tmp_path):
    """CoLA with a hidden test split, and SST-2."""
    data = tmp_path / "data"
    sentences = [{"sentence": text, "label": 1 - index} for pair in PAIRS for index, text in enumerate(pair)]
    write(data / "cola", "train", sentences)
    write(data / "cola", "validation", [{**row, "sentence": f"so {row['sentence']}"} for row in sentences[1:]])
    write(data / "cola", "test", [{**row, "label": -1} for row in sentences])
    write(data / "sst2", "train", [{"sentence": f"the film was {word} ", "label": 1} for word in ("slow", "new")])
    write(data / "sst2", "validation", [{"sentence": "the last scene was green", "label": 0}])
    return str(data)


def test_one_model(save_model, data_dir, tmp_path, capsys, asked):
    model, output = save_model(tmp_path / "model"), tmp_path / "out" / "results.json"
    arguments = ["--model", model, "--data_dir", data_dir, "--output_file", str(output), "--device", "cpu"]
    zero_shot.main([*arguments, "--tasks", "cola", "SST-2"])
    saved = json.loads(output.read_text())
    assert saved["settings"]["tasks"] == ["cola", "SST-2"]
    assert saved["settings"]["seed"] == 0
    (result,) = saved["results"]
    assert result["model"] == model
    assert list(result["tasks"]) == ["cola", "sst2"]
    cola, sst2 = result["tasks"].values()
    facts = {"metric": "matthews_correlation", "chance": 0.0, "best_known": 0.35, "split": "validation"}
    assert facts.items() <= cola.items()
    assert (cola["num_rows"], cola["num_train_rows"]) == (3, 4)
    assert cola["normalised"] == pytest.approx(cola["matthews_correlation"] / 0.35)
    assert cola["threshold"] < -0.1
    assert sst2["accuracy"] in (0.0, 1.0)
    assert sst2["threshold"] is None
    assert sst2["num_train_rows"] == 0
    assert capsys.readouterr().out == (
        f"{model} (log-probability): cola matthews_correlation {cola['matthews_correlation']:.3f} (normalised "
        f"{cola['normalised']:+.2f}), sst2 accuracy {sst2['accuracy']:.3f} (normalised {sst2['normalised']:+.2f})\n"
        f"written to {output}\n"
    )
    config, head = Path(model, "config.json"), {"architectures": ["GPT1DoubleHeadsModel"], "extract_token_id": 1}
    config.write_text(json.dumps(json.loads(config.read_text()) | head))
    write(Path(data_dir, "sst2"), "validation", [{"sentence": "не знаю", "label": 0}])
    for more in ([], ["--calibrate"]):
        output.unlink()
        output.with_name("results.run.yaml").unlink()
        zero_shot.main([*arguments, "--tasks", "sst2", "--num_shots", "1", *more])
    (result,) = json.loads(output.read_text())["results"]
    how = f"`gpt1 finetune --model {model} --do_eval --validation_file FILE` evaluates its task head"
    unknown = "100% of the tokens of task sst2 are unknown to the tokenizer, as in 'не знаю'."
    assert capsys.readouterr().err == 2 * f"The language model of {model} is evaluated; {how}.\n{unknown}\n"
    _, shown, calibrated = (result.scores for _, result in asked["sst2"])
    assert shown[0] != pytest.approx(calibrated[0], abs=0.01)
    assert result["tasks"]["sst2"]["num_train_rows"] == 2


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            ["--num_shots", "1"],
            "'cola' is answered by a threshold, without examples. Leave `num_shots` or this task out.",
        ),
        (["--calibrate"], "'cola' cannot be calibrated. Leave `calibrate` or this task out."),
        (["--num_shots", "2"], "Pass more as `train_rows`; `gpt1 zero-shot` reads them from a file train beside"),
    ],
)
def test_a_task_that_cannot_be_asked_so_is_refused_before_another_is_scored(
    save_model, data_dir, tmp_path, monkeypatch, more, told
):
    def score_nothing(*_):
        raise AssertionError("a model was opened")

    monkeypatch.setattr(zero_shot.ZeroShotArguments, "load_scorer", score_nothing)
    arguments = ["--model", save_model(tmp_path / "model"), "--data_dir", data_dir, "--tasks", "sst2", "cola", *more]
    assert told in refusal(zero_shot.main, [*arguments, "--output_file", str(tmp_path / "results.json")])


@pytest.mark.parametrize("name", ["run.json", "zero_shot.yaml"])
def test_settings_overwrite_neither_results_nor_those_of_the_run(save_model, data_dir, tmp_path, name):
    model, output = save_model(tmp_path / "run"), tmp_path / "run" / name
    (tmp_path / "run" / "run.yaml").write_text("seed: 1\n")
    arguments = ["--model", model, "--data_dir", data_dir, "--tasks", "sst2", "--device", "cpu"]
    zero_shot.main([*arguments, "--output_file", str(output)])
    assert (tmp_path / "run" / "run.yaml").read_text() == "seed: 1\n"
    assert json.loads(output.read_text())["results"][0]["model"] == model
    (settings,) = (tmp_path / "run").glob("*.run.yaml")
    assert "- sst2\n" in settings.read_text()


def test_every_checkpoint_of_a_run(save_model, data_dir, tmp_path, capsys):
    run, output = tmp_path / "run", tmp_path / "results.json"
    save_model(run)
    for step in (20, 1, 100):
        save_model(run / f"checkpoint-{step}", seed=step)
        state = {"num_input_tokens_seen": 10 * step}
        (run / f"checkpoint-{step}" / "trainer_state.json").write_text(json.dumps(state))
    (run / "checkpoint-7").mkdir()  # has no model
    arguments = ["--checkpoints", str(run), "--data_dir", data_dir, "--tasks", "cola", "sst2", "--device", "cpu"]
    zero_shot.main([*arguments, "--output_file", str(output)])
    results = json.loads(output.read_text())["results"]
    assert [(result["step"], result["tokens"]) for result in results] == [(1, 10), (20, 200), (100, 1000)]
    assert len({result["tasks"]["cola"]["threshold"] for result in results}) == 3
    assert capsys.readouterr().out.startswith("1 update (log-probability): cola ")


def test_openai_gpt_scores_as_the_folder_converted_from_it(openai_gpt_folder, plain_tokenizer, tmp_path):
    rows = [{"sentence": text, "label": label} for text, label in ((SPLIT_IN_TWO_WAYS, 1), ("he didn't he", 0))]
    for split in ("train", "validation"):
        write(tmp_path / "data" / "cola", split, [*rows, {"sentence": f"a {split}", "label": 1}])
    save_folder(tmp_path / "gpt1", GPT1ForCausalLM.from_pretrained(openai_gpt_folder), plain_tokenizer)
    thresholds = []
    for model in (openai_gpt_folder, tmp_path / "gpt1"):
        arguments = ["--model", str(model), "--data_dir", str(tmp_path / "data"), "--tasks", "cola", "--device", "cpu"]
        output = tmp_path / f"{len(thresholds)}.json"
        zero_shot.main([*arguments, "--output_file", str(output)])
        (result,) = json.loads(output.read_text())["results"]
        thresholds.append(result["tasks"]["cola"]["threshold"])
    assert thresholds[0] == pytest.approx(thresholds[1], rel=1e-5)


@pytest.mark.parametrize(
    ("family", "method"),
    [("albert", "pseudo-log-likelihood"), ("bart", "decoder log-probability"), ("gpt2", "log-probability")],
)
def test_the_method_follows_from_the_architecture(plain_tokenizer, data_dir, tmp_path, capsys, family, method):
    family, output = FAMILIES[family], tmp_path / "results.json"
    tokenizer = family.pretraining_tokenizer(plain_tokenizer)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    family.model_class(family.make_config(tokenizer, **sizes)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    arguments = ["--model", str(tmp_path / "model"), "--data_dir", data_dir, "--output_file", str(output)]
    arguments += ["--tokenizer_name", str(tmp_path / "tokenizer")]
    zero_shot.main([*arguments, "--tasks", "cola", "sst2", "--device", "cpu"])
    (result,) = json.loads(output.read_text())["results"]
    assert result["method"] == method
    assert result["tasks"]["cola"]["num_rows"] == 3
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'model'} ({method}): cola ")


def test_minimal_pairs_have_one_split_and_no_labels(save_model, tmp_path, asked):
    """The pairs of y are that of x with its sentences exchanged: either x is answered rightly, or y."""
    one, other = "the old farmer walked", "the old farmer walk"
    pair = {"sentence_good": one, "sentence_bad": other, "UID": "a", "field": "b", "linguistics_term": "x"}
    exchanged = {**pair, "sentence_good": other, "sentence_bad": one, "linguistics_term": "y"}
    write(tmp_path / "data" / "blimp", "train", [pair, exchanged, exchanged])
    model, output = save_model(tmp_path / "model"), tmp_path / "results.json"
    arguments = ["--model", model, "--data_dir", str(tmp_path / "data"), "--output_file", str(output)]
    zero_shot.main([*arguments, "--tasks", "blimp", "--device", "cpu"])
    (result,) = json.loads(output.read_text())["results"]
    found = result["tasks"]["blimp"]
    assert (found["split"], found["num_rows"], found["best_known"]) == ("train", 3, 0.886)
    [(_, result)] = asked["blimp"]
    bad, good = result.scores[0]
    is_right = [float(good > bad), float(good < bad)]
    assert [found["accuracy_x"], found["accuracy_y"]] == is_right
    assert found["accuracy"] == pytest.approx((is_right[0] + 2 * is_right[1]) / 3)


def test_rows_are_drawn_by_the_seed(tmp_path):
    rows = [{"sentence": f"number {number}", "label": 1} for number in range(40)]
    write(tmp_path / "sst2", "validation", rows)

    def drawn(seed):
        return [row["sentence"] for row in load_questions("sst2", str(tmp_path), limits=(5, None), seed=seed)[1]]

    assert len(drawn(0)) == 5
    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)
    assert drawn(0) != [row["sentence"] for row in rows[:5]]


@pytest.mark.parametrize("hidden", [None, -1])
def test_a_split_whose_labels_are_hidden_is_not_evaluated(tmp_path, hidden):
    row = {"sentence": "the film was slow", "label": 1}
    write(tmp_path / "sst2", "validation", [row])
    write(tmp_path / "sst2", "test", [row, {**row, "label": hidden}])

    assert load_questions("sst2", str(tmp_path))[0] == "validation"
    (tmp_path / "sst2" / "validation.jsonl").unlink()
    with pytest.raises(ValueError, match="'sst2' has no labels in test. Add a split with labels"):
        load_questions("sst2", str(tmp_path))
    write(tmp_path / "sst2", "test", [row, {**row, "label": 0}])
    write(tmp_path / "sst2", "validation", [row])
    assert load_questions("sst2", str(tmp_path))[0] == "test"


def test_a_name_that_several_splits_of_a_task_have_is_told_once(tmp_path):
    assert "files named train, each ending in" in refusal(load_questions, "blimp", str(tmp_path))


@pytest.mark.real_data
def test_real_rows(tiny_model, real_data_dir, tmp_path, asked):
    """Some rows of every data set, in the released vocabulary, from their files to a figure."""
    files = (real_data_dir / "openai_gpt_bpe" / name for name in ("encoder_bpe_40000.json", "vocab_40000.bpe"))
    tokenizer = GPT1Tokenizer.from_openai(*files)
    model = tiny_model(GPT1ForCausalLM, vocab_size=len(tokenizer), max_position_embeddings=128)
    save_folder(tmp_path, model, tokenizer)
    tasks = ["cola", "sst2", "race-middle", "story_cloze", "dpr"]
    rows = ["--data_dir", str(real_data_dir), "--max_eval_samples", "6", "--max_train_samples", "8"]
    output = ["--output_file", str(tmp_path / "results.json"), "--device", "cpu"]
    zero_shot.main(["--model", str(tmp_path), "--tasks", *tasks, *rows, *output])
    figures = json.loads((tmp_path / "results.json").read_text())["results"][0]["tasks"]
    splits = {**dict.fromkeys(tasks, "validation"), "story_cloze": "test", "dpr": "train"}
    found = {name: (of_task["split"], of_task["num_rows"]) for name, of_task in figures.items()}
    assert found == {name: (split, 6) for name, split in splits.items()}
    for name, of_task in figures.items():
        [(rows, result)] = asked[name]
        gold = [row["label"] for row in rows]
        metric = matthews_corrcoef if name == "cola" else accuracy_score
        assert of_task[of_task["metric"]] == pytest.approx(metric(gold, result.predictions))


def test_the_settings_of_two_results_have_names_of_their_own(save_model, data_dir, tmp_path):
    arguments = ["--model", save_model(tmp_path / "model"), "--data_dir", data_dir, "--tasks", "sst2"]
    for name in ("a-1.3", "a-1.5"):
        zero_shot.main([*arguments, "--device", "cpu", "--output_file", str(tmp_path / name)])
    settings = [yaml.safe_load((tmp_path / f"{name}.run.yaml").read_text()) for name in ("a-1.3", "a-1.5")]
    assert [of_file["output_file"] for of_file in settings] == [str(tmp_path / name) for name in ("a-1.3", "a-1.5")]


def test_the_settings_of_earlier_results_stay(save_model, data_dir, tmp_path):
    """Whose results were moved away."""
    arguments = ["--model", save_model(tmp_path / "model"), "--data_dir", data_dir, "--tasks", "sst2"]
    (tmp_path / "a.run.yaml").write_text("seed: 5\n")
    said = refusal(zero_shot.main, [*arguments, "--device", "cpu", "--output_file", str(tmp_path / "a.json")])
    assert f"written to {tmp_path / 'a.run.yaml'}, which is there already. Pass another name" in said
    assert (tmp_path / "a.run.yaml").read_text() == "seed: 5\n"
    assert not (tmp_path / "a.json").exists()


def test_two_evaluations_do_not_write_one_file(save_model, data_dir, tmp_path):
    arguments = ["--model", save_model(tmp_path / "model"), "--data_dir", data_dir, "--tasks", "sst2"]
    output = tmp_path / "results.json"
    with writer_of_new_file(output):
        said = refusal(zero_shot.main, [*arguments, "--device", "cpu", "--output_file", str(output)])
    assert "which another command is writing" in said


def test_a_threshold_is_not_scored_on_the_rows_that_it_was_chosen_on(tmp_path, caplog):
    """Where only the train split has labels."""
    write(tmp_path / "cola", "train", [{"sentence": f"number {number}", "label": number % 2} for number in range(9)])
    split, rows, train_rows = load_questions("cola", str(tmp_path))
    sentences = [{row["sentence"] for row in half} for half in (rows, train_rows)]
    assert sentences[0] & sentences[1] == set()
    assert [len(half) for half in sentences] == [5, 4]
    assert split == "train (half)"
    assert "the threshold is chosen on half of its rows and scored on the other half" in caplog.text


def test_the_halves_of_a_sorted_file_have_rows_of_all_its_parts(tmp_path):
    """They are drawn by the seed: CoLA's train file, for one, has a part for each of its sources."""
    rows = [{"sentence": f"number {number}", "label": int(number >= 20)} for number in range(40)]
    write(tmp_path / "cola", "train", rows)
    _, first, first_train = load_questions("cola", str(tmp_path), seed=0)
    for half in (first, first_train):
        assert 4 <= sum(row["label"] for row in half) <= 16
    assert load_questions("cola", str(tmp_path), seed=0)[1] == first
    assert load_questions("cola", str(tmp_path), seed=1)[1] != first


def run_few_shot(save_model, data_dir, tmp_path, *more):
    model, output = save_model(tmp_path / "model"), tmp_path / "out" / "results.json"
    arguments = ["--model", model, "--data_dir", data_dir, "--output_file", str(output), "--tasks", "sst2", *more]
    zero_shot.main([*arguments, "--device", "cpu"])
    return json.loads(output.read_text())["results"][0]["tasks"]["sst2"]


def test_several_prompts_are_reported_before_and_after_calibration(save_model, data_dir, tmp_path, capsys):
    more = ["--num_shots", "1", "--num_orders", "3", "--calibrate", "--content_free", "N/A", "[MASK]", ""]
    found = run_few_shot(save_model, data_dir, tmp_path, *more)
    few_shot = found["few_shot"]
    assert few_shot["shots"] == [[1], [1], [1]]
    assert found["accuracy"] == few_shot["calibrated"]["metrics"]["accuracy"]
    assert len(few_shot["plain"]["of_prompts"]) == 3
    printed = capsys.readouterr().out
    plain = few_shot["plain"]
    assert f"sst2, 3 prompts: accuracy {plain['metrics']['accuracy']:.3f} ± {plain['std']:.3f} (" in printed
    assert "sst2, 3 prompts, calibrated: accuracy" in printed
    assert f"recency bias {plain['bias']['recency_bias']:+.3f}" in printed


def test_without_several_prompts_the_results_have_no_spread(save_model, data_dir, tmp_path):
    assert "few_shot" not in run_few_shot(save_model, data_dir, tmp_path, "--num_shots", "1")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--num_orders", "3"], "--num_orders 3 needs few-shot examples to draw and to order"),
        (["--content_free", "[MASK]"], "--content_free is for contextual calibration. Pass --calibrate"),
    ],
)
def test_flags_of_several_prompts_need_each_other(more, told):
    assert told in refusal(zero_shot.main, ["--model", "m", *more])


def test_the_seed_of_the_command_draws_the_examples_that_are_shown(monkeypatch):
    seeds = []

    def note(scorer, heuristic, rows, train_rows, *, seed, **options):
        seeds.append(seed)
        return SimpleNamespace(metrics={}, threshold=None)

    monkeypatch.setattr(zero_shot, "evaluate_zero_shot", note)
    arguments = zero_shot.ZeroShotArguments(model="me/model", num_shots=2, seed=5)
    zero_shot.evaluate_task(None, "sst2", ("validation", [], []), arguments)
    assert seeds == [5]
