"""Every name of the driver that the runtime asks for, against the real cuda.bindings, where that is installed."""

import re
from pathlib import Path

from libraries import require

from ziggurat.codemodel.types import SCALARS

SOURCES = [Path(__file__).parents[3] / "backend" / package for package in ("cuda", "devices", "launch")]
FILLED = {
    "CU_DEVICE_ATTRIBUTE_": ("CUdevice_attribute", r'attribute\("(\w+)"\)'),
    "CU_FUNC_ATTRIBUTE_": ("CUfunction_attribute", r'_ask\("(\w+)"\)'),
    "CU_TENSOR_MAP_SWIZZLE_": ("CUtensorMapSwizzle", r'\d+: "(NONE|\d+B)"'),
}


def test_names_of_the_driver():
    driver = require("cuda.bindings.driver")
    files = [file for folder in SOURCES for file in sorted(folder.glob("*.py"))]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    names = set(re.findall(r"(?:driver|library|cuda\(\))\.(cu[A-Z]\w+|CU\w+|cuuint\w+)", text))
    assert len(names) > 40
    assert [name for name in sorted(names) if not hasattr(driver, name)] == []
    members = re.findall(r"(?:driver|library)\.(CU\w+)\.(CU_\w+)", text)
    assert len(members) > 4
    assert [pair for pair in members if not hasattr(getattr(driver, pair[0]), pair[1])] == []
    types = {scalar.tensor_map for scalar in SCALARS.values() if scalar.tensor_map}
    assert types and all(hasattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{name}") for name in types)
    for prefix, (enum, pattern) in FILLED.items():
        matches = re.findall(pattern, text)
        assert matches, enum
        assert [name for name in matches if not hasattr(getattr(driver, enum), prefix + name)] == []
    statuses = set(re.findall(r'"(CUDA_ERROR_\w+)"', text))
    assert [status for status in sorted(statuses) if not hasattr(driver.CUresult, status)] == []
