"""Every environment variable of tarry, parsed once at import."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tarry.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable as it was read: the value in force, and whether it was set."""

    value: object
    given: bool


settings: dict[str, Setting] = {}


@dataclass(slots=True)
class Config:
    """Settings of this process; the variables' meaning is in `docs/settings.md`."""

    device: str
    platform: str
    cache_size: int
    node_budget: int
    trie_limit: int
    auto_step: bool
    sync_wait: bool
    xla_options: str
    debug: int
    debug_file: str
    debug_frames: int
    metrics_file: str


def _read(name: str, default: T, parse: Callable[[str], T], wanted: str) -> T:
    text = os.environ.get(name)
    if text is None or text == "":
        settings[name] = Setting(default, False)
        return default
    try:
        value = parse(text)
    except (ValueError, KeyError):
        raise ConfigError(name, text, wanted) from None
    settings[name] = Setting(value, True)
    return value


def unknown() -> list[str]:
    """Variables that look like a setting of tarry and are none."""
    return sorted(n for n in os.environ if n.startswith("TARRY_") and n not in settings)


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError
    return value


def _device_name(text: str) -> str:
    return {"tarry": "tarry", "xla": "xla"}[text]


def _flag(text: str) -> bool:
    return {"0": False, "1": True, "false": False, "true": True}[text.lower()]


def _level(text: str) -> int:
    return min({"0": 0, "1": 1, "2": 2}[text], 2)


def _torch_xla_level() -> int:
    """What PyTorch/XLA's variables ask for, where tarry's own does not."""
    if os.environ.get("PT_XLA_DEBUG", "0") not in ("", "0"):
        return 2
    level = os.environ.get("PT_XLA_DEBUG_LEVEL", "0")
    return min(int(level), 2) if level.isdigit() else 0


def _pjrt_device() -> str:
    """What PyTorch/XLA's variable asks for, where the device goes by its name."""
    under_its_name = os.environ.get("TARRY_DEVICE") == "xla"
    return os.environ.get("PJRT_DEVICE", "").lower() if under_its_name else ""


def load() -> Config:
    """The settings as the environment states them.

    Raises ConfigError for a value that cannot be read.
    """
    number = "a positive whole number"
    return Config(
        device=_read("TARRY_DEVICE", "tarry", _device_name, "'tarry' or 'xla'"),
        platform=_read("TARRY_PLATFORM", _pjrt_device(), str.lower, "a platform name"),
        cache_size=_read("TARRY_COMPILATION_CACHE_SIZE", 2048, _positive, number),
        node_budget=_read("TARRY_NODE_BUDGET", 50_000, _positive, number),
        trie_limit=_read("TARRY_TRIE_LIMIT", 200_000, _positive, number),
        auto_step=_read("TARRY_AUTO_STEP", True, _flag, "0 or 1"),
        sync_wait=_read("TARRY_SYNC_WAIT", False, _flag, "0 or 1"),
        xla_options=_read(
            "TARRY_XLA_OPTIONS",
            "auto",
            {"auto": "auto", "none": "none"}.__getitem__,
            "'auto' or 'none'",
        ),
        debug=_read("TARRY_DEBUG", _torch_xla_level(), _level, "0, 1 or 2"),
        metrics_file=_read(
            "TARRY_METRICS_FILE", os.environ.get("XLA_METRICS_FILE", ""), str, "a path"
        ),
        debug_file=_read(
            "TARRY_DEBUG_FILE", os.environ.get("PT_XLA_DEBUG_FILE", ""), str, "a path"
        ),
        debug_frames=_read("PT_XLA_DEBUG_MAX_FRAME", 8, _positive, number),
    )


config = load()


def getenv_as(name: str, type: Callable[[str], T], defval: T | None = None) -> T | None:
    """A variable of the user's own, converted by `type`; `defval` if it is not set.

    Raises ValueError for a value that `type` cannot read; `bool` reads numbers.
    """
    text = os.environ.get(name)
    if text is None:
        return defval
    return type(int(text)) if type is bool else type(text)  # type: ignore[arg-type]


def check_env_flag(name: str, default: str = "") -> bool:
    """Whether a variable of the user's own says yes: ON, 1, YES, TRUE or Y."""
    return os.environ.get(name, default).upper() in ("ON", "1", "YES", "TRUE", "Y")


def environment_with(name: str, value: str) -> dict[str, str]:
    """This process's environment with one variable changed."""
    return {**os.environ, name: value}
