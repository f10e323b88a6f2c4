"""The module that Triton's triton_python_backend_utils gets its classes from. Models import it for `shared_memory`."""
from triton_python_backend_utils import (TRITONSERVER_MEMORY_CPU, TRITONSERVER_MEMORY_GPU, InferenceRequest, InferenceResponse,
                                         InferenceResponseSender, InferenceTrace, Logger, MemoryType, Metric, MetricFamily, MetricKind,
                                         PreferredMemory, ResponseIterator, SharedMemory, Tensor, TritonError, TritonModelException,
                                         is_model_ready, load_model, unload_model)

shared_memory = SharedMemory()
