"""Holds the tree to its rules: include directions, file sizes, links of the documents, nothing of a developer's machine."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = [path for folder in ("backend_api", "base", "host", "backends", "caches", "repoagents", "repo_templates", "bench", "tests", "tools")
           for suffix in ("*.h", "*.cc", "*.c", "*.inc", "*.cu", "*.cuh") for path in sorted((ROOT / folder).rglob(suffix))]
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)

# Folders from the ground floor up: each may include itself and what stands before it. A file of the folder itself is on the floor
# that is named "", which may include the rest; where no floor has that name, such files are not looked at.
FLOORS = {
    "host/core": ["handle", "observe", "memory", "config", "request", "scheduling", "backend", "cache", "model", "repository", "", "capi"],
    "backends/tokenizer/lib": ["text", "reading", "pattern", "vocabulary", "normalize", "split", "model", "finish", "decode", "load", ""],
    "host/frontend/http": ["json", "transport", "bodies", "calls", "endpoints"],
}


def includes(path):
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def below(folder):
    return [path for path in SOURCES if path.is_relative_to(ROOT / folder)]


@pytest.mark.parametrize("folder", FLOORS)
def test_a_floor_includes_only_what_stands_below(folder):
    def floor(name):  # of a path relative to the folder
        return FLOORS[folder].index(name.rpartition("/")[0].partition("/")[0])

    names = {path: str(path.relative_to(ROOT / folder)) for path in below(folder) if "" in FLOORS[folder] or path.parent != ROOT / folder}
    faults = [f"{path.relative_to(ROOT)} includes {name}" for path, here in names.items()
              for name in (full.removeprefix(f"{folder}/") for full in includes(path)) if name in names.values() and floor(name) > floor(here)]
    assert names and not faults, "\n".join(faults)


@pytest.mark.parametrize("folder, forbidden", [
    ("backend_api", ("host/", "backends/", "llm_core/")),
    ("host/core", ("host/frontend", "backends/", "llm_core/", "event2/", "grpc", "grpcpp")),
    ("host/frontend", ("host/core", "capi/", "model/", "repository/", "scheduling/", "backends/", "llm_core/")),
    ("backends/ensemble", ("host/", "llm_core/", "capi/")),
    ("backends/python_like_scripted", ("host/", "llm_core/", "capi/")),
    ("backends/tokenizer", ("host/", "llm_core/", "capi/")),
    ("caches", ("host/", "llm_core/", "capi/")),
    ("repoagents", ("host/", "llm_core/", "capi/")),
    ("backends/llm_core", ("host/", "cpu_reference/", "gpu_llm/", "capi/")),
    ("backends/cpu_reference", ("host/", "gpu_llm/", "capi/")),
    ("backends/gpu_llm", ("host/", "cpu_reference/", "capi/")),
])
def test_no_folder_includes_upward(folder, forbidden):
    faults = [f"{path.relative_to(ROOT)} includes {name}" for path in below(folder) for name in includes(path) if name.startswith(forbidden)]
    assert not faults, "\n".join(faults)


def test_the_engine_and_the_tokenizer_library_know_no_c_api():
    pure = [path for path in below("backends/llm_core") if "adapter" not in path.parts] + below("backends/tokenizer/lib")
    faults = [f"{path.relative_to(ROOT)} includes {name}" for path in pure for name in includes(path) if name.startswith("triton/")]
    assert pure and not faults, "\n".join(faults)


def test_only_the_llm_backends_include_the_engine():
    allowed = tuple(ROOT / folder for folder in ("backends/llm_core", "backends/cpu_reference", "backends/gpu_llm", "tests/backends", "tests/fuzz", "bench"))
    faults = [str(path.relative_to(ROOT)) for path in SOURCES if not any(path.is_relative_to(home) for home in allowed)
              if any(name.startswith("llm_core/") for name in includes(path))]
    assert not faults, "\n".join(faults)


def test_others_include_the_fronts_of_the_tokenizer_library_alone():
    library = ROOT / "backends/tokenizer/lib"
    inner = {str(path.relative_to(library)) for path in below("backends/tokenizer/lib")} - {"tokenizer.h", "shared_tokenizer.h", "decode/stop_strings.h"}
    others = [path for path in SOURCES if not path.is_relative_to(library) and not path.is_relative_to(ROOT / "tests")]
    faults = [f"{path.relative_to(ROOT)} includes {name}" for path in others for name in includes(path) if name in inner and not (path.parent / name).exists()]
    assert inner and not faults, "\n".join(faults)


def test_files_fit_a_sitting():
    long = [f"{path.relative_to(ROOT)}: {count} lines" for path in SOURCES if path.suffix != ".inc"
            and "include/triton/core" not in str(path) and (count := len(path.read_text(encoding="utf-8").splitlines())) > 600]
    assert not long, "\n".join(long)


def test_links_of_the_documents_lead_somewhere():
    dead = []
    for document in [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", document.read_text(encoding="utf-8")):
            if not target.startswith(("http:", "https:", "mailto:")) and not (ROOT / target).exists():
                dead.append(f"{document.name}: {target}")
    assert not dead, "\n".join(dead)
