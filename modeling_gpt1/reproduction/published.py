"""The figures printed in the paper, with which the experiments are compared.

Source: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), tables 2 to 5: the row
"Finetuned Transformer LM", and the whole of table 5. Scores × 100 on the
test sets: accuracy, Matthews correlation for CoLA, F1 for MRPC and QQP, Pearson correlation for STS-B.
"""

PAPER_URL = "https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf"

# PUBLISHED[table][row][column].
PUBLISHED: dict[str, dict[str, dict[str, float]]] = {
    "table-2": {
        "full": {"mnli-m": 82.1, "mnli-mm": 81.4, "snli": 89.9, "scitail": 88.3, "qnli": 88.1, "rte": 56.0},
    },
    "table-3": {
        "full": {"story_cloze": 86.5, "race-m": 62.9, "race-h": 57.4, "race": 59.0},
    },
    "table-4": {
        "full": {"cola": 45.4, "sst2": 91.3, "mrpc": 82.3, "stsb": 82.0, "qqp": 70.3},
    },
    "table-5": {
        "full": {
            **{"average": 74.7, "cola": 45.4, "sst2": 91.3, "mrpc": 82.3, "stsb": 82.0, "qqp": 70.3, "mnli": 81.8},
            **{"qnli": 88.1, "rte": 56.0},
        },
        "without_pretraining": {
            **{"average": 59.9, "cola": 18.9, "sst2": 84.0, "mrpc": 79.4, "stsb": 30.9, "qqp": 65.5, "mnli": 75.7},
            **{"qnli": 71.2, "rte": 53.8},
        },
        "without_auxiliary": {
            **{"average": 75.0, "cola": 47.9, "sst2": 92.0, "mrpc": 84.9, "stsb": 83.2, "qqp": 69.8, "mnli": 81.1},
            **{"qnli": 86.9, "rte": 54.4},
        },
        "lstm": {
            **{"average": 69.1, "cola": 30.3, "sst2": 90.5, "mrpc": 83.2, "stsb": 71.8, "qqp": 68.1, "mnli": 73.7},
            **{"qnli": 81.1, "rte": 54.6},
        },
    },
}
