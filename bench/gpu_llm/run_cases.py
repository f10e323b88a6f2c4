#!/usr/bin/env python3
"""Runs gpu_engine_bench for the cases of cases.csv and appends a row for each figure to a CSV file.

    run_cases.py PROGRAM OUT.csv --form native|portable --commit COMMIT [--groups "8b bf16,8b int4"] [--measures "decode 1,decode 8"]

One process runs the measures of a group. Groups whose weights do not fit in the GPU's memory have rows
with the program's message instead of a value. The peer's figures, limits and goals are those of one H200;
compare them only with rows of an H200.
"""

import argparse
import csv
import datetime
import os
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
COLUMNS = ["group", "measure", "form", "value", "unit", "limit", "goal", "peer", "machine", "date", "commit", "command"]


def read_cases(measures: list[str]) -> dict[str, list[dict[str, str]]]:
    """Returns the cases of these measures, or all if there are none, by group."""
    groups: dict[str, list[dict[str, str]]] = {}
    with open(HERE / "cases.csv", encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if not measures or row["measure"] in measures:
                groups.setdefault(row["group"], []).append(row)
    return groups


def arguments_of(cases: list[dict[str, str]]) -> list[str]:
    """Returns the program's arguments for these cases of a group."""
    arguments = cases[0]["arguments"].split()
    for option, kind in (("--batches", "decode"), ("--ttft", "first"), ("--prefill", "prefill")):
        values = [case["measure"].split()[1] for case in cases if case["measure"].startswith(kind)]
        if values:
            arguments += [option, ",".join(values)]
    return arguments


def figures_of(output: str) -> dict[str, tuple[str, str]]:
    """Returns value and unit of each measure in the program's output."""
    found = {}
    for batch, rate in re.findall(r"decode batch +(\d+): +([\d.]+) tok/s steady", output):
        found[f"decode {batch}"] = (rate, "tok/s")
    for length, time in re.findall(r"first token of +(\d+): ([\d.]+) ms", output):
        found[f"first {length}"] = (time, "ms")
    for count, length, rate in re.findall(r"prefill (\d+) x (\d+): (\d+) tok/s", output):
        found[f"prefill {count}x{length}"] = (rate, "tok/s")
    return found


def run(program: str, arguments: list[str], form: str) -> str:
    """Runs the program in the folder of the shapes and returns what it printed."""
    environment = dict(os.environ, NEREID_GPU_KERNELS=form)
    done = subprocess.run([program, *arguments], cwd=HERE, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=lambda text: str(pathlib.Path(text).resolve()))
    parser.add_argument("out")
    parser.add_argument("--form", choices=["native", "portable"], required=True)
    parser.add_argument("--commit", required=True)
    parser.add_argument("--groups", default="", help="names separated by commas; all by default")
    parser.add_argument("--measures", default="", help="names separated by commas; all by default")
    given = parser.parse_args()
    names = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True)
    machine = "one " + names.stdout.splitlines()[0].removeprefix("NVIDIA ")
    groups = read_cases(given.measures.split(",") if given.measures else [])
    chosen = given.groups.split(",") if given.groups else list(groups)
    is_new = not os.path.exists(given.out)
    with open(given.out, "a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        for group in chosen:
            arguments = arguments_of(groups[group])
            output = run(given.program, arguments, given.form)
            figures = figures_of(output)
            fault = next((line for line in reversed(output.splitlines()) if line.startswith("error")), "no figure")
            for case in groups[group]:
                value, unit = figures.get(case["measure"], (fault, ""))
                print(f"{group}, {case['measure']}, {given.form}: {value} {unit}", flush=True)
                writer.writerow(
                    {
                        "group": group,
                        "measure": case["measure"],
                        "form": given.form,
                        "value": value,
                        "unit": unit,
                        "limit": case["limit"],
                        "goal": case["goal"],
                        "peer": case["peer"],
                        "machine": machine,
                        "date": datetime.date.today().isoformat(),
                        "commit": given.commit,
                        "command": "gpu_engine_bench " + " ".join(arguments),
                    }
                )
            file.flush()


if __name__ == "__main__":
    main()
