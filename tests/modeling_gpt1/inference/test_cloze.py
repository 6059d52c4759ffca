"""The Children's Book Test: its released format, what is scored, and which word is chosen."""

import pytest
from support.refusals import refusal

from modeling_gpt1 import ContinuationScore, evaluate_zero_shot
from modeling_gpt1.inference.heuristics import get_heuristic, load_questions

SENTENCES = [f"The {number}. day was -LRB- very -RRB- long ." for number in range(1, 21)]
NAMES = ["Ann", "Ben", "Cat", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida", "Jim"]
ROW = {"sentences": SENTENCES, "question": "Then XXXXX went home .", "options": NAMES, "label": 4}


def block(question: str, answer: str, sentences=SENTENCES, candidates=NAMES) -> str:
    lines = [*sentences, f"{question}\t{answer}\t\t{'|'.join(candidates)}"]
    return "\n".join(f"{number} {line}" for number, line in enumerate(lines, start=1)) + "\n"


@pytest.fixture
def data_dir(tmp_path):
    (tmp_path / "cbt").mkdir()
    text = "\n".join([block("Then XXXXX went home .", "Eve"), block("`` Good night , XXXXX ! ''", "Ann")])
    (tmp_path / "cbt" / "cbtest_NE_test_2500ex.txt").write_text(text, encoding="utf-8")
    (tmp_path / "cbt" / "cbtest_NE_valid_2000ex.txt").write_text(block("XXXXX fell .", "Jim"), encoding="utf-8")
    return str(tmp_path)


def test_the_released_files_are_read(data_dir):
    split, rows, _ = load_questions("cbt-ne", data_dir)
    assert split == "test"
    assert rows == [ROW, {**ROW, "question": "`` Good night , XXXXX ! ''", "label": 0}]


def test_only_a_newline_ends_a_sentence_of_a_released_file(tmp_path):
    (tmp_path / "cbt").mkdir()
    sentences = [*SENTENCES[:-1], "He\x85ran\u2028home ."]
    text = block("XXXXX fell .", "Jim", sentences)
    (tmp_path / "cbt" / "cbtest_NE_test_2500ex.txt").write_text(text, encoding="utf-8")
    _, rows, _ = load_questions("cbt-ne", str(tmp_path))
    assert rows[0]["sentences"] == sentences


def test_rows_of_files_are_read_as_of_other_tasks(tmp_path):
    (tmp_path / "cbt-v").mkdir()
    line = '{"sentences": ["he ran ."], "question": "she XXXXX .", "options": ["fell", "sang"], "label": 1}\n'
    (tmp_path / "cbt-v" / "test.jsonl").write_text(line, encoding="utf-8")
    _, rows, _ = load_questions("cbt-v", str(tmp_path))
    assert rows[0]["options"] == ["fell", "sang"]
    assert rows[0]["label"] == 1


def test_the_word_and_the_rest_of_its_sentence_are_scored():
    ((context, continuations),) = get_heuristic("cbt-ne").requests(ROW)
    assert context.startswith("The 1. day was ( very ) long . The 2. day")
    assert context.endswith("long . Then")
    assert continuations == tuple(f" {name} went home ." for name in NAMES)


@pytest.mark.parametrize(
    ("question", "end_of_context", "continuation"),
    [("XXXXX fell .", "( very ) long .", " Ann fell ."), ("It was XXXXX", "long . It was", " Ann")],
)
def test_the_first_or_the_last_word_may_be_missing(question, end_of_context, continuation):
    ((context, continuations),) = get_heuristic("cbt-ne").requests({**ROW, "question": question})
    assert context.endswith(end_of_context)
    assert continuations[0] == continuation


def test_the_greatest_probability_of_all_words_together_decides():
    class Scorer:
        def score(self, requests):
            return [[self.score_one(text) for text in continuations] for _, continuations in requests]

        def score_one(self, text):
            if text == " Eve went home .":  # less probable as a word, more so with what follows
                return ContinuationScore((-3.0, -0.1, -0.1, -0.1))
            return ContinuationScore((-1.0, -1.0, -1.0, -1.0))

    result = evaluate_zero_shot(Scorer(), "cbt-ne", [ROW])
    assert result.predictions == [4]
    assert result.metrics["accuracy"] == 1.0


def test_guessing_is_one_in_ten():
    assert get_heuristic("CBT-CN").chance == 0.1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (block("Then XXXXX went .", "Zoe"), ["Question 1", "'Zoe' among 10 candidates"]),
        (block("Then XXXXX went .", "Eve", SENTENCES[:19]), ["has 19 sentences", "needs 20 numbered lines"]),
        ("1 a sentence\n", ["has 0 sentences", "as it was released"]),
    ],
)
def test_another_format_is_refused(data_dir, tmp_path, text, parts):
    (tmp_path / "cbt" / "cbtest_NE_test_2500ex.txt").write_text(text, encoding="utf-8")
    message = refusal(load_questions, "cbt-ne", data_dir)
    assert [part for part in parts if part not in message] == []


def test_a_question_without_a_blank_is_refused():
    message = refusal(get_heuristic("cbt-ne").requests, {**ROW, "question": "Then she went ."})
    assert "has not one XXXXX" in message
