"""The model `gpt1` of lm-evaluation-harness beside its model `hf`: the same numbers, and the time of both.

    python benchmarks/evaluation.py out/books out/lstm                 # saved folders, and a tiny random GPT-2
    python benchmarks/evaluation.py out/books --max_rows 100 --save    # also benchmarks/results/<date>-evaluation.json

`GPT1_DATA_DIR` names the folder of the data sets. Each task is built once, and both models answer the same requests in
one process, in turns. Time is processor time of one thread in `loglikelihood` or `loglikelihood_rolling`, tokenising
included; the first round warms up. A folder of a fine-tuned model is asked with `add_bos_token=False` by `hf`.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
import transformers
from harness import default_data, machine, save_result
from lm_eval.models.huggingface import HFLM
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, GPT2Tokenizer

from modeling_gpt1.evaluation.harness import SharedContextLM
from modeling_gpt1.evaluation.local_rows import all_tasks, specify_tasks

TASKS = (
    *("arc_easy", "arc_challenge", "openbookqa", "race", "hellaswag", "piqa", "winogrande", "storycloze_2016"),
    *("boolq", "cb", "copa", "wic", "rte", "lambada_standard", "wikitext"),
)
PAGES = 3  # of WikiText: texts of thousands of tokens


def write_gpt2(folder: str, data_dir: Path) -> str:
    """A tiny random GPT-2 with a byte-level BPE."""
    text = (data_dir / "wikitext2_raw" / "wiki.valid.raw").read_text(encoding="utf-8")
    tokenizer = GPT2Tokenizer().train_new_from_iterator(text.splitlines(keepends=True), 8000, show_progress=False)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=128, n_layer=2, n_head=4, n_positions=512)
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def answer(model, instances: list) -> tuple[list, float]:
    method = getattr(model, instances[0].request_type)
    started = time.process_time()
    found = method(instances, disable_tqdm=True)
    return found, time.process_time() - started


def difference(ours, theirs) -> float:
    """The largest relative difference of two log-probabilities."""
    pairs = zip(ours, theirs, strict=True)
    pairs = [(one, other) if isinstance(one, float) else (one[0], other[0]) for one, other in pairs]
    return max(abs(one - other) / abs(other) for one, other in pairs)


def compare(folder: str, tasks: dict, rounds: int) -> list[dict]:
    """A line per task: difference, greediness, and the times of both models."""
    has_control = getattr(AutoTokenizer.from_pretrained(folder), "has_control_tokens", False)
    options = {"add_bos_token": False} if has_control else {}
    ours = SharedContextLM(folder, device="cpu", dtype="float32")
    hf = HFLM(folder, device="cpu", dtype="float32", batch_size=8, **options)
    lines = []
    for name, instances in tasks.items():
        of_round = []
        for _ in range(rounds + 1):
            found, our_time = answer(ours, instances)
            expected, time_of_hf = answer(hf, instances)
            of_round.append((our_time, time_of_hf))
        ratios = [slow / fast for fast, slow in of_round[1:]]
        is_rolling = instances[0].request_type == "loglikelihood_rolling"
        line = {
            "task": name,
            "requests": len(instances),
            "relative_difference": difference(found, expected),
            "same_greedy": is_rolling or all(one[1] == other[1] for one, other in zip(found, expected, strict=True)),
            "seconds": round(statistics.median(fast for fast, _ in of_round[1:]), 3),
            "times_as_fast": [round(value, 2) for value in (min(ratios), statistics.median(ratios), max(ratios))],
        }
        print(line, flush=True)
        lines.append(line)
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="saved causal language models")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--max_rows", type=int, default=25, help="rows of each task")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    data_dir = default_data()
    with tempfile.TemporaryDirectory() as folder:
        specified, _ = specify_tasks(args.tasks, data_dir)
        tasks = {}
        for name, task in all_tasks().load(specified)["tasks"].items():
            task.build_all_requests(limit=PAGES if name == "wikitext" else args.max_rows, rank=0, world_size=1)
            tasks[name] = task.instances
        folders = {Path(path).name: path for path in args.folders}
        folders["tiny random GPT-2"] = write_gpt2(str(Path(folder, "gpt2")), data_dir)
        results = {name: compare(path, tasks, args.rounds) for name, path in folders.items()}
    worst = max(line["relative_difference"] for lines in results.values() for line in lines)
    print(f"largest relative difference: {worst:.1e}")
    if args.save:
        save_result("evaluation", machine(threads=1), {"max_rows": args.max_rows, "models": results})


if __name__ == "__main__":
    main()
