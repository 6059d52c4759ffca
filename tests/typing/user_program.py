"""A user's program, which `make lint` lets mypy read: the public names have types that fit together."""

import modeling_gpt1
from tokenization import BlockCollator, get_task, load_blocks, load_files, load_task, open_tokenizer, training_texts


def pretrain(folder: str) -> modeling_gpt1.GPT1ForCausalLM:
    tokenizer = modeling_gpt1.GPT1Tokenizer.train(training_texts(folder), num_merges=8000)
    model = modeling_gpt1.GPT1ForCausalLM(
        modeling_gpt1.GPT1Config(vocab_size=len(tokenizer), hidden_size=256, num_hidden_layers=4)
    )
    trainer = modeling_gpt1.GPT1PretrainingTrainer(
        model,
        modeling_gpt1.GPT1PretrainingArguments("gpt1-books", learning_rate=1e-3),
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
    trainer = modeling_gpt1.GPT1Trainer(
        args=modeling_gpt1.GPT1TrainingArguments("reviews", lm_coef=0.5),
        train_dataset=rows["train"],
        **modeling_gpt1.prepare_finetuning("gpt1", task),
    )
    trainer.train(resume_from_checkpoint="auto")
    metrics: dict[str, float] = trainer.evaluate()
    return metrics


def collate() -> None:
    tokenizer = modeling_gpt1.GPT1Tokenizer.from_pretrained("gpt1")
    model = modeling_gpt1.GPT1DoubleHeadsModel.from_pretrained("gpt1", traversal="entailment", num_labels=2)
    added: int = modeling_gpt1.add_control_tokens(tokenizer, model)
    collator = modeling_gpt1.TraversalCollator(tokenizer, "entailment", {"premise": "said", "hypothesis": "claim"})
    print(added, collator([{"said": "a", "claim": "b"}])["input_ids"].shape, modeling_gpt1.keep_first_layers(model, 2))


def generate_and_score() -> float | None:
    model = modeling_gpt1.GPT1ForCausalLM.from_pretrained("gpt1", quantization_config=modeling_gpt1.GPT1Int8Config())
    tokenizer = open_tokenizer("gpt1")
    texts: list[list[str]] = modeling_gpt1.continue_prompts(
        model, tokenizer, ["it was"], max_new_tokens=8, do_sample=True
    )
    scorer = modeling_gpt1.CausalLMScorer(model, tokenizer)
    ((good, _),) = scorer.score([("He was hungry, so he", [" ate.", " slept."])])
    total: float = good.total
    print(texts, total, modeling_gpt1.evaluate_zero_shot(scorer, modeling_gpt1.get_heuristic("sst2"), []).metrics)
    return good.mean


def misuse(model: modeling_gpt1.GPT1ForCausalLM, tokenizer: modeling_gpt1.GPT1Tokenizer) -> None:
    """mypy must find each of these: it warns of a comment that silences nothing."""
    modeling_gpt1.add_control_tokens("gpt1", model)  # type: ignore[arg-type]
    modeling_gpt1.GPT1TrainingArguments("runs/rte", lm_coef="half")  # type: ignore[arg-type]
    modeling_gpt1.GPT1Config(hidden_size="wide")  # type: ignore[arg-type]
    get_task(3)  # type: ignore[arg-type]
    modeling_gpt1.TraversalCollator(tokenizer, 3, {})  # type: ignore[arg-type]
    modeling_gpt1.keep_first_layers(model, "all")  # type: ignore[arg-type]
    modeling_gpt1.CausalLMScorer(model, tokenizer).score([("a context", 3)])  # type: ignore[list-item]
