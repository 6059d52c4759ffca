"""Pushes to the hub and back, by the real client of huggingface_hub, from an installed package, against a stand-in."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hub.stand_in import StandIn, faults_of_card, serve
from huggingface_hub import ModelCard
from support.hub_code import HUB_CODE
from support.launch import python_path
from transformers.utils import is_matplotlib_available

ROOT = Path(__file__).resolve().parents[2]
FAULTS = {
    **dict.fromkeys(("me/unlucky", "me/cannot-commit"), ("commit", 500)),
    **{"me/cannot-create": ("create", 500), "me/cannot-prepare": ("preupload", 403)},
}
SAVED = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
RESULTS = ["all_results.json", "eval_results.json", "train_results.json"]
PICTURES = ["confusion_matrix.png"] if is_matplotlib_available() else []
FINE_TUNED = sorted(["README.md", "trainer_state.json", *PICTURES, *SAVED, *RESULTS])
PICKLE_ENDINGS = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
STARTS_OF_PICKLES = (b"PK\x03\x04", *(bytes([0x80, protocol]) for protocol in range(2, 6)))  # the first is torch's zip
REMEDY = "Mend the cause (`hf auth login` or HF_TOKEN gives a token that may write)"
FAILED = re.compile(
    r"The push to (?P<repo_id>me/\S+) failed: (?P<cause>.*)\. Nothing is lost: the complete result is in "
    rf"(?P<folder>\S+)\. {re.escape(REMEDY)} and run:\ngpt1 push (?P=folder) --repo_id (?P=repo_id)"
)


@dataclass
class Visit:
    """What the client did, and what the stand-in has afterwards."""

    hub: StandIn
    folder: Path
    package: Path
    record: dict

    def output(self, case: str) -> str:
        return (self.folder / f"{case}.txt").read_text(encoding="utf-8")

    def commits(self, repo_id: str) -> list[tuple[str, list[str]]]:
        """Message and files of each commit after the first; the code that travels with a model is left out."""
        return [
            (commit.message, [name for name in commit.added if not name.endswith(".py")])
            for commit in self.hub.commits[repo_id][1:]
        ]

    def printed(self, case: str, name: str) -> str:
        """The message that the case printed after `name: `, with the lines that belong to it."""
        lines = self.output(case).splitlines()
        first = next(index for index, line in enumerate(lines) if line.startswith(f"{name}: "))
        return "\n".join(lines[first : first + 1 + lines[first].endswith("and run:")]).removeprefix(f"{name}: ")


@pytest.fixture(scope="module")
def visit(tmp_path_factory):
    """From what an installation has: the template of the card lies in the package."""
    folder = tmp_path_factory.mktemp("hub")
    package = tmp_path_factory.mktemp("installed")
    for name in ("modeling_gpt1", "tokenization"):
        shutil.copytree(ROOT / name, package / name)
    shutil.copy(ROOT / "hub_card.md", package / "modeling_gpt1")
    with serve() as hub:
        hub.faults.update(FAULTS)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING"))}
        environment = {
            **inherited,
            "PYTHONPATH": python_path(package, ROOT / "tests"),
            **{"HF_ENDPOINT": hub.url, "HF_HOME": str(folder / "home"), "HF_TOKEN": "hf_write"},
            **{"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1", "TMPDIR": str(folder)},
        }
        command = [sys.executable, str(ROOT / "tests" / "hub" / "client.py"), str(folder)]
        subprocess.run(command, env=environment, cwd=folder, check=True, timeout=300)
        yield Visit(hub, folder, package, json.loads((folder / "record.json").read_text(encoding="utf-8")))


def test_the_cases_end_well_but_those_that_say_that_they_do_not(visit):
    failing = ("fine_tune_with_a_failing_upload", "fine_tune_for_a_repository_of_others", "push_checkpoints")
    failing += ("fine_tune_an_adapter_of_a_folder", "push_an_adapter_of_a_folder")
    assert Path(visit.record["package"]).parent == visit.package / "modeling_gpt1"
    for case, code in visit.record["codes"].items():
        assert code == (2 if case in failing else 0), visit.output(case)


def test_checkpoints_are_pushed_to_branches_of_their_names(visit):
    lines = visit.output("push_checkpoints").splitlines()
    run = visit.folder / "babylm"
    branches = ("chck_2M", "chck_10M", "main")
    told = [line for line in lines if " is in me/babylm, branch " in line]
    assert told[:-1] == [f"{run / name.replace('main', '')} is in me/babylm, branch {name}" for name in branches]
    assert told[-1] == f"{run / 'chck_2M'} is in me/babylm, branch again"  # and main is still the run's, see below
    again = visit.hub.files("me/babylm@again")["model.safetensors"]
    assert again == (run / "chck_2M" / "model.safetensors").read_bytes()
    for branch in branches:
        files = visit.hub.files("me/babylm" if branch == "main" else f"me/babylm@{branch}")
        weights = (run / branch.replace("main", "") / "model.safetensors").read_bytes()
        assert files["model.safetensors"] == weights
        assert "tokenizer.json" in files
        assert "modeling_gpt1.py" in files
        assert not any("chck" in name for name in files)
    texts = [json.loads(line)["continuations"] for line in lines if line.startswith('{"prompt"')]
    assert texts[0] == texts[1] != texts[2]
    assert "The push to me/cannot-commit failed" in visit.output("push_checkpoints")
    assert f"gpt1 push {run} --repo_id me/cannot-commit --branches\n" in visit.output("push_checkpoints")


def test_what_is_pushed(visit):
    model = ["README.md", "config.json", "generation_config.json", "model.safetensors"]
    assert visit.commits("me/language-model") == [
        ("Upload tokenizer", ["README.md", "tokenizer.json", "tokenizer_config.json"]),
        ("Upload GPT1ForCausalLM", model),  # by transformers
    ]
    pre_trained = sorted(["README.md", "generation_config.json", "trainer_state.json", *SAVED, *RESULTS])
    assert visit.commits("me/books") == [("End of training", pre_trained)]
    assert visit.commits("me/moods") == visit.commits("me/bert-moods") == [("End of training", FINE_TUNED)]
    beside_pickles = sorted(["README.md", "events/readable.log", *SAVED])
    assert visit.commits("me/clean") == [("End of training", beside_pickles), ("Model save", beside_pickles)]
    failed = [name for name in FAULTS if name != "me/unlucky"]
    assert all(visit.commits(name) == [] for name in failed if name in visit.hub.commits)


def test_a_pushed_model_replaces_an_adapter_and_pieces_of_an_earlier_one(visit):
    names = [name for name in visit.hub.files("me/replaced") if not name.endswith(".py")]
    assert sorted(names) == sorted(
        [".gitattributes", "config.json", "generation_config.json", "model.safetensors", "notes.txt"]
    )


def test_a_pushed_adapter_deletes_no_model(visit):
    """It may be the adapter's own base."""
    model = visit.hub.files("me/replaced")["model.safetensors"]
    files = visit.hub.files("me/replaced@with-adapter")
    assert files["model.safetensors"] == model
    assert files["adapter_model.safetensors"] == b"{}"


def test_a_saved_configuration_is_pushed_with_the_code_that_it_names(visit):
    files = visit.hub.files("me/configuration")
    assert files.keys() - {".gitattributes", "README.md"} == {"config.json", *HUB_CODE}


def find_pickles(files: dict[str, bytes]) -> list[str]:
    return [
        name
        for name, content in files.items()
        if name.endswith(PICKLE_ENDINGS) or content.startswith(STARTS_OF_PICKLES)
    ]


def test_no_pickle_no_token_and_no_path_is_pushed(visit):
    local = {str(path): path.read_bytes() for path in (visit.folder / "moods").rglob("*") if path.is_file()}
    assert find_pickles(local)  # of the optimizer, in the checkpoints
    for history in visit.hub.commits.values():
        files = history[-1].files
        assert find_pickles(files) == []
        for name, content in files.items():
            assert b"hf_write" not in content, name
            assert str(visit.folder).encode() not in content, name
            assert str(visit.package).encode() not in content, name


def test_an_adapter_names_the_packaged_model_by_its_short_name(visit):
    content = json.loads(visit.hub.files("me/adapted-moods")["adapter_config.json"])
    assert content["base_model_name_or_path"] == "gpt1-novels"


@pytest.mark.parametrize("case", ["fine_tune_an_adapter_of_a_folder", "push_an_adapter_of_a_folder"])
def test_an_adapter_of_a_model_that_others_lack_is_not_pushed(visit, case):
    output = visit.output(case)
    assert f"The adapter's base, {visit.folder / 'books'}, is on this machine only" in output
    assert "Push the base first and train on its hub name, or push the merged model" in output
    assert "me/local-moods" not in visit.hub.commits


def test_an_adapter_that_cannot_be_pushed_is_not_trained(visit):
    assert "training: " in visit.output("push_an_adapter_of_a_folder")  # negative control
    assert "training: " not in visit.output("fine_tune_an_adapter_of_a_folder")


def test_cards_of_the_repositories(visit):
    fine_tuned = ModelCard(visit.hub.files("me/moods")["README.md"].decode())
    assert fine_tuned.data.base_model == "me/books"
    assert "It was fine-tuned from [me/books](https://huggingface.co/me/books)." in fine_tuned.text
    assert "| classes | happy, sad |" in fine_tuned.text
    of_bert = ModelCard(visit.hub.files("me/bert-moods")["README.md"].decode())
    assert (of_bert.data.tags, of_bert.data.base_model) == (["bert"], None)
    pre_trained = ModelCard(visit.hub.files("me/books")["README.md"].decode())
    (result,) = pre_trained.data.eval_results
    assert pre_trained.data.license == "mit"
    texts = [f"{visit.folder.name}/{split}.txt" for split in ("train", "validation")]
    assert [result.metric_type, result.dataset_name, result.dataset_split] == ["perplexity", *texts]
    assert "| tokens seen in training | 379 |" in pre_trained.text


def test_the_hub_checks_every_card(visit):
    assert len(visit.hub.cards) >= 8
    assert [card for card in visit.hub.cards if faults_of_card(card)] == [
        card for card in visit.hub.cards if "language: English" in card
    ]


@pytest.mark.parametrize(
    ("name", "cause"),
    {
        "cannot-create": "500 Internal Server Error' for url '{url}/api/repos/create'",
        **{"cannot-prepare": "403 Forbidden", "no-token": "401 Unauthorized"},
        **dict.fromkeys(("cannot-commit", "future"), "500 Internal Server Error"),
        "card": '"language" English must be an ISO code',
    }.items(),
)
def test_what_a_failed_push_says(visit, name, cause):
    said = FAILED.fullmatch(visit.printed("fail_to_push", name))
    assert cause.format(url=visit.hub.url) in said["cause"]
    assert Path(said["folder"]) == visit.folder / "result"


def test_a_push_that_cannot_start_says_that_nothing_is_lost(visit):
    assert "401 Unauthorized" in (text := visit.printed("fail_to_push", "at-start"))
    assert text.startswith("result cannot be pushed to: ")
    assert "because training has not started" in text


def test_the_last_words_of_a_failed_script_push_its_result(visit):
    output = visit.output("fine_tune_with_a_failing_upload")
    folder = visit.folder / "unlucky"
    first, command = output.splitlines()[-2:]
    assert "Traceback" not in output
    assert FAILED.fullmatch(f"{first}\n{command}".removeprefix("gpt1 finetune: "))["folder"] == str(folder)
    ((_, added),) = visit.commits("me/unlucky")
    assert added == FINE_TUNED
    files = visit.hub.files("me/unlucky")
    assert all(files[name] == (folder / name).read_bytes() for name in added)


def test_a_script_that_may_not_push_says_so_before_it_trains(visit):
    output = visit.output("fine_tune_for_a_repository_of_others")
    last = output.splitlines()[-1]
    assert last.startswith("gpt1 finetune: me/books cannot be pushed to: 403 Forbidden: You don't have the rights")
    assert f"{REMEDY} and start again, or leave --push_to_hub out" in last
    assert " · loss " not in output
    assert not list((visit.folder / "of-others").glob("*.safetensors"))
