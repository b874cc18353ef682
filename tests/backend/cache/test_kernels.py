"""The cache on disk: damage, eviction, and many processes at once."""

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ziggurat as zg
from ziggurat.backend.cache import folder
from ziggurat.backend.cache.folder import default_directory
from ziggurat.backend.cache.kernels import _head as cache_head
from ziggurat.backend.cuda.binary import Binary, PtxParameter
from ziggurat.backend.cuda.cache import Cache


def binary(number: int, size: int = 100) -> Binary:
    parameters = (PtxParameter("ptr"), PtxParameter("tensormap", (64, 64), 128, "map", 1))
    return Binary(f"k{number}", "x" * size, 4, 1024, parameters, "sm_90a", metadata={"registers": [number]})


def key(number: int) -> str:
    return f"{number:064x}"


@pytest.mark.parametrize("code", ["// PTX\nwith a second line", b"\x7fELF\n\0\xff", ""])
def test_what_is_put_is_got(tmp_path: Path, code):
    cache = Cache(tmp_path / "new" / "folder")
    copies = Binary("k", code, 8, 7, (PtxParameter("f32"),), "sm_80", "kernel", {"a": 1})
    assert cache.get(key(1)) is None
    assert cache.put(key(1), copies)
    assert Cache(tmp_path / "new" / "folder").get(key(1)) == copies


def got_or_put(cache: Cache, key: str, make: Binary) -> Binary:
    got = cache.get(key)
    if got is None:
        cache.put(key, make)
        return make
    return got


def size(cache: Cache) -> int:
    return sum(file.stat().st_size for file in cache.directory.glob("*.kernel"))


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "foreign", "tail"])
def test_damaged_entries_are_removed_and_built_again(tmp_path: Path, damage: str):
    cache = Cache(tmp_path)
    cache.put(key(1), binary(1))
    (file,) = tmp_path.glob("*.kernel")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(
        {
            "cut": file.read_bytes()[:-5],
            "bit": bytes(data),
            "empty": b"",
            "foreign": b"hello\nworld",
            "tail": file.read_bytes() + b"x",
        }[damage]
    )
    assert cache.entries() == []
    assert cache.get(key(1)) is None and not file.exists()
    assert got_or_put(cache, key(1), binary(1)) == binary(1)
    assert cache.get(key(1)) == binary(1)


def test_the_longest_not_used_make_room(tmp_path: Path):
    cache = Cache(tmp_path)
    for number in range(4):
        cache.put(key(number), binary(number))
        os.utime(tmp_path / f"{key(number)}.kernel", (1000 + number, 1000 + number))
    one = size(cache) // 4
    cache.get(key(0))  # used now
    small = Cache(tmp_path, limit=3 * one + one // 2)
    small.put(key(9), binary(9))
    assert sorted(int(entry.key, 16) for entry in small.entries()) == [0, 3, 9]
    assert size(small) <= small.limit


def test_entries_and_clear(tmp_path: Path):
    cache = Cache(tmp_path)
    for number in (1, 2):
        cache.put(key(number), binary(number))
        os.utime(tmp_path / f"{key(number)}.kernel", (number, number))
    first, second = cache.entries()
    assert (first.name, second.name, first.target, first.used) == ("k2", "k1", "sm_90a", 2.0)
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path / ".0000-killed").write_text("left by a writer that was killed")
    assert cache.clear() == 2 and cache.entries() == [] and cache.clear() == 0
    assert (tmp_path / "notes.txt").exists()


def test_a_folder_that_cannot_be_used_is_an_empty_one(tmp_path: Path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    cache = Cache(blocked / "cache")
    assert cache.put(key(1), binary(1)) is False and cache.get(key(1)) is None and cache.entries() == []
    assert got_or_put(cache, key(1), binary(1)) == binary(1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_only_read(tmp_path: Path):
    cache = Cache(tmp_path)
    cache.put(key(1), binary(1))
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    assert cache.get(key(1)) == binary(1) and cache.put(key(2), binary(2)) is False


def hammer(folder: str, seed: int, until: float) -> int:
    """Write, read and damage entries; returns how many reads were wrong."""
    cache, wrong, number = Cache(folder, limit=20_000), 0, seed
    while time.time() < until:
        number = (number * 1103515245 + 12345) % 2**31
        which = number % 8
        got = got_or_put(cache, key(which), binary(which, 500 * which))
        wrong += got != binary(which, 500 * which)
        if number % 7 == 0:
            cache.put(key(which), binary(which, 500 * which))
        if number % 31 == 0:
            try:
                with open(cache.path(key(which)), "r+b") as file:
                    file.truncate(30)
            except OSError:
                pass
        if number % 97 == 0:
            cache.clear()
    return wrong


FORK = """
import os, runpy, sys, time
hammer = runpy.run_path(sys.argv[1])["hammer"]
until = time.time() + 1.5
children = []
for seed in range(16):
    child = os.fork()
    if child == 0:
        os._exit(min(hammer(sys.argv[2], seed, until), 1))
    children.append(child)
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""


def test_sixteen_processes_at_once(tmp_path: Path):
    # They are forked in a process of their own: this one may have threads.
    done = subprocess.run(
        [sys.executable, "-c", FORK, __file__, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    cache = Cache(tmp_path, limit=20_000)
    cache.evict()
    assert size(cache) <= cache.limit
    assert {entry.name for entry in cache.entries()} <= {f"k{number}" for number in range(8)}


# The folder.


def test_a_variable_moves_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ZIGGURAT_CACHE_DIR", str(tmp_path / "kernels"))
    assert Cache().directory == tmp_path / "kernels"
    monkeypatch.setenv("ZIGGURAT_CACHE_DIR", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Cache().directory == tmp_path / ".cache" / "ziggurat"


@pytest.fixture
def homeless(tmp_path, monkeypatch):
    """No home, and a folder for temporary files of its own."""
    monkeypatch.delenv("ZIGGURAT_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/nonexistent/home")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder._temporary_directory.cache_clear()
    yield tmp_path
    folder._temporary_directory.cache_clear()


@pytest.mark.parametrize("home", ["/nonexistent/home", "/dev/null", "", "/", "~"])
def test_without_a_home_it_is_among_the_temporary_files(homeless, monkeypatch, home):
    monkeypatch.setenv("HOME", home)
    directory = default_directory()
    assert directory == homeless / f"ziggurat-{os.getuid()}"
    assert directory.stat().st_mode & 0o077 == 0, "it is the user's alone"
    assert default_directory() == directory


def test_a_user_that_the_machine_does_not_know(homeless, monkeypatch):
    def unknown(path):
        return path  # Python's result if neither HOME nor the user is known.

    monkeypatch.setattr("os.path.expanduser", unknown)
    assert default_directory().parent == homeless


def test_a_folder_that_others_can_write_is_not_trusted(homeless):
    (homeless / f"ziggurat-{os.getuid()}").mkdir()
    (homeless / f"ziggurat-{os.getuid()}").chmod(0o777)
    directory = default_directory()
    assert directory != homeless / f"ziggurat-{os.getuid()}" and directory.parent == homeless
    assert Cache(directory).put("ab" * 32, Binary("k", "", 4, 0, (), "sm_90a"))
    assert default_directory() == directory, "it stays the same in this process"
    shutil.rmtree(directory)


def test_a_folder_of_one_process_is_removed_at_its_end(homeless, monkeypatch):
    """Also where it is no longer there: the end of the process reports nothing."""
    ends = []
    monkeypatch.setattr("atexit.register", lambda call, *arguments, **options: ends.append((call, arguments, options)))
    (homeless / f"ziggurat-{os.getuid()}").mkdir()
    (homeless / f"ziggurat-{os.getuid()}").chmod(0o777)
    directory = default_directory()
    assert directory.is_dir() and len(ends) == 1
    for _ in range(2):
        for call, arguments, options in ends:
            call(*arguments, **options)
        assert not directory.exists()


# Entries and folders of others.


def test_an_entry_counts_for_its_own_key_only(tmp_path: Path):
    cache = Cache(tmp_path)
    cache.put(key(1), binary(1))
    shutil.copy(cache.path(key(1)), cache.path(key(2)))
    assert cache.get(key(2)) is None and cache.get(key(1)) == binary(1)
    assert [entry.key for entry in cache.entries()] == [key(1)]


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ZIGGURAT_CACHE_DIR", "~/kernels")
    assert default_directory() == tmp_path / "kernels"


def test_new_folders_are_this_user_s_whatever_the_umask(tmp_path: Path):
    before = os.umask(0)
    try:
        assert Cache(tmp_path / "a" / "b").put(key(1), binary(1))
    finally:
        os.umask(before)
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "a", tmp_path / "a" / "b"))


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702])
def test_a_cache_that_others_can_write_is_not_used(tmp_path: Path, mode: int):
    cache = Cache(tmp_path)
    cache.put(key(1), binary(1))
    tmp_path.chmod(mode)
    with pytest.warns(zg.ZigguratWarning, match="can be written by other users"):
        assert cache.get(key(1)) is None
    with pytest.warns(zg.ZigguratWarning, match="chmod go-w"):
        assert not cache.put(key(2), binary(2))
    with pytest.warns(zg.ZigguratWarning):
        assert cache.entries() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone gives files away")
def test_a_cache_or_an_entry_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    cache = Cache(tmp_path)
    cache.put(key(1), binary(1))
    os.chown(cache.path(key(1)), 4711, -1)
    assert cache.get(key(1)) is None
    os.chown(tmp_path, 4711, -1)
    with pytest.warns(zg.ZigguratWarning, match="belongs to another user"):
        assert cache.get(key(1)) is None


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "nested"])
def test_what_is_no_plain_file_is_no_entry(tmp_path: Path, kind: str):
    cache, head = Cache(tmp_path), b"[" * 100_000
    path = cache.path(key(1))
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(cache_head(key(1), head) + b"\n" + head)
    assert cache.get(key(1)) is None and cache.entries() == []
