#!/usr/bin/env python3
"""Lists what compiled kernels need: registers, stack, shared memory, threads.

Usage: bench/gpu_llm/kernel_resources.py OBJECT... >FILE.csv
The objects are those of a build (build/release/backends/gpu_llm/portable_*.o). It calls cuobjdump, of CUDA_OBJDUMP or the path, and needs no GPU.
A row holds for a file and an architecture the largest number of any kernel. block_registers is the most registers of a block of threads: those of a
thread, which are allocated by eights, times the kernel's launch bound, or 1,024 threads where it has none.
"""
import os
import re
import subprocess
import sys

COLUMNS = ["registers", "stack_bytes", "static_shared_bytes", "local_bytes", "max_threads", "block_registers"]
UNBOUNDED = 1024


def dump(option, path):
    return subprocess.run([os.environ.get("CUDA_OBJDUMP", "cuobjdump"), option, path], check=True, capture_output=True, text=True).stdout.splitlines()


def launch_bounds(path):
    """The launch bound of each kernel, by architecture and name."""
    bounds, architecture, kernel, is_bound = {}, "", "", False
    for line in dump("-elf", path):
        if match := re.match(r"arch = sm_(\w+)", line):
            architecture = match[1]
        elif line.startswith(".nv.info."):
            kernel = line.removeprefix(".nv.info.").strip()
        elif "EIATTR_MAX_THREADS" in line:
            is_bound = True
        elif is_bound and (match := re.search(r"Value:\s*(\w+) (\w+) (\w+)", line)):
            x, y, z = (int(value, 16) for value in match.groups())
            bounds[architecture, kernel], is_bound = x * y * z, False
    return bounds


def resources(path):
    """The largest numbers of any kernel of an object, by architecture."""
    bounds, most, architecture, kernel = launch_bounds(path), {}, "", ""
    for line in dump("--dump-resource-usage", path):
        if match := re.match(r"arch = sm_(\w+)", line):
            architecture = match[1]
        elif match := re.match(r"\s*Function (\S+):", line):
            kernel = match[1]
        elif match := re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)", line):
            registers, *others = map(int, match.groups())
            threads = bounds.get((architecture, kernel), UNBOUNDED)
            numbers = [registers, *others, threads, (registers + 7) // 8 * 8 * threads]
            most[architecture] = [max(pair) for pair in zip(most.get(architecture, [0] * len(numbers)), numbers)]
    return most


def main():
    print("file,architecture," + ",".join(COLUMNS))
    for path in sorted(sys.argv[1:]):
        name = re.sub(r"^(portable|native)_|\.o$", "", os.path.basename(path))
        for architecture, numbers in sorted(resources(path).items(), key=lambda each: int(re.sub(r"\D", "", each[0]))):
            print(name, architecture, *numbers, sep=",")


if __name__ == "__main__":
    main()
