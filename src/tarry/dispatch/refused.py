"""What the device does not hold, and what PyTorch asks of it besides kernels."""

from typing import Any

import torch

from tarry.errors import UnsupportedError
from tarry.record.lines import user_line


def refuse(layout: str, instead: str) -> Any:
    """A boxed kernel that names the operator, the layout and the way out."""

    def kernel(op: Any, *args: Any, **kwargs: Any) -> Any:
        name = op._schema.name
        raise UnsupportedError(
            f"{name} on a {layout} tensor", str(user_line()), instead
        )

    return kernel


BOXED = {
    "SparsePrivateUse1": refuse("sparse", "use a dense tensor, x.to_dense()"),
    "SparseCsrPrivateUse1": refuse("sparse CSR", "use a dense tensor, x.to_dense()"),
    "QuantizedPrivateUse1": refuse("quantized", "use a plain dtype, x.dequantize()"),
    "NestedTensorPrivateUse1": refuse(
        "strided nested", "make it with layout=torch.jagged, which works"
    ),
}


def to_sparse(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    raise UnsupportedError(
        "a sparse or compressed layout", str(user_line()), "keep the tensor dense"
    )


_CONVERSIONS = """_to_sparse _to_sparse.sparse_dim _to_sparse_csr _to_sparse_csc
_to_sparse_bsr _to_sparse_bsc to_mkldnn"""


def quantize(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    raise UnsupportedError(
        "a quantized dtype",
        str(user_line()),
        "keep a plain dtype, or quantize on the CPU",
    )


def sparse_gradient(
    grad: torch.Tensor, indices: torch.Tensor, num_weights: int, padding_idx: int,
    scale_grad_by_freq: bool,
) -> torch.Tensor:  # fmt: skip
    """The gradient of an embedding with `sparse=True`: the same numbers, dense."""
    return torch.ops.aten.embedding_dense_backward(
        grad, indices, num_weights, padding_idx, scale_grad_by_freq
    )


_QUANTIZERS = """quantize_per_tensor quantize_per_tensor.tensor_qparams
quantize_per_tensor_dynamic quantize_per_channel"""


def can_be_nested(t: torch.Tensor, mask: torch.Tensor) -> bool:
    """What `nn.TransformerEncoder` asks before it makes a strided nested tensor of its
    input and the padding mask; it goes on with the dense one."""
    return False


KERNELS = {
    "_nested_tensor_from_mask_left_aligned": can_be_nested,
    **dict.fromkeys(_CONVERSIONS.split(), to_sparse),
    **dict.fromkeys(_QUANTIZERS.split(), quantize),
    "embedding_sparse_backward": sparse_gradient,
}


def is_pinned(self: torch.Tensor, device: Any = None) -> bool:
    return False


def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    """A copy: uploads are batched from snapshots, so pinning gains nothing here."""
    return self.clone()


CPU_KERNELS = {"is_pinned": is_pinned, "_pin_memory": pin_memory}
