"""The figures printed in the paper, with which the experiments are compared.

Source: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), tables 2 to 5: the row
"Finetuned Transformer LM", and the whole of table 5. Scores × 100 on the test sets: accuracy, Matthews correlation for
CoLA, F1 for MRPC and QQP, Pearson correlation for STS-B.
"""

PAPER_URL = "https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf"

# Columns of the paper's table 5. Other measured tasks stand after them and count in no average.
ABLATION_COLUMNS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")
_TABLE_5 = {
    "full": (74.7, 45.4, 91.3, 82.3, 82.0, 70.3, 81.8, 88.1, 56.0),
    "without_pretraining": (59.9, 18.9, 84.0, 79.4, 30.9, 65.5, 75.7, 71.2, 53.8),
    "without_auxiliary": (75.0, 47.9, 92.0, 84.9, 83.2, 69.8, 81.1, 86.9, 54.4),
    "lstm": (69.1, 30.3, 90.5, 83.2, 71.8, 68.1, 73.7, 81.1, 54.6),
}
# PUBLISHED[table][row][column].
PUBLISHED: dict[str, dict[str, dict[str, float]]] = {
    "table-2": {"full": {"mnli-m": 82.1, "mnli-mm": 81.4, "snli": 89.9, "scitail": 88.3, "qnli": 88.1, "rte": 56.0}},
    "table-3": {"full": {"story_cloze": 86.5, "race-m": 62.9, "race-h": 57.4, "race": 59.0}},
    "table-4": {"full": {"cola": 45.4, "sst2": 91.3, "mrpc": 82.3, "stsb": 82.0, "qqp": 70.3}},
    "table-5": {
        row: dict(zip(("average", *ABLATION_COLUMNS), scores, strict=True)) for row, scores in _TABLE_5.items()
    },
}
