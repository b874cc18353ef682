"""Choices of tuning on disk."""

import json
import os

import pytest

import ziggurat as zg
from ziggurat.backend.cache.records import Records, TuningRecord, chosen, digest_of

ABOUT = {"kernel": "add", "key": {"n": "4"}, "types": {}, "device": "GPU"}
RECORD = TuningRecord(ABOUT, "a", {"a": 1.0, "b": 2.0}, {"c": "too large"})


def test_what_is_put_is_got(tmp_path):
    records = Records(tmp_path / "deep" / "folder")
    assert records.get(ABOUT) is None and records.all() == []
    assert records.put(RECORD) and records.get(ABOUT) == RECORD
    assert records.get(dict(reversed(ABOUT.items()))) == RECORD  # the order of the keys does not count
    assert records.get({**ABOUT, "device": "another"}) is None
    assert len(list(records.directory.iterdir())) == 1  # nothing is left of the writing


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"about": {}}', "\0"])
def test_a_damaged_file_counts_as_not_there_and_goes(tmp_path, content):
    records = Records(tmp_path)
    records.put(RECORD)
    (path,) = tmp_path.iterdir()
    path.write_text(content)
    assert records.all() == []
    assert records.get(ABOUT) is None and not path.exists()


def test_a_directory_that_is_none(tmp_path):
    (tmp_path / "file").write_text("")
    records = Records(tmp_path / "file")
    assert not records.put(RECORD) and records.get(ABOUT) is None and records.clear() == 0


def test_writers_at_once_leave_a_whole_record(tmp_path):
    records = Records(tmp_path)
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            for _ in range(50):
                records.put(TuningRecord(ABOUT, f"config {number}", {f"config {number}": 1.0}))
            os._exit(0)
        children.append(child)
    values = [records.get(ABOUT) for _ in range(200)]
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    last = records.get(ABOUT)
    assert last is not None and last.config.startswith("config ")
    first = next((number for number, record in enumerate(values) if record is not None), len(values))
    assert None not in values[first:]  # once there, it is always there, and always whole


@pytest.mark.parametrize(
    ("times", "noise", "name"),
    [
        ({"a": 1.0, "b": 2.0}, 0.02, "a"),
        ({"a": 1.015, "b": 1.0}, 0.02, "a"),
        ({"a": 1.03, "b": 1.0}, 0.02, "b"),
        ({"a": 1.015, "b": 1.0}, 0.0, "b"),
        ({"a": 2.0, "b": 1.019, "c": 1.0}, 0.02, "b"),
    ],
)
def test_the_first_within_the_noise_of_the_fastest(times, noise, name):
    assert chosen(times, noise) == name


@pytest.mark.parametrize(
    "change",
    [
        {"about": {"kernel": "k"}},
        {"about": []},
        {"about": {**ABOUT, "key": ["n"]}},
        {"about": {**ABOUT, "types": {"x": 1}}},
        {"config": 7},
        {"times": {"a": "fast"}},
        {"times": {"a": float("nan")}},
        {"left_out": {"c": None}},
    ],
)
def test_a_record_with_a_right_checksum_and_wrong_fields_is_none(tmp_path, change):
    body = {name: value for name, value in RECORD.to_json().items() if name != "checksum"} | change
    sealed = {**body, "checksum": digest_of(body)}
    (tmp_path / "file").write_text(json.dumps({"format": "ziggurat choices 1", "records": [sealed]}))
    with pytest.raises(zg.LaunchError, match="a field has another type"):
        Records(tmp_path / "records").import_(tmp_path / "file")


def test_a_record_counts_for_what_it_was_made_for(tmp_path):
    records, other = Records(tmp_path), {**ABOUT, "device": "another"}
    records.put(RECORD)
    (path,) = tmp_path.iterdir()
    path.rename(records.path(digest_of(other)))
    assert records.get(other) is None and records.all() == []


@pytest.mark.parametrize("kind", ["fifo", "device", "nested"])
def test_what_no_export_is(tmp_path, kind):
    file = tmp_path / "file"
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.write_text("[" * 100_000)
    with pytest.raises(zg.LaunchError, match="no choices that can be read"):
        Records(tmp_path / "records").import_(file)
