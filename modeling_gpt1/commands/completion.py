"""Prints the script that completes commands, flags and files in a shell; shtab makes it.

gpt1 completion bash > ~/.local/share/bash-completion/completions/gpt1
gpt1 completion zsh > ~/.zfunc/_gpt1
gpt1 completion fish > ~/.config/fish/completions/gpt1.fish
"""

from argparse import ArgumentParser

import shtab

from .arguments import parser_of
from .entry import COMMANDS

ARGUMENTS = ()


def main(arguments: list[str]) -> None:
    parser = parser_of("completion")
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="Shell that reads the script.")
    (args,) = parser.read(arguments)
    print(script(args.shell), end="")


def script(shell: str) -> str:
    """The completion script of all commands for a shell."""
    root = ArgumentParser("gpt1")
    commands = root.add_subparsers()
    for name, what in COMMANDS.items():
        parser = commands.add_parser(name, help=what, parents=[parser_of(name)], add_help=False)
        parser.add_argument("path", nargs="*", help="a file or folder")
        for action in parser._actions:
            # Of the two spellings of a flag, --max_length and --max-length, one is enough.
            action.option_strings = [option for option in action.option_strings if "-" not in option.lstrip("-")]
            if action.nargs != 0 and action.choices is None:
                action.complete = shtab.FILE
    return shtab.complete(root, shell)
