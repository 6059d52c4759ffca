"""Fixtures that the tests share: small tokenizers made from a few sentences."""

import bz2
import copy
import csv
import gc
import gzip
import io
import json
import logging
import lzma
import os
from pathlib import Path

import datasets
import hypothesis
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM
from tokenization.text.tokenization_gpt1 import GPT1Tokenizer

# `make test` has the same few random cases each time; `make campaign` (HYPOTHESIS_PROFILE=campaign) looks for others.
UNCHECKED = [hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture]
UNCHECKED += [hypothesis.HealthCheck.filter_too_much, hypothesis.HealthCheck.data_too_large]
hypothesis.settings.register_profile(
    "test", max_examples=30, derandomize=True, database=None, deadline=None, suppress_health_check=UNCHECKED
)
EXAMPLES = int(os.environ.get("EXAMPLES", "1000"))
hypothesis.settings.register_profile(
    "campaign", max_examples=EXAMPLES, deadline=None, print_blob=True, suppress_health_check=UNCHECKED
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

SENTENCES = [
    "the old farmer walked to the market because he needed a new plough .",
    "a quiet girl read the letter twice and then she smiled at her brother .",
    "nobody in the village knew why the river had turned green in the night .",
    "the film was slow , but the last scene made the whole room laugh .",
    "he paid five dollars for the ticket and forgot it on the train .",
]


def pytest_configure(config):
    """Gives this process one thread, as those that it launches have: the order of sums decides their rounding."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def without_old_garbage():
    """Leaves imports, and what torch keeps of earlier tests, out of the collection that each training starts."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory):
    """What `datasets` keeps of files stays with the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets"))
        yield


@pytest.fixture(autouse=True)
def usual_settings():
    """What a test or its script sets for the whole process does not reach the next one."""
    yield
    transformers.logging.set_verbosity_warning()
    logging.getLogger("modeling_gpt1").setLevel(logging.NOTSET)
    # On a GPU, arguments with `torch_compile` leave tf32 in the first, and compiled code then in the second.
    torch.backends.fp32_precision = torch.backends.cuda.matmul.fp32_precision = "none"


@pytest.fixture(scope="session")
def real_data_dir():
    """The folder of the public data sets: `GPT1_DATA_DIR`, or `shared/data` beside the checkout."""
    named = os.environ.get("GPT1_DATA_DIR")
    folder = Path(named or Path(__file__).parents[2] / "shared" / "data")
    if named and not folder.is_dir():
        pytest.fail(f"GPT1_DATA_DIR is {named}, which is no folder")
    if not folder.is_dir():
        pytest.skip("no real data: set GPT1_DATA_DIR to the folder that holds the data sets")
    return folder


@pytest.fixture(scope="session")
def plain_tokenizer():
    return GPT1Tokenizer.train(iter(SENTENCES), num_merges=200)


@pytest.fixture(scope="session")
def tiny_tokenizer(plain_tokenizer):
    tokenizer = copy.deepcopy(plain_tokenizer)
    tokenizer.add_control_tokens()
    return tokenizer


def byte_level(sentences: list[str]) -> transformers.TokenizersBackend:
    """A tokenizer as GPT-2's: words begin with their space."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    sizes = {"vocab_size": 300, "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    trainer = trainers.BpeTrainer(**sizes, special_tokens=["<|end|>"], show_progress=False)
    backend.train_from_iterator(sentences, trainer)
    return transformers.TokenizersBackend(tokenizer_object=backend, bos_token="<|end|>", eos_token="<|end|>")


COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def content_of(rows: list[dict], kind: str, packed: str = "") -> bytes:
    """The bytes of a file of rows."""
    if kind == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), content := io.BytesIO())
        return content.getvalue()
    text = io.StringIO(newline="")
    if kind == ".csv":
        writer = csv.DictWriter(text, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    else:
        text.write(json.dumps(rows) if kind == ".json" else "".join(json.dumps(row) + "\n" for row in rows))
    return COMPRESS[packed](text.getvalue().encode())


def write_rows(path: Path, rows: list[dict]) -> str:
    """A file of the kind that its endings name, and its folder if there is none; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content_of(rows, *path.suffixes[-2 if path.suffix in COMPRESS else -1 :]))
    return str(path)


def read_rows(text: str) -> list[dict]:
    """The records of a text that has one in each line."""
    return [json.loads(line) for line in text.splitlines()]


def save(folder: Path, model: nn.Module, tokenizer: transformers.PreTrainedTokenizerBase) -> str:
    """A folder as a training leaves it; its path."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def write_bpe(tokenizer: GPT1Tokenizer, folder: Path, vocab="vocab.json", merges="merges.txt") -> None:
    """Two files, by default of the names that openai-gpt's tokenizer has."""
    bpe = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    (folder / vocab).write_text(json.dumps(bpe["vocab"]))
    (folder / merges).write_text("#version: 0.2\n" + "\n".join(map(" ".join, bpe["merges"])) + "\n")


@pytest.fixture(scope="session")
def openai_gpt_folder(plain_tokenizer, tmp_path_factory):
    """A folder of transformers' openai-gpt, with the tokenizer's files as in the published one."""
    folder = tmp_path_factory.mktemp("openai-gpt")
    sizes = {"vocab_size": len(plain_tokenizer), "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}
    config = transformers.OpenAIGPTConfig(**sizes, bos_token_id=None, eos_token_id=None)
    randomise_weights(transformers.OpenAIGPTLMHeadModel(config)).save_pretrained(folder)
    write_bpe(plain_tokenizer, folder)
    return folder


# transformers' tokenizer for openai-gpt splits it before "'", the released code before "n't".
SPLIT_IN_TWO_WAYS = "he didn't need the ticket"


TINY_FIELDS = {"vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY_FIELDS |= {"max_position_embeddings": 24}
TINY_FIELDS |= dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop", "classifier_dropout"), 0.0)


def make_tiny_config(**fields) -> GPT1Config:
    return GPT1Config(**{**TINY_FIELDS, **fields})


def random_ids(*shape, seed=0):
    return torch.randint(1, 101, shape, generator=torch.Generator().manual_seed(seed))


def close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def randomise_weights(model: nn.Module, seed: int = 0) -> nn.Module:
    """Every weight random and large, biases and layer norms too, so that no mix-up of two weights stays unseen."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = 0.3 * torch.randn(weight.shape, generator=generator)
        weight.data = (noise + 1 if ".ln_" in name and name.endswith("weight") else noise).to(weight.dtype)
    return model


def make_tiny_model(model_class: type, seed: int = 0, **fields) -> nn.Module:
    if model_class.config_class is GPT1Config:
        config = make_tiny_config(**fields)
    else:
        of_transformer = ("num_attention_heads", "attn_pdrop")
        shared = {name: value for name, value in TINY_FIELDS.items() if name not in of_transformer}
        config = model_class.config_class(**{**shared, "lstm_hidden_size": 24, **fields})
    return randomise_weights(model_class(config), seed).eval()


@pytest.fixture(scope="session")
def tiny_config():
    """Makes a configuration of a tiny model without dropout: `tiny_config(hidden_size=64)`."""
    return make_tiny_config


@pytest.fixture(scope="session")
def randomise():
    """Makes every weight of a model random: `randomise(model, seed=1)`."""
    return randomise_weights


@pytest.fixture(scope="session")
def tiny_model():
    """Makes a tiny model in evaluation mode with random weights: `tiny_model(GPT1Model, hidden_size=64)`."""
    return make_tiny_model


@pytest.fixture(scope="session")
def save_model(plain_tokenizer, tiny_model):
    """Saves a tiny language model with its tokenizer: `save_model(folder, seed=1)`."""

    def make(folder, seed=0):
        model = tiny_model(GPT1ForCausalLM, seed, vocab_size=len(plain_tokenizer), max_position_embeddings=64)
        return save(folder, model, plain_tokenizer)

    return make
