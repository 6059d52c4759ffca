r"""Uploads the folder of a run to the hub, and with --branches each checkpoint that it saved to a branch of its name.

    gpt1 push out/books --repo_id me/books
    gpt1 push out/babylm --repo_id me/babylm --branches

The checkpoints are folders of the run with a config.json, such as the chck_1M of `gpt1 pretrain --save_at_words`; they
go first, in the order of their words, and the run itself to `main`. If an upload fails, the same command tries again.
"""

from dataclasses import dataclass
from pathlib import Path

from transformers.hf_argparser import HfArg
from transformers.utils.hub import hf_api

from tokenization.errors import UserError

from ..hub.push import PUBLIC, check_bases_of_adapters, explained, is_public_repository, upload
from ..inference.checkpoints import saved_revisions
from .arguments import parser_of


@dataclass
class PushArguments:
    """What is uploaded, and where to."""

    repo_id: str = HfArg(help="Repository of the hub, such as me/books. It is made if it does not exist.")
    branches: bool = HfArg(default=False, help="Upload each saved checkpoint, too, to a branch of its name.")
    revision: str | None = HfArg(default=None, help="Branch for the run itself. Default: main.")
    private: bool = HfArg(
        default=False, help="Make a repository that others do not see. Default: as its owner's settings say."
    )


ARGUMENTS = (PushArguments,)


def main(arguments: list[str]) -> None:
    parser = parser_of("push")
    parser.add_argument("folder", help="Folder of the run.")
    args, positional = parser.read(arguments)
    folder = positional.folder
    if not Path(folder, "config.json").is_file():
        raise UserError(f"{folder} is no folder with a config.json. Write the folder of a run after `gpt1 push`.")
    places = places_to_push(folder, args)
    for path, _ in places:
        check_bases_of_adapters(path)
    repeated_flags = [f"--{flag}" for flag in ("branches", "private") if getattr(args, flag)]
    with explained(args.repo_id, folder, args.revision, more=repeated_flags):
        # None: as the owner's settings say. False would make it public.
        repo_id = hf_api().create_repo(args.repo_id, private=args.private or None, exist_ok=True).repo_id
        is_public = args.private and is_public_repository(repo_id, token=None)
    if is_public:
        raise UserError(PUBLIC.format(repo_id, "--private"))
    with explained(args.repo_id, folder, args.revision, more=repeated_flags):
        for path, branch in places:
            if branch is not None:
                hf_api().create_branch(repo_id, branch=branch, exist_ok=True)
            upload(str(path), repo_id, branch, commit_message="Upload model")
            print(f"{path} is in {repo_id}, branch {branch or 'main'}", flush=True)


def places_to_push(folder: str, args: PushArguments) -> list[tuple[Path, str | None]]:
    """Each folder to upload with its branch: the saved checkpoints, in the order of their words, then the run."""
    places: list[tuple[Path, str | None]] = []
    if args.branches:
        places += [(Path(folder, name), name) for name in saved_revisions(folder)]
        if not places:
            raise UserError(f"{folder} has no folders chck_…. Train with --save_at_words, or leave --branches out.")
    return [*places, (Path(folder), args.revision)]
