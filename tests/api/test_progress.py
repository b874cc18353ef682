"""The progress bar."""

import io
import threading
import time

import pytest

from ziggurat.tuning.tuner import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_on_a_terminal_only():
    for stream, shown in ((io.StringIO(), False), (Terminal(), True)):
        progress = Progress("scale: compiling", 4, stream)
        for _ in range(2):
            progress.advance()
        assert ("[###############...............] 2/4" in stream.getvalue()) == shown
        progress.close()
        assert stream.getvalue().endswith("\r\x1b[K") == shown


def test_the_line_is_drawn_anew_from_none_to_all():
    stream = Terminal()
    progress = Progress("measuring", 3, stream)
    for _ in range(3):
        progress.advance()
    lines = stream.getvalue().split("\r")
    assert lines[0] == "" and [line.rpartition(" ")[2] for line in lines[1:]] == [f"{n}/3\x1b[K" for n in range(4)]
    assert [line.count("#") for line in lines[1:]] == [0, 10, 20, 30]
    assert {line.count("#") + line.count(".") for line in lines[1:]} == {30}


@pytest.mark.parametrize("total", [0, 1])
def test_one_thing_needs_no_line(total):
    stream = Terminal()
    progress = Progress("compiling", total, stream)
    for _ in range(total):
        progress.advance()
    progress.close()
    assert stream.getvalue() == "" and progress.done == total


def test_it_is_standard_error_that_is_written(capsys, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    Progress("compiling", 2).close()
    assert stream.getvalue().startswith("\rcompiling [") and capsys.readouterr().out == ""


def test_threads_may_advance_it():
    class Slow(Terminal):
        """A stream that notices two threads writing at once."""

        def write(self, text):
            assert inside.acquire(blocking=False), "two threads draw"
            try:
                time.sleep(0.0002)  # lets the others run
                return super().write(text)
            finally:
                inside.release()

    inside, stream = threading.Lock(), Slow()
    progress = Progress("compiling", 40, stream)
    failed = []

    def work():
        try:
            for _ in range(10):
                progress.advance()
        except AssertionError as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == [] and progress.done == 40
    assert stream.getvalue().endswith("] 40/40\x1b[K")
