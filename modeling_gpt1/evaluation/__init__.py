"""Evaluation by lm-evaluation-harness (`pip install lm_eval`, extra `[eval]`), on the hub's rows or on local files."""
