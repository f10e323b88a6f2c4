#!/usr/bin/env python3
"""Prints where the warps of a kernel wait, by runs of instructions, from what Nsight Compute has sampled.

    ncu --clock-control none -k regex:DecodeStepKernel -s 12 -c 1 --section SourceCounters -o report gpu_engine_bench --graphs 0 ...
    ncu --import report.ncu-rep --page source --csv > report.csv
    kernel_stalls.py report.csv [--run 64] [--least 0.5]
    kernel_stalls.py report.csv --lines 8384:8480 [--least 0.1]

A row is a run of --run instructions that has at least --least percent of all samples: its first instruction, its percent, how often
its most frequent instruction was executed, the most frequent reasons to wait with their samples, and the most frequent opcodes. With
--lines, a row is one instruction.
"""

import argparse
import collections
import csv


def read_report(path: str) -> list[dict[str, str]]:
    """Returns a dictionary for each instruction, in the order of the program."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.reader(file))
    start = next(i for i, row in enumerate(rows) if "Source" in row)
    return [dict(zip(rows[start], row)) for row in rows[start + 1 :] if len(row) == len(rows[start])]


def number(row: dict[str, str], column: str) -> int:
    text = row[column].replace(",", "")
    return int(float(text)) if text else 0


def reasons_of(rows: list[dict[str, str]]) -> list[tuple[str, int]]:
    """Returns the most frequent reasons to wait and their samples."""
    found: collections.Counter[str] = collections.Counter()
    for row in rows:
        for column in row:
            if column.startswith("stall_") and "Not Issued" not in column:
                found[column.removeprefix("stall_")] += number(row, column)
    return [(reason, count) for reason, count in found.most_common(4) if count > 0]


def opcode_of(row: dict[str, str]) -> str:
    words = row["Source"].split()
    return words[1 if words[0].startswith("@") else 0].split(".")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report")
    parser.add_argument("--run", type=int, default=64)
    parser.add_argument("--least", type=float, default=0.5)
    parser.add_argument("--lines", default="", help="FIRST:END")
    given = parser.parse_args()
    rows = read_report(given.report)
    samples = sum(number(row, "# Samples") for row in rows)
    first, end, step = 0, len(rows), given.run
    if given.lines:
        first, end = (int(part) for part in given.lines.split(":"))
        step = 1
    print(f"{samples} samples: {reasons_of(rows)}")
    for at in range(first, min(end, len(rows)), step):
        run = rows[at : at + step]
        percent = 100 * sum(number(row, "# Samples") for row in run) / samples
        if percent < given.least:
            continue
        executed = max(number(row, "Instructions Executed") for row in run)
        what = run[0]["Source"].strip() if given.lines else collections.Counter(map(opcode_of, run)).most_common(4)
        print(f"{at:6d} {percent:5.1f} % {executed:8d} {reasons_of(run)} {what}")


if __name__ == "__main__":
    main()
