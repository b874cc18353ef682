"""Attribution: which type each value of a Python model has, by abstract interpretation."""

# These three modules register their handlers.
from ziggurat.transforms.attribution import call_sites as call_sites
from ziggurat.transforms.attribution import expressions as expressions
from ziggurat.transforms.attribution import flow as flow
from ziggurat.transforms.attribution.attribute import attribute, default_warps
from ziggurat.transforms.attribution.attribution import Attribution, Scope
from ziggurat.transforms.attribution.link import link
from ziggurat.transforms.calls.constant_arguments import function_name
from ziggurat.transforms.calls.lattice import outer_constant, type_of_tuple
from ziggurat.transforms.calls.promotion import constant

__all__ = [
    "Attribution", "Scope", "attribute", "constant", "default_warps", "function_name", "link", "outer_constant",
    "type_of_tuple",
]  # fmt: skip
