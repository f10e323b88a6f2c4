"""What the clients of `inflight_batcher_llm` models share: options, tensors and streams. Needs `tritonclient[grpc]` from PyPI."""
import pathlib
import queue

import numpy as np
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

PERFORMANCE = ("kv_cache_alloc_new_blocks", "kv_cache_reused_blocks", "kv_cache_alloc_total_blocks", "arrival_time_ns", "first_scheduled_time_ns",
               "first_token_time_ns", "last_token_time_ns", "acceptance_rate", "total_accepted_draft_tokens", "total_draft_tokens")
DATATYPES = {"bool": "BOOL", "int32": "INT32", "uint64": "UINT64", "float32": "FP32", "float16": "FP16", "object": "BYTES"}


def host_and_port(url):
    """The address of a gRPC server from `host:port` or a URL."""
    return url.split("://", 1)[-1].rstrip("/")


def add_sampling_options(parser):
    parser.add_argument("-S", "--streaming", action="store_true", help="receive the output in parts")
    parser.add_argument("-n", "--num-return-sequences", type=int, help="number of outputs")
    parser.add_argument("-b", "--beam-width", type=int, default=1, help="beams (default %(default)s)")
    parser.add_argument("--temperature", type=float, default=1.0, help="temperature of sampling (default %(default)s)")
    parser.add_argument("--repetition-penalty", type=float, help="penalty of repeated tokens")
    parser.add_argument("--presence-penalty", type=float, help="penalty of tokens that have occurred")
    parser.add_argument("--frequency-penalty", type=float, help="penalty of tokens by how often they have occurred")
    parser.add_argument("--request-id", "--request_id", default="", help="identifies the request, for example to stop it")
    parser.add_argument("--lora-task-id", type=int, help="the number of a LoRA adapter; 0: none")
    parser.add_argument("--lora-path", default="", help="a folder with the adapter's model.lora_weights.npy and model.lora_config.npy")
    parser.add_argument("--exclude-input-in-output", action="store_true", help="the output does not begin with the prompt")
    parser.add_argument("--return-log-probs", action="store_true", help="ask for log probabilities")
    parser.add_argument("--return-context-logits", action="store_true", help="ask for the prompt's logits")
    parser.add_argument("--return-generation-logits", action="store_true", help="ask for the output's logits")
    parser.add_argument("--return-kv-cache-reuse-stats", action="store_true", help="ask for figures of the prefix cache")
    parser.add_argument("--return-perf-metrics", action="store_true", help="print times, figures of the KV cache and of draft tokens")


def sampling_values(options):
    """The tensors of add_sampling_options, without those that are not set: {name: (value, type)}."""
    values = {"num_return_sequences": (options.num_return_sequences, np.int32), "beam_width": (options.beam_width, np.int32),
              "temperature": (options.temperature, np.float32), "repetition_penalty": (options.repetition_penalty, np.float32),
              "presence_penalty": (options.presence_penalty, np.float32), "frequency_penalty": (options.frequency_penalty, np.float32),
              "lora_task_id": (options.lora_task_id or None, np.uint64)}
    flags = ("return_log_probs", "return_context_logits", "return_generation_logits", "return_kv_cache_reuse_stats", "return_perf_metrics",
             "exclude_input_in_output")
    values |= {name: (True, bool) for name in flags if getattr(options, name)}
    return {name: (value, kind) for name, (value, kind) in values.items() if value is not None}


def tensor(name, array, module=grpcclient):
    """`module` is tritonclient.grpc or tritonclient.http."""
    made = module.InferInput(name, list(array.shape), DATATYPES[str(array.dtype)])
    made.set_data_from_numpy(array)
    return made


def lora_tensors(options, rows=1):
    """The tensors of the adapter in --lora-path."""
    if not options.lora_path:
        return []
    folder = pathlib.Path(options.lora_path)
    config = folder / "model.lora_config.npy"
    arrays = {"lora_weights": np.load(folder / "model.lora_weights.npy"),
              "lora_config": np.load(config if config.exists() else folder / "model.lora_keys.npy")}
    return [tensor(name, np.repeat(array.reshape(1, *array.shape[-2:]), rows, axis=0)) for name, array in arrays.items()]


def scalars(values):
    """Tensors of one value a row, for one row."""
    return [tensor(name, np.array([[value]], kind)) for name, (value, kind) in values.items()]


class Answers:
    """The responses of one stream. `settings` are those of start_stream."""

    def __init__(self, client, **settings):
        self._client = client
        self._queue = queue.Queue()
        client.start_stream(callback=lambda result, error: self._queue.put(error if error is not None else result), **settings)

    def ask(self, model, inputs, request_id, outputs=None):
        try:
            self._client.async_stream_infer(model, inputs, request_id=request_id, outputs=outputs)
        except InferenceServerException:
            self.finish()  # raises the error that ended the stream
            raise

    def finish(self, cancels=False):
        """Waits for the end of all requests, unless they are cancelled, and returns the responses. An error of the server is raised."""
        self._client.stop_stream(cancel_requests=cancels)
        results = []
        while not self._queue.empty():
            result = self._queue.get()
            if isinstance(result, Exception):
                if "CANCELLED" in str(result.status()):
                    print("Request is cancelled")
                    break
                raise result
            results.append(result)
        return results


def number_in(result, name):
    """The number in an output, 0 if the response does not have it."""
    array = result.as_numpy(name)
    return 0 if array is None else int(array.flatten()[0])


def print_details(result, options):
    for name in ("context_logits", "generation_logits"):
        if getattr(options, "return_" + name) and (array := result.as_numpy(name)) is not None:
            print(f"{name}.shape: {array.shape}")
            print(f"{name}: {array}")
    for name in PERFORMANCE if options.return_perf_metrics else PERFORMANCE[:3] if options.return_kv_cache_reuse_stats else ():
        if (array := result.as_numpy(name)) is not None:
            print(f"{name}: {array.flatten()[0]}")
