#!/usr/bin/env python3
"""Turns the tables of operator times that gpu_engine_bench prints with --profile into rows of a CSV file.

    operator_times.py LOG.txt OUT.csv --group GROUP --machine MACHINE --date DATE --commit COMMIT --command COMMAND

A row is an operator of the decode steps of as many tokens as sequences; its limit is what its bytes or operations alone take. Of several tables of one
number of sequences the last counts, which is that of the longest contexts. Each time includes what an empty kernel takes, which is a row as well.
"""

import argparse
import csv
import os
import re

COLUMNS = ["table", "case", "measure", "value", "unit", "limit", "peer", "machine", "date", "commit", "command"]
HEAD = re.compile(r"decode steps: \d+, ([\d.]+) tokens each")
ROW = re.compile(r"  (\S.*?) +([\d.]+) +([\d.]+) +[\d.]+ % +\d+ +[\d.]+ +([\d.]+) %")
RATE = re.compile(r"decode batch +(\d+):")


def read_tables(lines: list[str]) -> dict[int, list[list[str]]]:
    """Returns the last table of each number of sequences: operator, us, times and % of the limit."""
    tables: dict[int, list[list[str]]] = {}
    mean = 0.0
    rows: list[list[str]] = []
    for line in lines:
        if match := HEAD.match(line):
            mean, rows = float(match[1]), []
        elif match := ROW.match(line):
            rows.append(list(match.groups()))
        elif line.startswith("steps with prompts"):
            mean, rows = 0.0, []
        elif (match := RATE.match(line)) and float(match[1]) == mean:
            tables[int(match[1])] = rows
    return tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("out")
    for name in ("group", "machine", "date", "commit", "command"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args()
    with open(arguments.log, encoding="utf-8") as file:
        tables = read_tables(file.read().splitlines())
    if not tables:
        parser.error(f"{arguments.log} has no table of decode steps behind which the rate of as many sequences follows")
    is_new = not os.path.exists(arguments.out)
    with open(arguments.out, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(COLUMNS)
        for sequences, rows in tables.items():
            for operator, us, times, part in rows:
                limit = f"{float(us) * float(part) / 100:.1f}" if float(part) > 0 else ""
                writer.writerow([f"{arguments.group}, {sequences} sequences", f"{operator} ({float(times):.0f} a step)", "time", us, "us", limit, "",
                                 arguments.machine, arguments.date, arguments.commit, arguments.command])


if __name__ == "__main__":
    main()
