"""What a file that is no ONNX model looks like, in words."""

from __future__ import annotations

_SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (
        0,
        b"PK\x03\x04",
        "a zip archive, perhaps a PyTorch checkpoint or a torch.export program (export it to ONNX)",
    ),
    (0, b"\x89PNG", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF8", "a GIF image"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x1f\x8b", "gzip-compressed (decompress it first)"),
    (0, b"BZh", "bzip2-compressed (decompress it first)"),
    (0, b"\xfd7zXZ", "xz-compressed (decompress it first)"),
    (0, b"\x28\xb5\x2f\xfd", "zstd-compressed (decompress it first)"),
    (0, b"7z\xbc\xaf", "a 7z archive"),
    (257, b"ustar", "a tar archive (unpack it first)"),
    (0, b"\x89HDF", "an HDF5 file, perhaps a Keras model (convert it with tf2onnx)"),
    (4, b"TFL3", "a TensorFlow Lite model (convert it with tf2onnx)"),
    (4, b"ORTM", "a model in onnxruntime's own .ort format (use the .onnx that it was made from)"),
    (0, b"GGUF", "a GGUF file"),
    (0, b"ftrt", "a TensorRT engine (use the .onnx that it was built from)"),
    (0, b"ptrt", "a TensorRT engine (use the .onnx that it was built from)"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x7fELF", "a program or shared library"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself (run `git lfs pull`)"),
    (0, b"7767517", "an ncnn model (use the .onnx that it was made from)"),
)


def describe(head: bytes) -> str | None:
    """``"a PNG image"``, or None for bytes that say nothing.  ``head`` is the first KiB or so."""
    for offset, signature, text in _SIGNATURES:
        if head[offset : offset + len(signature)] == signature:
            return text
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "a Python pickle, perhaps an old PyTorch checkpoint (export it to ONNX)"
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 32:
        return "a safetensors file (export the model to ONNX)"
    if not head.strip(b"\0"):
        return "nothing but zeros" if head else None
    return _text(head)


def _text(head: bytes) -> str | None:
    try:
        text = head.decode("utf-8", "strict" if len(head) < 1000 else "ignore")
    except UnicodeDecodeError:
        return None
    if not all(c.isprintable() or c in "\r\n\t\f" for c in text):
        return None
    start = text.lstrip("\ufeff \r\n\t")
    if start[:1] in ("{", "["):
        return "JSON text"
    if start.startswith(("<?xml", "<net")):
        return "XML, perhaps an OpenVINO model (use the .onnx that it was made from)"
    if start.lower().startswith(("<!doctype", "<html")):
        return "a web page, perhaps of a download that needs a login"
    if start.startswith(("ir_version", "<\n", "<ir_version")) or "ir_version:" in start:
        return "an ONNX model in text form (convert it with onnx.parser or onnx.load(format='textproto'))"
    return "text"
