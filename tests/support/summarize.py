#!/usr/bin/env python3
"""Sums up the JUnit files of a test run: prints what was skipped or failed, the slowest 20 tests, and the final line, N passed, N failed[, N skipped].

usage: summarize.py RESULTS_DIR. A file `broken` in it names the steps that did not build or run; each counts as a failure. The exit code is 1 on failures.
STEP.again.xml contains the second run of the cases that failed in STEP.xml. Its outcomes count, and cases that passed only then are printed.
"""
import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def outcome(case):
    """Returns the outcome of a test case. ctest writes status="run|fail|notrun"; pytest and gtest write child elements."""
    kinds = {child.tag for child in case}
    if "failure" in kinds or "error" in kinds or case.get("status") == "fail":
        return "failed"
    if "skipped" in kinds or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def outcomes(path):
    if not path.exists():
        return {}
    return {f"{case.get('classname', '')} {case.get('name')}": outcome(case) for case in ElementTree.parse(path).getroot().iter("testcase")}


def print_slowest(paths, count=20):
    cases = [(float(case.get("time") or 0), f"{path.stem}: {case.get('classname', '')} {case.get('name')}")
             for path in paths for case in ElementTree.parse(path).getroot().iter("testcase")]
    print(f"the slowest {count} tests, in seconds:")
    for seconds, name in sorted(cases, reverse=True)[:count]:
        print(f"{seconds:8.1f} {name}")


def main():
    results = pathlib.Path(sys.argv[1])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for path in sorted(results.glob("*.xml")):
        if path.stem.endswith(".again"):
            continue
        first, again = outcomes(path), outcomes(path.with_suffix(".again.xml"))
        for name, kind in first.items():
            if kind == "failed" and again.get(name) == "passed":
                kind = "passed"
                print(f"passed at the second try: {path.stem}: {name}")
            elif kind != "passed":
                print(f"{kind}: {path.stem}: {name}")
            counts[kind] += 1
    broken = results / "broken"
    for step in broken.read_text().split() if broken.exists() else []:
        counts["failed"] += 1
        print(f"failed: {step}: did not build or run")
    print_slowest(results.glob("*.xml"))
    line = f"{counts['passed']} passed, {counts['failed']} failed"
    print(line + (f", {counts['skipped']} skipped" if counts["skipped"] else ""))
    sys.exit(1 if counts["failed"] or not counts["passed"] else 0)


if __name__ == "__main__":
    main()
