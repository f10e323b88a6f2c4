#!/usr/bin/env python3
"""Asks an ensemble or a `tensorrt_llm_bls` model for the continuation of a text over gRPC. The flags are those of TensorRT-LLM's client of this
name."""
import argparse
import json
import sys

import numpy as np
import tritonclient.grpc as grpcclient
from llm_client import Answers, add_sampling_options, host_and_port, lora_tensors, number_in, print_details, sampling_values, scalars, tensor
from tritonclient.utils import InferenceServerException


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="print what is sent and received")
    parser.add_argument("-u", "--url", default="localhost:8001", help="HOST:PORT or a URL of the server's gRPC port")
    parser.add_argument("-i", "--protocol", default="grpc", choices=["grpc"], help="the protocol (default %(default)s)")
    parser.add_argument("-p", "--prompt", nargs="+", required=True, help="a prompt, several ones, or a JSON list of prompts")
    parser.add_argument("--model-name", default="ensemble", help="the model to ask (default %(default)s)")
    parser.add_argument("-o", "--output-len", type=int, default=100, help="the most output tokens (default %(default)s)")
    parser.add_argument("--stop-words", nargs="+", default=[], help="words that end the output")
    parser.add_argument("--bad-words", nargs="+", default=[], help="words that must not be generated")
    parser.add_argument("--embedding-bias-words", nargs="+", default=[], help="words whose logits are changed")
    parser.add_argument("--embedding-bias-weights", nargs="+", type=float, default=[], help="what is added to their logits")
    parser.add_argument("--overwrite-output-text", action="store_true", help="a response of a stream replaces the text so far (accumulate_tokens)")
    parser.add_argument("--batch-inputs", action="store_true", help="all prompts are rows of one request")
    parser.add_argument("--expected-outputs", nargs="+", default=[], help="an output for each prompt, or a JSON list of them; with or without the prompt")
    parser.add_argument("--check-outputs", action="store_true", help="fail if an output is not the expected one")
    parser.add_argument("--guided-decoding-guide-type", help="json, json_schema, regex or ebnf_grammar")
    parser.add_argument("--guided-decoding-guide", help="the form of the output")
    parser.add_argument("--end-id", type=int, help="the id that ends the output")
    parser.add_argument("--pad-id", type=int, help="accepted; nothing is padded")
    add_sampling_options(parser)
    return parser.parse_args()


def texts_of(arguments):
    """The texts themselves, or those of one JSON list."""
    if len(arguments) == 1:
        try:
            parsed = json.loads(arguments[0])
        except ValueError:
            return arguments
        if isinstance(parsed, list) and all(isinstance(text, str) for text in parsed):
            return parsed
    return arguments


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
    for name in ("guided_decoding_guide_type", "guided_decoding_guide"):
        if getattr(options, name) is not None:
            inputs.append(tensor(name, np.array([[getattr(options, name).encode()]] * rows, object)))
    inputs += lora_tensors(options, rows)
    if options.embedding_bias_weights:
        inputs.append(tensor("embedding_bias_weights", np.array([options.embedding_bias_weights] * rows, np.float32)))
    return inputs


class Texts:
    """The outputs by row of the prompts and by sequence, printed as TensorRT-LLM's client does: the parts of a stream, and then whole texts."""

    def __init__(self, options):
        self._options = options
        self._is_in_parts = options.streaming and options.beam_width == 1
        self._texts = {}

    def add(self, row, sequence, output):
        if self._is_in_parts and sequence == 0:
            print(row, output.flatten(), flush=True)
        for beam, text in enumerate(output.flatten()):
            key = (row, sequence + beam)
            so_far = "" if self._options.overwrite_output_text else self._texts.get(key, "")
            self._texts[key] = so_far + text.decode(errors="replace")

    def of_row(self, row):
        return [text for key, text in sorted(self._texts.items()) if key[0] == row]

    def print(self, rows):
        for row in rows:
            texts = self.of_row(row)
            for sequence, text in enumerate(texts):
                print(text if self._is_in_parts else f"{row}: {text}" if len(texts) == 1 else f"{row} [{sequence}]: {text}", flush=True)


def all_expected(prompts, texts, expected):
    """Whether each output of a prompt is the expected text, with or without the prompt before it."""
    if len(prompts) != len(expected):
        sys.exit(f"--expected-outputs: expected {len(prompts)} texts, one for each prompt, got {len(expected)}")
    rows = [texts.of_row(row) for row in range(len(prompts))]
    return all(row and all(text in (wanted, prompt + wanted) for text in row) for row, prompt, wanted in zip(rows, prompts, expected))


def main():
    options = parse()
    if len(options.embedding_bias_words) != len(options.embedding_bias_weights):
        sys.exit(f"--embedding-bias-weights: expected {len(options.embedding_bias_words)} numbers, one for each word, got "
                 f"{len(options.embedding_bias_weights)}")
    client = grpcclient.InferenceServerClient(host_and_port(options.url), verbose=options.verbose)
    all_prompts = texts_of(options.prompt)
    texts = Texts(options)
    for first, prompts in [(0, all_prompts)] if options.batch_inputs else [(row, [prompt]) for row, prompt in enumerate(all_prompts)]:
        answers = Answers(client)
        answers.ask(options.model_name, inputs_of(options, prompts), options.request_id)
        for result in answers.finish():
            output = result.as_numpy("text_output")
            if output is None:
                continue
            texts.add(first + number_in(result, "batch_index"), number_in(result, "sequence_index"), output)
            if options.return_log_probs and (log_probs := result.as_numpy("output_log_probs")) is not None:
                print(f"output_log_probs.shape: {log_probs.shape}")
                print(f"output_log_probs: {log_probs}")
            print_details(result, options)
        texts.print(range(first, first + len(prompts)))
    return 0 if not options.check_outputs else int(not all_expected(all_prompts, texts, texts_of(options.expected_outputs)))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InferenceServerException as failure:
        sys.exit(f"Received an error from server: {failure}")
