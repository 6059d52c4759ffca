"""`gpt1 pretrain` on a few made-up pages: files, figures, further training, resuming, streams, and refusals."""

import json
import re
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from datasets import Dataset, IterableDataset
from support.files import write_rows
from support.finetuning import resumes_after, without_times
from support.hub_code import HUB_CODE
from support.refusals import refusal
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    TrainerState,
    pipeline,
)

from modeling_gpt1 import (
    GPT1ForCausalLM,
    GPT1LSTMForSequenceClassification,
    GPT1PretrainingArguments,
    GPT1PretrainingTrainer,
)
from modeling_gpt1.commands import finetune, generate, pretrain
from modeling_gpt1.commands.arguments import parser_of
from modeling_gpt1.commands.pretrain import run as run_module
from modeling_gpt1.commands.pretrain.arguments import CorpusArguments
from modeling_gpt1.commands.runs import RunCallback
from modeling_gpt1.families import FAMILIES
from modeling_gpt1.training import measures
from tokenization import GPT1Tokenizer

SENTENCES = ("The cat sat on the mat.", "A dog saw the cat.", "Then the dog ran home, and the cat slept.")
BERT = ("--family", "bert", "--config_overrides")
SIZES = "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,max_position_embeddings=32"


@pytest.fixture
def books(tmp_path):
    """Two books to train on and one to validate on."""
    for name, length in (("one", 40), ("two", 25), ("held_out", 10)):
        lines = [SENTENCES[(index + length) % 3] for index in range(length)]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


def arguments(books, output_dir, *more):
    return [
        *("--train_files", str(books / "one.txt"), str(books / "t*.txt")),
        *(() if "--validation_files" in more else ("--validation_files", str(books / "held_out.txt"))),
        *("--output_dir", str(output_dir), "--max_steps", "6", "--per_device_train_batch_size", "4"),
        *("--learning_rate", "1e-2", "--warmup_steps", "1", "--use_cpu", "--disable_tqdm", "True"),
        *("--save_strategy", "no", *more),
    ]


def test_from_text_to_a_model_that_can_be_trained_further(books, caplog, monkeypatch):
    output_dir = books / "out"
    monkeypatch.setattr(run_module, "LEAST_VOCABULARY", 0)
    pretrain.main(arguments(books, output_dir, "--num_merges", "60", "--config_overrides", SIZES))
    saved = {path.name for path in output_dir.iterdir()}
    assert saved == {
        *("README.md", "config.json", "generation_config.json", "model.safetensors", "trainer_state.json", "run.yaml"),
        *("tokenizer.json", "tokenizer_config.json", "train_results.json", "eval_results.json", "all_results.json"),
        *HUB_CODE,
    }
    model, tokenizer = GPT1ForCausalLM.from_pretrained(output_dir), GPT1Tokenizer.from_pretrained(output_dir)
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.bos_token_id == tokenizer.bos_token_id == 0
    assert model.config.max_position_embeddings == 32
    results = results_of(output_dir, "all")
    assert 1 < results["eval_perplexity"] < len(tokenizer)

    again = books / "again"
    pretrain.main(arguments(books, again, "--model", str(output_dir)))
    assert len([line for line in caplog.messages if line.startswith("expected perplexity")]) == 1  # of the new model
    assert results_of(again, "all")["eval_perplexity"] < results["eval_perplexity"]


def results_of(folder, which="eval"):
    return json.loads((folder / f"{which}_results.json").read_text())


def figures(output_dir):
    return without_times(json.loads((output_dir / "trainer_state.json").read_text(encoding="utf-8"))["log_history"])


def test_a_run_that_is_cut_goes_on_where_it_was(books):
    """The last evaluation takes all blocks."""
    often = ("--num_merges", "60", "--config_overrides", SIZES, "--logging_steps", "2", "--eval_strategy", "steps")
    often += ("--eval_steps", "3", "--max_eval_blocks", "1", "--prompts", "the cat", "a dog")
    saving = ("--save_strategy", "steps", "--save_steps", "3")
    pretrain.main([*arguments(books, books / "whole", *often), *saving])
    cut = books / "cut"
    pretrain.main([*arguments(books, cut, *often), *saving, "--resume_from_checkpoint", "auto"])
    for name in ("checkpoint-6", "model.safetensors", "all_results.json"):
        path = cut / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with resumes_after(3):
        pretrain.main([*arguments(books, cut, *often), *saving, "--resume_from_checkpoint", "auto"])

    assert (cut / "model.safetensors").read_bytes() == (books / "whole" / "model.safetensors").read_bytes()
    expected = figures(books / "whole")
    assert figures(cut) == expected
    assert [record["step"] for record in expected if "loss" in record] == [2, 4, 6]
    *evaluations, few, of_all_blocks = [record for record in expected if "eval_loss" in record]
    assert [record["step"] for record in (*evaluations, few, of_all_blocks)] == [3, 6, 6]
    assert few["eval_loss"] != of_all_blocks["eval_loss"] == results_of(cut)["eval_loss"]
    samples = [record["samples"] for record in expected if "samples" in record]
    assert [[sample.split()[0] for sample in both] for both in samples] == [["the", "a"], ["the", "a"]]


def test_the_model_is_saved_after_words_that_were_read(books, caplog, capsys):
    """The folders stay, hold the weights of that update, and come out again from a run that was cut before them."""
    more = ("--num_merges", "60", "--config_overrides", SIZES, "--save_strategy", "steps", "--save_steps", "1")
    more += ("--logging_steps", "1", "--save_at_words", "200", "0.4K", "1M", "--resume_from_checkpoint", "auto")
    out, num_words = books / "out", sum(len((books / f"{name}.txt").read_text().split()) for name in ("one", "two"))
    pretrain.main(arguments(books, out, *more))
    seen = {record["step"]: record["words_seen"] for record in figures(out) if "words_seen" in record}
    assert list(seen) == [1, 2, 3, 4, 5, 6]
    per_update = seen[6] / 6
    assert num_words / per_update == pytest.approx(round(num_words / per_update), abs=0.05)  # updates of a pass
    assert {path.name for path in out.glob("chck_*")} == {"chck_200", "chck_0.4K"}
    assert "The run ends before the words of chck_1M, which will not be saved." in caplog.text
    assert f"words: {num_words} in the text" in caplog.text
    assert f"| words read in training | {seen[6]} |" in (out / "README.md").read_text(encoding="utf-8")
    weights, steps = {}, {name: round(words / per_update) for name, words in (("200", 200), ("0.4K", 400))}
    assert 1 < steps["200"] < steps["0.4K"] < 6
    for name, step in steps.items():
        weights[name] = (out / f"chck_{name}" / "model.safetensors").read_bytes()
        assert weights[name] == (out / f"checkpoint-{step}" / "model.safetensors").read_bytes()
        assert AutoTokenizer.from_pretrained(out / f"chck_{name}").is_fast
    assert weights["200"] != weights["0.4K"]

    for folder in [*(out / f"checkpoint-{step}" for step in range(steps["200"] + 1, 7)), out / "chck_0.4K"]:
        shutil.rmtree(folder)
    with resumes_after(steps["200"]):
        pretrain.main(arguments(books, out, *more, "--save_total_limit", "1"))
    assert (out / "chck_0.4K" / "model.safetensors").read_bytes() == weights["0.4K"]
    assert (out / "chck_200").is_dir()
    assert not (out / f"checkpoint-{steps['200']}").exists()

    with pytest.raises(ValueError, match="was trained with --per_device_train_batch_size 4, and a run cannot go on"):
        pretrain.main(arguments(books, out, *more, "--per_device_train_batch_size", "2"))
    again = [{"0.4K": "0.1K"}.get(word, word) for word in more]
    pretrain.main(arguments(books, out, *again))
    assert "The run is past the words of chck_0.1K, which will not be saved." in caplog.text
    told = generated(out, capsys, "--revision", "chck_200")
    assert told == generated(out / "chck_200", capsys) != generated(out, capsys)
    assert generated(out, capsys, "--revision", "main") == generated(out, capsys)
    with pytest.raises(ValueError, match="no checkpoint chck_1M. Pass as --revision one of chck_0.4K, chck_200"):
        generated(out, capsys, "--revision", "chck_1M")


def test_a_preset_is_where_settings_begin(tmp_path):
    """Flags and --config win, a tokenizer takes the place of its merges, and a run's own settings repeat it."""

    def read(*words):
        return parser_of("pretrain").read(["--train_files", "b", "--output_dir", "o", "--use_cpu", *words])

    presets = [("babylm-10m", 256, 200), ("babylm-10m-gpu", 512, 400), ("babylm-100m", 256, 200)]
    for preset, width, warm_up in [*presets, ("babylm-100m-gpu", 512, 500)]:
        model, corpus, training = read("--preset", preset, "--learning_rate", "1e-4", "--tokenizer_name", "t")
        assert model.make_config().hidden_size == width
        assert model.tokenizer_name == "t"
        assert model.num_merges is None
        assert (len(corpus.save_points()), corpus.max_words) == ((28, "1B") if warm_up == 500 else (19, "100M"))
        assert (training.learning_rate, training.warmup_steps, training.bf16) == (1e-4, warm_up, True)
    (tmp_path / "run.yaml").write_text("preset: babylm-10m\nmax_words: 5M\n", encoding="utf-8")
    _, corpus, training = read("--config", str(tmp_path / "run.yaml"), "--seed", "3")
    assert (corpus.max_words, training.learning_rate, training.seed) == ("5M", 2e-3, 3)
    for other in ("--max_steps", "--num_train_epochs"):
        assert read("--preset", "babylm-10m", other, "2")[1].max_words is None
    assert read("--preset", "babylm-10m", "--streaming", "--max_steps", "9")[1].save_points() == {}
    for family in ("gpt3", "gpt1"):
        one_size = ("--family", family, "--config_overrides", "hidden_size=64")
        config = read("--preset", "babylm-10m", *one_size)[0].make_config()
        assert (config.hidden_size, config.num_hidden_layers, config.initializer_range) == (64, 4, 0.035)
    parser = parser_of("pretrain")
    parser.read(["--train_files", "b", "--use_cpu", "--preset", "babylm-10m", *one_size])
    parser.write_settings(tmp_path / "own.yaml")
    repeated = read("--config", str(tmp_path / "own.yaml"))[0]
    assert repeated.make_config().to_dict() == config.to_dict()
    assert repeated.config_overrides.count("hidden_size") == 1
    other = ("--family", "bert", "--config_overrides", "hidden_size=24")  # whose fields are others
    assert read("--preset", "babylm-10m", *other)[0].config_overrides == "hidden_size=24"
    with pytest.raises(ValueError, match="--max_words and --num_train_epochs both set the length of the run"):
        read("--max_words", "5M", "--num_train_epochs", "2")
    long = read("--preset", "babylm-100m", "--max_words", "1B")[1].save_points()
    assert list(long)[-9:] == [f"chck_{number}M" for number in range(200, 1001, 100)]
    assert len(long) == 28
    assert read()[2].learning_rate == 2.5e-4
    assert read("--preset", "babylm-10m")[0].num_merges == 8000
    with pytest.raises(ValueError, match="--num_merges 9 learns a new tokenizer, but the tokenizer of t was given"):
        read("--preset", "babylm-10m", "--tokenizer_name", "t", "--num_merges", "9")
    with pytest.raises(ValueError, match="--preset babylm-10m is for a new model, not --model m. Leave one"):
        read("--preset", "babylm-10m", "--model", "m")
    with pytest.raises(ValueError, match="'babylm' .choose from 'babylm-10m', 'babylm-10m-gpu', 'babylm-100m'"):
        read("--preset", "babylm")


def generated(folder, capsys, *more):
    capsys.readouterr()
    words = ["--model", str(folder), "--prompts", "the cat sat", "--temperature", "0", "--device", "cpu", *more]
    generate.main([*words, "--max_new_tokens", "20"])
    return capsys.readouterr().out


def test_words_decide_the_length_of_a_run(books, caplog):
    more = ("--num_merges", "60", "--config_overrides", SIZES, "--max_steps", "-1", "--save_at_words", "babylm")
    more += ("--gradient_accumulation_steps", "2")
    num_words = sum(len((books / f"{name}.txt").read_text().split()) for name in ("one", "two"))
    pretrain.main(arguments(books, books / "out", *more, "--max_words", f"{11 * num_words}"))
    state = json.loads((books / "out" / "trainer_state.json").read_text())
    assert state["epoch"] == pytest.approx(11)
    assert state["global_step"] % 11 == 0
    assert "reads the text for 11.0 epochs; the BabyLM challenge allows 10" in caplog.text
    assert f"{11 * num_words:,} to read in 11 epochs" in caplog.text
    caplog.clear()
    corpus = CorpusArguments([str(books / "one.txt")], max_words="999", save_at_words=["9"])  # no challenge
    num_words = run_module.count_words(corpus.source("train"))
    assert run_module.WordPlan(corpus, GPT1PretrainingArguments("o"), 1, num_words).saved == {"chck_9": 1}
    assert "the BabyLM challenge" not in caplog.text
    babylm = CorpusArguments(train_files=["a"], save_at_words=["babylm"]).save_points()
    millions = [*range(1, 11), *range(20, 101, 10)]
    assert babylm == {f"chck_{number}M": number * 10**6 for number in millions}
    assert len(babylm) == 19


def delete_checkpoints(folder):
    for checkpoint in folder.glob("checkpoint-*"):
        shutil.rmtree(checkpoint)


def test_words_are_counted_for_one_device_and_from_any_checkpoint(books, monkeypatch):
    """Of several devices of one process the first is used. A shell ends the name of a folder with a slash."""
    kind = GPT1PretrainingArguments
    prepare = kind.__post_init__
    monkeypatch.setattr(kind, "__post_init__", lambda self: (prepare(self), self.n_gpu, setattr(self, "_n_gpu", 2)))
    num_words = sum(len((books / f"{name}.txt").read_text().split()) for name in ("one", "two"))
    more = ("--num_merges", "60", "--config_overrides", SIZES, "--max_steps", "-1", "--save_steps", "2")
    words = [*arguments(books, books / "out", *more, "--max_words", f"{4 * num_words}")]
    words[words.index("--save_strategy") + 1] = "steps"
    pretrain.main(words)
    assert json.loads((books / "out" / "trainer_state.json").read_text())["epoch"] == pytest.approx(4)
    (books / "out" / "checkpoint-2").rename(books / "out" / "kept")
    delete_checkpoints(books / "out")
    weights = (books / "out" / "model.safetensors").read_bytes()
    words += ["--resume_from_checkpoint", f"{books}/out/kept/"]
    with resumes_after(2):
        pretrain.main(words)
    assert (books / "out" / "model.safetensors").read_bytes() == weights
    delete_checkpoints(books / "out")
    content = books / "out" / "kept" / "checkpoint.json"
    content.write_text(content.read_text().replace('"world_size": 1', '"world_size": 2'))
    with pytest.raises(ValueError, match="kept/ counted words with 2 processes, but this run has 1. Start 2"):
        pretrain.main(words)


def test_another_folders_checkpoint_brings_its_tokenizer(books):
    sizes = ("--num_merges", "60", "--config_overrides", SIZES)
    pretrain.main([*arguments(books, books / "old", *sizes), "--save_strategy", "steps", "--save_steps", "3"])
    checkpoint = books / "old" / "checkpoint-3"
    (books / "two.txt").write_text("\n".join(SENTENCES[:1] * 50), encoding="utf-8")  # would give other merges
    with resumes_after(3):
        pretrain.main([*arguments(books, books / "new", *sizes), "--resume_from_checkpoint", str(checkpoint)])
    assert (books / "new" / "tokenizer.json").read_bytes() == (checkpoint / "tokenizer.json").read_bytes()


def swap_two_tokens(folder):
    """Makes a tokenizer another one of as many tokens."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = content["model"]["vocab"]
    first, second = list(vocabulary)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")


def test_another_tokenizer_of_as_many_tokens_is_not_resumed(books, bpe, monkeypatch):
    shutil.copytree(bpe, books / "tokenizer")
    flags = ("--tokenizer_name", str(books / "tokenizer"), "--config_overrides", SIZES)
    flags += ("--save_strategy", "steps", "--save_steps", "3", "--resume_from_checkpoint", "auto")
    pretrain.main(arguments(books, books / "out", *flags))
    swap_two_tokens(books / "tokenizer")
    monkeypatch.setattr(run_module, "load_blocks", None)  # no text is prepared
    told = refusal(pretrain.main, arguments(books, books / "out", *flags, "--max_steps", "9"))
    assert f"{books}/out/checkpoint-6', whose tokenizer has other tokens, ids or merges than this run's" in told
    assert f"Pass {books}/out/checkpoint-6 as the tokenizer" in told


@pytest.mark.parametrize(
    ("num_tokens", "num_read", "parts"),
    [
        (3e6, 3e6, ["3.00 M tokens", "expected perplexity: about 132 after", "20 times the tokens"]),
        (1e5, 1e8, ["0.33 M tokens", "expected perplexity: above 246 after", "184 times"]),
        (
            None,
            6.7e6,
            ["6.70 M tokens", "expected perplexity: about 93 after", "9 times"],
        ),  # a stream, between two measured
        (1e9, 1e9, ["1,000.00 M tokens", "expected perplexity: below 49 after"]),
    ],
)
def test_how_far_the_text_goes(num_tokens, num_read, parts):
    told = measures.describe_expectation(num_tokens, num_read)
    assert [part for part in parts if part not in told] == [], told


def test_the_expected_perplexity_is_what_the_page_has_measured():
    page = (Path(__file__).resolve().parents[2] / "docs" / "results" / "settings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^- ([\d.]+) million tokens[^:]*: ([\d.]+) ", page, flags=re.MULTILINE)
    first, *others = measures.MEASURED.items()
    assert others == [(float(tokens) * 1e6, round(float(value))) for tokens, value in rows]
    assert first == (pytest.approx(183 * 8 * 512, rel=0.01), 246)
    assert "fell from 246 to 66.5" in page


def test_the_screen_of_a_run(books, caplog, capfd):
    output = books / "out"
    evaluating = ("--eval_strategy", "steps", "--eval_steps", "3", "--prompts", "the cat", "--report_to", "none")
    pretrain.main(arguments(books, output, "--num_merges", "20", "--config_overrides", SIZES, *evaluating))
    said = caplog.messages
    assert [line.split(":")[0] for line in said if not line.startswith("step ")] == [
        *("learning 20 merges from the text …", "model", "train", "token frequencies alone", "validation", "training"),
        f"written to {output}",
    ]
    assert said[-1].endswith(f"gpt1 generate {output}")
    (line,) = (line for line in said if line.startswith("step 3/6 · loss"))
    assert " · perplexity " in line
    assert " tokens/s · lr " in line
    assert [line for line in said if line.startswith("step 3 · the cat")]
    printed = "".join(capfd.readouterr())
    assert "0 / 0" not in printed
    assert "{" not in printed
    assert "PAD/BOS/EOS" not in printed


def test_the_last_evaluation_takes_all_blocks(books, caplog, monkeypatch):
    output_dir, chosen, select = books / "out", [], Dataset.select
    monkeypatch.setattr(Dataset, "select", lambda self, rows: chosen.append(rows) or select(self, rows))
    limit = ("--eval_strategy", "steps", "--eval_steps", "3", "--max_eval_blocks", "2", "--block_length", "16")
    pretrain.main(arguments(books, output_dir, "--num_merges", "60", "--config_overrides", SIZES, *limit))
    assert "evaluation: of 2 of these blocks during training, of all at the end" in caplog.messages
    last, name, figure, _ = caplog.messages[-4:]
    assert re.fullmatch(r"evaluation of all \d+ blocks:", name)
    assert last.startswith("step 6 · ")
    assert figure.startswith("step 6/6 · evaluation")
    card = (output_dir / "README.md").read_text(encoding="utf-8")
    number = int(re.search(r" for training, (\d+) for evaluation", card)[1])
    assert number > 3
    assert chosen == [[0, number // 2]]
    assert "/held_out.txt | perplexity |" in card
    assert "split: validation" not in card
    caplog.clear()
    limit = ("--max_eval_blocks", "2", "--block_length", "16", "--max_steps", "1")  # one evaluation alone
    limit += ("--tokenizer_name", str(output_dir), "--config_overrides", SIZES)
    pretrain.main(arguments(books, books / "short", *limit))
    assert "evaluation: of 2 of these blocks" in caplog.messages
    assert "blocks:" not in caplog.text
    assert " for training, 2 for evaluation" in (books / "short" / "README.md").read_text(encoding="utf-8")


def test_the_card_tells_the_words_of_the_whole_run_and_a_finished_one_stays(books, caplog):
    out = books / "out"
    more = ("--num_merges", "60", "--config_overrides", SIZES, "--save_at_words", "200", "--logging_steps", "4")
    command = arguments(books, out, *more, "--resume_from_checkpoint", "auto")
    command[command.index("--save_strategy") + 1] = "steps"
    pretrain.main([*command, "--save_steps", "3"])
    seen = {record["step"]: record["words_seen"] for record in figures(out) if "words_seen" in record}
    assert list(seen) == [4, 6]
    assert seen[6] == pytest.approx(1.5 * seen[4], abs=1)
    assert f"| words read in training | {seen[6]} |" in (out / "README.md").read_text(encoding="utf-8")
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    caplog.clear()
    pretrain.main([*command, "--save_steps", "3", "--learning_rate", "0.5", "--max_steps", "4"])
    assert "6 updates of 4; nothing is left to train" in caplog.text
    assert "planned over" not in caplog.text
    command[command.index("--train_files") + 1] = str(books / "held_out.txt")
    del command[command.index("--validation_files") : command.index("--output_dir")]
    with pytest.raises(ValueError, match="--train_files .*one.txt .*, and a run cannot go on with .*held_out.txt"):
        pretrain.main([*command, "--max_steps", "9"])
    command[command.index("--train_files") + 1 : command.index("--output_dir")] = f"{books}/one.txt", f"{books}/t*.txt"
    for more, told in (
        (("--block_length", "8"), "--block_length None, and a run cannot go on with 8. Pass what that run had"),
        (("--num_merges", "61"), "--num_merges 60, and a run cannot go on with 61"),
        ((f"{books.parent}/t*.txt",), "--train_files .*t.*txt, and a run cannot"),  # of another folder
    ):
        words = [*command[:2], *more, *command[3:]] if len(more) == 1 else [*command, *more]
        with pytest.raises(ValueError, match=told):
            pretrain.main([*words, "--max_steps", "9"])
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before


def test_a_warm_up_that_does_not_end_is_reported(books, caplog):
    command = arguments(books, books / "out", "--num_merges", "600", "--config_overrides", SIZES)
    pretrain.main([*command, "--warmup_steps", "6"])
    longest = ["--prompts", "a cat " * 40, "--tokenizer_name", str(books / "out"), "--config_overrides", SIZES]
    told = refusal(pretrain.main, arguments(books, books / "long", *longest))
    assert "--prompts has a text of " in told
    assert "positions, which leaves none to continue it. Shorten it." in told
    made = len(json.loads((books / "out" / "tokenizer.json").read_text())["model"]["merges"])
    assert 0 < made < 600
    assert f"The text gives only {made:,} merges" in caplog.text
    assert "The warm-up of 6 updates does not end within the 6 of the run" in caplog.text
    assert "Pass --warmup_steps, such as 0.05" in caplog.text


def test_a_stream_trains_and_stores_no_blocks(books, monkeypatch):
    stored = []
    load_blocks = run_module.load_blocks
    shuffled, shuffle = [], IterableDataset.shuffle
    monkeypatch.setattr(IterableDataset, "shuffle", lambda self, **of: shuffled.append(of) or shuffle(self, **of))
    monkeypatch.setattr(run_module, "load_blocks", lambda **kwargs: stored.append(kwargs) or load_blocks(**kwargs))
    output_dir = books / "out"
    streaming = ("--streaming", "--num_merges", "60", "--config_overrides", SIZES, "--seed", "7")
    pretrain.main(arguments(books, output_dir, *streaming))
    assert {"seed": 7, "buffer_size": 10_000} in shuffled
    assert [kwargs.get("streaming", False) for kwargs in stored] == [True, False]
    assert results_of(output_dir, "train")["train_loss"] > 0


def test_changed_files_of_a_stream_are_told_at_a_resume(books, bpe, caplog):
    flags = ("--streaming", "--tokenizer_name", str(bpe), "--config_overrides", SIZES, "--resume_from_checkpoint")
    flags += ("auto", "--save_strategy", "steps", "--save_steps", "3", "--max_steps")
    pretrain.main(arguments(books, books / "out", *flags, "3"))
    caplog.clear()
    pretrain.main(arguments(books, books / "out", *flags, "4"))
    assert "with other settings" not in caplog.text
    before = (books / "one.txt").stat().st_size + (books / "two.txt").stat().st_size
    with (books / "two.txt").open("a", encoding="utf-8") as file:
        file.write("the cat")
    pretrain.main(arguments(books, books / "out", *flags, "5"))
    files = r"2 files of ([\d,]+) bytes \(\w{8}\)"
    told = re.search(f"with other settings: train_files was {files} and is {files}", caplog.text)
    assert told.groups() == (f"{before:,}", f"{before + 7:,}")


@pytest.mark.parametrize(
    ("more", "parts"),
    [
        (["--validation_files", "no/such/*.txt"], ["no/such/*.txt matches no file"]),
        (["--dataset_name", "books"], ["--train_files and --dataset_name were both given"]),
        (["--validation_split", "0.1"], ["--validation_split is for --dataset_name", "as --validation_files"]),
        (["--dataset_config_name", "en"], ["--dataset_config_name is for --dataset_name", "Leave it out"]),
        (["--train_split", "dev"], ["--train_split is for --dataset_name", "Leave it out"]),
        (["--streaming", "--max_steps=-1"], ["--streaming", "Pass the number of updates as --max_steps"]),
        (["--streaming", "--save_at_words", "1M"], ["--streaming reads text whose words are not counted"]),
        (
            ["--streaming", "--preprocessing_num_workers", "2"],
            ["--preprocessing_num_workers 2 tokenises the text beforehand", "Pass --dataloader_num_workers, or leave"],
        ),
        (["--preprocessing_num_workers", "0"], ["--preprocessing_num_workers is 0, but must be at least 1"]),
        (["--block_length", "2"], ["--block_length is 2, but must be at least 3"]),
        (["--save_at_words", "9", "--dataloader_drop_last", "true"], ["--dataloader_drop_last changes how many"]),
        (["--save_at_words", "1M,2M"], ["'1M,2M' is no number of words", "10M", "several such as 1M 2M"]),
        (["--max_words", "1M"], ["--max_words 1M", "--max_steps 6", "Leave one"]),
        (
            [*BERT[:2], "--streaming"],
            ["--streaming stores no blocks, but bert draws its batches from stored ones. Leave"],
        ),
        ([*BERT, "hidden_size=33"], ["cannot be built: The hidden size (33) is not a multiple"]),
        (["--do_eval"], ["always trains", "`gpt1 evaluate --tasks wikitext`", "Leave --do_eval out"]),
        (["--do_train", "false"], ["`gpt1 pretrain` always trains", "Leave --do_train out"]),
        ([*BERT, "embd_pdrop=0"], ["'embd_pdrop=0'", "field=value is needed", "a field of BertConfig"]),
    ],
)
def test_refusals(books, more, parts):
    told = refusal(pretrain.main, arguments(books, books / "out", *more))
    assert [part for part in parts if part not in told] == []
    assert not (books / "out").exists()


def test_refuses_to_evaluate_without_held_out_text(books):
    words = arguments(books, books / "out", "--eval_strategy", "steps")
    place = words.index("--validation_files")
    with pytest.raises(ValueError, match="--eval_strategy steps needs held-out text. Pass --validation_files"):
        pretrain.main(words[:place] + words[place + 2 :])
    assert not (books / "out").exists()


def test_an_lstm_is_pretrained_and_fine_tuned_by_the_same_scripts(books, caplog, monkeypatch):
    monkeypatch.setattr(run_module, "LEAST_VOCABULARY", 0)
    sizes = "hidden_size=16,lstm_hidden_size=20,max_position_embeddings=32"
    lstm = ("--num_merges", "60", "--family", "gpt1-lstm", "--config_overrides", sizes)
    pretrain.main(arguments(books, books / "lstm", *lstm))
    assert "expected perplexity" not in caplog.text  # whose figures are a Transformer's
    pretrain.main(arguments(books, books / "further", "--model", str(books / "lstm")))
    assert results_of(books / "further")["eval_loss"] < results_of(books / "lstm")["eval_loss"]

    rows = [{"text": f"the cat saw {word}.", "label": word == "me"} for word in ("me", "you") * 8]
    file = write_rows(books / "train.jsonl", rows)
    rows = ("--train_file", file, "--validation_file", file)
    data = (*rows, "--traversal", "classification", "--columns", "text=text", "--model", str(books / "further"))
    run = ("--do_train", "--do_eval", "--output_dir", str(books / "tuned"), "--num_train_epochs", "8")
    run += ("--per_device_train_batch_size", "8", "--learning_rate", "2e-2", "--use_cpu", "--disable_tqdm", "True")
    finetune.main([*data, *run])
    model = AutoModelForSequenceClassification.from_pretrained(books / "tuned")
    assert type(model) is GPT1LSTMForSequenceClassification
    assert results_of(books / "tuned")["eval_accuracy"] == 1.0
    told = refusal(pretrain.main, arguments(books, books / "no", *lstm[:-1], "num_attention_heads=2"))
    assert "'num_attention_heads=2'" in told
    assert "a field of GPT1LSTMConfig" in told


AUTO_CLASSES = dict.fromkeys(("bert", "roberta", "albert"), AutoModelForMaskedLM)
AUTO_CLASSES |= {"gpt2": AutoModelForCausalLM, "gpt3": AutoModelForCausalLM, "bart": AutoModelForSeq2SeqLM}
SMALL = "hidden_size=16,num_hidden_layers=2,num_attention_heads=2,intermediate_size=32"


@pytest.fixture(scope="module")
def bpe(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe")
    GPT1Tokenizer.train(iter(SENTENCES), num_merges=60, show_progress=False).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", AUTO_CLASSES)
def test_each_family_opens_with_the_auto_classes(books, bpe, family):
    output_dir = books / family
    flags = ("--family", family, "--tokenizer_name", str(bpe), "--block_length", "24", "--config_overrides", SMALL)
    pretrain.main(arguments(books, output_dir, *flags))
    model, tokenizer = AUTO_CLASSES[family].from_pretrained(output_dir), AutoTokenizer.from_pretrained(output_dir)
    config = model.config
    layers = (config.encoder_layers, config.decoder_layers) if family == "bart" else config.num_hidden_layers
    assert (config.hidden_size, layers, config.num_attention_heads) == (16, (1, 1) if family == "bart" else 2, 2)
    assert config.vocab_size == len(tokenizer)
    assert tokenizer.model_max_length >= 512
    batch = tokenizer(["the cat", "a dog"], ["sat", "ran home"], padding=True, return_tensors="pt")
    assert model(**batch).logits.shape[2] == len(tokenizer)
    assert family in ("gpt2", "gpt3", "bart") or len(pipeline("fill-mask", str(output_dir))("the [MASK] sat")) == 5
    classifier = AutoModelForSequenceClassification.from_pretrained(output_dir, num_labels=2)
    assert classifier(**batch).logits.shape == (2, 2)
    results = results_of(output_dir, "all")
    assert ("eval_perplexity" in results) == (family in ("gpt2", "gpt3"))
    assert f"# {family}" in (output_dir / "README.md").read_text(encoding="utf-8")


def test_a_masked_model_goes_on_where_it_was_and_is_trained_further(books, bpe):
    flags = ("--family", "roberta", "--tokenizer_name", str(bpe), "--block_length", "24", "--config_overrides", SMALL)
    flags += ("--save_strategy", "steps", "--save_steps", "3", "--resume_from_checkpoint", "auto")
    pretrain.main(arguments(books, books / "out", *flags))
    expected = (books / "out" / "model.safetensors").read_bytes()
    shutil.rmtree(books / "out" / "checkpoint-6")
    (books / "out" / "model.safetensors").unlink()
    with resumes_after(3):
        pretrain.main(arguments(books, books / "out", *flags))
    assert (books / "out" / "model.safetensors").read_bytes() == expected

    pretrain.main(arguments(books, books / "further", "--model", str(books / "out"), "--block_length", "24"))
    assert results_of(books / "further")["eval_mlm_loss"] < results_of(books / "out")["eval_mlm_loss"]


@pytest.mark.parametrize(
    ("family", "other", "message"),
    [
        ("albert", SMALL.replace("layers=2", "layers=3"), "num_hidden_layers 2, but this run's has 3"),
        ("roberta", SMALL.replace("heads=2", "heads=4"), "num_attention_heads 2, but this run's has 4"),
        ("gpt2", SMALL.replace("layers=2", "layers=3"), "n_layer 2, but this run's has 3"),
        ("bert", f"{SMALL},hidden_act=relu", "hidden_act gelu, but this run's has relu"),
    ],
)
def test_another_architecture_is_not_resumed(family, other, message, books, bpe):
    """ALBERT's layers share their weights, so those of two fit three; heads are no shape of a weight."""
    flags = ("--family", family, "--tokenizer_name", str(bpe), "--block_length", "24", "--save_strategy", "steps")
    flags += ("--save_steps", "3", "--resume_from_checkpoint", "auto", "--config_overrides")
    output = books / f"resumed-{family}"
    pretrain.main(arguments(books, output, *flags, SMALL))
    weights = (output / "model.safetensors").read_bytes()
    with pytest.raises(ValueError, match=f"whose model has the {message}"):
        pretrain.main(arguments(books, output, *flags, other))
    assert (output / "model.safetensors").read_bytes() == weights


def test_a_fresh_model_has_its_own_positions(books, bpe, tmp_path):
    """Whatever model its tokenizer was saved with."""
    tokenizer = GPT1Tokenizer.from_pretrained(bpe)
    tokenizer.model_max_length = 80
    tokenizer.save_pretrained(tmp_path / "short")
    flags = ("--tokenizer_name", str(tmp_path / "short"), "--block_length", "24")
    sizes = f"{SMALL},max_position_embeddings=200"
    pretrain.main(arguments(books, tmp_path / "long", *flags, "--config_overrides", sizes))
    assert AutoTokenizer.from_pretrained(tmp_path / "long").model_max_length == 200
    more = ("--model", str(tmp_path / "long"), "--block_length", "24")
    pretrain.main(arguments(books, tmp_path / "further", *flags[:2], *more))
    assert AutoTokenizer.from_pretrained(tmp_path / "further").model_max_length == 80


def test_a_vocabulary_that_does_not_fit_is_refused_before_the_corpus_is_read(books, bpe, tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "load_blocks", lambda *_, **__: pytest.fail("the corpus was read"))
    for family, name in (("gpt1", "gpt1"), ("roberta", "roberta")):
        tokenizer = FAMILIES[family].pretraining_tokenizer(GPT1Tokenizer.from_pretrained(bpe))
        sizes = dict(pair.split("=") for pair in SMALL.split(","))
        config = FAMILIES[family].make_config(tokenizer, **{size: int(value) for size, value in sizes.items()})
        config.vocab_size -= 1
        FAMILIES[family].model_class(config).save_pretrained(tmp_path / name)
        with pytest.raises(ValueError, match=f"The tokenizer has {len(tokenizer)} tokens, but the model.* has "):
            words = ("--model", str(tmp_path / name), "--tokenizer_name", str(bpe), "--block_length", "24")
            pretrain.main(arguments(books, tmp_path / "out", *words))


def test_text_that_a_given_tokenizer_does_not_know(books, bpe, caplog):
    for name in ("one", "two"):
        (books / f"{name}.txt").write_text("кошка сидела на коврике\n" * 20, encoding="utf-8")
    words = arguments(books, books / "out", "--tokenizer_name", str(bpe), "--config_overrides", SIZES)
    with pytest.raises(ValueError, match=r"does not know \d+% of the tokens of .*, as in .*--allow_unknown_text"):
        pretrain.main(words)
    pretrain.main([*words, "--allow_unknown_text", "--max_steps", "1"])
    shares = re.findall(r"(\w+): [^:]*, (\d+\.\d)% of the tokens unknown\n", "\n".join([*caplog.messages, ""]))
    assert [(use, float(share) > 50) for use, share in shares] == [("train", True), ("validation", False)]
    (books / "one.txt").write_text("the cat sat on the mat .\n" * 300, encoding="utf-8")  # of short documents
    (books / "two.txt").write_text("кошка сидела на коврике\n" * 300, encoding="utf-8")
    (books / "three.txt").write_text("", encoding="utf-8")
    caplog.clear()
    options = ("--document_per", "line", "--allow_unknown_text", "--max_steps", "1", "--save_strategy", "no")
    pretrain.main([*words, *options, "--output_dir", str(books / "lines")])
    assert float(re.search(r"train: .*, (\d+\.\d)% of the tokens unknown", caplog.text)[1]) > 20


def saving_run(books, *more):
    """The command of a run that saves after three and after six updates, and is resumed if it can be."""
    saving = ("--save_strategy", "steps", "--save_steps", "3", "--resume_from_checkpoint", "auto")
    return arguments(books, books / "out", "--num_merges", "60", "--config_overrides", SIZES, *saving, *more)


@pytest.fixture
def stopped(books, monkeypatch):
    """The folder of a run that was stopped in the evaluation after its last update, and its command."""
    command = saving_run(books)
    with monkeypatch.context() as patch:
        patch.setattr(GPT1PretrainingTrainer, "evaluate", interrupt)
        with pytest.raises(KeyboardInterrupt) as interruption:
            pretrain.main(command)
    return books / "out", command, str(interruption.value)


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


def test_an_interrupted_last_evaluation_says_how_to_resume(stopped):
    out, _, said = stopped
    how = f"The same command with --resume_from_checkpoint auto resumes from {out / 'checkpoint-6'}"
    assert said == f" after update 6 of 6. {how}"


def test_the_results_that_an_interrupted_run_owes_are_written_when_it_is_resumed(stopped):
    out, command, _ = stopped
    assert not (out / "README.md").exists()
    trained = results_of(out, "train")
    weights = (out / "model.safetensors").read_bytes()
    pretrain.main(command)
    perplexity = results_of(out)["eval_perplexity"]
    assert [record["eval_perplexity"] for record in figures(out) if "eval_loss" in record] == [perplexity]
    assert f"{perplexity:.4f}" in (out / "README.md").read_text(encoding="utf-8")
    assert results_of(out, "train") == trained
    assert (out / "model.safetensors").read_bytes() == weights


def test_results_that_were_owed_are_written_once(stopped, monkeypatch):
    out, command, _ = stopped
    pretrain.main(command)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    monkeypatch.setattr(GPT1PretrainingTrainer, "evaluate", interrupt)
    pretrain.main(command)
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == before


def test_an_evaluation_that_is_repeated_is_recorded_once(books, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(GPT1PretrainingTrainer, "create_model_card", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pretrain.main(saving_run(books))
    pretrain.main(saving_run(books))
    assert [record["step"] for record in figures(books / "out") if "eval_loss" in record] == [6]


def test_a_longer_run_that_was_killed_after_its_last_checkpoint_writes_its_model(books, monkeypatch):
    """Beside it lie the model and the results of the shorter run."""
    pretrain.main(saving_run(books))
    longer = saving_run(books, "--max_steps", "9")
    with monkeypatch.context() as patch:
        patch.setattr(RunCallback, "on_train_end", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pretrain.main(longer)
    pretrain.main(longer)
    out = books / "out"
    assert (out / "model.safetensors").read_bytes() == (out / "checkpoint-9" / "model.safetensors").read_bytes()


def test_a_new_run_without_an_update_is_not_finished():
    args = GPT1PretrainingArguments("out", use_cpu=True)
    callback = RunCallback(Mock(), [], None, parser_of("pretrain"))
    said = refusal(callback.on_train_begin, args, TrainerState(max_steps=0), None)
    assert said == "The run would make no update. Pass --num_train_epochs or --max_steps above 0."


@pytest.fixture
def short_blocks(books, caplog):
    """The folder of a model of 32 positions that was trained on blocks of 12 tokens, and the warnings of its run."""
    command = arguments(books, books / "out", "--num_merges", "60", "--config_overrides", SIZES)
    pretrain.main([*command, "--block_length", "12"])
    return books / "out", [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_positions_that_no_block_reaches_are_named(short_blocks):
    _, warnings = short_blocks
    said = "No block is longer than 12 tokens: only the first 12 of the model's 32 positions are trained."
    assert [line for line in warnings if line.startswith(said)] == warnings[-1:]


def test_the_card_names_the_positions_that_were_trained(short_blocks):
    out, _ = short_blocks
    assert "| trained positions | the first 12 |" in (out / "README.md").read_text(encoding="utf-8")


def test_a_text_that_goes_beyond_trained_positions_is_warned_of(short_blocks, caplog):
    out, _ = short_blocks
    model = GPT1ForCausalLM.from_pretrained(out)
    caplog.clear()
    model.generate(torch.ones(1, 4, dtype=torch.long), max_new_tokens=8, pad_token_id=0)
    assert caplog.messages == []
    model.generate(torch.ones(1, 4, dtype=torch.long), max_new_tokens=9, pad_token_id=0)
    assert "The text may become 13 tokens, but only the first 12 of the model's 32 positions" in caplog.text


def test_longer_blocks_train_the_other_positions(short_blocks, books):
    out, _ = short_blocks
    pretrain.main(arguments(books, books / "further", "--model", str(out)))
    assert GPT1ForCausalLM.from_pretrained(books / "further").config.trained_positions is None


def test_blocks_as_long_as_the_model_leave_no_position_untrained(books, caplog):
    pretrain.main(arguments(books, books / "out", "--num_merges", "60", "--config_overrides", SIZES))
    assert GPT1ForCausalLM.from_pretrained(books / "out").config.trained_positions is None
    assert "positions are trained" not in caplog.text
