"""Shell completion of commands and flags. The script contains all of them, so it answers at once."""

from . import COMMANDS
from .flags import SOURCES, flags_of

BASH = """\
# Completion of gpt1. In ~/.bashrc: eval "$(gpt1 completion bash)"
_gpt1() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case "$current" in -*) case "${{COMP_WORDS[1]}}" in
{cases}
        esac ;; esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _gpt1 gpt1
"""
ZSH = """\
# Completion of gpt1. In ~/.zshrc: eval "$(gpt1 completion zsh)"
autoload -Uz compinit bashcompinit && compinit && bashcompinit
"""
FISH = """\
# Completion of gpt1. In ~/.config/fish/completions/gpt1.fish: gpt1 completion fish | source
"""


def bash() -> str:
    cases = "\n".join(f'            {name}) words="{" ".join(flags)}" ;;' for name, flags in words().items())
    return BASH.format(commands=" ".join(COMMANDS), cases=cases)


def zsh() -> str:
    return ZSH + bash().partition("\n")[2]


def fish() -> str:
    begin = "complete -c gpt1 -n"
    lines = [f"{begin} __fish_use_subcommand -a {name} -d '{quoted(what)}'" for name, what in COMMANDS.items()]
    for name, flags in words().items():
        lines += [f"{begin} '__fish_seen_subcommand_from {name}' -l {flag.removeprefix('--')}" for flag in flags]
    return FISH + "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    return text.replace("'", r"\'")


def words() -> dict[str, list[str]]:
    """The flags of each command, with their dashes."""
    return {name: [f"--{flag}" for flag in flags_of(name)] for name in SOURCES}


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}


def print_script(arguments: list[str]) -> None:
    if len(arguments) != 1 or arguments[0] not in SHELLS:
        given = " ".join(arguments) or "none"
        raise ValueError(f"the name of a shell is needed ({', '.join(SHELLS)}), but {given} was given.")
    print(SHELLS[arguments[0]](), end="")
