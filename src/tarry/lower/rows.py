"""Importing this module fills the operator table."""

import importlib
import pkgutil

import tarry.lower

_NOT_ROWS = {"rows", "table", "xla", "build"}

for _module in pkgutil.iter_modules(tarry.lower.__path__):
    if _module.name not in _NOT_ROWS:
        importlib.import_module(f"tarry.lower.{_module.name}")
