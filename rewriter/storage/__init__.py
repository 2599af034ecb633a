"""Model files: read without their weights, written as a stream, whole or not at all."""

from rewriter.storage.external import RawLocation
from rewriter.storage.model_file import ModelFile
from rewriter.storage.save import SaveResult

__all__ = ["ModelFile", "RawLocation", "SaveResult"]
