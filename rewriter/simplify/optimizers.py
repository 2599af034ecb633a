"""Which of onnxsim's rewrites may run.

The table is a list of what *may* run, because onnxsim hides part of its passes until its first call and gains new
ones with every release; whatever is named in neither table is refused.  A refused pass carries the reason.
"""

from __future__ import annotations

from typing import Final

#: Passes tried on random graphs, with every result equal to the original's.
ALLOWED: Final = frozenset(
    {
        "nop",
        "eliminate_common_subexpression",
        "eliminate_consecutive_idempotent_ops",
        "eliminate_deadend",
        "eliminate_duplicate_initializer",
        "eliminate_identity",
        "eliminate_if_with_const_cond",
        "eliminate_nop_cast",
        "eliminate_nop_concat",
        "eliminate_nop_dropout",
        "eliminate_nop_expand",
        "eliminate_nop_flatten",
        "eliminate_nop_pad",
        "eliminate_nop_reshape",
        "eliminate_nop_split",
        "eliminate_nop_transpose",
        "eliminate_nop_with_unit",
        "eliminate_shape_op",
        "eliminate_slice_after_shape",
        "eliminate_unused_initializer",
        "fuse_add_bias_into_conv",
        "fuse_concat_into_reshape",
        "fuse_consecutive_concats",
        "fuse_consecutive_reshapes",
        "fuse_consecutive_slices",
        "fuse_consecutive_squeeze_unsqueeze",
        "fuse_consecutive_squeezes",
        "fuse_consecutive_transposes",
        "fuse_consecutive_unsqueezes",
        "fuse_matmul_add_bias_into_gemm",
        "fuse_pad_into_conv",
        "fuse_transpose_into_gemm",
    }
)

#: Passes that must not run, and why.
REFUSED: Final = {
    "eliminate_loop_with_const_trip_count": "untried",
    "eliminate_nop_monotone_argmax": "Exp saturates: the argmax of the result is another position",
    "eliminate_nop_reduce": "ignores noop_with_empty_axes",
    "eliminate_nop_softmax": "untried; a Softmax over one element turns NaN and Inf into 1",
    "eliminate_optional_get_element": "renames graph inputs",
    "eliminate_optional_has_element": "renames graph inputs",
    "eliminate_reshape_around_elementwise": "only of use after the batched Gemm fusion, which is refused",
    "eliminate_reshape_family_on_constant": "writes a second copy of a constant",
    "eliminate_sequence_at_construct": "untried",
    "eliminate_sequence_length_construct": "untried",
    "eliminate_shape_gather": "aborts the process where an index cannot be resolved",
    "extract_constant_to_initializer": "changes the representation for nothing",
    "fuse_attention": "introduces com.microsoft::Attention",
    "fuse_bn_into_conv": "done here, in float64 and without loading the other weights (batchnorm.py)",
    "fuse_consecutive_log_softmax": "changes the type of nodes into one that the model did not have",
    "fuse_consecutive_mul": "reassociates products: other roundings and overflows",
    "fuse_consecutive_reduce": "ignores noop_with_empty_axes and keepdims",
    "fuse_consecutive_reduce_unsqueeze": "ignores noop_with_empty_axes",
    "fuse_gelu": "introduces Gelu, which few runtimes have",
    "fuse_gqa": "introduces com.microsoft::GroupQueryAttention",
    "fuse_layer_norm": "introduces LayerNormalization, which few runtimes have",
    "fuse_lp_normalization": "introduces LpNormalization; epsilon is lost",
    "fuse_matmul_add_bias_into_gemm_batched": "grows a linear layer from 5 to 13 nodes; fails on empty dims",
    "fuse_mul_into_conv": "untried",
    "fuse_pad_into_pool": "wrong where a pad is not smaller than the kernel, and with ceil_mode",
    "fuse_preceding_mul_into_conv": "untried",
    "fuse_qkv": "copies the projections' weights",
    "fuse_reshape_family": "untried",
    "fuse_rms_norm": "introduces RMSNormalization, which few runtimes have",
    "fuse_rope": "introduces com.microsoft::RotaryEmbedding",
    "fuse_split_gather_concat": "untried",
    "rewrite_arg_reduce_select_last_index": "changes which of several equal maxima is taken",
    "rewrite_bool_where": "introduces operators that were not there",
    "rewrite_where": "introduces operators that were not there",
}

#: Operators of the default domain that an allowed pass may write where the model had none.
MAY_APPEAR: Final = frozenset(
    {"Concat", "Constant", "Gemm", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
