import os
import signal
import subprocess
import sys

import pytest
from support.launch import ROOT
from support.refusals import refusal

from modeling_gpt1.storage import locking
from modeling_gpt1.storage.locking import one_writer, writer_of_new_file

HOLD = """
import os, sys, time
from modeling_gpt1.storage.locking import one_writer
with one_writer(sys.argv[1]):
    if os.fork() == 0:
        os.write(1, b"a child\\n")  # which has let go when its code begins
        time.sleep(60)
        os._exit(0)
    os.write(1, b"held\\n")  # at once: an unbuffered `print` writes the line and its end apart
    time.sleep(60)
"""


def test_it_is_free_afterwards_whatever_happened(tmp_path):
    with pytest.raises(KeyError), one_writer(tmp_path / "new"):
        raise KeyError
    with one_writer(tmp_path / "new"), one_writer(tmp_path / "other"):
        with pytest.raises(ValueError, match="another run is writing"), one_writer(tmp_path / "new"):
            pass
    assert list((tmp_path / "new").iterdir()) == []


def test_a_killed_writers_lock_is_free_though_its_child_lives(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert {process.stdout.readline(), process.stdout.readline()} == {b"held\n", b"a child\n"}
        with pytest.raises(ValueError, match=f"^`output_dir` is '{tmp_path}', .*another run is"):
            one_writer(tmp_path).__enter__()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with one_writer(tmp_path), pytest.raises(ValueError, match="another run is writing"):
            one_writer(tmp_path).__enter__()
    finally:
        os.killpg(process.pid, signal.SIGKILL)


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch):
    def refuse(lock, **kwargs):
        raise OSError(37, "No locks available")

    said = []
    monkeypatch.setattr(locking.logger, "warning", said.append)
    monkeypatch.setattr(locking.FileLock, "acquire", refuse)
    with one_writer(tmp_path):
        pass
    assert said == [f"{tmp_path} cannot be locked (No locks available). Make sure that only one run writes to it."]


def test_a_new_file_has_one_writer(tmp_path):
    file = tmp_path / "new" / "a.json"
    with writer_of_new_file(file), writer_of_new_file(tmp_path / "new" / "b.json"):
        said = refusal(writer_of_new_file(file).__enter__)
    assert said == f"`output_file` is '{file}', which another command is writing. Pass another name."


def test_the_lock_of_a_new_file_leaves_nothing(tmp_path):
    with writer_of_new_file(tmp_path / "new" / "a.json"):
        pass
    assert list((tmp_path / "new").iterdir()) == []


def test_a_file_that_another_writer_has_made_meanwhile_is_not_written_over(tmp_path):
    (tmp_path / "a.json").touch()
    said = refusal(writer_of_new_file(tmp_path / "a.json").__enter__)
    assert said == f"`output_file` {tmp_path / 'a.json'} is there already. Pass another name, or move the file away."


@pytest.mark.parametrize("place", ["{tmp_path}/file/a.json", "{tmp_path}/file/below/a.json", "/proc/a.json"])
def test_a_new_file_whose_folder_cannot_be_written_is_refused_before_any_work(place, tmp_path):
    (tmp_path / "file").write_text("in the way")
    place = place.format(tmp_path=tmp_path)
    said = refusal(writer_of_new_file(place).__enter__)
    assert said.startswith(f"`output_file` is '{place}', whose folder is not writable (")
    assert said.endswith("). Pass a file in a writable folder.")
