"""The public names, in one list: type checkers read it, and ``rewriter`` loads each name from here when it is used."""

from . import errors as errors
from . import torch as torch
from .declare import Explanation as Explanation
from .declare import Requirements as Requirements
from .declare import explain as explain
from .declare import requirements as requirements
from .derive.function import from_torch as from_torch
from .errors import RewriteError as RewriteError
from .inspection import Inspection as Inspection
from .inspection import inspect as inspect
from .interop import from_function as from_function
from .interop import from_onnxscript as from_onnxscript
from .interop import from_surgeon as from_surgeon
from .interop import from_symbolic as from_symbolic
from .pipeline import rewrite as rewrite
from .placeholder import Array as Array
from .placeholder import Builder as Builder
from .placeholder import Case as Case
from .placeholder import Floats as Floats
from .placeholder import Ints as Ints
from .placeholder import Placeholder as Placeholder
from .placeholder import TensorSpec as TensorSpec
from .placeholder import Value as Value
from .placeholder import b8 as b8
from .placeholder import decomposition as decomposition
from .placeholder import f32 as f32
from .placeholder import i64 as i64
from .report import Report as Report
from .types import TensorType as TensorType

__version__: str
