"""The workload: a list of entries (arrival time in seconds, or None if sent when another request ends; prompt tokens; output tokens; text)."""
import csv
import datetime
import json
import pathlib
import random


def workload(args):
    entries = read_trace(pathlib.Path(args.trace)) if args.trace else fixed(args)
    entries = entries[:args.count]
    entries = [(at, min(prompt, args.max_prompt), max(1, min(output, args.max_output))) for at, prompt, output in entries]
    texts = read_texts(args, len(entries))
    return [(at, prompt, output, text) for at, (_, prompt, output), text in zip(arrivals(args, entries), entries, texts)]


def fixed(args):
    prompt, output = map(int, args.lengths.split("x"))
    return [(0.0, prompt, output)] * args.count


def arrivals(args, entries):
    if args.trace_times:
        return [(at - entries[0][0]) / args.trace_times for at, _, _ in entries]
    if args.rate:
        random_generator, at, times = random.Random(args.seed), 0.0, []
        for _ in entries:
            times.append(at)
            at += random_generator.expovariate(args.rate)
        return times
    return [0.0 if args.burst else None for _ in entries]


def read_trace(path):
    """[(seconds, prompt tokens, output tokens)] of an Azure (.csv) or Mooncake (.jsonl) trace."""
    if path.suffix == ".csv":
        entries = []
        for row in csv.DictReader(path.open()):
            at = datetime.datetime.fromisoformat(row["TIMESTAMP"][:26]).timestamp()
            entries.append((at, int(row["ContextTokens"]), int(row["GeneratedTokens"])))
        return entries
    lines = [json.loads(line) for line in path.open()]
    return [(line["timestamp"] / 1e3, line["input_length"], line["output_length"]) for line in lines]


def read_texts(args, count):
    if not args.prompts:
        return [None] * count
    texts = [json.loads(line)["prompt"] for line in pathlib.Path(args.prompts).open()]
    return [texts[i % len(texts)] for i in range(count)]


def prompt_ids(args, index, length):
    random_generator = random.Random(args.seed * 1000003 + index)
    return [random_generator.randrange(args.vocab) for _ in range(length)]
