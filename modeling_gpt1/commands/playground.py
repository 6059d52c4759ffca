r"""A page in the browser to look into a model: its traversal's tokens, its probabilities, its losses, what it writes.

    gpt1 playground
    gpt1 playground --models out/quickstart out/quickstart/pretrained
    gpt1 playground --write_page page.html --models out/books
    gpt1 playground --write_space my-space --models me/reviews me/endings

The page opens the models that `--models` names. Weights are read from safetensors only, and no code that comes with a
model is run. The file of `--write_page` continues texts without a server. The folder of `--write_space` has app.py,
both packages, requirements.txt, and README.md with the settings of a Space. All but `--write_page` needs the extra
`playground`. See docs/playground.md.
"""

from dataclasses import dataclass

from transformers.hf_argparser import HfArg

from tokenization.errors import UserError

from ..configuration_gpt1 import PACKAGED_MODEL
from ..playground.browser import write_page
from ..playground.page import build_page
from ..playground.space import write_space
from .arguments import parser_of
from .models import check_model


@dataclass
class PlaygroundArguments:
    """Which models the page offers, and where it is served."""

    models: list[str] = HfArg(
        default_factory=lambda: [PACKAGED_MODEL],
        help="Models of the page: folders or hub ids. The first opens.",
    )
    server_name: str = HfArg(default="127.0.0.1", help="Address to listen on; 0.0.0.0 for all.")
    server_port: int | None = HfArg(default=None, help="Port to listen on. Default: the first free one from 7860.")
    write_page: str | None = HfArg(
        default=None,
        help="New HTML file that continues texts with the model of --models in a browser, without a server and "
        "without Gradio; it is written and no page opens.",
    )
    write_space: str | None = HfArg(
        default=None, help="New folder for the files of a Space; they are written and no page opens."
    )


ARGUMENTS = (PlaygroundArguments,)


def main(arguments: list[str]) -> None:
    parser = parser_of("playground")
    (args,) = parser.read(arguments)
    if args.write_space is not None and args.write_page is not None:
        raise UserError("--write_space and --write_page were both given. Leave one of them out.")
    if args.write_space is not None:
        write_space(args.write_space, parser.settings["models"])  # gpt1-novels is there, too
        print(f"written to {args.write_space}")
        return
    for model in args.models:
        check_model("--models", model)
    if args.write_page is not None:
        if len(args.models) > 1:
            raise UserError(
                f"--write_page writes a page of one model, but --models names {len(args.models)}. Pass one."
            )
        write_page(args.models[0], args.write_page)
        print(f"written to {args.write_page}")
        return
    page, settings = build_page(args.models)
    _, url, _ = page.launch(
        server_name=args.server_name,
        server_port=args.server_port,
        share=False,
        **settings,
        quiet=True,  # gradio's own lines advise what only a program could do
        prevent_thread_lock=True,
    )
    print(f"The page is at {url}. Ctrl-C ends it.", flush=True)
    page.block_thread()
