"""`gpt1 pretrain` on text of any alphabet: each kind of tokenizer, and mixtures of texts."""

import json

import pytest
from support.refusals import refusal
from transformers import AutoModelForCausalLM, AutoTokenizer

from modeling_gpt1.commands import generate, pretrain
from modeling_gpt1.commands.arguments import parser_of
from modeling_gpt1.commands.pretrain.arguments import Mixture

SIZES = "hidden_size=16,num_hidden_layers=1,num_attention_heads=2,max_position_embeddings=32"
LINES = {
    "cased": "The old farmer Émile didn't walk to the market.",
    "bytes": "老农夫走到市场去了。\tfield_a += 1",
    "wordpiece": "De oude boer Émile liep naar de markt.",
    "characters": "GATTACACGT",
}


def write_text(path, line: str, count: int = 60) -> str:
    path.write_text("\n".join(f"{line} {number % 10}" for number in range(count)), encoding="utf-8")
    return str(path)


def command(folder, *more: str) -> list[str]:
    return [
        *("--output_dir", str(folder / "out"), "--config_overrides", SIZES, "--max_steps", "3", "--use_cpu"),
        *("--per_device_train_batch_size", "4", "--warmup_steps", "1", "--save_strategy", "no"),
        *("--disable_tqdm", "True", *more),
    ]


@pytest.fixture
def trained(tmp_path, request):
    """The kind of a tokenizer, and the folder of a model that was pre-trained with it."""
    kind = request.param
    merges = () if kind == "characters" else ("--num_merges", "30")
    text = write_text(tmp_path / "text.txt", LINES[kind])
    held_out = write_text(tmp_path / "held_out.txt", LINES[kind], 12)
    pretrain.main(
        command(tmp_path, "--tokenizer", kind, *merges, "--train_files", text, "--validation_files", held_out)
    )
    return kind, tmp_path / "out"


each_kind = pytest.mark.parametrize("trained", LINES, indirect=True)


@each_kind
def test_a_model_of_each_kind_goes_on_from_the_text_it_was_trained_on(trained, capsys):
    kind, folder = trained
    generate.main([str(folder), "--prompts", LINES[kind][:8], "--max_new_tokens", "4", "--device", "cpu"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["prompt"] == LINES[kind][:8]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer)


@pytest.mark.parametrize(
    ("trained", "row", "limit"),
    [
        ("cased", "words with capitals, split by rules for English, in the pieces of a BPE", "its capitals, split"),
        ("bytes", "byte-level BPE, for any text", "at most 32 tokens at a time.\n"),
        ("characters", "one token a character", 'continue_text("GATTACACGT 0"'),
    ],
    indirect=["trained"],
)
def test_the_card_tells_the_tokenizer(trained, row, limit):
    card = (trained[1] / "README.md").read_text(encoding="utf-8")
    assert f"| tokenizer | {row} |" in card
    assert limit in card
    assert "lower case" not in card


def test_merges_of_characters_are_refused(tmp_path):
    words = command(tmp_path, "--train_files", "a.txt", "--tokenizer", "characters", "--num_merges", "9")
    told = refusal(pretrain.main, words)
    assert "--num_merges 9 is not for --tokenizer characters" in told


def test_a_new_tokenizer_beside_a_given_one_is_refused(tmp_path):
    words = command(tmp_path, "--train_files", "a.txt", "--tokenizer", "bytes", "--tokenizer_name", "t")
    assert "--tokenizer bytes learns a new tokenizer, but the tokenizer of t was given" in refusal(
        pretrain.main, words
    )


def test_a_preset_has_no_merges_for_characters():
    words = ["--train_files", "a.txt", "--output_dir", "o", "--preset", "babylm-10m", "--tokenizer", "characters"]
    words.append("--use_cpu")
    assert parser_of("pretrain").read(words)[0].num_merges is None


def test_another_kind_is_not_resumed(tmp_path):
    text = write_text(tmp_path / "text.txt", LINES["characters"])
    more = ("--train_files", text, "--tokenizer", "bytes", "--num_merges", "9", "--save_strategy", "steps")
    pretrain.main(command(tmp_path, *more, "--save_steps", "3"))
    again = command(tmp_path, "--train_files", text, "--tokenizer", "wordpiece", "--num_merges", "9")
    told = refusal(pretrain.main, [*again, "--max_steps", "5", "--resume_from_checkpoint", "auto"])
    assert "--tokenizer bytes, and a run cannot go on with wordpiece" in told


# ---- Mixtures


def test_shares_are_weights_that_add_to_1():
    mixture = Mixture.of(["en=a", "nl=b", "en=c"], ["nl=1", "en=3"])
    assert mixture.files == {"en": ["a", "c"], "nl": ["b"]}
    assert mixture.shares == {"en": 0.75, "nl": 0.25}


@pytest.mark.parametrize(
    ("files", "weights", "told"),
    [
        (["a.txt"], ["en=1"], "--train_files a.txt has no name. Pass name=a.txt"),
        (["en=a"], ["en=1", "nl=1"], "--train_files does not name 'nl'"),
        (["en=a", "nl=b"], ["en=1"], "--train_weights does not name 'nl'"),
        (["en=a"], ["en=0"], "--train_weights has 'en=0'. Pass a name and a number above 0"),
        (["en=a"], ["en"], "--train_weights has 'en'. Pass a name"),
        (["en=a"], ["en=1", "en=2"], "--train_weights has two weights of 'en'"),
        (["=a"], ["=1"], "--train_files =a has no name"),
    ],
)
def test_mixtures_that_cannot_be_are_refused(files, weights, told):
    assert told in refusal(Mixture.of, files, weights)


def test_a_mixture_draws_blocks_by_their_weights(tmp_path, caplog):
    """A text of a tenth of the size is read ten times as often where the weights are equal."""
    long = write_text(tmp_path / "long.txt", "aaaa", 600)
    short = write_text(tmp_path / "short.txt", "bbbb", 60)
    more = ("--train_files", f"a={long}", f"b={short}", "--train_weights", "a=1", "b=1", "--mix_documents")
    caplog.set_level("INFO")
    pretrain.main(command(tmp_path, *more, "--tokenizer", "characters"))
    lines = [record.message for record in caplog.records]
    told = next(line for line in lines if "mixture: 50.0% of the blocks from b" in line)
    times = float(told.split("from b, read ")[1].split(" times")[0])
    assert 8 < times < 13


def train_mixture(folder, *more: str) -> None:
    """Trains on the files of two folders, whose texts have the names a and b."""
    for name in "ab":
        (folder / name).mkdir(exist_ok=True)
        write_text(folder / name / "text.txt", 4 * name)
    words = command(folder, "--train_weights", "a=3", "b=1", "--tokenizer", "characters", "--save_steps", "2", *more)
    words[words.index("--save_strategy") + 1] = "steps"
    pretrain.main(words)


@pytest.mark.parametrize("file", ["*.txt", "text.txt", ""])
def test_a_mixture_goes_on_with_its_own_command(tmp_path, file):
    files = ("--train_files", f"a={tmp_path}/a/{file}", f"b={tmp_path}/b/{file}")
    train_mixture(tmp_path, *files)
    train_mixture(tmp_path, *files, "--max_steps", "4", "--resume_from_checkpoint", "auto")
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text(encoding="utf-8"))
    assert state["global_step"] == 4


def test_a_mixture_does_not_go_on_with_other_names(tmp_path):
    train_mixture(tmp_path, "--train_files", f"a={tmp_path}/a/text.txt", f"b={tmp_path}/b/text.txt")
    swapped = ("--train_files", f"b={tmp_path}/a/text.txt", f"a={tmp_path}/b/text.txt")
    told = refusal(train_mixture, tmp_path, *swapped, "--resume_from_checkpoint", "auto")
    assert "was trained with --train_files a=" in told


def test_a_stream_draws_by_weights(tmp_path, caplog):
    a = write_text(tmp_path / "a.txt", "aaaa")
    b = write_text(tmp_path / "b.txt", "bbbb")
    more = ("--train_files", f"a={a}", f"b={b}", "--train_weights", "a=3", "b=1", "--streaming")
    caplog.set_level("INFO")
    pretrain.main(command(tmp_path, *more, "--tokenizer", "characters"))
    assert "mixture: 75.0% of the blocks from a" in caplog.text
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_the_words_of_a_mixture_count_as_often_as_they_are_read(tmp_path, caplog):
    a = write_text(tmp_path / "a.txt", "aaaa", 400)
    b = write_text(tmp_path / "b.txt", "bbbb", 40)
    more = ("--train_files", f"a={a}", f"b={b}", "--train_weights", "a=1", "b=1", "--tokenizer", "characters")
    words = command(tmp_path, *more, "--mix_documents", "--max_words", "4000")
    words[words.index("--max_steps") + 1] = "-1"
    caplog.set_level("INFO")
    pretrain.main(words)
    told = caplog.text.split("words: ")[1]
    in_an_epoch = int(told.split(" in the text")[0].replace(",", ""))
    assert 1_400 < in_an_epoch < 1_900  # 800 of a, and 80 of b about ten times
