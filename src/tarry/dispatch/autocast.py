"""`torch.autocast("tarry", dtype=…)`: PyTorch's cast lists for a device.

Matrix products, convolutions and attention run in the lower precision, operations
that lose accuracy there in float32, and operations on mixed operands in the widest
dtype among them. Everything else runs in the dtype of its operands. The lists are
those of PyTorch's `aten/src/ATen/autocast_mode.h`.
"""

from collections.abc import Callable
from typing import Any

import torch

from tarry.dispatch import seam

LOWER = [
    "conv1d",
    "conv1d.padding",
    "conv2d",
    "conv2d.padding",
    "conv3d",
    "conv3d.padding",
    "convolution",
    "conv_transpose1d",
    "conv_transpose2d.input",
    "conv_transpose3d.input",
    "conv_tbc",
    "addmm",
    "addmv",
    "addr",
    "matmul",
    "einsum",
    "mm",
    "mv",
    "linalg_vecdot",
    "linear",
    "addbmm",
    "baddbmm",
    "bmm",
    "chain_matmul",
    "linalg_multi_dot",
    "prelu",
    "scaled_dot_product_attention",
]
FLOAT32 = [
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "softplus",
    "layer_norm",
    "group_norm",
    "norm.Scalar",
    "norm.ScalarOpt_dim",
    "frobenius_norm.dim",
    "nuclear_norm",
    "nuclear_norm.dim",
    "cosine_similarity",
    "poisson_nll_loss",
    "cosine_embedding_loss",
    "nll_loss",
    "nll_loss2d",
    "hinge_embedding_loss",
    "kl_div",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "mse_loss",
    "margin_ranking_loss",
    "multilabel_margin_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "multi_margin_loss",
    "binary_cross_entropy_with_logits",
    "dist",
    "pdist",
    "cdist",
    "renorm",
    "logsumexp",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "softmax.int",
    "log_softmax.int",
    "cumprod",
    "cumsum",
    "prod",
    "prod.dim_int",
    "sum",
    "sum.dim_IntList",
]
WIDEST = [
    "addcdiv",
    "addcmul",
    "atan2",
    "bilinear",
    "cross",
    "dot",
    "grid_sampler",
    "index_put",
    "tensordot",
    "scatter_add",
]
WIDEST_OF_LIST = ("cat", "stack")

_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        eligible = value.dtype in _FLOATS and value.device.type == seam.DEVICE
        return value.to(dtype) if eligible and value.dtype is not dtype else value
    if isinstance(value, list | tuple):
        return type(value)(_cast(v, dtype) for v in value)
    return value


def _widest(values: Any, found: torch.dtype) -> torch.dtype:
    for v in values:
        if isinstance(v, list | tuple):
            found = _widest(v, found)
        elif isinstance(v, torch.Tensor) and v.dtype is torch.float32:
            found = torch.float32
    return found


def _kernel(name: str, choose: Callable[[tuple], torch.dtype]) -> Callable[..., Any]:
    op = seam.op_overload(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with seam.without_autocast():
            dtype = choose((*args, *kwargs.values()))
            args = tuple([_cast(a, dtype) for a in args])
            return op(*args, **{k: _cast(v, dtype) for k, v in kwargs.items()})

    return kernel


def _lower(values: tuple) -> torch.dtype:
    return torch.get_autocast_dtype(seam.DEVICE)


def _float32(values: tuple) -> torch.dtype:
    return torch.float32


def _widest_of(values: tuple) -> torch.dtype:
    return _widest(values, _lower(values))


def kernels() -> dict[str, Callable[..., Any]]:
    """Autocast kernels by overload name."""
    lists = (
        (LOWER, _lower),
        (FLOAT32, _float32),
        ((*WIDEST, *WIDEST_OF_LIST), _widest_of),
    )
    return {name: _kernel(name, choose) for names, choose in lists for name in names}
