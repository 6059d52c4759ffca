"""Children's Book Test (Hill et al. 2016): which of ten words fills the gap of the 21st sentence of a passage.

GPT-2 (Radford et al. 2019, section 3.2) was asked for the probability of each word and of the rest of the sentence.
"""

GAP = "XXXXX"


def doc_to_text(doc: dict) -> str:
    return " ".join(doc["sentences"])


def doc_to_choice(doc: dict) -> list[str]:
    return [doc["question"].replace(GAP, word) for word in doc["options"]]


def doc_to_target(doc: dict) -> int:
    return doc["options"].index(doc["answer"])
