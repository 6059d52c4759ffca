"""Memory and time of `gpt1 finetune` with a BERT beside a GPT-1 of the same size, on the same rows of RTE.

    GPT1_DATA_DIR=data python benchmarks/other_families.py           # 110 M parameters each: some minutes
    GPT1_DATA_DIR=data python benchmarks/other_families.py --quick   # tiny models: a check of the script
    GPT1_DATA_DIR=data python benchmarks/other_families.py --save    # also results/<date>-other-families.json

Both folders have random weights: BERT's base size with a WordPiece of RTE's sentences, and openai-gpt's size with
OpenAI's BPE. Each command runs in a process of its own, one after the other. The time of an update is that of a run of
`UPDATES` further updates after the first, divided by their number, in CPU seconds of one thread, which exclude other
programs. The memory is the peak of the whole process. The rows come in the order of the file, so that the updates of
all runs have the same ones; GPT-1 skips their padding, which BERT computes.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from harness import SMALL, default_data, machine, read_json, released_tokenizer, run_counted, save_result
from tokenizers import BertWordPieceTokenizer
from transformers import BertConfig, BertModel, BertTokenizer, OpenAIGPTConfig, OpenAIGPTLMHeadModel

UPDATES = 4
RUNS = {
    "bert": ["--model", "bert"],
    "openai-gpt, λ = 0": ["--model", "openai-gpt", "--lm_coef", "0"],
    "openai-gpt, λ = 0.5": ["--model", "openai-gpt"],
}
SMALL_BERT = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write_folders(folder: Path, data: Path, quick: bool) -> None:
    rows = [json.loads(line) for line in (data / "rte" / "train.jsonl").open(encoding="utf-8")]
    trained = BertWordPieceTokenizer()
    texts = (text for row in rows for text in (row["sentence1"], row["sentence2"]))
    trained.train_from_iterator(texts, vocab_size=30522, min_frequency=1, show_progress=False, special_tokens=SPECIALS)
    BertTokenizer(vocab=trained.get_vocab(), model_max_length=512).save_pretrained(folder / "bert")
    BertModel(BertConfig(**(SMALL_BERT if quick else {}))).save_pretrained(folder / "bert")
    tokenizer = released_tokenizer(data / "openai_gpt_bpe")
    tokenizer.save_pretrained(folder / "openai-gpt")
    sizes = {**SMALL, "vocab_size": len(tokenizer)} if quick else {}
    OpenAIGPTLMHeadModel(OpenAIGPTConfig(**sizes)).save_pretrained(folder / "openai-gpt")


def run(words: list[str], folder: Path, data: Path, num_updates: int) -> tuple[float, float]:
    """CPU seconds and peak memory in GiB of one command."""
    output, attempt = folder / "output", Path(tempfile.mkdtemp(dir=folder))
    command = [
        *(sys.executable, "-m", "modeling_gpt1.commands", "finetune", "--task", "rte", "--data_dir", str(data)),
        *(*words, "--do_train", "--use_cpu", "--output_dir", str(output), "--max_steps", str(num_updates)),
        *("--max_train_samples", "512", "--per_device_train_batch_size", "8", "--save_strategy", "no"),
        *("--train_sampling_strategy", "sequential", "--disable_tqdm", "true", "--seed", "0"),
    ]
    if run_counted(command, attempt, {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}):
        raise RuntimeError(f"{' '.join(command)} failed:\n{(attempt / 'output.txt').read_text()[-3000:]}")
    shutil.rmtree(output)
    counted = read_json(attempt / "processor_seconds.json")
    return counted["seconds"], counted["peak_bytes"] / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    data, results = default_data().resolve(), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_folders(folder, data, args.quick)
        for title, (flag, model, *others) in RUNS.items():
            words = [flag, str(folder / model), *others]
            first, _ = run(words, folder, data, 1)
            seconds, memory = run(words, folder, data, 1 + UPDATES)
            results[title] = {
                "cpu_seconds_per_update": round((seconds - first) / UPDATES, 2),
                "cpu_seconds_of_the_run": round(seconds, 1),
                "peak_gib": round(memory, 2),
            }
            print(title, results[title], flush=True)
    if args.save:
        save_result("other-families", {**machine(threads=1), "rows_per_update": 8, "updates": UPDATES}, results)


if __name__ == "__main__":
    main()
