"""Prints generated texts while they stream: client_grpc.py --model mistral_decoupled --prompt "My name is|The sun is" [--url localhost:8001]"""
import argparse
import queue

import numpy as np
import tritonclient.grpc as grpcclient

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", required=True)
parser.add_argument("--prompt", required=True, help="several are separated by |")
parser.add_argument("--url", default="localhost:8001", help="host:port, or a URL")
parser.add_argument("--max-tokens", type=int)
parser.add_argument("--timeout", type=float, default=6000)
arguments = parser.parse_args()
scheme, _, server = arguments.url.rpartition("://")
server = server.rstrip("/")

prompts = np.array([each.encode() for each in arguments.prompt.split("|")], object)
inputs = [grpcclient.InferInput("prompt", prompts.shape, "BYTES")]
inputs[0].set_data_from_numpy(prompts)
if arguments.max_tokens:
    inputs.append(grpcclient.InferInput("max_tokens", [1], "INT32"))
    inputs[-1].set_data_from_numpy(np.array([arguments.max_tokens], np.int32))

arrived: "queue.Queue" = queue.Queue()
texts = [b""] * len(prompts)
with grpcclient.InferenceServerClient(server, ssl=scheme in ("https", "grpcs")) as client:
    client.start_stream(lambda result, error: arrived.put((result, error)), stream_timeout=arguments.timeout)
    client.async_stream_infer(arguments.model, inputs, enable_empty_final_response=True)
    while True:
        result, error = arrived.get()
        if error is not None:
            raise SystemExit(f"the server says: {error}")
        pieces = result.as_numpy("generation")
        if pieces is not None:
            texts = [text + piece for text, piece in zip(texts, pieces.ravel())]
            print([text.decode(errors="replace") for text in texts], flush=True)
        if result.get_response().parameters["triton_final_response"].bool_param:
            break
