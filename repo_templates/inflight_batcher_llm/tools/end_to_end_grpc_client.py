#!/usr/bin/env python3
"""Asks an ensemble or a `tensorrt_llm_bls` model for the continuation of a text over gRPC. The flags are those of TensorRT-LLM's client of this
name."""
import argparse
import sys

import numpy as np
import tritonclient.grpc as grpcclient
from llm_client import Answers, add_sampling_options, host_and_port, number_in, print_details, sampling_values, scalars, tensor
from tritonclient.utils import InferenceServerException


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("-u", "--url", default="localhost:8001", help="HOST:PORT or a URL of the server's gRPC port")
    parser.add_argument("-p", "--prompt", nargs="+", required=True)
    parser.add_argument("--model-name", default="ensemble")
    parser.add_argument("-o", "--output-len", type=int, default=100)
    parser.add_argument("--stop-words", nargs="+", default=[])
    parser.add_argument("--bad-words", nargs="+", default=[])
    parser.add_argument("--embedding-bias-words", nargs="+", default=[])
    parser.add_argument("--embedding-bias-weights", nargs="+", type=float, default=[])
    parser.add_argument("--overwrite-output-text", action="store_true", help="a response of a stream replaces the text so far (accumulate_tokens)")
    parser.add_argument("--batch-inputs", action="store_true", help="all prompts are rows of one request")
    parser.add_argument("--expected-outputs", nargs="+", default=[])
    parser.add_argument("--check-outputs", action="store_true")
    parser.add_argument("--end-id", type=int)
    parser.add_argument("--pad-id", type=int)
    add_sampling_options(parser)
    return parser.parse_args()


def inputs_of(options, prompts):
    """Each tensor has one row for each prompt."""
    values = sampling_values(options) | {"max_tokens": (options.output_len, np.int32), "stream": (options.streaming, bool)}
    for name in ("end_id", "pad_id"):
        if getattr(options, name) is not None:
            values[name] = (getattr(options, name), np.int32)
    rows = len(prompts)
    inputs = [tensor("text_input", np.array([[prompt.encode()] for prompt in prompts], object))]
    inputs += [tensor(name, np.array([[value]] * rows, kind)) for name, (value, kind) in values.items()] if rows > 1 else scalars(values)
    # Early releases require words, even if there are none.
    for name in ("stop_words", "bad_words", "embedding_bias_words"):
        words = [word.encode() for word in getattr(options, name)]
        if words or name != "embedding_bias_words":
            inputs.append(tensor(name, np.array([words or [b""]] * rows, object)))
    if options.embedding_bias_weights:
        inputs.append(tensor("embedding_bias_weights", np.array([options.embedding_bias_weights] * rows, np.float32)))
    return inputs


def main():
    options = parse()
    if len(options.embedding_bias_words) != len(options.embedding_bias_weights):
        sys.exit(f"--embedding-bias-weights: expected {len(options.embedding_bias_words)} numbers, one for each word, got "
                 f"{len(options.embedding_bias_weights)}")
    client = grpcclient.InferenceServerClient(host_and_port(options.url), verbose=options.verbose)
    texts = {}
    for first, prompts in [(0, options.prompt)] if options.batch_inputs else [(row, [prompt]) for row, prompt in enumerate(options.prompt)]:
        answers = Answers(client)
        answers.ask(options.model_name, inputs_of(options, prompts), options.request_id)
        for result in answers.finish():
            output = result.as_numpy("text_output")
            if output is None:
                continue
            key = (first + number_in(result, "batch_index"), number_in(result, "sequence_index"))
            for beam, text in enumerate(output.flatten()):
                place = (key[0], key[1] + beam)
                so_far = "" if options.overwrite_output_text else texts.get(place, "")
                texts[place] = so_far + text.decode(errors="replace")
            if options.return_log_probs and (log_probs := result.as_numpy("output_log_probs")) is not None:
                print(f"output_log_probs.shape: {log_probs.shape}")
                print(f"output_log_probs: {log_probs}")
            print_details(result, options)
    for (row, _), text in sorted(texts.items()):
        print(f"{row}: {text}", flush=True)
    if not options.check_outputs:
        return 0
    return int([text for _, text in sorted(texts.items())] != options.expected_outputs)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InferenceServerException as failure:
        sys.exit(f"Received an error from server: {failure}")
