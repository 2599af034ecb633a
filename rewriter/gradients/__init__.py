"""Whether the gradient that training used is the gradient of the graph that ships.

Three things are held against one another in float64: the gradient that training uses (autograd through a pass's
reference, or an operator's own ``backward``), autograd through the delivered nodes as PyTorch interprets them, and
numeric differences of what those nodes compute.

Its modules import torch, but for those that hold what was found.
"""
