"""What is asked, and when: rows of (arrival in seconds, None: when another one ends; prompt tokens; output tokens; text or None)."""
import csv
import datetime
import json
import pathlib
import random


def workload(args):
    rows = read_trace(pathlib.Path(args.trace)) if args.trace else fixed(args)
    rows = rows[:args.count]
    rows = [(at, min(prompt, args.max_prompt), max(1, min(output, args.max_output))) for at, prompt, output in rows]
    texts = read_texts(args, len(rows))
    return [(at, prompt, output, text) for at, (_, prompt, output), text in zip(arrivals(args, rows), rows, texts)]


def fixed(args):
    prompt, output = map(int, args.lengths.split("x"))
    return [(0.0, prompt, output)] * args.count


def arrivals(args, rows):
    if args.trace_times:
        return [(at - rows[0][0]) / args.trace_times for at, _, _ in rows]
    if args.rate:
        draws, at, times = random.Random(args.seed), 0.0, []
        for _ in rows:
            times.append(at)
            at += draws.expovariate(args.rate)
        return times
    return [0.0 if args.burst else None for _ in rows]


def read_trace(path):
    """[(seconds, prompt tokens, output tokens)] of an Azure (.csv) or Mooncake (.jsonl) trace."""
    if path.suffix == ".csv":
        rows = []
        for row in csv.DictReader(path.open()):
            at = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            rows.append((at, int(row["ContextTokens"]), int(row["GeneratedTokens"])))
        return rows
    lines = [json.loads(line) for line in path.open()]
    return [(line["timestamp"] / 1e3, line["input_length"], line["output_length"]) for line in lines]


def read_texts(args, count):
    if not args.prompts:
        return [None] * count
    texts = [json.loads(line)["prompt"] for line in pathlib.Path(args.prompts).open()]
    return [texts[i % len(texts)] for i in range(count)]


def prompt_ids(args, index, length):
    draws = random.Random(args.seed * 1000003 + index)
    return [draws.randrange(args.vocab) for _ in range(length)]
