"""Finds words in comments and documents that docs/glossary.md has replaced, and turns of phrase that readers stumble over.

python3 tools/lint/idioms.py    prints FILE:LINE: what stands where, and what to write; exits with 1 if anything was found
"""
import re
import subprocess
import sys

from sources import ROOT, comments, text_of, tracked

# (pattern, what to write in its place). Patterns are matched without regard to case, in comments and in Markdown outside of code.
IDIOMS = [
    (r"\bas there\b|\bthere too\b|\bas ever\b", "name the other system: 'as in Triton'"),
    (r"\bfor ever\b|\bholds good\b", "'always', 'for the lifetime of X', 'is valid'"),
    (r"\bwho(ever)? asks\b|\bwhom\b", "name the caller"),
    (r"\bstrangers?\b", "'third party' for code, 'untrusted' for input, 'reader' for people"),
    (r"\berrands?\b|\bmeeting place\b|\brendezvous\b", "the term of docs/glossary.md: deferred call, barrier"),
    (r"\bhave (it|them) (done|made|told)\b|\bbe told\b|\bis told\b", "say who calls what"),
    (r"\bwhat was (said|asked)\b|\bwhat (it|they) (has|have) in hand\b", "name the thing"),
    (r"\bnobody'?s\b|\bsomebody else'?s\b", "name the owner"),
    (r"\bneighbou?rs?\b|\bspelt\b|\bmend(s|ed)?\b", "'third party' or 'adjacent', 'written', 'fixes'"),
    (r"\bis none'?s\b|\bmay yet\b|\bis not there\b", "'does not exist', 'may still'"),
]
# Documents that report what was, in the words of their day, or that explain the words.
EXEMPT = {"CHANGELOG.md", "docs/glossary.md", "docs/renames.md", "tools/lint/idioms.py"}


def documents():
    """(name, [(line, text)]) of each Markdown document, without its code."""
    for name in subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True).splitlines():
        if not name.startswith("bench/results/") and (ROOT / name).is_file():
            text = re.sub(r"```.*?```", lambda code: "\n" * code.group().count("\n"), text_of(name), flags=re.DOTALL)
            yield name, list(enumerate(re.sub(r"`[^`\n]*`", "", text).splitlines(), 1))


def main():
    found = 0
    sources = [(name, list(comments(name, text_of(name)))) for name in tracked()]
    for name, passages in sources + list(documents()):
        if name in EXEMPT:
            continue
        for line, text in passages:
            for pattern, advice in IDIOMS:
                match = re.search(pattern, text, re.IGNORECASE)
                if match:
                    print(f"{name}:{line}: '{match.group()}': write {advice}")
                    found += 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
