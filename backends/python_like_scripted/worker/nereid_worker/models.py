"""Loading and unloading of models, and their readiness."""
import contextvars
import json

from . import calls, protocol
from .arguments import bool_of, text_of
from .errors import TritonModelException

own_name = own_version = ""  # name and version of this model if it has is_ready()
# True in this model's is_ready() and its coroutines. Threads that it starts do not inherit it.
in_readiness_check = contextvars.ContextVar("in_readiness_check", default=False)


def _name(model_name):
    return text_of(model_name, "expected model_name")


def _call(failed, operation, arguments):
    try:
        return calls.call(operation, arguments)
    except TritonModelException as error:
        raise TritonModelException(f"{failed}: {error}") from None


def load_model(model_name, config="", files=None):
    """Returns when the model is loaded. `config` is JSON; `files` has bytes by "file:<version>/<name>"."""
    if isinstance(config, dict):
        config = json.dumps(config)
    if files is not None and not isinstance(files, dict):
        raise TritonModelException(f"failed to load model '{model_name}', files should be a dictionary of file paths and file contents")
    contents = tuple((text_of(path, "load_model: expected paths"), _content(content)) for path, content in (files or {}).items())
    config = "" if config is None else text_of(config, "load_model: expected config")
    _call("Failed to load model", protocol.LOAD_MODEL, (_name(model_name), config, contents))


def _content(content):
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    raise TypeError(f"load_model: expected the contents of files as bytes, got {type(content).__name__}")


def unload_model(model_name, unload_dependents=False):
    _call("Failed to unload model", protocol.UNLOAD_MODEL, (_name(model_name), bool_of(unload_dependents, "unload_model: expected unload_dependents")))


def is_model_ready(model_name, model_version=""):
    name, version = _name(model_name), text_of(model_version, "is_model_ready: expected model_version")
    if in_readiness_check.get() and name == own_name and version in ("", own_version):  # the call would wait for itself
        raise TritonModelException(f"Failed to check model readiness: is_ready() of model '{own_name}' asks for itself")
    return _call("Failed to check model readiness", protocol.IS_MODEL_READY, (name, version))
