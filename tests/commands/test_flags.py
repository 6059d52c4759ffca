"""Flags of the commands: the table read from the sources, near misses, old and short names, settings in files."""

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from modeling_gpt1 import commands
from modeling_gpt1.commands.arguments import CommandParser
from modeling_gpt1.commands.entry import flags, values
from modeling_gpt1.inference.heuristics import HEURISTICS
from tokenization import TASKS
from tokenization.traversal import TRAVERSALS

FOLDER = Path(commands.__file__).parent
IMPORTED = f"""
import sys
sys.path[:0] = [{str(FOLDER)!r}, {str(FOLDER.parents[1])!r}]
import entry
try:
    entry.main(sys.argv[1:])
finally:
    print(sorted(name for name in ("torch", "transformers", "modeling_gpt1") if name in sys.modules))
"""


class Parsed(Exception):
    pass


@pytest.fixture
def parser_of(monkeypatch):
    """The parser that a command reads its arguments with."""

    def read(self, _):
        raise Parsed(self)

    def parse(command: str) -> CommandParser:
        for name, attribute in (("page", "build_page"), ("space", "write_space")):  # they need gradio
            module = ModuleType(name)
            setattr(module, attribute, None)
            monkeypatch.setitem(sys.modules, f"modeling_gpt1.playground.{name}", module)
        monkeypatch.setattr(CommandParser, "read", read)
        module = import_module(f"modeling_gpt1.commands.{command.replace('-', '_')}")
        with pytest.raises(Parsed) as parsed:
            module.main([])
        return parsed.value.args[0]

    return parse


@pytest.mark.parametrize("command", flags.SOURCES)
def test_the_table_has_the_flags_of_the_parser(command, parser_of):
    options = [action for action in parser_of(command)._actions if action.option_strings]
    assert {action.dest for action in options} | {"config", "debug"} == set(flags.flags_of(command))
    for option in (option for action in options for option in action.option_strings if option != "-h"):
        name = option.removeprefix("--").replace("-", "_")
        assert flags.find_flag(command, option) == f"--{name}"


def test_old_names_are_no_flags_and_new_ones_are():
    for command, names in flags.OLD_NAMES.items():
        assert set(names.values()) <= set(flags.flags_of(command))
        assert not set(names) & set(flags.flags_of(command))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["finetune", "--taks", "rte"],
            "gpt1 finetune: unknown flag --taks; did you mean --task? See gpt1 finetune",
        ),
        (
            ["reproduce", "--model", "m", "--finetune_arguments", "--lerning_rate=1"],
            "gpt1 reproduce: unknown flag --lerning_rate; did you mean --learning_rate? See gpt1 finetune",
        ),
    ],
)
def test_an_unknown_flag_is_told_before_torch_is_imported(words, message):
    run = subprocess.run([sys.executable, "-I", "-c", IMPORTED, *words], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (2, "[]\n", f"{message} --help.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["finetune", "--learning_rate", "-1e-3"], "gpt1 finetune: --learning_rate is -1e-3, but must be at least 0."),
        (
            ["finetune", "--traversal=foo"],
            f"gpt1 finetune: --traversal has no value 'foo'. It takes {', '.join(TRAVERSALS)}.",
        ),
        (
            ["reproduce", "--model", "m", "--finetune_arguments", "--save_strategy", "epochs"],
            "gpt1 reproduce: --save_strategy has no value 'epochs'; did you mean epoch? It takes no, steps, epoch, "
            "best.",
        ),
    ],
)
def test_a_wrong_value_is_told_before_torch_is_imported(words, message):
    run = subprocess.run([sys.executable, "-I", "-c", IMPORTED, *words], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (2, "[]\n", f"{message}\n")


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        *[("finetune", f"max_{use}_samples") for use in ("train", "eval", "predict")],
        ("pretrain", "max_eval_blocks"),
        *[("zero-shot", f"max_{use}_samples") for use in ("train", "eval")],
        *[("reproduce", f"zero_shot_max_{use}_samples") for use in ("train", "eval")],
    ],
)
def test_a_limit_of_rows_is_at_least_1(command, flag):
    for words in ([f"--{flag}", "-1"], [f"--{flag}=-1"]):
        with pytest.raises(ValueError, match=f"^--{flag} is -1, but must be at least 1.$"):
            flags.prepare(command, words)
    assert flags.prepare(command, [f"--{flag}", "1"]) == [f"--{flag}", "1"]
    if command == "finetune":
        with pytest.raises(ValueError, match=f"^--{flag} is 0, but must be at least 1.$"):
            flags.prepare("reproduce", ["--model", "m", "--finetune_arguments", f"--{flag}", "0"])


def test_the_known_values_are_those_of_the_packages(parser_of):
    assert values.TASKS == tuple(TASKS)
    assert values.ZERO_SHOT_TASKS == tuple(HEURISTICS)
    assert values.TRAVERSALS == TRAVERSALS
    for command in ("finetune", "pretrain"):
        types = {}
        for source in flags.SOURCES[command]:
            for name, annotation in flags.fields_of(*source.split(":")):
                types.setdefault(name, []).append(ast.unparse(annotation))
        known = {name: values.names_of_enum(annotations) for name, annotations in types.items()}
        choices = {
            action.dest: [getattr(choice, "value", choice) for choice in action.choices]
            for action in parser_of(command)._actions
            if action.choices is not None and known.get(action.dest)
        }
        assert {"eval_strategy", "save_strategy", "logging_strategy", "optim"} <= set(choices)
        assert choices == {name: known[name] for name in choices}


def test_right_values_stay_as_they_were():
    words = ["--task", "SST-2", "--learning_rate", "1e-3", "--optim", "adafactor", "--columns", "a=b", "c=d"]
    assert flags.prepare("finetune", words) == words
    words = ["--tasks", "SST-2", "dpr", "rte", "--seed", "3", "--", "--tasks", "-1"]
    assert flags.prepare("zero-shot", words) == words
    assert flags.prepare("finetune", ["--max_steps", "-1", "--seed", "1"]) == ["--max_steps=-1", "--seed", "1"]


def test_names_of_version_0_1_work_with_a_warning(capsys):
    words = ["--model_name_or_path", "m", "--max-rows=5", "--output", "o.json"]
    assert flags.prepare("zero-shot", words) == ["--model", "m", "--max_eval_samples=5", "--output_file", "o.json"]
    assert capsys.readouterr().err.splitlines() == [
        "gpt1 zero-shot: --model_name_or_path is now called --model; the old name will be removed.",
        "gpt1 zero-shot: --max_rows is now called --max_eval_samples; the old name will be removed.",
        "gpt1 zero-shot: --output is now called --output_file; the old name will be removed.",
    ]


def test_the_beginning_of_one_name_will_do():
    assert flags.prepare("finetune", ["--learning", "1"]) == ["--learning_rate", "1"]
    with pytest.raises(ValueError) as error:
        flags.prepare("finetune", ["--test", "1", "--eval_st", "1"])
    assert (
        str(error.value) == "--eval_st is ambiguous: it may be --eval_steps or --eval_strategy. Write the full name."
    )


def test_values_are_left_alone():
    words = ["--prompts", "--a text", "-1", "it --was", "--stop", r"\n", "--", "--taks"]
    assert flags.prepare("generate", words) == words


def test_debug_is_ours_without_a_value_and_trainers_with_one():
    assert flags.take_debug("finetune", ["--debug", "--seed", "1"]) == (["--seed", "1"], True)
    assert flags.take_debug("finetune", ["--seed", "1", "--debug"]) == (["--seed", "1"], True)
    words = ["--debug", "underflow_overflow"]
    assert flags.take_debug("finetune", words) == (words, False)
    assert flags.take_debug("plot", ["--debug", "run"]) == (["run"], True)
    assert flags.take_debug("plot", []) == ([], False)


# ---- Settings in files


@pytest.fixture
def write(tmp_path):
    def write_settings(text, name="run.yaml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write_settings


def test_settings_become_words_which_flags_follow(write):
    file = write(
        "model: m\nlearning_rate: 5e-4\nbf16: true\ncolumns: [text=a, label=b]\nlicense: null\n"
        "lr_scheduler_kwargs: {power: 2}\nmax-steps: 3\n"
    )
    assert flags.prepare("finetune", ["--seed", "1", "--config", file, "--max_steps", "4"]) == [
        *("--model=m", "--learning_rate=5e-4", "--bf16=true", "--columns", "text=a", "label=b"),
        *('--lr_scheduler_kwargs={"power": 2}', "--max_steps=3", "--seed", "1", "--max_steps", "4"),
    ]
    file = write("file: a.csv\ncolumns: [text=a]\n")
    assert flags.prepare("predict", ["folder", "--config", file, "--device", "cpu"]) == [
        *("folder", "--file=a.csv", "--columns", "text=a", "--device", "cpu")
    ]
    as_json = write(json.dumps({"model": "m", "bf16": False}), "run.json")
    assert flags.prepare("finetune", [f"--config={as_json}"]) == ["--model=m", "--bf16=false"]


def test_settings_of_experiments_have_those_of_fine_tuning_last(write):
    file = write("finetune_arguments: [--max_steps, 3]\nseeds: [1, 2]\n")
    assert flags.prepare("reproduce", ["--config", file, "--model", "m"]) == [
        *("--seeds", "1", "2", "--model", "m", "--finetune_arguments", "--max_steps", "3")
    ]
    assert flags.prepare("reproduce", ["--config", file, "--finetune_arguments", "--max_steps", "4"]) == [
        *("--seeds", "1", "2", "--finetune_arguments", "--max_steps", "4")
    ]
    both = ["--finetune_arguments", "--max-steps", "4", "--lstm_finetune_arguments", "--learning-rate", "1e-3"]
    expected = [word.replace("max-s", "max_s").replace("learning-r", "learning_r") for word in both]
    assert flags.prepare("reproduce", both) == expected
    file = write("finetune_arguments: [--max_steps, 4]\nlstm_finetune_arguments: [--learning_rate, 1e-3]\n")
    assert flags.prepare("reproduce", ["--config", file]) == expected


@pytest.mark.parametrize("command", ["finetune", "pretrain", "reproduce", "zero-shot", "generate"])
def test_settings_that_a_run_wrote_are_read_as_they_were(command, parser_of, tmp_path):
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
    words = flags.prepare(command, ["--config", str(tmp_path / "run.yaml")])
    assert vars(parser.parse_known_args(words)[0]) == {
        **first,
        **({"hub_token": None} if "hub_token" in first else {}),
    }
