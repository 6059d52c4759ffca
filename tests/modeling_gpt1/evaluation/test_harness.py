"""The harness's model `gpt1` beside its model `hf`: numbers, shared contexts, stopping, and what is refused."""

import json
import math
import shutil
from importlib import import_module
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from matplotlib.axes import Axes
from support.evaluation import FOLDERS, ROWS, STORY, TEXTS, only_few_tasks, write_tasks
from support.families import make_family_model, make_family_tokenizer
from support.files import save_folder, write_rows
from support.refusals import refusal
from support.tiny import SPLIT_IN_TWO_WAYS, byte_level
from transformers import BertConfig, BertLMHeadModel, GPT2Config, GPT2LMHeadModel, OpenAIGPTTokenizer

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM, GPT1LSTMForCausalLM
from modeling_gpt1.evaluation.report import add_facts, chance_of, curves, draw, figures, table

pytest.importorskip("lm_eval")
Instance = import_module("lm_eval.api.instance").Instance
simple_evaluate = import_module("lm_eval.evaluator").simple_evaluate
HFLM = import_module("lm_eval.models.huggingface").HFLM
harness = import_module("modeling_gpt1.evaluation.harness")
local_rows = import_module("modeling_gpt1.evaluation.local_rows")


@pytest.fixture(scope="module", autouse=True)
def few_definitions():
    with only_few_tasks():
        yield


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module", params=["gpt1", "fine-tuned", "lstm", "gpt2's options", "gpt2"])
def folder(request, tmp_path_factory, tiny_model, randomise, plain_tokenizer, tiny_tokenizer):
    path = tmp_path_factory.mktemp("model")
    kind = request.param
    if kind == "gpt2":
        tokenizer = byte_level(STORY)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=4, n_positions=64))
        return save_folder(path, randomise(model).eval(), tokenizer)
    tokenizer = tiny_tokenizer if kind == "fine-tuned" else plain_tokenizer
    model_class = {"fine-tuned": GPT1DoubleHeadsModel, "lstm": GPT1LSTMForCausalLM}.get(kind, GPT1ForCausalLM)
    fields = {"do_layer_norm_before": True, "rescale_prenorm_residual": True} if kind == "gpt2's options" else {}
    model = tiny_model(model_class, vocab_size=len(tokenizer), max_position_embeddings=64, **fields)
    assert ("transformer.ln_f.weight" in model.state_dict()) == (kind == "gpt2's options")
    return save_folder(path, model, tokenizer)


def answers(results):
    """Every request's log-probability and greediness."""
    return {
        (task, sample["doc_id"], number): response[0]
        for task, samples in results["samples"].items()
        for sample in samples
        for number, response in enumerate(sample["resps"])
    }


def ask(model, data_dir, tmp_path):
    tasks = [*ROWS, "wikitext"]
    specified, names = local_rows.specify_tasks(tasks, data_dir)
    assert names == tasks
    return simple_evaluate(
        model, tasks=specified, task_manager=local_rows.all_tasks(), bootstrap_iters=0, confirm_run_unsafe_code=True
    )


def test_numbers_equal_those_of_hf(folder, data_dir, tmp_path):
    """14 tasks: several answers, last words, minimal pairs, whole texts."""
    ours = answers(ask(harness.SharedContextLM(folder, device="cpu", sentence_prefix=True), data_dir, tmp_path))
    tokens = {"add_bos_token": False} if "[e]" in (Path(folder) / "tokenizer.json").read_text() else {}
    theirs = answers(ask(HFLM(folder, device="cpu", batch_size=4, **tokens), data_dir, tmp_path))
    assert ours.keys() == theirs.keys()
    assert len(ours) == 70
    for key, theirs_of_key in theirs.items():
        if key[0] == "wikitext":
            assert ours[key] == pytest.approx(theirs_of_key, rel=1e-5)
        else:
            assert ours[key][0] == pytest.approx(theirs_of_key[0], rel=1e-5)
            assert ours[key][1] == theirs_of_key[1]


def test_a_changed_weight_is_seen(tmp_path, save_model):
    """Negative control of the comparison."""
    folders = [save_model(tmp_path / str(seed), seed) for seed in (0, 1)]
    request = Instance("loglikelihood", {}, ("the old farmer", " smiled"), 0)
    first, other = (harness.SharedContextLM(folder, device="cpu").loglikelihood([request]) for folder in folders)
    assert abs(first[0][0] - other[0][0]) > 0.1


@pytest.fixture(scope="module")
def one_folder(tmp_path_factory, save_model):
    return save_model(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def ours(one_folder):
    return harness.SharedContextLM(one_folder, device="cpu")


def test_a_context_is_read_once(ours):
    contexts = [TEXTS[0] + " " + text for text in TEXTS]
    requests = [
        Instance("loglikelihood", {}, (context, f" {text}"), number)
        for number, (context, text) in enumerate((context, text) for text in TEXTS[:4] for context in contexts)
    ]
    seen = []
    handle = ours.model.get_input_embeddings().register_forward_hook(lambda *args: seen.append(args[1][0].numel()))
    found = ours.loglikelihood(requests, disable_tqdm=True)
    handle.remove()
    alone = [ours.loglikelihood([request], disable_tqdm=True)[0] for request in requests]
    for together, by_itself in zip(found, alone, strict=True):
        assert together == pytest.approx(by_itself, rel=1e-5)
    pairs = [ours._encode_pair(*request.args) for request in requests]
    assert sum(seen) < 0.6 * sum(len(context) + len(rest) - 1 for context, rest in pairs)


def test_a_context_that_is_too_long_is_cut_as_by_hf(one_folder, ours):
    context = " ".join(STORY * 8)
    requests = [Instance("loglikelihood", {}, (context, f" {text}"), 0) for text in TEXTS]
    theirs = HFLM(one_folder, device="cpu").loglikelihood(requests, disable_tqdm=True)
    messages = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(harness.logger, "warning_once", messages.append)
        found = ours.loglikelihood(requests, disable_tqdm=True)
        ours._loglikelihood_tokens([(None, [5] * 60, [6] * 5)], disable_tqdm=True)  # fits: the last is not read
    for one, other in zip(found, theirs, strict=True):
        assert one[0] == pytest.approx(other[0], rel=1e-5)
    expected = "6 of 6 requests are longer than the model reads (64 tokens). Their contexts lost their beginning."
    assert messages == [expected]


def scores_of_sentences(model, tokenizer, sentences):
    """Written on their own: log P of each token but the first, as the pipelines of the BabyLM challenge sum it."""
    scores = []
    for sentence in sentences:
        ids = torch.tensor([tokenizer.encode(sentence, add_special_tokens=False)])
        with torch.no_grad():
            log_probs = model(ids).logits.log_softmax(-1)
        scores.append(sum(log_probs[0, place - 1, ids[0, place]].item() for place in range(1, ids.shape[1])))
    return scores


def test_whole_sentences_are_scored_from_their_second_token(ours, one_folder):
    sentences = [*TEXTS, "farmer"]
    requests = [Instance("loglikelihood", {}, ("", sentence), 0) for sentence in sentences]
    found = [score for score, _ in ours.loglikelihood(requests, disable_tqdm=True)]
    assert found == pytest.approx(scores_of_sentences(ours.model, ours.tokenizer, sentences), rel=1e-5)
    prefixed = harness.SharedContextLM(one_folder, device="cpu", sentence_prefix=True)
    longer = [score for score, _ in prefixed.loglikelihood(requests, disable_tqdm=True)]
    assert all(one < other - 1 for one, other in zip(longer, found, strict=True))  # of one more token
    assert [add_facts({}, one)["sentence_prefix"] for one in (ours, prefixed)] == [False, True]


@pytest.mark.real_data
def test_all_paradigms_of_blimp_are_scored_as_by_a_plain_loop(real_data_dir, tiny_model, plain_tokenizer, tmp_path):
    """On the real rows, 3 of each of the 67 paradigms."""
    model = tiny_model(GPT1ForCausalLM, vocab_size=len(plain_tokenizer), max_position_embeddings=256)
    ours = harness.SharedContextLM(save_folder(tmp_path, model, plain_tokenizer), device="cpu")
    specified, names = local_rows.specify_tasks(["blimp"], real_data_dir)
    options = {"task_manager": local_rows.all_tasks(), "limit": 3, "bootstrap_iters": 0}
    results = simple_evaluate(ours, tasks=specified, **options)
    assert names == ["blimp"]
    assert len(results["samples"]) == 67
    for samples in results["samples"].values():
        sentences = [text for sample in samples for _, text in sample["arguments"]]
        found = [response[0][0] for sample in samples for response in sample["resps"]]
        assert found == pytest.approx(scores_of_sentences(ours.model, ours.tokenizer, sentences), rel=1e-5)


def test_answers_go_to_the_harnesss_cache_but_windows_of_a_text(ours, monkeypatch):
    noted = []
    monkeypatch.setattr(ours.cache_hook, "add_partial", lambda *answer: noted.append(answer))
    pair = ("the old farmer", " smiled")
    (answer,) = ours.loglikelihood([Instance("loglikelihood", {}, pair, 0)], disable_tqdm=True)
    ours._loglikelihood_tokens([(None, [5], [6])], disable_tqdm=True)
    assert noted == [("loglikelihood", pair, answer)]


def test_texts_that_the_tokenizer_does_not_know_are_told(ours, monkeypatch):
    told = []
    monkeypatch.setattr(harness.logger, "warning", told.append)
    for words in ("the old farmer", "Добрый день"):
        ours.loglikelihood([Instance("loglikelihood", {}, (words, " walked"), 0)])
    assert len(told) == 1
    assert "% of the tokens are unknown" in told[0]
    assert "'Добрый день walked'" in told[0]


def test_continuations_without_a_token_of_their_own(ours):
    """Inside a word `hf` has no token, and crashes; white space has none at all."""
    ((inside, _),) = ours.loglikelihood([Instance("loglikelihood", {}, ("she smil", "ed"), 0)], disable_tqdm=True)
    assert math.isfinite(inside)
    assert inside < 0
    with pytest.raises(ValueError, match="The continuation '  ' of the context that ends in 'the old farmer' has no"):
        ours.loglikelihood([Instance("loglikelihood", {}, ("the old farmer", "  "), 0)], disable_tqdm=True)


def test_an_encoder_is_refused(tmp_path):
    tokenizer = byte_level(STORY)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    torch.manual_seed(0)
    model = BertLMHeadModel(config)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    opened = harness.SharedContextLM(save_folder(tmp_path, model, tokenizer), device="cpu")
    with pytest.raises(ValueError, match="BertLMHeadModel is not a causal language model: like BERT's"):
        opened.loglikelihood([Instance("loglikelihood", {}, ("the old", " farmer"), 0)], disable_tqdm=True)


def test_an_encoder_whose_tokenizer_has_no_end_of_text_is_refused(tmp_path):
    """`hf` looks for one, and raises an error that says nothing of the model."""
    tokenizer = make_family_tokenizer("bert")
    model = make_family_model("bert", tokenizer, "ForMaskedLM")
    opened = harness.SharedContextLM(save_folder(tmp_path, model, tokenizer), device="cpu")
    assert tokenizer.eos_token is None
    with pytest.raises(ValueError, match="BertLMHeadModel is not a causal language model: like BERT's"):
        opened.loglikelihood([Instance("loglikelihood", {}, ("the old", " cat"), 0)], disable_tqdm=True)


def test_openai_gpt_is_read_as_gpt1(openai_gpt_folder, plain_tokenizer, tmp_path):
    """`hf` takes the tokenizer of transformers, which splits text otherwise. A given tokenizer is taken as it is."""
    expected = plain_tokenizer(SPLIT_IN_TWO_WAYS)["input_ids"]
    opened = harness.SharedContextLM(str(openai_gpt_folder), device="cpu")
    assert opened.tok_encode(SPLIT_IN_TWO_WAYS) == expected
    assert add_facts({}, opened) == {"flattered": True}

    by_name = harness.SharedContextLM(
        GPT1ForCausalLM.from_pretrained(openai_gpt_folder), tokenizer=str(openai_gpt_folder), add_bos_token=False
    )
    assert by_name.tok_encode(SPLIT_IN_TWO_WAYS) == expected
    assert not by_name.tokenizer.add_bos_token
    theirs = OpenAIGPTTokenizer.from_pretrained(openai_gpt_folder, eos_token="<unk>")
    given = harness.SharedContextLM(str(openai_gpt_folder), tokenizer=theirs, device="cpu")
    assert given.tokenizer is theirs
    assert given.tok_encode(SPLIT_IN_TWO_WAYS) != expected


def test_the_report_tells_chance_and_the_split_that_was_read(ours, data_dir, tmp_path):
    results = ask(ours, data_dir, tmp_path)
    results["asked"] = ["arc_easy", "wikitext", "storycloze_2016"]
    samples = results["samples"]["wikitext"]
    assert [sample["doc"]["page"].strip().splitlines()[0] for sample in samples] == ["= Old Farmer = ", "= A Home = "]
    results = add_facts(results, ours)
    assert chance_of(results, "arc_easy") == 0.25
    assert chance_of(results, "storycloze_2016") == 0.5
    tokens = sum(len(ours.tok_encode(sample["arguments"][0][0])) for sample in samples)
    total = sum(sample["resps"][0][0] for sample in samples)
    assert figures(results, "wikitext")["token_perplexity"][0] == pytest.approx(math.exp(-total / tokens))
    words = sum(len(sample["doc"]["page"].split()) + sample["doc"]["page"].count("\n") for sample in samples)
    assert figures(results, "wikitext")["word_perplexity_eol"][0] == pytest.approx(math.exp(-total / words))
    text = table(results, {"model": "a model"})
    assert "| arc_easy | test | 2 | 0 | acc |" in text
    assert "| 0.250 |\n" in text
    assert "The tokenizer does not give back case and spaces" in text


def test_calibration_asks_for_the_answers_alone(ours, data_dir, tmp_path):
    [both], _ = local_rows.specify_tasks(["arc_easy"], data_dir, calibrate=True)
    assert [one["metric"] for one in both.config.metric_list] == ["acc", "acc_norm", "acc_mutual_info"]
    specified, _ = local_rows.specify_tasks(["copa"], data_dir, calibrate=True)
    results = simple_evaluate(ours, tasks=specified, task_manager=local_rows.all_tasks(), bootstrap_iters=0)
    results["asked"] = ["copa"]
    (sample, _) = results["samples"]["copa"]
    assert list(figures(add_facts(results, ours), "copa")) == ["acc", "acc_mutual_info"]
    assert chance_of(results, "copa") == 0.5
    with_question = [of[0][0] for of in sample["resps"][:2]]
    alone = [of[0][0] for of in sample["resps"][2:]]
    gains = [one - other for one, other in zip(with_question, alone, strict=True)]
    assert sample["acc_mutual_info"] == float(gains[0] > gains[1])


def test_what_has_no_question_is_not_calibrated_and_shots_leave_the_row_that_is_asked_out(ours, data_dir, tmp_path):
    tasks, _ = local_rows.specify_tasks(["blimp_adjunct_island", "winogrande"], data_dir, calibrate=True)
    assert [one["metric"] for task in tasks for one in task.config.metric_list] == ["acc", "acc"]
    results = simple_evaluate(ours, tasks=tasks, task_manager=local_rows.all_tasks(), bootstrap_iters=0)
    assert add_facts(results, ours)["n-samples"]["winogrande"]["chance"] == 0.5
    choices = {"text": TEXTS[1:5], "label": [*"ABCD"]}
    rows = [{"question": f"q{at}", "choices": choices, "answerKey": "C"} for at in range(6)]
    for split in ("test", "validation"):
        write_rows(tmp_path / split / "arc_easy" / f"{split}.jsonl", rows)
        [task], _ = local_rows.specify_tasks(["arc_easy"], tmp_path / split)
        for number, row in enumerate(task.task_docs):
            task.set_fewshot_seed(number)
            shown = task.fewshot_context(row, 5)
            assert shown.count(row["question"]) == 1
            assert shown.count("q") == 6
    write_rows(tmp_path / "rte" / "validation.jsonl", [{"sentence1": "first", "sentence2": "b", "label": 0}])
    (tmp_path / "rte" / "validation.csv").write_text("sentence1,sentence2,label\nsecond,b,0\n", encoding="utf-8")
    assert local_rows.specify_tasks(["rte"], tmp_path)[0][0].task_docs[0]["sentence1"] == "first"
    assert local_rows._pages("the end .\n = Next = \nbody\n")["page"] == ["the end .\n", " = Next = \nbody\n"]


def test_each_task_is_asked_once(tmp_path):
    """The pattern also matches the group's tasks, and the tag's tasks are asked by name."""
    assert len(local_rows._leaves("blimp")) == 67
    specified, names = local_rows.specify_tasks(["blimp*", "ai2_arc", "arc_easy"], None)
    assert names == specified == ["blimp", "arc_challenge", "arc_easy"]


def test_a_group_reads_local_rows(ours, tmp_path, monkeypatch):
    names = [leaf.removeprefix("blimp_") for leaf in local_rows._leaves("blimp")]
    rows = [{"UID": uid, "sentence_good": STORY[1], "sentence_bad": "No paid he."} for uid in names]
    write_rows(tmp_path / "blimp" / "train.jsonl", rows)
    monkeypatch.setattr(local_rows, "_leaves", lambda name: [f"blimp_{uid}" for uid in names[:2]])
    specified, found = local_rows.specify_tasks(["blimp"], tmp_path)
    results = simple_evaluate(ours, tasks=specified, task_manager=local_rows.all_tasks(), bootstrap_iters=0)
    leaves = [results["results"][f"blimp_{uid}"]["acc,none"] for uid in names[:2]]
    assert found == ["blimp"]
    assert figures(results, "blimp")["acc"][0] == sum(leaves) / 2


def made_results(asked, results, **fields):
    counts = {name: {"original": 8, "effective": 8, "chance": 0.5, "split": "test"} for name in results}
    return {"asked": asked, "results": results, "n-samples": counts, "n-shot": {}, "flattered": False, **fields}


def test_each_filter_of_a_task_has_a_figure():
    of_task = {"alias": "gsm8k", "exact_match,strict-match": 0.1, "exact_match_stderr,strict-match": 0.01}
    of_task |= {"exact_match,flexible-extract": 0.35, "exact_match_stderr,flexible-extract": "N/A"}
    results = made_results(["gsm8k"], {"gsm8k": of_task})
    assert table(results, {"model": "a"}).splitlines()[4:] == [
        "| gsm8k | test | 8 |  | exact_match,strict-match | 0.1 ± 0.01 |  |",
        "| gsm8k | test | 8 |  | exact_match,flexible-extract | 0.35 |  |",
    ]
    (curve,) = curves([{"step": 1, "tokens": 10, "results": results}])
    assert curve["metric"] == "exact_match,strict-match"
    assert curve["points"] == [{"step": 1, "tokens": 10, "value": 0.1, "stderr": 0.01}]


def test_curves_are_drawn_with_two_standard_errors(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Axes, "errorbar", lambda self, x, y, yerr, **_: drawn.append((x, y, yerr)))
    points = [{"step": 1, "tokens": 10, "value": 0.5, "stderr": 0.1}]
    draw([{"task": "a", "metric": "acc", "chance": None, "points": points}], tmp_path / "curves.png")
    assert drawn == [([10], [0.5], [0.2])]


def test_a_group_without_a_metric_shows_its_members():
    groups = {"outer": ["inner", "c"], "inner": ["a", "b"]}
    leaves = {name: {"alias": name, "acc,none": 0.25, "acc_stderr,none": "N/A"} for name in "abc"}
    results = made_results(["outer"], {**leaves, "outer": {"alias": "outer"}}, group_subtasks=groups)
    assert table(results, {"model": "a"}).splitlines()[4:] == [
        f"| {name} | test | 8 |  | acc | 0.25 | 0.500 |" for name in "abc"
    ]
    found = curves([{"step": 1, "tokens": 10, "results": results}])
    assert [(of["task"], of["metric"], of["chance"]) for of in found] == [(name, "acc", 0.5) for name in "abc"]
    results["results"]["outer"] = leaves["a"]
    assert [line.split()[1] for line in table(results, {"model": "a"}).splitlines()[4:]] == ["outer"]
    assert chance_of(results, "outer") == 0.5


def test_the_chance_of_a_group_is_the_mean_of_its_tasks():
    results = made_results(["group"], {"a": {}, "b": {}}, group_subtasks={"group": ["a", "b"]})
    results["n-samples"]["a"]["chance"] = 0.25
    assert chance_of(results, "group") == 0.375


def test_raw_files_of_wikitext_are_their_splits(tmp_path):
    for name in ("test", "valid"):
        (tmp_path / f"wiki.{name}.raw").touch()
    found = local_rows._find_files(tmp_path, "")
    assert found == {"test": [tmp_path / "wiki.test.raw"], "validation": [tmp_path / "wiki.valid.raw"]}


def test_a_section_of_an_article_begins_no_page():
    article = " = A Home = \n \n It was old . \n \n = = Rooms = = \n \n Two . \n"
    assert local_rows._pages(article)["page"][:] == [article]


def test_race_keeps_the_questions_of_an_article_together():
    rows = [
        {"article": "A.", "question": "One?", "options": TEXTS[:4], "label": 0},
        {"article": "A.", "question": "Two?", "options": TEXTS[1:5], "label": 2},
        {"article": "B.", "question": "Three?", "options": TEXTS[:4], "label": 3},
    ]
    first, second = local_rows.CONVERTERS["race"][1](rows)
    assert first["article"] == "A."
    assert second["article"] == "B."
    assert eval(first["problems"]) == [
        {"question": "One?", "options": TEXTS[:4], "answer": "A"},
        {"question": "Two?", "options": TEXTS[1:5], "answer": "C"},
    ]


def test_story_cloze_and_hellaswag_have_the_columns_of_the_hub():
    row = {"story": STORY, "ending1": "No.", "ending2": "Yes."}
    rows = local_rows.CONVERTERS["storycloze_2016"][1](Dataset.from_list([{**row, "label": 0}, {**row, "label": 1}]))
    assert rows["answer_right_ending"] == [1, 2]
    sentences = {f"input_sentence_{number}": STORY[number - 1] for number in (1, 2, 3, 4)}
    endings = {"sentence_quiz1": "No.", "sentence_quiz2": "Yes."}
    assert rows[1] == {**sentences, **endings, "answer_right_ending": 2}
    (row,) = local_rows.CONVERTERS["hellaswag"][1](Dataset.from_list([{"ctx": "She walks. she"}]))
    assert (row["ctx_a"], row["ctx_b"]) == ("She walks. she", "")


def test_a_csv_file_is_read_as_jsonl_is(ours, data_dir, tmp_path):
    rows = [json.loads(line) for line in (data_dir / "piqa" / "validation.jsonl").read_text().splitlines()]
    folder = tmp_path / "rows[1]"  # no pattern
    write_rows(folder / "piqa" / "validation.csv", rows)
    found = []
    for place in (data_dir, folder):
        specified, _ = local_rows.specify_tasks(["piqa"], place)
        results = simple_evaluate(ours, tasks=specified, task_manager=local_rows.all_tasks(), bootstrap_iters=0)
        found.append(answers(results))
    assert found[0] == found[1]
    assert len(found[0]) == 4


def test_files_as_the_hub_names_them_are_found(tmp_path):
    row = ROWS["rte"][1]
    write_rows(tmp_path / "rte" / "train-00000-of-00001-0123456789abcdef.parquet", [row])
    for number in (1, 0):
        rows = [{**row, "label": number}]
        write_rows(tmp_path / "rte" / f"validation-{number:05}-of-00002.parquet", rows)
    [rte], _ = local_rows.specify_tasks(["rte"], tmp_path)
    assert rte.task_docs["label"][:] == [0, 1]
    assert rte.training_docs()["label"][:] == [0]


def test_a_download_that_lacks_a_part_of_a_split_is_refused(tmp_path):
    write_rows(tmp_path / "rte" / "validation-00001-of-00002.parquet", [ROWS["rte"][1]])
    told = refusal(local_rows.specify_tasks, ["rte"], tmp_path)
    assert f"{tmp_path}/rte has 1 of the 2 files validation-00000-of-00002.parquet" in told


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("pika", "lm-evaluation-harness has no task 'pika' (did you mean 'piqa'?). `lm_eval ls tasks` lists all."),
        ("piqa", "Task 'piqa' needs a file validation (.jsonl, .jsonl.gz, .csv or .parquet) in {0}/piqa, which has"),
        ("blimp_causative", "{0}/blimp/train.jsonl has no row whose UID is 'causative', for task 'blimp_causative'"),
    ],
)
def test_tasks_and_rows_that_are_not_there(data_dir, tmp_path, task, message):
    shutil.copytree(data_dir / "blimp", tmp_path / "blimp")
    write_rows(tmp_path / "piqa" / "train.jsonl", [ROWS["piqa"][1]])
    assert refusal(local_rows.specify_tasks, [task], tmp_path).startswith(message.format(tmp_path))


@pytest.mark.parametrize(
    ("task", "fields", "parts"),
    [
        ("rte", {"label": "no"}, ["row 0: column 'label' has 'no'", "one of entailment, not_entailment"]),
        ("rte", {"label": 2}, ["{path}", "row 0: column 'label' has 2", "a whole number from 0 to 1."]),
        ("rte", {"label": -1}, ["Task 'rte': row 0 of {path} (the first is 0) has the label -1, none of the 2"]),
        ("rte", {"sentence1": None}, ["{path} has no column sentence1", "Its columns: sentence2, label."]),
        ("piqa", {"label": "1"}, ["row 0 of {path}", "has the label '1'", "Write labels as baber/piqa has them."]),
        ("piqa", {"goal": None}, ["whose columns are sol1, sol2, label: UndefinedError 'goal' is undefined. Write"]),
        ("piqa", {"label": 1.0}, ["has the label 1.0, none of the 2 answers"]),  # as pandas writes them
        ("copa", {"label": 2}, ["row 0 of {path}", "has the label 2, none of the 2 answers"]),
        ("winogrande", {"answer": 1}, ["{path}, whose columns are sentence, option1, option2, answer: KeyError 1."]),
        ("storycloze_2016", {"story": None}, ["whose columns are ending1, ending2, label: KeyError 'story'."]),
        ("hellaswag", {"ctx": None}, ["whose columns are activity_label, endings, label: KeyError 'ctx'."]),
        ("race", {"label": None}, ["{path} has no column label or answer, which task 'race' needs. Its columns: art"]),
        ("wikitext", {"texts": "the old farmer"}, ["cannot read {path}, whose columns are texts: KeyError 'text'."]),
    ],
)
def test_columns_and_labels_that_the_harness_cannot_read(tmp_path, task, fields, parts):
    split, row = ROWS.get(task, ("test", {}))
    row = {name: value for name, value in {**row, **fields}.items() if value is not None}
    path = tmp_path / {"wikitext": "wikitext2_raw", **FOLDERS}.get(task, task) / f"{split}.jsonl"
    write_rows(path, [row, row])
    told = refusal(local_rows.specify_tasks, [task], tmp_path)
    assert [part for part in parts if part.format(path=path) not in told] == [], told


def test_names_of_classes_and_columns_of_the_hub(tmp_path):
    for labels in (["not_entailment", "entailment"], ["1", "0"], [1, 0]):
        write_rows(tmp_path / "rte" / "validation.jsonl", [{**ROWS["rte"][1], "label": label} for label in labels])
        [rte], _ = local_rows.specify_tasks(["rte"], tmp_path)
        assert rte.task_docs["label"] == [1, 0]
    (folder := tmp_path / "story_cloze").mkdir()
    of_authors = "InputSentence RandomFifthSentenceQuiz AnswerRightEnding"
    for names in ("input_sentence_ sentence_quiz answer_right_ending", of_authors):
        sentence, ending, right = names.split()
        story = {f"{sentence}{number}": text for number, text in enumerate(STORY, start=1)}
        story |= {f"{ending}1": TEXTS[3], f"{ending}2": TEXTS[4], right: 2}
        Dataset.from_list([story]).to_csv(folder / "test.csv")
        [cloze], _ = local_rows.specify_tasks(["story_cloze"], tmp_path)
        [row] = cloze.task_docs
        assert cloze.doc_to_text(row) == " ".join(STORY)
        assert cloze.doc_to_target(row) == 1
        assert cloze.doc_to_choice(row) == TEXTS[3:5]
    lines = ["", " = A Home = \n", "", " She walked . \n", " = A River = \n", " It was green . \n"]
    found = [" = A Home = \n\n She walked . ", " = A River = \n It was green . "]
    for texts, pages in ((lines, found), (["a"], ["a"])):
        write_rows(tmp_path / "wikitext2_raw" / "test.jsonl", [{"text": text} for text in texts])
        [wikitext], _ = local_rows.specify_tasks(["wikitext"], tmp_path)
        assert list(map(str.rstrip, wikitext.task_docs["page"])) == list(map(str.rstrip, pages))
