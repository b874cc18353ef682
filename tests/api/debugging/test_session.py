"""`zg.debug`: values at each stop are NumPy's, going back is the reverse of going forward, and input is checked."""

import debugged_kernels as kernels
import numpy as np
import pytest
from debugged_kernels import line_of

import ziggurat as zg

F32 = np.float32


def launched(kernel, program=0):
    """A session of one of the kernels that add up, and their array."""
    x = np.arange(20, dtype=F32)
    return zg.debug(kernel, (3,), np.zeros_like(x), x, 20, 8, program=program), x


def numpy_steps(x, program):
    """The variables of `steps` in a program before each iteration's branch, by NumPy."""
    at = program * 8 + np.arange(8)
    v = np.where(at < 20, x[np.minimum(at, 19)], 0).astype(F32)
    acc = np.zeros(8, F32)
    for i in range(3):
        acc = acc + (v * F32(2) + F32(1))
        yield i, v, acc
        acc = acc * 2 if program > 0 else (acc - 1) + (acc + F32(i))
    yield 3, v, acc


@pytest.mark.parametrize(("kernel", "prefix"), [(kernels.steps, ""), (kernels.steps_t, "t ")], ids=["zg", "tl"])
@pytest.mark.parametrize("program", range(3))
def test_values_at_each_stop_are_numpys(kernel, prefix, program):
    session, x = launched(kernel, program=program)
    session.break_at(line_of(f"{prefix}branch"))
    expected = list(numpy_steps(x, program))
    for i, v, acc in expected[:3]:
        place = session.go()
        assert (place.program, place.reason) == ((program, 0, 0), "breakpoint 1")
        assert session["i"] == i and session["pid"] == program and session["B"] == 8
        np.testing.assert_array_equal(session["v"], v)
        np.testing.assert_array_equal(session["acc"], acc)
        np.testing.assert_array_equal(session["mask"], session["at"] < 20)
    session.clear()
    session.break_at(line_of(f"{prefix}store"))
    session.go()
    np.testing.assert_array_equal(session["acc"], expected[3][2])
    assert not session.arrays["out"][program * 8 :].any()
    session.step()
    np.testing.assert_array_equal(session.arrays["out"][program * 8 :][:8], expected[3][2][: 20 - program * 8])


def test_the_arrays_of_the_launch_stay_as_they_are():
    x, out = np.ones(8, F32), np.zeros(8, F32)
    zg.debug(kernels.steps, (1,), out, x, 8, 8).go()
    assert not out.any()


def test_going_back_visits_the_same_places_and_values():
    session, _ = launched(kernels.steps)
    trail = []
    while True:
        trail.append((session.place.program, session.place.line, str(session.variables), str(session.arrays)))
        place = session.step()
        if place.reason == "end" and place.program == (2, 0, 0):
            break
    for program, line, variables, arrays in reversed(trail):
        place = session.step(back=True)
        assert (place.program, place.line) == (program, line)
        assert (str(session.variables), str(session.arrays)) == (variables, arrays)
    assert session.step(back=True).reason == "start" and session.place.program == (0, 0, 0)


def test_stepping_over_into_and_out_of_a_function():
    session, _ = launched(kernels.steps, program=1)
    session.break_at(line_of("call"), "i == 1")
    session.go()
    acc = session["acc"]
    assert session.step().function == "scaled" and session.place.line == line_of("scale")
    assert [place.function for place in session.where()] == ["scaled", "steps"]
    assert set(session.variables) == {"v", "s"} and session["s"] == 2.0
    session.frame(1)
    np.testing.assert_array_equal(session["acc"], acc)
    session.step()
    np.testing.assert_array_equal(session["t"], session["v"] * 2)
    assert session.out().line == line_of("branch")
    assert session.next(back=True).line == line_of("call")
    assert session.next().line == line_of("branch")
    assert session.step(back=True).line == line_of("plus one")
    assert session.out(back=True).line == line_of("call")
    session.clear()
    assert session.out().reason == "end" and session.out(back=True).line == line_of("first")


def test_next_stops_at_a_breakpoint_inside_a_call():
    session, _ = launched(kernels.steps)
    session.break_at(line_of("call"))
    session.go()
    session.break_at(line_of("plus one"))
    assert session.next().line == line_of("plus one")


def test_both_branches_and_loops_show_the_lines_that_run():
    session, _ = launched(kernels.steps)
    marks = ("loop", "load", "call", "branch")
    for program in (0, 1):
        session.select(program)
        lines = []
        while session.next().reason == "step" and session.place.program == (program, 0, 0):
            lines.append(session.place.line)
        body = [line_of(mark) for mark in marks]
        branch = line_of("then") if program else line_of("otherwise")
        pair = [] if program else [branch - 1]
        assert lines[3:] == [*[*body, *pair, branch] * 3, line_of("loop"), line_of("store")]


def test_loops_with_a_condition_and_a_break():
    session = zg.debug(kernels.counts, (1,), np.zeros(1, np.int32), 100)
    lines, totals = [], []
    while session.next().reason != "end":
        lines.append(session.place.line)
        totals.append(int(session["total"]))
    add, head = line_of("add"), line_of("while")
    assert lines == [head, add, add + 1, head, add, add + 1, head, add, add + 1, line_of("leave"), line_of("put")]
    assert totals == [0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9]


def test_conditions_are_pythons_over_the_variables():
    session, x = launched(kernels.steps)
    session.break_at(line_of("branch"), "pid == 2 and acc.max() > 70 and not mask.all()")
    place = session.go()
    assert place.program == (2, 0, 0) and session["i"] == 1
    session.break_at(line_of("then"), "acc")
    assert "breakpoint 2, whose condition fails: The truth value of an array" in session.go().reason


def test_watch_over_several_programs():
    x = np.arange(32, dtype=F32)
    session = zg.debug(kernels.sums, (4,), np.zeros(1, F32), x, 8)
    writes = session.writers("total[0]")
    sums = x.reshape(4, 8).sum(axis=1)
    assert [write.program[0] for write in writes] == [0, 1, 2, 3]
    np.testing.assert_array_equal([write.new for write in writes], np.cumsum(sums))
    np.testing.assert_array_equal([write.old for write in writes], np.cumsum(sums) - sums)
    assert {write.location.line for write in writes} == {line_of("add to total")}
    session.watch("total[0]")
    for program in range(4):
        place = session.go()
        assert place.program == (program, 0, 0) and place.writes == (writes[program],)
        assert session.arrays["total"][0] == writes[program].new
    for program in (2, 1, 0):
        session.go(back=True)
        place = session.go(back=True) if program == 2 else session.place
        assert session.arrays["total"][0] in (writes[program].old, writes[program].new)


def test_the_last_of_two_writes_is_of_the_program_that_made_it():
    session = zg.debug(kernels.strays, (2,), np.zeros(2, F32), np.full(200, 3, F32))
    writes = [(write.program, write.location.line, write.new) for write in session.writers("out[1]")]
    assert writes == [((1, 0, 0), line_of("half"), 0.5), ((1, 0, 0), line_of("stray"), 3.0)]
    assert [write.new for write in session.writers("x[0]")] == []


def test_a_failing_program_is_followed_to_its_error_and_back():
    session = zg.debug(kernels.strays, (3,), np.zeros(3, F32), np.zeros(150, F32))
    place = session.go()
    assert place.reason == "error" and place.program == (2, 0, 0) and "reads x[200]" in str(place)
    assert session["i"] == 2 and session.go().reason == "error"
    assert session.step(back=True).line == line_of("stray")
    with pytest.raises(zg.MemoryAccessError):
        zg.debug(kernels.strays, (4,), np.zeros(4, F32), np.zeros(150, F32), program=3)


def test_arrays_of_two_axes_and_views_are_watched_by_index():
    @zg.kernel
    def fills(c, stride):
        zg.store(c + zg.program_id(0) * stride + zg.program_id(1), zg.program_id(0) * 10 + zg.program_id(1))

    whole = np.zeros((6, 8), np.int32)
    session = zg.debug(fills, (3, 4), whole[::2, :4], 16)
    assert [(write.program, write.new) for write in session.writers("c[2, 1]")] == [((2, 1, 0), 21)]
    assert [(write.program, write.new) for write in session.writers("c[9]")] == [((2, 1, 0), 21)]
    assert session.select((2, 1)).program == (2, 1, 0)


def test_pointers_and_tuples():
    @zg.kernel
    def pairs(out, x):
        pair = (x + zg.arange(0, 4), 7)
        zg.store(out + zg.arange(0, 4), zg.load(pair[0] + 1))

    session = zg.debug(pairs, (1,), np.zeros(4, F32), np.arange(5, dtype=F32))
    session.step()
    pointers, number = session["pair"]
    assert number == 7 and str(pointers) == "x + [0 1 2 3]"
    np.testing.assert_array_equal(pointers.values, [0, 1, 2, 3])
    assert str(session["out"]) == "out + 0" and session["x"].values == 0


def test_values_that_do_not_fit_are_recorded_again(monkeypatch):
    from ziggurat.backend.reference import recording

    monkeypatch.setattr(recording, "MAX_BYTES", 600)
    session, x = launched(kernels.steps, program=1)
    session.break_at(line_of("store"))
    session.go()
    np.testing.assert_array_equal(session["acc"], [*numpy_steps(x, 1)][3][2])
    session.clear()
    session.break_at(line_of("scale"), "v[0] == 8")
    session.go(back=True)
    assert [place.function for place in session.where()] == ["scaled", "steps"]
    session.frame(1)
    assert session["i"] == 2


def test_expressions_with_bodies_see_the_variables():
    session, _ = launched(kernels.steps, program=1)
    session.break_at(line_of("scale"), "any(number == s * 4 for number in v)")
    session.go()
    assert 8 in session["v"] and session["s"] == 2
    assert session.evaluate("[s + n for n in (1, 2)]") == [3, 4]
    assert session.evaluate("(lambda k: v[k])(0)") == session["v"][0]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s: s.break_at(1), "line 1 of debugged_kernels.py has no statement of 'steps'"),
        (lambda s: s.break_at(3, file="nowhere.py"), "line 3 of nowhere.py has no statement"),
        (lambda s: s.break_at(line_of("load"), "i =="), "the condition 'i ==' is no expression of Python"),
        (lambda s: s["none"], "there is no variable 'none' here"),
        (lambda s: s.evaluate("none + 1"), "'none \\+ 1' cannot be evaluated here: NameError"),
        (lambda s: s.evaluate("1 +"), "cannot be evaluated here: SyntaxError"),
        (lambda s: s.watch("acc[1]"), "'acc\\[1\\]' is no element of an array of the launch"),
        (lambda s: s.watch("out"), "'out' is no element"),
        (lambda s: s.watch("out[20]"), "out has the shape \\(20,\\), and no element \\[20\\]"),
        (lambda s: s.watch("out[1, 2]"), "no element \\[1, 2\\]"),
        (lambda s: s.watch("out[0.5]"), "no element \\[0.5\\]"),
        (lambda s: s.watch("out[q]"), "cannot be evaluated here: NameError"),
        (lambda s: s.break_at("12"), "a line must be a number; got '12'"),
        (lambda s: s.watch(3), "'3' is no element"),
        (lambda s: s.evaluate(None) or s["q"], "there is no variable 'q'"),
        (lambda s: s.undefined("q"), "there is no variable 'q'"),
        (lambda s: s.frame("a"), "there is no frame a"),
        (lambda s: s.select(3), "'program' must be one of the grid; got 3"),
        (lambda s: s.frame(1), "there is no frame 1"),
    ],
)
def test_bad_input_is_an_error_that_says_what_to_do(use, message):
    session, _ = launched(kernels.steps)
    with pytest.raises(zg.LaunchError, match=message) as error:
        use(session)
    assert error.value.hint or "no e" in message or "condition" in message


def test_launches_that_do_not_fit():
    with pytest.raises(zg.KernelTypeError, match="'kernel' must be a kernel"):
        zg.debug(3, (1,))
    with pytest.raises(zg.LaunchError, match="must have a program"):
        zg.debug(kernels.counts, (0,), np.zeros(1, np.int32), 1)
    gradient = zg.grad(kernels.steps, wrt="x", of="out")
    arrays = [np.zeros(8, F32) for _ in range(4)]
    with pytest.raises(zg.LaunchError, match="has no statements to stop at"):
        zg.debug(gradient, (1,), *arrays, 8, 8)


def test_undefined_elements_are_those_of_the_mask():
    @zg.kernel
    def partly(out, x, n):
        at = zg.arange(0, 8)
        v = zg.load(x + at, zg.less(at, n))
        w = v * 2
        total = zg.sum(w, axis=0)
        z = zg.where(zg.less(at, n), w, 0.0)
        zg.store(out + at, z + total)

    x, out = np.ones(8, F32), np.zeros(8, F32)
    session = zg.debug(partly, (1,), out, x, 5)
    session.out()
    for name in ("v", "w"):
        assert session.undefined(name).tolist() == [False] * 5 + [True] * 3
    assert session.undefined("z") is None and session.undefined("at") is None and session.undefined("total").all()
    partly[(1,)](out, x, 5, interpret=True)
    np.testing.assert_array_equal(session.arrays["out"], out)
