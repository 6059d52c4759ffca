"""`torch_compile` for GPT-1: its blocks are compiled, and the model around them follows the plan of its batch.

A graph cannot decide by values which tokens to compute, so a model that is compiled as a whole computes padding too.
Here plan, masks and positions are made outside of the graphs, and one graph serves all numbers of tokens. The loss's
products stay outside, too: only what lies between them is compiled.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from accelerate import Accelerator
from accelerate.utils import DynamoBackend
from transformers import PreTrainedModel

from ..loss_gpt1 import COMPILED_STEP, softmax_step
from ..modeling_gpt1 import GPT1Block, GPT1Model


def take_compilation(accelerator: Accelerator, model: PreTrainedModel) -> tuple[Callable, Callable, Callable] | None:
    """[`compiled_parts`], if compilation is asked for; accelerate then compiles nothing.

    `None` for models without GPT-1's blocks, which accelerate compiles as a whole.
    """
    plugin = accelerator.state.dynamo_plugin
    if plugin.backend == DynamoBackend.NO or not blocks_of(model):
        return None
    options = plugin.to_kwargs()
    if hasattr(model, "task_head"):  # the blocks of a corpus have one length: what does not change compiles better
        options.setdefault("dynamic", True)
    plugin.backend = DynamoBackend.NO
    return compiled_parts(**options)


def compiled_parts(**options) -> tuple[Callable, Callable, Callable]:
    """What [`compiled_blocks`] needs: a block, all blocks, a step of the loss; `options` of `torch.compile`."""
    of_loss = torch.compile(softmax_step, **{**options, "dynamic": None})

    def step(*tensors: torch.Tensor | None) -> torch.Tensor:
        for tensor in tensors[:3]:  # chunks differ in length, and a vocabulary of fixed size divides faster
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        return of_loss(*tensors)

    return torch.compile(GPT1Block.forward, **options), torch.compile(GPT1Model.run_blocks, **options), step


def blocks_of(model: PreTrainedModel) -> list[GPT1Block]:
    return [module for module in model.modules() if isinstance(module, GPT1Block)]


@contextmanager
def compiled_blocks(model: PreTrainedModel, parts: tuple[Callable, Callable, Callable] | None) -> Iterator[None]:
    """Within this context the model runs its compiled `parts`; elsewhere it is as it was.

    All blocks are one graph, which spares the host much of its work. Each is one of its own where something happens
    between them: hooks, as of FSDP and of recorded outputs, checkpoints, gradients that processes exchange.
    """
    if parts is None:
        yield
        return
    modules, name, compiled = blocks_of(model), "forward", parts[0]
    are_apart = any(
        block.gradient_checkpointing or block._forward_hooks or block._forward_pre_hooks for block in modules
    )
    if not (are_apart or torch.distributed.is_initialized()):
        modules, name, compiled = [model.base_model], "run_blocks", parts[1]
    for module in modules:
        setattr(module, name, partial(compiled, module))
    before = COMPILED_STEP.set(parts[2])
    try:
        yield
    finally:
        COMPILED_STEP.reset(before)
        for module in modules:
            delattr(module, name)
