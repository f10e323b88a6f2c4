"""The module that models import: the names and signatures of Triton's module of the same name."""
import json  # noqa: F401 json, struct and np are also for models that import * from here
import struct  # noqa: F401

import numpy as np
from nereid_worker import data_types as _types
from nereid_worker import runtime as _runtime
from nereid_worker.errors import ErrorCode as _ErrorCode
from nereid_worker.errors import TritonError, TritonModelException
from nereid_worker.logger import Logger, LogLevel
from nereid_worker.metrics import Metric, MetricFamily, MetricKind
from nereid_worker.model_config import ModelConfig
from nereid_worker.models import is_model_ready, load_model, unload_model
from nereid_worker.request import (TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_GPU, InferenceRequest, InferenceTrace, MemoryType,
                                   PreferredMemory)
from nereid_worker.response import InferenceResponse, InferenceResponseSender
from nereid_worker.response_iterator import ResponseIterator
from nereid_worker.tensor import Tensor

TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_REQUEST_RELEASE_ALL = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE = 2


TRITON_TO_NUMPY_TYPE = {number: each for number, each in enumerate(_types.NUMPY_TYPES) if each is not None}
# By the type names of config.pbtxt, where BYTES is TYPE_STRING.
TRITON_STRING_TO_NUMPY = {f"TYPE_{'STRING' if number == _types.BYTES else _types.NAMES[number]}": each
                          for number, each in TRITON_TO_NUMPY_TYPE.items()}
TRITON_STRING_TO_NUMPY["TYPE_BOOL"] = bool  # as in Triton
NUMPY_TO_TRITON_TYPE = {each: number for number, each in TRITON_TO_NUMPY_TYPE.items()}


for _each in (ResponseIterator, TritonError, TritonModelException, Logger, LogLevel, Metric, MetricFamily, MetricKind, InferenceRequest,
              InferenceTrace, MemoryType, PreferredMemory, InferenceResponse, InferenceResponseSender, Tensor, _ErrorCode, is_model_ready, load_model,
              unload_model):
    _each.__module__ = "c_python_backend_utils"  # the module name that Triton's messages have
ModelConfig.__module__ = __name__


class SharedMemory:
    """How much of the worker's shared memory is free, for leak tests."""

    @staticmethod
    def free_memory():
        return _runtime.free_memory()


def get_input_tensor_by_name(inference_request, name):
    """None if the request has no such input."""
    for tensor in inference_request.inputs():
        if tensor._name == name:
            return tensor
    return None


def get_output_tensor_by_name(inference_response, name):
    for tensor in inference_response.output_tensors():
        if tensor._name == name:
            return tensor
    return None


def _config_by_name(model_config, kind, name):
    if kind in model_config:
        for properties in model_config[kind]:
            if properties["name"] == name:
                return properties
    return None


def get_input_config_by_name(model_config, name):
    return _config_by_name(model_config, "input", name)


def get_output_config_by_name(model_config, name):
    return _config_by_name(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config):
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_to_numpy_type(data_type):
    """None if Triton's type has no NumPy type."""
    return TRITON_TO_NUMPY_TYPE.get(data_type)


def numpy_to_triton_type(data_type):
    """Triton's type of a NumPy type or dtype, which are equal but hash differently; None if Triton has none."""
    for each, number in NUMPY_TO_TRITON_TYPE.items():
        if data_type == each:
            return number
    return _types.BYTES if data_type == np.bytes_ else None


def triton_string_to_numpy(triton_type_string):
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def serialize_byte_tensor(input_tensor):
    """The elements of an array of strings as bytes, each preceded by its length. () for an empty array, None for an array of another kind."""
    if input_tensor.size == 0:
        return ()
    return _types.serialize(input_tensor) if input_tensor.dtype.kind in "OS" else None


def deserialize_bytes_tensor(encoded_tensor):
    if len(encoded_tensor) == 0:  # also for the result of serialize_byte_tensor for an empty array
        return np.array([], dtype=np.object_)
    return _types.object_array(_types.deserialize(memoryview(encoded_tensor)), (-1,))


def get_model_dir():
    """The folder of the model's version."""
    return _runtime.model_dir()
