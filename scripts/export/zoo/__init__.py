"""The models: every `Entry` and `Generative` in the modules of this folder, which has one file per family."""

import importlib
import pkgutil

from entry import Entry, Generative

_MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
_ALL = [value for module in _MODULES for value in vars(module).values() if isinstance(value, (Entry, Generative))]
ENTRIES = {entry.name: entry for entry in _ALL}
