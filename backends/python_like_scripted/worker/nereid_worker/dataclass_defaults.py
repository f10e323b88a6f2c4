"""Dataclasses of models that were written for Python 3.10 or older. Since 3.11 a field may not have an unhashable default, such as a NumPy array or
an instance of another dataclass; the models of TensorRT-LLM 0.9 to 0.13 have such fields. For classes of the model's own files, install() accepts
them again, with the meaning that they had: all instances share the one object. Lists, dicts and sets stay refused, as they always were."""
import dataclasses
import functools
import os
import sys

_MAX_FILES = 256  # of a model's folder that are searched for dataclasses


def install(folder):
    """Replaces dataclasses.dataclass in this process if a file of `folder`, the model's, uses it."""
    if sys.version_info >= (3, 11) and _uses_dataclasses(folder):
        dataclasses.dataclass = _accepting(dataclasses.dataclass, os.path.join(os.path.abspath(folder), ""))


def _uses_dataclasses(folder):
    num_files = 0
    for where, _, names in os.walk(folder):
        for name in names:
            if not name.endswith(".py"):
                continue
            num_files += 1
            if num_files > _MAX_FILES:
                return False
            try:
                with open(os.path.join(where, name), "rb") as file:
                    if b"dataclass" in file.read():
                        return True
            except OSError:
                continue  # the import reports an unreadable file
    return False


def _accepting(original, folder):
    @functools.wraps(original)
    def dataclass(cls=None, /, **options):
        def make(target):
            shared = _share_defaults(target) if _is_below(target, folder) else {}
            made = original(**options)(target)
            if not options.get("slots"):  # a class with slots has no attributes of these names
                for name, default in shared.items():
                    setattr(made, name, default)  # as the decorator leaves every other default
            return made
        return make if cls is None else make(cls)
    return dataclass


def _is_below(cls, folder):
    """Whether a file of the folder defines the class."""
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return path is not None and os.path.abspath(path).startswith(folder)


def _share_defaults(cls):
    """Gives each field with an unhashable default a factory that returns this very object. The defaults by field."""
    shared = {}
    for name in cls.__dict__.get("__annotations__", {}):
        value = cls.__dict__.get(name, dataclasses.MISSING)
        default = value.default if isinstance(value, dataclasses.Field) else value
        if default is dataclasses.MISSING or type(default).__hash__ is not None or isinstance(default, (list, dict, set)):
            continue
        field = value if isinstance(value, dataclasses.Field) else dataclasses.field()
        field.default = dataclasses.MISSING
        field.default_factory = functools.partial(_same, default)
        setattr(cls, name, field)
        shared[name] = default
    return shared


def _same(value):
    return value
