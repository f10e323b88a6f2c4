"""Checks the rules of the source tree: include root, include directions, file sizes and links in documents."""
import ast
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("backend_api", "base", "net", "host", "backends", "caches", "repoagents", "repo_templates", "bench", "tests", "tools")
SOURCES = [path for folder in FOLDERS for suffix in ("*.h", "*.cc", "*.c", "*.inc", "*.cu", "*.cuh") for path in sorted((ROOT / folder).rglob(suffix))]
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
INSTALLED = ("nereid/", "triton/")  # headers of the SDK and the C API keep the names under which they are installed
GENERATED = (".pb.h", "model_config_schema.inc", ".html.inc", ".css.inc", ".svg.inc", ".js.inc")

# Subfolders from the lowest layer to the highest. Each may include itself and the layers before it. "" means the files of the folder itself; they
# are not checked if "" is missing.
LAYERS = {
    "host/core": ["handle", "observe", "memory", "config", "request", "scheduling", "backend", "cache", "model", "repository", "", "capi"],
    "backends/tokenizer/lib": ["text", "parse", "pattern", "vocabulary", "normalize", "pre_tokenize", "model", "post_process", "decode", "chat", "load", ""],
    "host/frontend/http": ["json", "transport", "bodies", "calls", "endpoints"],
    "host/frontend/openai": ["console", "fields", "tensors", "calls", "routes", ""],
}


def includes(path):
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def below(folder):
    return [path for path in SOURCES if path.is_relative_to(ROOT / folder)]


def test_every_quoted_include_is_a_path_from_the_root():
    """The template is copied out of the tree, so it includes only installed headers."""
    quoted = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
    faults = [f"{path.relative_to(ROOT)} includes {name}" for path in SOURCES if path.suffix != ".inc" for name in quoted.findall(path.read_text(encoding="utf-8"))
              if not name.startswith(INSTALLED) and not name.endswith(GENERATED) and not (ROOT / name).is_file()]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("folder", LAYERS)
def test_a_layer_includes_only_layers_below_it(folder):
    def layer(name):  # of a path relative to the folder
        return LAYERS[folder].index(name.rpartition("/")[0].partition("/")[0])

    names = {path: str(path.relative_to(ROOT / folder)) for path in below(folder) if "" in LAYERS[folder] or path.parent != ROOT / folder}
    known = set(names.values())
    faults = [f"{path.relative_to(ROOT)} includes {full}" for path, own in names.items() for full in includes(path)
              if (name := full.removeprefix(f"{folder}/")) != full and name in known and layer(name) > layer(own)]
    assert names and not faults, "\n".join(faults)


@pytest.mark.parametrize("folder, forbidden", [
    ("backend_api", ("base/", "net/", "host/", "backends/")),
    ("base", ("net/", "host/", "backends/")),
    ("net", ("host/", "backends/")),
    ("host/core", ("net/", "host/frontend/", "backends/", "event2/", "grpc", "grpcpp")),
    ("host/frontend", ("host/core/", "backends/")),
    ("host/cli", ("host/core/", "backends/")),
    ("backends/bls", ("net/", "host/", "backends/llm_core/", "backends/tokenizer/")),
    ("backends/ensemble", ("net/", "host/", "backends/llm_core/", "backends/bls/")),
    ("backends/python_like_scripted", ("net/", "host/", "backends/llm_core/")),
    ("backends/tokenizer", ("net/", "host/", "backends/llm_core/")),
    ("caches", ("net/", "host/", "backends/")),
    ("repoagents", ("net/", "host/", "backends/")),
    ("backends/llm_tables", ("net/", "host/", "backends/llm_core/", "backends/tokenizer/", "backends/ensemble/")),
    ("backends/llm_core", ("net/", "host/", "backends/cpu_reference/", "backends/gpu_llm/")),
    ("backends/cpu_reference", ("net/", "host/", "backends/gpu_llm/")),
    ("backends/gpu_llm", ("net/", "host/", "backends/cpu_reference/")),
])
def test_no_folder_includes_a_layer_above_it(folder, forbidden):
    sources = below(folder)
    faults = [f"{path.relative_to(ROOT)} includes {name}" for path in sources for name in includes(path) if name.startswith(forbidden)]
    assert sources and not faults, "\n".join(faults)


def test_the_engine_and_the_tokenizer_library_do_not_use_the_c_api():
    pure = [path for path in below("backends/llm_core") if "adapter" not in path.parts] + below("backends/tokenizer/lib")
    faults = [f"{path.relative_to(ROOT)} includes {name}" for path in pure for name in includes(path) if name.startswith("triton/")]
    assert pure and not faults, "\n".join(faults)


def test_only_the_llm_backends_include_the_engine():
    """nereid-repo checks a checkpoint with the engine's own reader, so that it refuses what a load refuses."""
    allowed = tuple(ROOT / folder for folder in ("backends/llm_core", "backends/cpu_reference", "backends/gpu_llm", "repo_templates", "tests/backends", "tests/fuzz", "bench"))
    faults = [str(path.relative_to(ROOT)) for path in SOURCES if not any(path.is_relative_to(folder) for folder in allowed)
              if any(name.startswith("backends/llm_core/") for name in includes(path))]
    assert not faults, "\n".join(faults)


# The modules of the Python backend's worker from the lowest layer to the highest, as the docstring of nereid_worker/__init__.py lists them in the
# reverse order. Each imports only modules before it, also inside functions, so that there is no cycle.
WORKER = ROOT / "backends/python_like_scripted/worker"
WORKER_LAYERS = ["protocol", "arguments", "errors", "data_types", "model_config", "spin_reader", "region", "channel", "logger", "gpu", "dlpack", "tensor",
                 "calls", "response", "response_iterator", "infer_calls", "request", "metrics", "models", "relay", "process", "dataclass_defaults", "event_loop",
                 "runtime"]


def test_what_plans_steps_for_gpus_is_built_without_headers_of_cuda():
    sources = re.search(r"add_library\(nereid_gpu_llm_plan STATIC ([^)]*)\)", (ROOT / "backends/gpu_llm/CMakeLists.txt").read_text(encoding="utf-8"))
    waiting, included = [ROOT / "backends/gpu_llm" / name for name in sources[1].split()], {}
    while waiting:
        path = waiting.pop()
        included[path] = includes(path)
        waiting += [ROOT / name for name in included[path] if (ROOT / name).is_file() and ROOT / name not in included]
    faults = [f"{path.relative_to(ROOT)} includes {name}" for path, names in included.items() for name in names if name.startswith(("cuda", "cublas", "mma"))]
    assert len(included) > 20 and not faults, "\n".join(faults)


def imported_worker_modules(path):
    """The modules of nereid_worker that a file imports at any level."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(name for each in node.names if (name := each.name.removeprefix("nereid_worker.")) != each.name)
        elif isinstance(node, ast.ImportFrom) and (node.level == 1 or (node.module or "").partition(".")[0] == "nereid_worker"):
            module = (node.module or "").removeprefix("nereid_worker").removeprefix(".")
            names.update([module] if module else [each.name for each in node.names])
    return names


def test_a_module_of_the_python_worker_imports_only_modules_below_it():
    modules = {path.stem: path for path in (WORKER / "nereid_worker").glob("*.py") if path.stem != "__init__"}
    assert sorted(modules) == sorted(WORKER_LAYERS)
    faults = [f"{name} imports {each}" for name, path in modules.items() for each in imported_worker_modules(path)
              if each not in WORKER_LAYERS[:WORKER_LAYERS.index(name)]]
    faults += [f"{name} imports the public module" for name, path in modules.items() if "triton_python_backend_utils" in path.read_text(encoding="utf-8")]
    assert any("calls" in imported_worker_modules(path) for path in modules.values()) and not faults, "\n".join(faults)


def test_the_python_worker_documents_its_modules_in_the_order_of_the_layers():
    listed = re.findall(r"^  (\w+) ", ast.get_docstring(ast.parse((WORKER / "nereid_worker/__init__.py").read_text(encoding="utf-8")), clean=False), re.MULTILINE)
    assert listed == WORKER_LAYERS[::-1]


def test_other_folders_include_only_the_public_headers_of_the_tokenizer_library():
    library = "backends/tokenizer/lib/"
    public = {library + name for name in ("tokenizer.h", "shared_tokenizer.h", "chat/chat_template.h", "chat/parsers/call_guide.h", "chat/parsers/chat_parser.h",
                                             "chat/parsers/parser_family.h", "chat/parsers/tool_schemas.h", "decode/stop_strings.h",
                                             "vocabulary_fit.h")}
    others = [path for path in SOURCES if not path.is_relative_to(ROOT / library) and not path.is_relative_to(ROOT / "tests")]
    faults = [f"{path.relative_to(ROOT)} includes {name}" for path in others for name in includes(path) if name.startswith(library) and name not in public]
    assert others and not faults, "\n".join(faults)


def test_the_page_of_results_is_drawn_from_their_files():
    done = subprocess.run([sys.executable, ROOT / "bench/report", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_source_is_longer_than_600_lines():
    long = [f"{path.relative_to(ROOT)}: {count} lines" for path in SOURCES if path.suffix != ".inc"
            and "include/triton/core" not in str(path) and (count := len(path.read_text(encoding="utf-8").splitlines())) > 600]
    assert not long, "\n".join(long)


DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md"))]


def test_links_of_the_documents_lead_to_files():
    dead = [f"{document.relative_to(ROOT)}: {target}" for document in DOCUMENTS if "bench/results" not in str(document)
            for target in re.findall(r"\]\(([^)#\s]+)", document.read_text(encoding="utf-8"))
            if not target.startswith(("http:", "https:", "mailto:")) and not (document.parent / target).exists()]
    assert DOCUMENTS and not dead, "\n".join(dead)


def anchors(document):
    """The anchors of a document's headings, as GitHub makes them."""
    without_code = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in re.findall(r"^#+ +(.*)", without_code, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_to_headings_lead_to_headings():
    links = [(document, target, anchor) for document in DOCUMENTS
             for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", document.read_text(encoding="utf-8"))]
    dead = [f"{document.relative_to(ROOT)}: {target}#{anchor}" for document, target, anchor in links
            if not target or target.endswith(".md") if anchor not in anchors(document.parent / target if target else document)]
    assert links and not dead, "\n".join(dead)


def test_the_snippets_for_contributors_are_the_code():
    snippets = [textwrap.dedent(text).strip() for text in
                re.findall(r"^ *```cpp\n(.*?)^ *```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)]
    code = [path.read_text(encoding="utf-8") for path in SOURCES]
    stale = [text for text in snippets if not any(text in source for source in code)]
    assert snippets and not stale, "\n".join(stale)
