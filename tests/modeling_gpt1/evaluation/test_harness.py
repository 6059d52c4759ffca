"""The harness's model `gpt1` beside its model `hf`: numbers, shared contexts, stopping, and what is refused."""

import json
import math
from pathlib import Path

import lm_eval
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.evaluator import simple_evaluate
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import BertConfig, BertLMHeadModel, GPT2Config, GPT2LMHeadModel, TokenizersBackend

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM, GPT1LSTMForCausalLM
from modeling_gpt1.evaluation import harness, local_rows
from modeling_gpt1.evaluation.published import PUBLISHED
from modeling_gpt1.evaluation.report import add_facts, chance_of, figures, table
from modeling_gpt1.reproduction.published import PUBLISHED as OF_PAPER

TEXTS = ["the old farmer", "she walked home", "a green river", "he paid for it", "no one knew", "five dollars"]
STORY = ["The old man smiled.", "He paid for the train.", "No one was there.", "She walked home."]
# A row of each task, as the hub has it, and the split that the task reads.
ROWS = {
    "piqa": ("validation", {"goal": TEXTS[0], "sol1": TEXTS[1], "sol2": TEXTS[2], "label": 1}),
    "arc_easy": (
        "test",
        {"question": TEXTS[0], "choices": {"text": TEXTS[1:5], "label": [*"ABCD"]}, "answerKey": "C"},
    ),
    "openbookqa": (
        "test",
        {"question_stem": TEXTS[3], "choices": {"text": TEXTS[:4], "label": [*"ABCD"]}, "answerKey": "B"},
    ),
    "hellaswag": (
        "validation",
        {"activity_label": "Walking", "ctx": "She walks. she", "endings": TEXTS[:4], "label": "2"},
    ),
    "winogrande": (
        "validation",
        {"sentence": "The man paid as _ was old.", "option1": "he", "option2": "the man", "answer": "1"},
    ),
    "race": ("high_validation", {"article": STORY[0], "question": "Who?", "options": TEXTS[:4], "label": 3}),
    "storycloze_2016": ("test", {"story": STORY, "ending1": TEXTS[3], "ending2": TEXTS[4], "label": 0}),
    "boolq": ("validation", {"question": "is the farmer old", "passage": STORY[0], "label": 1}),
    "cb": ("validation", {"premise": STORY[0], "hypothesis": TEXTS[4], "label": 2}),
    "copa": (
        "validation",
        {"premise": STORY[1], "choice1": STORY[2], "choice2": STORY[3], "question": "cause", "label": 0},
    ),
    "rte": ("validation", {"sentence1": STORY[0], "sentence2": STORY[2], "label": 0}),
    "lambada_standard": ("validation", {"text": "the old farmer smiled at her and she walked home"}),
    "blimp_adjunct_island": (
        "train",
        {"UID": "adjunct_island", "sentence_good": STORY[2], "sentence_bad": "No was one there."},
    ),
}
FOLDERS = {"storycloze_2016": "story_cloze", "lambada_standard": "lambada", "blimp_adjunct_island": "blimp"}
DEFINITIONS = ("piqa", "arc", "openbookqa", "hellaswag", "winogrande", "race", "storycloze", "lambada", "blimp")
DEFINITIONS += ("super_glue/boolq", "super_glue/cb", "super_glue/copa", "glue/rte", "wikitext")


@pytest.fixture(scope="module", autouse=True)
def few_definitions():
    """The harness's folders of these tasks alone: reading all of them takes 7 seconds."""
    tasks = Path(lm_eval.__file__).parent / "tasks"
    manager = TaskManager(
        include_defaults=False,
        include_path=[str(local_rows.OWN_TASKS), *(str(tasks / name) for name in DEFINITIONS)],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_rows, "all_tasks", lambda: manager)
        yield


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for task, (split, row) in ROWS.items():
        path = folder / FOLDERS.get(task, task) / f"{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        other = {**row, **{key: f"{value} there" for key, value in row.items() if key in ("goal", "article", "text")}}
        path.write_text("".join(json.dumps(one) + "\n" for one in (row, other)), encoding="utf-8")
    path = folder / "wikitext2_raw" / "wiki.test.raw"
    path.parent.mkdir()
    path.write_text(" \n = Old Farmer = \n \n The old farmer smiled . \n \n = A Home = \n \n She walked home . \n")
    return folder


def byte_level_tokenizer():
    backend = Tokenizer(models.BPE(unk_token=None))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(STORY, trainers.BpeTrainer(initial_alphabet=alphabet, special_tokens=["<|end|>"]))
    return TokenizersBackend(tokenizer_object=backend, bos_token="<|end|>", eos_token="<|end|>")


def save(folder, model, tokenizer):
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module", params=["gpt1", "fine-tuned", "lstm", "gpt2's options", "gpt2"])
def folder(request, tmp_path_factory, tiny_model, randomise, plain_tokenizer, tiny_tokenizer):
    path, kind = tmp_path_factory.mktemp("model"), request.param
    if kind == "gpt2":
        tokenizer = byte_level_tokenizer()
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=64))
        return save(path, randomise(model).eval(), tokenizer)
    tokenizer = tiny_tokenizer if kind == "fine-tuned" else plain_tokenizer
    model_class = {"fine-tuned": GPT1DoubleHeadsModel, "lstm": GPT1LSTMForCausalLM}.get(kind, GPT1ForCausalLM)
    fields = {"layout": "gpt2"} if kind == "gpt2's options" else {}
    return save(
        path, tiny_model(model_class, vocab_size=len(tokenizer), max_position_embeddings=64, **fields), tokenizer
    )


def answers(results):
    """Every request's log-probability and greediness."""
    return {
        (task, sample["doc_id"], number): response[0]
        for task, samples in results["samples"].items()
        for sample in samples
        for number, response in enumerate(sample["resps"])
    }


def ask(model, data_dir, tmp_path, **options):
    tasks = [*ROWS, "wikitext"]
    specified, names = local_rows.specify_tasks(tasks, data_dir, tmp_path)
    assert names == tasks
    return simple_evaluate(
        model, tasks=specified, task_manager=local_rows.all_tasks(), bootstrap_iters=0, confirm_run_unsafe_code=True
    )


def test_numbers_equal_those_of_hf(folder, data_dir, tmp_path):
    """14 tasks: several answers, last words, minimal pairs, whole texts."""
    ours = answers(ask(harness.SharedContextLM(folder, device="cpu"), data_dir, tmp_path))
    tokens = {"add_bos_token": False} if "[e]" in (Path(folder) / "tokenizer.json").read_text() else {}
    theirs = answers(ask(HFLM(folder, device="cpu", batch_size=4, **tokens), data_dir, tmp_path))
    assert ours.keys() == theirs.keys() and len(ours) == 70
    for key, theirs_of_key in theirs.items():
        if key[0] == "wikitext":
            assert ours[key] == pytest.approx(theirs_of_key, rel=1e-5)
        else:
            assert ours[key][0] == pytest.approx(theirs_of_key[0], rel=1e-5) and ours[key][1] == theirs_of_key[1]
