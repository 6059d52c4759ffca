"""README and docs run as they stand, page by page, on tiny stand-ins for what they name."""

import doctest
import inspect
import io
import json
import os
import pkgutil
import re
import shlex
import shutil
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from support.evaluation import few_tasks
from support.families import write_family
from support.files import save_folder, write_rows
from support.pages import PAGES, PROGRAMS, ROOT, SHOWN, SMALLER, arguments_of_gpt1, blocks_of, commands_in, parse, run
from support.tiny import SENTENCES, byte_level, write_bpe
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel

import modeling_gpt1
import tokenization
from modeling_gpt1.commands import entry
from tokenization import GPT1Tokenizer, get_task

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
PROGRAM_BLOCKS = [block for block in BLOCKS if block.language in PROGRAMS]
RUN_BLOCKS = [block for block in PROGRAM_BLOCKS if block.reason is None]
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
THINGS = "film scene tale play song".split()
OPINIONS = "dull gripping slow lovely silly fine".split()  # every second one praises
NEEDED = {
    "gpt1 evaluate": "lm_eval",
    "hyperparameter_search": "optuna",
    "fastapi": "fastapi",
    'report_to="trackio"': "trackio",
    'report_to="wandb"': "wandb",
    "statsmodels": "statsmodels",
}  # packages of extras, by what uses them
SIZES = {"n_embd": 32, "n_layer": 1, "n_head": 2}


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory):
    """A folder with what the pages name, tiny and under the same names."""
    folder = tmp_path_factory.mktemp("stand-ins")
    reviews = [
        {"sentence": f"a {OPINIONS[n % 6]} {THINGS[n % 5]} from its first scene to its last", "label": n % 2}
        for n in range(320)
    ]
    tokenizer = GPT1Tokenizer.train(iter([*SENTENCES, *(row["sentence"] for row in reviews)]), num_merges=200)
    write_openai_gpt(folder / "openai-community" / "openai-gpt", tokenizer)
    write_gpt2(folder / "openai-community" / "gpt2")
    write_family("bert", folder / "google-bert" / "bert-base-uncased")
    write_family("llama", folder / "HuggingFaceTB" / "SmolLM2-135M", "ForCausalLM")
    write_tasks(folder / "data", reviews)
    shutil.copytree(folder / "data", folder / "nyu-mll" / "glue")  # as the data sets of the hub
    names = [path.name for path in (folder / "data").iterdir()]
    (folder / "nyu-mll" / "glue" / "README.md").write_text(f"---\nconfigs:\n{''.join(map(configuration, names))}---\n")
    write_own_files(folder)
    glue = folder / "evaluation_data" / "full_eval" / "glue_filtered"
    glue.mkdir(parents=True)
    for split in ("train", "validation"):
        shutil.copy(folder / "data" / "rte" / f"{split}.jsonl", glue / f"rte.{split.removesuffix('ation')}.jsonl")
    spans = {"text": "he paid", "span1_text": "the man", "span2_text": "he", "label": 1}
    write_rows(glue / "wsc.train.jsonl", [spans])
    return folder


def write_openai_gpt(folder: Path, tokenizer: GPT1Tokenizer) -> None:
    torch.manual_seed(0)
    config = OpenAIGPTConfig(vocab_size=len(tokenizer), initializer_range=0.2, **SIZES)
    OpenAIGPTLMHeadModel(config).save_pretrained(folder)
    write_bpe(tokenizer, folder)


def write_gpt2(folder: Path) -> None:
    tokenizer = byte_level(SENTENCES)
    save_folder(folder, GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), n_positions=64, **SIZES)), tokenizer)


def write_tasks(folder: Path, reviews: list[dict]) -> None:
    pairs = [
        {"sentence1": SENTENCES[n % 5], "sentence2": " ".join(SENTENCES[n % 3].split()[:5]), "label": n % 2}
        for n in range(8)
    ]
    endings = [
        {"context": " ".join(SENTENCES[:4]), "ending1": "he paid .", "ending2": "she read .", "label": n % 2}
        for n in range(4)
    ]
    rows = {"sst2": reviews, "rte": pairs, "story_cloze": endings}
    for name, of_task in rows.items():
        for split in get_task(name).splits:
            write_rows(folder / name / f"{split}.jsonl", of_task if split == "train" else of_task[:4])
    for split in get_task("cola").splits:  # whose threshold is not chosen on the rows that are scored
        write_rows(folder / "cola" / f"{split}.jsonl", reviews[:8] if split == "train" else reviews[8:12])


def configuration(name: str) -> str:
    """Lines of a data set's card: the splits of one configuration."""
    splits = [f"  - split: {split}\n    path: {name}/{split}.jsonl\n" for split in ("train", "validation", "test")]
    return f"- config_name: {name}\n  data_files:\n" + "".join(splits)


def write_own_files(folder: Path) -> None:
    stars = ("one", "two", "three", "four", "five")
    for name in ("reviews.csv", "held_out.csv"):
        rows = [{"body": body, "stars": of} for body, of in zip(SENTENCES, stars, strict=True)]
        write_rows(folder / name, rows * 2)
    # With the columns of every task that a page predicts.
    columns = ("body", "sentence", "sentence1", "sentence2")
    write_rows(folder / "new.csv", [dict.fromkeys(columns, sentence) for sentence in SENTENCES])
    write_rows(folder / "stimuli.csv", [{"item": number, "sentence": text} for number, text in enumerate(SENTENCES)])
    (folder / "prompts.txt").write_text("it was\nthe old farmer\n")
    (folder / "texts").mkdir()
    for language, line in (("en", SENTENCES[0]), ("nl", "Één boer liep."), ("zh", "老农夫走了。")):
        (folder / "texts" / f"{language}.txt").write_text(f"{line}\n" * 40, encoding="utf-8")
    (folder / "genome").mkdir()
    for split, bases in (("train", "ACGTTGCA"), ("held_out", "GATTACA")):
        (folder / "genome" / f"{split}.txt").write_text(bases * 200)
    for split in ("train", "validation"):
        (folder / "books" / split).mkdir(parents=True)
        for number in range(2):
            (folder / "books" / split / f"{number}.txt").write_text("\n".join(SENTENCES * 3))


@pytest.fixture(scope="session")
def runs(stand_ins, tmp_path_factory):
    """A pre-trained and a fine-tuned folder, for the pages that go on from them."""
    folder = tmp_path_factory.mktemp("runs")
    size = "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,max_position_embeddings=128"
    quick = ["--max_steps", "2", "--save_steps", "1", "--disable_tqdm", "true"]
    books = ["--train_files", f"{stand_ins}/books/train", "--num_merges", "100", "--config_overrides", size]
    entry.main(["pretrain", *books, "--output_dir", f"{folder}/books", *quick])
    rte = ["--task", "rte", "--data_dir", f"{stand_ins}/data", "--model", f"{folder}/books", "--do_train"]
    entry.main(["finetune", *rte, "--output_dir", f"{folder}/rte", *quick, "--save_strategy", "no"])
    shutil.copytree(folder / "books", folder / "babylm")
    return folder


@pytest.fixture(autouse=True)
def own_environment():
    """Variables that a page's program sets end with its test: wandb's mode prints a line in later processes."""
    with patch.dict(os.environ):
        yield


@pytest.fixture
def visit(stand_ins, runs, tmp_path, monkeypatch):
    """Enters a new folder of stand-ins for a page: with the runs that the page does not make itself."""

    def enter(text: str) -> None:
        shutil.copytree(stand_ins, tmp_path / "folder")
        for run_folder in runs.iterdir():
            if not re.search(rf"--output_dir runs/{run_folder.name}\s", text):
                shutil.copytree(run_folder, tmp_path / "folder" / "runs" / run_folder.name)
        for what, package in NEEDED.items():
            if what in text and find_spec(package) is None:  # an import would read the page's settings too early
                pytest.skip(f"{package} is not installed")
        if "gpt1 evaluate" in text:
            monkeypatch.setattr("modeling_gpt1.evaluation.local_rows.all_tasks", few_tasks)
        monkeypatch.chdir(tmp_path / "folder")
        monkeypatch.setattr("sys.stdin", io.StringIO())  # of commands that ask

    return enter


@pytest.mark.parametrize("page", sorted({block.page for block in RUN_BLOCKS}), ids=lambda page: page.stem)
def test_a_page_runs(page, visit):
    blocks = [block for block in RUN_BLOCKS if block.page == page]
    visit("".join(block.text for block in blocks))
    names = {}
    for block in blocks:
        run(block, names)


def test_commands_that_are_not_run_take_their_arguments(visit, monkeypatch):
    visit("")
    shell = [block for block in PROGRAM_BLOCKS if block.language == "sh" and block.reason is not None]
    given = [arguments_of_gpt1(words) for block in shell for words in commands_in(block)]
    given = [arguments for arguments in given if arguments is not None]
    for arguments in given:
        # Without a GPU, Trainer takes half precision together with this flag only.
        parse([*arguments, "--use_cpu"] if {"--bf16", "--preset"} & {*arguments} else arguments, monkeypatch)
    assert len(given) == 32


def test_no_block_is_overlooked_and_what_is_made_smaller_stands_in_a_page():
    assert all(block.reason is None for block in BLOCKS if block.language not in PROGRAMS)
    assert {block.language for block in BLOCKS} == {*PROGRAMS, *SHOWN}
    # Also none that is indented.
    fences = sum(len(re.findall(r"^\s*```", page.read_text(encoding="utf-8"), flags=re.MULTILINE)) for page in PAGES)
    assert fences == 2 * len(BLOCKS)
    assert [what for what in SMALLER if not any(what in block.text for block in RUN_BLOCKS)] == []


def test_a_wrong_program_and_a_wrong_output_fail(visit):
    """Negative controls: a block that fails, prints something else, or needs a program that nothing here runs."""
    visit("")
    block = RUN_BLOCKS[0]
    with pytest.raises(AssertionError, match="but printed:\nnegative\n"):
        run(replace(block, language="python", text='print("negative")\n# positive\n'), {})
    with pytest.raises(NameError):
        run(replace(block, language="python", text="print(missing)\n"), {})
    with pytest.raises(AssertionError, match="nothing here runs 'curl'"):
        run(replace(block, language="sh", text="curl example.org\n"), {})


def test_the_figures_of_the_readme_are_the_measured_ones():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    bench = {}
    parity_path = newest_result("tokenizer-parity")
    assert f"({parity_path.relative_to(ROOT)})" in readme
    for script in ("generation", "finetuning"):  # each in the newest file that has it
        paths = sorted((ROOT / "benchmarks" / "results").glob("????-??-??-bench.json"))
        found = {path: json.loads(path.read_text(encoding="utf-8"))["results"] for path in paths}
        path = next(path for path in reversed(paths) if script in found[path])
        assert f"({path.relative_to(ROOT)})" in readme
        bench[script] = found[path][script]
    theirs, ours, _ = medians(bench["generation"], "generation 64 + 192, batch 1, float32", "tokens/s")
    assert f"| {theirs:.1f} tokens/s | {ours:.1f} tokens/s, **{ours / theirs:.0f} × as fast** |" in readme
    race = (bench["finetuning"], "RACE-shaped step 1 × 4 × 380, 360 shared, float32")
    their_time, our_time, faster = medians(*race, "seconds")
    their_memory, our_memory, smaller = medians(*race, "step MiB")
    assert f"| {their_time:.1f} s, {their_memory:.0f} MiB above the weights | " in readme
    assert f" | {our_time:.1f} s, {our_memory:.0f} MiB: " in readme
    assert f"**{faster:.1f} × as fast in a fifth of the memory**" in readme
    assert round(1 / smaller, 1) == 0.2
    agreement = json.loads(parity_path.read_text(encoding="utf-8"))["results"]["agreement"]
    shares = []
    for tokenizer in ("OpenAIGPTTokenizer", "GPT1Tokenizer"):
        books = [book for book in agreement if book["tokenizer"] == tokenizer]
        shares.append(sum(book["exact_paragraphs"] for book in books) / sum(book["paragraphs"] for book in books))
    assert len(agreement) == 10
    assert f"| {shares[0]:.1%} | **{shares[1]:.1%}** |".replace("%", " %") in readme


def newest_result(kind: str) -> Path:
    return max((ROOT / "benchmarks" / "results").glob(f"????-??-??-{kind}.json"))


def medians(of_script: dict, work: str, measure: str) -> list[float]:
    """Theirs, ours and the ratio of a script's row beside transformers' OpenAIGPT."""
    rows = [row for row in of_script["rows"] if (row["work"], row["measure"]) == (work, measure)]
    (row,) = (row for row in rows if row["peer"].startswith("OpenAIGPT"))
    return [row[name]["median"] for name in ("theirs", "ours", "ratio")]


def test_the_pre_training_command_is_that_of_its_figures():
    guide = ROOT / "docs" / "pretrain.md"
    page = ROOT / "docs" / "results" / "settings.md"
    words = next(words for block in blocks_of(guide) for words in commands_in(block))
    path = newest_result("pretraining-run")
    measured = json.loads(path.read_text(encoding="utf-8"))
    given = [word for word in words[: words.index("--output_dir")] if not word.startswith("books/")]
    assert given == [word for word in shlex.split(measured["command"]) if not word.startswith("books/")]
    text = " ".join(page.read_text(encoding="utf-8").split())
    first, last = (measured["evaluations"][place]["perplexity"] for place in (0, -1))
    assert f"fell from {first:.0f} to {last:.1f}" in text
    assert path.name in text
    assert f"blocks is {measured['final']['perplexity']}" in text
    assert f"{measured['tokens_seen'] / 1e6:.1f} million tokens in {measured['seconds'] / 60:.0f} minutes" in text


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 130
    tables = re.findall(r"(?:^\|.*\n)+", "\n".join(lines) + "\n", flags=re.MULTILINE)
    assert max(table.count("\n") - 2 for table in tables) <= 10


def test_the_reference_has_every_public_name():
    tables_and_bases = {
        "HEURISTICS",
        "NOVELS",
        "TASKS",
        "TOKENIZER_KINDS",
        "GPT1PreTrainedModel",
        "GPT1LSTMPreTrainedModel",
    }
    text = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "reference").glob("*.md"))
    entries = dict(re.findall(r"^- `(\S+)`: (.*)$", text, flags=re.MULTILINE))
    named = {name.rpartition(".")[2] for name in entries}
    assert {*modeling_gpt1.__all__, *tokenization.__all__} - named == tables_and_bases
    for name, sentence in entries.items():
        doc = inspect.getdoc(pkgutil.resolve_name(name)).partition("\n\n")[0]
        assert " ".join(re.sub(r"\[(`[^`]*`)\](?!\()", r"\1", doc.replace("`~", "`")).split()) == sentence, name


def test_links_lead_somewhere():
    wrong = []
    for page in PAGES:
        for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            target = (page.parent / path).resolve() if path else page
            if not target.exists() or (anchor and anchor not in anchors(target)):
                wrong.append(f"{page.name}: {path}#{anchor}")
    assert wrong == []


def test_the_index_has_every_guide():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    guides = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert [name for name in sorted(guides) if f"({name})" not in index] == []
    assert len(guides) > 20


def test_the_launches_of_several_gpus_read_the_batch_of_the_paper():
    blocks = [block.text for block in BLOCKS if block.page.name == "scale.md"]
    products = []
    for command in re.split(r"\n(?=accelerate|torchrun|TORCH)", "\n".join(blocks)):
        if "pretrain --train_files" not in command:
            continue
        flags = dict(re.findall(r"--(\w+) (\d+)", command.replace("\\\n", " ")))
        processes = int(flags.get("num_processes") or int(flags["nproc_per_node"]) * int(flags.get("nnodes", 1)))
        products.append(processes * int(flags["per_device_train_batch_size"]))
    assert products == [64] * 5


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_the_files_that_a_page_names_are_there(page):
    named = re.findall(
        r"`((?:modeling_gpt1|tokenization|benchmarks|tests|docs)/[\w./*-]*)`", (ROOT / page).read_text("utf-8")
    )
    assert [name for name in named if not any(ROOT.glob(name))] == []


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


EXPORTED = [(name, package) for package in (modeling_gpt1, tokenization) for name in package.__all__]
EXAMPLES = [name for name, package in EXPORTED if ">>>" in (inspect.getdoc(getattr(package, name)) or "")]


@pytest.mark.parametrize("name", sorted(set(EXAMPLES)))
def test_the_example_of_a_docstring_prints_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    package = modeling_gpt1 if name in modeling_gpt1.__all__ else tokenization
    example = doctest.DocTestParser().get_doctest(
        inspect.getdoc(getattr(package, name)), {name: getattr(package, name)}, name, None, 0
    )
    wrong = []
    doctest.DocTestRunner().run(example, out=wrong.append)
    assert wrong == []


def test_the_main_classes_have_examples():
    main = {"GPT1Config", "GPT1ForCausalLM", "GPT1DoubleHeadsModel", "GPT1Tokenizer", "TraversalCollator"}
    assert main - {*EXAMPLES} == set()
