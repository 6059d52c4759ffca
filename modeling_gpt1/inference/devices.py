"""The device of a model whose user names none, chosen in this one place."""

import torch

from tokenization.errors import UserError


def default_device() -> torch.device:
    """The accelerator that torch finds, whatever its make, else the CPU."""
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def check_device(name: str) -> None:
    """Raises ValueError if torch knows no such device, or this machine has none."""
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:  # AssertionError: torch was built without it
        reason = str(error).splitlines()[0].rstrip(".")
        raise UserError(
            f"`device` {name} cannot be used: {reason}. Pass {default_device()}, or leave it out."
        ) from error


def accelerator_name() -> str | None:
    """The accelerator's name, such as "NVIDIA H100", or its type if the backend tells no name; None without one."""
    device = default_device()
    if device.type == "cpu":
        return None
    name_of = getattr(torch.get_device_module(device), "get_device_name", None)
    return device.type if name_of is None else name_of()
