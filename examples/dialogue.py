"""Trains a model to talk as a persona, and measures whether it reads the persona. A script to read and edit.

    python examples/dialogue.py --output_dir out/dialogue
    gpt1 generate out/dialogue --chat --temperature 0 --persona "i live in rome ." "i have a parrot ."

As in "TransferTransfo" (Wolf et al. 2019), the model chooses the reply among distractors at [e] and learns to write
it; token types tell who speaks. The distractors are right for other personas, so that the persona alone decides: with
the personas of other rows, hits@1 falls to chance. The default is a small new model, which knows this world alone.
"""

import math
import random
from dataclasses import dataclass, field
from typing import NamedTuple

from transformers import EvalPrediction, HfArgumentParser, set_seed

from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel, GPT1Trainer, GPT1TrainingArguments
from tokenization import GPT1Tokenizer, TraversalCollator, add_speaker_tokens, open_tokenizer

NUM_CANDIDATES = 4
COLUMNS = {"context": "messages", "choices": "candidates", "label": "label"}


class Topic(NamedTuple):
    """A question, the fact of a persona that answers it, the reply, and the words that may stand in both."""

    question: str
    fact: str
    reply: str
    words: list[str]


HOMES = ["paris", "london", "rome", "berlin", "vienna", "dublin"]
PETS = ["dog", "cat", "horse", "parrot", "rabbit", "mouse"]
DRINKS = ["tea", "coffee", "wine", "beer", "milk", "water"]
JOBS = ["doctor", "farmer", "soldier", "sailor", "lawyer", "teacher"]
TOPICS = {
    "home": Topic("where do you live ?", "i live in {} .", "my home is in {} .", HOMES),
    "pet": Topic("do you have a pet ?", "i have a {} .", "yes , a {} .", PETS),
    "drink": Topic("what do you drink ?", "i drink {} .", "i always take {} .", DRINKS),
    "job": Topic("what is your work ?", "i am a {} .", "they call me a {} .", JOBS),
}
NEW_MODEL = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 96,
    "do_layer_norm_before": True,
    "initializer_range": 0.1,
    "embd_pdrop": 0.0,
    "resid_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "classifier_dropout": 0.0,
}
TRAINING = {
    "num_train_epochs": 1,
    "per_device_train_batch_size": 32,
    "learning_rate": 3e-3,
    "warmup_steps": 30,
    "adam_beta2": 0.98,
    # lm_loss is a mean over the candidates, and only the right one has targets: λ = 4 weighs its mean by 1.
    "lm_coef": NUM_CANDIDATES,
    "save_strategy": "no",
    "logging_steps": 50,
}


@dataclass
class Arguments:
    """Which model learns from how many rows."""

    model: str | None = field(default=None, metadata={"help": "A GPT-1: folder or hub id. Default: a new small one."})
    num_train_rows: int = field(default=24000, metadata={"help": "Rows to train on."})
    num_test_rows: int = field(default=400, metadata={"help": "Rows to evaluate on."})


def make_row(draw: random.Random) -> dict:
    """A persona, up to three answered questions, and another question with its candidates."""
    names = draw.sample(list(TOPICS), len(TOPICS))
    asked = names[: draw.randint(1, len(names))]
    known = names[: draw.randint(len(asked), len(names))]
    words = {name: draw.choice(TOPICS[name].words) for name in known}
    facts = [TOPICS[name].fact.format(words[name]) for name in draw.sample(known, len(known))]
    messages = [{"role": "system", "content": " ".join(facts)}]
    for name in asked:
        messages.append({"role": "user", "content": TOPICS[name].question})
        messages.append({"role": "assistant", "content": TOPICS[name].reply.format(words[name])})
    gold = messages.pop()["content"]
    last = TOPICS[asked[-1]]
    replies = [last.reply.format(word) for word in last.words]
    wrong = [reply for reply in replies if reply != gold]
    candidates = draw.sample([gold, *draw.sample(wrong, NUM_CANDIDATES - 1)], NUM_CANDIDATES)
    return {"messages": messages, "candidates": candidates, "label": candidates.index(gold)}


def with_other_personas(rows: list[dict]) -> list[dict]:
    """The rows, each with the persona of the row before it."""
    personas = [row["messages"][0] for row in rows]
    moved = personas[-1:] + personas[:-1]
    return [{**row, "messages": [persona, *row["messages"][1:]]} for row, persona in zip(rows, moved, strict=True)]


def make_model(name: str | None, rows: list[dict]) -> tuple[GPT1DoubleHeadsModel, GPT1Tokenizer]:
    """A saved model, or a new one with a tokenizer of the rows' words; both with speakers."""
    if name is not None:
        model = GPT1DoubleHeadsModel.from_pretrained(name, traversal="multiple_choice")
        tokenizer = open_tokenizer(name)
    else:
        texts = [message["content"] for row in rows[:500] for message in row["messages"]]
        texts += [reply for row in rows[:500] for reply in row["candidates"]]
        tokenizer = GPT1Tokenizer.train(iter(texts), num_merges=400, show_progress=False)
        model = GPT1DoubleHeadsModel(GPT1Config(vocab_size=len(tokenizer), traversal="multiple_choice", **NEW_MODEL))
    add_speaker_tokens(tokenizer, model)
    return model, tokenizer


def hits_at_1(evaluation: EvalPrediction) -> dict[str, float]:
    return {"hits@1": (evaluation.predictions.argmax(-1) == evaluation.label_ids).mean().item()}


def main(arguments: list[str] | None = None) -> dict[str, float]:
    parser = HfArgumentParser((Arguments, GPT1TrainingArguments))
    parser.set_defaults(**TRAINING)
    args, training_args = parser.parse_args_into_dataclasses(arguments)
    set_seed(training_args.seed)
    train_rows = [make_row(random.Random(f"train {number}")) for number in range(args.num_train_rows)]
    test_rows = [make_row(random.Random(f"test {number}")) for number in range(args.num_test_rows)]
    model, tokenizer = make_model(args.model, train_rows)
    length = model.config.max_position_embeddings
    trainer = GPT1Trainer(
        model=model,
        args=training_args,
        train_dataset=train_rows,
        eval_dataset={"own": test_rows, "other": with_other_personas(test_rows)},
        data_collator=TraversalCollator(tokenizer, "multiple_choice", COLUMNS, length, lm_on_right_choice=True),
        processing_class=tokenizer,
        compute_metrics=hits_at_1,
    )
    trainer.train()
    trainer.save_model()
    metrics = trainer.evaluate()
    for persona in ("own", "other"):
        hits = metrics[f"eval_{persona}_hits@1"]
        perplexity = math.exp(NUM_CANDIDATES * metrics[f"eval_{persona}_lm_loss"])
        print(f"{persona} persona: hits@1 {hits:.3f} (chance {1 / NUM_CANDIDATES}), perplexity {perplexity:.2f}")
    return metrics


if __name__ == "__main__":
    main()
