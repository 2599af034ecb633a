"""A report as one page for people, made from the data that the JSON report has."""

from rewriter.page.render import render

__all__ = ["render"]
