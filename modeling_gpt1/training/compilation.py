"""`torch_compile` for GPT-1: its blocks are compiled, and the model around them follows the plan of its batch.

A graph cannot decide by values which tokens to compute, so a model that is compiled as a whole computes padding too.
Here plan, masks, positions and the products of the loss stay outside of the graphs; one serves all numbers of tokens.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from accelerate import Accelerator
from accelerate.utils import DynamoBackend
from transformers import PreTrainedModel

from ..loss_gpt1 import COMPILED_STEP, softmax_step
from ..modeling_gpt1 import GPT1Block, GPT1Model, GPT1TaskModel


@dataclass(frozen=True)
class CompiledParts:
    """What [`compiled_blocks`] puts into a model."""

    run_block: Callable
    """The `forward` of one block."""
    run_blocks: Callable
    """All blocks of a decoder, one graph."""
    loss_step: Callable
    """[`softmax_step`] of the language model's loss."""


def take_compilation(accelerator: Accelerator, model: PreTrainedModel, is_asked: bool) -> CompiledParts | None:
    """[`compiled_parts`] if asked for, and accelerate compiles nothing; `None` also for models that it compiles."""
    state = accelerator.state  # of the process
    plugin = state.dynamo_plugin
    if is_asked:  # an earlier trainer may have taken it
        plugin.backend = getattr(state, "taken_backend", plugin.backend)
    if plugin.backend == DynamoBackend.NO or not blocks_of(model):
        return None
    options = plugin.to_kwargs()
    # The blocks of a corpus have one length, and what does not change compiles better. A task's rows differ.
    if isinstance(model, GPT1TaskModel):
        options.setdefault("dynamic", True)
    state.taken_backend = plugin.backend
    plugin.backend = DynamoBackend.NO
    return compiled_parts(**options)


def compiled_parts(**options) -> CompiledParts:
    """The compiled parts, none of which is compiled before it is called; `options` are those of `torch.compile`."""

    def of_class(name: str) -> Callable:  # FSDP's or another subclass, too
        return torch.compile(
            lambda module, *args, **kwargs: getattr(type(module), name)(module, *args, **kwargs), **options
        )

    of_block = of_class("forward")
    of_blocks = of_class("run_blocks")
    of_loss = torch.compile(softmax_step, **{**options, "dynamic": None})

    def run_blocks(decoder: GPT1Model, *args, **kwargs) -> torch.Tensor:
        # A graph that was made before them has no hooks: those of recorded outputs come with the call that asks.
        if are_apart(decoder.h):
            return type(decoder).run_blocks(decoder, *args, **kwargs)
        return of_blocks(decoder, *args, **kwargs)

    def step(*tensors: torch.Tensor | None) -> torch.Tensor:
        for tensor in tensors[:3]:  # chunks differ in length, and a vocabulary of fixed size divides faster
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        return of_loss(*tensors)

    return CompiledParts(of_block, run_blocks, step)


def are_apart(blocks: Iterable[GPT1Block]) -> bool:
    """Whether something happens between blocks: hooks, as of FSDP and of recorded outputs, checkpoints, exchanges."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return True
    for block in blocks:
        has_forward_hooks = block._forward_hooks or block._forward_pre_hooks
        has_backward_hooks = block._backward_hooks or block._backward_pre_hooks
        if block.gradient_checkpointing or has_forward_hooks or has_backward_hooks:
            return True
    return False


def blocks_of(model: PreTrainedModel) -> list[GPT1Block]:
    return [module for module in model.modules() if isinstance(module, GPT1Block)]


@contextmanager
def compiled_blocks(model: PreTrainedModel, parts: CompiledParts | None) -> Iterator[None]:
    """Within this context the model runs its compiled `parts`; elsewhere it is as it was.

    All blocks are one graph, which spares the host much of its work, or, if they are apart, each one of its own.
    """
    if parts is None:
        yield
        return
    modules = blocks_of(model)
    if are_apart(modules):
        name, compiled = "forward", parts.run_block
    else:
        modules = [model.base_model]
        name, compiled = "run_blocks", parts.run_blocks
    modules = [module for module in modules if name not in vars(module)]  # what other code has put there stays
    for module in modules:
        setattr(module, name, partial(compiled, module))
    before = COMPILED_STEP.set(parts.loss_step)
    try:
        yield
    finally:
        COMPILED_STEP.reset(before)
        for module in modules:
            delattr(module, name)
