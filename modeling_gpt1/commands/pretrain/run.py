"""A run of `gpt1 pretrain`: each step is a method, and what it finds is there for the steps after it."""

import json
import logging
import math
import os
import zlib
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from datasets import Dataset, IterableDataset, interleave_datasets
from transformers import PreTrainedTokenizerBase, TrainerState, set_seed
from transformers.trainer import TRAINER_STATE_NAME

from tokenization import (
    TOKENIZER_KINDS,
    count_tokens,
    load_blocks,
    open_tokenizer,
    train_tokenizer,
    training_texts,
    unigram_perplexity,
)
from tokenization.corpus.noise import NOISES
from tokenization.corpus.preparation import lengths_of
from tokenization.errors import UserError
from tokenization.text.bpe_training import DEFAULT_MERGES
from tokenization.text.documents import find_files
from tokenization.wording import counted

from ... import GPT1PretrainingArguments, SampleCallback
from ...families import FAMILIES, family_to_pretrain
from ...inference.checkpoints import number_of_words
from ...storage.writing import publish_files
from ...training.callbacks import SavePoints
from ...training.checkpoint import INCOMPLETE_DIR, check_tokenizer, read_content
from ...training.families import scores_of_evaluation, trainer_class_of
from ...training.launch import check_launch, end_processes
from ...training.measures import LEAST_VOCABULARY, describe_expectation
from .. import runs
from ..arguments import CommandParser, parser_of
from ..models import check_model, opening
from ..rows import check_unknown
from .arguments import BABYLM, CorpusArguments, StartArguments

logger = logging.getLogger(__name__)
BABYLM_EPOCHS = 10  # that the challenge allows
SHUFFLED_BLOCKS = 10_000  # of a stream
UNKNOWN_TEXTS, UNKNOWN_CHARACTERS = 200, 5_000  # that are looked at for unknown tokens
SAMPLE_TOKENS = 40  # that each evaluation adds to a prompt
PROMPT_CHARACTERS = 12  # of the text's beginning
# Settings that a resumed run has in common with the run before.
KEPT_AT_A_RESUME = (
    "train_files",
    "train_weights",
    "dataset_name",
    "text_column",
    "document_per",
    "fix_text",
    "mix_documents",
    "block_length",
    "dataset_config_name",
    "train_split",
    "streaming",
    "noise",
    "mask_ngrams",
)
# Where words are counted: by updates, all of which must read as many.
KEPT_WITH_WORDS = ("per_device_train_batch_size", "gradient_accumulation_steps")
NOT_WITH_WORDS = ("auto_find_batch_size", "dataloader_drop_last")


def main(arguments: list[str]) -> None:
    parser = parser_of("pretrain")
    run = PretrainingRun(parser, *parser.read(arguments))
    run.open_family()
    run.check_settings()
    run.check_output_folder()
    run.check_text()
    run.set_up()
    run.open_tokenizer()
    run.measure_unknown_tokens()
    run.open_model()
    run.load_blocks()
    run.describe_text()
    run.note_trained_positions()
    run.make_trainer()
    run.add_samples()
    run.plan_words()
    run.describe_expectation()
    if run.train():
        with runs.owed_results(run.trainer):
            run.evaluate()
            run.publish()
    end_processes(run.trainer)


class PretrainingRun:
    """The arguments of a run, and what its steps make of them.

    Args:
        parser: keeps the settings that the run writes.
        model_args: what training starts from.
        corpus_args: the text.
        args: Trainer's arguments.
    """

    def __init__(
        self,
        parser: CommandParser,
        model_args: StartArguments,
        corpus_args: CorpusArguments,
        args: GPT1PretrainingArguments,
    ) -> None:
        self.parser = parser
        self.model_args = model_args
        self.corpus_args = corpus_args
        self.args = args
        self.lines: list[str] = []  # about the run, logged when training begins
        self.unknown = {"train": "", "validation": ""}  # what the lines say of unknown tokens
        self.checkpoint: str | None = None  # that the run resumes from
        self.times_read: dict[str, float] = {}  # in an epoch, by the names of a mixture
        self.is_new = model_args.model is None

    # ---- Checks before any work is done

    def open_family(self) -> None:
        """Finds the family of the model. Of a new model, checks that it can be built."""
        if self.is_new:
            self.family = self.model_args.new_family
            self.model_args.make_config()
        else:
            check_model("--model", self.model_args.model)
            self.family = family_to_pretrain(self.model_args.model)

    def check_settings(self) -> None:
        """Checks settings that would fail only after the corpus is prepared."""
        check_launch(self.args)
        runs.check_reporters(self.args)
        runs.check_metric(self.args, scores_of_evaluation(self.family))
        if self.corpus_args.counts_words:
            for name in NOT_WITH_WORDS:
                if getattr(self.args, name):
                    raise UserError(
                        f"--{name} changes how many words an update reads, but --max_words and --save_at_words count "
                        "them. Leave it out."
                    )
        if self.corpus_args.max_words and self.args.max_steps > 0:
            raise UserError(
                f"--max_words {self.corpus_args.max_words} and --max_steps {self.args.max_steps} both set the length "
                "of the run. Leave one of them out."
            )
        if self.corpus_args.streaming and self.args.max_steps <= 0:
            raise UserError("--streaming reads text of unknown length. Pass the number of updates as --max_steps.")
        if self.corpus_args.source("validation") is None and self.args.eval_strategy != "no":
            raise UserError(
                f"--eval_strategy {self.args.eval_strategy.value} needs held-out text. Pass --validation_files or "
                "--validation_split."
            )
        if self.is_new and self.family.is_causal:  # others add tokens of their tokenizer
            self.family.block_length(self.model_args.make_config(), self.corpus_args.block_length)
        self.check_noise()
        self.check_tokenizer_kind()
        if self.corpus_args.streaming and self.family.needs_stored_blocks:
            raise UserError(
                f"--streaming stores no blocks, but {self.family.name} draws its batches from stored ones. Leave it "
                "out."
            )

    def check_noise(self) -> None:
        """Checks that the family has the noise that was chosen."""
        for name, value in self.corpus_args.noise_options.items():
            if name not in self.family.noise_options:
                owners = [family.name for family in FAMILIES.values() if name in family.noise_options]
                raise UserError(
                    f"--{name} {value if name == 'mask_ngrams' else ' '.join(value)} is for {', '.join(owners)}, but "
                    f"the model is of the family {self.family.name}. Leave it out."
                )
        unknown = [name for name in self.corpus_args.noise if name not in NOISES]
        if unknown:
            raise UserError(f"--noise has {unknown[0]!r}, but knows {', '.join(NOISES)}.")
        mask_ngrams = self.corpus_args.mask_ngrams
        if mask_ngrams is not None and mask_ngrams < 1:
            raise UserError(
                f"--mask_ngrams is {mask_ngrams}, but a mask covers at least 1 word. ALBERT's paper has 3; leave it "
                "out for masks of single tokens."
            )

    def check_tokenizer_kind(self) -> None:
        """Checks that a tokenizer that is to be learnt has the tokens that the family needs."""
        kind = self.model_args.tokenizer
        if kind is None or self.fits_tokenizer_kind(kind):
            return
        fitting = [name for name in TOKENIZER_KINDS if self.fits_tokenizer_kind(name)]
        raise UserError(
            f"--tokenizer {kind} has no tokens for padding, masks and ends of texts, which {self.family.name} needs. "
            f"Pass --tokenizer {' or '.join(fitting)}."
        )

    def fits_tokenizer_kind(self, kind: str) -> bool:
        """Whether the family can be pre-trained with a tokenizer of a kind; one of a single word is learnt."""
        try:
            self.family.pretraining_tokenizer(train_tokenizer(iter(["word"]), kind, show_progress=False))
        except UserError:
            return False
        return True

    def check_output_folder(self) -> None:
        """Checks that the run may write to its folder, and finds the checkpoint that it resumes from."""
        kept = {name: getattr(self.corpus_args, name) for name in KEPT_AT_A_RESUME}
        kept["train_files"] = self.corpus_args.given_train_files
        for name in ("tokenizer", "num_merges"):
            if getattr(self.model_args, name) is not None:
                kept[name] = getattr(self.model_args, name)
        if self.corpus_args.counts_words:
            kept |= {name: getattr(self.args, name) for name in KEPT_WITH_WORDS}
        self.checkpoint = runs.check_output_folder(self.args, self.model_args.model, kept)
        if self.checkpoint is not None and self.corpus_args.counts_words:
            self.check_processes()

    def check_processes(self) -> None:
        """Checks that a run whose updates count words has as many processes as before."""
        now = self.args.world_size
        before = read_content(self.checkpoint).get("settings", {}).get("world_size", now)
        if before != now:
            raise UserError(
                f"{self.checkpoint} counted words with {before} processes, but this run has {now}. Start {before} "
                "processes, or pass another --output_dir."
            )

    def check_text(self) -> None:
        """Reads the first piece of each text, and checks that no file is in both."""
        name = self.corpus_args.dataset_name
        if name is not None:
            split = self.corpus_args.validation_split
            if split == self.corpus_args.train_split:
                raise UserError(f"--train_split and --validation_split are both {split}. Pass two.")
            with opening(f"--dataset_name {name}"):
                self.read_beginnings()
            return
        self.read_beginnings()
        read = {os.path.realpath(file) for source in self.corpus_args.train_files for file in find_files(source)}
        held_out = {file for source in self.corpus_args.validation_files for file in find_files(source)}
        shared = [file for file in held_out if os.path.realpath(file) in read]
        if shared:
            raise UserError(
                f"{min(shared)} is in --train_files and in --validation_files. Leave it out of one of them."
            )

    def read_beginnings(self) -> None:
        for use in ("train", "validation"):
            source = self.corpus_args.source(use)
            if source is not None:
                training_texts(**source)

    # ---- Tokenizer and model

    def set_up(self) -> None:
        runs.set_up_logging(self.args, self.parser)
        set_seed(self.args.seed)

    def open_tokenizer(self) -> None:
        """Opens the tokenizer that is given, or learns one from the text."""
        # The weights of a checkpoint fit only its own BPE.
        given = self.model_args.tokenizer_name or self.model_args.model or self.checkpoint
        if given is None:
            tokenizer = self.learn_tokenizer()
        else:
            with opening(f"The tokenizer of {given}"):
                tokenizer = open_tokenizer(given)
        self.tokenizer = self.family.pretraining_tokenizer(tokenizer)
        if self.checkpoint is not None:  # before a text is prepared with another one
            check_tokenizer(self.checkpoint, self.tokenizer)

    def learn_tokenizer(self) -> PreTrainedTokenizerBase:
        """A tokenizer that the main process learns from the training text and the others load."""
        output_dir = Path(self.args.output_dir)
        with self.args.main_process_first(local=False, desc="learning the tokenizer"):
            if self.args.process_index == 0:
                tokenizer = self.train_tokenizer()
                tokenizer.save_pretrained(output_dir / INCOMPLETE_DIR / "model")
                publish_files(output_dir / INCOMPLETE_DIR / "model", output_dir)
            return open_tokenizer(output_dir)

    def train_tokenizer(self) -> PreTrainedTokenizerBase:
        kind = self.model_args.tokenizer or "gpt1"
        texts = training_texts(**self.corpus_args.source("train"))
        if kind == "characters":
            logger.info("looking for the characters of the text …")
            return train_tokenizer(texts, kind, show_progress=False)
        num_merges = self.model_args.num_merges or DEFAULT_MERGES
        logger.info(f"learning {num_merges:,} merges from the text …")
        tokenizer = train_tokenizer(texts, kind, num_merges, show_progress=False)
        merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"].get("merges")
        if merges is not None and len(merges) < num_merges:  # WordPiece keeps its words alone
            logger.warning(f"The text gives only {counted(len(merges), 'merge')}.")
        return tokenizer

    def measure_unknown_tokens(self) -> None:
        """Measures how many tokens of each text a tokenizer does not know.

        One that is learnt knows all, but WordPiece knows no word that is too long.
        """
        is_given = self.model_args.tokenizer_name or self.model_args.model
        knows_all = not is_given and self.model_args.tokenizer != "wordpiece"
        if self.args.process_index != 0 or knows_all:
            return
        for use in ("train", "validation"):
            if self.corpus_args.source(use) is not None:
                texts, names = self.some_texts(use)
                share = check_unknown(self.tokenizer, texts, names, self.model_args.allow_unknown_text)
                self.unknown[use] = f", {share:.1%} of the tokens unknown"

    def some_texts(self, use: str) -> tuple[list[str], str]:
        """The first texts of each file, and the names of the files or of the data set."""
        source = self.corpus_args.source(use)
        if self.corpus_args.dataset_name:
            pieces, names = [source], self.corpus_args.dataset_name
        else:
            files = [file for given in source["source"] for file in find_files(given)]
            pieces, names = [{**source, "source": [file]} for file in files], ", ".join(source["source"])
        num_texts = max(1, UNKNOWN_TEXTS // len(pieces))
        texts: list[str] = []
        for piece in pieces:
            with suppress(UserError):  # a file without text
                texts += [text[:UNKNOWN_CHARACTERS] for text in islice(training_texts(**piece), num_texts)]
        return texts, names

    def open_model(self) -> None:
        """Makes a new model, or opens the one that is trained further. Checks that the tokenizer fits."""
        if self.is_new:
            self.model = self.family.make_language_model(self.model_args.make_config(self.tokenizer))
        else:
            with opening(f"--model {self.model_args.model}"):
                self.model = self.family.open_for_pretraining(self.model_args.model)
        longest = self.family.longest_sequence(self.model.config)
        # A new model has its own positions, whatever model its tokenizer was saved with.
        self.tokenizer.model_max_length = longest if self.is_new else min(self.tokenizer.model_max_length, longest)
        self.family.check_pretraining(self.model, self.tokenizer)

    # ---- Text

    def load_blocks(self) -> None:
        """Tokenises the texts into blocks. The main process of each machine goes first; the others use its cache."""
        self.block_length = self.family.block_length(self.model.config, self.corpus_args.block_length)
        with self.args.main_process_first(desc="preparing the corpus"):
            self.train_blocks = self.blocks_to_train_on()
            if self.corpus_args.streaming:
                self.train_blocks = self.train_blocks.shuffle(seed=self.args.seed, buffer_size=SHUFFLED_BLOCKS)
            held_out = self.corpus_args.source("validation")
            self.validation_blocks = None if held_out is None else self.blocks_of(held_out)
        self.watched_blocks = self.validation_blocks  # that evaluations during training read

    def blocks_to_train_on(self) -> Dataset | IterableDataset:
        """The blocks of the training text. Those of a mixture are drawn until each of its texts was read whole."""
        streaming = self.corpus_args.streaming
        mixture = self.corpus_args.mixture
        if mixture is None:
            return self.blocks_of(self.corpus_args.source("train"), streaming=streaming)
        parts = {
            name: self.blocks_of(self.corpus_args.source_of(files), streaming=streaming)
            for name, files in mixture.files.items()
        }
        mixed = interleave_datasets(
            [*parts.values()], [*mixture.shares.values()], seed=self.args.seed, stopping_strategy="all_exhausted"
        )
        for name, share in mixture.shares.items():
            line = f"mixture: {share:.1%} of the blocks from {name}"
            if not streaming:
                self.times_read[name] = share * len(mixed) / len(parts[name])
                line += f", read {self.times_read[name]:.2f} times an epoch"
            self.lines.append(line)
        return mixed

    def blocks_of(self, source: dict[str, Any], **options: Any) -> Dataset | IterableDataset:
        return load_blocks(
            **source,
            tokenizer=self.tokenizer,
            block_length=self.block_length,
            mix_documents=self.corpus_args.mix_documents,
            num_proc=self.corpus_args.preprocessing_num_workers,
            **options,
        )

    def describe_text(self) -> None:
        """Adds lines about the texts, and chooses the blocks of evaluations."""
        is_stream = isinstance(self.train_blocks, IterableDataset)
        self.num_tokens = None if is_stream else count_tokens(self.train_blocks)  # of the training text
        if is_stream:
            line = f"train: a stream of blocks of {self.block_length} tokens"
        else:
            line = self.line_about("train", self.train_blocks, self.num_tokens)
        self.lines.append(line + self.unknown["train"])
        if self.num_tokens and self.family.is_causal:
            self.lines.append(f"token frequencies alone: perplexity {unigram_perplexity(self.train_blocks):,.0f}")
        if self.validation_blocks is not None:
            line = self.line_about("validation", self.validation_blocks, count_tokens(self.validation_blocks))
            self.lines.append(line + self.unknown["validation"])
            self.limit_evaluation()

    def note_trained_positions(self) -> None:
        """Warns of positions that no block reaches, and keeps in the configuration how many are trained.

        Those of a stream are taken for as long as blocks may be: to know better it would have to be read twice.
        """
        config = self.model.config
        num_before = getattr(config, "trained_positions", None)
        if not self.family.has_positions or not (self.is_new or num_before):
            return
        if isinstance(self.train_blocks, IterableDataset):
            longest_block = self.block_length
        else:
            longest_block = int(lengths_of(self.train_blocks).max())
        num_positions = self.family.longest_sequence(config)
        num_trained = max(num_before or 0, longest_block + self.family.num_added)
        if num_trained >= num_positions:
            if num_before:
                config.trained_positions = None
            return
        config.trained_positions = num_trained
        logger.warning(
            f"No block is longer than {longest_block} tokens: only the first {num_trained} of the model's "
            f"{num_positions} positions are trained. Longer texts need longer blocks (--block_length) or documents "
            "that are mixed (--mix_documents)."
        )

    def line_about(self, use: str, blocks: Dataset, num_tokens: int) -> str:
        number = counted(len(blocks), "block")
        return f"{use}: {counted(num_tokens, 'token')} in {number} of up to {self.block_length}"

    def limit_evaluation(self) -> None:
        """Lets evaluations read --max_eval_blocks, evenly drawn; after several, the last reads all blocks."""
        number, limit = len(self.validation_blocks), self.corpus_args.max_eval_blocks
        if limit is None or limit >= number:
            return
        self.watched_blocks = self.validation_blocks.select([index * number // limit for index in range(limit)])
        line = f"evaluation: of {limit:,} of these blocks"
        if self.args.eval_strategy == "no":  # a single one, at the end
            self.validation_blocks = self.watched_blocks
        else:
            line += " during training, of all at the end"
        self.lines.append(line)

    # ---- Training

    def make_trainer(self) -> None:
        trainer_class = trainer_class_of(self.family)
        self.trainer = trainer_class(
            self.model,
            self.args,
            data_collator=self.family.pretraining_collator(
                self.tokenizer, self.args.seed, self.train_blocks, **self.corpus_args.noise_options
            ),
            train_dataset=self.train_blocks,
            eval_dataset=self.watched_blocks,
            processing_class=self.tokenizer,
        )
        if self.corpus_args.streaming and self.corpus_args.train_files:  # stored blocks are compared themselves
            self.trainer.more_settings["train_files"] = fingerprint_of_files(self.corpus_args.train_files)

    def add_samples(self) -> None:
        """Lets each evaluation of a causal model continue the prompts."""
        if not self.family.is_causal:
            return
        prompts = self.model_args.prompts or [self.usual_prompt()]
        longest = max(map(len, self.tokenizer(prompts, add_special_tokens=False)["input_ids"]))
        length = min(SAMPLE_TOKENS, self.model.config.max_position_embeddings - longest)
        if length < 1:
            raise UserError(
                f"--prompts has a text of {longest} tokens, but the model has only "
                f"{self.model.config.max_position_embeddings} positions, which leaves none to continue it. Shorten it."
            )
        num_trained = getattr(self.model.config, "trained_positions", None)
        if num_trained and num_trained > longest:
            length = min(length, num_trained - longest)
        self.trainer.add_callback(SampleCallback(self.tokenizer, prompts, max_new_tokens=length))

    def usual_prompt(self) -> str:
        """A prompt for text of the kind that the tokenizer is for."""
        if self.model_args.tokenizer in (None, "gpt1", "cased"):
            return "it was"
        first = next(text for text in training_texts(**self.corpus_args.source("train")) if text.strip())
        return " ".join(first.split()[:2])[:PROMPT_CHARACTERS]

    def plan_words(self) -> None:
        """Where words are counted, sets the length of the run, and saves the model after them."""
        if not self.corpus_args.counts_words:
            return
        # The trainer takes one device.
        plan = WordPlan(self.corpus_args, self.args, len(self.train_blocks), self.words_per_epoch())
        self.lines.append(plan.line)
        done = 0
        if self.checkpoint is not None:
            done = TrainerState.load_from_json(str(Path(self.checkpoint, TRAINER_STATE_NAME))).global_step
        folder = Path(self.args.output_dir)
        passed = [name for name, at in plan.saved.items() if at <= done and not (folder / name).is_dir()]
        if passed:
            logger.warning(f"The run is past the words of {', '.join(passed)}, which will not be saved.")
        self.trainer.add_callback(SavePoints(self.trainer, plan.saved, plan.words_per_update))

    def words_per_epoch(self) -> float:
        """The words that an epoch reads, which white space separates."""
        corpus = self.corpus_args
        if corpus.mixture is None:
            return count_words(corpus.source("train"))
        return sum(
            self.times_read[name] * count_words(corpus.source_of(files))
            for name, files in corpus.mixture.files.items()
        )

    def describe_expectation(self) -> None:
        """Adds a line about the perplexity that the text is enough for, where GPT-1 was measured."""
        is_measured = self.is_new and self.family.name == "gpt1" and len(self.tokenizer) >= LEAST_VOCABULARY
        if not is_measured:
            return
        if self.args.max_steps > 0:
            length = self.num_tokens / len(self.train_blocks) if self.num_tokens else self.block_length
            num_read = self.args.max_steps * self.trainer.get_total_train_batch_size(self.args) * length
        else:
            num_read = self.args.num_train_epochs * (self.num_tokens or 0)
        self.lines.append(describe_expectation(self.num_tokens, num_read))

    def train(self) -> bool:
        """Trains or resumes. Returns whether the results of the run are still to be written."""
        evaluated = ", ".join(self.corpus_args.validation_files) or self.corpus_args.validation_split or ""
        runs.use_readable_log(self.trainer, evaluated)
        return runs.train(self.trainer, self.model_args.model, self.lines, self.checkpoint, self.parser)

    # ---- Results

    def evaluate(self) -> None:
        if self.validation_blocks is None:
            return
        if self.watched_blocks is not self.validation_blocks:
            logger.info(f"evaluation of all {len(self.validation_blocks):,} blocks:")
        metrics = self.trainer.evaluate(self.validation_blocks)
        self.trainer.save_metrics("eval", metrics)
        self.trainer.eval_dataset = self.validation_blocks  # the card reports the number of evaluated blocks
        self.trainer.save_state()  # includes this evaluation

    def publish(self) -> None:
        corpus = self.corpus_args
        runs.publish(
            self.trainer,
            self.model_args.model,
            "gpt1 generate {}" if self.family.is_causal else "gpt1 finetune --model {} …",
            language=self.model_args.language,
            license=self.model_args.license,
            dataset=corpus.dataset_name or short_names(corpus.train_files),
            dataset_tags=corpus.dataset_name,
            dataset_args=corpus.dataset_config_name,
            dataset_split=short_names(corpus.validation_files) or corpus.validation_split,
        )


def fingerprint_of_files(sources: list[str]) -> str:
    """The number and bytes of some files, and a checksum of their names and sizes. Their folders may move."""
    files = [file for source in sources for file in find_files(source)]
    sizes = [(Path(file).name, Path(file).stat().st_size) for file in files]
    num_bytes = sum(size for _, size in sizes)
    return f"{counted(len(files), 'file')} of {counted(num_bytes, 'byte')} ({zlib.crc32(repr(sizes).encode()):08x})"


def count_words(source: dict[str, Any]) -> int:
    """Words of a text, which white space separates."""
    return sum(len(text.split()) for text in training_texts(**source))


def short_names(files: list[str]) -> str:
    """The last two parts of each path: the rest of it means nothing on other machines."""
    return ", ".join("/".join(Path(file).parts[-2:]) for file in files)


class WordPlan:
    """How many updates a run has, by its number of words, and after which of them each folder is saved.

    Words are what white space separates. Updates draw blocks of the whole text: each is taken to read its share.
    Sets `max_steps` by --max_words.
    """

    def __init__(
        self, corpus_args: CorpusArguments, args: GPT1PretrainingArguments, num_blocks: int, num_words: float
    ) -> None:
        self.corpus_args = corpus_args
        self.num_words = num_words
        micro_batches = math.ceil(num_blocks / (args.train_batch_size * args.world_size))
        updates_per_epoch = math.ceil(micro_batches / args.gradient_accumulation_steps)
        self.words_per_update = self.num_words / updates_per_epoch
        if corpus_args.max_words:
            args.max_steps = max(1, self.update_of(number_of_words(corpus_args.max_words)))
        if args.max_steps > 0:
            self.num_updates = args.max_steps
        else:
            self.num_updates = math.ceil(args.num_train_epochs * updates_per_epoch)
        self.num_epochs = self.num_updates / updates_per_epoch
        self.warn_of_epochs()
        self.saved = self.save_points()

    def update_of(self, num_words: int) -> int:
        """The update that ends nearest to so many words."""
        return round(num_words / self.words_per_update)

    def save_points(self) -> dict[str, int]:
        """The update after which each folder is saved, within the run."""
        points = {name: max(1, self.update_of(words)) for name, words in self.corpus_args.save_points().items()}
        late = [name for name, update in points.items() if update > self.num_updates]
        if late:
            logger.warning(f"The run ends before the words of {', '.join(late)}, which will not be saved.")
        return {name: update for name, update in points.items() if update <= self.num_updates}

    def warn_of_epochs(self) -> None:
        is_challenge = self.corpus_args.save_at_words == [BABYLM]
        if is_challenge and round(self.num_epochs, 1) > BABYLM_EPOCHS:  # as it is printed
            read = f"The run reads the text for {self.num_epochs:.1f} epochs"
            logger.warning(f"{read}; the BabyLM challenge allows {BABYLM_EPOCHS}.")

    @property
    def line(self) -> str:
        """What the run says about its words."""
        num_read = self.num_updates * self.words_per_update
        epochs = "epoch" if round(self.num_epochs, 2) == 1 else "epochs"
        line = f"words: {self.num_words:,.0f} in the text, {num_read:,.0f} to read in {self.num_epochs:.3g} {epochs}"
        return f"{line}; saved after {', '.join(self.saved)}" if self.saved else line
