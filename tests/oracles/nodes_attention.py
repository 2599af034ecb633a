"""ONNX's node tests for the passes of passes/attention/; see the package's docstring."""

from collections.abc import Mapping
from typing import Any

from tests.oracles.run import Result
from tests.oracles.table import NodeRow, Unrun

_ATTENTION = {"is_causal", "scale", "q_num_heads", "kv_num_heads"}


def _attention(attributes: Mapping[str, Any], inputs: list[Any]) -> Mapping[str, Any]:
    """ONNX's Attention where it is that of PyTorch: (B, heads, L, E), query, key, value and mask."""
    if len(inputs) > 4 or inputs[0].ndim != 4 or set(attributes) - _ATTENTION:
        raise NotImplementedError("PyTorch's operator has no such parameter")
    found = dict(zip(("query", "key", "value", "attn_mask"), inputs, strict=False))
    if "scale" in attributes:
        found["scale"] = attributes["scale"]
    return {**found, "is_causal": bool(attributes.get("is_causal")), "enable_gqa": True}


ROWS: tuple[NodeRow, ...] = (
    NodeRow(
        "rotary_embedding",
        "RotaryEmbedding",
        lambda attributes, inputs: {
            **dict(zip(("x", "cos_cache", "sin_cache", "position_ids"), inputs, strict=False)),
            **{k: bool(v) if k == "interleaved" else v for k, v in attributes.items()},
        },
    ),
    NodeRow("scaled_dot_product_attention", "Attention", _attention),
)

#: Tests of what ONNX's operator has beyond PyTorch's, by what that is.
_BEYOND: Mapping[str, tuple[str, ...]] = {
    "further results": (
        "23_fullymasked_qk_matmul_output_mode3_zero",
        "24_fullymasked_qk_matmul_output_mode3_zero",
        "24_qk_matmul_output_mode3_softmax_precision",
        "4d_with_qk_matmul",
        "4d_with_qk_matmul_bias",
        "4d_with_qk_matmul_softcap",
        "4d_with_qk_matmul_softmax",
        "local_window_gqa_rank4_mask",
    ),
    "heads are folded into the features": (
        "3d",
        "3d_attn_mask",
        "3d_causal",
        "3d_causal_bf16",
        "3d_diff_heads_sizes",
        "3d_diff_heads_sizes_attn_mask",
        "3d_diff_heads_sizes_causal",
        "3d_diff_heads_sizes_scaled",
        "3d_diff_heads_sizes_softcap",
        "3d_diff_heads_with_past_and_present",
        "3d_gqa",
        "3d_gqa_attn_mask",
        "3d_gqa_causal",
        "3d_gqa_scaled",
        "3d_gqa_softcap",
        "3d_gqa_with_past_and_present",
        "3d_local_window",
        "3d_scaled",
        "3d_softcap",
        "3d_transpose_verification",
        "3d_with_past_and_present",
        "3d_with_past_and_present_qk_matmul",
        "3d_with_past_and_present_qk_matmul_bias",
        "3d_with_past_and_present_qk_matmul_softcap",
        "3d_with_past_and_present_qk_matmul_softmax",
    ),
    "past keys and values, or lengths by batch": (
        "4d_causal_nonpad_attn_mask_composition",
        "4d_causal_nonpad_batch_prefill",
        "4d_causal_nonpad_continued_prefill",
        "4d_causal_nonpad_negative_offset_structural_empty",
        "4d_causal_padded_kv_bf16",
        "4d_causal_with_past_and_present",
        "4d_diff_heads_mask4d_padded_kv",
        "4d_diff_heads_with_past_and_present",
        "4d_diff_heads_with_past_and_present_mask3d",
        "4d_diff_heads_with_past_and_present_mask4d",
        "4d_gqa_causal_nonpad_decode",
        "4d_gqa_causal_nonpad_decode_fp16",
        "4d_gqa_with_past_and_present",
        "4d_gqa_with_past_and_present_fp16",
        "4d_padded_kv_bf16",
        "4d_with_past_and_present",
        "4d_with_past_and_present_qk_matmul",
        "4d_with_past_and_present_qk_matmul_bias",
        "4d_with_past_and_present_qk_matmul_bias_3d_mask",
        "4d_with_past_and_present_qk_matmul_bias_3d_mask_causal",
        "4d_with_past_and_present_qk_matmul_bias_4d_mask",
        "4d_with_past_and_present_qk_matmul_bias_4d_mask_causal",
        "local_window_ext_cache_float16_mask",
        "local_window_ext_cache_rank2_mask",
        "local_window_ext_cache_rank3_head_mask",
        "local_window_ext_cache_rank4_batch_mask",
        "local_window_with_past",
    ),
    "softcap": (
        "4d_diff_heads_sizes_softcap",
        "4d_gqa_softcap",
        "4d_softcap",
        "4d_softcap_neginf_mask",
        "4d_softcap_neginf_mask_poison",
    ),
    "a window": (
        "bidirectional_window",
        "local_window",
        "local_window_default",
        "local_window_rank1_boolean_mask",
    ),
}

UNRUN: tuple[Unrun, ...] = (
    *(
        Unrun("scaled_dot_product_attention", f"test_attention_{name}", Result.BROKEN, reason)
        for reason, names in _BEYOND.items()
        for name in names
    ),
)
