"""Operators through the real dispatcher: values, dtypes, shapes, strides, gradients,
layouts of the inputs, and syncs between; no operator here may run on the CPU."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import tarry
from harness import (
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    VIEWS,
    check,
    compiles,
    fallbacks,
    make,
    same,
    sliced,
    stepped,
    transposed,
)

X, Y = make(3, 4), make(3, 4, seed=1)
P = make(3, 4).abs() + 0.5
ROW, COLUMN, ZERO_D = make(4, seed=2), make(3, 1, seed=3), make(seed=4)
CUBE = make(2, 3, 4, seed=5)
I, J = make(3, 4, dtype=torch.int64), make(3, 4, dtype=torch.int64, seed=1)
B, C = make(3, 4, dtype=torch.bool), make(3, 4, dtype=torch.bool, seed=1)
AT = torch.tensor([2, 0, 1])
INF, NAN = float("inf"), float("nan")
EDGE = torch.tensor([0.0, -0.0, 1.5, -1.5, 2.5, INF, -INF, NAN])

ARITHMETIC = {
    "add": (lambda x, y: x + y, X, Y),
    "add_row": (lambda x, y: x + y, X, ROW),
    "add_column": (lambda x, y: x + y, COLUMN, ROW),
    "add_0d": (lambda x, y: x + y, X, ZERO_D),
    "add_number": (lambda x: x + 2.5, X),
    "radd": (lambda x: 1 + x, X),
    "add_alpha": (lambda x, y: torch.add(x, y, alpha=0.3), X, Y),
    "add_alpha_int": (lambda x, y: torch.add(x, y, alpha=3), I, J),
    "sub": (lambda x, y: x - y, X, Y),
    "rsub": (lambda x: 2 - x, X),
    "sub_alpha": (lambda x, y: torch.sub(x, y, alpha=2), X, Y),
    "mul": (lambda x, y: x * y, X, Y),
    "mul_same": (lambda x: x * x, X),
    "mul_numbers": (lambda x: x * 0 + x * 1 - x * -1, X),
    "div": (lambda x, y: x / y, X, P),
    "div_int": (lambda x, y: x / (y * y + 1), I, J),
    "rdiv": (lambda x: 1 / x, P),
    "div_floor": (lambda x, y: torch.div(x, y, rounding_mode="floor"), X, P),
    "div_trunc": (lambda x, y: torch.div(x, y, rounding_mode="trunc"), X, P),
    "floordiv_int": (lambda x, y: x // (y * y + 1), I, J),
    "floordiv_negative": (lambda x: x // -2, I),
    "remainder": (lambda x, y: x % y, X, P),
    "remainder_int": (lambda x: x % -3, I),
    "fmod": (lambda x: torch.fmod(x, 0.7), X),
    "pow_square": (lambda x: x**2, X),
    "pow_half": (lambda x: x**0.5, P),
    "pow_negative": (lambda x: x**-1.0, P),
    "pow_tensor": (lambda x, y: x**y, P, X),
    "pow_base": (lambda x: 2**x, X),
    "pow_int": (lambda x: x**3, I),
    "neg": (lambda x: -x, X),
    "abs": (lambda x: x.abs(), X),
    "sign": (lambda x: x.sign(), X),
    "reciprocal": (lambda x: x.reciprocal(), P),
    "sqrt": (lambda x: x.sqrt(), P),
    "rsqrt": (lambda x: x.rsqrt(), P),
    "exp_log": (lambda x: (x.exp() + 1).log(), X),
    "expm1_log1p": (lambda x: x.expm1().log1p(), P),
    "trigonometry": (lambda x: x.sin() + x.cos() * x.tan(), X),
    "hyperbolic": (lambda x: x.sinh() - x.cosh() + x.tanh(), X),
    "arcs": (lambda x: (x / 9).asin() + (x / 9).acos() + x.atan(), X),
    "atan2": (torch.atan2, X, P),
    "sigmoid": (torch.sigmoid, X),
    "erf": (torch.erf, X),
    "round_floor_ceil_trunc": (
        lambda x: (x.round(), x.floor(), x.ceil(), x.trunc(), x.frac()),
        X,
    ),
    "round_decimals": (lambda x: torch.round(x, decimals=2), X),
    "maximum_minimum": (lambda x, y: torch.maximum(x, y) - torch.minimum(x, y), X, Y),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.25), X, Y),
    "lerp_tensor": (torch.lerp, X, Y, P),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=0.5), X, Y, P),
    "addcdiv": (lambda x, y, z: torch.addcdiv(x, y, z, value=-2), X, Y, P),
    "hypot": (torch.hypot, X, Y),
    "logaddexp": (torch.logaddexp, X, Y),
    "xlogy": (torch.xlogy, P, P),
    "nan_to_num": (lambda x: torch.nan_to_num(x, nan=3.0, posinf=1.0), EDGE),
    "edge_values": (lambda x: (x * 1, x + 0, x / 1, 1 / x, x.sqrt(), x.exp()), EDGE),
    "bitwise": (lambda x, y: (x & y, x | y, x ^ y, ~x), I, J),
    "bitwise_bool": (lambda x, y: (x & y, x | y, x ^ y, ~x), B, C),
    "shifts": (lambda x: (x << 2, x >> 1), I),
    "logical": (
        lambda x, y: (torch.logical_and(x, y), torch.logical_not(x), x.logical_xor(y)),
        X,
        I,
    ),
}

COMPARISONS = {
    "eq": (lambda x, y: (x == y, x != y), I, J),
    "order": (lambda x, y: (x < y, x <= y, x > y, x >= y), X, Y),
    "order_number": (lambda x: (x < 0, x <= 0.0, x > True, x >= 1), I),
    "nan": (lambda x: (x == x, x != x, x < 1, x > 1), EDGE),
    "isnan": (lambda x: (x.isnan(), x.isinf(), x.isfinite(), torch.isposinf(x)), EDGE),
    "isclose": (lambda x, y: torch.isclose(x, y, rtol=0.5), X, Y),
    "eq_mixed": (lambda x, y: (x == y, x < y), X, I),
    "signbit": (torch.signbit, EDGE),
    "isin": (torch.isin, I, AT),
}

REDUCTIONS = {
    "sum": (lambda x: x.sum(), X),
    "sum_dim": (lambda x: x.sum(1), X),
    "sum_dims": (lambda x: x.sum((0, -1), keepdim=True), CUBE),
    "sum_int": (lambda x: x.to(torch.int32).sum(), I),
    "sum_bool": (lambda x: x.sum(), B),
    "sum_dtype": (lambda x: x.sum(0, dtype=torch.float64), X),
    "sum_empty": (lambda x: (x.sum(), x.sum(0), x.sum(1)), torch.zeros(0, 3)),
    "mean": (lambda x: (x.mean(), x.mean(0), x.mean((0, 1), keepdim=True)), X),
    "prod": (lambda x: (x.prod(), x.prod(1)), X),
    "max": (lambda x: x.max(), X),
    "max_dim": (lambda x: tuple(x.max(1)), X),
    "min_dim": (lambda x: tuple(x.min(0, keepdim=True)), X),
    "amax_amin": (lambda x: (x.amax((0, 1)), x.amin(1)), X),
    "argmax": (lambda x: (x.argmax(), x.argmax(1), x.argmin(0)), X),
    "aminmax": (lambda x: tuple(torch.aminmax(x, dim=1)), X),
    "max_nan": (lambda x: (x.max(), x.amax(), x.argmax()), EDGE),
    "all_any": (lambda x: (x.all(), x.any(), x.all(1), x.any(0)), B),
    "all_float": (lambda x: (x.all(), x.any(1)), X),
    "var": (lambda x: (x.var(), x.var(1), x.std(0, correction=0)), X),
    "var_mean": (lambda x: tuple(torch.var_mean(x, 1)), X),
    "norm": (lambda x: (x.norm(), x.norm(dim=1), x.norm(p=1)), X),
    "vector_norm": (lambda x: torch.linalg.vector_norm(x, float("inf"), dim=0), X),
    "logsumexp": (lambda x: x.logsumexp(1), X),
    "softmax": (lambda x: (x.softmax(-1), x.log_softmax(0)), X),
    "median": (lambda x: tuple(x.median(1)), X),
    "count_nonzero": (lambda x: (x.count_nonzero(), x.count_nonzero(0)), I),
    "cumsum": (lambda x: (x.cumsum(0), x.cumsum(-1)), X),
    "cumsum_int": (lambda x: (x.cumsum(1), x.to(torch.uint8).cumsum(0)), I),
    "cumprod": (lambda x: x.cumprod(1), P),
    "cummax": (lambda x: tuple(x.cummax(1)), X),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), X),
    "diff": (lambda x: x.diff(dim=1), X),
}

INDEXING = {
    "int": (lambda x: x[1], X),
    "int_negative": (lambda x: x[-1, -2], X),
    "slice": (lambda x: x[1:, :2], X),
    "slice_step": (lambda x: x[::2, 1::2], X),
    "slice_empty": (lambda x: x[2:1], X),
    "slice_beyond": (lambda x: x[-100:100], X),
    "none": (lambda x: x[:, None, 1:3, None], X),
    "ellipsis": (lambda x: x[..., 1], CUBE),
    "mixed": (lambda x: x[1, ..., None, ::2], CUBE),
    "tensor": (lambda x, i: x[i], X, AT),
    "tensor_dim1": (lambda x, i: x[:, i], X, AT),
    "tensor_negative": (lambda x, i: x[i - 3], X, AT),
    "two_tensors": (lambda x, i, j: x[i, j], X, AT, AT),
    "tensors_apart": (lambda x, i, j: x[i % 2, :, j], CUBE, AT, AT),
    "tensors_broadcast": (lambda x, i: x[i[:, None], i], X, AT),
    "list": (lambda x: x[[0, 2, 2]], X),
    "index_0d": (lambda x, i: x[i[0]], X, AT),
    "mask": (lambda x, m: x[m], X, B),
    "mask_row": (lambda x, m: x[m[:, 0]], X, B),
    "mask_and_int": (lambda x, m: x[m[:, 0], 1], X, B),
    "select_narrow": (lambda x: (x.select(1, 2), x.narrow(0, 1, 2)), X),
    "index_select": (lambda x, i: x.index_select(1, i), X, AT),
    "gather": (lambda x, i: x.gather(1, i % 4), X, I),
    "take": (lambda x, i: x.take(i), X, AT),
    "take_along_dim": (lambda x, i: torch.take_along_dim(x, i % 4, 1), X, I),
    "diagonal": (lambda x: (x.diagonal(), x.diagonal(1)), X),
    "unfold": (lambda x: x.unfold(1, 2, 1), X),
    "nonzero": (lambda x: (x.nonzero(), *torch.where(x)), B),
    "masked_select": (lambda x, m: x.masked_select(m), X, B),
}


def written(write, *, clone=True):
    """`write(x, …)` on a copy of x, and the copy."""

    def fn(x, *rest):
        x = x.clone()
        write(x, *rest)
        return x

    return fn


def put(*at):
    def write(x, value, *rest):
        x[at if len(at) > 1 else at[0]] = value

    return written(write)


WRITES = {
    "put_int": (put(1), X, ROW),
    "put_slice": (put(slice(1, None), slice(0, 2)), X, make(2, 2, seed=7)),
    "put_step": (put(slice(None), slice(None, None, 2)), X, make(3, 2, seed=7)),
    "put_number": (written(lambda x: x.__setitem__((slice(None), 1), 7.5)), X),
    "put_number_int": (written(lambda x: x.__setitem__((0, 0), 3)), X),
    "put_broadcast": (put(slice(0, 2)), X, ROW),
    "put_ellipsis": (put(..., 1), CUBE, make(2, 3, seed=7)),
    "put_none": (put(None, 1), X, make(1, 4, seed=7)),
    "put_0d": (put(0, 1), X, ZERO_D),
    "put_tensor": (written(lambda x, i, v: x.__setitem__(i, v)), X, AT, Y),
    "put_tensors": (
        written(lambda x, i, v: x.__setitem__((i, i), v)),
        X,
        AT,
        make(3, seed=7),
    ),
    "put_tensor_number": (written(lambda x, i: x.__setitem__(i[:2], 9.0)), X, AT),
    "put_mask_number": (written(lambda x, m: x.__setitem__(m, 0.5)), X, B),
    "put_mask_row": (written(lambda x, m: x.__setitem__(m[:, 0], 0.5)), X, B),
    "put_mask_values": (
        written(lambda x, m, v: x.__setitem__(m, v.flatten()[: int(m.sum())])),
        X,
        B,
        Y,
    ),
    "put_cast": (written(lambda x, v: x.__setitem__(1, v)), X, torch.arange(4)),
    "index_put_accumulate": (
        written(lambda x, i, v: x.index_put_((i * 0,), v, accumulate=True)),
        X,
        AT,
        Y,
    ),
    "index_add": (lambda x, i, v: x.index_add(0, i, v, alpha=2), X, AT, Y),
    "index_copy": (lambda x, i, v: x.index_copy(0, i, v), X, AT, Y),
    "index_fill": (lambda x, i: x.index_fill(1, i, -1.0), X, AT),
    "scatter": (lambda x, i, v: x.scatter(1, i[:, None], v[:, :1]), X, AT, Y),
    "scatter_number": (lambda x, i: x.scatter(1, i[:, None], 2.0), X, AT),
    "scatter_add": (lambda x, i, v: x.scatter_add(1, i % 4, v), X, I, Y),
    "scatter_reduce": (
        lambda x, i, v: x.scatter_reduce(1, i[:, None], v[:, :1], "amax"),
        X,
        AT,
        Y,
    ),
    "masked_fill": (lambda x, m: x.masked_fill(m, -1e9), X, B),
    "masked_fill_tensor": (lambda x, m, v: x.masked_fill(m, v), X, B, ZERO_D),
    "masked_scatter": (lambda x, m, v: x.masked_scatter(m, v), X, B, Y),
    "select_scatter": (lambda x, v: x.select_scatter(v, 0, 1), X, ROW),
    "slice_scatter": (lambda x, v: x.slice_scatter(v[:2], 0, 1), X, Y),
    "diagonal_write": (written(lambda x: x.diagonal().add_(10)), X),
    "fill_diagonal": (written(lambda x: x.fill_diagonal_(3.0)), X),
    "transposed_write": (written(lambda x: x.t()[1].mul_(2)), X),
    "through_views": (written(lambda x: x.view(2, 6)[1, ::2].sub_(1)), X),
    "narrow_write": (written(lambda x: x.narrow(1, 1, 2).zero_()), X),
    "copy_broadcast": (written(lambda x, v: x.copy_(v)), X, ROW),
    "copy_cast": (written(lambda x, v: x.copy_(v)), X, I),
}

SHAPES = {
    "cat": (lambda x, y: torch.cat([x, y], 1), X, Y),
    "cat_types": (lambda x, y: torch.cat([x, y]), X, I),
    "cat_empty": (lambda x, y: torch.cat([x, y]), torch.zeros(0), ROW),
    "stack": (lambda x, y: torch.stack([x, y], -1), X, Y),
    "split": (lambda x: x.split(3, 1), X),
    "split_sizes": (lambda x: x.split([1, 3], 1), X),
    "chunk": (lambda x: x.chunk(3, 1), X),
    "tensor_split": (lambda x: x.tensor_split(3, 1), X),
    "unbind": (lambda x: x.unbind(1), X),
    "hstack_vstack": (lambda x, y: (torch.hstack([x, y]), torch.vstack([x, y])), X, Y),
    "view_reshape": (lambda x: (x.reshape(4, 3), x.flatten(), x.reshape(-1, 2)), X),
    "permute": (lambda x: x.permute(2, 0, 1), CUBE),
    "movedim": (lambda x: (x.movedim(0, 2), x.mT, x.swapaxes(0, 1)), CUBE),
    "squeeze": (lambda x: (x[:, None].squeeze(1), x.unsqueeze(0)), X),
    "expand": (lambda x: (x.expand(3, 4), x.expand(-1, 5)), COLUMN),
    "repeat": (lambda x: x.repeat(2, 1, 2), X),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 1), X),
    "tile": (lambda x: x.tile(2, 2), X),
    "flip_roll": (lambda x: (x.flip(0, 1), x.roll(1, 1), x.rot90()), X),
    "tril_triu": (lambda x: (x.tril(), x.triu(1), x.tril(-1)), X),
    "pad": (lambda x: F.pad(x, (1, 2, 0, 1), value=0.5), X),
    "pad_negative": (lambda x: F.pad(x, (-1, 1)), X),
    "contiguous": (lambda x: (x.t().contiguous(), x.clone()), X),
    "clone_strides": (lambda x: (x.t().clone(), x[:, ::2].clone(), x.t() + 1), X),
    "channels_last": (
        lambda x: x.contiguous(memory_format=torch.channels_last) * 2,
        make(2, 3, 4, 5),
    ),
    "where": (lambda m, x, y: torch.where(m, x, y), B, X, Y),
    "where_number": (lambda m, x: torch.where(m, x, 0.0), B, X),
    "where_types": (lambda m, x, y: torch.where(m, x, y), B, X, I),
    "clamp": (lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=1)), X),
    "clamp_tensor": (lambda x, y: x.clamp(min=y), X, ROW),
    "clamp_int": (lambda x: x.clamp(-1, 2), I),
    "sort": (lambda x: tuple(x.sort(1)), X),
    "sort_descending": (
        lambda x: tuple(x.sort(dim=0, descending=True, stable=True)),
        X,
    ),
    "argsort": (lambda x: x.argsort(1), X),
    "topk": (lambda x: tuple(x.topk(2, 1)), X),
    "topk_smallest": (lambda x: tuple(x.topk(2, 0, largest=False)), X),
    "kthvalue": (lambda x: tuple(x.kthvalue(2, 1)), X),
    "searchsorted": (lambda x, y: torch.searchsorted(x.sort(1)[0], y), X, Y),
    "bincount": (lambda x: x.abs().flatten().bincount(minlength=8), I),
    "meshgrid": (lambda x: torch.meshgrid(x, x[:2], indexing="ij"), ROW),
    "one_hot": (lambda i: F.one_hot(i, 3), AT),
    "block_diag": (lambda x, y: torch.block_diag(x, y), X, Y),
    "diag_embed": (lambda x: (torch.diag_embed(x), x[0].diag()), X),
    "as_strided": (lambda x: x.as_strided((2, 3), (1, 2), 1), X.contiguous()),
}

LINEAR = {
    "mm": (lambda x, y: x @ y.t(), X, Y),
    "mv": (lambda x, y: x @ y, X, ROW),
    "dot": (lambda x, y: x @ y, ROW, ROW + 1),
    "bmm": (lambda x, y: x @ y.mT, CUBE, CUBE + 1),
    "matmul_broadcast": (lambda x, y: y @ x.t(), X, CUBE),
    "addmm": (
        lambda x, y, b: torch.addmm(b, x, y.t(), beta=0.5, alpha=2),
        X,
        Y,
        ROW[:3],
    ),
    "linear": (F.linear, CUBE, X, ROW[:3]),
    "einsum": (lambda x, y: torch.einsum("bij,kj->bki", x, y), CUBE, X),
    "outer": (torch.outer, ROW, ROW + 1),
    "mm_int": (lambda x, y: x @ y.t(), I, J),
    "mm_empty": (lambda x: x.t() @ x, torch.zeros(0, 3)),
    "baddbmm": (lambda c, x: torch.baddbmm(c[:, :, :3], x, x.mT), CUBE, CUBE),
    "cross": (lambda x: torch.linalg.cross(x[:, :3], x[:, 1:]), X),
    "cdist": (torch.cdist, X, Y),
    "cosine_similarity": (F.cosine_similarity, X, Y),
}

F64_0D = torch.tensor(1.5, dtype=torch.float64)

PROMOTION = {
    "int_float": (lambda x, i: (x + i, i * x, i - x), X, I),
    "int_number": (lambda i: (i + 1, i * 2.5, i / 2, i + True), I),
    "bool_number": (lambda b: (b + 1, b * 2.0, b + True), B),
    "bool_int": (lambda b, i: (b + i, i * b), B, I),
    "bool_float": (lambda b, x: b * x, B, X),
    "nan_times_mask": (lambda x: (x * (x > 1), x * (x > 1).float()), EDGE),
    "dim_over_0d": (lambda x, z: (x + z, z * x), X, F64_0D),
    "0d_category": (lambda i, z: i + z, I, torch.tensor(1.5)),
    "0d_0d": (lambda a, b: a + b, torch.tensor(2), F64_0D),
    "half_float": (lambda h, x: h + x, make(3, 4, dtype=torch.float16), X),
    "half_bf16": (
        lambda h, b: h + b, make(4, dtype=torch.float16), make(4, dtype=torch.bfloat16),
    ),
    "half_number": (lambda h: (h * 0.1, h + 1, h / 3), make(3, 4, dtype=torch.float16)),
    "u8_i8": (
        lambda a, b: a + b, make(4, dtype=torch.uint8), make(4, dtype=torch.int8),
    ),
    "float_complex": (lambda x, c: x * c, X, make(3, 4, dtype=torch.complex64)),
    "double_complex": (
        lambda x, c: x + c,
        make(4, dtype=torch.float64),
        make(4, dtype=torch.complex64),
    ),
    "complex_number": (lambda x: x * 2j, X),
    "u8_wraps": (lambda x: (x + 250, x - 10, -x), make(4, dtype=torch.uint8)),
    "i8_overflow": (lambda x: x * 100, make(4, dtype=torch.int8)),
}  # fmt: skip

COMPLEX_OPS = {
    "parts": (lambda x: (x.real, x.imag, x.abs()), make(3, 4, dtype=torch.complex64)),
    "conj": (lambda x: x.conj() * x, make(3, 4, dtype=torch.complex64)),
    "angle": (lambda x: x.angle(), make(3, 4, dtype=torch.complex64)),
    "view_as_real": (torch.view_as_real, make(3, 4, dtype=torch.complex64)),
    "as_complex": (torch.view_as_complex, make(3, 2)),
    "complex": (torch.complex, X, Y),
    "mm_conj": (lambda x: x @ x.mH, make(3, 4, dtype=torch.complex64)),
    "exp": (lambda x: x.exp() / x, make(4, dtype=torch.complex128)),
}

FUNCTIONAL = {
    "relu": (torch.relu, X),
    "gelu": (F.gelu, X),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), X),
    "silu": (F.silu, X),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2), X),
    "elu": (F.elu, X),
    "softplus": (F.softplus, X),
    "hardtanh": (F.hardtanh, X),
    "layer_norm": (lambda x, w: F.layer_norm(x, (4,), w, w), X, ROW),
    "group_norm": (lambda x: F.group_norm(x, 2), make(2, 4, 3)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), X, ROW),
    "mse": (F.mse_loss, X, Y),
    "smooth_l1": (F.smooth_l1_loss, X, Y),
    "cross_entropy": (F.cross_entropy, X, AT),
    "nll_ignore": (
        lambda x, t: F.cross_entropy(x, t, ignore_index=1), X, AT,
    ),
    "bce_logits": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
        X, Y,
    ),
    "kl_div": (
        lambda x, y: F.kl_div(
            x.log_softmax(1), y.softmax(1), reduction="batchmean"
        ),
        X, Y,
    ),
    "embedding": (lambda i, w: F.embedding(i, w), AT, X),
    "normalize": (F.normalize, X),
    "conv2d": (
        lambda x, w: F.conv2d(x, w, padding=1, stride=2),
        make(2, 3, 5, 5), make(4, 3, 3, 3),
    ),
    "conv1d_groups": (
        lambda x, w: F.conv1d(x, w, groups=2),
        make(2, 4, 6), make(4, 2, 3),
    ),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), make(1, 2, 4, 4)),
    "avg_pool2d": (
        lambda x: F.avg_pool2d(x, 3, padding=1), make(1, 2, 5, 5),
    ),
    "adaptive_pool": (
        lambda x: F.adaptive_avg_pool2d(x, 2), make(1, 2, 5, 5),
    ),
    "interpolate": (
        lambda x: F.interpolate(x, scale_factor=2), make(1, 2, 3, 3),
    ),
    "attention": (
        lambda q, k: F.scaled_dot_product_attention(
            q, k, k, is_causal=True
        ),
        make(1, 2, 3, 4), make(1, 2, 3, 4, seed=1),
    ),
}  # fmt: skip

GROUPS = {
    "arithmetic": ARITHMETIC,
    "comparison": COMPARISONS,
    "reduction": REDUCTIONS,
    "indexing": INDEXING,
    "write": WRITES,
    "shape": SHAPES,
    "linear": LINEAR,
    "promotion": PROMOTION,
    "complex": COMPLEX_OPS,
    "functional": FUNCTIONAL,
}
CASES = {f"{g}-{n}": case for g, cases in GROUPS.items() for n, case in cases.items()}


def layouts(name):
    """Two of the four layouts, another pair for the next case."""
    at = list(CASES).index(name)
    return [VIEWS[at % 4], VIEWS[(at + 1 + at // 4 % 2) % 4]]


@pytest.mark.parametrize("name", CASES)
def test_call(name):
    fn, *inputs = CASES[name]
    check(fn, *inputs, views=layouts(name))


FACTORIES = {
    "zeros_ones": lambda d: (torch.zeros(2, 3, device=d), torch.ones((), device=d)),
    "full": lambda d: (
        torch.full((2, 3), 2.5, device=d),
        torch.full((2,), 7, device=d),
    ),
    "full_bool": lambda d: torch.full((2,), True, device=d),
    "full_complex": lambda d: torch.full((2,), 1 + 2j, device=d),
    "arange": lambda d: (torch.arange(5, device=d), torch.arange(1, 9, 3, device=d)),
    "arange_down": lambda d: torch.arange(5, -2, -2, device=d),
    "arange_float": lambda d: torch.arange(0.0, 1.0, 0.1, device=d),
    "arange_dtype": lambda d: torch.arange(4, device=d, dtype=torch.float16),
    "linspace": lambda d: (
        torch.linspace(-1, 1, 7, device=d),
        torch.linspace(3, 3, 1, device=d),
        torch.linspace(0, 5, 0, device=d),
    ),
    "linspace_int": lambda d: torch.linspace(0, 10, 4, device=d, dtype=torch.int64),
    "logspace": lambda d: torch.logspace(0, 2, 5, device=d),
    "eye": lambda d: (torch.eye(3, device=d), torch.eye(2, 4, device=d)),
    "tensor": lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
    "tensor_0d": lambda d: torch.tensor(2.5, device=d),
    "empty": lambda d: torch.empty(0, 4, device=d),
    "likes": lambda d: (
        torch.zeros_like(X.to(d)),
        torch.ones_like(X.t().to(d)),
        torch.full_like(X.to(d), 3, dtype=torch.int32),
    ),
    "new": lambda d: (
        X.to(d).new_zeros(2),
        X.to(d).new_full((2, 2), 7),
        X.to(d).new_tensor([1, 2]),
        X.to(d).new_ones(3, dtype=torch.bool),
    ),
    "tri_indices": lambda d: (
        torch.tril_indices(3, 3, device=d),
        torch.triu_indices(2, 4, device=d),
    ),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_factory(name):
    with fallbacks(0):
        same(FACTORIES[name]("cpu"), FACTORIES[name]("tarry"), name)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype):
    x, y = make(3, 4, dtype=dtype), make(3, 4, dtype=dtype, seed=1)
    z = x.t().contiguous().t()

    def fn(x, y, z):
        order = () if dtype.is_complex else (x < y, x >= y)
        filled = torch.zeros_like(x)
        filled[1] = x[0]
        return (
            x + y, x * y, x + 1, x * True, x.sum(), y.sum(1), x == y, x != y, *order,
            x.clone(), z.clone(), z + y, filled, torch.cat([x, y]), x.to(torch.float32)
            if not dtype.is_complex else x.to(torch.complex64), x.bool(),
        )  # fmt: skip

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Casting complex values")
        check(fn, x, y, z, views=False)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conversions(dtype):
    values = [0.0, 1.0, 2.0, 3.75, 100.0]
    if dtype.is_floating_point or dtype.is_complex:
        values += [-1.5, -100.25]
    x = torch.tensor(values).to(dtype)
    targets = [d for d in DTYPES if d.is_complex or not dtype.is_complex]
    if min(values) < 0:
        targets = [d for d in targets if d is not torch.uint8]
    with fallbacks(0):
        same([x.to(d) for d in targets], [x.to("tarry").to(d) for d in targets])


INPLACE = {
    "add_": lambda x, y: x.add_(y),
    "add_number": lambda x, y: x.add_(1),
    "add_alpha": lambda x, y: x.add_(y, alpha=2),
    "sub_": lambda x, y: x.sub_(y),
    "mul_": lambda x, y: x.mul_(y),
    "mul_self": lambda x, y: x.mul_(x),
    "div_": lambda x, y: x.div_(y),
    "pow_": lambda x, y: x.pow_(2),
    "iadd": lambda x, y: x.__iadd__(y),
    "neg_": lambda x, y: x.neg_(),
    "relu_": lambda x, y: x.relu_(),
    "sigmoid_": lambda x, y: x.sigmoid_(),
    "exp_": lambda x, y: x.exp_(),
    "clamp_": lambda x, y: x.clamp_(-1, 1),
    "zero_": lambda x, y: x.zero_(),
    "fill_": lambda x, y: x.fill_(3),
    "fill_tensor": lambda x, y: x.fill_(y[0, 0]),
    "copy_": lambda x, y: x.copy_(y),
    "lerp_": lambda x, y: x.lerp_(y, 0.3),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=0.1),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 2),
    "tril_": lambda x, y: x.tril_(),
    "cumsum_": lambda x, y: x.cumsum_(1),
    "t_": lambda x, y: x.t_().add_(1),
    "unsqueeze_": lambda x, y: x.unsqueeze_(0).mul_(2),
    "eq_": lambda x, y: x.eq_(y),
    "bitwise": lambda x, y: x.floor_().fmod_(2),
    "index_fill_": lambda x, y: x.index_fill_(0, torch.tensor([1], device=x.device), 4),
    "clip_compound": lambda x, y: x.sub_(y).clip_(min=0).sqrt_(),
}


@pytest.mark.parametrize("name", INPLACE)
def test_inplace(name):
    def fn(x, y):
        alias = x.view(12) if x.is_contiguous() else x.flatten(0, 0)
        result = INPLACE[name](x, y)
        assert result is x
        return x, alias, y

    check(fn, X, P, grad=False, views=[transposed, sliced, stepped])


def both(fn):
    """The message with which `fn` fails on both devices; asserts they are equal."""
    messages = []
    for device in ("cpu", "tarry"):
        with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)) as caught:
            fn(device)
        messages.append(str(caught.value).split("\n")[0])
    assert messages[0] == messages[1]
    return messages[0]


def test_out_same_shape():
    with fallbacks(0):
        want, got = torch.zeros(3, 4), torch.zeros(3, 4).to("tarry")
        torch.add(X, Y, out=want)
        kept = torch.add(X.to("tarry"), Y.to("tarry"), out=got)
        assert kept is got
        same(want, got)


def test_out_into_view():
    with fallbacks(0):
        want, got = torch.zeros(3, 8), torch.zeros(3, 8).to("tarry")
        torch.mul(X, Y, out=want[:, ::2])
        torch.mul(X.to("tarry"), Y.to("tarry"), out=got[:, ::2])
        same(want, got)


def test_out_resizes():
    with fallbacks(0):
        got = torch.empty(0).to("tarry")
        torch.matmul(X.to("tarry"), Y.t().to("tarry"), out=got)
        same(X @ Y.t(), got)
        with pytest.warns(UserWarning, match="An output with one or more elements was"):
            wrong = torch.zeros(2).to("tarry")
            torch.add(X.to("tarry"), Y.to("tarry"), out=wrong)
        same(X + Y, wrong)


def test_out_casts():
    with fallbacks(0):
        got = torch.zeros(3, 4, dtype=torch.float64).to("tarry")
        torch.add(X.to("tarry"), Y.to("tarry"), out=got)
        want = torch.zeros(3, 4, dtype=torch.float64)
        same(torch.add(X, Y, out=want), got)

    def cast(device):
        out = torch.zeros(3, 4, dtype=torch.int64).to(device)
        torch.add(X.to(device), Y.to(device), out=out)

    message = both(cast)
    assert message == "result type Float can't be cast to the desired output type Long"


def test_out_of_several():
    with fallbacks(0):
        values, places = torch.zeros(3).to("tarry"), torch.zeros(3).long().to("tarry")
        torch.max(X.to("tarry"), 1, out=(values, places))
        same(tuple(X.max(1)), (values, places))
        row = torch.zeros(4).to("tarry")
        torch.sum(X.to("tarry"), 0, out=row)
        same(X.sum(0), row)
        joined = torch.zeros(6, 4).to("tarry")
        torch.cat([X.to("tarry"), Y.to("tarry")], out=joined)
        same(torch.cat([X, Y]), joined)
        places = torch.zeros(5, dtype=torch.int64).to("tarry")
        torch.arange(5, out=places)
        same(torch.arange(5), places)


def test_inplace_cast_error():
    message = both(lambda d: I.clone().to(d).add_(X.to(d)))
    assert message == "result type Float can't be cast to the desired output type Long"
    both(lambda d: I.clone().to(d).mul_(2.5))
    both(lambda d: B.clone().to(d).add_(1))
    both(lambda d: I.clone().to(d).div_(2))


def test_inplace_shape_error():
    both(lambda d: ROW.clone().to(d).add_(X.to(d)))
    both(lambda d: X.clone().to(d).copy_(make(5).to(d)))


def test_inplace_cast_allowed():
    check(lambda x, i: x.add_(i), X, I, grad=False)
    check(lambda i, b: i.add_(b).mul_(True), I, B, grad=False)
    check(lambda h, x: h.mul_(x), make(3, 4, dtype=torch.float16), X, grad=False)


def listed(inplace=True):
    """The `_foreach_` calls that optimizers make, by name."""
    calls = {
        "add": lambda a, b: torch._foreach_add(a, b),
        "add_number": lambda a, b: torch._foreach_add(a, 1.5),
        "add_alpha": lambda a, b: torch._foreach_add(a, b, alpha=0.5),
        "add_numbers": lambda a, b: torch._foreach_add(a, [1.0, 2.0]),
        "add_0d": lambda a, b: torch._foreach_add(a, b[0].sum()),
        "sub": lambda a, b: torch._foreach_sub(a, b),
        "mul": lambda a, b: torch._foreach_mul(a, b),
        "mul_number": lambda a, b: torch._foreach_mul(a, -1),
        "mul_0d": lambda a, b: torch._foreach_mul(a, b[0].sum()),
        "div": lambda a, b: torch._foreach_div(a, b),
        "div_numbers": lambda a, b: torch._foreach_div(a, [2.0, 4.0]),
        "neg": lambda a, b: torch._foreach_neg(a),
        "abs_sqrt": lambda a, b: torch._foreach_sqrt(torch._foreach_abs(a)),
        "exp": lambda a, b: torch._foreach_exp(a),
        "reciprocal": lambda a, b: torch._foreach_reciprocal(b),
        "sign": lambda a, b: torch._foreach_sign(a),
        "pow": lambda a, b: torch._foreach_pow(b, 2),
        "maximum": lambda a, b: torch._foreach_maximum(a, b),
        "clamp": lambda a, b: torch._foreach_clamp_max(
            torch._foreach_clamp_min(a, -1), 1
        ),
        "addcmul": lambda a, b: torch._foreach_addcmul(a, b, b, value=0.1),
        "addcmul_numbers": lambda a, b: torch._foreach_addcmul(a, b, b, [0.1, 0.2]),
        "addcdiv": lambda a, b: torch._foreach_addcdiv(a, b, b, -0.1),
        "addcdiv_numbers": lambda a, b: torch._foreach_addcdiv(a, b, b, [0.1, 0.2]),
        "lerp": lambda a, b: torch._foreach_lerp(a, b, 0.3),
        "lerp_tensors": lambda a, b: torch._foreach_lerp(a, b, b),
        "norm": lambda a, b: torch._foreach_norm(a),
        "norm_1": lambda a, b: torch._foreach_norm(a, 1),
        "max": lambda a, b: torch._foreach_max(a),
        "add_": lambda a, b: torch._foreach_add_(a, b, alpha=2) or a,
        "mul_": lambda a, b: torch._foreach_mul_(a, 0.9) or a,
        "lerp_": lambda a, b: torch._foreach_lerp_(a, b, 0.1) or a,
        "addcdiv_": lambda a, b: torch._foreach_addcdiv_(a, b, b, value=-0.5) or a,
        "sqrt_": lambda a, b: torch._foreach_sqrt_(b) or b,
        "zero_": lambda a, b: torch._foreach_zero_(a) or a,
        "copy_": lambda a, b: torch._foreach_copy_(a, b) or a,
        "div_numbers_": lambda a, b: torch._foreach_div_(a, [2.0, 3.0]) or a,
    }
    return calls


@pytest.mark.parametrize("name", listed())
def test_foreach(name):
    call = listed()[name]
    check(
        lambda *t: list(call(list(t[:2]), list(t[2:]))),
        X, ROW, P, ROW.abs() + 1, grad=False, strides=False,
    )  # fmt: skip


def test_number_values_do_not_compile():
    x = X.to("tarry")
    numbers = [0.5, 0.0, 1.0, -1.0, -0.0, float("nan"), float("inf"), 1e-30]
    for i, a in enumerate(numbers):
        with compiles(0 if i else 1):
            y = x * a + a
            tarry.sync()
        same(X * a + a, y)


def test_groups_cover_all_dtypes():
    assert {*DTYPES} == {torch.bool, *INTEGERS, *FLOATS, *COMPLEX}


def test_negative_steps_are_refused():
    both(lambda d: X.to(d)[::-1])


def test_bad_calls_read_as_in_torch():
    both(lambda d: X.to(d) + make(5).to(d))
    both(lambda d: X.to(d) @ Y.to(d))
    both(lambda d: X.to(d)[3])
    both(lambda d: X.to(d).sum(2))
    both(lambda d: X.to(d).view(5))
    both(lambda d: torch.cat([X.to(d), ROW.to(d)]))
    both(lambda d: B.to(d) - C.to(d))
    both(lambda d: X.to(d).expand(5, 4))
    both(lambda d: X.to(d).squeeze(5))
    both(lambda d: X.to(d).softmax(3))
    both(lambda d: torch.stack([X.to(d), ROW.to(d)]))


def test_embedding_bag():
    bag = torch.nn.EmbeddingBag(5, 3, mode="sum")
    check(lambda i, w: F.embedding_bag(i, w, mode="sum"), AT[None], bag.weight.detach())


def test_bitwise_of_floats_is_refused_at_once():
    for device in ("cpu", "tarry"):
        with pytest.raises(NotImplementedError):
            X.to(device) & 1
