"""Makes the model that comes with the package from a checkpoint: weights in bfloat16, tokenizer, measured card.

    python benchmarks/novels.py runs/novels/checkpoint-4000 --validation_files books/validation --data_dir data

The checkpoint is one of `gpt1 pretrain`, with trainer_state.json in it and the run's run.yaml above it. The perplexity
is that of all the held-out text, BLiMP that of `gpt1 evaluate`. The figures go into the model's card and into
`benchmarks/results/<date>-novels.json`, from which the tests read them, the ten lines also into docs/generate.md.
"""

import argparse
import math
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
import yaml
from harness import machine, read_json, save_result
from safetensors.torch import load_file, save_file
from transformers import set_seed

from modeling_gpt1 import NOVELS, GPT1ForCausalLM, GPT1PretrainingArguments, GPT1PretrainingTrainer, continue_prompts
from modeling_gpt1.families import family_of_model
from modeling_gpt1.hub.card import model_card, versions
from modeling_gpt1.training.card import HYPER_PARAMETERS
from tokenization import BlockCollator, GPT1Tokenizer, load_blocks

PAGE = Path(__file__).parents[1] / "docs" / "generate.md"
WRITTEN = r"(?<=<!-- benchmarks/novels.py writes this -->\n```text\n).*?(?=```)"
COPIED = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")
PROMPTS = (
    *("it was", "the old farmer", "she looked at him", '"my dear," said', "in the morning", "he had never"),
    *("the letter", "there was a knock at the door", "mr. smith", "the ship"),
)
GREEDY = "when the door was opened ,"  # the tests ask for the ids that follow
DATA = (
    "936 works of fiction in English (87 million words), published until 1930 and in the public domain; 855 of them "
    "from Project Gutenberg and Standard Ebooks. The list of the works was not kept"
)
WORDS = 87_210_531  # of these works
LIMITS = [
    "It has 5 million parameters: its sentences wander, and its stories do not hold together.",
    "It knows no facts, follows no instructions and answers no questions.",
    "It speaks as English novels did until 1930, with their view of women, of servants, of other classes and of the "
    "peoples that Europe ruled. It has seen no later word, and nothing but fiction.",
]
LICENSE = "The novels are in the public domain. The weights have the licence of the code, Apache 2.0."


def make_folder(checkpoint: Path) -> None:
    """The weights in bfloat16. `dtype` of config.json stays float32: the model opens and trains in it.

    `auto_map` stays, too, although the code is the package's: trl looks into it.
    """
    shutil.rmtree(NOVELS, ignore_errors=True)
    Path(NOVELS).mkdir()
    for name in COPIED:
        shutil.copyfile(checkpoint / name, Path(NOVELS, name))
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(checkpoint / "model.safetensors").items()}
    save_file(weights, Path(NOVELS, "model.safetensors"), metadata={"format": "pt"})


def measure(model, tokenizer, args: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        trainer = GPT1PretrainingTrainer(
            model,
            GPT1PretrainingArguments(folder, per_device_eval_batch_size=8, use_cpu=True, report_to="none"),
            eval_dataset=load_blocks([args.validation_files], tokenizer, cache_dir=f"{folder}/cache"),
            data_collator=BlockCollator(tokenizer),
            processing_class=tokenizer,
        )
        loss = trainer.evaluate()["eval_loss"]
        command = [sys.executable, "-m", "modeling_gpt1.commands", "evaluate", "--model", NOVELS, "--tasks", "blimp"]
        command += ["--data_dir", args.data_dir, "--output_dir", f"{folder}/blimp", "--device", "cpu"]
        subprocess.run([*command, *args.evaluate_arguments], check=True)
        blimp = read_json(Path(folder, "blimp", "results.json"))["groups"]["blimp"]
    return {"perplexity": math.exp(loss), "blimp": blimp["acc,none"], "blimp_rows": blimp["sample_len"]}


def write(model, tokenizer) -> dict:
    set_seed(0)
    texts = continue_prompts(model, tokenizer, PROMPTS, max_new_tokens=24, do_sample=True, top_k=40, temperature=0.8)
    ids = tokenizer(GREEDY, add_special_tokens=False, return_tensors="pt")["input_ids"]
    greedy = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    lines = [" ".join(f"{prompt}{text}".split()) for prompt, (text,) in zip(PROMPTS, texts, strict=True)]
    return {"lines": lines, "prompt": GREEDY, "greedy": greedy.tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--validation_files", required=True)
    parser.add_argument("--data_dir", required=True, help="has the folder blimp")
    parser.add_argument("--evaluate_arguments", nargs=argparse.REMAINDER, default=[], help="more of gpt1 evaluate")
    args = parser.parse_args()
    state = read_json(args.checkpoint / "trainer_state.json")
    settings = yaml.safe_load((args.checkpoint.parent / "run.yaml").read_text(encoding="utf-8"))
    logged = [record["words_seen"] for record in state["log_history"] if "words_seen" in record]
    make_folder(args.checkpoint)
    model = GPT1ForCausalLM.from_pretrained(NOVELS).eval()
    tokenizer = GPT1Tokenizer.from_pretrained(NOVELS)
    words = (logged or [WORDS])[-1]  # only a run with save points by words logs them
    result = {"updates": state["global_step"], "tokens": state["num_input_tokens_seen"], "words": words}
    result |= write(model, tokenizer) | measure(model, tokenizer, args)
    facts = replace(
        family_of_model(model).card_facts(model, Path(NOVELS).name),
        license="apache-2.0",
        language="en",
        place="modeling_gpt1.NOVELS",
        data={
            "data": DATA,
            "held out": "five novels: Burnett 1886, Doyle 1902, Forster 1908, Gissing 1893, Haggard 1885",
            "tokens seen in training": f"{result['tokens']:,}",
            "words read in training": f"{words:,}",
            "licence": LICENSE,
        },
        results=[
            {"name": "perplexity per token", "split": "held out", "value": result["perplexity"]},
            {"name": "accuracy", "split": f"BLiMP, {result['blimp_rows']:,} pairs", "value": result["blimp"]},
        ],
        hyper_parameters={name: settings[name] for name in HYPER_PARAMETERS if name in settings}
        | {"updates": f"{result['updates']:,} of {state['max_steps']:,}"},
        versions=versions(),
        limits=LIMITS,
    )
    model_card(facts).save(Path(NOVELS, "README.md"))
    lines = "".join(f"{line}\n" for line in result["lines"])
    text = re.sub(WRITTEN, lambda _: lines, PAGE.read_text(encoding="utf-8"), count=1, flags=re.DOTALL)
    PAGE.write_text(text, encoding="utf-8")
    print("\n".join(result["lines"]))
    print({name: value for name, value in result.items() if name != "lines"})
    save_result("novels", machine(), result)


if __name__ == "__main__":
    main()
