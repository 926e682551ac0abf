"""What torch_xla keeps under `torch_xla.experimental`, by the same names."""

from tarry.dispatch.eager import eager_mode, eager_mode_context, is_eager_mode

__all__ = ["eager_mode", "eager_mode_context", "is_eager_mode"]
