#!/usr/bin/env python3
"""Runs every fuzz target for a few seconds, starting from its stored corpus, and writes a JUnit file.

usage: run_fuzzers.py BUILD_DIR TESTS_FUZZ_DIR OUT.xml [SECONDS]
A target is an executable fuzz_<name> below BUILD_DIR. Its corpus is TESTS_FUZZ_DIR/<name>/corpus, which is only read; new inputs are discarded.
Two targets run at a time.
"""
import concurrent.futures
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree


def run(target, corpus, seconds):
    with tempfile.TemporaryDirectory() as scratch:
        command = [str(target), f"-max_total_time={seconds}", "-rss_limit_mb=2048", "-timeout=10", f"-artifact_prefix={scratch}/", scratch, str(corpus)]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")


def fuzz_target(build, folder, seconds):
    """Runs the target of this folder. Returns the failure and the target's output, or empty strings on success."""
    targets = [path for path in build.rglob(f"fuzz_{folder.name}") if path.is_file()]
    if not targets:
        return f"no executable fuzz_{folder.name} below {build}", ""
    process = run(targets[0], folder / "corpus", seconds)
    return (f"exit code {process.returncode}", process.stdout[-4000:]) if process.returncode else ("", "")


def main():
    build, sources, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    seconds = int(sys.argv[4]) if len(sys.argv) > 4 else 15
    folders = sorted(path for path in sources.iterdir() if (path / "CMakeLists.txt").exists())
    suite = ElementTree.Element("testsuite", name="fuzz")
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as workers:
        outcomes = workers.map(lambda folder: fuzz_target(build, folder, seconds), folders)
        for folder, (failure, output) in zip(folders, outcomes):
            case = ElementTree.SubElement(suite, "testcase", classname="fuzz", name=folder.name)
            print(f"fuzz {folder.name}: {failure or 'ok'}", flush=True)
            if failure:
                ElementTree.SubElement(case, "failure", message=failure).text = output
                print(output, flush=True)
    ElementTree.ElementTree(suite).write(out)


if __name__ == "__main__":
    main()
