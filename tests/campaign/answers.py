"""A hub that answers wrongly, slowly or with malice, by the stand-in of `tests/hub`: nothing runs, nothing is lost."""

import contextlib
import json
import random
import time
from pathlib import Path
from types import SimpleNamespace

from campaign.common import Wrong, check, check_close, refusal
from campaign.files import open_for_page, save_model, spoil_folder
from huggingface_hub.utils import _http, get_session

import modeling_gpt1
from tokenization import open_tokenizer

HUB = None  # the stand-in, once it is served
STATUSES = (0, 400, 401, 403, 404, 409, 412, 429, 500, 502, 503, 504)
MARK = "open({!r}, 'w').close()\n"


@contextlib.contextmanager
def quick_attempts():
    """The client waits neither long for an answer nor between attempts."""
    before = _http.time
    _http.time = SimpleNamespace(**{**vars(time), "sleep": lambda _: None})
    get_session().timeout = 0.5
    try:
        yield
    finally:
        _http.time, get_session().timeout = before, None


def put(generator: random.Random, folder: Path, files: dict[str, bytes] | None = None) -> str:
    """Commits the files of a folder to a repository of the stand-in, and gives its name."""
    name = f"me/m{generator.randrange(10**12)}"
    HUB.commits[name] = []
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    HUB.commit(name, "initial commit", {file: path.read_bytes() for file, path in found.items()} | (files or {}))
    return name


def sound(generator: random.Random, folder: Path) -> None:
    save_model(generator, folder)
    name = put(generator, folder)
    here, there = open_for_page(str(folder), "A sound folder"), open_for_page(name, "A sound repository")
    check(here is not None and there is not None, "A sound model was not opened")
    for (key, weight), other in zip(here.model.state_dict().items(), there.model.state_dict().values(), strict=True):
        check_close(key, other, weight, 0)


def broken(generator: random.Random, folder: Path) -> None:
    """A repository with a damaged file, or that answers one of the requests with an error or not at all."""
    save_model(generator, folder)
    what = spoil_folder(generator, folder) if generator.random() < 0.6 else "an answer"
    name = put(generator, folder)
    if what == "an answer":
        status = generator.choice(STATUSES)
        HUB.faults[name] = ("resolve", status)
        what = f"status {status}"
    with quick_attempts():
        opened = open_for_page(name, what)
    check(not what.startswith("status") or opened is None, f"With {what} a model was opened")


def malicious(generator: random.Random, folder: Path) -> None:
    """Code in a repository is not run, whatever its configuration says."""
    save_model(generator, folder)
    mark, module = folder / "mark", generator.choice(["modeling_gpt1", "evil", "configuration_gpt1", "tokenization"])
    config = json.loads((folder / "config.json").read_text())
    classes = ["AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoTokenizer"]
    config["auto_map"] = {name: f"{module}.Evil" for name in classes}
    if generator.random() < 0.5:
        config |= generator.choice(
            [{"model_type": "evil"}, {"architectures": ["Evil"]}, {"custom_pipelines": {"x": {}}}]
        )
    code = MARK.format(str(mark)).encode()
    files = {"config.json": json.dumps(config).encode(), f"{module}.py": code, "setup.py": code, "__init__.py": code}
    if generator.random() < 0.5:
        tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
        tokenizer |= {"auto_map": {"AutoTokenizer": [f"{module}.Evil", None]}, "tokenizer_class": "Evil"}
        files["tokenizer_config.json"] = json.dumps(tokenizer).encode()
    name = put(generator, folder, files)
    with quick_attempts():
        open_for_page(name, "A malicious repository")
        for action in (modeling_gpt1.GPT1ForCausalLM.from_pretrained, open_tokenizer):
            with contextlib.suppress(Exception):
                action(name)
    check(not mark.exists(), f"Code of the repository ran (config {config})")


def push(generator: random.Random, folder: Path) -> None:
    """A push that fails at any step says so, shows no token, and keeps the model; one that goes well is whole."""
    save_model(generator, folder / "start")
    model = modeling_gpt1.GPT1ForCausalLM.from_pretrained(folder / "start")
    name, step = (
        f"me/p{generator.randrange(10**12)}",
        generator.choice(["create", "preupload", "lfs", "commit", "resolve"]),
    )
    status = generator.choice([*STATUSES, 200, 200])
    if status != 200:
        HUB.faults[name] = (step, status)
    token = generator.choice([None, None, None, "hf_read", "hf_SECRET", "hf_SECRET\n"])
    with quick_attempts():
        message = refusal(lambda: model.push_to_hub(name, token=token))
    check("SECRET" not in str(message), f"The message shows the token: {message}")
    if message is None:
        check("model.safetensors" in HUB.files(name), f"A push with {status} at {step} left no model")
        return
    lies_in = [word.rstrip(".") for word in message.replace("\n", " ").split() if "gpt1-push-" in word]
    check(bool(lies_in), f"The message does not say where the model lies: {message}")
    kept = modeling_gpt1.GPT1ForCausalLM.from_pretrained(lies_in[0])
    for (key, weight), other in zip(model.state_dict().items(), kept.state_dict().values(), strict=True):
        check_close(key, other, weight, 0)


def raw_model(generator: random.Random, folder: Path) -> None:
    """What a model says itself where the hub does not answer."""
    save_model(generator, folder)
    name = put(generator, folder)
    HUB.faults[name] = ("resolve", generator.choice([status for status in STATUSES if status not in (0, 404)]))
    with quick_attempts():
        try:
            modeling_gpt1.GPT1ForCausalLM.from_pretrained(name)
        except (OSError, ValueError):
            return
        except Exception as error:
            raise Wrong(f"{HUB.faults[name]}: {type(error).__name__}: {str(error)[:200]}") from error
    raise Wrong(f"{HUB.faults[name]} was taken without a word")


CASES = {sound: 1, broken: 5, malicious: 2, push: 4, raw_model: 1}
