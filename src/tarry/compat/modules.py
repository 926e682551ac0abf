"""Modules made of the tables: names resolve when they are asked for, so that importing
`torch_xla` loads no more than importing tarry does."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tarry.compat.rows import Value
from tarry.compat.table import MODULES, NOT_YET, REASONS
from tarry.errors import UnsupportedError
from tarry.record.lines import user_line

PREFIX = "torch_xla."


def resolve(target: Any) -> Any:
    """What a row stands for: `"tarry.api:sync"`, a module `"tarry.api"`, a Value."""
    if isinstance(target, Value):
        return target.value
    module, _, path = target.partition(":")
    found: Any = import_module(module)
    for name in path.split(".") if path else ():
        found = getattr(found, name)
    return found


class Refused(type):
    """The type of names that tarry does not have: classes that nothing is an instance
    of, and whose use raises UnsupportedError with the reason."""

    module: str
    reason: str

    def _refuse(cls) -> UnsupportedError:
        what = f"{cls.module}.{cls.__name__}"
        return UnsupportedError(what, str(user_line()), cls.reason)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise cls._refuse()

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise cls._refuse()


def refused(module: str, name: str, reason: str) -> Any:
    return Refused(name, (), {"module": module, "reason": reason})


class CompatModule(ModuleType):
    """A module of the table."""

    def __getattr__(self, name: str) -> Any:
        short = self.__name__.removeprefix("torch_xla").removeprefix(".")
        rows = MODULES.get(short, {})
        if name in rows:
            found = resolve(rows[name])
        elif name in NOT_YET.get(short, {}):
            reason = REASONS[NOT_YET[short][name]]
            found = refused(self.__name__, name, reason)
        elif known(f"{short}.{name}".lstrip(".")):
            return import_module(f"{self.__name__}.{name}")
        else:
            raise AttributeError(
                f"module '{self.__name__}' has no attribute '{name}' (tarry.compat: "
                f"docs/torch_xla.md lists the names there are)"
            )
        self.__dict__[name] = found
        return found

    def __dir__(self) -> list[str]:
        short = self.__name__.removeprefix("torch_xla").removeprefix(".")
        return sorted(
            {*self.__dict__, *MODULES.get(short, {}), *NOT_YET.get(short, {})}
        )


def known(short: str) -> bool:
    """Whether there is a module `torch_xla.<short>`."""
    prefix = short + "."
    tables = (*MODULES, *NOT_YET)
    return any(name == short or name.startswith(prefix) for name in tables)


class Finder(MetaPathFinder, Loader):
    """Finds `torch_xla` and its modules in the tables, and `_XLAC`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        if fullname in ("torch_xla", "_XLAC"):
            return ModuleSpec(fullname, self, is_package=True)
        if fullname.startswith(PREFIX) and known(fullname.removeprefix(PREFIX)):
            return ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if spec.name == "_XLAC":
            return import_module(f"{PREFIX}_XLAC")
        return CompatModule(spec.name, "torch_xla's names, see tarry.compat.")

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = module
        if isinstance(module, CompatModule):
            short = module.__name__.removeprefix("torch_xla").removeprefix(".")
            module.__dict__["__all__"] = sorted(
                n for n in MODULES.get(short, {}) if not n.startswith("_")
            )
