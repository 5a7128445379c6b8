"""Which of torch's operations are what: moved elements, sums, products, approximated functions.

Names are those of `torch.ops.aten`, without overloads and without the sign that an operation writes in place.
"""

from __future__ import annotations


def _named(names: str) -> frozenset[str]:
    return frozenset(names.split())


# Views aside, those whose results are elements of their arguments, or constants, in other places.
MOVEMENTS = _named(
    """
    clone contiguous cat stack index index_select gather repeat repeat_interleave flip roll masked_fill
    where copy fill zero scatter index_fill index_copy constant_pad_nd select_scatter slice_scatter
    diagonal_scatter slice_backward select_backward tril triu embedding masked_select masked_scatter
    _to_copy lift_fresh_copy expand_copy view_copy _unsafe_view _reshape_alias unfold_backward neg
    """
)
# Those that cards compute to a unit or two of fp32.
APPROXIMATED = _named(
    """
    exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh sigmoid erf erfc
    sqrt rsqrt div reciprocal pow softplus mish hardswish elu logaddexp logaddexp2 logit lgamma
    log_sigmoid_forward logcumsumexp special_expit
    """
)
# Those whose argument is multiplied by a constant before a card's instruction takes it.
SCALED_ARGUMENT = _named(
    """
    exp expm1 log log1p log2 log10 sin cos tan tanh sigmoid erf erfc sinh cosh softplus
    log_sigmoid_forward
    """
)
# Those whose small results kernels obtain as a difference of numbers near 1, or as the logarithm of one.
FROM_ONE = _named("tanh erf expm1 log1p log log2 log10 softplus log_sigmoid_forward")
PRODUCTS = _named("mm bmm addmm baddbmm addbmm mv addmv dot vdot convolution linear")
SUMS = _named(
    """
    sum nansum mean cumsum linalg_vector_norm norm index_add scatter_add scatter_reduce index_put
    _index_put_impl embedding_dense_backward index_reduce avg_pool1d avg_pool2d avg_pool3d
    _adaptive_avg_pool2d _adaptive_avg_pool3d convolution_backward
    """
)
# Sums into an output of the declared type: every addition is rounded to it.
STORED_SUMS = _named("index_add scatter_add scatter_reduce index_put _index_put_impl")
# Those that torch writes in simpler ones.
DECOMPOSED = _named(
    """
    _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data native_layer_norm
    native_layer_norm_backward native_group_norm native_group_norm_backward gelu gelu_backward silu
    silu_backward sigmoid_backward tanh_backward softplus_backward log_sigmoid_backward mse_loss
    mse_loss_backward logsumexp var var_mean std std_mean _fused_rms_norm _fused_rms_norm_backward
    native_batch_norm native_batch_norm_backward huber_loss smooth_l1_loss binary_cross_entropy
    addcdiv addcmul lerp
    """
)
