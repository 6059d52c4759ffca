"""Checkpoints of a run in the order of their updates; what is no model is left out."""

import json

from modeling_gpt1.inference import checkpoints
from modeling_gpt1.inference.checkpoints import saved_checkpoints


def test_checkpoints_are_sorted_by_updates_and_others_are_named(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(checkpoints.logger, "warning", told.append)
    for name in ("chck_1M", "checkpoint-100", "checkpoint-20", "checkpoint-30-old", "checkpoint-40"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ("weights" if name.endswith("40") else "config.json")).touch()
    (tmp_path / "checkpoint-20" / "trainer_state.json").write_text(json.dumps({"num_input_tokens_seen": 640}))
    assert saved_checkpoints(tmp_path) == [
        {"model": str(tmp_path / "checkpoint-20"), "step": 20, "tokens": 640},
        {"model": str(tmp_path / "checkpoint-100"), "step": 100, "tokens": None},
    ]
    assert len(told) == 1
    assert "--revision" in told[0]
