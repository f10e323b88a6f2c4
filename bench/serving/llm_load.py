#!/usr/bin/env python3
"""Load on an LLM endpoint, and what its clients see: time to the first token, time between tokens, throughput, goodput.

    llm_load.py --url http://127.0.0.1:8000 --model tensorrt_llm --lengths 512x256 --count 64 --concurrency 8
    llm_load.py ... --lengths 503x256 --count 512 --burst
    llm_load.py ... --trace azure_2023_conv.csv --count 1000 --rate 20 --save run.json
    llm_load.py ... --trace mooncake_conversation.jsonl --count 500 --trace-times 2     (twice as fast as recorded)
    llm_load.py --api c --program build/release/bench/serving/llm_inprocess --repository models --backends dist/backends --count 64

--api says what is at the other end: `kserve`, generate_stream with the tensors of the `tensorrt_llm` model; `kserve-grpc`, the same over
ModelStreamInfer (--url host:port; with the package tritonclient); `kserve-text`, generate_stream with text_input (an ensemble); `openai` and
`openai-chat`, /v1/completions and /v1/chat/completions of any server; `c`, no server at all: a program that loads the repository into its own
process through the C API. Prompts are random ids (or words), or texts of --prompts. Arrivals: --concurrency N (the next when one ends), --rate R
(Poisson), --burst (all at once) or --trace-times. Several client processes, so that the clients are not what is measured."""
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


async def drive(args, start, mine):
    await asyncio.sleep(max(0.0, start - time.monotonic()))
    if args.concurrency:
        queue = list(reversed(mine))
        records = []

        async def lane():
            while queue:
                records.append(await send(args, *queue.pop()))
        share = max(1, args.concurrency // args.processes)
        await asyncio.gather(*[lane() for _ in range(share)])
        return records

    async def later(index, row):
        await asyncio.sleep(max(0.0, start + row[0] - time.monotonic()))
        return await send(args, index, row)
    return await asyncio.gather(*[later(index, row) for index, row in mine])


def client(args, start, mine, results):
    results.put(asyncio.run(drive(args, start, mine)))


def run_over_network(args, rows):
    results = multiprocessing.Queue()
    start = time.monotonic() + 0.5
    rows = list(enumerate(rows))
    clients = [multiprocessing.Process(target=client, args=(args, start, rows[i::args.processes], results)) for i in range(args.processes)]
    for process in clients:
        process.start()
    records = [record for _ in clients for record in results.get()]
    for process in clients:
        process.join()
    return records


def run_in_process(args, rows):
    """The program reads a line a request and writes a record a line."""
    command = [args.program, f"--repository={args.repository}", f"--backends={args.backends}", f"--model={args.model}", f"--vocab={args.vocab}",
               f"--seed={args.seed}", f"--concurrency={args.concurrency}", f"--top-p={args.top_p}", f"--temperature={args.temperature}"]
    lines = "".join(f"{0.0 if at is None else at} {prompt} {output}\n" for at, prompt, output, _ in rows)
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
    parser.add_argument("--prompts", help="texts, a JSON object with `prompt` a line; lengths still say how much is put out")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=0)
    parser.add_argument("--rate", type=float, default=0.0, help="requests a second")
    parser.add_argument("--burst", action="store_true")
    parser.add_argument("--trace-times", type=float, default=0.0, help="arrivals of the trace, so many times as fast")
    parser.add_argument("--max-prompt", type=int, default=1 << 30)
    parser.add_argument("--max-output", type=int, default=1 << 30)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--top-p", type=float, default=0.0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--ignore-eos", action=argparse.BooleanOptionalAction, default=True, help="--api openai: a field of vLLM's and SGLang's")
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
    rows = workload(args)
    records = run_in_process(args, rows) if args.api == "c" else run_over_network(args, rows)
    report = {"options": {key: value for key, value in vars(args).items() if key != "api_key"}, "machine": machine.finish(),
              "result": summary(args, records)}
    print(json.dumps(report["result"], indent=1))
    for error in sorted({r["error"] for r in records if r["error"]})[:5]:
        print("error:", error)
    if args.save:
        pathlib.Path(args.save).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
