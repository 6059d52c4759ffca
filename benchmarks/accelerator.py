"""Speed and memory on a GPU, beside transformers' OpenAIGPT and GPT-2 classes.

    python benchmarks/accelerator.py          # 117 M parameters on the accelerator that torch finds; minutes
    python benchmarks/accelerator.py --quick  # tiny models and batches, also on a CPU: a check of the script
    python benchmarks/accelerator.py --save   # also benchmarks/results/<date>-accelerator.json

All models have the paper's size and lie on the device together. Ours and the built-in read one openai-gpt checkpoint
of random weights. Before training is measured, their losses and gradient norms without dropout must agree to 1e-4, and
before generation their greedy tokens in float32 must be the same.

A round is one piece of work by each model in turn, and the order changes from round to round. Each is timed until the
device has finished, after one round that is not counted. Ratios are computed round by round. Memory is the peak of
what torch has allocated during the work, less what lay on the device before it.

- Pre-training: forward in training mode (dropout 0.1), backward, fused AdamW; float32, bfloat16 autocast, and bfloat16
  compiled: of ours the blocks, as `--torch_compile` does, and as a peer the whole; of the built-in classes the whole.
- Fine-tuning with both losses: forward and backward, as `finetuning.py` describes it, in the same three ways.
- Generation: greedy, of whole batches, with each model's own default cache, and ours with the static cache, which
  transformers compiles on a GPU; weights in float32 and in bfloat16.
"""

import contextlib
import functools
import tempfile
import time
from collections.abc import Callable, Iterator

import torch
import transformers
from finetuning import MODELS as DOUBLE_HEADS
from finetuning import OURS as OUR_HEADS
from finetuning import PEER as BUILT_IN_HEADS
from finetuning import make_batch
from generation import spread_positions
from harness import MIB, SMALL, check_agreement, comparisons, main, rounds_of, without_dropout, write_peers
from transformers import GPT2LMHeadModel, OpenAIGPTDoubleHeadsModel, OpenAIGPTLMHeadModel

from modeling_gpt1 import GPT1ForCausalLM
from modeling_gpt1.inference.devices import default_device
from modeling_gpt1.training.compilation import compiled_blocks, compiled_parts

OURS, PEER, GPT2 = "GPT1ForCausalLM", "OpenAIGPTLMHeadModel", "GPT2LMHeadModel"
CLASSES = {OURS: GPT1ForCausalLM, PEER: OpenAIGPTLMHeadModel, GPT2: GPT2LMHeadModel}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WAYS = {"float32": (False, False), "bfloat16": (True, False), "bfloat16 compiled": (True, True)}  # bf16, compiled
STATIC, WHOLE = "GPT1ForCausalLM, static cache", "GPT1ForCausalLM, compiled as a whole"
BLOCKS = (32, 512)
# As in finetuning.py, but batches of a GPU: B examples, C sequences each, T tokens, tokens that the sequences share.
FINE_TUNING = {"RACE-shaped step": (8, 4, 380, 360), "Story-Cloze-shaped step": (32, 2, 64, 50)}
GENERATED = ((1, 64, 64), (8, 64, 64), (32, 64, 64), (64, 64, 64))  # rows, tokens of the prompt, new tokens
QUICK_BLOCKS = (2, 16)
QUICK_FINE_TUNING = {"RACE-shaped step": (1, 4, 32, 20)}
QUICK_GENERATED = ((2, 8, 4),)
Work = Callable[[], object]


class Accelerator:
    """The device, and what is measured on it."""

    def __init__(self):
        self.device = default_device()
        self.is_cpu = self.device.type == "cpu"
        self.compiler = {"backend": "eager"} if self.is_cpu else {}  # a CPU only checks the script

    @contextlib.contextmanager
    def precision(self, is_bf16: bool) -> Iterator[None]:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=is_bf16):
            yield

    def callers(self, models: dict, ours: str, **options) -> dict[str, Callable]:
        """The models as they are called compiled: of ours the blocks, of the others the whole."""
        parts = compiled_parts(**self.compiler, **options)
        callers = {name: torch.compile(model, **self.compiler) for name, model in models.items() if name != ours}

        def call_ours(*args, **kwargs):
            with compiled_blocks(models[ours], parts):
                return models[ours](*args, **kwargs)

        return {**callers, ours: call_ours}

    def measure(self, work: Work) -> dict[str, float]:
        """Seconds of one piece of work, and the MiB that it needs."""
        if self.is_cpu:
            start = time.perf_counter()
            work()
            return {"seconds": time.perf_counter() - start}
        torch.accelerator.synchronize()
        torch.accelerator.reset_peak_memory_stats()
        before = torch.accelerator.memory_allocated()
        start = time.perf_counter()
        work()
        torch.accelerator.synchronize()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "peak MiB": (torch.accelerator.max_memory_allocated() - before) / MIB}


def rows_of(accelerator: Accelerator, work: str, works: dict[str, Work], rounds: int) -> list[dict]:
    for warm_up in works.values():
        warm_up()
    figures = rounds_of(list(works), rounds, lambda name: accelerator.measure(works[name]))
    return comparisons(work, figures, next(iter(works)), {})


# ---- Training


def opened(model_class: type, folder: str, device: torch.device, dtype: torch.dtype = torch.float32):
    return model_class.from_pretrained(folder, dtype=dtype).to(device)


def check_models(loss: Callable, models: dict, peer: str) -> None:
    """Raises RuntimeError unless all models have the peer's loss and gradient norm in float32 without dropout."""
    losses = {name: functools.partial(lambda name: {"loss": loss(name, models[name])}, name) for name in models}
    check_agreement({name: without_dropout(models[name], of_model) for name, of_model in losses.items()}, peer)


def pretraining(accelerator: Accelerator, folders: dict, blocks: tuple[int, int], rounds: int) -> list[dict]:
    rows = []
    models = {name: opened(of, folders.get(name, folders[PEER]), accelerator.device) for name, of in CLASSES.items()}
    input_ids = torch.randint(models[OURS].config.vocab_size, blocks, device=accelerator.device)

    def loss(name: str, model) -> torch.Tensor:
        cache = {} if name == PEER else {"use_cache": False}
        return model(input_ids=input_ids, labels=input_ids, **cache).loss

    check_models(loss, {name: models[name] for name in (OURS, PEER)}, PEER)
    optimizers = {name: torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True) for name, model in models.items()}

    compiled = accelerator.callers(models, OURS)
    compiled[WHOLE] = torch.compile(models[OURS], **accelerator.compiler)
    optimizers[WHOLE] = optimizers[OURS]

    def step(name: str, is_bf16: bool, is_compiled: bool) -> None:
        with accelerator.precision(is_bf16):
            of_step = loss(name, (compiled if is_compiled else models)[name])
        of_step.backward()
        optimizers[name].step()
        optimizers[name].zero_grad()

    for way, how in WAYS.items():
        works = {name: functools.partial(step, name, *how) for name in (*models, *[WHOLE] * how[1])}
        rows += rows_of(accelerator, f"pre-training step {blocks[0]} × {blocks[1]}, {way}", works, rounds)
    return rows


def fine_tuning(accelerator: Accelerator, folder: str, shapes: dict, rounds: int) -> list[dict]:
    rows = []
    models = {name: opened(DOUBLE_HEADS[name][0], folder, accelerator.device) for name in (OUR_HEADS, BUILT_IN_HEADS)}
    for shape_name, shape in shapes.items():
        batch = make_batch(shape, models[OUR_HEADS].config.vocab_size)
        batch = {name: tensor.to(accelerator.device) for name, tensor in batch.items()}

        def loss(name: str, model, batch=batch) -> torch.Tensor:
            return DOUBLE_HEADS[name][1](model, batch)["loss"]

        check_models(loss, models, BUILT_IN_HEADS)

        compiled = accelerator.callers(models, OUR_HEADS, dynamic=True)

        def step(name: str, is_bf16: bool, is_compiled: bool, loss=loss, compiled=compiled) -> None:
            with accelerator.precision(is_bf16):
                of_step = loss(name, (compiled if is_compiled else models)[name])
            of_step.backward()
            models[name].zero_grad()

        for way, how in WAYS.items():
            works = {name: functools.partial(step, name, *how) for name in models}
            work = f"{shape_name} {' × '.join(map(str, shape[:3]))}, {shape[3]} shared, {way}"
            rows += rows_of(accelerator, work, works, rounds)
    return rows


# ---- Generation


def generation(accelerator: Accelerator, folders: dict, sizes: tuple, rounds: int) -> list[dict]:
    rows = []
    for dtype_name, dtype in DTYPES.items():
        models = {
            name: opened(of, folders.get(name, folders[PEER]), accelerator.device, dtype).eval()
            for name, of in CLASSES.items()
        }

        def generate(name: str, input_ids: torch.Tensor, num_new: int, models=models) -> list[list[int]]:
            limits = {"min_new_tokens": num_new, "max_new_tokens": num_new, "do_sample": False}
            if name == STATIC:
                limits["cache_implementation"] = "static"
            mask = torch.ones_like(input_ids)
            return (
                models[OURS if name == STATIC else name]
                .generate(input_ids, attention_mask=mask, pad_token_id=0, eos_token_id=None, **limits)
                .tolist()
            )

        for batch, length, num_new in sizes:
            generator = torch.Generator().manual_seed(batch)
            prompt = torch.randint(models[OURS].config.vocab_size, (batch, length), generator=generator)
            prompt = prompt.to(accelerator.device)
            if dtype_name == "float32" and generate(OURS, prompt[:1], 12) != generate(PEER, prompt[:1], 12):
                raise RuntimeError("The models disagree in their greedy tokens. Nothing was measured.")
            works = {name: functools.partial(generate, name, prompt, num_new) for name in (*models, STATIC)}
            work = f"generation {length} + {num_new}, batch {batch}, {dtype_name}"
            rows += rows_of(accelerator, work, works, rounds)
    return rows


# ---- The script


def compare(rounds: int, quick: bool) -> list[dict]:
    """The rows of the table."""
    accelerator = Accelerator()
    if accelerator.is_cpu and not quick:
        raise RuntimeError("torch finds no accelerator. --quick checks the script on a CPU.")
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    sizes = SMALL if quick else {}
    with tempfile.TemporaryDirectory() as folder:
        folders = write_peers(folder, sizes)
        rows = pretraining(accelerator, folders, QUICK_BLOCKS if quick else BLOCKS, rounds)
        torch.manual_seed(0)
        OpenAIGPTDoubleHeadsModel(transformers.OpenAIGPTConfig(**sizes)).save_pretrained(f"{folder}/heads")
        rows += fine_tuning(accelerator, f"{folder}/heads", QUICK_FINE_TUNING if quick else FINE_TUNING, rounds)
    with tempfile.TemporaryDirectory() as folder:
        folders = write_peers(folder, sizes, spread_positions, initializer_range=0.2)
        return rows + generation(accelerator, folders, QUICK_GENERATED if quick else GENERATED, rounds)


if __name__ == "__main__":
    main(compare)
