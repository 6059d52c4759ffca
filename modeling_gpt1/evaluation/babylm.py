"""The text tasks of the BabyLM challenge, by the definitions of its pipeline of 2025.

The pipeline (https://github.com/babylm/evaluation-pipeline-2025) tests which of several sentences a model finds most
probable. Here scorers of this package do so, and the answers are written where and how the challenge collects them.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tokenization.errors import UserError
from tokenization.rows.metrics import spearmanr

from ..inference.scoring import MaskedLMScorer, Scorer, ScoringRequest

# Masks that the pipeline appends where a masked model reads from left to right.
READING_MASKS = 3
EYE_TRACKING = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound")


class Item(NamedTuple):
    """A row: sentences of which the first is right, and the part of each that is scored."""

    group: str  # empty where a task has no groups
    sentences: Sequence[str]
    scored: Sequence[str]  # the ends of the sentences
    ratio: float | None = None  # of people, for the first sentence


def _minimal_pair(row: dict, stem: str) -> Item:
    pair = (row["sentence_good"], row["sentence_bad"])
    return Item(row["UID"] if "field" in row else stem, pair, pair)


def _ewok(row: dict, stem: str) -> Item:
    targets = [" " + row["Target1"], " " + row["Target2"]]
    return Item(row["Domain"], [row["Context1"] + target for target in targets], targets)


def _entity_tracking(row: dict, stem: str) -> Item:
    options = row["options"]
    return Item(f"{stem}_{row['numops']}_ops", [row["input_prefix"] + option for option in options], options)


def _comps(row: dict, stem: str) -> Item:
    known = {"comps_base": "base", "comps_wugs": "wugs", "comps_wugs_dist-before": "wugs_dist_before"}
    phrase = row["property_phrase"]
    sentences = [f"{row[prefix]} {phrase}" for prefix in ("prefix_acceptable", "prefix_unacceptable")]
    return Item(known.get(stem, "wugs_dist_in_between"), sentences, [phrase, phrase])


def _wug(row: dict, stem: str) -> Item:
    sentences = row["sentences"].split("\t")
    return Item("", sentences, sentences, float(row["ratio"]))


READING = "reading"
AGES = "aoa"
# Where the rows of each task may lie.
FILES = {
    "blimp": ("blimp_filtered", "blimp_fast"),
    "supplement": ("supplement_filtered", "supplement_fast"),
    "ewok": ("ewok_filtered", "ewok_fast"),
    "entity_tracking": ("entity_tracking", "entity_tracking_fast"),
    "comps": ("comps",),
    "wug_adj": ("wug_adj_nominalization",),
    "wug_past": ("wug_past_tense",),
    READING: ("reading/reading_data.csv",),
    AGES: ("aoa/cdi_childes.json", "cdi_childes/cdi_childes.json"),
}
# How a row of a task on sentences is read, given the name of its file.
READERS = {
    "blimp": _minimal_pair,
    "supplement": _minimal_pair,
    "ewok": _ewok,
    "entity_tracking": _entity_tracking,
    "comps": _comps,
    "wug_adj": _wug,
    "wug_past": _wug,
}
CHILDREN_FILE = "cdi_human.csv"  # beside the words


def find(name: str, data_dir: str | Path) -> Path | None:
    """The first file or folder of a task in the challenge's `full_eval` or `fast_eval`; None without one."""
    for place in FILES[name]:
        path = Path(data_dir, place)
        if path.exists():
            return path
    return None


def find_tasks(names: Sequence[str], data_dir: str | Path | None) -> dict[str, Path]:
    """The tasks that `babylm` (all with rows but `aoa`) and `babylm_<task>` name, and where the rows of each are."""
    if not names:
        return {}
    if data_dir is None:
        raise UserError(
            "The rows of the BabyLM challenge are read from files. Pass the folder full_eval or fast_eval of its data "
            "(https://osf.io/ryjfm) as `data_dir`."
        )
    wanted = set()
    for name in names:
        task = name.removeprefix("babylm").removeprefix("_")
        if not task:
            wanted |= FILES.keys() - {AGES}
            continue
        if task not in FILES:
            raise UserError(f"There is no task {name}. Pass one of {', '.join(f'babylm_{one}' for one in FILES)}.")
        if find(task, data_dir) is None:
            raise UserError(
                f"babylm_{task} needs {' or '.join(FILES[task])} in `data_dir` {data_dir}. Pass the folder full_eval "
                "or fast_eval of the challenge."
            )
        wanted.add(task)
    paths = {task: find(task, data_dir) for task in FILES if task in wanted}
    found = {task: path for task, path in paths.items() if path is not None}
    if not found:
        raise UserError(
            f"`data_dir` {data_dir} has the rows of no task of the challenge. Pass its folder full_eval or fast_eval."
        )
    return found


# ---- Sentences


def read_items(name: str, folder: Path, num_rows: int | None = None) -> list[Item]:
    """The rows of all .jsonl files of a folder, or the first of each file, in the order of the files' names."""
    items = []
    for path in sorted(folder.glob("*.jsonl")):
        # Not `splitlines`: other characters that end lines may stand in a text.
        lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
        items += [READERS[name](json.loads(line), path.stem) for line in lines[:num_rows]]
    if not items:
        raise UserError(f"{folder} has no row in a .jsonl file. Unpack the challenge's data there.")
    return items


def score_items(scorer: Scorer, items: Sequence[Item]) -> list[list[float]]:
    """The log-probability of the scored part of each sentence; of a masked model, its pseudo-log-likelihood.

    A token that reaches into the scored part belongs to it. Without anything before it the first token is not scored.
    """
    texts = [sentence for item in items for sentence in item.sentences]
    encoded = scorer.tokenizer(
        texts, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True, verbose=False
    )
    rows = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
    requests_of_items = []
    for item in items:
        contexts, continuations = [], []
        for sentence, scored in zip(item.sentences, item.scored, strict=True):
            ids, offsets = next(rows)
            first = _first_token_after(offsets, len(sentence) - len(scored))
            contexts.append(ids[:first])
            continuations.append(ids[first:])
        requests_of_items.append(_requests(contexts, continuations))
    scores = iter(scorer.score_ids([request for requests in requests_of_items for request in requests]))
    totals = []
    for requests in requests_of_items:
        totals.append([score.total for _ in requests for score in next(scores)])
    return totals


def _first_token_after(offsets: list[tuple[int, int]], start: int) -> int:
    """The place of the first token that reaches beyond a character; behind the last token without one."""
    for place, (_, end) in enumerate(offsets):
        if end > start:
            return place
    return len(offsets)


def _requests(contexts: list[list[int]], continuations: list[list[int]]) -> list[ScoringRequest]:
    """One request where all contexts are the same, which is then read once; else one for each."""
    if all(context == contexts[0] for context in contexts):
        return [ScoringRequest(contexts[0], continuations)]
    return [ScoringRequest(context, [ids]) for context, ids in zip(contexts, continuations, strict=True)]


class Answer(NamedTuple):
    """A model's scores on a task, with its predictions in the layout that the challenge collects."""

    metrics: dict[str, float]
    groups: dict[str, float]
    num_rows: int
    chance: float | None
    predictions: dict[str, Any]


def evaluate_task(scorer: Scorer, name: str, path: Path, num_rows: int | None = None) -> Answer:
    """Scores a model with a fast tokenizer on a task other than `aoa`, on all rows of each file or the first."""
    if name == READING:
        return _evaluate_reading(scorer, path, num_rows)
    items = read_items(name, path, num_rows)
    predictions = defaultdict(list)
    right = defaultdict(list)
    for item, scores in zip(items, score_items(scorer, items), strict=True):
        chosen = int(np.argmax(scores))
        group = item.group or name
        right[group].append(chosen == 0)
        text = item.sentences[chosen] if name == "comps" else item.scored[chosen]
        prediction = {"id": f"{group}_{len(predictions[group])}", "pred": text}
        if item.ratio is not None:
            prediction["prob"] = float(np.exp(scores[0] - np.logaddexp.reduce(scores)))
        predictions[group].append(prediction)
    accuracies = {group: float(np.mean(of_group)) for group, of_group in right.items()}
    if name == "comps" and len(accuracies) < 4:
        print(
            f"{path} has {len(accuracies)} of the four files of comps: the score is the mean over these.",
            file=sys.stderr,
        )
    if items[0].ratio is None:
        metrics = {"acc": _mean_accuracy(name, accuracies)}
        groups = accuracies
        chance = float(np.mean([1 / len(item.sentences) for item in items]))
    else:
        probabilities = [prediction["prob"] for of_group in predictions.values() for prediction in of_group]
        metrics = {"spearmanr": float(spearmanr(probabilities, [item.ratio for item in items]))}
        groups, chance = {}, None
    collected = {group: {"predictions": of_group} for group, of_group in predictions.items()}
    return Answer(metrics, groups, len(items), chance, collected)


def _mean_accuracy(name: str, accuracies: dict[str, float]) -> float:
    """The mean over the groups; of entity tracking over the numbers of operations, and then over the splits."""
    means = pd.Series(accuracies)
    if name == "entity_tracking":
        means = means.groupby(lambda group: group.rsplit("_", 2)[0]).mean()
    return float(means.mean())


# ---- Reading times


def _evaluate_reading(scorer: Scorer, path: Path, num_rows: int | None) -> Answer:
    """How much better surprisal explains how long people read: the share of the variance left that it takes away.

    A word's tokens are read as ids. (The pipeline joins their texts, some tokenizers' with a space before each.)
    """
    rows = pd.read_csv(
        path,
        dtype={"item": str},
        nrows=num_rows,
        keep_default_na=False,
        na_values=["", "NA", "NaN"],  # "null" is a word
    )
    rows = rows.fillna({"item": "None"})
    if isinstance(scorer, MaskedLMScorer):
        scorer = MaskedLMScorer(
            scorer.model,
            scorer.tokenizer,
            scorer.batch_tokens,
            is_shifted=scorer.is_shifted,
            num_masks=READING_MASKS,
        )
    rows["pred"] = _surprisals(scorer, rows["item"], rows["word"])
    before = rows[rows["prev_item"].notna()]
    surprisals = _surprisals(scorer, before["prev_item"], before["prev_word"])
    rows["prev_pred"] = pd.Series(surprisals, before.index, float)  # others have none
    features = ["Subtlex_log10", "length", "context_length"]
    eyes = {name: _gain(rows, name, features) for name in EYE_TRACKING}
    paced = _gain(rows, "self_paced_reading_time", [*features, "prev_length", "prev_pred"])
    predictions = rows[["pred", "prev_pred"]].rename_axis("id").reset_index().to_dict("records")
    return Answer(
        metrics={"eye_tracking": float(np.mean(list(eyes.values()))), "self_paced_reading": paced},
        groups=eyes,
        num_rows=len(rows),
        chance=None,
        predictions={READING: {"predictions": predictions}},
    )


def _surprisals(scorer: Scorer, contexts: Sequence[str], words: Sequence[str]) -> list[float]:
    pairs = zip(scorer.ids_of(list(contexts)), scorer.ids_of(list(words)), strict=True)
    return [-score.total for [score] in scorer.score_ids([(context, [word]) for context, word in pairs])]


def _gain(rows: pd.DataFrame, target: str, features: list[str]) -> float:
    """100 · (R² with surprisal − R² without) / (1 − R² without), of least squares with all products of features."""
    from sklearn.linear_model import LinearRegression
    from sklearn.preprocessing import PolynomialFeatures, scale

    complete = rows[[target, *features, "pred"]].dropna()
    if len(complete) < 2 ** len(features) + 2:  # as many coefficients fit all
        return 0.0
    # Scaled features span the same products, and lose fewer digits.
    products = PolynomialFeatures(interaction_only=True).fit_transform(scale(complete[features]))

    def explained(columns: np.ndarray) -> float:
        return LinearRegression().fit(columns, complete[target]).score(columns, complete[target])

    without = explained(products)
    with_surprisal = explained(np.column_stack([products, complete["pred"]]))
    return 100 * (with_surprisal - without) / (1 - without)


# ---- Ages of acquisition


def word_surprisals(scorer: Scorer, path: Path, num_words: int | None = None) -> list[dict]:
    """The surprisal of each word of more than one letter in each text, or `{"context": text}`, of its list."""
    texts_of_words = json.loads(path.read_text(encoding="utf-8"))
    words = [word for word in texts_of_words if len(word) > 1]
    rows, items = [], []
    for word in words[:num_words]:
        for number, text in enumerate(texts_of_words[word]):
            context = text if isinstance(text, str) else text["context"]
            rows.append({"target_word": word, "context_id": number, "context": context})
            items.append(Item("", [f"{context.strip()} {word.strip()}"], [word.strip()]))
    for row, [score] in zip(rows, score_items(scorer, items), strict=True):
        row["surprisal"] = -score
    return rows


def age_correlation(results: list[dict], children_file: Path) -> dict[str, float]:
    """Pearson's correlation of the ages at which children and the model have learnt a word (Chang & Bergen 2022).

    A child has learnt it at the month in which a sigmoid over the shares of children who know it crosses one half; a
    model where one over its surprisals crosses the middle between that of guessing one of 300,000 words and its least.
    The rows of `word_surprisals` have `word_count`, too, the words that the model had read, in ascending order.
    """
    children = pd.read_csv(children_file).drop_duplicates("word").set_index("word")
    months = [str(month) for month in range(16, 31) if str(month) in children.columns]
    if not months:
        raise UserError(f"{children_file} has no column of a month, 16 to 30. Pass the challenge's file.")
    curves = pd.DataFrame(results, columns=["target_word", "word_count", "surprisal"])
    ages = []
    for word, curve in curves.groupby("target_word"):
        if word in children.index:
            shares = children.loc[word, months].astype(float).dropna()
            model = _age_of_model(curve["word_count"].to_numpy(), curve["surprisal"].to_numpy())
            ages.append({"children": _age_of_children(shares), "model": model})
    pairs = pd.DataFrame(ages, columns=["children", "model"], dtype=float).dropna()
    correlation = pairs["children"].corr(pairs["model"]) if len(pairs) > 2 else 0.0
    return {"curve_fitness": float(correlation), "num_words": len(pairs)}


def _age_of_children(shares: pd.Series) -> float | None:
    ages = shares.index.astype(int).to_numpy()
    if len(ages) < 3:
        return None
    bounds = ([0, 0, ages[0], -0.5], [2.0, 1.0, ages[-1], 0.5])
    return _crossing(ages, shares.to_numpy(), 0.5, [1.0, 0.1, ages.mean(), 0.0], bounds=bounds)


def _age_of_model(words: np.ndarray, surprisals: np.ndarray) -> float | None:
    places = np.log10(words + 1)
    values = -surprisals
    start = [values.max() - values.min(), 1.0, places.mean(), values.min()]
    # As in the pipeline's `compute_model_aoa`, guessing is measured in bits, though surprisals are in nats.
    guessing = np.log2(300_000)
    middle = (guessing + surprisals.min()) / 2
    return _crossing(places, values, -middle, start)


def _crossing(places: np.ndarray, values: np.ndarray, height: float, start: list[float], **options) -> float | None:
    """Where a sigmoid through the values reaches a height; None if that is not between the first and the last."""
    from scipy.optimize import curve_fit
    from scipy.special import expit

    def sigmoid(place: np.ndarray, rise: float, slope: float, middle: float, floor: float) -> np.ndarray:
        return rise * expit(slope * (place - middle)) + floor

    try:
        (rise, slope, middle, floor), _ = curve_fit(sigmoid, places, values, p0=start, maxfev=1000, **options)
    except (RuntimeError, TypeError, ValueError):  # no fit; TypeError: of fewer points than the sigmoid has numbers
        return None
    if slope <= 0 or rise <= 0 or not floor < height < rise + floor:
        return None
    found = middle - np.log(rise / (height - floor) - 1) / slope
    return float(found) if places[0] <= found <= places[-1] else None


# ---- Files


def predictions_file(model: str, revision: str | None, backend: str, name: str, path: Path) -> Path:
    """Where the challenge's collate_preds.py looks for predictions, below its folder `results`.

    Args:
        model: folder or hub id.
        revision: branch or checkpoint; None is `main`.
        backend: what the pipeline calls the way in which the model scores a sentence: causal, mlm or mntp.
        name, path: the task, and its rows, as `find_tasks` gives them.
    """
    folder = Path(Path(model).stem, revision or "main", "zero_shot", backend)
    if name == AGES:
        return folder / "AoA_word" / "surprisal.json"
    if name == READING:
        return folder / READING / "predictions.json"
    group = "blimp" if name == "supplement" else name
    return folder / group / path.name / "predictions.json"
