"""Tokenizers for any alphabet: what comes back of a text, a sequence whose entropy is known, and program code.

    python benchmarks/alphabets.py --work_dir runs/alphabets                       # all three, some 30 minutes
    python benchmarks/alphabets.py --work_dir runs/alphabets --only round_trip
    python benchmarks/alphabets.py --work_dir runs/alphabets --save                # the figures as a dated file

- `round_trip`: random texts of all of Unicode, Python files of the standard library and DNA, encoded by each kind of
  tokenizer and decoded again. Only bytes and characters promise to give a text back.
- `entropy`: letters A, C, G, T of which each depends on the four before it (a 5-gram source). Its entropy is computed
  from its stationary distribution. A model of characters cannot have a lower loss. The loss is that of letters with
  four or more before them in their window.
- `python_source`: the same model with the same number of updates of the same number of tokens on the Python files of
  the standard library, with the byte-level tokenizer and with the paper's. Each has the best of three learning rates
  on a part cut from the training files. The loss of held-out files is in bits per byte of their text. The paper's
  tokenizer drops capitals and white space, so its bits are those of less text.

A finished part or training is not run again.
"""

import argparse
import json
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from harness import machine, read_json, run_counted, save_result, words_of, write_json

from modeling_gpt1 import GPT1ForCausalLM
from tokenization import TOKENIZER_KINDS, load_blocks, open_tokenizer, train_tokenizer

LETTERS = "ACGT"
ORDER = 4  # letters that the next one depends on
SEED = 0
NUM_TEXTS = 100_000
HELD_OUT_FILES = 10  # one of so many Python files is held out
NUM_MERGES = 4_000
RATES = (5e-4, 1e-3, 3e-3)  # the learning rates of the trials on Python files
NO_DROPOUT = "embd_pdrop=0,resid_pdrop=0,attn_pdrop=0"
# With norms before the sub-blocks, as GPT-2's: 1,500 updates of 1,024 letters took it to a loss of 0.93, and to 1.17
# with the paper's order.
SMALL = (
    "hidden_size=64,num_hidden_layers=2,num_attention_heads=4,max_position_embeddings=128,initializer_range=0.05,"
    f"do_layer_norm_before=true,{NO_DROPOUT}"
)
MODEL = f"hidden_size=256,num_hidden_layers=4,num_attention_heads=4,initializer_range=0.035,{NO_DROPOUT}"


# ---- What comes back of a text


def random_texts(number: int) -> list[str]:
    """Texts of 1 to 19 characters, of 1, 2, 3 and 4 bytes alike."""
    generator = random.Random(SEED)
    ranges = [(0x20, 0x7F), (0x80, 0x800), (0x800, 0xD800), (0x10000, 0x110000)]
    texts = []
    for _ in range(number):
        codes = [generator.randrange(*generator.choice(ranges)) for _ in range(generator.randrange(1, 20))]
        texts.append("".join(map(chr, codes)))
    return texts


def python_files() -> tuple[list[str], list[str]]:
    """The Python files of the standard library, to train on and held out."""
    texts = []
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        texts.append(path.read_text(encoding="utf-8"))
    held_out = texts[::HELD_OUT_FILES]
    return [text for number, text in enumerate(texts) if number % HELD_OUT_FILES], held_out


def round_trip(work_dir: Path) -> dict:
    """Of each kind of text and tokenizer, how many texts of how many come back as they were."""
    code, held_out = python_files()
    letters = letters_of(source())
    dna = ["".join(next(letters) for _ in range(200)) for _ in range(500)]
    texts = {"random UTF-8": random_texts(NUM_TEXTS), "Python files": held_out, "DNA": dna}
    found = {}
    for kind in TOKENIZER_KINDS:
        merges = None if kind == "characters" else NUM_MERGES
        tokenizer = train_tokenizer(iter([*code, *dna]), kind, merges, show_progress=False)
        found[kind] = {}
        for name, of_kind in texts.items():
            ids = tokenizer(of_kind, add_special_tokens=False, verbose=False)["input_ids"]
            decoded = tokenizer.batch_decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            same = sum(before == after for before, after in zip(of_kind, decoded, strict=True))
            found[kind][name] = {"same": same, "texts": len(of_kind)}
    return found


# ---- A sequence whose entropy is known


def source() -> np.ndarray:
    """Probabilities of the next letter, `[4 ** ORDER, 4]`: a row for each state of the letters before."""
    return np.random.default_rng(SEED).dirichlet([0.5] * len(LETTERS), size=len(LETTERS) ** ORDER)


def entropy_of(probabilities: np.ndarray) -> float:
    """Entropy of the source in nats a letter."""
    num_states, num_letters = probabilities.shape
    share = np.full(num_states, 1 / num_states)  # of each state: the stationary distribution
    following = (np.arange(num_states)[:, None] * num_letters + np.arange(num_letters)) % num_states
    for _ in range(1_000):
        share = np.bincount(following.ravel(), weights=(share[:, None] * probabilities).ravel(), minlength=num_states)
    return float(-(share[:, None] * probabilities * np.log(probabilities)).sum())


def letters_of(probabilities: np.ndarray, seed: int = SEED) -> Iterator[str]:
    """Letters without end, after a beginning that the source forgets."""
    generator = np.random.default_rng(seed + 1)
    upper = probabilities.cumsum(axis=1)
    state = 0
    while True:
        for drawn in generator.random(10_000):
            letter = min(int(np.searchsorted(upper[state], drawn)), len(LETTERS) - 1)
            state = (state * len(LETTERS) + letter) % len(probabilities)
            yield LETTERS[letter]


def entropy(work_dir: Path) -> dict:
    """The loss of a model of characters beside the entropy of what it reads, in nats a letter."""
    probabilities = source()
    for name, seed, number in (("train", 1, 2_000_000), ("held_out", 2, 200_000)):
        letters = letters_of(probabilities, seed)
        (work_dir / f"{name}.txt").write_text("".join(next(letters) for _ in range(number)))
    result = pretrain(
        work_dir,
        tokenizer="characters",
        train_files=work_dir / "train.txt",
        validation_files=work_dir / "held_out.txt",
        config_overrides=SMALL,
        learning_rate=3e-3,
        warmup_steps=100,
        max_steps=4_000,
        per_device_train_batch_size=16,
    )
    exact = entropy_of(probabilities)
    loss = loss_with_context(work_dir / "out", (work_dir / "held_out.txt").read_text())
    return {**result, "loss_with_context": loss, "entropy": exact, "loss_over_entropy": loss / exact}


def loss_with_context(folder: Path, text: str) -> float:
    """Mean −log P, in nats, of the letters that have at least four before them in their window of the text."""
    model = GPT1ForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor(open_tokenizer(folder)(text, verbose=False)["input_ids"])
    windows = ids.unfold(0, model.config.max_position_embeddings, model.config.max_position_embeddings - ORDER)
    losses = []
    with torch.no_grad():
        for batch in windows.split(64):
            log_probabilities = model(batch).logits[:, :-1].log_softmax(-1)
            of_next = log_probabilities.gather(-1, batch[:, 1:, None]).squeeze(-1)
            losses.append(-of_next[:, ORDER - 1 :])
    return float(torch.cat(losses).double().mean())


# ---- Program code


def python_source(work_dir: Path) -> dict:
    """Bits per byte of held-out Python files, by the tokenizer, each with the best of the same learning rates."""
    train, held_out = python_files()
    tuning = train[::HELD_OUT_FILES]
    rest = [text for number, text in enumerate(train) if number % HELD_OUT_FILES]
    for name, texts in (("train", rest), ("tuning", tuning), ("held_out", held_out)):
        with (work_dir / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            for text in texts:
                print(json.dumps({"text": text}), file=file)
    num_bytes = sum(len(text.encode()) for text in held_out)
    results = {}
    for kind in ("bytes", "gpt1"):
        trials = {}
        for rate in RATES:
            trials[rate] = pretrain(
                work_dir / f"{kind}-{rate}",
                tokenizer=kind,
                num_merges=NUM_MERGES,
                train_files=work_dir / "train.jsonl",
                validation_files=work_dir / "tuning.jsonl",
                mix_documents=True,
                config_overrides=MODEL,
                learning_rate=rate,
                warmup_steps=30,
                max_steps=300,
                per_device_train_batch_size=4,
            )
        best = min(trials, key=lambda rate: trials[rate]["eval_loss"])
        nats = nats_of_text(work_dir / f"{kind}-{best}" / "out", work_dir / "held_out.jsonl")
        results[kind] = {
            "tuning_loss": {str(rate): trial["eval_loss"] for rate, trial in trials.items()},
            "learning_rate": best,
            "bits_per_byte": nats / np.log(2) / num_bytes,
        }
    return {**results, "held_out_bytes": num_bytes}


def nats_of_text(folder: Path, file: Path) -> float:
    """−log P of a file by a saved model, in nats. The first token of each block costs as much as the others do."""
    model = GPT1ForCausalLM.from_pretrained(folder).eval()
    tokenizer = open_tokenizer(folder)
    length = model.config.max_position_embeddings
    blocks = load_blocks(str(file), tokenizer, block_length=length, mix_documents=True)
    nats = 0.0
    for block in blocks:
        ids = torch.tensor([block["input_ids"]])
        with torch.no_grad():
            nats += model(ids, labels=ids).loss.item() * ids.shape[1]
    return nats


def pretrain(folder: Path, **flags) -> dict:
    """Pre-trains in a process of its own. Returns the loss of the validation files, and processor seconds."""
    result_path = folder / "result.json"
    if not result_path.exists():
        folder.mkdir(exist_ok=True)
        output_dir = folder / "out"
        rest = {"use_cpu": True, "save_strategy": "no", "seed": SEED, "report_to": "none", "disable_tqdm": True}
        counted = run_counted(words_of("pretrain", {**flags, **rest, "output_dir": output_dir}), folder)
        evaluated = read_json(output_dir / "eval_results.json")
        write_json(result_path, {"eval_loss": evaluated["eval_loss"], "processor_seconds": counted["seconds"]})
    return read_json(result_path)


PARTS = {"round_trip": round_trip, "entropy": entropy, "python_source": python_source}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work_dir", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=[*PARTS])
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    results = arguments.work_dir / "results.json"
    finished = read_json(results, {})
    for name in arguments.only:
        if name not in finished:
            folder = arguments.work_dir / name
            folder.mkdir(parents=True, exist_ok=True)
            finished[name] = PARTS[name](folder)
            write_json(results, finished)
        print(name, json.dumps(finished[name], indent=1))
    if arguments.save:
        save_result("alphabets", machine(), finished)


if __name__ == "__main__":
    main()
