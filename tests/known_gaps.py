"""Every exception the tests make, with its reason. A gap that closes fails the run."""

from dataclasses import dataclass

# Test (without its file) -> why it fails now. Expected to fail, strictly.
EXPECTED: dict[str, str] = {}

# Scenarios that run under torch.compile in `make test-all` only.
COMPILED_IN_FULL = {"long_chain": "dynamo unrolls its 3,000 steps: three minutes"}

# Skips outside this file: (file, reason).
SKIPS = {
    "test_rows_b.py": "halves for which the CPU has no kernel to compare with",
    "test_mappings.py": "only Linux limits and counts memory mappings",
    "test_page.py": "no Chromium is installed to look at the page with",
}


# What PyTorch's databases (tests/databases) show that tarry does not do.


@dataclass(frozen=True, slots=True)
class Gap:
    """Entries that fail for one reason, by dtypes, in some ways of calling them.
    `everywhere`: False where it depends on the CPU which kernel PyTorch takes, so that
    they pass on other machines."""

    kinds: str
    reason: str
    entries: dict[str, str]
    everywhere: bool = True


# Entry -> kind -> (rtol, atol), where rounding is larger than `harness.TOLERANCE`.
LOOSE: dict[str, dict[str, tuple[float, float]]] = {
    "linalg.householder_product": {"gradgrad": (1e-3, 1e-3)},
}

_EVERY = "float32 float64 bfloat16 float16 int64 int32 uint8 bool complex64"
_LAPACK = "float32 float64 complex64"
_REAL = "float32 float64 bfloat16 float16"
_EXACT = "int64 int32 uint8 bool"

_SPARSE = "sparse tensors are not supported: one clear error says so"

GAPS: list[Gap] = [
    Gap(
        "forward",
        _SPARSE,
        {
            "to_sparse": _EVERY,
            "sparse.sampled_addmm": _LAPACK,
            "sparse.mm.reduce": _REAL,
        },
    ),
    Gap(
        "grad",
        _SPARSE,
        {
            "to_sparse": "float32",
            "sparse.sampled_addmm": "float32",
            "sparse.mm.reduce": "float32",
        },
    ),
    Gap(
        "forward",
        "the CPU's steps overflow in half precision where tarry's do not",
        {"nn.functional.soft_margin_loss": "float16"},
    ),
    Gap("plain", _SPARSE, {"SparseAdam": "float32"}),
    Gap(
        "gradgrad extremal",
        _SPARSE,
        {"to_sparse": "float32", "sparse.sampled_addmm": "float32"},
    ),
    Gap(
        "transposed",
        _SPARSE,
        {
            "to_sparse": "float32 complex64",
            "sparse.sampled_addmm": "float32 complex64",
        },
    ),
    Gap(
        "sliced",
        _SPARSE,
        {"to_sparse": "float32 int32", "sparse.sampled_addmm": "float32"},
    ),
    Gap(
        "expanded",
        _SPARSE,
        {"to_sparse": "float32 int64", "sparse.sampled_addmm": "float32"},
    ),
    Gap(
        "transposed sliced expanded extremal",
        _SPARSE,
        {"sparse.mm.reduce": "float32"},
    ),
    Gap(
        "extremal",
        "zeros between the inputs meet infinite weights in XLA's convolution",
        {f"nn.functional.conv_transpose{n}d": "float32" for n in (1, 2, 3)},
    ),
    Gap(
        "extremal",
        "the CPU's float32 kernel leaves zeros around the inputs out; those of its "
        "float64 kernel meet infinite weights, as tarry's do",
        {"nn.functional.conv3d": "float32"},
        everywhere=False,
    ),
    Gap(
        "extremal",
        "one product with a matrix of weights: zeros there meet infinities",
        {"_upsample_bilinear2d_aa": "float32"},
    ),
    Gap(
        "extremal",
        "the CPU's fused kernel turns a line of NaN into zeros",
        {"nn.functional.scaled_dot_product_attention": "float32"},
    ),
    Gap(
        "extremal",
        "the CPU sorts by a comparison that is no order where NaN is",
        {"mode": "float32", "unique": "float32"},
    ),
    Gap(
        "extremal",
        "which sums of a transform meet ∞ - ∞ depends on the order of its steps",
        dict.fromkeys(
            ("stft", "fft.hfft2", "fft.irfft2", "fft.irfftn"),
            "float32",
        ),
    ),
    Gap(
        "extremal",
        "of NaN the CPU's recurrence returns what it has not set",
        {
            f"special.{name}": "float32"
            for name in (
                "chebyshev_polynomial_u",
                "chebyshev_polynomial_w",
                "shifted_chebyshev_polynomial_t",
                "shifted_chebyshev_polynomial_u",
                "shifted_chebyshev_polynomial_w",
                "laguerre_polynomial_l",
                "legendre_polynomial_p",
            )
        },
    ),
    Gap(
        "extremal",
        "zeros around the inputs meet infinite weights in a depthwise convolution",
        {"nn.functional.conv1d": "float32"},
    ),
    Gap(
        "extremal",
        "the CPU's maximum of a bag skips NaN but for the first place",
        {"nn.functional.embedding_bag": "float32"},
    ),
    Gap(
        "expanded",
        "max_norm writes into rows that share memory",
        {
            "nn.functional.embedding": "float32",
            "nn.functional.embedding_bag": "float32",
        },
    ),
    Gap(
        "expanded",
        "the CPU selects in a copy whose rows share memory and finds what is not there",
        {
            "median": "float32 int64",
            "nanmedian": "float32 int64",
            "masked.median": "float32",
        },
    ),
    Gap(
        "expanded",
        "the CPU reads a weight that repeats in memory as if it did not",
        {"native_group_norm": "float32"},
    ),
    Gap(
        "forward",
        "the CPU computes in half precision and gets NaN where tarry gets numbers",
        {"matrix_exp": "bfloat16 float16"},
    ),
    Gap(
        "out",
        "PyTorch's CPU kernel ignores the strides of out= and writes elsewhere",
        dict.fromkeys(("narrow_copy", "nn.functional.avg_pool3d"), "float32 int64"),
    ),
    Gap(
        "inplace",
        "the CPU gives a number the shape of the sum, in place",
        {"addbmm": "float32 int64"},
    ),
    Gap(
        "errors",
        "the words differ: the CPU's name a C++ type, or a failed assertion",
        {"masked_fill": "float32", "narrow_copy": "float32"},
    ),
    Gap(
        "errors",
        "indices and probabilities are not read: out of range, they write nothing",
        dict.fromkeys(("gather", "multinomial", "scatter", "scatter_add"), "float32"),
    ),
]

_BY_KEY = {
    (kind, entry, dtype): gap
    for gap in GAPS
    for kind in gap.kinds.split()
    for entry, dtypes in gap.entries.items()
    for dtype in dtypes.split()
}
REASONS = {key: gap.reason for key, gap in _BY_KEY.items()}
DEPENDS_ON_CPU = {key for key, gap in _BY_KEY.items() if not gap.everywhere}

# ATen operator -> why it runs on the CPU.
VIA_CPU: dict[str, str] = {
    "aten::linalg_ldl_factor_ex": "XLA has no LDL factorization",
    "aten::linalg_ldl_solve": "XLA has no LDL factorization",
}
