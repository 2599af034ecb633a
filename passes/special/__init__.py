"""Special functions, as PyTorch defines them: gamma, error, Bessel and Airy functions, orthogonal polynomials."""
