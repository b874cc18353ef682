"""Chains of calls that move axes, with axes of size 1: tensors of one element are not scalars."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def whole(shape: tuple[int, ...]) -> np.ndarray:
    """Two programs' rows of different numbers."""
    return (np.arange(2 * int(np.prod(shape)), dtype=np.int32) * 7 % 23 - 5).reshape(2, *shape)


@st.composite
def chains(draw):
    """A shape with ones in it, and calls one after another: their lines, and what NumPy makes of the same."""
    shape = tuple(draw(st.lists(st.sampled_from((1, 1, 2, 4)), min_size=1, max_size=4)))
    start = value = whole(shape)
    lines: list[str] = []
    name = "x"
    for number in range(draw(st.integers(1, 5))):
        now = value.shape[1:]
        choices = ["join", "expand"] if value.size < 200 else []
        if now:
            choices += ["permute", "reshape", "sum", "keep", "any", "cumsum"]
            choices += ["split"] if now[-1] == 2 else []
            choices += ["cat", "broadcast"] if value.size < 200 else []
        call = draw(st.sampled_from(choices))
        axis = draw(st.integers(0, max(0, len(now) - 1)))
        variable = f"v{number}"
        match call:
            case "join":
                line, value = f"zg.join({name}, zg.add({name}, 1))", np.stack([value, value + 1], -1)
            case "expand":
                axis = draw(st.integers(0, len(now)))
                line, value = f"zg.expand({name}, {axis})", np.expand_dims(value, axis + 1)
            case "permute":
                order = draw(st.permutations(range(len(now))))
                line, value = f"zg.permute({name}, {tuple(order)})", value.transpose(0, *(a + 1 for a in order))
            case "reshape":
                into = draw(st.permutations([*now, 1]))
                line, value = f"zg.reshape({name}, {tuple(into)})", value.reshape(2, *into)
            case "sum":
                line, value = f"zg.sum({name}, {axis})", value.sum(axis + 1, dtype=np.int32)
            case "keep":
                line, value = (
                    f"zg.sum({name}, {axis}, keep_dims=True)",
                    value.sum(axis + 1, dtype=np.int32, keepdims=True),
                )
            case "any":
                line, value = f"zg.max({name}, {axis})", value.max(axis + 1)
            case "cumsum":
                line, value = f"zg.cumsum({name}, {axis})", np.cumsum(value, axis + 1, dtype=np.int32)
            case "split":
                half = draw(st.integers(0, 1))
                lines.append(f"{variable}a, {variable}b = zg.split({name})")
                line, value = f"{variable}{'ab'[half]}", value[..., half]
            case "cat":
                line, value = f"zg.cat({name}, {name})", np.concatenate([value, value], 1)
            case _:
                line, value = f"zg.broadcast(zg.expand({name}, 0), {(2, *now)})", np.repeat(value[:, None], 2, 1)
        lines.append(f"{variable} = {line}")
        name = variable
    return start, lines, name, value


@given(chains())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_chains_of_shape_calls(compute, chain):
    start, lines, name, value = chain
    compute("\n".join(lines), {"x": start}, {name: np.ascontiguousarray(value)}, thorough=False)
