"""Compares grammars of JSON schemas with llguidance and xgrammar (their wheels): the same schemas and instances, one run, one thread.

  python bench/llm_core/grammar_compare.py --bench build/release/bench/llm_core/grammar_bench --tokenizer DIR --schemas FILE... [--out CSV]

A file of schemas is one of MaskBench: {"schema": {...}, "tests": [{"data": ..., "valid": true}, ...]}. Times are those of the thread. Each engine runs in a
process of its own, which ends and counts as `did_not_end` where a schema with its instances takes more than --limit seconds of processor time, or more than
--max-gib of memory; the next schema then begins in a new process."""
import argparse
import csv
import json
import os
import pathlib
import resource
import select
import statistics
import subprocess
import sys
import time

import transformers

NUM_TOKENS = 0  # of the vocabulary, set by main
ENGINES = ["nereid", "llguidance", "xgrammar"]


def us(begin_ns):
    return (time.thread_time_ns() - begin_ns) / 1000


def has(words, token):
    return (int(words[token // 32]) >> (token % 32)) & 1 == 1


def llguidance_engine(tokenizer):
    import llguidance
    import llguidance.hf
    import torch
    own = llguidance.hf.from_tokenizer(tokenizer, n_vocab=NUM_TOKENS)
    bits = torch.zeros((NUM_TOKENS + 31) // 32, dtype=torch.int32)

    def run(schema, instances):
        begin = time.thread_time_ns()
        matcher = llguidance.LLMatcher(own, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema)))
        if matcher.is_error():
            return {"error": matcher.get_error(), "compile_us": us(begin)}
        matcher.unsafe_compute_mask_ptr(bits.data_ptr(), bits.numel() * 4)
        out = {"compile_us": us(begin), "mask_us": [], "accepted": []}
        for tokens in instances:
            each = matcher.deep_copy()
            accepted = True
            for token in tokens:
                before = time.thread_time_ns()
                each.unsafe_compute_mask_ptr(bits.data_ptr(), bits.numel() * 4)
                out["mask_us"].append(us(before))
                accepted = has(bits, token) and each.consume_token(token)
                if not accepted:
                    break
            out["accepted"].append(bool(accepted and each.is_accepting()))
        return out
    return run


def xgrammar_engine(tokenizer):
    import xgrammar
    compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=NUM_TOKENS), max_threads=1, cache_enabled=False)
    bits = xgrammar.allocate_token_bitmask(1, NUM_TOKENS)

    def run(schema, instances):
        begin = time.thread_time_ns()
        try:
            grammar = compiler.compile_json_schema(json.dumps(schema), strict_mode=False)
            first = xgrammar.GrammarMatcher(grammar, terminate_without_stop_token=True)
            first.fill_next_token_bitmask(bits)
        except Exception as error:  # its errors have many types
            return {"error": str(error), "compile_us": us(begin)}
        out = {"compile_us": us(begin), "mask_us": [], "accepted": []}
        for tokens in instances:
            each = xgrammar.GrammarMatcher(grammar, terminate_without_stop_token=False)
            accepted = True
            for token in tokens:
                before = time.thread_time_ns()
                each.fill_next_token_bitmask(bits)
                out["mask_us"].append(us(before))
                accepted = has(bits[0], token) and each.accept_token(token)
                if not accepted:
                    break
            if accepted:
                each.fill_next_token_bitmask(bits)
                accepted = has(bits[0], tokenizer.eos_token_id)
            out["accepted"].append(bool(accepted))
        return out
    return run


class Engine:
    """A process that reads a case a line, and writes its result as a line."""

    def __init__(self, command, limit_s):
        self.command, self.limit_s, self.process = command, limit_s, None

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.run({"name": "ready", "schema": {"type": "null"}, "instances": [], "valid": [], "tokens": []}) is None:
            raise SystemExit(f"{self.command[0]} does not start")

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process = None

    def processor_seconds(self):
        user, system = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def run(self, case):
        """Returns the result, or None without one."""
        if self.process is None:
            self.start()
        used = self.processor_seconds()
        try:
            self.process.stdin.write((json.dumps(case) + "\n").encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        while not select.select([self.process.stdout], [], [], 0.5)[0]:
            if case["name"] != "ready" and self.processor_seconds() - used > self.limit_s:
                self.stop()
                return None
        line = self.process.stdout.readline()
        if not line:  # it has ended itself
            self.stop()
            return None
        return json.loads(line)


def work(name, tokenizer):
    """The process of a peer."""
    run = {"llguidance": llguidance_engine, "xgrammar": xgrammar_engine}[name](tokenizer)
    for line in sys.stdin:
        case = json.loads(line)
        print(json.dumps(run(case["schema"], case["tokens"])), flush=True)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def summary(name, results, cases):
    verdicts = {"passed": 0, "refused": 0, "did_not_end": 0, "wrong_accept": 0, "wrong_reject": 0}
    for result, case in zip(results, cases):
        if result is None:
            verdicts["did_not_end"] += 1
            continue
        if "error" in result:
            verdicts["refused"] += 1
            continue
        pairs = list(zip(result["accepted"], case["valid"]))
        kind = "wrong_accept" if any(a and not v for a, v in pairs) else "wrong_reject" if any(v and not a for a, v in pairs) else "passed"
        verdicts[kind] += 1
    results = [result for result in results if result is not None]
    compiles = [r["compile_us"] / 1000 for r in results if "error" not in r]
    masks = [m for r in results if "error" not in r for m in r["mask_us"]]
    return {"engine": name, "schemas": len(cases), **verdicts,
            **{f"compile_ms_p{p}": round(percentile(compiles, p / 100), 3) for p in (50, 90, 99)}, "masks": len(masks),
            "mask_us_mean": round(statistics.fmean(masks), 1) if masks else 0,
            **{f"mask_us_p{n}": round(percentile(masks, p), 1) for n, p in ((50, .5), (99, .99), (999, .999))}}


def main():
    global NUM_TOKENS
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--schemas", nargs="+", default=[])
    parser.add_argument("--out")
    parser.add_argument("--without", nargs="*", default=[])
    parser.add_argument("--limit", type=float, default=20)
    parser.add_argument("--max-gib", type=float, default=6)
    parser.add_argument("--work", help="internal: run as the process of this engine")
    args = parser.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.tokenizer)
    NUM_TOKENS = len(tokenizer)
    if args.work:
        resource.setrlimit(resource.RLIMIT_DATA, (int(args.max_gib * 2**30), int(args.max_gib * 2**30)))
        return work(args.work, tokenizer)
    cases = []
    for path in args.schemas:
        content = json.loads(pathlib.Path(path).read_text())
        texts = [json.dumps(test["data"], indent=None, ensure_ascii=False) for test in content.get("tests", [])]
        cases.append({"name": pathlib.Path(path).stem, "schema": content["schema"], "valid": [test["valid"] for test in content.get("tests", [])],
                      "tokens": [tokenizer.encode(text, add_special_tokens=False) for text in texts]})
    results = {}
    for name in ENGINES:
        if name in args.without:
            continue
        command = [args.bench, args.tokenizer] if name == "nereid" else [
            sys.executable, __file__, "--work", name, "--tokenizer", args.tokenizer, "--max-gib", str(args.max_gib)]
        engine = Engine(command, args.limit)
        results[name] = [engine.run(case) for case in cases]
        engine.stop()
        for result, case in zip(results[name], cases):
            if result is None:
                print(name, "did not end", case["name"])
            elif "error" in result:
                print(name, "refused", case["name"], result["error"][:150])
            elif result["accepted"] != case["valid"]:
                print(name, "differs", case["name"], result["accepted"], case["valid"])
        print(summary(name, results[name], cases), flush=True)
    rows = [summary(name, each, cases) for name, each in results.items()]
    if args.out:
        with open(args.out, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
