"""What a file needs and what is known of it: :func:`requirements` asks whether it runs here, :func:`explain` what its
manifest says.

A model is data: neither loads a library that was not named by whoever calls.
"""

from rewriter.declare.explanation import Explanation, explain
from rewriter.declare.needs import Requirements, requirements

__all__ = ["Explanation", "Requirements", "explain", "requirements"]
