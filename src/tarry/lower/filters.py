"""Filters of image resizing, as functions of distances (not negative) in pixels."""

from collections.abc import Callable

import numpy as np

Filter = Callable[[np.ndarray], np.ndarray]


def triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - x, 0)


def cubic(a: float) -> Filter:
    """Keys's cubic convolution; Pillow takes a = -0.5, OpenCV a = -0.75."""

    def weight(x: np.ndarray) -> np.ndarray:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = (((x - 5) * x + 8) * x - 4) * a
        return np.where(x < 1, near, np.where(x < 2, far, 0))

    return weight


def lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)
