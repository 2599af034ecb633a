"""What each operator means, one module per group."""

from rewriter.interpret.operators import (
    activation,
    control,
    convolution,
    detection,
    elementwise,
    indexing,
    linear,
    movement,
    normalisation,
    pooling,
    quantisation,
    random,
    recurrent,
    reduction,
    resize,
    sampling,
    scatter,
    sequences,
    shape,
    signal,
    sorting,
)

GROUPS = tuple(
    module.KERNELS
    for module in (
        activation,
        control,
        convolution,
        detection,
        elementwise,
        indexing,
        linear,
        movement,
        normalisation,
        pooling,
        quantisation,
        random,
        recurrent,
        reduction,
        resize,
        sampling,
        scatter,
        sequences,
        shape,
        signal,
        sorting,
    )
)
