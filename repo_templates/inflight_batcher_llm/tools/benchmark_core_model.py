#!/usr/bin/env python3
"""Measures a `tensorrt_llm` model: sends prompts, waits for all outputs and prints latencies and rates. The flags are those of TensorRT-LLM's tool of
this name. Where lengths are drawn, the ids of the prompts are drawn, too, from the smallest ones, which every vocabulary has. The texts of a data set
become ids by transformers, or by the server's model `preprocessing` where that package is not installed."""
import argparse
import csv
import importlib
import json
import math
import queue
import sys
import time

import numpy as np
from llm_client import host_and_port, tensor
from tritonclient.utils import InferenceServerException

SEED = 420
NUM_WARM_UPS = 10
WARM_UP_TOKENS = 100
# Ranges of lengths and how many requests have a length in each.
HISTOGRAMS = {"example_ip": (((151, 175), 220), ((176, 200), 225), ((201, 225), 150), ((226, 250), 150), ((251, 275), 140)),
              "example_op": (((6, 10), 76), ((11, 15), 210), ((16, 20), 174), ((21, 25), 130), ((26, 30), 152))}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="print what is sent and received")
    parser.add_argument("-u", "--url", help="HOST:PORT or a URL (default: localhost:8000 with http, localhost:8001 with grpc)")
    parser.add_argument("-i", "--protocol", default="http", choices=["http", "grpc"], help="the protocol (default %(default)s)")
    parser.add_argument("--decoupled", action="store_true", help="the model is decoupled: ask over a gRPC stream")
    parser.add_argument("-t", "--stream-timeout", type=float, help="seconds")
    parser.add_argument("--tensorrt-llm-model-name", action="append", default=[], help="(default: tensorrt_llm); several are asked in turn")
    parser.add_argument("-c", "--concurrency", type=int, default=128, help="connections with http")
    parser.add_argument("--max-input-len", "--max_input_len", type=int, required=True, help="longer prompts are left out")
    parser.add_argument("--request-rate", type=float, default=-1, help="requests a second; -1: all at once")
    parser.add_argument("--time-delay-dist", default="exponential_dist", choices=["constant", "exponential_dist"], help="of the times between requests")
    parser.add_argument("--dump-perfetto-trace", "--dump_perfetto_trace", action="store_true", help="write the requests to prfetto_dump.json")
    parser.add_argument("--op-stats-csv", "--op_stats_csv", help="a file to which a row of figures is added")
    parser.add_argument("--exclude-input-in-output", action="store_true", help="the outputs do not begin with the prompt")
    parser.add_argument("--num-requests", type=int, default=30000, help="the number of requests (default %(default)s)")
    parser.add_argument("--check-perf-json", help="a file with expected figures: {KEY: {FIGURE: value}}")
    parser.add_argument("--check-perf-key", help="the entry of --check-perf-json")
    parser.add_argument("--check-perf-atol", type=float, default=50, help="the absolute difference that passes (default %(default)s)")
    parser.add_argument("--check-perf-rtol", type=float, default=0.05, help="the relative difference that passes (default %(default)s)")
    workloads = parser.add_subparsers(dest="workload", required=True)
    dataset = workloads.add_parser("dataset", help="prompts of a JSON file: a list of objects with input, instruction and output")
    dataset.add_argument("--dataset", required=True, help="a JSON file of prompts")
    dataset.add_argument("--tokenizer-dir", "--tokenizer_dir", required=True, help="the tokenizer's folder")
    dataset.add_argument("--tokenizer-type", "--tokenizer_type", default="auto", help="accepted; the files of the tokenizer decide")
    dataset.add_argument("--op-tokens-per-word", "--op_tokens_per_word", type=float, default=1.3, help="output tokens for each word of the expected answer (default %(default)s)")
    normal = workloads.add_parser("token-norm-dist", help="normally distributed lengths")
    for name in ("--input-mean", "--input-stdev", "--output-mean", "--output-stdev"):
        normal.add_argument(name, type=int, required=True)
    histogram = workloads.add_parser("token-from-histogram", help="lengths of a built-in histogram")
    histogram.add_argument("--histogram-key", required=True, choices=sorted({name.rsplit("_", 1)[0] for name in HISTOGRAMS}), help="which distribution of lengths")
    options = parser.parse_args()
    if options.decoupled and options.protocol != "grpc":
        parser.error("--decoupled: expected --protocol grpc, got http")
    if options.request_rate != -1 and options.request_rate <= 0:
        parser.error(f"--request-rate: expected -1 or more than 0, got {options.request_rate}")
    options.tensorrt_llm_model_name = options.tensorrt_llm_model_name or ["tensorrt_llm"]
    return options


class Workload:
    """The prompts, how long the outputs shall be, and the ids that pad and end them."""

    def __init__(self, prompts, output_lengths, pad_id=0, end_id=1):
        self.prompts = prompts
        self.output_lengths = output_lengths
        self.pad_id = pad_id
        self.end_id = end_id


class Tokenizer:
    """Turns texts into ids, and knows the ids that pad and end an output."""

    def __init__(self, options, client):
        self._client = client
        self.pad_id = self.end_id = -1
        try:
            from transformers import AutoTokenizer  # the only use of the package
        except ImportError:
            self._loaded = None
            return
        self._loaded = AutoTokenizer.from_pretrained(options.tokenizer_dir)
        self.end_id = self._loaded.eos_token_id if self._loaded.eos_token_id is not None else -1
        self.pad_id = self._loaded.pad_token_id if self._loaded.pad_token_id is not None else self.end_id

    def encode(self, text):
        if self._loaded is not None:
            return self._loaded.encode(text)
        result = self._client.preprocess(text)
        self.pad_id, self.end_id = (int(result.as_numpy(name).flatten()[0]) for name in ("OUT_PAD_ID", "OUT_END_ID"))
        return result.as_numpy("INPUT_ID").flatten().tolist()


def workload_of_dataset(options, client):
    tokenizer = Tokenizer(options, client)
    prompts, lengths, tokens_per_word = [], [], []
    with open(options.dataset, encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        if len(prompts) == options.num_requests:
            break
        text = f"{entry['input']} {entry['instruction']}"
        ids = tokenizer.encode(text)
        if len(ids) > options.max_input_len:
            continue
        prompts.append(ids)
        lengths.append(max(1, int(len(entry["output"].split(" ")) * options.op_tokens_per_word)))
        tokens_per_word.append(len(ids) / max(1, len(text.split())))
    if prompts:
        print("Tokenizer: Tokens per word = ", round(float(np.mean(tokens_per_word)), 3))
    return Workload(prompts, lengths, tokenizer.pad_id, tokenizer.end_id)


def normal_lengths(random, mean, deviation, count):
    return [max(1, math.ceil(number)) for number in random.normal(mean, deviation, count)]


def histogram_lengths(random, name):
    lengths = [int(number) for (low, high), count in HISTOGRAMS[name] for number in random.integers(low, high + 1, count)]
    random.shuffle(lengths)
    return lengths


def make_workload(options, client):
    if options.workload == "dataset":
        return workload_of_dataset(options, client)
    random = np.random.default_rng(SEED)
    if options.workload == "token-norm-dist":
        inputs = normal_lengths(random, options.input_mean, options.input_stdev, options.num_requests)
        outputs = normal_lengths(random, options.output_mean, options.output_stdev, options.num_requests)
    else:
        inputs = histogram_lengths(random, options.histogram_key + "_ip")[:options.num_requests]
        outputs = histogram_lengths(random, options.histogram_key + "_op")
    lengths = [pair for pair in zip(inputs, outputs) if pair[0] <= options.max_input_len]
    return Workload([random.integers(2, 256, length).tolist() for length, _ in lengths], [length for _, length in lengths])


def delays(options, count):
    """Seconds before each request."""
    mean = 0 if options.request_rate == -1 else 1 / options.request_rate
    return [mean] * count if options.time_delay_dist == "constant" else np.random.default_rng(SEED).exponential(mean, count).tolist()


class Record:
    """One request: when it was sent and answered, in seconds, and its numbers of tokens."""

    def __init__(self, num_input_tokens):
        self.num_input_tokens = num_input_tokens
        self.num_output_tokens = 0
        self.begin = self.end = 0.0

    def latency_ms(self):
        return (self.end - self.begin) * 1000


class Client:
    """Sends requests and hands over their answers in the order in which they arrive."""

    def __init__(self, options):
        self._options = options
        self._module = importlib.import_module(f"tritonclient.{options.protocol}")
        address = host_and_port(options.url or ("localhost:8000" if options.protocol == "http" else "localhost:8001"))
        more = {"concurrency": options.concurrency} if options.protocol == "http" else {}
        self._client = self._module.InferenceServerClient(address, verbose=options.verbose, **more)
        self._is_streaming = options.decoupled or self._has_decoupled_model()
        self._queue = queue.Queue()
        self._waiting = []  # (number, handle) of requests over HTTP

    def _has_decoupled_model(self):
        """Over gRPC such models are asked over a stream, also without --decoupled."""
        if self._options.protocol != "grpc":
            return False
        configs = [self._client.get_model_config(name).config for name in self._options.tensorrt_llm_model_name]
        return any(config.model_transaction_policy.decoupled for config in configs)

    def preprocess(self, text):
        inputs = [tensor("QUERY", np.array([[text.encode()]], object), self._module), tensor("REQUEST_OUTPUT_LEN", np.array([[1]], np.int32), self._module)]
        return self._client.infer("preprocessing", inputs)

    def _inputs(self, workload, prompt, num_tokens):
        values = {"input_lengths": len(prompt), "request_output_len": num_tokens, "pad_id": workload.pad_id, "end_id": workload.end_id}
        return [tensor("input_ids", np.array([prompt], np.int32), self._module),
                *(tensor(name, np.array([[value]], np.int32), self._module) for name, value in values.items())]

    def _took(self, number):
        return lambda result, error: self._queue.put((number if number is not None else int(request_id(result, error)), result, error, time.perf_counter()))

    def open(self):
        if self._is_streaming:
            self._client.start_stream(callback=self._took(None), stream_timeout=self._options.stream_timeout)

    def send(self, number, workload, prompt, num_tokens):
        models = self._options.tensorrt_llm_model_name
        model, inputs = models[number % len(models)], self._inputs(workload, prompt, num_tokens)
        if self._is_streaming:
            self._client.async_stream_infer(model, inputs, request_id=str(number))
        elif self._options.protocol == "grpc":
            self._client.async_infer(model, inputs, callback=self._took(number), request_id=str(number))
        else:
            self._waiting.append((number, self._client.async_infer(model, inputs, request_id=str(number))))

    def close(self, count):
        """Yields (number, result, time) of each response of `count` requests."""
        if self._is_streaming:
            self._client.stop_stream()
            count = self._queue.qsize()
        for number, handle in self._waiting:
            yield number, handle.get_result(), time.perf_counter()
        for _ in range(count if self._options.protocol == "grpc" else 0):
            number, result, error, when = self._queue.get()
            if error is not None:
                raise error
            yield number, result, when
        self._waiting.clear()


def request_id(result, error):
    return 0 if error is not None else result.get_response().id


def run(client, workload, waits):
    client.open()
    records = []
    for number, (prompt, length, wait) in enumerate(zip(workload.prompts, workload.output_lengths, waits)):
        time.sleep(wait)
        records.append(Record(len(prompt)))
        records[-1].begin = time.perf_counter()
        client.send(number, workload, prompt, length)
    for number, result, when in client.close(len(records)):
        records[number].end = when
        if (ids := result.as_numpy("output_ids")) is not None:
            records[number].num_output_tokens += ids.shape[-1]
    return records


def figures(records):
    latencies = sorted(record.latency_ms() for record in records)
    seconds = max(record.end for record in records) - min(record.begin for record in records)
    num_output_tokens = sum(record.num_output_tokens for record in records)
    p99, p90 = (latencies[math.ceil(len(latencies) * part) - 1] for part in (0.99, 0.9))
    return {"Requests/Sec": len(records) / seconds, "OP tokens/sec": num_output_tokens / seconds, "Avg. latency (ms)": float(np.mean(latencies)),
            "P99 latency (ms)": p99, "P90 latency (ms)": p90,
            "Avg. Input tokens per request": float(np.mean([record.num_input_tokens for record in records])),
            "Avg. Output tokens per request": num_output_tokens / len(records),
            "Avg. InFlight requests": sum(latencies) / 1000 / seconds, "Total latency (ms)": seconds * 1000, "Total requests": len(records)}


def print_table(values):
    names = {"Avg. Input tokens per request": "Avg. IP tokens per request", "Avg. Output tokens per request": "Avg. OP tokens per request"}
    rows = [("Stat", "Value")] + [(names.get(name, name), f"{value:.2f}") for name, value in values.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    line = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    print(line)
    for number, row in enumerate(rows):
        print("|" + "|".join(f" {text:^{width}} " for text, width in zip(row, widths)) + "|")
        if number == 0:
            print(line)
    print(line)


def add_row(path, values):
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(values))
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(values)


def dump_trace(records):
    first = min(record.begin for record in records)
    events = [{"name": f"req_{number}", "cat": "batch", "ph": "X", "ts": (record.begin - first) * 1e6, "dur": (record.end - record.begin) * 1e6, "pid": "1",
               "args": {"isl": record.num_input_tokens, "osl": record.num_output_tokens}} for number, record in enumerate(records)]
    with open("prfetto_dump.json", "w", encoding="utf-8") as file:
        json.dump(events, file, indent=4)


def check(options, values):
    """Compares the figures with the expected ones. Returns the number of those that differ."""
    with open(options.check_perf_json, encoding="utf-8") as file:
        expected = json.load(file).get(options.check_perf_key)
    if not expected:
        sys.exit(f"[ERROR] There are no reference numbers for {options.check_perf_key} in {options.check_perf_json}.")
    num_faults = 0
    for name, reference in expected.items():
        if name not in values:
            sys.exit(f"[ERROR] Data for '{name}' was not found.")
        if abs(values[name] - reference) > options.check_perf_atol + options.check_perf_rtol * abs(reference):
            num_faults += 1
            print(f"'{name}' check failed: expected {reference}, got {values[name]}", file=sys.stderr)
    return num_faults


def main():
    options = parse()
    print(options.workload)
    client = Client(options)
    workload = make_workload(options, client)
    if not workload.prompts:
        sys.exit(f"no prompt has at most {options.max_input_len} tokens (--max-input-len)")
    print("[INFO] Warm up for benchmarking.")
    warm_up = Workload(workload.prompts[:1] * NUM_WARM_UPS, [WARM_UP_TOKENS] * NUM_WARM_UPS, workload.pad_id, workload.end_id)
    run(client, warm_up, [0] * NUM_WARM_UPS)
    print(f"[INFO] Start benchmarking on {len(workload.prompts)} prompts.")
    records = run(client, workload, delays(options, len(workload.prompts)))
    for record in records if not options.exclude_input_in_output else []:
        record.num_output_tokens -= record.num_input_tokens
    values = figures(records)
    print(f"[INFO] Total Latency: {round(values['Total latency (ms)'], 3)} ms")
    print(f"[INFO] Total request latencies: {round(sum(record.latency_ms() for record in records), 3)} ms")
    print_table(values)
    if options.op_stats_csv:
        add_row(options.op_stats_csv, values)
    if options.dump_perfetto_trace:
        dump_trace(records)
    print("Expected op tokens", round(float(np.mean(workload.output_lengths)), 3))
    return 0 if not options.check_perf_json else int(check(options, values) > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (InferenceServerException, OSError, KeyError, json.JSONDecodeError) as failure:
        sys.exit(f"Failed receiving responses: {failure}")
