r"""Pre-trains GPT-1 on books or any other text, with its own BPE or a given tokenizer.

    gpt1 pretrain --train_files "books/train/*.txt" --validation_files "books/validation/*.txt" \
        --num_merges 8000 --config_overrides hidden_size=256,num_hidden_layers=4,num_attention_heads=4 \
        --per_device_train_batch_size 8 --num_train_epochs 1 --warmup_steps 0.05 --output_dir out/books
    gpt1 pretrain --dataset_name wikitext --dataset_config_name wikitext-103-raw-v1 --streaming \
        --max_steps 10000 --validation_split validation --output_dir out/wikitext
    accelerate launch --config_file "$(gpt1 --launch-configs)"/ddp.yaml --num_processes 8 \
        -m modeling_gpt1.commands pretrain --train_files "books/train/*.txt" --bf16 --output_dir out/gpt1

Written to the output folder: model, tokenizer, card (README.md), the log trainer_state.json and the results. See
docs/pretrain.md, for many machines docs/scale.md.
"""

import json
import logging
import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from datasets import Dataset, IterableDataset
from transformers import TrainerState, set_seed
from transformers.hf_argparser import HfArg
from transformers.trainer import TRAINER_STATE_NAME

from tokenization import GPT1Tokenizer, count_tokens, load_blocks, open_tokenizer, training_texts, unigram_perplexity
from tokenization.errors import UserError
from tokenization.text.documents import find_files
from tokenization.wording import counted

from .. import GPT1PretrainingArguments, SampleCallback
from ..families import FAMILIES, Family, family_to_pretrain
from ..inference.checkpoints import number_of_words
from ..storage.writing import publish_files
from ..training.callbacks import SavePoints
from ..training.checkpoint import INCOMPLETE_DIR, read_content
from ..training.families import trainer_class_of
from ..training.launch import check_launch, end_processes
from ..training.measures import LEAST_VOCABULARY, prospect
from . import runs
from .arguments import PRESETS, check_model, check_unknown, parser_of

logger = logging.getLogger(__name__)
BABYLM, BABYLM_PASSES = "babylm", 10  # the challenge's save points, and the passes that it allows
SHUFFLED_BLOCKS = 10_000  # of a stream
KEPT_AT_A_RESUME = "train_files dataset_name text_column document_per fix_text mix_documents block_length".split()
KEPT_AT_A_RESUME += "dataset_config_name train_split streaming".split()
UNKNOWN_TEXTS, UNKNOWN_CHARACTERS = 200, 5_000  # that are looked at for unknown tokens


@dataclass
class CorpusArguments:
    """The text to train on, and to measure perplexity on."""

    train_files: list[str] = HfArg(default_factory=list, help="Files, folders or patterns of files.")
    validation_files: list[str] = HfArg(default_factory=list, help="The same, to measure perplexity on.")
    dataset_name: str | None = HfArg(default=None, help="Data set of the hub to use instead of files.")
    dataset_config_name: str | None = HfArg(default=None, help="Configuration of that data set.")
    train_split: str = HfArg(default="train", help="Split of that data set to train on.")
    validation_split: str | None = HfArg(default=None, help="Its split to measure perplexity on.")
    text_column: str = HfArg(default="text", help="Column of the text, where a row is a document.")
    document_per: Literal["file", "line", "blank_line"] = HfArg(default="file", help="What is a document.")
    fix_text: bool = HfArg(default=False, help="Clean the text with ftfy, as the paper does.")
    mix_documents: bool = HfArg(default=False, help="Let a block continue into the next document.")
    block_length: int | None = HfArg(default=None, help="Tokens per block. Default: the model's number of positions.")
    streaming: bool = HfArg(default=False, help="Tokenise while training; with --max_steps.")
    preprocessing_num_workers: int | None = HfArg(default=None, help="Processes that tokenise. Default: one.")
    max_eval_blocks: int | None = HfArg(default=None, help="Blocks to evaluate on; the last of several takes all.")
    max_words: str | None = HfArg(default=None, help="Words to read in all passes, such as 100M.")
    save_at_words: list[str] = HfArg(default_factory=list, help="Save after so many words: 1M 2M, or babylm.")

    def __post_init__(self):
        if bool(self.train_files) == (self.dataset_name is not None):
            given = "both were" if self.train_files else "neither was"
            raise UserError(f"One source of text is needed, --train_files or --dataset_name, but {given} given.")
        if self.streaming and (self.max_words or self.save_at_words):
            raise UserError("--streaming does not count words. Leave it out, or --max_words and --save_at_words.")
        if self.max_words:
            number_of_words(self.max_words)
        self.save_points()

    def save_points(self) -> dict[str, int]:
        """The words after which the model is saved, by the folder's name."""
        if self.save_at_words == [BABYLM]:
            more = range(200, number_of_words(self.max_words or "1") // 10**6 + 1, 100)  # of the 100 M words' track
            return {f"chck_{number}M": number * 10**6 for number in (*range(1, 10), *range(10, 101, 10), *more)}
        return {f"chck_{text}": number_of_words(text) for text in self.save_at_words}

    def source(self, use: Literal["train", "validation"]) -> dict | None:
        """Arguments of `load_blocks` and `training_texts` for a text; None without held-out text."""
        files, split = getattr(self, f"{use}_files"), getattr(self, f"{use}_split")
        if not files and split is None:
            return None
        source = {"source": self.dataset_name, "name": self.dataset_config_name, "split": split}
        same = {"text_column": self.text_column, "fix_text": self.fix_text, "document_per": self.document_per}
        return {**({"source": files} if files else source), **same}


@dataclass
class StartArguments(runs.ModelArguments):
    """What training starts from, and what the card says of it."""

    preset: str | None = HfArg(default=None, help="Sizes and rates to begin with.", metadata={"choices": [*PRESETS]})
    family: str | None = HfArg(default=None, help="Of a fresh model.", metadata={"choices": list(FAMILIES)})
    num_merges: int | None = HfArg(default=None, help="Merges of the BPE that is learnt. Default: 40000.")
    prompts: list[str] = HfArg(default_factory=lambda: ["it was"], help="Texts to continue at each evaluation.")

    def __post_init__(self):
        if self.preset and self.model:
            raise UserError(f"--preset {self.preset} is for a fresh model, not --model {self.model}. Leave one out.")
        super().__post_init__()
        if self.num_merges is not None and (self.tokenizer_name or self.model):
            has = f"--num_merges {self.num_merges} learns a tokenizer, but that of {self.tokenizer_name or self.model}"
            raise UserError(f"{has} was given. Leave one of them out.")


def check_run(
    model_args: StartArguments, corpus_args: CorpusArguments, training_args: GPT1PretrainingArguments, family: Family
) -> str | None:
    """Checks early what would otherwise fail only after the corpus is prepared; returns where the run resumes."""
    check_launch(training_args)
    runs.check_metric(training_args, ("loss", "perplexity"))
    kept = {name: getattr(corpus_args, name) for name in KEPT_AT_A_RESUME}
    if model_args.num_merges is not None:
        kept["num_merges"] = model_args.num_merges
    if corpus_args.max_words or corpus_args.save_at_words:  # words are counted by updates
        sizes = ("per_device_train_batch_size", "gradient_accumulation_steps")
        kept |= {name: getattr(training_args, name) for name in sizes}
        for name in ("auto_find_batch_size", "dataloader_drop_last"):
            if getattr(training_args, name):
                raise UserError(f"--{name} changes how many words an update reads, which are counted. Leave it out.")
    checkpoint = runs.check_output_folder(training_args, kept)
    before, now = read_content(checkpoint).get("settings", {}) if checkpoint else {}, training_args.world_size
    if (was := before.get("world_size", now)) != now and "gradient_accumulation_steps" in kept:
        raise UserError(f"{checkpoint} counted words for {was} processes. Start {was}, not {now}, or another run.")
    if corpus_args.max_words and training_args.max_steps > 0:
        both = f"--max_words {corpus_args.max_words} says how long the run is, and so does --max_steps"
        raise UserError(f"{both} {training_args.max_steps}. Leave one of them out.")
    if corpus_args.streaming and training_args.max_steps <= 0:
        raise UserError("--streaming reads text of unknown length. Pass the number of updates as --max_steps.")
    if corpus_args.source("validation") is None and training_args.eval_strategy != "no":
        needs = f"--eval_strategy {training_args.eval_strategy.value} needs held-out text"
        raise UserError(f"{needs}. Pass --validation_files or --validation_split.")
    if model_args.model is None and family.is_causal:  # others add tokens of their tokenizer
        family.block_length(model_args.fresh_config(), corpus_args.block_length)
    if corpus_args.streaming and family.needs_stored_blocks:
        raise UserError(f"--streaming stores no blocks, but {family.name} draws from them. Leave it out.")
    for source in filter(None, map(corpus_args.source, ("train", "validation"))):
        training_texts(**source)  # reads the first piece
    shared = {file for source in corpus_args.train_files for file in find_files(source)}
    shared &= {file for source in corpus_args.validation_files for file in find_files(source)}
    if shared:
        raise UserError(f"{min(shared)} is in --train_files and in --validation_files. Leave it out of one of them.")
    return checkpoint


def learn_tokenizer(corpus_args: CorpusArguments, args: GPT1PretrainingArguments, num_merges: int) -> GPT1Tokenizer:
    """A BPE that the main process learns from the training text and the others load."""
    output_dir = Path(args.output_dir)
    with args.main_process_first(local=False, desc="learning the BPE"):
        if args.process_index == 0:
            logger.info(f"learning {num_merges:,} merges from the text …")
            texts = training_texts(**corpus_args.source("train"))
            tokenizer = GPT1Tokenizer.train(texts, num_merges, show_progress=False)
            made = len(json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"])
            if made < num_merges:
                logger.warning(f"The text gives only {counted(made, 'merge')}.")
            tokenizer.save_pretrained(output_dir / INCOMPLETE_DIR / "model")
            publish_files(output_dir / INCOMPLETE_DIR / "model", output_dir)
        return GPT1Tokenizer.from_pretrained(output_dir)


def describe_blocks(use: str, blocks: Dataset | IterableDataset, length: int) -> tuple[str, int | None]:
    """A line about a split, and its number of tokens, which a stream does not tell."""
    if isinstance(blocks, IterableDataset):
        return f"{use}: a stream of blocks of {length} tokens", None
    num_tokens = count_tokens(blocks)
    return f"{use}: {counted(num_tokens, 'token')} in {counted(len(blocks), 'block')} of up to {length}", num_tokens


def plan_words(
    corpus_args: CorpusArguments, training_args: GPT1PretrainingArguments, num_blocks: int
) -> tuple[dict[str, int], float, str]:
    """After which update each folder is saved, the words of an update, and a line; sets `max_steps` by --max_words.

    Words are what white space separates. Updates draw blocks of the whole text: each is taken to read its share.
    """
    num_words = sum(len(text.split()) for text in training_texts(**corpus_args.source("train")))
    micro_batches = math.ceil(num_blocks / (training_args.train_batch_size * training_args.world_size))
    updates_per_pass = math.ceil(micro_batches / training_args.gradient_accumulation_steps)
    words_per_update = num_words / updates_per_pass
    if corpus_args.max_words:
        training_args.max_steps = max(1, round(number_of_words(corpus_args.max_words) / words_per_update))
    given = training_args.max_steps
    updates = given if given > 0 else math.ceil(training_args.num_train_epochs * updates_per_pass)
    passes = updates / updates_per_pass
    if corpus_args.save_at_words == [BABYLM] and round(passes, 1) > BABYLM_PASSES:  # as it is told
        logger.warning(f"The run makes {passes:.1f} passes of the text; the BabyLM challenge allows {BABYLM_PASSES}.")
    saved = {name: max(1, round(words / words_per_update)) for name, words in corpus_args.save_points().items()}
    if late := [name for name, update in saved.items() if update > updates]:
        logger.warning(f"The run ends before the words of {', '.join(late)}, which will not be saved.")
    saved = {name: update for name, update in saved.items() if update <= updates}
    line = f"words: {num_words:,} in the text, {updates * words_per_update:,.0f} to read in {passes:.3g} pass"
    line += "" if round(passes, 2) == 1 else "es"
    return saved, words_per_update, f"{line}; saved after {', '.join(saved)}" if saved else line


ARGUMENTS = (StartArguments, CorpusArguments, GPT1PretrainingArguments)
BASICS = {
    "text": "train_files validation_files dataset_name dataset_config_name validation_split text_column streaming",
    "model": "model preset family config_overrides tokenizer_name num_merges",
    "training": "output_dir config num_train_epochs max_steps learning_rate warmup_steps per_device_train_batch_size "
    "gradient_accumulation_steps seed bf16 use_cpu",
    "watching, stopping, going on": "logging_steps eval_strategy eval_steps max_eval_blocks prompts save_strategy "
    "save_steps resume_from_checkpoint report_to push_to_hub",
}


def main(arguments: list[str]) -> None:
    parser = parser_of("pretrain")
    model_args, corpus_args, training_args = parser.read(arguments)
    asked = [flag for flag in ("do_eval", "do_predict") if parser.settings[flag]]
    if not training_args.do_train and any(word.startswith("--do_train") for word in arguments):
        asked.append("do_train")
    if asked:
        how = "and measures --validation_files; `gpt1 evaluate --tasks wikitext` measures a model that is there"
        raise UserError(f"This command always trains, {how}. Leave --{asked[0]} out.")
    check_model("--model", model_args.model)
    if model_args.model is None:
        family = FAMILIES[model_args.family or "gpt1"]
    else:
        family = family_to_pretrain(model_args.model)
    checkpoint = check_run(model_args, corpus_args, training_args, family)
    runs.set_up_logging(training_args, parser)
    set_seed(training_args.seed)

    given = model_args.tokenizer_name or model_args.model or checkpoint  # whose weights fit only its own BPE
    if given is not None:
        tokenizer = open_tokenizer(given)
    else:
        tokenizer = learn_tokenizer(corpus_args, training_args, model_args.num_merges or 40_000)
    tokenizer = family.pretraining_tokenizer(tokenizer)
    unknown = {"train": "", "validation": ""}
    if training_args.process_index == 0 and (model_args.tokenizer_name or model_args.model):
        for use in filter(corpus_args.source, unknown):
            given, whole = getattr(corpus_args, f"{use}_files"), corpus_args.source(use)
            pieces = [{**whole, "source": [file]} for one in given for file in find_files(one)] or [whole]
            texts, each = [], max(1, UNKNOWN_TEXTS // len(pieces))
            for piece in pieces:
                with suppress(ValueError):  # a file without text
                    texts += [text[:UNKNOWN_CHARACTERS] for text in islice(training_texts(**piece), each)]
            source = ", ".join(given) or corpus_args.dataset_name
            share = check_unknown(tokenizer, texts, source, model_args.allow_unknown_text)
            unknown[use] = f", {share:.1%} of the tokens unknown"
    is_fresh = model_args.model is None
    fresh = model_args.fresh_config(tokenizer) if is_fresh else None
    model = family.make_language_model(fresh) if is_fresh else family.open_for_pretraining(model_args.model)
    longest = family.longest_sequence(model.config)
    # A fresh model has positions of its own, whatever model its tokenizer was saved with.
    tokenizer.model_max_length = longest if is_fresh else min(tokenizer.model_max_length, longest)
    family.check_pretraining(model, tokenizer)
    block_length = family.block_length(model.config, corpus_args.block_length)
    with training_args.main_process_first(desc="preparing the corpus"):
        how = {"mix_documents": corpus_args.mix_documents, "num_proc": corpus_args.preprocessing_num_workers}
        load = partial(load_blocks, tokenizer=tokenizer, block_length=block_length, **how)
        train_blocks = load(**corpus_args.source("train"), streaming=corpus_args.streaming)
        if corpus_args.streaming:
            train_blocks = train_blocks.shuffle(seed=training_args.seed, buffer_size=SHUFFLED_BLOCKS)
        validation_blocks = load(**held_out) if (held_out := corpus_args.source("validation")) else None
    line, num_tokens = describe_blocks("train", train_blocks, block_length)
    lines, watched = [line + unknown["train"]], validation_blocks
    if num_tokens and family.is_causal:
        lines.append(f"token frequencies alone: perplexity {unigram_perplexity(train_blocks):,.0f}")
    if validation_blocks is not None:
        lines.append(describe_blocks("validation", validation_blocks, block_length)[0] + unknown["validation"])
        number, most = len(validation_blocks), corpus_args.max_eval_blocks
        if most is not None and most < number:
            watched = validation_blocks.select([index * number // most for index in range(most)])
            is_only_one = training_args.eval_strategy == "no"
            validation_blocks = watched if is_only_one else validation_blocks
            last = "" if is_only_one else " during training, of all at the end"
            lines.append(f"evaluation: of {most:,} of these blocks{last}")
    trainer = trainer_class_of(family)(
        model,
        training_args,
        data_collator=family.pretraining_collator(tokenizer, training_args.seed, train_blocks),
        train_dataset=train_blocks,
        eval_dataset=watched,
        processing_class=tokenizer,
    )
    if family.is_causal:
        longest = max(map(len, tokenizer(model_args.prompts, add_special_tokens=False)["input_ids"]))
        length = min(40, model.config.max_position_embeddings - longest)
        if length < 1:
            raise UserError(f"--prompts has one of {longest} tokens, which leaves the model no position. Shorten it.")
        trainer.add_callback(SampleCallback(tokenizer, model_args.prompts, max_new_tokens=length))
    if corpus_args.max_words or corpus_args.save_at_words:  # the trainer takes one device
        saved, words_per_update, line = plan_words(corpus_args, training_args, len(train_blocks))
        lines.append(line)
        done = TrainerState.load_from_json(f"{checkpoint}/{TRAINER_STATE_NAME}").global_step if checkpoint else 0
        folder = Path(training_args.output_dir)
        if late := [name for name, at in saved.items() if at <= done and not (folder / name).is_dir()]:
            logger.warning(f"The run is past the words of {', '.join(late)}, which will not be saved.")
        trainer.add_callback(SavePoints(trainer, saved, words_per_update))
    if is_fresh and (model_args.family or "gpt1") == "gpt1" and len(tokenizer) >= LEAST_VOCABULARY:
        rows = training_args.train_batch_size * training_args.gradient_accumulation_steps * training_args.world_size
        passes = training_args.num_train_epochs * (num_tokens or 0)
        length = num_tokens / len(train_blocks) if num_tokens else block_length
        read = training_args.max_steps * rows * length if training_args.max_steps > 0 else passes
        lines.append(prospect(num_tokens, read))
    runs.use_readable_log(trainer, ", ".join(corpus_args.validation_files) or corpus_args.validation_split or "")
    if not runs.train(trainer, model_args.model, lines, checkpoint, parser):
        end_processes(trainer)
        return
    if validation_blocks is not None:
        if watched is not validation_blocks:
            logger.info(f"evaluation of all {len(validation_blocks):,} blocks:")
        metrics = trainer.evaluate(validation_blocks)
        trainer.save_metrics("eval", metrics)
        trainer.eval_dataset = validation_blocks  # the card tells how many its figures are of
        trainer.save_state()  # includes this evaluation
    # The card names a file by its last two parts: the rest of the path means nothing on other machines.
    places = (corpus_args.train_files, corpus_args.validation_files)
    read, held_out = (", ".join("/".join(Path(file).parts[-2:]) for file in files) for files in places)
    runs.publish(
        trainer,
        model_args.model,
        "gpt1 generate {}" if family.is_causal else "gpt1 finetune --model {} …",
        language=model_args.language,
        license=model_args.license,
        dataset=corpus_args.dataset_name or read,
        dataset_tags=corpus_args.dataset_name,
        dataset_args=corpus_args.dataset_config_name,
        dataset_split=held_out or corpus_args.validation_split,
    )
    end_processes(trainer)
