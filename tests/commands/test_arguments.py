"""Arguments of the commands: near misses, settings in files, completion."""

import json
import shutil
import subprocess
from argparse import SUPPRESS
from importlib import import_module

import pytest

from modeling_gpt1.commands import completion, models
from modeling_gpt1.commands.arguments import parser_of, with_flags
from modeling_gpt1.commands.entry import COMMANDS
from modeling_gpt1.commands.finetune.arguments import parse_columns
from modeling_gpt1.commands.models import check_model
from modeling_gpt1.commands.reproduce import parse_arguments


def given(command: str, *words: str) -> dict:
    """What a command reads from the words, without its defaults."""
    parser = parser_of(command)
    needed = {"predict": ["--file", "rows.csv"], "generate": ["--model", "m"]}.get(command, [])
    read, defaults = (vars(parser.parse_known_args(some)[0]) for some in ([*needed, *words], needed))
    return {name: value for name, value in read.items() if value != defaults[name]}


def test_both_spellings_and_values_like_flags():
    assert given("finetune", "--max-steps", "-1", "--max_length=8") == {"max_length": 8}
    words = ["--prompts", "--a text", "-1", "it --was", "--stop", r"\n"]
    assert given("generate", *words) == {"prompts": ["--a text", "-1", "it --was"], "stop": [r"\n"]}


@pytest.mark.parametrize("command", ["generate", "predict", "zero-shot"])
def test_a_parser_reads_words_whatever_files_there_are(command, tmp_path):
    file = tmp_path / "there.jsonl"
    file.touch()
    assert given(command, "--output_file", str(file)) == {"output_file": str(file)}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_fits_two_screens_and_all_flags_are_a_word_away(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    if command == "completion":  # takes no dataclass
        return
    for words in (["--help"], ["--help", "all"]):
        with pytest.raises(SystemExit) as end:
            parser_of(command).read(words)
        assert end.value.code == 0
        told = capsys.readouterr().out
        flags = {action.option_strings[0] for action in parser_of(command)._actions if action.option_strings}
        assert "not directly used" not in told
        assert "debug features" not in told
        if words == ["--help"]:
            assert told.count("\n") <= 70
            assert told.startswith(f"usage: gpt1 {command} ")
            assert {"finetune": "--do_train", "pretrain": "--train_files"}.get(command, "--config") in told
        else:
            assert [flag for flag in flags - {"-h", "--debug", "--length_column_name"} if flag not in told] == []


USAGE = {
    "plot": "usage: gpt1 plot runs ... [FLAGS]",
    "push": "usage: gpt1 push folder [FLAGS]",
    "convert": "usage: gpt1 convert [folder] [FLAGS]",
}


@pytest.mark.parametrize("command", USAGE)
def test_the_usage_shows_the_words_before_the_flags(command, capsys):
    main = import_module(f"modeling_gpt1.commands.{command}").main
    with pytest.raises(SystemExit):
        main(["--help"])
    assert capsys.readouterr().out.splitlines()[0] == USAGE[command]


def test_an_argument_with_a_value_becomes_its_flag():
    text = "Pass `use_cpu=True`, `num_labels=1` or `plan=False`."
    assert with_flags(parser_of("finetune"), text) == "Pass --use_cpu, --num_labels 1 or `plan=False`."


@pytest.fixture
def write(tmp_path):
    def write_settings(text, name="run.yaml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write_settings


def test_flags_override_the_settings_of_a_file(write):
    file = write(
        "model: m\nlearning_rate: 5e-4\nbf16: true\ncolumns: [text=a, label=b]\nlicense: null\n"
        "lr_scheduler_kwargs: {power: 2}\nmax-steps: 3\nsave_strategy: no\n"
    )
    assert given("finetune", "--seed", "1", "--config", file, "--max_steps", "4") == {
        **{"model": "m", "learning_rate": 5e-4, "bf16": True, "columns": ["text=a", "label=b"]},
        **{"lr_scheduler_kwargs": '{"power": 2}', "max_steps": 4, "seed": 1, "save_strategy": "no"},
    }
    as_json = write(json.dumps({"model": "\N{GRINNING FACE}", "use_cache": False}, ensure_ascii=False), "run.json")
    assert given("finetune", f"--config={as_json}") == {"model": "\N{GRINNING FACE}", "use_cache": False}
    as_json = write(json.dumps({"model": "\N{GRINNING FACE}"}, indent="\t"), "escaped.json")
    assert given("finetune", f"--config={as_json}") == {"model": "\N{GRINNING FACE}"}
    loose = write('\ufeff{"seed": 1,}  # with a mark of its encoding, a comma and a comment', "loose.json")
    assert given("finetune", f"--config={loose}") == {"seed": 1}


def test_a_list_of_the_file_does_not_swallow_a_word(write):
    parser = parser_of("predict")
    parser.add_argument("folder")
    read, _ = parser.parse_known_args(["out", "--config", write("file: a.csv\ncolumns: [text=a]\n")])
    assert (read.folder, read.columns) == ("out", ["text=a"])


def test_columns_may_be_a_mapping_of_the_settings_file(write):
    """Also with several columns of a role, and with a comma in the name of one."""
    path = write('columns:\n  context: "a, b"\n  choices: [first, "second, last"]\n  label: answer\n')
    words = ["--config", str(path), "--traversal", "multiple_choice", "--train_file", "a.csv", "--model", "b"]
    _, data, _ = parser_of("finetune").read([*words, "--output_dir", "c"])
    columns = {"context": "a, b", "choices": ["first", "second, last"], "label": "answer"}
    assert parse_columns(data.columns) == columns


def test_settings_of_experiments_have_those_of_fine_tuning(write):
    def read(*words):
        arguments, _ = parse_arguments(["--model", "m", "--output_dir", "o", *words])
        return arguments.seeds, arguments.finetune_arguments, arguments.lstm_finetune_arguments

    steps, rate = ["--max_steps", "4"], ["--learning_rate", "1e-3"]
    file = write("finetune_arguments: [--max_steps, 3]\nlstm_finetune_arguments: [--seed, 1]\nseeds: [1, 2]\n")
    given = ["--finetune_arguments", *steps, "--lstm_finetune_arguments", *rate]
    assert read("--config", file, *given) == ([1, 2], steps, rate)
    file = write("finetune_arguments: [--max_steps, 4]\nlstm_finetune_arguments: [--learning_rate, 1e-3]\n")
    assert read("--config", file) == ([1, 2, 3], steps, rate)


@pytest.mark.parametrize("command", ["finetune", "pretrain", "reproduce", "zero-shot", "generate"])
def test_settings_that_a_run_wrote_are_read_as_they_were(command, tmp_path):
    needed = {"generate": ["--model", "a: b"], "pretrain": ["--train_files", "f\ng"]}.get(command, [])
    needed += [] if command in ("generate", "zero-shot") else ["--output_dir", str(tmp_path / "o")]
    needed += ["--debug", "underflow_overflow"] if command in ("finetune", "pretrain") else []  # a list of an enum
    parser = parser_of(command)
    first = vars(parser.parse_known_args([*needed, "--seed" if command != "reproduce" else "--seeds", "1"])[0])
    parser.settings.update({"hub_token": "hf_secret"} if "hub_token" in first else {})
    parser.write_settings(tmp_path / "run.yaml")
    text = (tmp_path / "run.yaml").read_text(encoding="utf-8")
    assert "secret" not in text
    place = "output_dir" if "output_dir" in first else "output_file"
    ending = f"gpt1 {command} --config run.yaml --{place} ANOTHER"
    assert text.splitlines()[0] == f"# All settings of a run. Repeat it with: {ending}"
    again = vars(parser_of(command).parse_known_args(["--config", str(tmp_path / "run.yaml")])[0])
    assert again == {**first, **({"hub_token": None} if "hub_token" in first else {})}


ASK = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={place}
compopt() {{ :; }}
_shtab_gpt1 gpt1 {last} ''
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_flags_values_and_files(tmp_path):
    (tmp_path / "gpt1.bash").write_text(completion.script("bash"), encoding="utf-8")
    (tmp_path / "rows.csv").touch()

    def complete(*words: str) -> list[str]:
        given = {"words": " ".join(map(repr, words)), "last": repr(words[-1]), "place": len(words) - 1}
        code = ASK.format(script=tmp_path / "gpt1.bash", **given)
        run = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
        return run.stdout.split()

    assert complete("gpt1", "") == list(COMMANDS)
    assert complete("gpt1", "p") == ["pretrain", "predict", "push", "plot", "playground"]
    assert complete("gpt1", "finetune", "--max_tr") == ["--max_train_samples"]
    assert complete("gpt1", "generate", "--model", "m", "--prompt") == ["--prompts", "--prompt_file"]
    assert complete("gpt1", "generate", "--dtype", "b") == ["bfloat16"]
    assert complete("gpt1", "finetune", "--train_file", "ro") == ["rows.csv"]
    assert complete("gpt1", "predict", "ro") == ["rows.csv"]
    for script in map(completion.script, ("bash", "zsh", "fish")):
        for command in COMMANDS:
            shown = [action for action in parser_of(command)._actions if action.help != SUPPRESS]
            flags = [action.option_strings[0] for action in shown if action.option_strings]
            assert [of for of in (command, *flags) if of.strip("-") not in script] == []


def test_an_id_whose_owner_has_the_name_of_a_folder_is_left_to_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(models, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(models, "check_place", lambda name: None)  # would ask the hub
    (tmp_path / "owner").mkdir()
    check_model("--model", "owner/model")
    check_model("--model", "owner/gpt1-novels")  # a copy of one's own
    (tmp_path / "owner" / "checkpoint-3").mkdir()
    (tmp_path / "owner" / "checkpoint-3" / "config.json").touch()
    with pytest.raises(ValueError, match="owner is no folder with a config.json, but owner/checkpoint-3 is. Pass"):
        check_model("--model", "owner")
    with pytest.raises(ValueError, match="--model owner/model is no folder with a config.json"):
        check_model("--model", "owner/model")
    with pytest.raises(ValueError, match="--model runs/owner/modle is no folder with a config.json"):
        check_model("--model", "runs/owner/modle")
