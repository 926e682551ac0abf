"""Every exception the tests make, with its reason. A gap that closes fails the run."""

# Results whose strides PyTorch's CPU kernel chooses otherwise than its own meta kernel
# and TensorIterator's rule do, where an input is a view: only values are compared.
CPU_STRIDES = {
    "arithmetic-pow_base": "pow(number, x) makes its result contiguous",
    "comparison-isin": "isin makes its result contiguous",
    "complex-angle": "angle of complex numbers makes its result contiguous",
    "functional-attention": "the fused CPU kernel orders dimensions otherwise",
    "write-select_scatter": "the CPU keeps gaps between the elements of its input",
    "write-slice_scatter": "the CPU keeps gaps between the elements of its input",
}

# Test (without its file) -> why it fails now. Expected to fail, strictly.
GAPS: dict[str, str] = {
    "test_bitwise_of_floats_is_refused_at_once": (
        "PyTorch's meta kernel takes floats; the error comes with the cut"
    ),
}

# Skips outside this file: (file, reason).
SKIPS = {"test_rows_b.py": "halves for which the CPU has no kernel to compare with"}
