"""Which decoders of transformers can be fine-tuned on L3, and what L3 costs in memory and time beside L2.

    python benchmarks/any_decoder.py --survey                # a tiny random model of every causal family; minutes
    python benchmarks/any_decoder.py --step                  # memory and time of an update, three ways
    python benchmarks/any_decoder.py --survey --step --save  # as dated files
    python benchmarks/any_decoder.py --page                  # the table of docs/any-decoder.md, from the newest file

The survey builds each causal model of the installed transformers with two narrow layers, prepares its classifier with
`lm_coef=0.5`, compares L3 of an evaluation with a sum of two losses of rows computed alone, and trains one update.
The update of `--step` has 8 rows of 128 tokens and a vocabulary of 150,000. Memory is measured in a process for each
way; times are those of one processor core, by ways that take turns.
"""

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
import transformers
from harness import MIB, RESULTS, machine, save_result
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    AutoModelForCausalLM,
    TokenizersBackend,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from modeling_gpt1 import GPT1Trainer, GPT1TrainingArguments, prepare_finetuning
from modeling_gpt1.families.auxiliary import auxiliary_head
from tokenization import Task

PAGE = Path(__file__).parent.parent / "docs" / "any-decoder.md"
BEGIN, END = "<!-- survey -->", "<!-- end of survey -->"
LM_COEF = 0.5
TOLERANCE = 1e-4  # of L3, relative
LONGEST_SECONDS = 120  # of a family
MOST_PARAMETERS = 20e6  # of a model that is still tiny
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TASK = Task("survey", "classification", {"text": "text", "label": "label"}, ("no", "yes"))
ROWS = [
    {"text": "the old farmer went home", "label": 0},
    {"text": "rain", "label": 1},
    {"text": "nobody knew why the lamp was still burning", "label": 1},
]
# Sizes by the names that configurations have for them. Each gets those that it has.
TINY = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "model_dim", "embedding_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "d_ff", "dff", "decoder_ffn_dim"), 48),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "ffn_hidden_size"), 16),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "top_k"), 2),
    **dict.fromkeys(("head_dim", "v_head_dim", "kv_channels"), 8),
    "qk_nope_head_dim": 4,
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"), 96),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts"), 1),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "mamba_d_head", "mamba_headdim"), 8),
    **dict.fromkeys(("dropout", "attention_dropout", "hidden_dropout", "activation_dropout"), 0.0),
    **dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop", "residual_dropout", "embedding_dropout"), 0.0),
    "qk_rope_head_dim": 4,
    "rotary_dim": 4,
    "word_embed_proj_dim": 32,
    "initializer_range": 0.2,
}


# Of the part that reads images, by the names that configurations have for them.
TINY_VISION = {
    **dict.fromkeys(("hidden_size", "intermediate_size"), 16),
    **dict.fromkeys(("num_hidden_layers", "depth"), 1),
    **dict.fromkeys(("num_attention_heads", "num_heads"), 2),
    "image_size": 28,
    "patch_size": 14,
    "out_hidden_size": 32,
}
# Of families whose layers differ, and need one of each kind.
OWN = {
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1},
    **dict.fromkeys(("qwen3_5", "qwen3_5_text"), {"num_hidden_layers": 4}),
    "qwen3_next": {"num_hidden_layers": 4},
}


# What the page says of a message that has these words.
REASONS = {
    "does not predict next tokens": "an encoder, which predicts no next tokens",
    "do not follow from the last hidden states": "a projection before the output matrix",
    "reads the tokens after the one": "its classifier reads later tokens",
    "at least one <eos> token": "its classifier is an encoder-decoder's",
    "cannot read a few tokens": "its classifier is an encoder-decoder's",
    "get_seq_length": "this survey found no sizes that fit together",
    "Class validation error": "this survey found no sizes that fit together",
    "'full_attention'": "this survey found no sizes that fit together",
    "make sure that `is_decoder=True`": "this survey found no sizes that fit together",
    "Input language unknown": "needs a language",
    "its tiny model has": "this survey found no sizes that fit together",
}


class TooLongError(Exception):
    """A family took more than `LONGEST_SECONDS`."""


@contextmanager
def limited():
    def stop(*_):
        raise TooLongError(f"it takes more than {LONGEST_SECONDS} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def make_tokenizer() -> TokenizersBackend:
    """Letters as tokens."""
    tokens = ["<pad>", "<s>", "</s>", "<unk>", "Ġ", *LETTERS]
    backend = Tokenizer(
        models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[], unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A </s> $B", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return TokenizersBackend(
        tokenizer_object=backend,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    )


def tiny_config(model_type: str, tokenizer: TokenizersBackend):
    """A configuration with the sizes that it has, or with fewer of them where they do not fit together."""
    config_class = CONFIG_MAPPING[model_type]
    if "vision_config" in config_class.sub_configs:
        default = config_class()
        of_text = sizes_of_text(type(default.text_config), model_type, tokenizer)
        known = default.vision_config.to_dict()
        of_vision = {name: size for name, size in TINY_VISION.items() if name in known}
        return config_class(text_config=of_text, vision_config={**of_vision, "model_type": known["model_type"]})
    return config_class(**sizes_of_text(config_class, model_type, tokenizer))


def sizes_of_text(config_class, model_type: str, tokenizer: TokenizersBackend) -> dict:
    """The fields of a configuration of a tiny decoder."""
    known = config_class().to_dict().keys() | config_class.attribute_map.keys()
    ids = {"vocab_size": len(tokenizer), "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    sizes = {name: size for name, size in TINY.items() if name in known}
    if "qk_rope_head_dim" in known:  # latent attention: its heads have sizes of their own
        sizes.pop("head_dim", None)
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    return {**sizes, **ids, **OWN.get(model_type, {})}


def make_tiny(model_type: str, tokenizer: TokenizersBackend, folder: Path) -> None:
    """Writes a tiny random causal model of a family."""
    config = tiny_config(model_type, tokenizer)
    with torch.device("meta"):
        num_parameters = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters())
    if num_parameters > MOST_PARAMETERS:
        raise ValueError(f"its tiny model has {num_parameters / 1e6:,.0f} M parameters")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).float()
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(weight, std=0.1)
    with torch.no_grad():
        model.eval()(input_ids=torch.arange(4, 16)[None])  # sizes that do not fit together fail here
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def naive_loss(folder: Path, classifier, collator) -> float:
    """L3 / N of the rows, each alone, by two models."""
    causal = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    total = 0.0
    for row in ROWS:
        batch = collator([row])
        ids = batch["input_ids"]
        with torch.no_grad():
            scores = classifier.eval()(input_ids=ids).logits
            logits = causal(input_ids=ids).logits[0, :-1]
        total += nn.functional.cross_entropy(scores.float(), batch["labels"]).item()
        total += LM_COEF * nn.functional.cross_entropy(logits.float(), ids[0, 1:]).item()
    return total / len(ROWS)


def check_family(model_type: str, folder: Path) -> dict:
    """What comes of a family: `outcome`, and `detail`, why or with what."""
    tokenizer = make_tokenizer()
    if CONFIG_MAPPING[model_type] not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        return {"outcome": "no classifier", "detail": "transformers has none"}
    try:
        make_tiny(model_type, tokenizer, folder)
    except TooLongError:
        raise
    except Exception as error:  # of many types: a configuration's sizes do not fit together
        return {"outcome": "not built", "detail": first_line(error)}
    try:
        parts = prepare_finetuning(folder, TASK, tokenizer, auto_model=True, max_length=64, lm_coef=LM_COEF)
    except TooLongError:
        raise
    except Exception as error:
        return {"outcome": "refused", "detail": first_line(error)}
    return train_family(parts, folder)


def train_family(parts: dict, folder: Path) -> dict:
    model = parts["model"]
    head = auxiliary_head(model)
    args = GPT1TrainingArguments(
        str(folder / "run"), max_steps=1, save_strategy="no", use_cpu=True, report_to="none", disable_tqdm=True
    )
    try:
        trainer = GPT1Trainer(args=args, train_dataset=ROWS, eval_dataset=ROWS, **parts)
        expected = naive_loss(folder, model, parts["data_collator"])
        found = trainer.evaluate()["eval_loss"]
        trainer.train()
    except TooLongError:
        raise
    except Exception as error:
        return {"outcome": "refused", "detail": first_line(error)}
    difference = abs(found - expected) / expected
    if not difference <= TOLERANCE:
        return {"outcome": "differs", "detail": f"L3 by {difference:.1e}"}
    details = ["tied" if head.weight is None else "untied"]
    if head.bias is not None:
        details.append("bias")
    if head.scale != 1:
        details.append(f"factor {head.scale:g}")
    if head.soft_cap is not None:
        details.append(f"soft cap {head.soft_cap:g}")
    return {"outcome": "works", "detail": ", ".join(details)}


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def survey(partial: Path | None) -> dict[str, dict]:
    """What comes of each family. A line of `partial` has one; those that are there are not repeated."""
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    found = {}
    if partial is not None and partial.is_file():
        for line in partial.read_text(encoding="utf-8").splitlines():
            found.update(json.loads(line))
    for model_type in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        if model_type in found or CONFIG_MAPPING[model_type] not in MODEL_FOR_CAUSAL_LM_MAPPING:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                with limited():
                    found[model_type] = check_family(model_type, Path(folder))
            except TooLongError as error:
                found[model_type] = {"outcome": "not built", "detail": str(error)}
        print(model_type, found[model_type], file=sys.stderr)
        if partial is not None:
            with partial.open("a", encoding="utf-8") as file:
                file.write(json.dumps({model_type: found[model_type]}) + "\n")
    print(Counter(row["outcome"] for row in found.values()))
    return dict(sorted(found.items()))


# ---- An update

WAYS = {
    "L2": "λ = 0",
    "L3": "λ = 0.5",
    "naive": "λ = 0.5, all logits in memory",
}
STEP = {"vocab_size": 150_000, "hidden_size": 256, "num_hidden_layers": 4, "rows": 8, "tokens": 128}


def measure_ways(ways: list[str], num_updates: int) -> dict:
    """Peak memory in MiB, and the median CPU seconds of an update of each way, which take turns, in this process."""
    torch.set_num_threads(1)
    config = transformers.LlamaConfig(
        vocab_size=STEP["vocab_size"],
        hidden_size=STEP["hidden_size"],
        num_hidden_layers=STEP["num_hidden_layers"],
        num_attention_heads=4,
        intermediate_size=1024,
        tie_word_embeddings=True,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = transformers.LlamaForSequenceClassification(config)
    if "L3" in ways:
        from modeling_gpt1.families.auxiliary import attach_head
        from modeling_gpt1.families.language_model_head import LanguageModelHead

        attach_head(model, LanguageModelHead())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(1, STEP["vocab_size"], (STEP["rows"], STEP["tokens"]))
    labels = torch.arange(STEP["rows"]) % 2
    seconds: dict[str, list[tuple[float, float]]] = {}
    for number in range(1 + num_updates):
        for way in ways:
            start = resource.getrusage(resource.RUSAGE_SELF)
            loss_of(way, model, ids, labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            end = resource.getrusage(resource.RUSAGE_SELF)
            if number > 0:  # the first makes the optimizer's state
                of_update = end.ru_utime - start.ru_utime, end.ru_stime - start.ru_stime
                seconds.setdefault(way, []).append(of_update)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"peak_mib": round(peak / MIB)}
    for way, of_updates in seconds.items():
        user, system = (round(statistics.median(part), 2) for part in zip(*of_updates, strict=True))
        found[way] = {"user_seconds": user, "system_seconds": system}
    return found


def loss_of(way: str, model, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    num_rows = len(ids)
    mask = torch.ones_like(ids)
    if way == "L2":
        scores = model(input_ids=ids, attention_mask=mask).logits
        return nn.functional.cross_entropy(scores, labels)
    if way == "L3":
        outputs = model(
            input_ids=ids,
            attention_mask=mask,
            sequence_weights=torch.ones(num_rows),
            expected_grad=torch.tensor(LM_COEF) / num_rows,
        )
        return nn.functional.cross_entropy(outputs.logits, labels) + LM_COEF * (outputs.lm_sum / num_rows)
    hidden_states = model.model(input_ids=ids, attention_mask=mask).last_hidden_state
    scores = model.score(hidden_states[:, -1])
    logits = hidden_states[:, :-1] @ model.get_input_embeddings().weight.T
    lm_loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    return nn.functional.cross_entropy(scores, labels) + LM_COEF * lm_loss


def measure_step(num_updates: int) -> list[dict]:
    """Memory of each way, in its own process, beside that of λ = 0; and times of all, in one process."""

    def measured(ways: Sequence[str], num_updates: int) -> dict:
        words = [sys.executable, __file__, "--ways", *ways, "--updates", str(num_updates)]
        output = subprocess.run(words, capture_output=True, text=True, check=True, env={**os.environ})
        return json.loads(output.stdout.splitlines()[-1])

    times = measured(list(WAYS), num_updates)
    rows = []
    for way, name in WAYS.items():
        peak = measured([way], 1)["peak_mib"]
        rows.append({"way": name, "peak_mib": peak, **times[way]})
    for row in rows:
        row["memory_ratio"] = round(row["peak_mib"] / rows[0]["peak_mib"], 2)
    for row in rows:
        print(row)
    return rows


# ---- The page


def shortened(detail: str) -> str:
    """A reason without the names of one family, so that several share it."""
    for beginning, reason in REASONS.items():
        if beginning in detail:
            return reason
    return detail.replace("|", "/")


def table_of(found: dict[str, dict]) -> str:
    """The survey as Markdown: families with the same outcome and reason share a line."""
    by_outcome: dict[str, dict[str, list[str]]] = {}
    for model_type, row in found.items():
        detail = shortened(row["detail"])
        by_outcome.setdefault(row["outcome"], {}).setdefault(detail, []).append(model_type)
    lines = ["| outcome | detail | families |", "|---|---|---|"]
    for outcome in ("works", "differs", "refused", "not built", "no classifier"):
        for detail, names in sorted(by_outcome.get(outcome, {}).items()):
            lines.append(f"| {outcome} | {detail} | {', '.join(names)} |")
    return "\n".join(lines)


def newest_results() -> dict:
    newest = max(RESULTS.glob("*-any-decoder.json"), default=None)
    return {} if newest is None else json.loads(newest.read_text(encoding="utf-8"))["results"]


def write_page() -> None:
    found = newest_results()["survey"]
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n\n{table_of(found)}\n\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--survey", action="store_true", help="Build and train a tiny model of every family.")
    parser.add_argument("--partial", type=Path, help="File of a survey that goes on from the families in it.")
    parser.add_argument("--step", action="store_true", help="Measure an update, three ways.")
    parser.add_argument("--save", action="store_true", help="Write a dated file of both.")
    parser.add_argument("--page", action="store_true", help="Write the table of the page from the newest file.")
    parser.add_argument("--updates", type=int, default=3, help="Updates of --step. Default: 3.")
    parser.add_argument("--ways", nargs="+", choices=WAYS, help="Measure these ways in this process.")
    arguments = parser.parse_args()
    if arguments.ways:
        print(json.dumps(measure_ways(arguments.ways, arguments.updates)))
        return
    content = {}
    if arguments.survey:
        content["survey"] = survey(arguments.partial)
    if arguments.step:
        content["step"] = {"sizes": STEP, "ways": measure_step(arguments.updates)}
    if arguments.save:
        content = {**newest_results(), **content}
        save_result("any-decoder", machine(threads=torch.get_num_threads()), content)
    if arguments.page:
        write_page()


if __name__ == "__main__":
    main()
