"""The scripts of `gpt1 completion`, that of bash in a real bash."""

import shutil
import subprocess

import pytest

from modeling_gpt1.commands.entry import COMMANDS, completion, flags

ASK = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={place}
_gpt1
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def complete(tmp_path):
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    (tmp_path / "gpt1.bash").write_text(completion.bash(), encoding="utf-8")

    def ask(*words: str) -> list[str]:
        code = ASK.format(script=tmp_path / "gpt1.bash", words=" ".join(map(repr, words)), place=len(words) - 1)
        run = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        return run.stdout.split()

    return ask


def test_bash_completes_commands_and_flags(complete):
    assert complete("gpt1", "") == list(COMMANDS)
    assert complete("gpt1", "p") == ["pretrain", "predict", "plot", "playground"]
    assert complete("gpt1", "finetune", "--max_tr") == ["--max_train_samples"]
    assert complete("gpt1", "generate", "--model", "m", "--prompt") == ["--prompts", "--prompt_file"]
    assert complete("gpt1", "finetune", "--train_file", "data/") == []  # then bash completes files


def test_every_flag_is_in_every_script():
    for shell, script in completion.SHELLS.items():
        text = script()
        mark = " -l {} " if shell == "fish" else "--{} "
        lines = (text + " ").replace("\n", " ").replace('"', " ")
        for command in flags.SOURCES:
            assert [flag for flag in flags.flags_of(command) if mark.format(flag) not in lines] == [], shell


def test_the_script_is_printed(capsys):
    completion.print_script(["zsh"])
    assert capsys.readouterr().out == completion.zsh()
    assert completion.zsh().splitlines()[1] == "autoload -Uz compinit bashcompinit && compinit && bashcompinit"
