"""Finds calls in C++ and CUDA sources for which this repository has a function of its own, with bounds that the library's lacks.

python3 tools/lint/calls.py    prints FILE:LINE: what stands where, and what to write; exits with 1 if anything was found
"""
import pathlib
import re
import sys

from sources import C_LIKE, comment_spans, text_of, tracked

# (pattern, what to write in its place, files that may contain it)
CALLS = [
    (r"\b[Jj]son::(parse|accept|sax_parse)\(", "ReadJson or CheckJson of base/json_reader.h, which bound depth and size",
     {"base/json_reader.cc", "backends/tokenizer/lib/load/tokenizer_document.cc"}),
    (r"\bdump\(\)", "ShowJson of base/json_reader.h in messages, which cuts long values off",
     {"base/json_reader.cc", "host/core/capi/server_options.cc", "host/core/config/proto_json.cc", "host/core/model/instance_specs.cc",
      "host/frontend/openai/routes/openapi.cc",
      "backends/llm_core/grammar/guide.cc", "backends/llm_core/grammar/json_schema.cc", "backends/llm_core/grammar/schema_arrays.cc",
      "backends/llm_core/grammar/schema_number.cc", "backends/llm_core/grammar/tool/main.cc"}),
    (r"\bstd::ifstream\b|\bfopen\(", "ReadFile of base/file_content.h, which bounds the size and refuses FIFOs and devices",
     {"base/host_binding.cc", "base/memory_limit.cc", "host/core/observe/metrics.cc"}),
    (r"\bstd::jthread\b|\bstd::thread\(|\bpthread_create\b", "StartThread of base/thread.h, which adds an alternate signal stack", {"base/thread.h"}),
]
# Tests and benchmarks read their own files.
FOLDERS = ("backend_api/", "backends/", "base/", "caches/", "host/", "net/", "repo_templates/", "repoagents/")


def code(name):
    """The text of a source with its comments blanked out."""
    text = text_of(name)
    for begin, end in comment_spans(name, text):
        text = text[:begin] + re.sub(r"[^\n]", " ", text[begin:end]) + text[end:]
    return text


def main():
    found = 0
    for name in tracked():
        if not name.startswith(FOLDERS) or pathlib.PurePosixPath(name).suffix not in C_LIKE:
            continue
        for line, text in enumerate(code(name).splitlines(), 1):
            for pattern, advice, allowed in CALLS:
                match = re.search(pattern, text)
                if match and name not in allowed:
                    print(f"{name}:{line}: '{match.group()}': write {advice}")
                    found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
