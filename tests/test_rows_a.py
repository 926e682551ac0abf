"""Rows of arithmetic, comparison, unary, reduction, sorting, indexing, scattering,
shape and creation, each against PyTorch on the CPU."""

import math
import zlib

import pytest
import torch

import tarry.lower.arith
import tarry.lower.compare
import tarry.lower.reduce
import tarry.lower.unary  # noqa: F401
from rows import check_row

f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
i8, i16, i32, i64, u8 = (
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
)
c64, b = torch.complex64, torch.bool
NAN, INF = math.nan, math.inf
SPECIAL = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.5, 2.5, -2.5, 0.5, 3.0, -7.25]


def make(dtype: torch.dtype, *shape: int, low: float = -4, high: float = 5):
    g = torch.Generator().manual_seed(zlib.crc32(f"{dtype}{shape}".encode()))
    x = torch.rand(shape, generator=g, dtype=f64) * (high - low) + low
    if dtype is b:
        return x > 0
    if dtype.is_complex:
        y = torch.rand(shape, generator=g, dtype=f64) * (high - low) + low
        return torch.complex(x, y).to(dtype)
    if dtype is u8:
        return (x.abs() * 20).to(dtype)
    return x.to(dtype)


def tolerance(*values) -> dict:
    for v in values:
        if isinstance(v, torch.Tensor) and v.dtype in (f16, bf16):
            return {"rtol": 1e-2 if v.dtype is bf16 else 2e-3, "atol": 1e-2}
    return {}


def check(name: str, *args, **kwargs):
    return check_row(name, *args, **{**tolerance(*args), **kwargs})


FLOATS = (f32, f64, f16, bf16)
INTS = (i64, i32, i16, i8, u8)
NUMBERS = FLOATS + INTS

BINARY = {
    "add.Tensor": (*NUMBERS, b, c64),
    "sub.Tensor": (*NUMBERS, c64),
    "rsub.Tensor": (*NUMBERS, c64),
    "mul.Tensor": (*NUMBERS, b, c64),
    "div.Tensor": (*NUMBERS, b, c64),
    "floor_divide": NUMBERS,
    "remainder.Tensor": NUMBERS,
    "fmod.Tensor": NUMBERS,
    "pow.Tensor_Tensor": (*NUMBERS, c64),
    "atan2": NUMBERS,
    "maximum": (*NUMBERS, b),
    "minimum": (*NUMBERS, b),
    "fmax": (*NUMBERS, b),
    "fmin": (*NUMBERS, b),
    "hypot": FLOATS,
    "copysign.Tensor": NUMBERS,
    "nextafter": (f32, f64),
    "gcd": INTS,
    "lcm": (i64, i32, i16, i8),
    "xlogy.Tensor": NUMBERS,
    "special_xlog1py": (f32, f64, i64),
    "logaddexp": FLOATS,
    "logaddexp2": FLOATS,
    "heaviside": (*NUMBERS, b),
    "bitwise_and.Tensor": (*INTS, b),
    "bitwise_or.Tensor": (*INTS, b),
    "bitwise_xor.Tensor": (*INTS, b),
    "eq.Tensor": (*NUMBERS, b, c64),
    "ne.Tensor": (*NUMBERS, b, c64),
    "lt.Tensor": (*NUMBERS, b),
    "le.Tensor": (*NUMBERS, b),
    "gt.Tensor": (*NUMBERS, b),
    "ge.Tensor": (*NUMBERS, b),
    "logical_and": (*NUMBERS, b, c64),
    "logical_or": (*NUMBERS, b, c64),
    "logical_xor": (*NUMBERS, b, c64),
    "clamp_min.Tensor": NUMBERS,
    "clamp_max.Tensor": NUMBERS,
}
INT_DIVISION = {"floor_divide", "remainder.Tensor", "fmod.Tensor"}


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str):
    for dtype in BINARY[name]:
        x, y = make(dtype, 3, 4), make(dtype, 4, low=-3, high=4)
        if name in INT_DIVISION and dtype in INTS:
            y = torch.where(y == 0, torch.tensor(3, dtype=dtype), y)
        if name == "div.Tensor" and dtype is b:
            y = torch.ones_like(y)  # XLA makes mask * x a select: 0 * inf is 0 there
        check(name, x, y)
    check(name, make(dtype, 0, 4), y)
    check(name, x[0, 0], y[1])


@pytest.mark.parametrize("name", BINARY)
def test_binary_special(name: str):
    if f32 not in BINARY[name]:
        return
    v = torch.tensor(SPECIAL)
    check(name, v[:, None], v[None, :])


BINARY_SCALAR = [
    ("add.Tensor", make(f32, 3), 2),
    ("add.Tensor", make(i64, 3), 2.5),
    ("add.Tensor", make(b, 3), True),
    ("mul.Tensor", make(bf16, 3), 0.1),
    ("mul.Tensor", make(u8, 3), 7),
    ("div.Tensor", make(i32, 3), 2),
    ("sub.Tensor", make(i64, 3), 2),
    ("rsub.Scalar", make(i64, 3), 2.5),
    ("remainder.Scalar", make(i64, 9), -3),
    ("remainder.Scalar", make(f32, 9), -1.5),
    ("remainder.Scalar_Tensor", 7, make(f32, 9)),
    ("fmod.Scalar", make(i64, 9), -3),
    ("pow.Scalar", 2, make(f32, 5)),
    ("pow.Scalar", 2.5, make(i64, 5)),
    ("pow.Scalar", 2, make(u8, 5)),
    ("bitwise_and.Scalar", make(i32, 9), 6),
    ("bitwise_or.Scalar", make(i32, 9), 6),
    ("bitwise_xor.Scalar", make(b, 9), True),
    ("eq.Scalar", torch.tensor([0.1, 0.2]).to(bf16), 0.1),
    ("ne.Scalar", make(i64, 9), 1.5),
    ("lt.Scalar", make(i64, 9), 1.5),
    ("le.Scalar", make(f32, 9), 1),
    ("gt.Scalar", make(u8, 9), -1),
    ("ge.Scalar", make(f16, 9), 0.1),
    ("copysign.Scalar", make(f32, 9), -1.0),
    ("xlogy.Scalar_Self", 2, make(f32, 5, low=0.1)),
    ("xlogy.Scalar_Other", make(i64, 5), 2),
]


@pytest.mark.parametrize("case", BINARY_SCALAR, ids=str)
def test_binary_scalar(case: tuple):
    check(*case)


def test_alpha():
    for dtype in (f32, i64, c64, u8):
        for name in ("add.Tensor", "sub.Tensor", "rsub.Tensor"):
            check(name, make(dtype, 4), make(dtype, 4), alpha=3)
    check("add.Tensor", make(bf16, 4), make(bf16, 4), alpha=0.3)
    check("add.Tensor", make(b, 4), make(b, 4), alpha=True)


def test_promotion():
    check("add.Tensor", make(bf16, 3), make(f32, 3))
    check("add.Tensor", make(f16, 3), torch.tensor(2.5, dtype=f64))
    check("mul.Tensor", make(i32, 3), torch.tensor(2.5, dtype=f64))
    check("lt.Tensor", make(i8, 3), make(u8, 3))


def test_div_modes():
    v = torch.tensor(SPECIAL)
    for mode in ("trunc", "floor", None):
        check("div.Tensor_mode", v[:, None], v[None], rounding_mode=mode)
        for dtype in (i64, i8):
            y = make(dtype, 40)
            y = torch.where(y == 0, torch.tensor(-3, dtype=dtype), y)
            x = make(dtype, 40, low=-30, high=30)
            check("div.Tensor_mode", x, y, rounding_mode=mode)
        check("div.Scalar_mode", make(i64, 9), -2, rounding_mode=mode)


def test_shifts():
    for dtype in INTS:
        x, n = make(dtype, 8), torch.tensor([0, 1, 2, 3, 7, 4, 5, 6], dtype=dtype)
        for name in ("bitwise_left_shift", "bitwise_right_shift"):
            check(f"{name}.Tensor", x, n)
            check(f"{name}.Tensor_Scalar", x, 2)
        check("__lshift__.Scalar", x, 2)
        check("__rshift__.Tensor", x, n)


EXPONENTS = (0, 1, 2, 3, 7, 40, 0.5, -0.5, -1, -2, 2.5, -1.5, 0.0, 2.0, INF)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_pow_static(exponent: float):
    check("pow.Tensor_Scalar", torch.tensor(SPECIAL), exponent)
    for dtype in (f64, f16, bf16):
        check("pow.Tensor_Scalar", make(dtype, 5, low=0.5, high=1.5), exponent)
    check("pow.Tensor_Scalar", make(c64, 5, low=0.5, high=1), exponent) if (
        abs(exponent) < 9
    ) else None
    if exponent >= 0 or isinstance(exponent, float):
        for dtype in (i64, i8, u8, i32):
            check("pow.Tensor_Scalar", make(dtype, 5, low=1), exponent)


def test_ternary():
    for dtype in (f32, bf16, i64, c64):
        x, y, z = make(dtype, 3, 4), make(dtype, 4), make(dtype, 3, 1) + 9
        check("addcmul", x, y, z, value=2)
        if dtype is not i64:
            check("addcdiv", x, y, z, value=0.5)
            check("lerp.Scalar", x, y, 0.3)
            check("lerp.Scalar", x, y, 0.8)
            check("lerp.Tensor", x, y, torch.rand(3, 4).to(dtype))
    a, x = make(f32, 5, low=0.5), make(f32, 5, low=0.3)
    check("igamma", a, x)
    check("igammac", a, x)
    check("special_zeta", a + 1, x)
    check("special_zeta.other_scalar", a + 1, 2)


REAL_UNARY = [
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "erf",
    "erfc",
    "erfinv",
    "lgamma",
    "digamma",
    "i0",
    "sinc",
    "special_entr",
    "special_ndtri",
    "special_log_ndtr",
    "special_erfcx",
    "special_i0e",
    "special_i1",
    "special_i1e",
    "angle",
]
COMPLEX_UNARY = [
    "exp",
    "log",
    "log2",
    "log10",
    "log1p",
    "expm1",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "abs",
    "neg",
    "sgn",
    "angle",
    "conj_physical",
    "sinc",
    "isnan",
    "isinf",
    "logical_not",
]
SAME_UNARY = ["abs", "neg", "sign", "sgn", "ceil", "floor", "round", "trunc"]


@pytest.mark.parametrize("name", REAL_UNARY)
def test_unary_float(name: str):
    narrow = {"low": -2.5, "high": 3.0}
    halves = () if name.startswith("special_") else (f16, bf16)
    for dtype in (f32, f64, i64, b, *halves):
        check(name, make(dtype, 3, 5, **narrow))
    check(name, torch.tensor(SPECIAL))
    check(name, torch.tensor(0.3))
    check(name, torch.empty(0, 2))


@pytest.mark.parametrize("name", COMPLEX_UNARY)
def test_unary_complex(name: str):
    check(name, make(c64, 5, low=-1, high=1))
    check(name, torch.tensor([0j, 1 + 0j, 1j])) if name not in ("log", "atanh") else 0


@pytest.mark.parametrize("name", SAME_UNARY)
def test_unary_same(name: str):
    for dtype in NUMBERS:
        check(name, make(dtype, 3, 5))
    check(name, torch.tensor(SPECIAL))
    check(name, torch.tensor(-0.6))


def test_unary_rest():
    v = torch.tensor(SPECIAL)
    check("frac", v)
    check("frac", make(bf16, 9))
    for dtype in (i64, u8, b):
        check("bitwise_not", make(dtype, 9))
        check("logical_not", make(dtype, 9))
        check("isnan", make(dtype, 9))
        check("isinf", make(dtype, 9))
    for name in ("isnan", "isinf", "isposinf", "isneginf", "signbit", "logical_not"):
        check(name, v)
        check(name, v.to(bf16))
        check(name, v.to(f64))
    check("isposinf", make(i64, 3))
    check("isneginf", make(u8, 3))
    check("signbit", make(i64, 9))
    check("signbit", make(u8, 9))
    check("sign", make(b, 4))
    check("sgn", make(b, 4))
    check("erfinv", make(f32, 9, low=-1, high=1))
    check("special_erfcx", make(f64, 99, low=-5, high=30), rtol=1e-12)
    for decimals in (0, 2, -1):
        check("round.decimals", make(f32, 30) * 10, decimals=decimals)
        check("round.decimals", make(f64, 30) * 10, decimals=decimals)
    for n in (0, 1, 2):
        check("polygamma", n, make(f32, 5, low=0.5))
        check("polygamma", n, make(i64, 5, low=1))
    for eps in (None, 0.1):
        x = make(f32, 9, low=0, high=1)
        check("logit", x, eps)
        check("logit", x.to(bf16), eps)


def test_complex_parts():
    check("complex", make(f32, 3, 2), make(f32, 2))
    check("complex", make(f64, 3), make(f64, 3))
    check("polar", make(f32, 3), make(f32, 3))
    check("_conj_physical", make(c64, 3))


def test_nan_to_num():
    v = torch.tensor(SPECIAL)
    check("nan_to_num", v)
    check("nan_to_num", v, 1.0, 2.0, -3.0)
    check("nan_to_num", v.to(bf16), None, 5.0)
    check("nan_to_num", make(i64, 3))
    check("nan_to_num", torch.complex(v, v.flip(0)), 1.0)


def test_choices():
    for dtype in (f32, bf16, i64, b, c64):
        x, y, m = make(dtype, 3, 4), make(dtype, 4), make(b, 3, 1)
        check("where.self", m, x, y)
        check("where.self", m, x, torch.tensor(0, dtype=dtype))
        check("masked_fill.Scalar", x, m, 1)
        check("masked_fill.Tensor", x, m, torch.tensor(1, dtype=dtype))
    check("where.self", make(b, 4), make(f32, 4), make(i64, 3, 4))
    check("where.self", make(b, 0), make(f32, 1), make(f64, 1))
    check("where.self", torch.tensor(True), make(f32, 2), torch.tensor(1.0))
    check("masked_fill.Scalar", make(bf16, 4), make(b, 4), -INF)
    check("isin.Tensor_Tensor", make(i64, 3, 5), make(i64, 4))
    check("isin.Tensor_Tensor", make(i64, 3, 5), make(i64, 4), invert=True)
    check("isin.Tensor_Scalar", make(i64, 3, 5), 2)
    check("isin.Scalar_Tensor", 2, make(i64, 5))


def test_clamp():
    v = torch.tensor(SPECIAL)
    for low, high in ((-1, 2), (None, 0.3), (0.5, None), (3, -3)):
        check("clamp", v, low, high)
        check("clamp", v.to(bf16), low, high)
        check("clamp", make(i64, 9), low, high)
    check("clamp.Tensor", v, v.flip(0), v + 1)
    check("clamp.Tensor", make(i64, 9), make(f32, 9), None)
    check("clamp_min", v, 0.5)
    check("clamp_max", make(i32, 9), 0.5)
    check("clamp_max", make(u8, 9), 3)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ["sum.dim_IntList", "mean.dim", "nansum"])
def test_sums(name: str, keepdim: bool):
    for dtype in (f32, f16, bf16, f64, *(() if name == "mean.dim" else (i32, u8, b))):
        for dim in ([1], [0, -1], [], None):
            check(name, make(dtype, 3, 4, 2), dim, keepdim)
        check(name, make(dtype, 0, 3), [0], keepdim)
        check(name, make(dtype), [-1], keepdim)
    check(name, make(i32, 4), [0], keepdim, dtype=f32)
    check(name, make(f32, 4), [0], keepdim, dtype=f64)
    check(name, torch.tensor(SPECIAL), None, keepdim)
    check(name, torch.tensor([NAN, 1.0, 2.0]), None, keepdim)


def test_whole_reductions():
    for dtype in (f32, bf16, i64, i8, b, c64):
        x = make(dtype, 3, 4)
        check("sum", x)
        check("prod", x)
        check("any", x)
        check("all", x)
        check("count_nonzero", x)
        if not dtype.is_complex:
            check("max", x)
            check("min", x)
        if not dtype.is_complex and dtype is not b:
            check("argmax", x)
            check("argmin", x)
    for dtype in (f32, bf16, c64):
        check("mean", make(dtype, 3, 4))
    check("sum", make(c64, 3), dtype=torch.complex128)
    check("all", make(u8, 3))
    check("sum", torch.empty(0))
    check("prod", torch.empty(0))
    check("mean", torch.empty(0))
    check("sum", torch.tensor(2))
    check("trace", make(f32, 3, 4))
    check("trace", make(i32, 4, 3))


EXTREMES = ["amax", "amin", "max.dim", "min.dim", "argmax", "argmin", "aminmax"]


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes(name: str):
    def run(x: torch.Tensor, dim: int, keepdim: bool):
        if name == "aminmax":
            check(name, x, dim=dim, keepdim=keepdim)
        else:
            check(name, x, [dim] if name[1:] in ("max", "min") else dim, keepdim)

    for dtype in (f32, bf16, f16, i64, u8, *(() if "arg" in name else (b,))):
        for dim in (0, -1):
            run(make(dtype, 3, 4), dim, False)
            run(make(dtype, 3, 4), dim, True)
        run(make(dtype), 0, False)
        run(make(dtype, 0, 3), 1, False)
    run(torch.tensor([[1.0, NAN, 3.0, NAN], [2.0, 2.0, 1.0, 2.0]]), 1, False)
    run(torch.tensor([-INF, -INF]), 0, False)
    run(torch.tensor([INF, INF]), 0, True)


def test_amax_all():
    check("amax", make(f32, 3, 4), [])
    check("amin", make(f32, 3, 4), [0, 1], True)
    check("aminmax", make(f32, 3, 4))
    check("argmax", make(f32, 3, 4), None, True)


@pytest.mark.parametrize("name", ["all", "any"])
def test_all_any(name: str):
    for dtype in (f32, i64, u8, b, c64):
        x = make(dtype, 3, 4)
        check(f"{name}.dim", x, 1, True)
        check(f"{name}.dims", x, [0, -1])
        check(f"{name}.dims", x, None)
    check(f"{name}.dim", make(b, 0, 3), 0)
    check(f"{name}.dim", torch.tensor(NAN), 0)
    check(f"{name}.dims", make(b, 2, 3), [])
    check("count_nonzero.dim_IntList", torch.tensor([[0, 1], [2, 0]]), [0])
    check("count_nonzero", torch.tensor([[0, 1], [2, 0]]), -1)


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_variance(name: str):
    name += ".correction"
    for dtype in (f32, f64, bf16, f16, c64):
        x = make(dtype, 3, 4, 2)
        for dim in ([1], None, [0, -1], []):
            check(name, x, dim)
        check(name, x, [1], correction=0, keepdim=True)
        check(name, x, [1], correction=0.5)
    check(name, make(f32, 1), [0])
    check(name, make(f32, 2), [0], correction=3)
    check(name, torch.tensor(1.0), None, correction=0)
    check(name, make(f32, 1000) + 1e4, None)


@pytest.mark.parametrize("p", [0, 1, 2, 3, 0.5, -1, INF, -INF, 2.0])
def test_norms(p: float):
    for dtype in (f32, bf16, c64):
        x = make(dtype, 3, 4)
        check("linalg_vector_norm", x, p)
        check("linalg_vector_norm", x, p, [1], True)
        check("norm.Scalar", x, p)
        check("norm.ScalarOpt_dim", x, p, [-1])
    check("linalg_vector_norm", make(f32, 3), p, None, dtype=f64)
    check("norm.ScalarOpt_dtype", make(f32, 3), p, dtype=f64)
    check("norm.ScalarOpt_dim_dtype", make(bf16, 3, 2), p, [0], False, dtype=f32)
    check("norm.ScalarOpt_dim", make(f32, 3, 2), None, [0])


def test_logsumexp():
    for dtype in (f32, f64, bf16, i64):
        check("logsumexp", make(dtype, 3, 4) * 50, [1])
        check("logsumexp", make(dtype, 3, 4), [0, 1], True)
    check("logsumexp", torch.tensor([[-INF, -INF], [INF, 1.0], [NAN, 1.0]]), [1])
    check("logsumexp", torch.empty(2, 0), [1])
    check("logsumexp", torch.tensor(2.0), [0])


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
def test_running(name: str):
    for dtype in (f32, bf16, i32, u8, b):
        for dim in (0, -1):
            check(name, make(dtype, 5, 7, low=-1, high=1.2), dim)
    check(name, torch.tensor(SPECIAL), 0)
    check(name, torch.tensor([1.0, 1.0, 0.0, NAN, 2.0, NAN, 3.0]), 0)
    check(name, torch.tensor(2.0), 0)
    check(name, torch.empty(2, 0), 1)
    if name in ("cumsum", "cumprod"):
        check(name, make(i32, 4), 0, dtype=f32)
        check(name, make(c64, 4), 0)


def test_logcumsumexp():
    check("logcumsumexp", make(f32, 3, 9), 1)
    check("logcumsumexp", make(bf16, 3, 9), 0)
    check("_logcumsumexp", torch.tensor([-INF, -INF, 1.0, 200.0]), 0)
