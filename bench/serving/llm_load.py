#!/usr/bin/env python3
"""Generates load on an LLM endpoint and reports time to first token, time between tokens, throughput and goodput.

    llm_load.py --url http://127.0.0.1:8000 --model tensorrt_llm --lengths 512x256 --count 64 --concurrency 8
    llm_load.py ... --lengths 503x256 --count 512 --burst
    llm_load.py ... --trace azure_2023_conv.csv --count 1000 --rate 20 --save run.json
    llm_load.py ... --trace mooncake_conversation.jsonl --count 500 --trace-times 2     (twice as fast as recorded)
    llm_load.py --api c --program build/release/bench/serving/llm_inprocess --repository models --backends dist/backends --count 64

--api selects the endpoint: `kserve` is generate_stream with the tensors of the `tensorrt_llm` model; `kserve-grpc` is the same over
ModelStreamInfer (--url host:port; requires the package tritonclient); `kserve-text` is generate_stream with text_input (an ensemble); `openai`
and `openai-chat` are /v1/completions and /v1/chat/completions of any server; `c` uses no server but a program that loads the repository into its
own process through the C API. Prompts are random ids (or words), or the texts of --prompts. Arrivals: --concurrency N (a new request when one
ends), --rate R (Poisson), --burst (all at once) or --trace-times. Several client processes send, so that the clients are not the bottleneck."""
import argparse
import asyncio
import json
import multiprocessing
import pathlib
import subprocess
import sys
import time

from endpoints import HTTP, send
from report import Machine, summary
from workload import workload


async def drive(args, start, assigned):
    await asyncio.sleep(max(0.0, start - time.monotonic()))
    if args.concurrency:
        queue = list(reversed(assigned))
        records = []

        async def worker():
            while queue:
                records.append(await send(args, *queue.pop()))
        share = max(1, args.concurrency // args.processes)
        await asyncio.gather(*[worker() for _ in range(share)])
        return records

    async def send_at_start_time(index, entry):
        await asyncio.sleep(max(0.0, start + entry[0] - time.monotonic()))
        return await send(args, index, entry)
    return await asyncio.gather(*[send_at_start_time(index, entry) for index, entry in assigned])


def client(args, start, assigned, results):
    results.put(asyncio.run(drive(args, start, assigned)))


def run_over_network(args, entries):
    results = multiprocessing.Queue()
    start = time.monotonic() + 0.5
    entries = list(enumerate(entries))
    clients = [multiprocessing.Process(target=client, args=(args, start, entries[i::args.processes], results)) for i in range(args.processes)]
    for process in clients:
        process.start()
    records = [record for _ in clients for record in results.get()]
    for process in clients:
        process.join()
    return records


def run_in_process(args, entries):
    """Runs args.program, which reads one request per line and writes one JSON record per line."""
    command = [args.program, f"--repository={args.repository}", f"--backends={args.backends}", f"--model={args.model}", f"--vocab={args.vocab}",
               f"--seed={args.seed}", f"--concurrency={args.concurrency}", f"--top-p={args.top_p}", f"--temperature={args.temperature}"]
    lines = "".join(f"{0.0 if at is None else at} {prompt} {output}\n" for at, prompt, output, _ in entries)
    done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{args.program} ended with {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--api", choices=[*HTTP, "kserve-grpc", "c"], default="kserve")
    parser.add_argument("--model", default="tensorrt_llm")
    parser.add_argument("--lengths", default="512x256", help="PROMPTxOUTPUT tokens")
    parser.add_argument("--trace", help="lengths from an Azure (.csv) or Mooncake (.jsonl) trace")
    parser.add_argument("--prompts", help="file of prompt texts, one JSON object with `prompt` per line; --lengths or --trace sets output lengths")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second")
    parser.add_argument("--burst", action="store_true")
    parser.add_argument("--trace-times", type=float, default=0.0, help="use the arrival times of the trace, accelerated by this factor")
    parser.add_argument("--max-prompt", type=int, default=1 << 30)
    parser.add_argument("--max-output", type=int, default=1 << 30)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--top-p", type=float, default=0.0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--ignore-eos", action=argparse.BooleanOptionalAction, default=True,
                        help="--api openai: sends ignore_eos, which vLLM and SGLang understand")
    parser.add_argument("--api-key", default="")
    parser.add_argument("--batched", action="store_true", help="--api kserve-grpc: the model has a batch dimension")
    parser.add_argument("--slo-ttft", type=float, default=500.0, help="ms")
    parser.add_argument("--slo-itl", type=float, default=50.0, help="ms")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", default="build/release/bench/serving/llm_inprocess", help="--api c")
    parser.add_argument("--repository", help="--api c")
    parser.add_argument("--backends", default="dist/backends", help="--api c")
    parser.add_argument("--save", help="JSON file: options, machine, result")
    args = parser.parse_args()
    if not (args.concurrency or args.rate or args.burst or args.trace_times):
        args.concurrency = 1
    if args.concurrency:
        args.processes = min(args.processes, args.concurrency)
    machine = Machine()
    entries = workload(args)
    records = run_in_process(args, entries) if args.api == "c" else run_over_network(args, entries)
    report = {"options": {key: value for key, value in vars(args).items() if key != "api_key"}, "machine": machine.finish(),
              "result": summary(args, records)}
    print(json.dumps(report["result"], indent=1))
    for error in sorted({r["error"] for r in records if r["error"]})[:5]:
        print("error:", error)
    if args.save:
        pathlib.Path(args.save).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
