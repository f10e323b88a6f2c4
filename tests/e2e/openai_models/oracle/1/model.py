"""Answers as the last message or the prompt says: a JSON list of pieces, each with outputs; the text "inputs" for all inputs as JSON; the text
"forever" for pieces until the client leaves, which then creates the file that ORACLE_CANCELLED names; a piece with `sleep` waits so many seconds first."""
import json
import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

TYPES = {"sequence_index": np.int32, "num_input_tokens": np.int32, "num_output_tokens": np.int32, "num_cached_tokens": np.int32,
         "output_token_ids": np.int32, "prompt_ids": np.int32, "output_log_probs": np.float32, "top_logprobs": np.float32}


def given(request):
    """Returns the inputs of a request as JSON values."""
    values = {}
    for name in INPUTS:
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        if tensor is not None:
            values[name] = [each.decode() if isinstance(each, bytes) else each for each in tensor.as_numpy().flatten().tolist()]
    return values


INPUTS = ("text_input", "messages", "tools", "chat_template_kwargs", "prompt_token_ids", "max_tokens", "num_return_sequences", "temperature", "top_k",
          "top_p", "seed", "stop_words", "logit_bias_ids", "logit_bias_values", "return_log_probs", "num_top_logprobs", "return_token_ids", "parse_output",
          "stream")


def response(**outputs):
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, np.array(value, TYPES.get(name, object))) for name, value in outputs.items()])


def answer(request):
    sender = request.get_response_sender()
    inputs = given(request)
    prompt = json.loads(inputs["messages"][0])[-1]["content"] if "messages" in inputs else inputs.get("text_input", ["inputs"])[0]
    if isinstance(prompt, list):
        prompt = "".join(part["text"] for part in prompt)
    while prompt == "forever":
        if request.is_cancelled():
            open(os.environ["ORACLE_CANCELLED"], "w").close()
            break
        sender.send(response(text_output=["more "]))
        time.sleep(0.005)
    if prompt == "error":
        sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("prompt of 9 tokens: the model's limit is 8 tokens",
                                                                          pb_utils.TritonError.INVALID_ARG)))
    elif prompt == "inputs":
        sender.send(response(text_output=[json.dumps(inputs)], finish_reason=["stop"]))
    elif prompt != "forever":
        for piece in json.loads(prompt):
            time.sleep(piece.pop("sleep", 0))
            error = piece.pop("error", None)
            sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError(error)) if error else response(**piece))
    sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=answer, args=(request,)).start()
