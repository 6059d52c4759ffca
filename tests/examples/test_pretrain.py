"""examples/pretrain.py on a few made-up pages: files, figures, further training, fine-tuning from it, and refusals."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from modeling_gpt1 import GPT1ForCausalLM
from tokenization import GPT1Tokenizer

EXAMPLES = Path(__file__).parents[2] / "examples"
SENTENCES = ("The cat sat on the mat.", "A dog saw the cat.", "Then the dog ran home, and the cat slept.")
SIZES = "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,max_position_embeddings=32"


@pytest.fixture(scope="module")
def pretrain():
    sys.path.insert(0, str(EXAMPLES))
    try:
        yield importlib.import_module("pretrain")
    finally:
        sys.path.remove(str(EXAMPLES))


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
        *("--validation_files", str(books / "held_out.txt")),
        *("--output_dir", str(output_dir), "--max_steps", "6", "--per_device_train_batch_size", "4"),
        *("--learning_rate", "1e-2", "--warmup_steps", "1", "--use_cpu", "--disable_tqdm", "True"),
        *("--save_strategy", "no", *more),
    ]


def test_from_text_to_a_model_that_can_be_trained_further(pretrain, books, caplog):
    output_dir = books / "out"
    pretrain.main(arguments(books, output_dir, "--num_merges", "60", "--config_overrides", SIZES))
    saved = {path.name for path in output_dir.iterdir()}
    assert saved == {
        *("README.md", "config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "train_results.json", "eval_results.json", "all_results.json"),
    }
    model, tokenizer = GPT1ForCausalLM.from_pretrained(output_dir), GPT1Tokenizer.from_pretrained(output_dir)
    assert model.config.vocab_size == len(tokenizer) and model.config.max_position_embeddings == 32
    results = json.loads((output_dir / "all_results.json").read_text())
    assert 1 < results["eval_perplexity"] < len(tokenizer)

    again = books / "again"
    pretrain.main(arguments(books, again, "--model_name_or_path", str(output_dir)))
    improved = json.loads((again / "all_results.json").read_text())
    assert improved["eval_perplexity"] < results["eval_perplexity"]


def test_blocks_hold_every_token_of_every_file(pretrain, books, plain_tokenizer):
    files = [str(books / "one.txt"), str(books / "two.txt")]
    run_args = pretrain.PretrainingRunArguments(train_files=files)
    blocks = pretrain.load_blocks(files, plain_tokenizer, 32, run_args)["input_ids"]
    documents = [plain_tokenizer(Path(file).read_text(), add_special_tokens=False)["input_ids"] for file in files]
    expected = [ids[start : start + 32] for ids in documents for start in range(0, len(ids), 32)]
    assert sorted(blocks) == sorted(block for block in expected if len(block) > 1)
    assert len({len(block) for block in blocks}) > 1  # the ends of the files are there too


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            ["--validation_files", "no/such/*.txt"],
            "--validation_files no/such/*.txt matches no file. Pass the path of a text file, or a pattern such as "
            "*.txt.",
        ),
        (
            ["--model_name_or_path", "gpt1", "--config_overrides", "hidden_size=8"],
            "--config_overrides hidden_size=8 describes a fresh model, but --model_name_or_path gpt1 is a trained "
            "one. Leave one of them out.",
        ),
    ],
)
def test_refusals(pretrain, books, more, message):
    with pytest.raises(ValueError) as error:
        pretrain.main(arguments(books, books / "out", *more))
    assert str(error.value) == message
    assert not (books / "out").exists()


def test_a_folder_with_files_is_not_overwritten(pretrain, books):
    with pytest.raises(ValueError) as error:
        pretrain.main(arguments(books, books))
    assert str(error.value) == (
        f"--output_dir {books} is not empty. Pass --resume_from_checkpoint true to go on with the run that wrote it, "
        "or another folder."
    )
