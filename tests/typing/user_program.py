"""A user's program, which `make lint` lets mypy read: the public names have types that fit together."""

from modeling_gpt1 import (
    CausalLMScorer,
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1Int8Config,
    GPT1PretrainingArguments,
    GPT1PretrainingTrainer,
    GPT1Tokenizer,
    GPT1Trainer,
    GPT1TrainingArguments,
    TraversalCollator,
    add_control_tokens,
    continue_prompts,
    evaluate_zero_shot,
    get_heuristic,
    keep_first_layers,
    prepare_finetuning,
)
from tokenization import BlockCollator, get_task, load_blocks, load_files, load_task, open_tokenizer, training_texts


def pretrain(folder: str) -> GPT1ForCausalLM:
    tokenizer = GPT1Tokenizer.train(training_texts(folder), num_merges=8000)
    model = GPT1ForCausalLM(GPT1Config(vocab_size=len(tokenizer), hidden_size=256, num_hidden_layers=4))
    trainer = GPT1PretrainingTrainer(
        model,
        GPT1PretrainingArguments("gpt1-books", learning_rate=1e-3),
        BlockCollator(tokenizer),
        train_dataset=load_blocks(folder, tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    return model


def fine_tune(file: str) -> dict[str, float]:
    task, rows = load_files({"train": file}, "classification", {"text": "body", "label": "stars"})
    names: tuple[str, ...] = task.label_names
    print(names, get_task("sst2").num_labels, load_task("sst2", "data"))
    trainer = GPT1Trainer(
        args=GPT1TrainingArguments("reviews", lm_coef=0.5),
        train_dataset=rows["train"],
        **prepare_finetuning("gpt1", task),
    )
    trainer.train(resume_from_checkpoint="auto")
    metrics: dict[str, float] = trainer.evaluate()
    return metrics


def collate() -> None:
    tokenizer = GPT1Tokenizer.from_pretrained("gpt1")
    model = GPT1DoubleHeadsModel.from_pretrained("gpt1", traversal="entailment", num_labels=2)
    added: int = add_control_tokens(tokenizer, model)
    collator = TraversalCollator(tokenizer, "entailment", {"premise": "said", "hypothesis": "claim"})
    batch = collator([{"said": "a", "claim": "b"}])
    print(added, batch["input_ids"].shape, keep_first_layers(model, 2))


def generate_and_score() -> float | None:
    model = GPT1ForCausalLM.from_pretrained("gpt1", quantization_config=GPT1Int8Config())
    tokenizer = open_tokenizer("gpt1")
    texts: list[list[str]] = continue_prompts(model, tokenizer, ["it was"], max_new_tokens=8, do_sample=True)
    scorer = CausalLMScorer(model, tokenizer)
    ((good, _),) = scorer.score([("He was hungry, so he", [" ate.", " slept."])])
    total: float = good.total
    print(texts, total, evaluate_zero_shot(scorer, get_heuristic("sst2"), []).metrics)
    return good.mean


def misuse(model: GPT1ForCausalLM, tokenizer: GPT1Tokenizer) -> None:
    """mypy must find each of these: it warns of a comment that silences nothing."""
    add_control_tokens("gpt1", model)  # type: ignore[arg-type]
    GPT1TrainingArguments("runs/rte", lm_coef="half")  # type: ignore[arg-type]
    GPT1Config(hidden_size="wide")  # type: ignore[arg-type]
    get_task(3)  # type: ignore[arg-type]
    TraversalCollator(tokenizer, 3, {})  # type: ignore[arg-type]
    keep_first_layers(model, "all")  # type: ignore[arg-type]
    CausalLMScorer(model, tokenizer).score([("a context", 3)])  # type: ignore[list-item]
