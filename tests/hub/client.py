"""What a user does with the hub, each case in a process of its own; run as a script by `test_hub.py`.

`python tests/hub/client.py FOLDER` forks a process per case, so that the imports, which take longer than all cases
together, are made once. Output and exit code of each case are written to `FOLDER/<case>.txt` and
`FOLDER/record.json`.
The environment says where the hub is.
"""

import json
import multiprocessing
import os
import runpy
import shlex
import shutil
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import torch
from huggingface_hub import ModelCard
from huggingface_hub.utils import _http, get_session
from support.families import write_family
from support.finetuning import make_finetuning_trainer, make_letter_tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.hub import hf_api

import modeling_gpt1
from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM
from modeling_gpt1.hub.push import PushError

MOODS = [{"review": "ann is kind", "mood": "happy"}, {"review": "the dog is very lazy", "mood": "sad"}]
SIZE = "hidden_size=32,num_hidden_layers=1,num_attention_heads=2,max_position_embeddings=48"
TEXT = "ann sees the old dog in the park . the dog eats a fish and goes home .\n"


def language_model() -> GPT1ForCausalLM:
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 48}
    return GPT1ForCausalLM(GPT1Config(vocab_size=len(make_letter_tokenizer()), **size))


def same_weights(left, right) -> bool:
    other = right.state_dict()
    return all(torch.equal(weight, other[name]) for name, weight in left.state_dict().items())


def push_tokenizer_and_model(folder: Path) -> None:
    """Then open all three from the hub."""
    model, tokenizer = language_model(), make_letter_tokenizer()
    tokenizer.push_to_hub("me/language-model")
    model.push_to_hub("me/language-model", tags=["tiny"])
    opened = AutoModelForCausalLM.from_pretrained("me/language-model")
    assert same_weights(model, opened)
    assert AutoConfig.from_pretrained("me/language-model").to_dict() == opened.config.to_dict()
    model.config.save_pretrained(str(folder / "configuration"), push_to_hub=True, repo_id="me/configuration")
    text = "ann sees the dog ."
    assert AutoTokenizer.from_pretrained("me/language-model")(text)["input_ids"] == tokenizer(text)["input_ids"]


def open_from_the_hub(folder: Path) -> None:
    """What the two scripts pushed, by the code that their cards give."""
    for name in ("me/moods", "me/books"):
        exec(compile(ModelCard.load(name).text.split("```python\n")[1].split("```")[0], name, "exec"), {})
    assert same_weights(
        GPT1DoubleHeadsModel.from_pretrained("me/moods"), GPT1DoubleHeadsModel.from_pretrained(folder / "moods")
    )


def fine_tune(folder: Path, name: str = "moods", *more: str) -> None:
    """From the model that `pre_train` pushed."""
    for split, repeat in (("train", 4), ("validation", 1)):
        rows = "".join(json.dumps(row) + "\n" for row in MOODS * repeat)
        (folder / f"{name}-{split}.jsonl").write_text(rows, encoding="utf-8")
    run_command(
        "finetune",
        *("--train_file", f"{folder}/{name}-train.jsonl", "--validation_file", f"{folder}/{name}-validation.jsonl"),
        *("--traversal", "classification", "--columns", "text=review", "label=mood", "--do_train", "--do_eval"),
        *("--model", "me/books"),
        *("--output_dir", f"{folder}/{name}", "--hub_model_id", f"me/{name}", "--save_steps", "1"),
        *(*run_arguments(), *more),
    )


def fine_tune_another_family(folder: Path) -> None:
    """Then open it as its card says."""
    write_family("bert", folder / "bert")
    fine_tune(folder, "bert-moods", "--model", f"{folder}/bert")
    own_code = ModelCard.load("me/bert-moods").text.split("```python\n")[1].split("```")[0]
    exec(compile(own_code, "me/bert-moods", "exec"), {})


def fine_tune_with_a_failing_upload(folder: Path) -> None:
    fine_tune(folder, "unlucky")


def push_as_its_last_words_say(folder: Path) -> None:
    """After the hub is mended."""
    get_session().delete(f"{os.environ['HF_ENDPOINT']}/faults/me/unlucky")
    output = (folder / "fine_tune_with_a_failing_upload.txt").read_text(encoding="utf-8")
    run_command(*shlex.split(output.splitlines()[-1])[1:])


def fine_tune_for_a_repository_of_others(folder: Path) -> None:
    """The repository exists, so that making it succeeds without a right to write."""
    fine_tune(folder, "of-others", "--hub_token", "hf_read", "--hub_model_id", "me/books")


def pre_train(folder: Path) -> None:
    for name in ("train.txt", "validation.txt"):
        (folder / name).write_text(TEXT * 20, encoding="utf-8")
    run_command(
        "pretrain",
        *("--train_files", f"{folder}/train.txt", "--validation_files", f"{folder}/validation.txt"),
        *("--num_merges", "50", "--config_overrides", SIZE, "--warmup_steps", "0", "--license", "mit"),
        *("--output_dir", f"{folder}/books", "--hub_model_id", "me/books", "--prompts", "ann"),
        *run_arguments(),
    )


def run_arguments() -> list[str]:
    return [
        *("--push_to_hub", "--use_cpu", "--disable_tqdm", "true", "--report_to", "none"),
        *("--max_steps", "2", "--per_device_train_batch_size", "4", "--logging_steps", "1"),
    ]


def run_command(*arguments: str) -> None:
    sys.argv = ["gpt1", *arguments]
    runpy.run_module("modeling_gpt1.commands", run_name="__main__")


def fail_to_push(folder: Path) -> None:
    """Prints the message of each failure, after a check that what was to be pushed is whole."""
    trainer = make_finetuning_trainer("classification", folder / "result", 8, 1)
    trainer.train()
    for name in ("cannot-create", "cannot-prepare", "cannot-commit"):
        trainer.args.hub_model_id = f"me/{name}"
        trainer.hub_model_id = None
        print(f"{name}: {message_of(trainer.push_to_hub)}")
        assert same_weights(trainer.model, GPT1DoubleHeadsModel.from_pretrained(folder / "result"))
        assert f"# me/{name}\n" in (folder / "result" / "README.md").read_text(encoding="utf-8")
        assert len(AutoTokenizer.from_pretrained(folder / "result")) == trainer.model.config.vocab_size
    future = trainer.push_to_hub(blocking=False)
    print(f"future: {message_of(future.result)}")
    trainer.args.hub_model_id, trainer.hub_model_id = "me/language-model", None
    print(f"card: {message_of(lambda: trainer.push_to_hub(language='English'))}")
    push_beside_pickles(trainer, folder / "result")
    os.environ.pop("HF_TOKEN")
    print(f"no-token: {message_of(trainer.push_to_hub)}")
    refused = message_of(lambda: make_finetuning_trainer("classification", folder / "result", 8, 1, push_to_hub=True))
    print(f"at-start: {refused}")


def push_beside_pickles(trainer, folder: Path) -> None:
    """Twice: as a script does, and by `save_model`, which pushes where the arguments say so."""
    pickles = ("weights.pth.tar", "rng_state.pth", "global_step3/optimizer.pt", "trial/checkpoint-3/state.json")
    private = ("own.env", "events/events.out.tfevents.1.this-machine.2.0", "events/_incomplete/model.safetensors")
    for name in (*pickles, *private, "_incomplete/model.safetensors", "events/readable.log", ".env"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("content", encoding="utf-8")
    trainer.args.hub_model_id, trainer.hub_model_id = "me/clean", None
    trainer.push_to_hub()
    trainer.args.push_to_hub = True
    trainer.create_model_card(model_name="renamed")
    trainer.save_model()
    trainer.args.push_to_hub = False


def push_checkpoints(folder: Path) -> None:
    """Each to a branch of its name, in the order of their words; then open one by its name."""
    run = folder / "babylm"
    config = language_model().config
    config.initializer_range = 0.5  # so that different weights write different texts
    for number, name in enumerate(("", "chck_10M", "chck_2M")):
        torch.manual_seed(number)
        GPT1ForCausalLM(config).save_pretrained(run / name)
        make_letter_tokenizer().save_pretrained(run / name)
    shutil.copytree(run / "chck_2M", run / "chck_2M_kept")  # a user's own, which is none of them
    run_command("push", str(run), "--repo_id", "me/babylm", "--branches")
    generation = ("--prompts", "ann", "--max_new_tokens", "8", "--temperature", "0", "--device", "cpu")
    for place in (("me/babylm", "--revision", "chck_2M"), (str(run / "chck_2M"),), ("me/babylm",)):
        run_command("generate", "--model", *place, *generation)
    run_command("push", str(run / "chck_2M"), "--repo_id", "me/babylm", "--revision", "again")
    run_command("push", str(run), "--repo_id", "me/cannot-commit", "--branches")


def push_a_model_over_an_adapter(folder: Path) -> None:
    """And over a model in two pieces, with a file of the user's."""
    model = language_model()
    older = folder / "adapter"
    older.mkdir()
    pieces = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json")
    for name in ("adapter_config.json", "adapter_model.safetensors", *pieces, "notes.txt"):
        (older / name).write_text("older", encoding="utf-8")
    hf_api().create_repo("me/replaced")
    hf_api().upload_folder(repo_id="me/replaced", folder_path=older)
    model.save_pretrained(folder / "whole")
    run_command("push", str(folder / "whole"), "--repo_id", "me/replaced")
    assert same_weights(model, AutoModelForCausalLM.from_pretrained("me/replaced"))
    adapter = folder / "adapter-alone"
    adapter.mkdir()
    for name in ("config.json", "adapter_config.json", "adapter_model.safetensors"):
        (adapter / name).write_text("{}", encoding="utf-8")
    hf_api().create_branch("me/replaced", branch="with-adapter")
    run_command("push", str(adapter), "--repo_id", "me/replaced", "--revision", "with-adapter")


def fine_tune_an_adapter(folder: Path) -> None:
    """Of the packaged model; then open it from the hub."""
    fine_tune(folder, "adapted-moods", "--model", "gpt1-novels", "--lora_r", "2")
    opened = GPT1DoubleHeadsModel.from_pretrained("me/adapted-moods")
    assert same_weights(opened, GPT1DoubleHeadsModel.from_pretrained(folder / "adapted-moods"))


def fine_tune_an_adapter_of_a_folder(folder: Path) -> None:
    fine_tune(folder, "local-moods", "--model", f"{folder}/books", "--lora_r", "2")


def push_an_adapter_of_a_folder(folder: Path) -> None:
    """Which was trained without a push."""
    fine_tune(folder, "local-moods", "--model", f"{folder}/books", "--lora_r", "2", "--push_to_hub", "false")
    run_command("push", f"{folder}/local-moods", "--repo_id", "me/local-moods")


def message_of(push) -> str:
    try:
        push()
    except PushError as error:
        assert "SECRET" not in "".join(traceback.format_exception(error))
        return str(error)
    raise AssertionError("The push did not fail.")


CASES = (push_tokenizer_and_model, pre_train, fine_tune_for_a_repository_of_others, fine_tune)
CASES += (fine_tune_another_family, open_from_the_hub, fine_tune_with_a_failing_upload)
CASES += (push_as_its_last_words_say, fail_to_push, push_checkpoints, push_a_model_over_an_adapter)
CASES += (fine_tune_an_adapter, fine_tune_an_adapter_of_a_folder, push_an_adapter_of_a_folder)


def run_case(case, folder: Path) -> int:
    """The exit code of the case in a process of its own."""
    process = multiprocessing.get_context("fork").Process(target=write_output_of, args=(case, folder))
    process.start()
    process.join()
    return process.exitcode


def write_output_of(case, folder: Path) -> None:
    output = os.open(folder / f"{case.__name__}.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    _http.time = SimpleNamespace(**{**vars(time), "sleep": lambda _: None})  # between attempts
    case(folder)


def main(folder: str) -> None:
    for name in ("finetune", "generate", "pretrain", "push"):
        import_module(f"modeling_gpt1.commands.{name}")  # once for all cases
    codes = {case.__name__: run_case(case, Path(folder)) for case in CASES}
    record = {"codes": codes, "package": modeling_gpt1.__file__}
    Path(folder, "record.json").write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
