"""From a Triton model back to a Python model: a kernel in explicit calls, or in Triton's Python."""

from ziggurat.transforms.lift import calls as calls
from ziggurat.transforms.lift.lift import TEXT_NAMES as TEXT_NAMES
from ziggurat.transforms.lift.lift import Lifted as Lifted
from ziggurat.transforms.lift.lift import lift as lift
from ziggurat.transforms.lift.lift import words_of as words_of
