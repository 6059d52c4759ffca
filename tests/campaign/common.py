"""What the kinds of cases share: when a case is wrong, which refusals are clear, and small models and runs."""

import contextlib
import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

OWN = ("modeling_gpt1", "tokenization", "examples", "finetune", "playground")


class Wrong(AssertionError):
    """What a case found."""


def check(is_right: bool, message: str) -> None:
    if not is_right:
        raise Wrong(message)


def check_close(name: str, found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Within the tolerance times one more than the largest expected number; NaN is never close."""
    found, expected = found.detach().double(), expected.detach().double()
    check(found.shape == expected.shape, f"{name} has the shape {list(found.shape)}, not {list(expected.shape)}")
    if expected.numel() > 0:
        error, scale = (found - expected).abs().max().item(), 1 + expected.abs().max().item()
        check(error <= tolerance * scale, f"{name} differs by {error:.3g} where the largest number is {scale - 1:.3g}")


def is_clear(error: BaseException) -> bool:
    """Whether an error is one that a user is meant to read: of our own class, or a sentence."""
    text = str(error).strip()
    if len(text.split()) <= 5:
        return False
    if any(kind.__module__.split(".")[0] in OWN for kind in type(error).__mro__):
        return True
    frame = traceback.extract_tb(error.__traceback__)[-1]
    is_our_raise = (frame.line or "").startswith("raise") and Path(frame.filename).parts[-2:-1] != ("campaign",)
    is_ours = is_our_raise and any(name in Path(frame.filename).parts for name in OWN)
    return type(error) in (ValueError, OSError) and (is_ours or text[-1] in ".!?")


def refusal(action: Callable[[], Any]) -> str | None:
    """The sentence that an action ended with, or `None` where it went well; any other error is wrong."""
    try:
        action()
    except Wrong:
        raise
    except Exception as error:
        if is_clear(error):
            return str(error)
        raise Wrong(f"{type(error).__name__} instead of a sentence: {str(error)[:300]!r}") from error
    return None


def check_refused(what: str, action: Callable[[], Any]) -> str:
    message = refusal(action)
    check(message is not None, f"{what} was taken without a word")
    return message


def weigh(generator: random.Random, choices: dict[Any, float]) -> Any:
    return generator.choices(list(choices), list(choices.values()))[0]


def randomise(model: torch.nn.Module, seed: int, scale: float = 0.3) -> torch.nn.Module:
    """Every weight random and large, so that no mix-up of two weights stays unseen."""
    noise = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        values = scale * torch.randn(weight.shape, generator=noise)
        weight.data = (values + 1 if ".ln_" in name and name.endswith("weight") else values).to(weight.dtype)
    return model.eval()


class Child:
    """A copy of this process that does one thing; it costs no start of Python."""

    def __init__(self, action: Callable[[], None]):
        self.id = os.fork()
        if self.id == 0:
            code = 1
            with contextlib.suppress(BaseException):
                action()
                code = 0
            os._exit(code)

    def kill_after(self, seconds: float) -> bool:
        """Whether it was still alive then."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if os.waitpid(self.id, os.WNOHANG)[0]:
                return False
            time.sleep(0.001)
        os.kill(self.id, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.id, 0)[1]) != 0
