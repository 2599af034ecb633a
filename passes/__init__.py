"""The passes that come with the rewriter: one file per operator, or per family that shares one idea.

A new operator is one new file here.  The rewriter looks through this package and takes every public subclass of
:class:`rewriter.Placeholder`; modules whose names begin with an underscore hold what several passes share.  The tests
look through it as well, so a new pass is tested by being here.
"""
