"""`torch_compile` for GPT-1: its blocks are compiled, and the model between them follows the plan of its batch.

A graph cannot decide by values which tokens to compute, so a model that is compiled as a whole computes padding too.
Here plan, masks and positions are made outside of the graphs, and one graph serves all blocks and numbers of tokens.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from accelerate import Accelerator
from accelerate.utils import DynamoBackend
from transformers import PreTrainedModel

from ..modeling_gpt1 import GPT1Block


def take_compilation(accelerator: Accelerator, model: PreTrainedModel) -> Callable | None:
    """The compiled forward pass of a block, if compilation is asked for; accelerate then compiles nothing.

    `None` for models without GPT-1's blocks, which accelerate compiles as a whole.
    """
    plugin = accelerator.state.dynamo_plugin
    if plugin.backend == DynamoBackend.NO or not blocks_of(model):
        return None
    options = plugin.to_kwargs()
    if hasattr(model, "task_head"):  # the blocks of a corpus have one length: what does not change compiles better
        options.setdefault("dynamic", True)
    plugin.backend = DynamoBackend.NO
    return torch.compile(GPT1Block.forward, **options)


def blocks_of(model: PreTrainedModel) -> list[GPT1Block]:
    return [module for module in model.modules() if isinstance(module, GPT1Block)]


@contextmanager
def compiled_blocks(model: PreTrainedModel, forward: Callable | None) -> Iterator[None]:
    """Within this context the model's blocks run the compiled `forward`; elsewhere the model is as it was."""
    blocks = [] if forward is None else blocks_of(model)
    for block in blocks:
        block.forward = partial(forward, block)
    try:
        yield
    finally:
        for block in blocks:
            del block.forward
