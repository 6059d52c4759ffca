"""The tasks of the BabyLM challenge, on rows of our own in its formats, beside plain loops of its definitions."""

import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from support.files import save_folder, write_rows
from transformers import AutoModelForMaskedLM

from modeling_gpt1 import CausalLMScorer, GPT1ForCausalLM, MaskedLMScorer
from modeling_gpt1.commands import evaluate
from modeling_gpt1.evaluation import babylm
from modeling_gpt1.families import FAMILIES
from tokenization.rows.files import read_file

WORDS = ["old", "farmer", "smiled", "walked", "green", "river", "paid", "train", "home", "dollars"]


def sentence(number, length=5):
    return " ".join(WORDS[(number * 7 + place * (number + 3)) % len(WORDS)] for place in range(length))


def pair(good, bad, **more):
    return {"sentence_good": sentence(good), "sentence_bad": sentence(bad), **more}


def ewok(n):
    targets = {"Target1": sentence(n + 1, 3), "Target2": sentence(n + 2, 4)}
    return {"Context1": sentence(n), **targets, "Domain": "spatial" if n < 2 else "social"}


def tracked(n, length, of_option, numops):
    options = [sentence(n + k, of_option) for k in range(5)]
    return {"input_prefix": sentence(n, length) + " ", "options": options, "numops": numops}


def said(acceptable, unacceptable, phrase):
    names = ("prefix_acceptable", "prefix_unacceptable", "property_phrase")
    return {name: sentence(*of) for name, of in zip(names, (acceptable, unacceptable, phrase), strict=True)}


ROWS = {
    "blimp_filtered/first": [pair(n, n + 1, field="syntax", UID=f"paradigm_{n % 2}") for n in range(7)],
    "supplement_filtered/hypernym": [pair(n + 2, n + 5) for n in range(5)],
    "ewok_filtered/ewok": [ewok(n) for n in range(6)],
    "entity_tracking/regular": [tracked(n, 9, 2, n // 2) for n in range(6)],
    "entity_tracking/move_contents": [tracked(n, 8, 3, n % 2) for n in range(4)],
    "comps/comps_base": [said((n, 2), (n + 3, 2), (n, 3)) for n in range(5)],
    "comps/comps_wugs_dist-in-between": [said((n, 4), (n + 1, 3), (n + 2, 2)) for n in range(4)],
    "wug_past_tense/wug_past_tense": [
        {"sentences": f"{sentence(n)}\t{sentence(n + 1)}", "ratio": (n * 3 % 7) / 7} for n in range(7)
    ],
}


def write_reading(folder, number=60):
    draw = np.random.default_rng(0)
    items = [None if n % 9 == 0 else sentence(n, 1 + n % 5) for n in range(number)]
    rows = pd.DataFrame({"item": items, "word": [WORDS[n % 10] + "s" for n in range(number)]})
    rows["prev_item"] = [None if n % 7 < 2 else sentence(n + 1, 2) for n in range(number)]
    rows["prev_word"] = [None if n % 7 < 2 else WORDS[n % 3] for n in range(number)]
    for name in ("Subtlex_log10", "length", "context_length", "prev_length"):
        rows[name] = draw.uniform(1, 9, number).round(2)
    for name in (*babylm.EYE_TRACKING, "self_paced_reading_time"):
        rows[name] = draw.normal(300, 60, number).round(1)
    rows.loc[3, "RTgopast"] = None
    (folder / "reading").mkdir()
    rows.to_csv(folder / "reading" / "reading_data.csv", index=False)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("full_eval")
    for name, rows in ROWS.items():
        write_rows(folder / f"{name}.jsonl", rows)
    write_reading(folder)
    return folder


@pytest.fixture(scope="module")
def causal(tiny_model, plain_tokenizer):
    model = tiny_model(GPT1ForCausalLM, 3, vocab_size=len(plain_tokenizer), max_position_embeddings=256)
    return CausalLMScorer(model, plain_tokenizer)


@pytest.fixture(scope="module")
def make_masked(plain_tokenizer, randomise):
    def make(family="bert", **arguments):
        tokenizer = FAMILIES[family].pretraining_tokenizer(plain_tokenizer)
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
        config = FAMILIES[family].make_config(tokenizer, **sizes, max_position_embeddings=66)
        return MaskedLMScorer(randomise(AutoModelForMaskedLM.from_config(config)).eval(), tokenizer, **arguments)

    return make


@torch.no_grad()
def by_definition(scorer, text, start, backend):
    """The tokens that end behind `start` characters; of a masked model each by a call. Special tokens have none."""
    encoded = scorer.tokenizer(text, return_offsets_mapping=True)
    ids = torch.tensor(encoded["input_ids"])
    places = [place for place, (_, end) in enumerate(encoded["offset_mapping"]) if end > start]
    if backend == "causal":
        log_probs = scorer.model(input_ids=ids[None]).logits[0].double().log_softmax(-1)
        return sum(log_probs[place - 1, ids[place]].item() for place in places if place > 0)
    total = 0.0
    for place in places:
        hidden = ids.clone()
        hidden[place] = scorer.tokenizer.mask_token_id
        logits = scorer.model(input_ids=hidden[None]).logits[0, place - (backend == "mntp")]
        total += logits.double().log_softmax(-1)[ids[place]].item()
    return total


def totals(scorer, rows, backend="causal"):
    return [[by_definition(scorer, text, start, backend) for text, start in row] for row in rows]


def accuracy(scores):
    return sum(row.index(max(row)) == 0 for row in scores) / len(scores)


SENTENCES = {
    "ewok": lambda row: [(f"{row['Context1']} {row[name]}", len(row["Context1"])) for name in ("Target1", "Target2")],
    "comps": lambda row: [
        (f"{row[name]} {row['property_phrase']}", len(row[name]) + 1)
        for name in ("prefix_acceptable", "prefix_unacceptable")
    ],
    "blimp": lambda row: [(row["sentence_good"], 0), (row["sentence_bad"], 0)],
    "entity": lambda row: [(row["input_prefix"] + option, len(row["input_prefix"])) for option in row["options"]],
    "wug": lambda row: [(text, 0) for text in row["sentences"].split("\t")],
}


@pytest.mark.parametrize(
    "family, backend", [("bert", "mlm"), ("roberta", "mlm"), ("roberta", "mntp"), ("gpt1", "causal")]
)
def test_each_sentence_is_scored_by_the_definition(family, backend, causal, make_masked, data_dir):
    scorer = causal if family == "gpt1" else make_masked(family, is_shifted=backend == "mntp")
    for name, kind, file in (
        ("blimp", "blimp", "blimp_filtered/first"),
        ("ewok", "ewok", "ewok_filtered/ewok"),
        ("comps", "comps", "comps/comps_base"),
        ("entity_tracking", "entity", "entity_tracking/regular"),
    ):
        rows = ROWS[file]
        items = [babylm.READERS[name](row, file.partition("/")[2]) for row in rows]
        expected = totals(scorer, map(SENTENCES[kind], rows), backend)
        for found, wanted in zip(babylm.score_items(scorer, items), expected, strict=True):
            assert found == pytest.approx(wanted, rel=1e-5, abs=1e-5)
    other = {"mlm": "mntp", "mntp": "mlm"}.get(backend)
    if other:  # the two places of a masked model's answer differ
        assert totals(scorer, map(SENTENCES[kind], rows[:1]), other)[0] != pytest.approx(expected[0], rel=1e-4)


def test_scores_of_all_tasks_and_their_predictions(causal, data_dir, capsys):
    def of(name):
        return babylm.evaluate_task(causal, name, babylm.find(name, data_dir))

    scores = totals(causal, map(SENTENCES["blimp"], ROWS["blimp_filtered/first"]))
    blimp = of("blimp")
    assert blimp.groups == {"paradigm_0": accuracy(scores[::2]), "paradigm_1": accuracy(scores[1::2])}
    assert blimp.metrics["acc"] == pytest.approx((accuracy(scores[::2]) + accuracy(scores[1::2])) / 2)
    assert blimp.metrics["acc"] != pytest.approx(accuracy(scores))  # of rows, which the groups have 4 and 3 of
    row = ROWS["blimp_filtered/first"][2]
    answer = [row["sentence_good"], row["sentence_bad"]][int(np.argmax(scores[2]))]
    assert blimp.predictions["paradigm_0"]["predictions"][1] == {"id": "paradigm_0_1", "pred": answer}
    assert (blimp.chance, blimp.num_rows) == (0.5, 7)

    scores = totals(causal, map(SENTENCES["blimp"], ROWS["supplement_filtered/hypernym"]))
    supplement = of("supplement")
    assert supplement.groups == {"hypernym": accuracy(scores)}

    ewok = of("ewok")
    scores = totals(causal, map(SENTENCES["ewok"], ROWS["ewok_filtered/ewok"]))
    assert ewok.groups == {"spatial": accuracy(scores[:2]), "social": accuracy(scores[2:])}
    assert {one["pred"] for one in ewok.predictions["spatial"]["predictions"]} <= {
        " " + row[name] for row in ROWS["ewok_filtered/ewok"][:2] for name in ("Target1", "Target2")
    }

    tracking = of("entity_tracking")
    places = ("entity_tracking/regular", "entity_tracking/move_contents")
    regular, moved = (totals(causal, map(SENTENCES["entity"], ROWS[place])) for place in places)
    parts = {f"regular_{n}_ops": accuracy(regular[2 * n : 2 * n + 2]) for n in range(3)}
    parts |= {f"move_contents_{n}_ops": accuracy(moved[n::2]) for n in range(2)}
    assert tracking.groups == parts
    assert tracking.chance == pytest.approx(0.2)
    of_splits = [np.mean([value for name, value in parts.items() if name.startswith(one)]) for one in ("reg", "mov")]
    assert tracking.metrics["acc"] == pytest.approx(np.mean(of_splits))

    comps = of("comps")
    assert "has 2 of the four files of comps" in capsys.readouterr().err
    scores = totals(causal, map(SENTENCES["comps"], ROWS["comps/comps_base"]))
    between = totals(causal, map(SENTENCES["comps"], ROWS["comps/comps_wugs_dist-in-between"]))
    assert comps.groups == {"base": accuracy(scores), "wugs_dist_in_between": accuracy(between)}
    row = ROWS["comps/comps_base"][0]
    prefix = ["prefix_acceptable", "prefix_unacceptable"][int(np.argmax(scores[0]))]
    assert comps.predictions["base"]["predictions"][0]["pred"] == f"{row[prefix]} {row['property_phrase']}"


def test_wugs_are_correlated_with_people(causal, data_dir):
    rows = ROWS["wug_past_tense/wug_past_tense"]
    answer = babylm.evaluate_task(causal, "wug_past", babylm.find("wug_past", data_dir))
    model = [1 / (1 + math.exp(right[1] - right[0])) for right in totals(causal, map(SENTENCES["wug"], rows))]
    people = [row["ratio"] for row in rows]

    def ranks(values):
        return [sorted(values).index(value) for value in values]

    expected = np.corrcoef(ranks(model), ranks(people))[0, 1]  # no ties
    assert answer.metrics == {"spearmanr": pytest.approx(expected)}
    assert answer.chance is None
    predictions = answer.predictions["wug_past"]["predictions"]
    assert [one["prob"] for one in predictions] == pytest.approx(model, rel=1e-4)
    assert predictions[3]["id"] == "wug_past_3"
    assert predictions[3]["pred"] in rows[3]["sentences"]


@torch.no_grad()
def surprisal(scorer, context, word, backend):
    """Token after token of the word, each behind the ids before it."""
    tokenizer = scorer.tokenizer
    total = 0.0
    before = tokenizer(context, add_special_tokens=False)["input_ids"]
    for target in tokenizer(word, add_special_tokens=False)["input_ids"]:
        if backend == "causal":
            logits = scorer.model(input_ids=torch.tensor([before])).logits[0, -1]
        else:
            ids = [tokenizer.cls_token_id, *before, *[tokenizer.mask_token_id] * 3, tokenizer.sep_token_id]
            logits = scorer.model(input_ids=torch.tensor([ids])).logits[0, len(before) + (backend == "mlm")]
        total -= logits.double().log_softmax(-1)[target].item()
        before = [*before, target]
    return total


def explained(rows, target, features):
    """By another implementation of least squares and of the products."""
    rows = rows[[target, *features, "pred"]].dropna().astype(float)
    design = [np.ones(len(rows)), *(rows[name] for name in features)]
    design += [rows[one] * rows[other] for place, one in enumerate(features) for other in features[:place]]
    left = []
    for columns in (design, [*design, rows["pred"]]):
        _, (squares,), *_ = np.linalg.lstsq(np.column_stack(columns), rows[target])
        left.append(squares)
    return 100 * (left[0] - left[1]) / left[0]


@pytest.mark.parametrize("backend", ["causal", "mlm", "mntp"])
def test_reading_times_are_explained_as_by_plain_least_squares(backend, causal, make_masked, data_dir):
    scorer = causal if backend == "causal" else make_masked(is_shifted=backend == "mntp")
    path = babylm.find("reading", data_dir)
    answer = babylm.evaluate_task(scorer, "reading", path)
    rows = pd.read_csv(path).fillna({"item": "None"})
    pairs = zip(rows["item"], rows["word"], strict=True)
    rows["pred"] = [surprisal(scorer, context, word, backend) for context, word in pairs]
    rows["prev_pred"] = [
        surprisal(scorer, row.prev_item, row.prev_word, backend) if isinstance(row.prev_item, str) else math.nan
        for row in rows.itertuples()
    ]
    found = answer.predictions["reading"]["predictions"]
    assert [one["pred"] for one in found] == pytest.approx(list(rows["pred"]), rel=1e-4)
    assert [one["prev_pred"] for one in found] == pytest.approx(list(rows["prev_pred"]), rel=1e-4, nan_ok=True)
    features = ["Subtlex_log10", "length", "context_length"]
    eyes = {name: explained(rows, name, features) for name in babylm.EYE_TRACKING}
    paced = explained(rows, "self_paced_reading_time", [*features, "prev_length", "prev_pred"])
    assert answer.groups == pytest.approx(eyes, rel=1e-3, abs=1e-4)
    expected = {"eye_tracking": np.mean(list(eyes.values())), "self_paced_reading": paced}
    assert answer.metrics == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert min(answer.metrics.values()) > 0


def sigmoid(x, height, slope, middle, floor):
    return height / (1 + np.exp(-slope * (x - middle))) + floor


@pytest.mark.parametrize("sign", [1, -1])
def test_ages_of_acquisition_are_where_the_curves_cross(sign, tmp_path):
    """Curves that are sigmoids: the ages are where they cross, which is known."""
    months = np.arange(16, 31)
    counts = [10**6 * n for n in (*range(1, 10), *range(10, 101, 10))]
    middles = [18.5, 20.0, 22.5, 25.0, 27.5]
    words = ["ball", "dog", "milk", "shoe", "tree"]
    children = pd.DataFrame([sigmoid(months, 1, 0.9, middle, 0) for middle in middles], columns=months.astype(str))
    children.insert(0, "word", words)
    children.to_csv(tmp_path / "cdi_human.csv", index=False)
    learnt = [7 + 0.08 * sign * (middle - 23) for middle in middles]  # log10 of the words read
    least = 4.0
    guessing = math.log2(300_000)
    rows = []
    for count in counts:
        for word, place in zip(words, learnt, strict=True):
            # falls from that of guessing by twice what is between it and the middle of the last surprisal
            surprisal = guessing - sigmoid(math.log10(count + 1), guessing - least, 6, place, 0)
            rows.append({"word_count": count, "target_word": word, "surprisal": surprisal})
    never = [{**row, "surprisal": guessing} for row in rows if row["target_word"] == "ball"]  # has no age
    assert babylm.age_correlation(never, tmp_path / "cdi_human.csv")["num_words"] == 0
    children.drop(columns=months.astype(str)).to_csv(tmp_path / "ages.csv")
    with pytest.raises(ValueError, match="ages.csv has no column of a month, 16 to 30"):
        babylm.age_correlation(rows, tmp_path / "ages.csv")
    found = babylm.age_correlation(rows, tmp_path / "cdi_human.csv")
    assert found == {"curve_fitness": pytest.approx(sign, abs=0.02), "num_words": 5}
    for word, place in zip(words, learnt, strict=True):
        curve = np.array([row["surprisal"] for row in rows if row["target_word"] == word])
        assert babylm._age_of_model(np.array(counts), curve) == pytest.approx(place, abs=0.05)
        assert babylm._age_of_model(np.array(counts[:3]), curve[:3]) is None
    some = [row for row in rows if row["target_word"] in words[:2]]
    assert babylm.age_correlation(some, tmp_path / "cdi_human.csv") == {"curve_fitness": 0.0, "num_words": 2}
    some = [row for row in rows if row["target_word"] in words[:3]]
    expected = {"curve_fitness": pytest.approx(sign, abs=0.02), "num_words": 3}
    assert babylm.age_correlation(some, tmp_path / "cdi_human.csv") == expected
    # Of a word that stands twice in the file, such as one of two meanings, the first counts.
    twice = pd.concat([children, children.iloc[-1:].assign(word="ball")])
    twice.to_csv(tmp_path / "twice.csv", index=False)
    assert babylm.age_correlation(rows, tmp_path / "twice.csv") == found


def test_a_word_is_scored_behind_its_context(causal, tmp_path):
    contexts = {"farmer": [{"context": "the old "}, " she walked"], "a": [{"context": "he paid"}]}
    contexts["smiled"] = contexts["a"]
    (tmp_path / "cdi_childes.json").write_text(json.dumps(contexts))
    rows = babylm.word_surprisals(causal, tmp_path / "cdi_childes.json")
    assert rows.pop()["target_word"] == "smiled"
    fewer = babylm.word_surprisals(causal, tmp_path / "cdi_childes.json", 1)  # in other batches
    assert rows == [{**row, "surprisal": pytest.approx(row["surprisal"], rel=1e-5)} for row in fewer]
    asked = [(row["target_word"], row["context_id"], row["context"]) for row in rows]
    assert asked == [("farmer", 0, "the old "), ("farmer", 1, " she walked")]
    before = ("the old", "she walked")
    expected = [-by_definition(causal, f"{text} farmer", len(text) + 1, "causal") for text in before]
    assert [row["surprisal"] for row in rows] == pytest.approx(expected, rel=1e-4)


def save_scorer(scorer, folder):
    return save_folder(folder, scorer.model, scorer.tokenizer)


def run(model, data_dir, output, *words):
    pytest.importorskip("lm_eval")
    where = ["--data_dir", str(data_dir), "--output_dir", str(output)]
    evaluate.main(["--model", model, *where, "--device", "cpu", *words])


def test_the_command_answers_all_and_leaves_what_the_challenge_collects(causal, data_dir, tmp_path, capsys):
    run(save_scorer(causal, tmp_path / "small.v1"), data_dir, tmp_path / "out", "--tasks", "babylm")
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    names = ["blimp", "supplement", "ewok", "entity_tracking", "comps", "wug_past", "reading"]
    assert results["asked"] == [f"babylm_{name}" for name in names]
    of_blimp = babylm.evaluate_task(causal, "blimp", data_dir / "blimp_filtered")
    assert results["results"]["babylm_blimp"] == {"acc,none": of_blimp.metrics["acc"], "groups": of_blimp.groups}
    shown = capsys.readouterr().out
    assert f"| babylm_blimp | blimp_filtered | 7 | 0 | acc | {of_blimp.metrics['acc']:.4g} | 0.500 |" in shown
    folder = tmp_path / "out" / "small" / "main" / "zero_shot" / "causal"
    written = "blimp/blimp_filtered blimp/supplement_filtered comps/comps entity_tracking/entity_tracking "
    written += "ewok/ewok_filtered reading wug_past/wug_past_tense"
    paths = sorted(str(path.relative_to(folder)) for path in folder.glob("**/*.json"))
    assert paths == [f"{name}/predictions.json" for name in written.split()]
    assert json.loads((folder / "blimp" / "blimp_filtered" / "predictions.json").read_text()) == of_blimp.predictions


def check_predictions_stay(place, task, model, data_dir, folder, monkeypatch, *words):
    """Whether predictions of another program, below the output folder, stay, and nothing is scored before that."""
    for name in ("evaluate_task", "word_surprisals"):
        monkeypatch.setattr(babylm, name, lambda *args: pytest.fail("a task was scored"))
    file = folder / "out" / place
    file.parent.mkdir(parents=True)
    file.write_text("of the challenge's own pipeline")
    with pytest.raises(ValueError, match=f"out has {place} already. Pass another folder"):
        run(model, data_dir, folder / "out", "--tasks", "babylm_reading", f"babylm_{task}", *words)
    assert file.read_text() == "of the challenge's own pipeline"


@pytest.mark.parametrize(
    "task, place",
    [
        ("supplement", "causal/blimp/supplement_filtered/predictions.json"),
        ("ewok", "causal/ewok/ewok_filtered/predictions.json"),
        ("reading", "causal/reading/predictions.json"),
        ("aoa", "causal/AoA_word/surprisal.json"),
    ],
)
@pytest.mark.parametrize("words", [[], ["--revision", "main"]])
def test_predictions_of_another_program_stay(task, place, words, causal, data_dir, tmp_path, monkeypatch):
    shutil.copytree(data_dir, tmp_path / "data")
    (tmp_path / "data" / "aoa").mkdir()
    (tmp_path / "data" / "aoa" / "cdi_childes.json").write_text("{}")
    model = save_scorer(causal, tmp_path / "model")
    place = f"model/main/zero_shot/{place}"
    check_predictions_stay(place, task, model, tmp_path / "data", tmp_path, monkeypatch, *words)


@pytest.mark.parametrize("backend", ["mlm", "mntp"])
def test_predictions_of_a_masked_model_stay(backend, make_masked, data_dir, tmp_path, monkeypatch):
    model = save_scorer(make_masked(), tmp_path / "model")
    words = ["--backend", "mntp"] if backend == "mntp" else []
    place = f"model/main/zero_shot/{backend}/ewok/ewok_filtered/predictions.json"
    check_predictions_stay(place, "ewok", model, data_dir, tmp_path, monkeypatch, *words)


def test_predictions_of_a_checkpoint_stay(causal, data_dir, tmp_path, monkeypatch):
    save_scorer(causal, tmp_path / "run" / "chck_1M")
    model = save_scorer(causal, tmp_path / "run")
    place = "run/chck_1M/zero_shot/causal/ewok/ewok_filtered/predictions.json"
    check_predictions_stay(place, "ewok", model, data_dir, tmp_path, monkeypatch, "--revision", "chck_1M")


@pytest.mark.parametrize("backend", [None, "mntp"])
def test_the_command_asks_masked_models(backend, make_masked, data_dir, tmp_path):
    scorer = make_masked("roberta", is_shifted=backend == "mntp")
    words = ["--tasks", "babylm_ewok", "--max_eval_samples", "4", *(["--backend", backend] if backend else [])]
    run(save_scorer(scorer, tmp_path / "model"), data_dir, tmp_path / "out", *words)
    answer = babylm.evaluate_task(scorer, "ewok", data_dir / "ewok_filtered", 4)
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["results"]["babylm_ewok"]["groups"] == answer.groups
    place = f"model/main/zero_shot/{backend or 'mlm'}/ewok/ewok_filtered/predictions.json"
    assert json.loads((tmp_path / "out" / place).read_text()) == answer.predictions


def test_the_command_follows_words_over_the_checkpoints(tiny_model, plain_tokenizer, data_dir, tmp_path):
    run_folder = tmp_path / "run"
    words = {"farmer": [{"context": "the old"}]}
    scorers = {}
    for number, name in enumerate(["chck_2M", "chck_10M", "chck_500K"]):
        model = tiny_model(GPT1ForCausalLM, number, vocab_size=len(plain_tokenizer), max_position_embeddings=64)
        scorers[name] = CausalLMScorer(model, plain_tokenizer)
        save_scorer(scorers[name], run_folder / name)
    save_scorer(scorers["chck_10M"], run_folder)
    (tmp_path / "data" / "aoa").mkdir(parents=True)
    (tmp_path / "data" / "aoa" / "cdi_childes.json").write_text(json.dumps(words))
    run(str(run_folder), tmp_path / "data", tmp_path / "out", "--tasks", "babylm_aoa")
    place = tmp_path / "out" / "run" / "main" / "zero_shot" / "causal" / "AoA_word" / "surprisal.json"
    rows = json.loads(place.read_text())["results"]
    steps = [(row["step"], row["word_count"]) for row in rows]
    assert steps == [("chck_500K", 500_000), ("chck_2M", 2_000_000), ("chck_10M", 10_000_000)]
    expected = [-by_definition(scorers[row["step"]], "the old farmer", 8, "causal") for row in rows]
    assert [row["surprisal"] for row in rows] == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="compares at least 3 checkpoints chck_… of --model, but .* has 0"):
        run(str(run_folder / "chck_2M"), tmp_path / "data", tmp_path / "other", "--tasks", "babylm_aoa")


@pytest.fixture
def diverged(tiny_model, plain_tokenizer):
    """A model whose scores are not numbers."""
    model = tiny_model(GPT1ForCausalLM, vocab_size=len(plain_tokenizer), max_position_embeddings=256)
    with torch.no_grad():
        model.transformer.tokens_embed.weight.fill_(math.nan)
    return CausalLMScorer(model, plain_tokenizer)


@pytest.mark.parametrize("task, path", [("blimp", "blimp_filtered"), ("reading", "reading/reading_data.csv")])
def test_a_model_whose_scores_are_not_numbers_gets_none(task, path, diverged, data_dir):
    with pytest.raises(ValueError, match="scores by GPT1ForCausalLM .* are not numbers .NaN.*Use another checkpoint"):
        babylm.evaluate_task(diverged, task, data_dir / path)


def test_an_evaluation_that_fails_leaves_no_predictions(causal, data_dir, tmp_path):
    save_scorer(causal, tmp_path / "model")
    shutil.copytree(data_dir, tmp_path / "rows")
    (tmp_path / "rows" / "comps" / "comps_base.jsonl").write_text('{"prefix_acceptable": "a"}\n')
    words = ["--tasks", "babylm_blimp", "babylm_comps"]
    with pytest.raises(ValueError, match="comps has a row without 'property_phrase'"):
        run(str(tmp_path / "model"), tmp_path / "rows", tmp_path / "out", *words)
    run(str(tmp_path / "model"), data_dir, tmp_path / "out", *words)
    assert len(list((tmp_path / "out").rglob("predictions.json"))) == 2


def test_results_of_the_checkpoints_before_one_that_diverged_stay(causal, diverged, data_dir, tmp_path):
    pytest.importorskip("lm_eval")
    save_scorer(causal, tmp_path / "run" / "checkpoint-5")
    save_scorer(diverged, tmp_path / "run" / "checkpoint-10")
    words = ["--data_dir", str(data_dir), "--output_dir", str(tmp_path / "out"), "--tasks", "babylm_blimp"]
    with pytest.raises(ValueError, match="scores by .*checkpoint-10 .* are not numbers"):
        evaluate.main(["--checkpoints", str(tmp_path / "run"), *words, "--device", "cpu"])
    of_blimp = babylm.evaluate_task(causal, "blimp", data_dir / "blimp_filtered")
    results = json.loads((tmp_path / "out" / "results-5.json").read_text())
    assert results["results"]["babylm_blimp"]["acc,none"] == of_blimp.metrics["acc"]
    assert not (tmp_path / "out" / "results-10.json").exists()


def test_a_row_ends_where_its_line_ends(tmp_path):
    """Other characters that end lines may stand in a text, and a file may end in an empty line."""
    row = {"sentence_good": "a\u2028b\x85c", "sentence_bad": "a", "linguistics_term": "x", "UID": "x", "field": "x"}
    text = "\r\n".join([json.dumps(row, ensure_ascii=False)] * 2) + "\r\n\r\n"
    (tmp_path / "x.jsonl").write_bytes(text.encode())
    assert [item.sentences[0] for item in babylm.read_items("blimp", tmp_path)] == ["a\u2028b\x85c"] * 2
    assert len(babylm.read_items("blimp", tmp_path, 1)) == 1


def test_few_rows_and_the_word_null(causal, data_dir, tmp_path):
    path = data_dir / "reading" / "reading_data.csv"
    assert babylm.evaluate_task(causal, "reading", path, 8).metrics == {"eye_tracking": 0.0, "self_paced_reading": 0.0}
    rows = pd.read_csv(path)
    rows.loc[3, "word"] = "null"
    rows.to_csv(tmp_path / "null.csv", index=False)
    assert babylm.evaluate_task(causal, "reading", tmp_path / "null.csv").num_rows == len(rows)
    same = [{"sentences": f"{sentence(1)}\t{sentence(1)}", "ratio": ratio} for ratio in (0.5, 0.7)]
    write_rows(tmp_path / "wug" / "a.jsonl", same)
    assert babylm.evaluate_task(causal, "wug_adj", tmp_path / "wug").metrics == {"spearmanr": 0.0}


def test_wrong_uses_are_refused_with_a_remedy(causal, data_dir, tmp_path):
    model = save_scorer(causal, tmp_path / "model")
    (tmp_path / "comps").mkdir()
    (tmp_path / "comps" / "comps_base.jsonl").write_text("")
    write_rows(tmp_path / "ewok_fast" / "mine.jsonl", [{"target_1": "a", "target_2": "b"}])
    for folder, words, told in (
        (data_dir, ["babylm_blimb"], "There is no task babylm_blimb. Pass one of babylm_blimp, babylm_supplement"),
        (data_dir, ["babylm_wug_adj"], "babylm_wug_adj needs wug_adj_nominalization in"),
        (
            data_dir / "reading",
            ["babylm"],
            "has the rows of no task of the challenge. Pass its folder full_eval or fast_eval",
        ),
        (data_dir, ["babylm", "--backend", "masked"], "argument --backend: .*invalid choice: 'masked'"),
        (tmp_path, ["babylm_comps"], "comps has no row in a .jsonl file"),
        (data_dir, ["babylm", "--sentence_prefix"], "--sentence_prefix has no use for the tasks babylm_"),
        (tmp_path, ["babylm_ewok"], "ewok_fast has a row without 'Target1'. Pass the challenge's rows of babylm_ewok"),
    ):
        with pytest.raises(ValueError, match=told):
            run(model, folder, tmp_path, "--tasks", *words)
    with pytest.raises(ValueError, match="Pass the folder full_eval or fast_eval .* as `data_dir`"):
        evaluate.main(["--model", model, "--tasks", "babylm", "--output_dir", str(tmp_path)])


@pytest.mark.real_data
def test_blimp_on_the_real_rows(real_data_dir, causal):
    """A row of each paradigm: the same scores as by the definition, sentence by sentence."""
    (path,) = (real_data_dir / "blimp").glob("train.jsonl*")
    kept = list({row["UID"]: row for row in read_file(path)}.values())
    items = [babylm.READERS["blimp"](row, "train") for row in kept]
    assert len(kept) == 67
    assert {item.group for item in items} == {row["UID"] for row in kept}
    expected = totals(causal, map(SENTENCES["blimp"], kept))
    for found, wanted in zip(babylm.score_items(causal, items), expected, strict=True):
        assert found == pytest.approx(wanted, rel=1e-4)
