"""What a user gets wrong: one sentence on stderr with the value and the remedy, no traceback, exit code 2."""

import gzip
import json
import sys

import pytest
from datasets import disable_progress_bars, enable_progress_bars
from support.refusals import refusal
from transformers import RobertaConfig

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM
from modeling_gpt1.commands import entry, generate, models

FILES = ["finetune", "--train_file", "{0}/train.csv", "--traversal", "classification", "--columns", "text=text"]
RUN = ["--output_dir", "{0}/out", "--use_cpu", "--do_train"]
START = ["--model", "{0}/model", *RUN]
FRESH = ["--tokenizer_name", "{0}/model", *RUN]
TEXT = ["pretrain", "--train_files", "{0}/book.txt", "--output_dir", "{0}/out", "--use_cpu"]
HUB_TEXT = ["pretrain", "--dataset_name", "wikitext", "--output_dir", "{0}/out", "--use_cpu"]
GENERATE = ["generate", "--model"]
REPRODUCE = ["reproduce", "--model", "m", "--output_dir", "{0}/out"]
ZERO = ["zero-shot", "--model", "{0}/model", "--tasks"]
# Words of the command line, and parts of the sentence.
WRONG = [
    (["finetune", "--taks", "rte"], "unknown flag --taks (did you mean '--task'?)"),
    (["finetune", "--task", "ss2", *START], "'ss2' (did you mean 'sst2'?)", "to `gpt1 finetune`"),
    ([*TEXT, "--lr_scheduler_type=slow"], "slow is not a valid", "'linear'"),
    (["finetune", "--epochs", "3"], "unknown flag --epochs (did you mean '--num_train_epochs'?)"),
    (["finetune", "--model_name_or_path", "m"], "unknown flag --model_name_or_path (did you mean '--model'?)"),
    ([*TEXT, "--text_column_name", "a"], "unknown flag --text_column_name (did you mean '--text_column'?)"),
    (["finetune", "--lora_rank", "4"], "unknown flag --lora_rank (did you mean '--lora_r'?)"),  # not --local_rank
    (["finetune", "--overwrite_output_dir"], "a run never overwrites another; pass another --output_dir"),
    (["pretrain", "--overwrite_output_dir", "true"], "a run never overwrites another; pass another --output_dir"),
    (["finetune", "run.yaml"], "no flag takes 'run.yaml'. A file of settings is given as --config run.yaml"),
    (["convert", "{0}/model"], "No --output_dir was given. Write: gpt1 convert FOLDER --output_dir NEW_FOLDER"),
    (["convert", "--output_dir", "{0}/out"], "No folder to convert was given"),
    (["finetune", "--task", "rte", "--learning_rate", "fast", *START], "--learning_rate", "'fast'"),
    (["finetune", "--task", "rte", "--eval_strategy", "step", *START], "--eval_strategy", "'step'", "'steps'"),
    ([*TEXT, "--preset", "babylm-10m", "--family", "bert"], "--preset babylm-10m", "--family bert", "--config_overri"),
    ([*TEXT, "--hiddensize", "8"], "unknown flag --hiddensize; for a new", "--config_overrides hidden_size=VALUE"),
    ([*TEXT, "--max_steps", "0"], "--max_steps is 0", "Give a number above 0, or"),
    (["generate", "gpt1-novels", "it", "was"], "no flag takes 'it was'. Write a value", "quote one with spaces. See"),
    (["generate", "--prompts", "it was"], "No model was given", "after `gpt1 generate`"),
    ([*TEXT, "--validation_files", "{0}/*.txt"], "{0}/book.txt is in --train_files and in --validation_files"),
    ([*TEXT, "--validation_files", "{0}/../{0.name}/book.txt"], "book.txt is in --train_files and in --validation"),
    ([*FILES, *START[:-1], "--do_eval", "--n_transfer", "1"], "--n_transfer 1 leaves layers to train", "--do_train"),
    ([*FILES, *START[:-1], "--do_eval", "--freeze", "1"], "--freeze 1 is for training", "--do_train"),
    ([*FILES, *START, "--freeze", "head"], "--freeze is 'head'", "'embeddings', a number of first layers"),
    ([*TEXT, "--mask_ngrams", "3"], "--mask_ngrams 3 is for bert, roberta, albert, but", "gpt1. Leave it out"),
    ([*TEXT, "--family", "bert", "--mask_ngrams", "0"], "--mask_ngrams is 0, but", "at least 1 word", "leave it out"),
    (
        [*TEXT, "--family", "bert", "--tokenizer", "bytes"],
        "--tokenizer bytes has no tokens for padding, masks and ends of texts, which bert needs",
        "Pass --tokenizer gpt1 or cased or wordpiece.",
    ),
    ([*TEXT, "--family", "bert", "--noise", "rotation"], "--noise rotation is for bart, but", "the family bert"),
    ([*TEXT, "--family", "bart", "--noise", "masking"], "--noise has 'masking', but knows permutation, rotation"),
    (["generate", "{0}/modle"], "generate: model {0}/modle is no folder"),
    (["generate", "my modle"], "generate: model my modle is no folder with a config.json"),
    ([*FILES, *START, "--prediction_loss_only", "true"], "--prediction_loss_only leaves no", "Leave it out"),
    ([*GENERATE, "m", "--top_p", "0"], "--top_p is 0.0"),
    ([*GENERATE, "m", "--top_p", "5"], "--top_p is 5.0. Pass a number above 0, up to 1"),
    ([*GENERATE, "m", "--output_file", "{0}/book.txt"], "--output_file {0}/book.txt is there already", "another name"),
    ([*GENERATE, "{0}/model", "--prompt_file", "{0}/blank.txt"], "--prompt_file {0}/blank.txt has no prompts"),
    ([*GENERATE, "{0}/model", "--prompt_file", "{0}/latin.txt"], "{0}/latin.txt is not UTF-8 text. ", "`iconv -f"),
    (
        [*GENERATE, "{0}/model", "--prompt_file", "{0}/prompts.txt.gz"],
        "{0}/prompts.txt.gz is not UTF-8 text. It is compressed: `gunzip -c < {0}/prompts.txt.gz > NEW` unpacks it.",
    ),
    ([*GENERATE, "{0}/model", "--prompt_file", "{0}/train.csv"], "{0}/train.csv is a table", "a prompt per line"),
    ([*TEXT, "--tokenizer_name", "runs/bok"], "runs/bok is no folder here, and no id of the hub whose tokenizer"),
    (
        [*TEXT, "--tokenizer_name", "{0}/bok"],
        "There is no folder {0}/bok. Pass a folder with a tokenizer",
    ),
    ([*GENERATE, "{0}/bare", "--prompts", "a"], "{0}/bare has no tokenizer"),
    ([*GENERATE, "{0}/roberta", "--prompts", "a"], "{0}/roberta is a roberta"),
    (
        ["predict", "m", "--file", "{0}/train.csv", "--output_file", "o.xlsx"],
        "--output_file is o.xlsx",
        ".csv or .jsonl",
    ),
    (["predict", "m", "--file", "f.csv", "--keep", "label"], "--keep label is", "--columns label=NAME", "`index`"),
    ([*TEXT, "--tokenizer_name", "{0}/model", "--num_merges", "9"], "--num_merges 9", "Leave one of them out"),
    ([*ZERO, "cola", "sst3"], "'sst3'", "mean 'sst2'?"),
    ([*ZERO, "dpr"], "Pass a folder with its files as --data_dir"),
    ([*ZERO, "cola", "--data_dir", "{0}"], "Task 'cola': Request 0 has a continuation of 70 tokens", "most 64 fit"),
    (["zero-shot", "--checkpoints", "a", "--revision", "b"], "Pass --revision with --model"),
    ([*FILES, "--model", "{0}/modle", *RUN], "--model {0}/modle is no folder with a config.json", "or a hub id"),
    ([*TEXT, "--model", "{0}/words.txt"], "--model {0}/words.txt is no folder with"),
    (["finetune", "--config", "{0}/nope.yaml"], "{0}/nope.yaml: No such file"),
    (["finetune", "--config", "{0}/list.yaml"], "--config {0}/list.yaml has no settings", "`seed: 1`"),
    (["finetune", "--config", "{0}/broken.yaml"], "--config {0}/broken.yaml cannot be read", "line 2, column 1"),
    (["finetune", "--config", "{0}/typo.yaml"], "--config {0}/typo.yaml: unknown flag --sede (did you mean '--seed'"),
    ([*FILES, *FRESH, "--config_overrides", "hiddensize=128"], "'hiddensize=128'", "did you mean 'hidden_size'?"),
    ([*FILES, *FRESH, "--config_overrides", "n_layer=1, num_layers=2"], "'num_layers=2'", "'num_hidden_layers'?"),
    ([*FILES, *FRESH, "--config_overrides", "hidden=8"], "(did you mean 'hidden_act' or 'hidden_size'?)"),
    ([*FILES, *FRESH, "--config_overrides", "hidden_size=big"], "hidden_size=big", "expected int"),
    ([*FILES, *FRESH, "--config_overrides", "hidden_size=7"], "hidden_size=7", "(12)"),
    ([*FILES[:-1], "text=text", "label=label", *START, "--max_length", "1"], "--max_length is 1", "at least 3"),
    (["predict", "{0}/model", "--file", "{0}/train.csv"], "predict: {0}/model has no task head", "`gpt1 finetune`"),
    ([*FILES, *START, "--do_predict", "--test_file", "{0}/gap.csv"], "Row 1 of {0}/gap.csv: ", "`gpt1 predict` marks"),
    ([*FILES[:-1], "text=text,label=label", *START], "'text=text,label=label' as one pair. Separate pairs by a space"),
    ([*FILES, "text=label", *START], "--columns has the role 'text' twice", "text=column,column"),
    (["generate", "--prompts_file", "a"], "unknown flag --prompts_file (did you mean '--prompt_file'?)"),
    ([*FILES, *START, "--columns", "label=label"], "--columns is given twice. Write all its values after one."),
    ([*TEXT, "--prompts", "a", "--prompts", "b"], "--prompts is given twice. Write all its values after one."),
    ([*TEXT, "--config-overrides=a=1", "--config_overrides", "b=2"], "--config_overrides is given twice"),
    (
        [*FILES[:-1], "review=text", "mood=label", *START],
        "has the role 'review', but",
        "Write the role first",
    ),
    (
        [*FILES, *START, "--eval_strategy", "epoch"],
        "--eval_strategy needs validation rows",
        "Pass --validation_file",
        "or --validation_split 0.2 to hold out a fifth of the training rows",
    ),
    ([*GENERATE, "gpt1-novel"], "gpt1-novel is no folder", "(did you mean 'gpt1-novels'?)"),
    ([*TEXT[:3], "--output_dir", "{0}/book.txt"], "--output_dir {0}/book.txt is a file. Pass a folder."),
    ([*TEXT, "--model", "{0}/model", "--tokenizer_name", "gpt1-novels"], "Take the tokenizer saved with the model"),
    ([*FILES, *START, "--regression", "--metric_name", "f1"], "'f1' is unknown to", "for numbers, pearson or r2"),
    ([*FILES, *START, "--seed", "-1"], "--seed is -1, but must be at least 0"),
    ([*FILES, *START, "--lm_coef", "-1"], "finetune: --lm_coef is -1.0, but"),
    ([*FILES, *START, "--metric_for_best_model", "acuracy"], "of this run (did you mean 'accuracy'?)", "loss or acc"),
    (
        [*FILES, *START, "--metric_for_best_model", "my_accuracy"],
        "my_accuracy",
        "not a score of this run",
        "loss or acc",
    ),
    (
        [*TEXT, "--metric_for_best_model", "accuracy"],
        "is accuracy, which is not a score of this run",
        "loss or perplexity.",
    ),
    ([*FILES, *START, "--report_to", "dvclive"], "--report_to dvclive cannot be used", "`pip install dvclive`. Or"),
    (
        [*TEXT, "--report_to", "dvclive"],
        "--report_to dvclive cannot be used",
        "`pip install dvclive`. Or pass --report",
    ),
    ([*TEXT, "--report_to", "wanb"], "--report_to wanb cannot be used: wanb is not supported, only "),
    ([*FILES, *START, "--validation_split", "0.2"], "--validation_split 0.2 holds rows out", "Pass --do_eval, or"),
    ([*FILES, *START, "--validation_split", "20"], "--validation_split is 20.0, but the share", "between 0 and 1"),
    ([*FILES, *START, "--validation_split", "dev"], "dev names a split of --dataset_name", "such as 0.2, or --valid"),
    (
        [*FILES, *START, "--validation_split", "0.2", "--validation_file", "{0}/train.csv"],
        "--validation_split 0.2 and --validation_file were both given",
        "Leave one of them out",
    ),
    ([*FILES, *START, "--dataset_config_name", "en"], "--dataset_config_name en is for --dataset_name", "Leave"),
    ([*FILES, *START, "--train_split", "dev"], "--train_split dev is for --dataset_name", "Leave it out"),
    (["finetune", "--task", "sst2", *START, "--test_split", "dev"], "--test_split dev is for --dataset_name", "Leave"),
    (
        [*HUB_TEXT, "--validation_split", "dev", "--validation_files", "{0}/book.txt"],
        "--validation_split dev and --validation_files were both given",
        "Leave one of them out",
    ),
    (["finetune", "--task", "sst2", *START, "--validation_split", "0.2"], "--task sst2 brings its own rows", "Leave"),
    ([*FILES, *START, "--delimiter", "::"], "--delimiter is '::'", "Pass one character, or the word tab"),
    (
        [*TEXT, "--family", "bert", "--metric_for_best_model", "perplexity"],
        "perplexity, which is not a score of this run",
        "Pass loss or mlm_loss or sentence_loss or sentence_accuracy.",
    ),
    ([*TEXT, "--max_words", "1M", "--num-train-epochs", "2"], "both set the length of the run", "Leave one"),
    (["plot", "{0}", "--output_file", "rev"], "--output_file rev is no .png, .svg or .pdf", "Write one"),
    ([*TEXT, "--block_length", "1024"], "need 1024 positions", "new model max_position_embeddings=1024 (--config_"),
    (["reproduce", *REPRODUCE[3:]], "No model was given. Pass a pre-trained Transformer as --model"),
    (["reproduce", *REPRODUCE[3:], "--experiments", "zero_shot"], "Pass its output folder as --checkpoints"),
    ([*REPRODUCE, "--experiments", "tuning"], "--experiments", "'tuning'", "'fine_tuning', 'ablations'"),
    ([*REPRODUCE, "--finetune_arguments", "--seed", "3"], "--finetune_arguments has --seed", "Leave it out"),
    ([*REPRODUCE, "--finetune_arguments", "--lerning_rate=1"], "did you mean '--learning_rate'?", "finetune --help"),
    (["evaluate", "--model", "{0}/model", "--tasks", "copa", "--device", "gpu"], "--device gpu"),
]
# Flags below their least value.
for command, *values in (
    ([*FILES, *START], "max_train_samples=-1", "per_device_train_batch_size=0", "lora_r=0", "learning_rate=-1.0"),
    (TEXT, "num_merges=0", "max_eval_blocks=0", "weight_decay=-1.0"),
    ([*GENERATE, "m"], "batch_size=0", "num_beams=0", "num_return_sequences=0", "max_new_tokens=0"),
    (["zero-shot", "--model", "m"], "max_eval_samples=0", "num_shots=-2"),
    (["evaluate", "--model", "m", "--tasks", "rte"], "num_fewshot=-1", "batch_tokens=0"),
    (REPRODUCE, "zero_shot_max_eval_samples=-1", "rehearse=0", "jobs=0"),
):
    WRONG += [([*command, f"--{value}"], f"--{value.replace('=', ' is ')}, but must be at least ") for value in values]


@pytest.mark.parametrize("more", [[], ["--revision", "chck_5K"]])
def test_a_missing_folder_is_refused_where_the_hub_is_off(more, monkeypatch):
    monkeypatch.setattr(models, "HF_HUB_OFFLINE", True)
    assert "model run/r is neither a folder here nor in the hub" in refusal(generate.main, ["run/r", *more])


@pytest.fixture(scope="module")
def folder(plain_tokenizer, tmp_path_factory):
    disable_progress_bars()
    folder = tmp_path_factory.mktemp("wrong")
    config = GPT1Config(n_embd=8, n_layer=1, n_head=2, n_positions=64, vocab_size=len(plain_tokenizer))
    for name in ("model", "bare"):
        GPT1ForCausalLM(config).save_pretrained(folder / name)
    RobertaConfig(vocab_size=9).save_pretrained(folder / "roberta")
    plain_tokenizer.save_pretrained(folder / "model")
    texts = {
        **{"train.csv": "text,label\na good film,1\na bad film,0\n", "gap.csv": 'text\na film\n" "\n'},
        **{"words.txt": "a good film\n", "blank.txt": "\n \n", "book.txt": "it was a dark night .\n"},
        "cola/train.jsonl": json.dumps({"sentence": "the " * 70, "label": 1}) + "\n",
        "cola/validation.jsonl": json.dumps({"sentence": "the " * 70, "label": 0}) + "\n",
        **{"list.yaml": "- a\n- b\n", "broken.yaml": "seed: [1\n", "typo.yaml": "sede: 1\n"},
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    (folder / "prompts.txt.gz").write_bytes(gzip.compress(b"it was"))
    yield folder
    enable_progress_bars()


@pytest.mark.parametrize(("words", "parts"), [(words, parts) for words, *parts in WRONG])
def test_a_wrong_use_ends_in_one_sentence(words, parts, folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpt1"])
    with pytest.raises(SystemExit) as end:
        entry.main([word.format(folder) for word in words])
    told = capsys.readouterr().err
    assert end.value.code == 2
    assert told.count("\n") == 1
    assert told.startswith("gpt1 ")
    assert [part for part in parts if part.format(folder) not in told] == [], told


def test_a_tracker_without_its_key_is_refused_before_training(folder, capsys, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setattr(wandb, "login", lambda prompt: False)
    monkeypatch.setattr(sys, "argv", ["gpt1"])
    with pytest.raises(SystemExit):
        entry.main([word.format(folder) for word in [*FILES, *START, "--report_to", "wandb"]])
    told = capsys.readouterr().err
    assert told == (
        "gpt1 finetune: --report_to wandb cannot be used: there is no API key. Run `wandb login`, set "
        "WANDB_MODE=offline, or pass --report_to none.\n"
    )
