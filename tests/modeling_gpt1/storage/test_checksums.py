import xxhash

from modeling_gpt1.storage import checksums


def test_a_file_longer_than_what_is_read_at_once(tmp_path, monkeypatch):
    content = bytes(range(256)) * 5
    (tmp_path / "file").write_bytes(content)
    monkeypatch.setattr(checksums, "_CHUNK", 300)
    assert checksums.checksum_of_file(tmp_path / "file") == xxhash.xxh3_128_hexdigest(content)
    (tmp_path / "file").write_bytes(content[:-1] + b"\xfe")
    assert checksums.checksum_of_file(tmp_path / "file") != xxhash.xxh3_128_hexdigest(content)


def test_the_value_that_xxhash_publishes_for_nothing(tmp_path):
    (tmp_path / "empty").touch()
    assert checksums.checksum_of_file(tmp_path / "empty") == "99aa06d3014798d86001c324468d497f"
    assert checksums.checksum_of_text("") == "99aa06d3014798d86001c324468d497f"
