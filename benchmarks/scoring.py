"""Speed and memory of scoring the answers to RACE's questions, beside scoring each whole sequence.

    python benchmarks/scoring.py            # 117 M parameters, 8 questions of 4 answers; some minutes a round
    python benchmarks/scoring.py --quick    # a tiny model and 2 questions: a check that it runs
    python benchmarks/scoring.py --save     # also benchmarks/results/<date>-scoring.json

The task is that of the zero-shot heuristic: the log-probability of every token of every answer, given the document and
the question. Three methods read one openai-gpt checkpoint of random weights:

- `CausalLMScorer`, which encodes each document once;
- `CausalLMScorer` with `shares_contexts` set to False, also in batches and with logits of the answers only;
- transformers' OpenAIGPTLMHeadModel, one answer after the other, with logits of the whole sequence and log-softmax at
  the answer.

Their log-probabilities must agree to 1e-4 before anything is measured. Questions are drawn from RACE's validation sets
in OpenAI's BPE if the folder named by `GPT1_DATA_DIR` has race/ and openai_gpt_bpe/, and otherwise are random ids of
such lengths: documents and questions of 75 to 505 tokens, 340 on average, and answers of 1 to 13.

Each method runs in its own process. A round is one pass of each method over all questions while the others are idle,
and the order changes from round to round. The script measures wall-clock seconds, CPU seconds of all threads, which
exclude the time of other programs on a busy machine, and the peak of the process's resident memory during the pass.
"""

import json
import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from harness import SMALL, check_agreement, comparisons, main, released_tokenizer, rounds_of, running_workers, timed
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from modeling_gpt1 import CausalLMScorer, GPT1ForCausalLM

OURS, WHOLE, PEER = "CausalLMScorer", "CausalLMScorer, answers whole", "OpenAIGPTLMHeadModel"
NUM_QUESTIONS, NUM_ANSWERS = 8, 4
TARGET = 4.0  # for the ratios of time


class Worker:
    """One way of scoring. The parent process may call its methods."""

    def __init__(self, name: str, folder: str, threads: int, questions: list[tuple[list[int], list[list[int]]]]):
        torch.set_num_threads(threads)
        transformers.utils.logging.disable_progress_bar()
        model_class = OpenAIGPTLMHeadModel if name == PEER else GPT1ForCausalLM
        self.model = model_class.from_pretrained(folder, dtype=torch.float32).eval()
        self.scorer = None if name == PEER else CausalLMScorer(self.model)
        if self.scorer is not None:
            self.scorer.shares_contexts = name == OURS
        self.questions = questions

    def score(self) -> list[list[Sequence[float]]]:
        """The log-probability of every token of every answer."""
        if self.scorer is None:
            return [[self.score_whole(context, answer) for answer in answers] for context, answers in self.questions]
        return [[score.token_log_probs for score in scores] for scores in self.scorer.score_ids(self.questions)]

    @torch.no_grad()
    def score_whole(self, context: list[int], answer: list[int]) -> list[float]:
        logits = self.model(torch.tensor([context + answer])).logits[0, len(context) - 1 : -1]
        return logits.log_softmax(-1).gather(1, torch.tensor(answer)[:, None])[:, 0].tolist()

    def measure(self) -> dict[str, float]:
        return timed(self.score)

    def answers(self) -> dict[str, float]:
        """The log-probabilities by the place of their token."""
        values = [value for answers in self.score() for of_answer in answers for value in of_answer]
        return {f"the log-probability of token {place}": value for place, value in enumerate(values)}


def make_questions(number: int, config: OpenAIGPTConfig) -> list[tuple[list[int], list[list[int]]]]:
    """Token ids of document and question, and of the answers. Each fits the model's positions with its answers."""
    data_dir = os.environ.get("GPT1_DATA_DIR")
    if data_dir is None or config.vocab_size < OpenAIGPTConfig().vocab_size:
        questions = random_questions(number, config.vocab_size)
    else:
        questions = race_questions(number, Path(data_dir))
    room = config.n_positions
    return [(context[max(map(len, answers)) - room :], answers) for context, answers in questions]


def random_questions(number: int, vocab_size: int) -> list[tuple[list[int], list[list[int]]]]:
    draw = random.Random(0)

    def ids(length: float) -> list[int]:
        return draw.choices(range(vocab_size), k=round(length))

    lengths = [min(max(draw.gauss(340, 90), 75), 505) for _ in range(number)]
    questions = []
    for length in lengths:
        context = ids(length)
        answers = [ids(draw.randrange(1, 14)) for _ in range(NUM_ANSWERS)]
        questions.append((context, answers))
    return questions


def race_questions(number: int, data_dir: Path) -> list[tuple[list[int], list[list[int]]]]:
    from modeling_gpt1 import get_heuristic

    tokenizer = released_tokenizer(data_dir / "openai_gpt_bpe")
    rows = []
    for part in ("middle", "high"):
        with (data_dir / "race" / f"{part}_validation.jsonl").open(encoding="utf-8") as lines:
            rows += [json.loads(line) for line in lines]
    rows = random.Random(0).sample(rows, number)
    requests = [request for row in rows for request in get_heuristic("race").requests(row)]
    # The BPE encodes word by word, so document and answer can be encoded separately.
    return [(tokenizer(context)["input_ids"], tokenizer(list(answers))["input_ids"]) for context, answers in requests]


def compare(rounds: int, threads: int, quick: bool) -> list[dict]:
    """The rows of `make bench`."""
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    config = OpenAIGPTConfig(**(SMALL if quick else {}))
    questions = make_questions(2 if quick else NUM_QUESTIONS, config)
    with tempfile.TemporaryDirectory() as folder:
        OpenAIGPTLMHeadModel(config).save_pretrained(folder)
        arguments = {name: (name, folder, threads, questions) for name in (OURS, WHOLE, PEER)}
        with running_workers(Worker, arguments) as ask:
            check_agreement({name: ask[name]("answers") for name in ask}, PEER)  # also warms up
            figures = rounds_of(list(ask), rounds, lambda name: ask[name]("measure"))
    mean = sum(len(context) for context, _ in questions) / len(questions)
    work = f"scoring {len(questions)} questions of {mean:.0f} tokens, {NUM_ANSWERS} answers each, float32"
    targets = {(peer, "seconds"): TARGET for peer in (WHOLE, PEER)}
    return comparisons(work, figures, OURS, targets)


if __name__ == "__main__":
    main(compare)
