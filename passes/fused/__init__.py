"""Operators that libraries run as one: a convolution or a product with what follows it, and scans."""
