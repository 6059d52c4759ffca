"""What a user gets wrong, each by the whole text on stderr: one sentence, no traceback, exit code 2."""

import json
import sys

import pytest
from datasets import disable_progress_bars, enable_progress_bars

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM
from modeling_gpt1.commands import entry

FILES = ["--train_file", "{folder}/train.csv", "--traversal", "classification", "--columns", "text=review"]
START = ["--model", "{folder}/model", "--output_dir", "{folder}/out", "--use_cpu", "--do_train"]
FRESH = ["--tokenizer_name", "{folder}/model", "--output_dir", "{folder}/out", "--use_cpu", "--do_train"]
TEXT = ["--train_files", "{folder}/book.txt", "--output_dir", "{folder}/out", "--use_cpu"]
WRONG = {
    "command": (
        ["finetun"],
        ": unknown command 'finetun'; the closest is 'finetune'. See gpt1 --help.",
    ),
    "flag": (
        ["finetune", "--taks", "rte"],
        " finetune: unknown flag --taks; did you mean --task? See gpt1 finetune --help.",
    ),
    "flag of another command": (
        ["generate", "--max_train_samples", "3"],
        " generate: unknown flag --max_train_samples. See gpt1 generate --help.",
    ),
    "flag that begins several names": (
        ["finetune", "--max_", "3"],
        " finetune: --max_ is ambiguous: it may be --max_eval_samples or --max_grad_norm or --max_length or "
        "--max_predict_samples or --max_steps or --max_train_samples. Write the full name.",
    ),
    "number": (
        ["finetune", "--task", "rte", "--learning_rate", "fast", *START],
        " finetune: --learning_rate is 'fast', but must be a number.",
    ),
    "negative number": (
        ["finetune", "--task", "rte", "--learning_rate", "-1e-3", *START],
        " finetune: --learning_rate is -1e-3, but must be at least 0.",
    ),
    "strategy": (
        ["finetune", "--task", "rte", "--eval_strategy", "step", *START],
        " finetune: --eval_strategy has no value 'step'; did you mean steps? It takes no, steps, epoch.",
    ),
    "schedule": (
        ["pretrain", *TEXT, "--lr_scheduler_type=slow"],
        " pretrain: --lr_scheduler_type has no value 'slow'. It takes linear, cosine, cosine_with_restarts, "
        "polynomial, constant, constant_with_warmup, inverse_sqrt, reduce_lr_on_plateau, cosine_with_min_lr, "
        "cosine_warmup_with_min_lr, warmup_stable_decay, greedy.",
    ),
    "missing flag": (
        ["generate", "--prompts", "it was"],
        " generate: the following arguments are required: --model. See gpt1 generate --help.",
    ),
    "word without a flag": (
        ["convert", "--source", "a", "--output_dir", "b", "c"],
        " convert: Unexpected arguments: 'c'. See gpt1 convert --help.",
    ),
    "no data": (
        ["finetune", *START],
        " finetune: No data was given. Pass --task with a task of the paper, or --train_file, --validation_file or "
        "--test_file with --traversal and --columns.",
    ),
    "no model": (
        ["finetune", "--task", "rte", "--output_dir", "{folder}/out", "--do_train"],
        " finetune: Neither --model nor --tokenizer_name was given. Pass --model to fine-tune a checkpoint, or "
        "--tokenizer_name (and --config_overrides) to train a fresh model.",
    ),
    "nothing to do": (
        ["finetune", "--task", "rte", "--model", "{folder}/model", "--output_dir", "{folder}/out", "--use_cpu"],
        " finetune: There is nothing to do. Pass --do_train, --do_eval or --do_predict.",
    ),
    "unknown task": (
        ["finetune", "--task", "rtee", *START],
        " finetune: --task has no value 'rtee'; did you mean rte? It takes sst2, cola, mrpc, stsb, qqp, mnli, snli, "
        "qnli, rte, scitail, race, race-middle, race-high, story_cloze.",
    ),
    "unknown traversal": (
        ["finetune", *FILES[:3], "entailmnt", *FILES[4:], *START],
        " finetune: --traversal has no value 'entailmnt'; did you mean entailment? It takes classification, "
        "entailment, similarity, multiple_choice.",
    ),
    "unknown task of zero-shot": (
        ["zero-shot", "--model", "{folder}/model", "--tasks", "cola", "sst3"],
        " zero-shot: --tasks has no value 'sst3'; did you mean sst2? It takes cola, sst2, race, race-middle, "
        "race-high, story_cloze, dpr, blimp, mrpc, stsb, qqp, mnli, snli, qnli, rte, scitail.",
    ),
    "no such folder": (
        ["finetune", *FILES, "--model", "{folder}/modle", "--output_dir", "{folder}/out", "--use_cpu", "--do_train"],
        " finetune: --model {folder}/modle does not exist. Did you mean {folder}/model? Pass a folder, or a hub id "
        "such as owner/name.",
    ),
    "folder without a model": (
        ["generate", "--model", "{folder}/run", "--prompts", "it was"],
        " generate: --model {folder}/run is a folder without config.json. Its subfolders checkpoint-5 have one. Pass "
        "a folder with one, or a hub id.",
    ),
    "file as a model": (
        ["generate", "--model", "{folder}/words.txt", "--prompts", "it was"],
        " generate: --model {folder}/words.txt is a file. Pass the folder that holds config.json, or a hub id.",
    ),
    "no such settings": (
        ["finetune", "--config", "{folder}/nope.yaml"],
        " finetune: --config {folder}/nope.yaml does not exist. Pass a .yaml or .json file, such as the run.yaml "
        "of a run.",
    ),
    "settings of no names": (
        ["finetune", "--config", "{folder}/list.yaml"],
        " finetune: --config {folder}/list.yaml has no settings. Write one per line as `name: value`, such as `seed: "
        "1`.",
    ),
    "broken settings": (
        ["finetune", "--config", "{folder}/broken.yaml"],
        " finetune: --config {folder}/broken.yaml is not valid YAML: expected ',' or ']', but got '<stream end>' at "
        "line 2, column 1. Correct the file.",
    ),
    "broken JSON": (
        ["finetune", "--config", "{folder}/broken.json"],
        " finetune: --config {folder}/broken.json is not valid JSON: Expecting ',' delimiter: line 1 column 11 (char "
        "10). Correct the file.",
    ),
    "unknown setting": (
        ["finetune", "--config", "{folder}/typo.yaml"],
        " finetune: --config {folder}/typo.yaml: unknown flag --sede; did you mean --seed? See gpt1 finetune --help.",
    ),
    "output folder in use": (
        ["finetune", *FILES, "--model", "{folder}/model", "--output_dir", "{folder}/full", "--use_cpu", "--do_train"],
        " finetune: --output_dir {folder}/full is not empty. Pass --resume_from_checkpoint auto to resume the run "
        "that wrote it, or pass another folder.",
    ),
    "word for a number of a config": (
        ["finetune", *FILES, *FRESH, "--config_overrides", "hidden_size=big"],
        " finetune: --config_overrides hidden_size=big: Field 'hidden_size' expected int, got str (value: 'big').",
    ),
    "sizes that do not fit": (
        ["finetune", *FILES, *FRESH, "--config_overrides", "hidden_size=7"],
        " finetune: --config_overrides hidden_size=7: `hidden_size` (7) is not divisible by `num_attention_heads` "
        "(12). Choose a number of heads that divides the hidden size.",
    ),
    "role of no traversal": (
        ["finetune", *FILES[:-1], "txt=text", *START],
        ' finetune: columns has the unknown role "txt"; the roles of classification are: text, label.',
    ),
    "no such column": (
        ["finetune", *FILES, *START],
        " finetune: {folder}/train.csv has no column 'review' for the role text; its columns are: text, label. Name "
        "its column in `columns` (text=column).",
    ),
    "no such file": (
        ["finetune", "--train_file", "{folder}/tarin.csv", *FILES[2:], *START],
        " finetune: --train_file {folder}/tarin.csv does not exist. Pass the path of a file.",
    ),
    "file of another kind": (
        ["finetune", "--train_file", "{folder}/words.txt", *FILES[2:], *START],
        " finetune: --train_file {folder}/words.txt has an unknown file type. Pass a file that ends in .jsonl, "
        ".jsonl.gz, .csv, .parquet.",
    ),
    "accumulation of nothing": (
        ["finetune", *FILES[:-1], "text=text", *START, "--gradient_accumulation_steps", "0"],
        " finetune: --gradient_accumulation_steps is 0, but must be at least 1.",
    ),
    "seed out of range": (
        ["finetune", *FILES[:-1], "text=text", *START, "--seed=-1"],
        " finetune: `seed` is -1, but must be from 0 to 4294967295.",
    ),
    "arguments of an optimizer": (
        ["finetune", *FILES[:-1], "text=text", *START, "--optim_args", "amsgrad"],
        " finetune: `optim_args` is 'amsgrad', but must be name=value pairs with commas between them.",
    ),
    "arguments of a schedule": (
        ["finetune", *FILES[:-1], "text=text", *START, "--lr_scheduler_kwargs", "2"],
        " finetune: `lr_scheduler_kwargs` is '2', but must be an object, such as {{\"num_cycles\": 2}}.",
    ),
    "an argument that the optimizer does not read": (
        ["finetune", *FILES[:-1], "text=text", *START, "--optim", "adamw_torch", "--optim_args", "foo=1"],
        " finetune: `optim_args` is 'foo=1', but adamw_torch reads none of them. Set `adam_beta1`, `adam_beta2`, "
        "`adam_epsilon` and `weight_decay`, or another `optim`.",
    ),
    "an argument that the schedule does not know": (
        ["finetune", *FILES[:-1], "text=text", *START, "--lr_scheduler_kwargs", '{{"foo": 1}}'],
        " finetune: `lr_scheduler_kwargs` is {{'foo': 1}}, which `lr_scheduler_type` 'linear' does not accept: got an "
        "unexpected keyword argument 'foo'.",
    ),
    "an argument that the schedule lacks": (
        ["finetune", *FILES[:-1], "text=text", *START, "--lr_scheduler_type", "cosine_with_min_lr"],
        " finetune: `lr_scheduler_kwargs` is None, which `lr_scheduler_type` 'cosine_with_min_lr' does not accept: "
        "One of min_lr or min_lr_rate should be set through the `lr_scheduler_kwargs`.",
    ),
    "an argument that accelerate does not know": (
        ["finetune", *FILES[:-1], "text=text", *START, "--accelerator_config", '{{"foo": 1}}'],
        " finetune: `accelerator_config` is {{'foo': 1}}: got an unexpected keyword argument 'foo'.",
    ),
    "no text": (
        ["pretrain", "--output_dir", "{folder}/out"],
        " pretrain: One source of text is needed, --train_files or --dataset_name, but neither was given.",
    ),
    "text that is not there": (
        ["pretrain", "--train_files", "{folder}/nope.txt", "--output_dir", "{folder}/out", "--use_cpu"],
        " pretrain: {folder}/nope.txt matches no file. Give the path of a file or folder, or a pattern such as "
        "books/*.txt.",
    ),
    "stream without an end": (
        ["pretrain", *TEXT, "--streaming"],
        " pretrain: --streaming reads text of unknown length. Pass the number of updates as --max_steps.",
    ),
    "two sources of prompts": (
        ["generate", "--model", "m", "--prompts", "a", "--prompt_file", "b"],
        " generate: Both --prompts and --prompt_file were given, but only one can be used. Leave one out.",
    ),
    "prompts of another form": (
        ["generate", "--model", "{folder}/model", "--prompt_file", "{folder}/prompts.jsonl"],
        ' generate: {folder}/prompts.jsonl, line 1 must be an object such as {{"prompt": "it was"}}, but is '
        '{{"text": "it was"}}.',
    ),
    "model without a head": (
        ["predict", "{folder}/model", "--file", "{folder}/train.csv"],
        " predict: --model {folder}/model has no task head: it is a language model. Pass a folder that `gpt1 "
        "finetune` wrote.",
    ),
    "no model to predict with": (
        ["predict", "--file", "{folder}/train.csv"],
        " predict: No model was given. Write its folder or hub id after `gpt1 predict`.",
    ),
    "neither model nor run": (
        ["zero-shot", "--tasks", "sst2"],
        " zero-shot: Exactly one of --model and --checkpoints is needed, but neither was given.",
    ),
    "task without a heuristic": (
        ["zero-shot", "--model", "{folder}/model", "--tasks", "rte", "--data_dir", "{folder}"],
        " zero-shot: Task 'rte' has no zero-shot heuristic. Those with one: cola, sst2, race, race-middle, race-high, "
        "story_cloze, dpr, blimp. For your own data, build a Heuristic from a Task and a function that maps a row to "
        "its candidates.",
    ),
    "run without a log": (
        ["plot", "{folder}/model"],
        " plot: {folder}/model has no log: neither trainer_state.json nor a checkpoint with one. Pass the "
        "`--output_dir` of a run.",
    ),
    "no such release": (
        ["convert", "--source", "{folder}/nope", "--output_dir", "{folder}/out"],
        " convert: {folder}/nope is not a folder. Give a folder on this machine; `hf download "
        "openai-community/openai-gpt --local-dir …` fetches one from the hub.",
    ),
    "unknown experiment": (
        ["reproduce", "--experiments", "tuning", "--model", "m", "--output_dir", "{folder}/out"],
        " reproduce: --experiments has 'tuning'. Known experiments: fine_tuning, ablations, layer_transfer, "
        "zero_shot, auxiliary_sizes, loss_by_position.",
    ),
    "seed of a cell": (
        ["reproduce", "--model", "m", "--output_dir", "{folder}/out", "--finetune_arguments", "--seed", "3"],
        " reproduce: --finetune_arguments has --seed, which `gpt1 reproduce` sets for each cell. Leave it out; `gpt1 "
        "reproduce --help` explains how tasks, models, data and seeds are chosen.",
    ),
    "unknown shell": (
        ["completion", "tcsh"],
        " completion: the name of a shell is needed (bash, zsh, fish), but tcsh was given.",
    ),
}


@pytest.fixture(scope="module")
def folder(plain_tokenizer, tmp_path_factory):
    disable_progress_bars()
    folder = tmp_path_factory.mktemp("wrong")
    config = GPT1Config(n_embd=8, n_layer=1, n_head=2, n_positions=64, vocab_size=len(plain_tokenizer))
    GPT1ForCausalLM(config).save_pretrained(folder / "model")
    plain_tokenizer.save_pretrained(folder / "model")
    GPT1Config(n_embd=8, n_head=2).save_pretrained(folder / "run" / "checkpoint-5")
    texts = {
        "train.csv": "text,label\na good film,1\na bad film,0\n",
        "words.txt": "a good film\n",
        "book.txt": "it was a dark night .\n",
        "list.yaml": "- a\n- b\n",
        "broken.yaml": "seed: [1\n",
        "typo.yaml": "sede: 1\n",
        "broken.json": '{"seed": 1',
        "prompts.jsonl": json.dumps({"text": "it was"}) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "full").mkdir()
    (folder / "full" / "notes.txt").touch()
    yield folder
    enable_progress_bars()


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_use_is_told_in_a_sentence(case, folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpt1"])
    words, message = WRONG[case]
    with pytest.raises(SystemExit) as end:
        entry.main([word.format(folder=folder) for word in words])
    told = capsys.readouterr().err
    assert told == f"gpt1{message}\n".format(folder=folder)
    assert end.value.code == 2
