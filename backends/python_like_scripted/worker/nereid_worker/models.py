"""Loading and unloading other models."""
import json

from . import calls, protocol
from .arguments import text_of


def _name(model_name):
    return text_of(model_name, "expected model_name")


def load_model(model_name, config="", files=None):
    """Blocks until it is loaded. `config` is JSON; `files` are bytes by "file:<version>/<name>"."""
    if isinstance(config, dict):
        config = json.dumps(config)
    contents = tuple((str(path), bytes(content)) for path, content in (files or {}).items())
    calls.call(protocol.LOAD_MODEL, (_name(model_name), text_of(config or "", "load_model: expected config"), contents))


def unload_model(model_name, unload_dependents=False):
    calls.call(protocol.UNLOAD_MODEL, (_name(model_name), bool(unload_dependents)))


def is_model_ready(model_name, model_version=""):
    return calls.call(protocol.IS_MODEL_READY, (_name(model_name), text_of(model_version, "is_model_ready: expected model_version")))
