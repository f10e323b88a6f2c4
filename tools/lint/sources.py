"""The tracked sources of this repository and their comments: what tools/lint/idioms.py and tools/lint/count.py read."""
import io
import pathlib
import re
import subprocess
import tokenize

ROOT = pathlib.Path(__file__).resolve().parents[2]
C_LIKE = {".h", ".cc", ".c", ".cu", ".cuh"}
HASH_LIKE = {".py", ".cmake", ".sh", ".toml"}
C_TOKEN = re.compile(r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/', re.DOTALL)


def is_source(name):
    """True for code that people read: C++, CUDA, Python, CMake and shell, without test data and fuzz corpora."""
    path = pathlib.PurePosixPath(name)
    if "corpus" in path.parts or name.startswith(("tests/golden/models", "demo/")):
        return False
    return path.suffix in C_LIKE | HASH_LIKE or path.name == "CMakeLists.txt" or path.parts[0] in ("scripts", ".ci")


def tracked(revision=None):
    """Names of the tracked sources, in the work tree or at a revision."""
    command = ["git", "ls-tree", "-r", "--name-only", revision] if revision else ["git", "ls-files"]
    names = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    return sorted(name for name in names if is_source(name) and (revision or (ROOT / name).is_file()))


def text_of(name, revision=None):
    """The text of a source, in the work tree or at a revision."""
    if revision:
        return subprocess.check_output(["git", "show", f"{revision}:{name}"], cwd=ROOT).decode(errors="replace")
    return (ROOT / name).read_text(errors="replace")


def comment_spans(name, text):
    """Yields (begin, end) of each comment in the text; docstrings of Python do not count."""
    if pathlib.PurePosixPath(name).suffix in C_LIKE:
        for token in C_TOKEN.finditer(text):
            if token.group().startswith(("//", "/*")):
                yield token.span()
    elif name.endswith(".py"):
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    begin = starts[token.start[0] - 1] + token.start[1]
                    yield begin, begin + len(token.string)
        except (tokenize.TokenError, IndentationError):
            return
    else:
        for match in re.finditer(r"(?:^|(?<=\s))#(?!!)[^\n]*", text):
            yield match.span()


def comments(name, text):
    """Yields (line number, text) of each comment; comments on successive lines are one, without the marks."""
    begin_line, lines, next_line = 0, [], -1
    for begin, end in comment_spans(name, text):
        line = text.count("\n", 0, begin) + 1
        words = re.sub(r"^\s*(//+<?|#+|/?\*+/?)\s?", "", text[begin:end], flags=re.MULTILINE).replace("*/", "").strip()
        is_whole_line = not text[text.rfind("\n", 0, begin) + 1:begin].strip()
        if lines and line == next_line and is_whole_line:
            lines.append(words)
        else:
            if lines:
                yield begin_line, " ".join(lines)
            begin_line, lines = line, [words]
        next_line = line + text.count("\n", begin, end) + 1
    if lines:
        yield begin_line, " ".join(lines)
