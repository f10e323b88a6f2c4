"""Requests through ModelStreamInfer with the tensors of the `tensorrt_llm` model. Requires the package tritonclient[grpc]."""
import time

import numpy as np
import tritonclient.grpc as sync
import tritonclient.grpc.aio as grpc
from tritonclient.utils import InferenceServerException

from workload import prompt_ids

clients: "dict[str, object]" = {}  # address -> client of this process; all streams share its connection


def inputs_of(args, index, entry):
    ids = np.array([prompt_ids(args, index, entry[1])], np.int32)
    values = {"input_ids": ids, "input_lengths": np.array([[entry[1]]], np.int32), "request_output_len": np.array([[entry[2]]], np.int32),
              "streaming": np.array([[True]]), "end_id": np.array([[-1]], np.int32)}
    if args.top_p:
        values |= {"runtime_top_p": np.array([[args.top_p]], np.float32), "temperature": np.array([[args.temperature]], np.float32)}
    tensors = []
    for name, value in values.items():
        value = value if args.batched else value[0]
        tensors.append(sync.InferInput(name, list(value.shape), {"int32": "INT32", "float32": "FP32", "bool": "BOOL"}[str(value.dtype)]))
        tensors[-1].set_data_from_numpy(value)
    return tensors


async def send(args, index, entry):
    address = args.url.split("://")[-1]
    if address not in clients:
        clients[address] = grpc.InferenceServerClient(address)
    request = {"model_name": args.model, "inputs": inputs_of(args, index, entry), "enable_empty_final_response": True}
    record = {"prompt": entry[1], "output": entry[2], "times": [], "error": None, "sent": time.monotonic()}

    async def requests():
        yield request
    try:
        async for result, error in clients[address].stream_infer(requests()):
            if error is not None:
                raise error
            ids = result.as_numpy("output_ids")
            record["times"] += [time.monotonic()] * (0 if ids is None else ids.size)
            final = result.get_response().parameters.get("triton_final_response")
            if final is not None and final.bool_param:
                break
    except InferenceServerException as error:
        record["error"] = str(error)[:300]
    record["ended"] = time.monotonic()
    return record
