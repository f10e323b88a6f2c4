"""triton_python_backend_utils has every name that models of Triton use, from its documentation and from the module that NVIDIA ships, with the
same arguments, order and defaults."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("numpy")
WORKER = pathlib.Path(__file__).parents[3] / "backends/python_like_scripted/worker"

# The arguments of functions, and of methods by class, as a model writes them.
FUNCTIONS = {
    "get_input_tensor_by_name": "(inference_request, name)",
    "get_output_tensor_by_name": "(inference_response, name)",
    "get_input_config_by_name": "(model_config, name)",
    "get_output_config_by_name": "(model_config, name)",
    "using_decoupled_model_transaction_policy": "(model_config)",
    "triton_to_numpy_type": "(data_type)",
    "numpy_to_triton_type": "(data_type)",
    "triton_string_to_numpy": "(triton_type_string)",
    "serialize_byte_tensor": "(input_tensor)",
    "deserialize_bytes_tensor": "(encoded_tensor)",
    "get_model_dir": "()",
    "load_model": "(model_name, config='', files=None)",
    "unload_model": "(model_name, unload_dependents=False)",
    "is_model_ready": "(model_name, model_version='')",
}
CLASSES = {
    "ModelConfig": {"__init__": "(model_config)", "as_dict": "()", "set_max_batch_size": "(max_batch_size)", "set_dynamic_batching": "()",
                    "add_input": "(input)", "add_output": "(output)", "set_model_transaction_policy": "(transaction_policy_dict)"},
    "Tensor": {"__init__": "(name, numpy_array)", "name": "()", "as_numpy": "()", "triton_dtype": "()", "shape": "()", "is_cpu": "()",
               "to_dlpack": "()", "from_dlpack": "(name, tensor)", "__dlpack_device__": "()", "__dlpack__": "(stream=None, **_)"},
    "InferenceRequest": {
        "__init__": "(request_id='', correlation_id=0, inputs=None, requested_output_names=None, model_name=None, model_version=-1, flags=0, "
                    "timeout=0, preferred_memory=None, trace=None, parameters=None)",
        "inputs": "()", "request_id": "()", "correlation_id": "()", "flags": "()", "set_flags": "(flags)", "timeout": "()",
        "parameters": "()", "trace": "()", "exec": "(decoupled=False)", "async_exec": "(decoupled=False)", "requested_output_names": "()",
        "get_response_sender": "()", "is_cancelled": "()", "set_release_flags": "(flags)"},
    "InferenceResponse": {"__init__": "(output_tensors=(), error=None, parameters=None)", "output_tensors": "()", "has_error": "()",
                          "error": "()", "parameters": "()"},
    "InferenceResponseSender": {"send": "(response=None, flags=0)", "is_cancelled": "()"},
    "ResponseIterator": {"__iter__": "()", "__next__": "()", "cancel": "()"},
    "TritonError": {"__init__": "(message, code=__ErrorCode.INTERNAL)", "code": "()", "message": "()"},
    "PreferredMemory": {"__init__": "(preferred_memory_type, preferred_device_id=0)"},
    "InferenceTrace": {"get_context": "()"},
    "Logger": {"log": "(message, level=LogLevel.INFO)", "log_info": "(message)", "log_warn": "(message)", "log_error": "(message)",
               "log_verbose": "(message)"},
    "MetricFamily": {"__init__": "(name=None, description=None, kind=None)", "Metric": "(labels=None, buckets=None)"},
    "Metric": {"increment": "(value)", "set": "(value)", "observe": "(value)", "value": "()"},
    "SharedMemory": {"free_memory": "()"},
}
VALUES = {
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL": 1, "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START": 1, "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END": 2,
    "TRITONSERVER_REQUEST_RELEASE_ALL": 1, "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE": 2,
    "TRITONSERVER_MEMORY_GPU": 0, "TRITONSERVER_MEMORY_CPU": 1,
    "TritonError.UNKNOWN": 0, "TritonError.INTERNAL": 1, "TritonError.NOT_FOUND": 2, "TritonError.INVALID_ARG": 3,
    "TritonError.UNAVAILABLE": 4, "TritonError.UNSUPPORTED": 5, "TritonError.ALREADY_EXISTS": 6, "TritonError.CANCELLED": 7,
    "MetricFamily.COUNTER": 0, "MetricFamily.GAUGE": 1, "MetricFamily.HISTOGRAM": 2,
    "MetricKind.COUNTER": 0, "MetricKind.GAUGE": 1, "MetricKind.HISTOGRAM": 2,
    "Logger.INFO": 0, "Logger.WARNING": 1, "Logger.ERROR": 2, "Logger.VERBOSE": 3,
    "Logger.LogLevel.INFO": 0, "Logger.LogLevel.WARNING": 1, "Logger.LogLevel.ERROR": 2, "Logger.LogLevel.VERBOSE": 3,
    "MemoryType.TRITONSERVER_MEMORY_GPU": 0, "MemoryType.TRITONSERVER_MEMORY_CPU": 1,
}

DESCRIBE = """
import enum, inspect, json, operator, sys
import triton_python_backend_utils as pb_utils

def text(each):
    signature = inspect.signature(each)
    kept = [p.replace(annotation=p.empty, default=enum.Enum.__str__(p.default) if isinstance(p.default, enum.Enum) else p.default)
            for p in signature.parameters.values() if p.name != "self"]
    parts = str(signature.replace(parameters=kept, return_annotation=inspect.Signature.empty))
    return parts.replace("'LogLevel.INFO'", "LogLevel.INFO").replace("'__ErrorCode.INTERNAL'", "__ErrorCode.INTERNAL")

functions, classes, values = json.loads(sys.argv[1])
print(json.dumps([{name: text(getattr(pb_utils, name)) for name in functions},
                  {name: {method: text(getattr(getattr(pb_utils, name), method)) for method in methods} for name, methods in classes.items()},
                  {name: int(operator.attrgetter(name)(pb_utils)) for name in values},
                  issubclass(pb_utils.TritonModelException, Exception)]))
"""


def test_every_name_exists_with_its_arguments():
    asked = json.dumps([list(FUNCTIONS), {name: list(methods) for name, methods in CLASSES.items()}, list(VALUES)])
    answer = subprocess.run([sys.executable, "-c", DESCRIBE, asked], env={**os.environ, "PYTHONPATH": str(WORKER), "PYTHONDONTWRITEBYTECODE": "1"},
                            capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    functions, classes, values, is_exception = json.loads(answer.stdout)
    assert functions == FUNCTIONS
    assert classes == CLASSES
    assert values == VALUES
    assert is_exception


def test_the_type_names_are_those_of_configurations():
    """Models iterate over the table to declare a tensor of every type in auto_complete_config."""
    listing = "import triton_python_backend_utils as pb_utils; print(*pb_utils.TRITON_STRING_TO_NUMPY)"
    answer = subprocess.run([sys.executable, "-c", listing], env={**os.environ, "PYTHONPATH": str(WORKER), "PYTHONDONTWRITEBYTECODE": "1"},
                            capture_output=True, text=True, check=True)
    assert answer.stdout.split() == [f"TYPE_{name}" for name in ("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
                                                                 "FP16", "FP32", "FP64", "STRING")]
