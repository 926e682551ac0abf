"""Mixed precision without a read in the step: `autocast`, `GradScaler`, `syncfree`."""

from tarry.amp import syncfree
from tarry.amp.casting import autocast
from tarry.amp.scaler import GradScaler

__all__ = ["GradScaler", "autocast", "syncfree"]
