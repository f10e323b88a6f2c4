#!/usr/bin/env python3
"""Measures a `tensorrt_llm` model with the prompts of a data set. The flags are those of TensorRT-LLM's tool of this name (release 0.5);
benchmark_core_model.py does the work and describes them."""
import argparse
import pathlib
import subprocess
import sys

PASSED_ON = ("verbose", "url", "protocol", "concurrency", "max_input_len", "dump_perfetto_trace", "op_stats_csv")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="print what is sent and received")
    parser.add_argument("-u", "--url", help="the server: HOST:PORT or a URL")
    parser.add_argument("-i", "--protocol", default="http", choices=["http", "grpc"], help="the protocol (default %(default)s)")
    parser.add_argument("-c", "--concurrency", type=int, default=128, help="requests at a time (default %(default)s)")
    parser.add_argument("--max_input_len", type=int, required=True, help="the most tokens of a prompt")
    parser.add_argument("--dataset", required=True, help="a JSON file of prompts")
    parser.add_argument("--tokenizer_dir", required=True, help="the tokenizer's folder")
    parser.add_argument("--tokenizer_type", default="auto", help="accepted; the tokenizer's files say its type")
    parser.add_argument("--time_bet_reqs", type=float, nargs="+", default=[0], help="seconds between requests; of several the mean is taken")
    parser.add_argument("--dump_perfetto_trace", action="store_true", help="write a trace for Perfetto")
    parser.add_argument("--op_stats_csv", help="a CSV file that gets a row of figures")
    parser.add_argument("--op_tokens_per_word", type=float, default=1.3, help="output tokens for each word of the expected answer (default %(default)s)")
    options = parser.parse_args()
    command = [sys.executable, str(pathlib.Path(__file__).with_name("benchmark_core_model.py"))]
    for name in PASSED_ON:
        value = getattr(options, name)
        if value is True:
            command.append("--" + name)
        elif value not in (None, False):
            command += ["--" + name, str(value)]
    seconds = sum(options.time_bet_reqs) / len(options.time_bet_reqs)
    if seconds > 0:
        command += ["--request-rate", str(1 / seconds), "--time-delay-dist", "constant"]
    command += ["dataset", "--dataset", options.dataset, "--tokenizer_dir", options.tokenizer_dir, "--op_tokens_per_word", str(options.op_tokens_per_word)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
