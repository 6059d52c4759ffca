"""An accelerator that is none: its tensors say that they lie on the device `standin`, their numbers lie on the CPU.

What a real device punishes late or silently comes to light on the CPU:

- an operation that mixes devices raises, as on a GPU;
- each wait of the host for the device is counted with the line that asks for it. A GPU works through a queue; the host
  has to wait where it reads a value (`item`, `bool`), where a shape depends on values (`nonzero`, a mask as an index,
  `repeat_interleave` without `output_size`), and where numbers are copied to it, or from its pageable memory.

`use_stand_in()` changes the whole process, before its first backward pass: tests start a process of their own.
"""

import os
import sys
from collections import Counter
from pathlib import Path

import torch
from torch import library
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

NAME = "standin"
ROOT = Path(__file__).resolve().parents[2]
OUR_CODE = tuple(str(ROOT / package) for package in ("modeling_gpt1", "tokenization"))
NOT_TOLD = (str(Path(torch.__file__).parent), __file__)  # frames below the line that asks
aten = torch.ops.aten

# The kernels for GPUs read a value, or need one for the shape of their result.
WAITING = (aten._local_scalar_dense, aten.nonzero, aten.masked_select, aten.bincount, aten.equal, aten._unique2)
WAITING += (aten.unique_dim, aten.unique_consecutive, aten.multinomial)
COPIES = (aten._to_copy, aten.copy_, aten._copy_from)


def _lstm_cell(of_input, of_state, cell, input_bias=None, state_bias=None):
    """What a device computes in one kernel, which the CPU has not; gives the activations for the backward pass."""
    gates = of_input + of_state + (0 if input_bias is None else input_bias + state_bias)
    enter, forget, new, out = gates.chunk(4, 1)
    parts = (enter.sigmoid(), forget.sigmoid(), new.tanh(), out.sigmoid())
    new_cell = parts[1] * cell + parts[0] * parts[2]
    return parts[3] * new_cell.tanh(), new_cell, torch.cat(parts, 1)


def _lstm_cell_backward(grad_state, grad_cell, cell, new_cell, activations, has_bias):
    enter, forget, new, out = activations.chunk(4, 1)
    grad_state = torch.zeros_like(cell) if grad_state is None else grad_state
    grad_cell = (0 if grad_cell is None else grad_cell) + grad_state * out * (1 - new_cell.tanh() ** 2)
    grads = (grad_cell * new, grad_cell * cell, grad_cell * enter, grad_state * new_cell.tanh())
    slopes = (enter * (1 - enter), forget * (1 - forget), 1 - new**2, out * (1 - out))
    grad_gates = torch.cat([grad * slope for grad, slope in zip(grads, slopes, strict=True)], 1)
    return grad_gates, grad_cell * forget, grad_gates.sum(0) if has_bias else None


SUBSTITUTES = {aten._thnn_fused_lstm_cell: _lstm_cell, aten._thnn_fused_lstm_cell_backward_impl: _lstm_cell_backward}


class DeviceTensor(torch.Tensor):
    """Says it lies on the stand-in; `host` has its numbers."""

    @staticmethod
    def __new__(cls, host: torch.Tensor):
        return torch.Tensor._make_wrapper_subclass(
            cls, host.shape, host.stride(), host.storage_offset(), dtype=host.dtype, device=device()
        )

    def __init__(self, host: torch.Tensor):
        self.host = host

    def __repr__(self, **_) -> str:
        return f"DeviceTensor({self.host!r})"

    def tolist(self) -> list:  # which torch refuses to subclasses
        return self.cpu().tolist()

    def untyped_storage(self) -> torch.UntypedStorage:  # by which tied weights are known
        return self.host.untyped_storage()

    def __deepcopy__(self, memo):
        copied = DeviceTensor(self.host.clone())
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        memo[id(self)] = copied
        return copied

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class _Factories(TorchDispatchMode):
    """Sees the operations that no tensor of the device takes part in, such as `arange(…, device=…)`."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class Waits:
    """Within, the waits of the host are counted: `waits.all`, and by line `waits.lines()`."""

    _open: list["Waits"] = []

    def __init__(self):
        self.all: list[str] = []

    def __enter__(self) -> "Waits":
        Waits._open.append(self)
        return self

    def __exit__(self, *_) -> None:
        Waits._open.remove(self)

    def lines(self) -> dict[str, int]:
        return dict(Counter(self.all))

    @classmethod
    def count(cls, kind: str) -> None:
        if cls._open:
            wait = f"{kind} at {_line()}"
            for waits in cls._open:
                waits.all.append(wait)


def device() -> torch.device:
    return torch.device(NAME, 0)


def use_stand_in() -> None:
    """Makes this process have the stand-in."""
    backend_registration._setup_privateuseone_for_python_backend(NAME)
    module = torch.get_device_module(NAME)
    kind = type(module)
    kind.get_amp_supported_dtype = lambda self: [torch.bfloat16, torch.float16]
    kind.manual_seed = kind.manual_seed_all = lambda self, seed: None  # dropout draws from the generator of the CPU
    kind.get_rng_state = lambda self, device=None: torch.empty(0, dtype=torch.uint8)
    kind.set_rng_state = lambda self, state, device=None: None
    kind.set_device = lambda self, device: None
    # `torch.tensor(…, device=…)` goes past the modes.
    kernels = library.Library("aten", "IMPL")
    for name, make in {"empty.memory_format": torch.empty, "empty_strided": torch.empty_strided}.items():

        def on_host(*sizes, make=make, dtype=None, **_):
            return DeviceTensor(make(*sizes, dtype=dtype, device="cpu"))

        kernels.impl(name, on_host, "PrivateUse1")
    kernels.impl("_copy_from", lambda *args: _run(aten._copy_from.default, args, {}), "PrivateUse1")
    kind.kernels = kernels  # which takes its kernels along where it is freed
    _Factories().__enter__()


def choose(is_stand_in: bool) -> None:
    """Whether accelerate and Trainer choose the stand-in, or the CPU."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = str(device()) if is_stand_in else "cpu"


def to_device(model: torch.nn.Module) -> torch.nn.Module:
    """A model on the stand-in; new parameters take the place of the old ones, so shared ones are shared again."""
    model = model.to(device())
    model.tie_weights()
    return model


def _run(func, args, kwargs):
    leaves, form = tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    is_ours = any(isinstance(tensor, DeviceTensor) for tensor in tensors)
    asked = kwargs.get("device")
    asked = None if asked is None else torch.device(asked).type
    if func.overloadpacket is aten._pin_memory:
        pinned = args[0].clone()
        pinned.is_page_locked = True
        return pinned
    if func.overloadpacket is aten.is_pinned:
        return hasattr(args[0], "is_page_locked")
    if not is_ours and asked != NAME:
        return func(*args, **kwargs)
    if func.overloadpacket in COPIES:
        _count_copy(func, args, kwargs, asked)
    else:
        _check_devices(func, tensors)
        _count_wait(func, args, kwargs)
    hosts = [leaf.host if isinstance(leaf, DeviceTensor) else leaf for leaf in leaves]
    host_args, host_kwargs = tree_unflatten(hosts, form)
    if asked == NAME:
        host_kwargs["device"] = torch.device("cpu")
    host_kwargs.pop("non_blocking", None)
    if func.overloadpacket is aten._copy_from:
        host_args[1].copy_(host_args[0])
        return args[1]
    result = SUBSTITUTES.get(func.overloadpacket, func)(*host_args, **host_kwargs)
    known = {id(host): leaf for host, leaf in zip(hosts, leaves, strict=True) if isinstance(leaf, torch.Tensor)}
    for leaf in tensors:
        if isinstance(leaf, DeviceTensor) and leaf.shape != leaf.host.shape:
            raise NotImplementedError(f"{func} changes the shape of a tensor of the stand-in in place.")

    def wrap(value):
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) in known:  # written in place
            return known[id(value)]
        return DeviceTensor(value) if asked in (None, NAME) else value

    return tree_map(wrap, result)


def _check_devices(func, tensors: list[torch.Tensor]) -> None:
    """As on a GPU, a number of the host alone may take part."""
    for tensor in tensors:
        if not isinstance(tensor, DeviceTensor) and tensor.dim() > 0:
            raise RuntimeError(
                f"{func} got tensors of {device()} and one of {tensor.device}, of shape {list(tensor.shape)}, at "
                f"{_line()}. All have to lie on the same device."
            )


def _count_wait(func, args, kwargs) -> None:
    packet = func.overloadpacket
    if packet in WAITING:
        Waits.count(packet.__name__)
    elif packet is aten.repeat_interleave and kwargs.get("output_size") is None:
        Waits.count("repeat_interleave")
    elif packet in (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_):
        if any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]):
            Waits.count("a mask as an index")


def _count_copy(func, args, kwargs, asked: str | None) -> None:
    packet = func.overloadpacket
    if packet is aten._to_copy:
        source = args[0]
        target = asked or (NAME if isinstance(args[0], DeviceTensor) else "cpu")
    else:
        source, destination = (args[0], args[1]) if packet is aten._copy_from else (args[1], args[0])
        target = destination.device.type
    non_blocking = kwargs.get("non_blocking", False) or (packet is not aten._to_copy and args[2:3] == (True,))
    if source.device.type == target or (non_blocking and hasattr(source, "is_page_locked")):
        return
    Waits.count("a copy to the host" if target == "cpu" else "a copy from the host")


def _line() -> str:
    """The line that runs, outside of torch; of another library's, the line of ours that has called it too."""
    frame = sys._getframe(1)
    asking = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(NOT_TOLD) and not name.startswith("<"):
            is_ours = name.startswith(OUR_CODE)
            short = name.removeprefix(f"{ROOT}/").rpartition("site-packages/")[2]
            asking = f"{asking} for " if asking and is_ours else asking
            if is_ours or not asking:
                asking += f"{short}:{frame.f_lineno}"
            if is_ours:
                return asking
        frame = frame.f_back
    return asking or "a backward pass"
