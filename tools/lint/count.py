"""Counts the sources of the repository, or draws comments from them at random.

python3 tools/lint/count.py [REVISION]                       one line of CSV a group: files, files below 40 lines, code, comment and blank lines
python3 tools/lint/count.py --draw 50 --seed 24 [REVISION]   comments drawn at random over all sources: FILE:LINE: TEXT
Without a revision the work tree is read.
"""
import argparse
import csv
import random
import sys
from collections import Counter

from sources import comment_spans, comments, text_of, tracked

SMALL_FILE_LINES = 40


def counts_of(name, text):
    """Lines of one file by kind. A line with code and a comment counts as code."""
    blanked = list(text)
    for begin, end in comment_spans(name, text):
        for i in range(begin, end):
            if blanked[i] != "\n":
                blanked[i] = "\0"
    kinds = Counter()
    for line in "".join(blanked).splitlines():
        rest = line.replace("\0", "")
        kinds["code" if rest.strip() else "comments" if "\0" in line else "blank"] += 1
    return kinds


def group_of(name):
    """tests, or the top-level folder, and for host and backends one folder more."""
    parts = name.split("/")
    return "/".join(parts[:2]) if parts[0] in ("host", "backends") and len(parts) > 2 else parts[0]


def count(revision):
    groups = {}
    for name in tracked(revision):
        text = text_of(name, revision)
        lines = text.count("\n")
        group = groups.setdefault(group_of(name), Counter())
        group.update(counts_of(name, text))
        group.update(files=1, small_files=lines < SMALL_FILE_LINES)
    columns = ["files", "small_files", "code", "comments", "blank"]
    total = sum(groups.values(), Counter())
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["group", *columns])
    for group, counts in [*sorted(groups.items()), ("total", total)]:
        writer.writerow([group, *(counts[column] for column in columns)])


def is_prose(words):
    """False for what closes a namespace or names an argument (/*name=*/)."""
    return bool(words) and not words.startswith("namespace") and not words.endswith("=")


def draw(revision, number, seed):
    drawn = [(name, line, words) for name in tracked(revision) for line, words in comments(name, text_of(name, revision)) if is_prose(words)]
    for name, line, words in random.Random(seed).sample(drawn, number):
        print(f"{name}:{line}: {words}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", nargs="?", help="a revision of the repository; without it the work tree")
    parser.add_argument("--draw", type=int, metavar="N", help="draw N comments")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    arguments = parser.parse_args()
    if arguments.draw:
        draw(arguments.revision, arguments.draw, arguments.seed)
    else:
        count(arguments.revision)


if __name__ == "__main__":
    main()
