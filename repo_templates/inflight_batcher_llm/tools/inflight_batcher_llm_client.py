#!/usr/bin/env python3
"""Asks a `tensorrt_llm` model for the continuation of a text or of token ids over gRPC. The flags are those of TensorRT-LLM's client of this name.
Texts become ids by transformers with --tokenizer-dir, if that package is installed, and otherwise by the server's models `preprocessing` and
`postprocessing`."""
import argparse
import sys
import time

import numpy as np
import tritonclient.grpc as grpcclient
from llm_client import Answers, add_sampling_options, host_and_port, lora_tensors, number_in, print_details, sampling_values, scalars, tensor
from tritonclient.utils import InferenceServerException


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="print what is sent and received")
    parser.add_argument("-u", "--url", default="localhost:8001", help="HOST:PORT or a URL of the server's gRPC port")
    parser.add_argument("--text", default="Once upon a time there was", help="the text to continue (default '%(default)s')")
    parser.add_argument("--input-tokens-csv", default="", help="a file with the ids of the prompt, in place of --text")
    parser.add_argument("--output-tokens-csv", default="", help="a file with the expected ids, for --check-output")
    parser.add_argument("--draft-tokens-csv", default="", help="a file with draft ids")
    parser.add_argument("--end-id", type=int, default=-1, help="the id that ends the output")
    parser.add_argument("--pad-id", type=int, default=-1, help="accepted; nothing is padded")
    parser.add_argument("-s", "--ssl", action="store_true", help="connect with TLS")
    parser.add_argument("-t", "--stream-timeout", type=float, help="seconds after which the client gives up")
    parser.add_argument("-r", "--root-certificates", help="a PEM file of root certificates")
    parser.add_argument("-p", "--private-key", help="a PEM file of the client's key")
    parser.add_argument("-x", "--certificate-chain", help="a PEM file of the client's certificates")
    parser.add_argument("-C", "--grpc-compression-algorithm", choices=["deflate", "gzip"], help="how requests are compressed")
    parser.add_argument("-c", "--check-output", action="store_true", help="compare the output with --output-tokens-csv")
    parser.add_argument("--correctness-threshold", type=float, default=1.0, help="the part of the tokens that must be equal (default %(default)s)")
    parser.add_argument("--request-output-len", type=int, default=16, help="the most output tokens (default %(default)s)")
    parser.add_argument("--stop-after-ms", type=int, default=0, help="stop the request early")
    parser.add_argument("--stop-via-request-cancel", action="store_true", help="... by a cancellation in place of a `stop` request")
    parser.add_argument("--tokenizer-dir", "--tokenizer_dir", default="", help="the tokenizer's folder")
    parser.add_argument("--tokenizer-type", "--tokenizer_type", default="auto", help="accepted; the files of the tokenizer decide")
    parser.add_argument("--top-k", type=int, default=1, help="sample from so many tokens (default %(default)s)")
    parser.add_argument("--top-p", type=float, default=0.0, help="nucleus sampling (default %(default)s)")
    parser.add_argument("--requested-outputs", nargs="+", default=[], help="outputs to ask for; by default all")
    parser.add_argument("--model-name", default="tensorrt_llm", help="the model to ask (default %(default)s)")
    parser.add_argument("--prompt-embedding-table-path", default="", help="an .npy file with the prompt tables of tasks: [task, row, hidden size]")
    parser.add_argument("--prompt-task-id", type=int, default=0, help="the task whose table is sent")
    parser.add_argument("--dtype", default="float16", choices=["float16", "float32", "bfloat16"], help="the type of the table's numbers")
    parser.add_argument("--prompt_table_extra_id", type=int, help="identifies the table in the KV cache")
    parser.add_argument("--vocab_size", type=int, help="the first id that stands for a row of the table, for --prompt_table_extra_id")
    parser.add_argument("--lookahead_config", help="[window_size,ngram_size,verification_set_size]")
    parser.add_argument("--return-num-input-tokens", action="store_true", help="ask for the number of prompt tokens")
    parser.add_argument("--return-num-output-tokens", action="store_true", help="ask for the number of output tokens")
    add_sampling_options(parser)
    return parser.parse_args()


def ids_in(path):
    return [int(text) for line in open(path, encoding="utf-8") for text in line.replace(",", " ").split()]


class ServerTokenizer:
    """The server's models `preprocessing` and `postprocessing`."""

    def __init__(self, client):
        self._client = client

    def encode(self, text):
        inputs = [tensor("QUERY", np.array([[text.encode()]], object)), tensor("REQUEST_OUTPUT_LEN", np.array([[1]], np.int32))]
        return self._client.infer("preprocessing", inputs).as_numpy("INPUT_ID").flatten().tolist()

    def decode(self, ids):
        inputs = [tensor("TOKENS_BATCH", np.array([[ids]], np.int32)), tensor("SEQUENCE_LENGTH", np.array([[len(ids)]], np.int32))]
        return self._client.infer("postprocessing", inputs).as_numpy("OUTPUT").flatten()[0].decode(errors="replace")


def tokenizer_of(options, client):
    if options.tokenizer_dir:
        try:
            from transformers import AutoTokenizer  # the only use of the package
            return AutoTokenizer.from_pretrained(options.tokenizer_dir)
        except ImportError:
            print("--tokenizer-dir: transformers is not installed, so the server's preprocessing makes the ids", file=sys.stderr)
    return ServerTokenizer(client)


def prompt_table_inputs(options, prompt):
    """The tensors of the prompt table of one task."""
    if not options.prompt_embedding_table_path:
        return []
    table = np.load(options.prompt_embedding_table_path)[options.prompt_task_id][np.newaxis]
    if options.dtype == "bfloat16":
        made = grpcclient.InferInput("prompt_embedding_table", list(table.shape), "BF16")
        made.set_data_from_numpy(table.astype(np.float32))
    else:
        made = tensor("prompt_embedding_table", table.astype(options.dtype))
    inputs = [made, *scalars({"prompt_vocab_size": (table.shape[1], np.int32)})]
    if options.prompt_table_extra_id is not None:
        if options.vocab_size is None:
            sys.exit("--prompt_table_extra_id: --vocab_size says from which id on it applies, and is missing")
        ids = np.where(np.array([prompt]) >= options.vocab_size, options.prompt_table_extra_id, 0)
        inputs.append(tensor("prompt_table_extra_ids", ids.astype(np.uint64)))
    return inputs


def lookahead_values(options):
    if options.lookahead_config is None:
        return {}
    numbers = [text.strip() for text in options.lookahead_config.strip("[]").split(",")]
    if len(numbers) != 3 or not all(text.isdigit() for text in numbers):
        sys.exit(f"--lookahead_config: expected three numbers such as [7,7,7], got '{options.lookahead_config}'")
    names = ("lookahead_window_size", "lookahead_ngram_size", "lookahead_verification_set_size")
    return {name: (int(number), np.int32) for name, number in zip(names, numbers)}


def inputs_of(options, prompt):
    values = sampling_values(options) | {"input_lengths": (len(prompt), np.int32), "request_output_len": (options.request_output_len, np.int32),
                                         "end_id": (options.end_id, np.int32), "pad_id": (options.pad_id, np.int32),
                                         "runtime_top_k": (options.top_k, np.int32), "runtime_top_p": (options.top_p, np.float32),
                                         "streaming": (options.streaming, bool)}
    values |= lookahead_values(options)
    values |= {name: (True, bool) for name in ("return_num_input_tokens", "return_num_output_tokens") if getattr(options, name)}
    inputs = [tensor("input_ids", np.array([prompt], np.int32)), *scalars(values), *lora_tensors(options), *prompt_table_inputs(options, prompt)]
    if options.draft_tokens_csv:
        inputs.append(tensor("draft_input_ids", np.array([ids_in(options.draft_tokens_csv)], np.int32)))
    return inputs


def stop_inputs():
    return [tensor("input_ids", np.array([[0]], np.int32)),
            *scalars({"input_lengths": (1, np.int32), "request_output_len": (1, np.int32), "stop": (True, bool)})]


def requested_outputs(options):
    return [grpcclient.InferRequestedOutput(name) for name in options.requested_outputs] or None


def ask_streaming(client, options, inputs):
    answers = Answers(client, stream_timeout=options.stream_timeout, compression_algorithm=options.grpc_compression_algorithm)
    answers.ask(options.model_name, inputs, options.request_id, requested_outputs(options))
    if options.stop_after_ms > 0:
        time.sleep(options.stop_after_ms / 1000)
        if not options.stop_via_request_cancel:
            answers.ask(options.model_name, stop_inputs(), options.request_id)
    return answers.finish(options.stop_after_ms > 0 and options.stop_via_request_cancel)


def ask_whole(client, options, inputs):
    """A decoupled model is asked over a stream, because it may send a response for each sequence."""
    if client.get_model_config(options.model_name).config.model_transaction_policy.decoupled:
        return ask_streaming(client, options, inputs)
    done = []
    call = client.async_infer(options.model_name, inputs, callback=lambda result, error: done.append(error if error is not None else result),
                              request_id=options.request_id, outputs=requested_outputs(options), client_timeout=options.stream_timeout,
                              compression_algorithm=options.grpc_compression_algorithm)
    if options.stop_after_ms > 0:
        time.sleep(options.stop_after_ms / 1000)
        if options.stop_via_request_cancel:
            call.cancel()
        else:
            client.infer(options.model_name, stop_inputs(), request_id=options.request_id)
    while not done:
        time.sleep(0.005)
    if not isinstance(done[0], Exception):
        print("Got completed request", flush=True)
        return done
    if "CANCELLED" not in str(done[0].status()):
        raise done[0]
    print("Request is cancelled")
    return []


def collect(results):
    """The ids of each sequence, in the order of the sequences."""
    sequences = {}
    for result in results:
        ids = result.as_numpy("output_ids")
        if ids is None:
            print("Got cancellation response from server")
            continue
        lengths = result.as_numpy("sequence_length").flatten()
        for beam, (row, length) in enumerate(zip(ids[0], lengths)):
            sequences.setdefault(number_in(result, "sequence_index") + beam, []).extend(row[:length].tolist())
    return [sequences[index] for index in sorted(sequences)]


def matches(options, ids):
    expected = ids_in(options.output_tokens_csv)
    rate = sum(one == other for one, other in zip(ids, expected)) / max(1, len(expected))
    passed = rate >= options.correctness_threshold
    print(f"Output token matching rate: {rate}")
    print("\n=====\n" + ("PASS!" if passed else "FAIL!") + "\n=====")
    return passed


def main():
    options = parse()
    certificates = {name: getattr(options, name) for name in ("root_certificates", "private_key", "certificate_chain")}
    client = grpcclient.InferenceServerClient(host_and_port(options.url), verbose=options.verbose, ssl=options.ssl, **certificates)
    tokenizer = tokenizer_of(options, client)
    prompt = ids_in(options.input_tokens_csv) if options.input_tokens_csv else list(tokenizer.encode(options.text))
    print("Using pad_id: ", options.pad_id)
    print("Using end_id: ", options.end_id)
    print("Input sequence: ", prompt)
    results = (ask_streaming if options.streaming else ask_whole)(client, options, inputs_of(options, prompt))
    sequences = collect(results)
    print(f"Input: {options.text if not options.input_tokens_csv else tokenizer.decode(prompt)}")
    for index, ids in enumerate(sequences):
        has_prompt = not options.streaming and not options.exclude_input_in_output and ids[:len(prompt)] == prompt
        output = ids[len(prompt):] if has_prompt else ids
        print(f"Output beam {index}: {tokenizer.decode(output)}")
        print("Output sequence: ", output)
    for result in results:
        if options.return_log_probs and result.as_numpy("output_log_probs") is not None:
            print("cum_log_probs:", result.as_numpy("cum_log_probs"))
            print("output_log_probs:", result.as_numpy("output_log_probs"))
        for name in ("num_input_tokens", "num_output_tokens"):
            if getattr(options, "return_" + name):
                print(f"{name}: {number_in(result, name)}")
        print_details(result, options)
    return 0 if not options.check_output else int(not sequences or not matches(options, sequences[0]))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InferenceServerException as failure:
        sys.exit(f"Received an error from server: {failure}")
