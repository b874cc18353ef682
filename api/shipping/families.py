"""Families: variants of a kernel that differ only in what is known of their arguments, as one function in C."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from ziggurat.codemodel.dialects import core
from ziggurat.codemodel.graphs import by_key
from ziggurat.codemodel.op import expect
from ziggurat.codemodel.text.parser import parse, parse_values
from ziggurat.codemodel.types import DescriptorType, PtrType, ScalarType, Type
from ziggurat.shipping.grids import Grid, c_name
from ziggurat.shipping.variant import Parameter, Variant


@attrs.frozen
class Family:
    """Variants that one function in C launches, the most specific first. `function` is the beginning of its names."""

    function: str
    variants: tuple[Variant, ...]

    @property
    def kernel(self) -> str:
        return self.variants[0].kernel

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, without what is known of the values of those that are passed."""
        return tuple(attrs.evolve(p, divisor=1, is_one=False) for p in self.variants[0].parameters)

    @property
    def passed(self) -> list[Parameter]:
        """The parameters that a launch passes: its slots."""
        return [parameter for parameter in self.parameters if parameter.is_passed]

    @property
    def writes(self) -> frozenset[str]:
        """The names of the parameters through which a variant may write memory."""
        return frozenset(name for variant in self.variants for name in _writes(variant))

    @property
    def grid(self) -> Grid | None:
        """The function of the grid, if all variants that have one have the same."""
        grids = [variant.grid for variant in self.variants if variant.grid is not None]
        return grids[0] if grids and all(grid.body == grids[0].body for grid in grids) else None

    @property
    def options(self) -> Mapping[str, Any]:
        return self.variants[0].options


def _writes(variant: Variant) -> list[str]:
    from ziggurat.transforms.kit.dataflow import written_parameters
    from ziggurat.transforms.simplify.demand import first_kernel

    kernel = first_kernel(expect(parse(variant.model), core.Module))
    names = [parameter.name for parameter in variant.passed if not parameter.is_one]  # As the kernel has them.
    return [names[number] for number in written_parameters(kernel)]


def c_names(parameters: Sequence[Parameter]) -> list[str]:
    """The names of parameters in C, all different."""
    names: list[str] = []
    for parameter in parameters:
        name = c_name(parameter.name)
        while name in names:
            name += "_"
        names.append(name)
    return names


def type_of(parameter: Parameter) -> Type:
    """The type of a parameter that is passed."""
    (type_,) = parse_values(parameter.type)
    return type_


def rank_and_element(type_: Type) -> tuple[int, ScalarType]:
    """The number of axes and the elements of a descriptor."""
    assert isinstance(type_, DescriptorType)
    return len(type_.block), type_.element


def families_of(variants: Iterable[Variant]) -> list[Family]:
    """The families of variants, in the order of their first ones, with names that say in what they differ. Kernels of
    one name from several places are numbered: `add`, `add_2`."""
    groups: dict[str, dict[str, Variant]] = {}
    places: dict[str, list[str]] = {}
    for variant in variants:
        own_places = places.setdefault(variant.kernel, [])
        if variant.place not in own_places:
            own_places.append(variant.place)
        number = own_places.index(variant.place)
        variant = attrs.evolve(variant, kernel=f"{variant.kernel}_{number + 1}") if number else variant
        groups.setdefault(_group(variant), {}).setdefault(_knowledge(variant), variant)
    members_of = (sorted(group.values(), key=_generality) for group in groups.values())
    by_kernel = by_key((members[0].kernel, members) for members in members_of)
    names: set[str] = set()
    families: list[Family] = []
    for kernel, members in by_kernel.items():
        for own, suffix in zip(members, _suffixes([group[0] for group in members]), strict=True):
            name = c_name(f"{kernel}{suffix}")
            count = 1
            while name in names:
                count += 1
                name = c_name(f"{kernel}{suffix}_{count}")
            names.add(name)
            families.append(Family(name, tuple(own)))
    return families


def _group(variant: Variant) -> str:
    """A text that is equal for the variants of a family."""
    parameters = [[p.name, p.type, p.constant] for p in variant.parameters]
    return json.dumps([variant.kernel, parameters, variant.options], sort_keys=True)


def _knowledge(variant: Variant) -> str:
    """A text that is equal for variants of a family that know the same: the first of them counts."""
    return json.dumps([[p.divisor, p.is_one] for p in variant.passed])


def _generality(variant: Variant) -> tuple[int, int]:
    """A number that is less for a variant that knows more."""
    facts = [p for p in variant.passed if p.is_one or p.divisor > 1]
    return -len(facts), -sum(p.is_one for p in facts)


def _suffixes(variants: Sequence[Variant]) -> list[str]:
    """For one variant of each family of a kernel, the facts in which it differs from others."""
    rows = [_facts(variant) for variant in variants]
    columns: list[str] = []
    for name in dict.fromkeys(name for row in rows for name in row):
        if len({row.get(name) for row in rows}) > 1:
            before = {tuple(row.get(column) for column in columns) for row in rows}
            after = {tuple(row.get(column) for column in (*columns, name)) for row in rows}
            columns += [name] if len(after) > len(before) else []  # Another fact may tell the same.
    return ["".join(f"_{row[name]}" for name in row if name in columns and row[name]) for row in rows]


def _facts(variant: Variant) -> dict[str, str]:
    """The facts that tell a family from others of its kernel, as parts of names."""
    facts: dict[str, str] = {}
    for parameter in variant.parameters:
        if parameter.is_passed:
            type_ = type_of(parameter)
            element = type_.pointee if isinstance(type_, PtrType) else type_
            text = str(element) if isinstance(element, ScalarType) else re.sub(r"\W+", "", str(element))
        elif isinstance(parameter.constant, bool | int | float):
            text = f"{parameter.name}{int(parameter.constant)}".replace("-", "m")
        else:
            text = f"{parameter.name}{re.sub(r'[^A-Za-z0-9]+', '', str(parameter.constant))[:16]}"
        facts[parameter.name] = text
    facts |= {f"--{name}": f"{name.removeprefix('num_')}{value}" for name, value in variant.options.items()}
    return facts
