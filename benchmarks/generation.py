"""Speed of generation, beside transformers' OpenAIGPTLMHeadModel and GPT2LMHeadModel and the memory bandwidth.

    python benchmarks/generation.py            # 117 M parameters, prompt 64, 192 new tokens, batch 1 and 8; an hour
    python benchmarks/generation.py --quick    # two small blocks, 16 new tokens: a check that it runs
    python benchmarks/generation.py --save     # also benchmarks/results/<date>-generation.json

All models have the paper's size. Ours and the built-in read one openai-gpt checkpoint of random weights, and their
greedy tokens must agree before anything is measured. The built-in has no key-value cache. Its batch of 8 would take a
quarter of an hour, so it is measured in one round of 48 tokens, at which it is faster than at 192.
Ours is measured in float32 and bfloat16 as opened, and with `GPT1Int8Config`.

Prompt lookup (`prompt_lookup_num_tokens`, one text at a time) is measured on two texts, on which its tokens must be
those of greedy search: one without repetitions, and one that repeats a single token. The latter comes from weights as
they are initialised, and shows the most that lookup can gain.

Each model runs in its own process. A round is one call of `generate` by each model while the others are idle, and the
order changes from round to round. Tokens per second are the new tokens of all rows over the time of the whole call,
prompt included. Tokens per CPU second exclude the time of other programs on a busy machine, but count waiting threads.
The time per token is the time of the call less that of a call for one token. It is compared with the time to read all
weights except the position embeddings once. The bandwidth for this is that of a sum over 256 MiB, measured in the same
process after the call.
"""

import tempfile
import time

import torch
import transformers
from harness import SMALL, comparison, main, rounds_of, running_workers, timed, write_peers
from transformers import GPT2LMHeadModel, OpenAIGPTLMHeadModel

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, GPT1Int8Config
from modeling_gpt1.inference.quantization import GPT1Int8Linear

OURS, PEER, GPT2 = "GPT1ForCausalLM", "OpenAIGPTLMHeadModel", "GPT2LMHeadModel"
BF16 = f"{OURS} bfloat16"
INT8 = f"{OURS} int8"
REPEATING = f"{OURS} float32, a text that repeats itself"
LOOKUP = ", prompt lookup"
WITH_LOOKUP = {OURS: f"{OURS} float32{LOOKUP}", REPEATING: REPEATING + LOOKUP}
BATCHES = (1, 8)
PROMPT = 64
PEER_BATCHED_TOKENS = 48
LOOKUP_TOKENS = 10
# Target ratios of the float32 model to the others, by batch size.
TARGETS = {PEER: {1: 6.0, 8: 12.0}, GPT2: {1: 1.15, 8: 1.15}}
LOOKUP_TARGET = 1.5  # on a text that repeats itself
# At batch size 1, a token may take so many times as long as reading the weights.
MOST_READINGS = {OURS: 1.5, INT8: 2.0}


class Worker:
    """One model. The parent process may call its methods."""

    def __init__(self, name: str, folder: str, num_new: int, threads: int):
        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        self.name = name
        self.num_new = num_new
        model_class = {PEER: OpenAIGPTLMHeadModel, GPT2: GPT2LMHeadModel}.get(name, GPT1ForCausalLM)
        loading = {"dtype": torch.bfloat16 if name == BF16 else torch.float32}
        if name == INT8:
            loading["quantization_config"] = GPT1Int8Config()
        self.model = model_class.from_pretrained(folder, **loading)
        self.options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        if name.endswith(LOOKUP):
            self.options["prompt_lookup_num_tokens"] = LOOKUP_TOKENS
        self.buffer = torch.ones(64 * 2**20)

    def generate(self, batch: int, num_new: int) -> list[list[int]]:
        """The new tokens of each row of a random prompt."""
        generator = torch.Generator().manual_seed(batch)
        input_ids = torch.randint(self.model.config.vocab_size, (batch, PROMPT), generator=generator)
        mask = torch.ones_like(input_ids)
        limits = {"min_new_tokens": num_new, "max_new_tokens": num_new}
        return self.model.generate(input_ids, attention_mask=mask, **limits, **self.options)[:, PROMPT:].tolist()

    def measure(self, batch: int) -> dict[str, float]:
        num_new = min(self.num_new, PEER_BATCHED_TOKENS) if self.name == PEER and batch > 1 else self.num_new
        whole = timed(self.generate, batch, num_new)
        first = timed(self.generate, batch, 1)
        return {
            "tokens/s": batch * num_new / whole["seconds"],
            "tokens/CPU s": batch * num_new / whole["CPU seconds"],
            "ms/token": 1000 * (whole["seconds"] - first["seconds"]) / (num_new - 1),
            "ms to read the weights": 1000 * self.weight_bytes() / self.bandwidth(),
            "GB/s": self.bandwidth() / 1e9,
        }

    def weight_bytes(self) -> int:
        """Bytes of the weights that every token reads."""
        left_out = ["positions_embed.weight", "wpe.weight"]
        left_out += ["tokens_embed.weight"] if self.name == INT8 else []  # its head has 8-bit weights of its own
        parameters = self.model.transformer.named_parameters()
        in_8_bits = [module for module in self.model.modules() if isinstance(module, GPT1Int8Linear)]
        return sum(weight.nbytes for name, weight in parameters if name not in left_out) + sum(
            layer.in_features * layer.out_features for layer in in_8_bits
        )

    def bandwidth(self, rounds: int = 3) -> float:
        """Memory bandwidth in bytes per second."""
        best = float("inf")
        for _ in range(rounds):
            start = time.perf_counter()
            self.buffer.sum()
            best = min(best, time.perf_counter() - start)
        return self.buffer.nbytes / best


def check_tokens(ask: dict, num_new: int) -> None:
    for pair in ((OURS, PEER), *WITH_LOOKUP.items()):
        found, expected = (ask[name]("generate", 1, num_new) for name in pair)
        if found != expected:
            raise RuntimeError(f"Tokens of {' and '.join(pair)}: {found} and {expected}. Nothing was measured.")
        if REPEATING not in pair and len(set(found[0])) < num_new // 2:
            raise RuntimeError(f"The greedy tokens {found} repeat themselves and show nothing. Nothing was measured.")


def measure(names: list[str], folders: dict, num_new: int, rounds: int, threads: int) -> dict[int, dict[str, dict]]:
    """The figures of all rounds, by batch size, model and measure."""
    figures = {}
    with running_workers(Worker, {name: (name, folders[name], num_new, threads) for name in names}) as ask:
        check_tokens(ask, num_new=12)
        for batch in BATCHES:
            measured = [name for name in names if batch == 1 or name != REPEATING and not name.endswith(LOOKUP)]
            for name in measured:
                ask[name]("generate", batch, 2)  # warm-up

            def work(name: str, batch=batch) -> dict[str, float]:
                return ask[name]("measure", batch)

            once = [PEER] if batch > 1 else []
            others = [name for name in measured if name not in once]
            figures[batch] = rounds_of(once, 1, work) | rounds_of(others, rounds, work)
    return figures


def rows_of_batch(batch: int, figures: dict[str, dict[str, list[float]]], num_new: int) -> list[dict]:
    def work_of(ours: str) -> str:
        dtype = ours.removeprefix(OURS).strip() or "float32"
        return f"generation {PROMPT} + {num_new}, batch {batch}, {dtype}"

    def row(ours: str, theirs: str, measure: str, target: float | None = None) -> dict:
        work = work_of(ours)
        of_theirs = figures[theirs][measure]
        if theirs == PEER and batch > 1:
            work += f", the peer's {PROMPT} + {min(num_new, PEER_BATCHED_TOKENS)}"
        return comparison(work, measure, theirs, figures[ours][measure][: len(of_theirs)], of_theirs, target)

    rows = []
    for theirs in (PEER, GPT2):
        rows.append(row(OURS, theirs, "tokens/s", TARGETS[theirs][batch]))
        rows.append(row(OURS, theirs, "tokens/CPU s"))
    for ours in (BF16, INT8):
        rows += [row(ours, OURS, measure) for measure in ("tokens/s", "tokens/CPU s")]
    for greedy, with_lookup in WITH_LOOKUP.items():
        if with_lookup in figures:
            rows.append(row(with_lookup, greedy, "tokens/s", LOOKUP_TARGET if greedy == REPEATING else None))
    for ours in (OURS, BF16, INT8):
        read = figures[ours]["ms to read the weights"]
        of_token = figures[ours]["ms/token"]
        target = 1 / MOST_READINGS[ours] if batch == 1 and ours in MOST_READINGS else None
        rows.append(comparison(work_of(ours), "ms per token", "reading the weights", of_token, read, target))
    return rows


def compare(rounds: int, threads: int, quick: bool) -> list[dict]:
    """The rows of `make bench`."""
    names = [OURS, BF16, INT8, GPT2, PEER, REPEATING, *WITH_LOOKUP.values()]
    num_new = 16 if quick else 192
    with tempfile.TemporaryDirectory() as folder:
        sizes = SMALL if quick else {}
        folders = write_peers(folder, sizes, spread_positions, initializer_range=0.2)
        folders[REPEATING] = folders[REPEATING + LOOKUP] = f"{folder}/repeating"
        GPT1ForCausalLM(GPT1Config(**sizes)).save_pretrained(folders[REPEATING])
        figures = measure(names, {name: folders.get(name, folders[PEER]) for name in names}, num_new, rounds, threads)
    for batch in BATCHES:
        bandwidths = [value for of_name in figures[batch].values() for value in of_name["GB/s"]]
        print(f"batch {batch}: bandwidth {min(bandwidths):.1f} … {max(bandwidths):.1f} GB/s", flush=True)
    return [row for batch in BATCHES for row in rows_of_batch(batch, figures[batch], num_new)]


def spread_positions(model: OpenAIGPTLMHeadModel) -> None:
    """Enlarges weights, above all of the positions. Otherwise a random model's greedy tokens are all the same."""
    torch.nn.init.normal_(model.transformer.positions_embed.weight)


if __name__ == "__main__":
    main(compare)
