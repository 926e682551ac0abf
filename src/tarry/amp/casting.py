"""`torch.autocast` with the device's type filled in."""

import torch

from tarry.dispatch import seam


class autocast(torch.autocast):
    """`torch.autocast` for the device, in the argument order of torch_xla's
    `amp.autocast`. `dtype`: bfloat16 if None, as the products of TPUs and CPUs have it.
    """

    def __init__(
        self,
        device: str | torch.device = seam.DEVICE,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool | None = True,
    ) -> None:
        super().__init__(
            torch.device(device).type,
            dtype=dtype or torch.bfloat16,
            enabled=enabled,
            cache_enabled=cache_enabled,
        )
