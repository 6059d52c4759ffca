"""Fixtures that the tests share: small tokenizers made from a few sentences."""

import copy
import functools
import gc
import logging
import os
import tempfile
from pathlib import Path

import accelerate.utils.other
import datasets
import hypothesis
import pytest
import torch
import transformers
from support.files import save_folder
from support.tiny import SENTENCES, make_tiny_config, make_tiny_model, randomise_weights, write_bpe

from modeling_gpt1 import GPT1ForCausalLM
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


def pytest_configure(config):
    """Gives this process one thread, as those that it launches have: the order of sums decides their rounding."""
    torch.set_num_threads(1)


def pytest_make_parametrize_id(val, argname):
    """Leaves bytes out of a test's name: a gzip file has the second in which it was made.

    Workers that name a test differently end the whole run.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="module", autouse=True)
def without_old_garbage():
    """Leaves imports, and what torch keeps of earlier tests, out of the collection that each training starts."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def deepspeed_is_looked_up_once():
    """Accelerate looks for the package each time that it unwraps a model, which is several times a step."""
    with pytest.MonkeyPatch.context() as patch:
        look_up = functools.cache(accelerate.utils.other.is_deepspeed_available)
        patch.setattr(accelerate.utils.other, "is_deepspeed_available", look_up)
        yield


@pytest.fixture(scope="session", autouse=True)
def away_from_home(tmp_path_factory):
    """Nothing of the developer's folder or home decides a test, here or in a process that it starts."""
    started_here = tmp_path_factory.mktemp("started_here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(started_here)
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("huggingface")))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("datasets"))
        yield started_here


@pytest.fixture(autouse=True)
def in_an_empty_folder(away_from_home, monkeypatch):
    """Each test starts in a folder where no other has written."""
    # `tmp_path_factory.mktemp` would number it, and read the names of thousands of folders for each test.
    monkeypatch.chdir(tempfile.mkdtemp(dir=away_from_home))


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
    """The folder of the public data sets, which `GPT1_DATA_DIR` names."""
    named = os.environ.get("GPT1_DATA_DIR")
    if not named:
        pytest.skip("no real data: set GPT1_DATA_DIR to the folder that holds the data sets")
    if not Path(named).is_dir():
        pytest.fail(f"GPT1_DATA_DIR is {named}, which is no folder")
    return Path(named)


@pytest.fixture(scope="session")
def plain_tokenizer():
    return GPT1Tokenizer.train(iter(SENTENCES), num_merges=200)


@pytest.fixture(scope="session")
def tiny_tokenizer(plain_tokenizer):
    tokenizer = copy.deepcopy(plain_tokenizer)
    tokenizer.add_control_tokens()
    return tokenizer


@pytest.fixture(scope="session")
def openai_gpt_folder(plain_tokenizer, tmp_path_factory):
    """A folder of transformers' openai-gpt, with the tokenizer's files as in the published one."""
    folder = tmp_path_factory.mktemp("openai-gpt")
    sizes = {"vocab_size": len(plain_tokenizer), "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 64}
    config = transformers.OpenAIGPTConfig(**sizes, bos_token_id=None, eos_token_id=None)
    randomise_weights(transformers.OpenAIGPTLMHeadModel(config)).save_pretrained(folder)
    write_bpe(plain_tokenizer, folder)
    return folder


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
        return save_folder(folder, model, plain_tokenizer)

    return make
