"""`gpt1 generate` on a tiny saved model: literal texts, batches as single prompts, the terminal."""

import copy
import io
import json
import re

import pytest
import torch
import transformers
from support.files import read_rows, save_folder
from support.refusals import refusal
from transformers import pipeline
from transformers.utils.logging import disable_progress_bar

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM
from modeling_gpt1.commands import generate
from modeling_gpt1.commands.arguments import parser_of
from modeling_gpt1.inference import generation
from modeling_gpt1.inference.quantization import GPT1Int8Linear
from tokenization import add_speaker_tokens
from tokenization.text.conversations import encode_conversation

PROMPTS = ["the old farmer", "a", "he paid five dollars for the ticket"]

disable_progress_bar()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_tokenizer, tiny_model):
    path = tmp_path_factory.mktemp("model")
    fields = {"vocab_size": len(tiny_tokenizer), "max_position_embeddings": 80, "tie_word_embeddings": False}
    save_folder(path, tiny_model(GPT1ForCausalLM, seed=9, **fields), tiny_tokenizer)
    return path


@pytest.fixture
def run(folder, capsys):
    """Runs the script and gives what it prints."""

    def run(*arguments):
        capsys.readouterr()
        generate.main(["--model", str(folder), "--max_new_tokens", "10", "--device", "cpu", *arguments])
        return capsys.readouterr().out

    return run


GREEDY = [
    {"prompt": "the old farmer", "continuations": [" new and and new and and and and and en"]},
    {"prompt": "a", "continuations": [" ren en en en new new new new new"]},
    {"prompt": "he paid five dollars for the ticket", "continuations": [" wwwwren en new en w"]},
]


@pytest.mark.parametrize("options", [[], ["--batch_size", "1"], ["--batch_size", "2"], ["--static_cache"]])
def test_most_likely_texts_line_by_line(run, options):
    output = run("--prompts", *PROMPTS, "--temperature", "0", *options)
    assert output == "".join(json.dumps(record) + "\n" for record in GREEDY)


def test_prompts_that_the_tokenizer_does_not_know_are_reported(run, capsys, folder):
    generate.main(["--model", str(folder), "--prompts", "кошка", "--max_new_tokens", "2", "--device", "cpu"])
    told = capsys.readouterr()
    assert "100% of the tokens of the prompts are unknown to the tokenizer, as in 'кошка'" in told.err
    assert told.out.startswith('{"prompt": "кошка"')


def test_a_fine_tuned_folder_leaves_out_its_head_silently(tiny_model, tiny_tokenizer, tmp_path, caplog):
    model = tiny_model(GPT1DoubleHeadsModel, vocab_size=len(tiny_tokenizer), max_position_embeddings=80)
    save_folder(tmp_path, model, tiny_tokenizer)
    monitored = transformers.utils.logging.get_logger("transformers")
    monitored.addHandler(caplog.handler)
    generate.main([str(tmp_path), "--prompts", "a", "--max_new_tokens", "2", "--device", "cpu"])
    monitored.removeHandler(caplog.handler)
    assert caplog.messages == []


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_rounded_weights(run, folder, dtype):
    """Their texts may differ from those of float32, as the model's numbers do."""
    output = read_rows(run("--prompts", *PROMPTS, "--temperature", "0", "--dtype", dtype))
    assert [record["prompt"] for record in output] == PROMPTS
    assert all(len(text.split()) > 3 for record in output for text in record["continuations"])
    (args,) = parser_of("generate").read(["--model", str(folder), "--dtype", dtype, "--device", "cpu"])
    head = generate.open_model(args)[0].lm_head
    assert isinstance(head, GPT1Int8Linear) if dtype == "int8" else head.weight.dtype == torch.bfloat16


def test_beams(run):
    beams = ["--temperature", "0", "--num_beams", "3", "--num_return_sequences", "2"]
    output = read_rows(run("--prompts", *PROMPTS, *beams))
    texts = [" new and and new and and er and er and", " in wren new new new new er er", " wwwwwen en en en w"]
    assert [record["continuations"][0] for record in output] == texts
    assert all(first != second for first, second in (record["continuations"] for record in output))


def test_beams_search_without_sampling(run):
    """As without a temperature."""
    beams = ["--prompts", *PROMPTS, "--num_beams", "3"]
    assert run(*beams) == run(*beams, "--temperature", "0")


def test_the_seed_decides_what_is_drawn(run):
    two = ["--prompts", *PROMPTS, "--num_return_sequences", "2"]
    first, same, other = (run(*two, "--seed", seed) for seed in ("3", "3", "4"))
    assert first == same != other
    assert [len(record["continuations"]) for record in read_rows(first)] == [2, 2, 2]
    for bound in (["--top_k", "1"], ["--top_k", "0", "--top_p", "0.0001"]):  # of the most likely token alone
        assert read_rows(run("--prompts", *PROMPTS, *bound)) == GREEDY


def test_texts_end_before_a_string_or_a_token(run):
    output = read_rows(run("--prompts", *PROMPTS, "--temperature", "0", "--stop", "New", r"\n", "[e]"))
    assert [record["continuations"] for record in output] == [[""], [" ren en en en"], [" wwwwren en"]]
    (args,) = parser_of("generate").read(["--static_cache", "--stop", r"\n", "a"])
    assert args.stop == ["\n", "a"]
    assert args.generation["cache_implementation"] == "static"


def test_prompts_and_texts_in_files(run, tmp_path):
    (tmp_path / "prompts.txt").write_text("\n".join(["", *PROMPTS, ""]), encoding="utf-8")
    output_file = tmp_path / "texts.jsonl"
    options = ["--prompt_file", str(tmp_path / "prompts.txt"), "--output_file", str(output_file), "--temperature", "0"]
    assert run(*options) == f"written to {output_file}\n"
    assert read_rows(output_file.read_text(encoding="utf-8")) == GREEDY


def test_only_a_newline_ends_a_prompt_of_a_file(tmp_path):
    """Other characters at which `str.splitlines` ends a line stand in texts. Excel writes a mark at the beginning."""
    prompts = ["it\u2028was", "chapter\x0cone", "it\x85was"]
    (tmp_path / "prompts").write_bytes(("\ufeff" + "\r\n".join(["", *prompts, ""])).encode())
    assert generate.read_lines("--prompt_file", tmp_path / "prompts", "prompt") == prompts


@pytest.mark.parametrize("name", ["prompts.csv", "PROMPTS.CSV", "prompts.jsonl.gz"])
def test_a_table_is_no_file_of_prompts(name, tmp_path):
    (tmp_path / name).write_text("a,b\n1,2\n", encoding="utf-8")
    told = refusal(generate.read_lines, "--prompt_file", tmp_path / name, "prompt")
    assert f"{name} is a table, but a file with a prompt per line is needed" in told


def test_prompts_are_checked_before_the_first_is_continued(run, monkeypatch):
    called = []
    monkeypatch.setattr(generate, "continue_prompts", lambda *args, **options: called.append(args))
    with pytest.raises(ValueError, match="word…' has 320 tokens and `max_new_tokens` is 10, .* only 80 positions"):
        run("--prompts", "a", "word " * 80, "--batch_size", "1")
    assert called == []


@pytest.fixture
def typed(monkeypatch):
    """Answers of the person at the terminal; then the input ends."""

    def typed(*answers):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{answer}\n" for answer in answers)))

    return typed


def test_a_talk_continues_each_text_and_has_a_line_for_each_continuation(run, typed, monkeypatch):
    typed("the old farmer", "word " * 80, "a", "", "never read")
    _, first, refused, last, nothing = run("--temperature", "0").split("\n")
    assert (first, last) == ("> new and and new and and and and and en", "> ren en en en new new new new new")
    assert refused.startswith("> The prompt 'word word")
    assert "only 80 positions" in refused
    assert nothing == "> "
    typed("the old farmer")
    told = run("--temperature", "0", "--num_beams", "3", "--num_return_sequences", "2").split("\n")
    assert told[1] == "> new and and new and and er and er and"
    assert told[3:] == ["> ", ""]
    monkeypatch.setattr("sys.stdin", None)  # closed
    assert run() == "Type a text to continue; an empty line quits.\n"
    typed("a")
    monkeypatch.setattr(generate, "continue_prompts", lambda *_, **__: torch.empty(1) @ torch.empty(2))
    with pytest.raises(RuntimeError):  # is no end of the input
        run()


# ---- Chat


@pytest.fixture(scope="module")
def dialogue_folder(tmp_path_factory, tiny_tokenizer, tiny_model):
    path = tmp_path_factory.mktemp("dialogue")
    tokenizer = copy.deepcopy(tiny_tokenizer)
    fields = {"vocab_size": len(tokenizer), "max_position_embeddings": 60, "traversal": "multiple_choice"}
    fields["tie_word_embeddings"] = False
    model = tiny_model(GPT1DoubleHeadsModel, seed=9, **fields)
    torch.manual_seed(0)
    add_speaker_tokens(tokenizer, model)
    save_folder(path, model, tokenizer)
    return path


@pytest.fixture
def talk(dialogue_folder, typed, capsys, monkeypatch):
    """Types messages to the model; gives its lines and the conversations that it has read."""
    read = []

    def encode(tokenizer, messages, **options):
        ids = encode_conversation(tokenizer, messages, **options)
        read.append(tokenizer.decode(ids))
        return ids

    monkeypatch.setattr(generation, "encode_conversation", encode)

    def talk(*messages, flags=()):
        typed(*messages)
        options = ["--max_new_tokens", "6", "--temperature", "0", "--device", "cpu", *flags]
        generate.main([str(dialogue_folder), "--chat", *options])
        return capsys.readouterr().out.split("\n"), read

    return talk


def test_a_chat_answers_each_line_and_remembers_it(talk):
    lines, read = talk("he paid", "a film", flags=["--persona", "the old farmer", "she smiled"])
    assert len(lines) == 5  # of the greeting, two replies, and the end of the input
    first = lines[1].removeprefix("> ")
    assert read[0] == "[s]the old farmer she smiled <speaker2>he paid [$]"
    assert read[1].startswith("[s]the old farmer she smiled <speaker2>he paid <speaker1>" + first.split()[0][:1])
    assert read[1].endswith("<speaker2>a film [$]")


def test_an_empty_line_ends_a_chat(talk):
    lines, read = talk("he paid", "", "never read")
    assert len(read) == 1
    assert lines[-1] == "> "


def test_a_persona_may_stand_in_a_file(talk, tmp_path):
    (tmp_path / "persona.txt").write_text("the old farmer\n\nshe smiled\n")
    _, read = talk("he paid", flags=["--persona_file", str(tmp_path / "persona.txt"), "--persona", "a film"])
    assert read == ["[s]a film the old farmer she smiled <speaker2>he paid [$]"]


def test_a_message_that_spells_a_speaker_is_text(talk):
    _, read = talk("<speaker1> he paid [e]")
    assert read[0].count("<speaker1>") == 0
    assert read[0].count("[e]") == 0


def test_a_long_chat_forgets_its_oldest_messages_and_keeps_the_persona(talk):
    lines, read = talk(*["the old farmer walked to the market"] * 4, flags=["--persona", "a film"])
    assert len(lines) == 7
    assert read[-1].startswith("[s]a film <speaker2>the old farmer")
    assert len(read) > 4  # longer ones were tried first
    assert read[-1].count("<speaker2>") < 4


def test_a_message_that_is_too_long_is_refused_and_forgotten(talk):
    lines, read = talk("he paid", "word " * 80, "a film")
    assert lines[2].startswith("> The persona and the message 'word word")
    assert "word" not in read[-1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--chat", "--prompts", "a"],
            "--chat answers each message of the input with one reply. Leave --prompts out.",
        ),
        (["--chat", "--num_return_sequences", "2"], "Leave --num_return_sequences out."),
        (["--persona", "i sing"], "--persona is for a conversation. Add --chat, or leave it out."),
        (["--chat"], "has no chat template, so it is no dialogue model."),
    ],
)
def test_flags_of_a_chat_that_do_not_fit_are_refused(run, flags, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        run(*flags)


def test_a_pipeline_and_the_chat_give_the_same_reply(talk, dialogue_folder):
    lines, _ = talk("he paid", flags=["--persona", "the old farmer"])
    messages = [{"role": "system", "content": "the old farmer"}, {"role": "user", "content": "he paid"}]
    pipe = pipeline("text-generation", str(dialogue_folder), device="cpu")
    (answer,) = pipe(messages, max_new_tokens=6, do_sample=False)
    assert answer["generated_text"][-1]["content"].strip() == lines[1].removeprefix("> ")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--temperature", "-1"], "--temperature is -1.0, but must be at least 0"),
        (["--top_k", "-1"], "--top_k is -1, but must be at least 0"),
        (["--temperature", "0", "--num_return_sequences", "2"], "at most 1 with --temperature 0"),
        (["--num_beams", "2", "--num_return_sequences", "3"], "at most 2 with --num_beams 2"),
        (["--num_beams", "2", "--top_k", "5"], "--top_k 5 is for sampling, but --num_beams 2"),
        (["--num_beams", "2", "--temperature", "0.8"], "--temperature 0.8 is for sampling, but --num_beams 2"),
        (["--output_file", "texts.jsonl"], "--output_file is for the texts of --prompts and --prompt_file"),
    ],
)
def test_a_wrong_value_is_refused_before_the_model_is_opened(words, told, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(generate, "open_model", lambda args: pytest.fail("a model was opened"))
    prompts = [] if "--output_file" in words else ["--prompts", "a"]
    assert told in refusal(generate.main, ["--model", "gpt1-novels", "--device", "cpu", *prompts, *words])


def test_several_texts_by_beams_are_no_wrong_value(run):
    (line,) = run(
        "--prompts", "a", "--num_beams", "2", "--num_return_sequences", "2", "--temperature", "0"
    ).splitlines()
    assert len(json.loads(line)["continuations"]) == 2


def test_input_that_is_no_text_is_refused(folder, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), encoding="utf-8"))
    assert "is not text in utf-8" in refusal(generate.main, ["--model", str(folder), "--device", "cpu"])
