"""Compares grammars of JSON schemas with llguidance and xgrammar (their wheels): the same schemas and instances, one run, one thread.

  python bench/llm_core/grammar_compare.py --bench build/release/bench/llm_core/grammar_bench --tokenizer DIR --schemas FILE... [--out CSV]

A file of schemas is one of MaskBench: {"schema": {...}, "tests": [{"data": ..., "valid": true}, ...]}. Times are those of the thread."""
import argparse
import csv
import json
import pathlib
import statistics
import subprocess
import time

import llguidance
import llguidance.hf
import torch
import transformers
import xgrammar

NUM_TOKENS = 0  # of the vocabulary, set by main


def us(begin_ns):
    return (time.thread_time_ns() - begin_ns) / 1000


def has(words, token):
    return (int(words[token // 32]) >> (token % 32)) & 1 == 1


def llguidance_engine(tokenizer):
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


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def summary(name, results, cases):
    verdicts = {"passed": 0, "refused": 0, "wrong_accept": 0, "wrong_reject": 0}
    for result, case in zip(results, cases):
        if "error" in result:
            verdicts["refused"] += 1
            continue
        pairs = list(zip(result["accepted"], case["valid"]))
        kind = "wrong_accept" if any(a and not v for a, v in pairs) else "wrong_reject" if any(v and not a for a, v in pairs) else "passed"
        verdicts[kind] += 1
    compiles = [r["compile_us"] / 1000 for r in results if "error" not in r]
    masks = [m for r in results if "error" not in r for m in r["mask_us"]]
    return {"engine": name, "schemas": len(cases), **verdicts,
            **{f"compile_ms_p{p}": round(percentile(compiles, p / 100), 3) for p in (50, 90, 99)}, "masks": len(masks),
            "mask_us_mean": round(statistics.fmean(masks), 1) if masks else 0,
            **{f"mask_us_p{n}": round(percentile(masks, p), 1) for n, p in ((50, .5), (99, .99), (999, .999))}}


def main():
    global NUM_TOKENS
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--schemas", nargs="+", required=True)
    parser.add_argument("--out")
    parser.add_argument("--without", nargs="*", default=[])
    args = parser.parse_args()
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.tokenizer)
    NUM_TOKENS = len(tokenizer)
    cases = []
    for path in args.schemas:
        content = json.loads(pathlib.Path(path).read_text())
        texts = [json.dumps(test["data"], indent=None, ensure_ascii=False) for test in content.get("tests", [])]
        cases.append({"name": pathlib.Path(path).stem, "schema": content["schema"], "valid": [test["valid"] for test in content.get("tests", [])],
                      "tokens": [tokenizer.encode(text, add_special_tokens=False) for text in texts]})
    done = subprocess.run([args.bench, args.tokenizer], input="".join(json.dumps(case) + "\n" for case in cases), capture_output=True, text=True, check=True)
    results = {"nereid": [json.loads(line) for line in done.stdout.splitlines()]}
    for name, make in (("llguidance", llguidance_engine), ("xgrammar", xgrammar_engine)):
        if name not in args.without:
            run = make(tokenizer)
            results[name] = [run(case["schema"], case["tokens"]) for case in cases]
    for result, case in zip(results["nereid"], cases):
        if "error" in result:
            print("refused", case["name"], result["error"][:150])
        elif result["accepted"] != case["valid"]:
            print("differs", case["name"], result["accepted"], case["valid"])
    rows = [summary(name, each, cases) for name, each in results.items()]
    for row in rows:
        print(row)
    if args.out:
        with open(args.out, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
