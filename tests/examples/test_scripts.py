"""The scripts that people edit: each runs on tiny data, is short, and uses public names alone."""

import ast
import importlib
import importlib.util
import io
import json
import random
import re
import sys
from pathlib import Path

import pytest
from support.files import write_rows
from support.tiny import SENTENCES
from transformers import trainer_utils

import modeling_gpt1
import tokenization
from modeling_gpt1 import GPT1ForCausalLM, GPT1ForSequenceClassification
from modeling_gpt1.commands import generate
from tokenization import open_tokenizer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = ("dialogue", "finetune_own_file", "finetune_task", "pretrain", "prompted_generation", "score")
LONGEST = {"dialogue": 160}  # lines, of the one that makes its world
OTHERS = {"prompted_generation": ("sacrebleu", "rouge_score")}  # packages that a script needs besides
QUICK = ["--use_cpu", "--disable_tqdm", "true", "--save_strategy", "no", "--report_to", "none", "--max_steps", "2"]


def skip_without_packages(name: str) -> None:
    for package in OTHERS.get(name, ()):
        pytest.importorskip(package)


@pytest.fixture
def script(monkeypatch):
    """Opens a script as a module of a name that nothing else has."""

    def open_script(name):
        skip_without_packages(name)
        specification = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(specification)
        monkeypatch.setitem(sys.modules, specification.name, module)  # the parser looks its dataclasses' module up
        specification.loader.exec_module(module)
        return module

    return open_script


@pytest.fixture
def language_model(save_model, tmp_path):
    return save_model(tmp_path / "model")


def write_task(folder: Path) -> str:
    rows = [{"sentence": sentence, "label": index % 2} for index, sentence in enumerate(SENTENCES)]
    for split in ("train", "validation"):
        write_rows(folder / f"{split}.jsonl", rows)
    return str(folder)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_short_and_uses_public_names(name):
    skip_without_packages(name)
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= LONGEST.get(name, 100)
    public = {"modeling_gpt1": modeling_gpt1.__all__, "tokenization": tokenization.__all__}
    modules = {*sys.stdlib_module_names, *public, "transformers", "sacrebleu", "rouge_score.rouge_scorer"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            assert {alias.name for alias in node.names} <= modules
        if isinstance(node, ast.ImportFrom):
            assert node.module in modules
            module = importlib.import_module(node.module)
            assert {alias.name for alias in node.names} <= set(public.get(node.module, dir(module)))


def test_the_script_fine_tunes_on_a_task(script, language_model, tmp_path, capsys):
    arguments = ["--task", "sst2", "--data_dir", write_task(tmp_path / "data"), "--model", language_model]
    script("finetune_task").main([*arguments, "--output_dir", str(tmp_path / "out"), *QUICK])
    assert "eval_accuracy" in capsys.readouterr().out
    assert GPT1ForSequenceClassification.from_pretrained(tmp_path / "out").config.id2label[1] == "positive"
    (tmp_path / "data" / "train.jsonl").unlink()
    with pytest.raises(ValueError, match="data has no split 'train'. Add its file"):
        script("finetune_task").main([*arguments, "--output_dir", str(tmp_path / "again"), *QUICK])


def test_fine_tunes_on_an_own_file_and_names_its_classes(script, language_model, tmp_path, capsys):
    sentences = [SENTENCES[0] + " the" * 60, *SENTENCES[1:]]  # the first is longer than the model reads
    moods = zip(sentences, ("good", "bad", "good", "bad", "bad"), strict=True)
    file = write_rows(tmp_path / "rows.csv", [{"body": sentence, "mood": mood} for sentence, mood in moods])
    files = ["--train_file", file, "--validation_file", file]
    columns = ["--text", "body", "--label", "mood", "--model", language_model]
    script("finetune_own_file").main([*files, *columns, "--output_dir", str(tmp_path / "out"), *QUICK])
    answers = capsys.readouterr().out.splitlines()[-3:]
    for answer, sentence in zip(answers, sentences, strict=False):
        assert re.fullmatch(rf"(good|bad) \([01]\.\d\d\): {re.escape(sentence)}", answer)


def test_the_pre_training_script_trains_and_saves(script, tmp_path, monkeypatch, capsys, caplog):
    module = script("pretrain")
    monkeypatch.setattr(trainer_utils.logger, "handlers", [caplog.handler])
    monkeypatch.setattr(module, "SIZE", {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2})
    (tmp_path / "book.txt").write_text("\n".join(SENTENCES * 4))
    files = ["--train_files", str(tmp_path / "book.txt"), "--validation_files", str(tmp_path / "book.txt")]
    module.main([*files, "--num_merges", "50", "--output_dir", str(tmp_path / "out"), *QUICK])
    assert "eval_perplexity" in capsys.readouterr().out
    assert "PAD/BOS/EOS" not in caplog.text
    model = GPT1ForCausalLM.from_pretrained(tmp_path / "out")
    assert model.config.vocab_size == len(open_tokenizer(tmp_path / "out"))
    assert model.config.hidden_size == 16


def test_the_scoring_script_prints_a_line_for_each_text(script, language_model, tmp_path, capsys):
    module = script("score")
    data = write_task(tmp_path / "data")
    module.main(["--model", "gpt1-novels"])
    assert len(capsys.readouterr().out.splitlines()) == 4
    module.main(["--model", language_model, "--task", "sst2", "--data_dir", data, "--max_rows", "4"])
    *sentences, answers = capsys.readouterr().out.splitlines()
    figures = [float(line.split()[0]) for line in sentences]
    assert len(figures) == 4
    assert all(figure < 0 for figure in figures)
    assert sentences[0].endswith("  He was hungry, so he ate an apple.")
    assert re.fullmatch(r"sst2 \{'accuracy': (0\.\d+|1\.0), 'normalised': -?\d\.\d+\}", answers)


def facts_about(candidates, persona):
    """Which of the candidates end in a word of the persona."""
    return [candidate.split()[-2] in persona.split() for candidate in candidates]


def test_the_persona_of_a_dialogue_decides_which_reply_is_right(script):
    module = script("dialogue")
    rows = [module.make_row(random.Random(number)) for number in range(300)]
    assert {len(row["messages"]) for row in rows} == {2, 4, 6, 8}
    for row in rows:
        found = facts_about(row["candidates"], row["messages"][0]["content"])
        assert [place for place, is_fact in enumerate(found) if is_fact] == [row["label"]]
    moved = module.with_other_personas(rows)
    others = [facts_about(row["candidates"], row["messages"][0]["content"]) for row in moved]
    right = sum(found[row["label"]] for found, row in zip(others, moved, strict=True))
    assert right / sum(map(sum, others)) == pytest.approx(1 / 4, abs=0.08)


def test_the_dialogue_script_trains_scores_and_saves_a_model_that_talks(script, tmp_path, capsys, monkeypatch):
    """A short run: it learns the replies, not yet whose they are."""
    rows = ["--num_train_rows", "640", "--num_test_rows", "32"]
    out = str(tmp_path / "out")
    quick = [word for word in QUICK if word not in ("--max_steps", "2")]
    metrics = script("dialogue").main([*rows, "--output_dir", out, *quick])
    lines = capsys.readouterr().out.splitlines()
    for persona, line in zip(("own", "other"), lines[-2:], strict=True):
        assert re.fullmatch(rf"{persona} persona: hits@1 [01]\.\d{{3}} \(chance 0\.25\), perplexity \d+\.\d\d", line)
    assert metrics["eval_own_lm_loss"] < 1  # of 4 candidates: 20 words would be as likely
    monkeypatch.setattr("sys.stdin", io.StringIO("where do you live ?\n"))
    generate.main([out, "--chat", "--persona", "i live in rome .", "--max_new_tokens", "8", "--device", "cpu"])
    assert len(capsys.readouterr().out.splitlines()) == 3


PAIRS = [{"source": text, "target": " ".join(reversed(text.split()))} for text in SENTENCES]


def test_prompts_and_scores_of_prompted_generation(script, language_model, tmp_path, capsys, monkeypatch):
    module = script("prompted_generation")
    path = tmp_path / "pairs.jsonl"
    seen = []
    write_rows(path, PAIRS)
    targets = {row["source"]: row["target"] for row in PAIRS}

    def answer(model, tokenizer, prompts, **options):
        seen.extend(prompts)
        sources = [prompt.splitlines()[-1].removeprefix("{in}: ").removesuffix(" Out:") for prompt in prompts]
        return [[" " + targets[source].upper()] for source in sources]

    monkeypatch.setattr(module, "continue_prompts", answer)
    module.main(["--model", language_model, "--file", str(path), "--prompt", "{in}: {} Out:", "--shots", "1"])
    shown = f"{{in}}: {SENTENCES[0]} Out: {PAIRS[0]['target']}\n"
    assert seen == [f"{shown}{{in}}: {sentence} Out:" for sentence in SENTENCES[1:]]
    bleu, *rouge = capsys.readouterr().out.splitlines()[-4:]
    assert bleu.startswith("BLEU = 100.00")
    assert rouge == [f"{name} F1 = 1.0000" for name in ("rouge1", "rouge2", "rougeL")]


def test_prompted_generation_prints_answers_as_they_come(script, language_model, tmp_path, capsys):
    """A separator of lines inside a row is text, a mark at the beginning and blank lines are none."""
    module = script("prompted_generation")
    path = tmp_path / "pairs.jsonl"
    rows = [{"source": "the\u2028old", "target": "farmer"}, {"source": "the " * 70, "target": "a"}]
    path.write_text("\ufeff" + "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    options = ["--batch_size", "1", "--prompt", "{}", "--max_new_tokens", "2"]
    with pytest.raises(ValueError, match="^The prompt 'the the the"):
        module.main(["--model", language_model, "--file", str(path), "--shots", "0", *options])
    (line,) = capsys.readouterr().out.split("\n")[:-1]
    assert json.loads(line)["source"] == rows[0]["source"]
