#!/usr/bin/env python3
"""Load on an LLM endpoint, and what its clients see: time to the first token, time between tokens, throughput, goodput.

    llm_load.py --url http://127.0.0.1:8000 --model tensorrt_llm --lengths 512x256 --count 64 --concurrency 8
    llm_load.py ... --lengths 503x256 --count 512 --burst
    llm_load.py ... --trace azure_2023_conv.csv --count 1000 --rate 20 --save run.json
    llm_load.py ... --trace mooncake_conversation.jsonl --count 500 --trace-times 2     (twice as fast as recorded)

Endpoints: KServe's generate_stream with the tensors of the `tensorrt_llm` model (--api kserve), OpenAI's /v1/completions (--api openai). Prompts are
random ids. Arrivals: --concurrency N (the next when one ends), --rate R (Poisson), --burst (all at once) or --trace-times. Python's standard library
alone; several client processes, so that the clients are not what is measured."""
import argparse
import asyncio
import csv
import datetime
import json
import multiprocessing
import pathlib
import random
import subprocess
import time
import urllib.parse


def workload(args):
    """[(arrival in seconds or None, prompt tokens, output tokens)]"""
    if args.trace:
        rows = read_trace(pathlib.Path(args.trace))
    else:
        prompt, output = map(int, args.lengths.split("x"))
        rows = [(0.0, prompt, output)] * args.count
    rows = rows[:args.count]
    rows = [(at, min(prompt, args.max_prompt), max(1, min(output, args.max_output))) for at, prompt, output in rows]
    if args.trace_times:
        first = rows[0][0]
        return [((at - first) / args.trace_times, prompt, output) for at, prompt, output in rows]
    if args.rate:
        draws, at, timed = random.Random(args.seed), 0.0, []
        for _, prompt, output in rows:
            timed.append((at, prompt, output))
            at += draws.expovariate(args.rate)
        return timed
    return [(0.0 if args.burst else None, prompt, output) for _, prompt, output in rows]


def read_trace(path):
    if path.suffix == ".csv":
        rows = []
        for row in csv.DictReader(path.open()):
            at = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            rows.append((at, int(row["ContextTokens"]), int(row["GeneratedTokens"])))
        return rows
    lines = [json.loads(line) for line in path.open()]
    return [(line["timestamp"] / 1e3, line["input_length"], line["output_length"]) for line in lines]


def body_of(args, ids, output):
    if args.api == "openai":
        fields = {"model": args.model, "prompt": ids, "max_tokens": output, "stream": True, "ignore_eos": True, "temperature": 0}
        return "/v1/completions", fields
    fields = {"input_ids": ids, "input_lengths": len(ids), "request_output_len": output, "streaming": True, "end_id": -1}
    if args.top_p:
        fields |= {"runtime_top_p": args.top_p, "temperature": args.temperature, "random_seed": ids[0]}
    return f"/v2/models/{args.model}/generate_stream", fields


async def send(args, place, index, prompt, output):
    draws = random.Random(args.seed * 1000003 + index)
    ids = [draws.randrange(args.vocab) for _ in range(prompt)]
    path, fields = body_of(args, ids, output)
    body = json.dumps(fields).encode()
    record = {"prompt": prompt, "output": output, "times": [], "error": None}
    head = f"POST {path} HTTP/1.1\r\nHost: {place[0]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    record["sent"] = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection(*place, limit=1 << 24)
        writer.write(head.encode() + body)
        status = await reader.readline()
        if b" 200 " not in status:
            raise RuntimeError((status + (await reader.read(2000))).decode(errors="replace"))
        async for line in reader:
            if not line.startswith(b"data:") or line.startswith(b"data: [DONE]"):
                continue
            now = time.monotonic()
            event = json.loads(line[5:])
            if "error" in event:
                raise RuntimeError(str(event["error"]))
            count = count_tokens(args, event)
            record["times"] += [now] * count
        writer.close()
    except (OSError, RuntimeError, ValueError, asyncio.LimitOverrunError) as error:
        record["error"] = str(error)[:300]
    record["ended"] = time.monotonic()
    return record


def count_tokens(args, event):
    if args.api == "openai":
        return 1 if event.get("choices") and event["choices"][0].get("text") else 0
    ids = event.get("output_ids", [])
    if not isinstance(ids, list):
        return 1
    return len(ids)


async def drive(args, place, start, mine):
    await asyncio.sleep(max(0.0, start - time.monotonic()))
    if args.concurrency:
        queue = list(reversed(mine))
        records = []

        async def lane():
            while queue:
                index, (_, prompt, output) = queue.pop()
                records.append(await send(args, place, index, prompt, output))
        share = max(1, args.concurrency // args.processes)
        await asyncio.gather(*[lane() for _ in range(share)])
        return records

    async def later(index, at, prompt, output):
        await asyncio.sleep(max(0.0, start + at - time.monotonic()))
        return await send(args, place, index, prompt, output)
    return await asyncio.gather(*[later(index, *row) for index, row in mine])


def client(args, place, start, mine, results):
    results.put(asyncio.run(drive(args, place, start, mine)))


def percentiles(values, scale=1e3):
    values = sorted(values)
    if not values:
        return {}
    return {f"p{p}": round(values[min(len(values) - 1, len(values) * p // 100)] * scale, 3) for p in (50, 90, 99)}


def summary(args, records):
    good = [r for r in records if r["error"] is None and r["times"]]
    first = [r["times"][0] - r["sent"] for r in good]
    between = [b - a for r in good for a, b in zip(r["times"], r["times"][1:])]
    span = max(r["ended"] for r in records) - min(r["sent"] for r in records)
    mean_gap = [(r["times"][-1] - r["times"][0]) / max(1, len(r["times"]) - 1) for r in good]
    met = sum(f * 1e3 <= args.slo_ttft and g * 1e3 <= args.slo_itl for f, g in zip(first, mean_gap))
    tokens = sum(len(r["times"]) for r in good)
    return {
        "requests": len(records), "failed": len(records) - len(good), "seconds": round(span, 3),
        "ttft_ms": percentiles(first), "between_tokens_ms": percentiles(between), "request_ms": percentiles([r["ended"] - r["sent"] for r in good]),
        "input_tokens": sum(r["prompt"] for r in good), "output_tokens": tokens, "output_tokens_per_s": round(tokens / span, 1),
        "requests_per_s": round(len(good) / span, 3), "goodput_requests_per_s": round(met / span, 3),
        "goodput_is": f"first token within {args.slo_ttft} ms, mean time between tokens within {args.slo_itl} ms",
    }


def said(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def machine():
    here = pathlib.Path(__file__).parent
    return {"commit": said(["git", "-C", str(here), "rev-parse", "--short", "HEAD"]),
            "gpu": said(["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem", "--format=csv,noheader"]),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--api", choices=["kserve", "openai"], default="kserve")
    parser.add_argument("--model", default="tensorrt_llm")
    parser.add_argument("--lengths", default="512x256", help="PROMPTxOUTPUT tokens")
    parser.add_argument("--trace", help="lengths from an Azure (.csv) or Mooncake (.jsonl) trace")
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
    parser.add_argument("--slo-ttft", type=float, default=500.0, help="ms")
    parser.add_argument("--slo-itl", type=float, default=50.0, help="ms")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", help="JSON file")
    args = parser.parse_args()
    if not (args.concurrency or args.rate or args.burst or args.trace_times):
        args.concurrency = 1
    if args.concurrency:
        args.processes = min(args.processes, args.concurrency)
    url = urllib.parse.urlparse(args.url)
    place = (url.hostname, url.port or 80)
    rows = list(enumerate(workload(args)))
    results = multiprocessing.Queue()
    start = time.monotonic() + 0.5
    clients = [multiprocessing.Process(target=client, args=(args, place, start, rows[i::args.processes], results)) for i in range(args.processes)]
    for process in clients:
        process.start()
    records = [record for _ in clients for record in results.get()]
    for process in clients:
        process.join()
    report = {"options": vars(args), "machine": machine(), "result": summary(args, records)}
    print(json.dumps(report["result"], indent=1))
    for error in sorted({r["error"] for r in records if r["error"]})[:5]:
        print("error:", error)
    if args.save:
        pathlib.Path(args.save).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
