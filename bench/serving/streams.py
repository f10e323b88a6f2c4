#!/usr/bin/env python3
"""Opens many generate_stream connections at once, and reports how they end and how much memory the server uses.

Usage: streams.py [--url http://localhost:8000] [--model ensemble] [--connections 500] [--max-tokens 64] [--pid SERVER_PID]
Prints one JSON object: finished and failed streams, events, events per second, and time to the first event and between events (p50, p99). With
--pid it adds the server's resident memory, threads and open files before the run, at peak memory and after the streams ended. Never asserts.
"""
import argparse
import asyncio
import json
import os
import statistics
import time
import urllib.parse


def status(pid):
    fields = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status") if ":" in line)
    return {"rss_mb": round(int(fields["VmRSS"].split()[0]) / 1024, 1), "threads": int(fields["Threads"]),
            "open_files": len(os.listdir(f"/proc/{pid}/fd"))}


async def stream(url, model, prompt, max_tokens, times):
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    body = json.dumps({"text_input": prompt, "max_tokens": max_tokens, "stream": True}).encode()
    started = time.perf_counter()
    writer.write(b"POST /v2/models/%s/generate_stream HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n" % (model.encode(), len(body)) + body)
    head = await reader.readuntil(b"\r\n\r\n")
    events, previous, failed = 0, started, b" 200 " not in head.split(b"\r\n", 1)[0]
    while True:
        size = int(await reader.readline(), 16)
        data = await reader.readexactly(size + 2)
        if size == 0:
            break
        now = time.perf_counter()
        failed |= b'"error"' in data
        times["first" if events == 0 else "between"].append(now - previous)
        previous, events = now, events + data.count(b"data: ")
    writer.close()
    return events, failed


def percentiles(values):
    if len(values) < 2:
        return None
    ranked = statistics.quantiles(values, n=100)
    return {"p50_ms": round(1000 * ranked[49], 2), "p99_ms": round(1000 * ranked[98], 2)}


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", default="http://localhost:8000")
    parser.add_argument("--model", default="ensemble")
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--pid", type=int)
    args = parser.parse_args()
    url, times = urllib.parse.urlparse(args.url), {"first": [], "between": []}
    memory = {"before": status(args.pid)} if args.pid else {}
    started = time.perf_counter()
    tasks = [asyncio.create_task(stream(url, args.model, f"Story number {i}: once upon a time there was", args.max_tokens, times))
             for i in range(args.connections)]
    while not all(task.done() for task in tasks):
        if args.pid:
            now = status(args.pid)
            memory["peak"] = max(memory.get("peak", now), now, key=lambda state: state["rss_mb"])
        await asyncio.sleep(0.2)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    seconds = time.perf_counter() - started
    if args.pid:
        await asyncio.sleep(1)
        memory["after"] = status(args.pid)
    finished = [result for result in results if isinstance(result, tuple) and not result[1]]
    events = sum(result[0] for result in finished)
    print(json.dumps({"connections": args.connections, "finished": len(finished), "failed": len(results) - len(finished), "events": events,
                      "seconds": round(seconds, 2), "events_per_second": round(events / seconds), "first_event": percentiles(times["first"]),
                      "between_events": percentiles(times["between"]), "memory": memory}, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
