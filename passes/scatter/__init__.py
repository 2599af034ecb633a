"""Values written into a tensor: onto a diagonal, or where strides say."""
