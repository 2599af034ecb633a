"""The passes that come with the rewriter: one file per operator, or per family that shares one idea.

The engine never imports this package: it finds passes through the entry points of the group ``rewriter.passes``, as it
does those of any other distribution.
"""
