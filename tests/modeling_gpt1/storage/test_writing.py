"""Files and folders that are whole or absent."""

import os
from pathlib import Path

import pytest
from safetensors import SafetensorError

from modeling_gpt1.storage import writing


def fail(*args, **kwargs):
    raise OSError(28, "No space left on device")


def contents(folder) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


class TestText:
    def test_the_text_is_there_as_given(self, tmp_path):
        writing.write_atomically(tmp_path / "x.txt", "für\r\nalle\n")
        writing.write_atomically(str(tmp_path / "x.txt"), "für\nalle\n")
        assert (tmp_path / "x.txt").read_bytes() == "für\nalle\n".encode()
        assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]

    def test_its_folder_is_made(self, tmp_path):
        writing.write_atomically(tmp_path / "a" / "b" / "x.txt", "new")
        assert contents(tmp_path / "a" / "b") == {"x.txt": "new"}

    def test_a_folder_that_refuses_files_is_told_with_the_name_of_the_text(self):
        with pytest.raises(OSError) as refused:
            writing.write_atomically("/proc/x.txt", "new")
        assert refused.value.filename == "/proc/x.txt"

    def test_a_folder_that_refuses_folders_is_told_with_the_name_of_the_new_one(self):
        with pytest.raises(OSError) as refused, writing.whole_or_absent("/proc/x"):
            pass
        assert refused.value.filename == "/proc/x"

    @pytest.mark.parametrize("call", ["fsync", "replace", None])
    def test_a_failed_write_leaves_the_old_text(self, call, tmp_path, monkeypatch):
        writing.write_atomically(tmp_path / "x.txt", "old")
        if call is not None:
            monkeypatch.setattr(os, call, fail)
        with pytest.raises((OSError, KeyboardInterrupt)), writing.atomic_file(tmp_path / "x.txt") as file:
            file.write("half")
            file.flush()
            assert (tmp_path / "x.txt").read_text() == "old"
            if call is None:
                raise KeyboardInterrupt
        assert contents(tmp_path) == {"x.txt": "old"}

    def test_it_is_on_the_disk_before_it_has_its_name(self, tmp_path, monkeypatch):
        calls = []
        for name in ("fsync", "replace"):
            call = getattr(os, name)
            monkeypatch.setattr(os, name, lambda *args, name=name, call=call: calls.append(name) or call(*args))
        writing.write_atomically(tmp_path / "x.txt", "new")
        assert calls == ["fsync", "replace", "fsync"]

    def test_the_whole_text_is_on_the_disk_before_it_has_its_name(self, tmp_path, monkeypatch):
        sizes, replace = [], os.replace
        flush = os.fsync
        monkeypatch.setattr(os, "fsync", lambda file: sizes.append(os.fstat(file).st_size) or flush(file))
        monkeypatch.setattr(os, "replace", lambda *names: sizes.append("replace") or replace(*names))
        writing.write_atomically(tmp_path / "x.txt", "new")
        assert sizes[:2] == [3, "replace"]

    @pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
    def test_a_private_file_stays_private(self, tmp_path):
        staging = tmp_path / "_incomplete"
        staging.mkdir()
        for folder in (tmp_path, staging):
            writing.write_atomically(folder / "x.txt", "old")
        (tmp_path / "x.txt").chmod(0o600)
        for publish in (
            lambda: writing.write_atomically(tmp_path / "x.txt", "new"),
            lambda: writing.publish_files(staging, tmp_path),
        ):
            publish()
            assert (tmp_path / "x.txt").stat().st_mode & 0o777 == 0o600
        assert contents(tmp_path) == {"x.txt": "old"}

    @pytest.mark.skipif(os.name == "nt", reason="links need rights")
    def test_a_link_is_followed(self, tmp_path):
        (tmp_path / "other").mkdir()
        (tmp_path / "x.txt").symlink_to(tmp_path / "other" / "y.txt")
        writing.write_atomically(tmp_path / "x.txt", "new")
        assert (tmp_path / "x.txt").is_symlink()
        assert contents(tmp_path / "other") == {"y.txt": "new"}

    def test_what_no_file_can_replace_is_refused(self, tmp_path):
        for path in (str(tmp_path), os.devnull):
            with pytest.raises(ValueError, match=f"^{path} is not a file, .* Pass the name of a file.$"):
                writing.write_atomically(path, "text")


class TestFolders:
    @staticmethod
    def _staged(tmp_path):
        staging = tmp_path / "_incomplete" / "result"
        folder = tmp_path / "result"
        (staging / "sub").mkdir(parents=True)
        (staging / "sub" / "a").write_text("new")
        folder.mkdir()
        (folder / "b").write_text("old")
        return staging, folder

    def test_a_published_folder_replaces_the_old_one(self, tmp_path):
        writing.publish_folder(*self._staged(tmp_path))
        assert contents(tmp_path) == {"result/sub/a": "new"}

    @pytest.mark.skipif(os.name == "nt", reason="Windows flushes no folders")
    @pytest.mark.parametrize("publish", [writing.publish_folder, writing.publish_files])
    def test_all_is_on_the_disk_before_it_has_its_place(self, publish, tmp_path, monkeypatch):
        staging, folder = self._staged(tmp_path)
        inodes = {path.stat().st_ino for path in (staging, staging / "sub", staging / "sub" / "a")}
        flushed = set()
        for name in ("rename", "replace"):
            call = getattr(os, name)

            def move(old, new, call=call):
                if Path(old).is_relative_to(staging):
                    assert inodes <= flushed
                return call(old, new)

            monkeypatch.setattr(os, name, move)
        flush = os.fsync
        monkeypatch.setattr(os, "fsync", lambda file: flushed.add(os.fstat(file).st_ino) or flush(file))
        publish(staging, folder)
        assert (folder / "sub" / "a").read_text() == "new"

    @pytest.mark.skipif(os.name == "nt", reason="Windows flushes no folders")
    def test_the_name_of_a_published_folder_is_on_the_disk(self, tmp_path, monkeypatch):
        staging, folder = self._staged(tmp_path)
        flushed = []
        monkeypatch.setattr(os, "fsync", lambda file: flushed.append((os.fstat(file).st_ino, staging.exists())))
        writing.publish_folder(staging, folder)
        assert (tmp_path.stat().st_ino, False) in flushed

    def test_the_old_folder_comes_back(self, tmp_path, monkeypatch):
        staging, folder = self._staged(tmp_path)
        rename = os.rename
        monkeypatch.setattr(os, "rename", lambda old, new: fail() if old == staging else rename(old, new))
        with pytest.raises(OSError, match="No space left"):
            writing.publish_folder(staging, folder)
        assert contents(folder) == {"b": "old"}

    def test_published_files_leave_the_others(self, tmp_path):
        staging, folder = self._staged(tmp_path)
        (staging / "b").write_text("new")
        writing.publish_files(staging, folder)
        assert contents(tmp_path) == {"result/sub/a": "new", "result/b": "new"}
        assert list(tmp_path.iterdir()) == [folder]

    def test_a_folder_is_whole_or_absent(self, tmp_path, monkeypatch):
        folder = tmp_path / "deep" / "result"
        with pytest.raises(KeyError), writing.whole_or_absent(folder) as staging:
            (staging / "a").write_text("half")
            raise KeyError
        assert list(folder.parent.iterdir()) == []
        for text in ("first", "second"):
            with writing.whole_or_absent(folder) as staging:
                (staging / "a").write_text(text)
            assert contents(tmp_path) == {"deep/result/a": text}
        monkeypatch.setattr(writing, "flush", fail)
        with pytest.raises(OSError, match="No space left"), writing.whole_or_absent(folder) as staging:
            (staging / "a").write_text("third")
        assert contents(tmp_path) == {"deep/result/a": "second"}

    @pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
    def test_other_users_may_read_a_new_folder(self, tmp_path):
        (tmp_path / "usual").mkdir()
        with writing.whole_or_absent(tmp_path / "result"):
            pass
        assert (tmp_path / "result").stat().st_mode == (tmp_path / "usual").stat().st_mode


class TestFailures:
    def test_a_folder_that_cannot_be_written(self, tmp_path):
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(ValueError, match=f"`output_dir` is '{tmp_path}/file', .*File exists.* writable folder"):
            writing.check_folder(tmp_path / "file")
        writing.check_folder(tmp_path / "new" / "one")
        assert list((tmp_path / "new" / "one").iterdir()) == []

    def test_a_folder_that_is_there_and_takes_no_file(self, tmp_path, monkeypatch):
        monkeypatch.setattr(writing.tempfile, "TemporaryFile", fail)
        with pytest.raises(ValueError, match=f"`output_dir` is '{tmp_path}', .*No space left.* writable folder"):
            writing.check_folder(tmp_path)

    def test_which_errors_are_of_a_write(self):
        assert writing.is_write_failure(OSError(30, "Read-only file system"))
        assert writing.is_write_failure(RuntimeError("[enforce fail at inline_container.cc:664]"))
        assert writing.is_write_failure(RuntimeError("basic_ios::clear: iostream error"))
        assert writing.is_write_failure(SafetensorError("Error while serializing: IoError"))
        assert not writing.is_write_failure(RuntimeError("size mismatch"))
