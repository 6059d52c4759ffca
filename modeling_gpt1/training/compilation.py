"""`torch_compile` for GPT-1: its blocks are compiled, and the model around them follows the plan of its batch.

A graph cannot decide by values which tokens to compute, so a model that is compiled as a whole computes padding too.
Here plan, masks, positions and the products of the loss stay outside of the graphs; one serves all numbers of tokens.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from accelerate import Accelerator
from accelerate.utils import DynamoBackend
from transformers import PreTrainedModel

from ..loss_gpt1 import COMPILED_STEP, softmax_step
from ..modeling_gpt1 import GPT1Block, GPT1Model


def take_compilation(accelerator: Accelerator, model: PreTrainedModel, is_asked: bool) -> tuple[Callable, ...] | None:
    """[`compiled_parts`] if asked for, and accelerate compiles nothing; `None` also for models that it compiles."""
    state, plugin = accelerator.state, accelerator.state.dynamo_plugin  # of the process
    if is_asked:  # an earlier trainer may have taken it
        plugin.backend = getattr(state, "taken_backend", plugin.backend)
    if plugin.backend == DynamoBackend.NO or not blocks_of(model):
        return None
    options = plugin.to_kwargs()
    if hasattr(model, "task_head"):  # the blocks of a corpus have one length: what does not change compiles better
        options.setdefault("dynamic", True)
    state.taken_backend, plugin.backend = plugin.backend, DynamoBackend.NO
    return compiled_parts(**options)


def compiled_parts(**options) -> tuple[Callable, ...]:
    """What [`compiled_blocks`] needs: a block, all blocks, a step of the loss; `options` of `torch.compile`."""

    def of_class(name: str) -> Callable:  # FSDP's or another subclass, too
        return torch.compile(
            lambda module, *args, **kwargs: getattr(type(module), name)(module, *args, **kwargs), **options
        )

    of_block, of_blocks = map(of_class, ("forward", "run_blocks"))
    of_loss = torch.compile(softmax_step, **{**options, "dynamic": None})

    def run_blocks(decoder: GPT1Model, *args, **kwargs) -> torch.Tensor:
        # A graph that was made before them has no hooks: those of recorded outputs come with the call that asks.
        return (type(decoder).run_blocks if are_apart(decoder.h) else of_blocks)(decoder, *args, **kwargs)

    def step(*tensors: torch.Tensor | None) -> torch.Tensor:
        for tensor in tensors[:3]:  # chunks differ in length, and a vocabulary of fixed size divides faster
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        return of_loss(*tensors)

    return of_block, run_blocks, step


def are_apart(blocks: Iterable[GPT1Block]) -> bool:
    """Whether something happens between blocks: hooks, as of FSDP and of recorded outputs, checkpoints, exchanges."""
    signs = "gradient_checkpointing _forward_hooks _forward_pre_hooks _backward_hooks _backward_pre_hooks".split()
    has_peers = torch.distributed.is_available() and torch.distributed.is_initialized()
    return has_peers or any(getattr(block, sign) for block in blocks for sign in signs)


def blocks_of(model: PreTrainedModel) -> list[GPT1Block]:
    return [module for module in model.modules() if isinstance(module, GPT1Block)]


@contextmanager
def compiled_blocks(model: PreTrainedModel, parts: tuple[Callable, ...] | None) -> Iterator[None]:
    """Within this context the model runs its compiled `parts`; elsewhere it is as it was.

    All blocks are one graph, which spares the host much of its work, or, if they are apart, each one of its own.
    """
    if parts is None:
        yield
        return
    modules, name, compiled = blocks_of(model), "forward", parts[0]
    if not are_apart(modules):
        modules, name, compiled = [model.base_model], "run_blocks", parts[1]
    modules = [module for module in modules if name not in vars(module)]  # what other code has put there stays
    for module in modules:
        setattr(module, name, partial(compiled, module))
    before = COMPILED_STEP.set(parts[2])
    try:
        yield
    finally:
        COMPILED_STEP.reset(before)
        for module in modules:
            delattr(module, name)
