#!/usr/bin/env python3
"""Fills the ${placeholders} of a model's config.pbtxt.

usage: fill_template.py [-i] FILE NAME:VALUE[,NAME:VALUE...]

The command line is that of TensorRT-LLM's tool of the same name. A backslash before a comma or a colon makes it a part of the value; a colon after
the first one of a pair needs none. Placeholders without a value stay, which means that the setting is not set. The result is printed, or written to
FILE with -i.
"""
import argparse
import difflib
import os
import pathlib
import re
import string
import sys
import tempfile

# Values of placeholders that are no texts, so that a file in which they stay cannot be parsed.
DEFAULTS = {
    "max_queue_size": "0",
    "max_queue_delay_microseconds": "0",
    "logits_datatype": "TYPE_FP32",
    "encoder_input_features_data_type": "TYPE_FP16",
    "prompt_embedding_table_data_type": "TYPE_FP16",
}


class Fault(Exception):
    """What is wrong with the command line."""


def unescape(text):
    return re.sub(r"\\([,:\\])", r"\1", text)


def parse_substitutions(text):
    """Returns the values by name of `name:value,name:value`."""
    values = {}
    for pair in re.findall(r"(?:[^,\\]|\\.)+", text):
        match = re.match(r"((?:[^:\\]|\\.)*):(.*)$", pair, re.DOTALL)
        if match is None or not match[1].strip():
            raise Fault(f"expected NAME:VALUE, got '{pair}'")
        values[unescape(match[1]).strip()] = unescape(match[2])
    return values


def names_in(template):
    return {match["named"] or match["braced"] for match in string.Template.pattern.finditer(template) if match["named"] or match["braced"]}


def warn_of_unknown(values, names, file):
    for name in sorted(set(values) - names):
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        print(f"fill_template.py: '{file}' has no placeholder '{name}'{hint}", file=sys.stderr)


def write_in_place(path, text):
    """Replaces the file at once, so that a server that polls the repository never reads half of it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".fill_template.", delete=False, encoding="utf-8") as new:
        new.write(text)
    os.chmod(new.name, path.stat().st_mode & 0o777)
    os.replace(new.name, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file_path", metavar="FILE", help="the config.pbtxt to fill")
    parser.add_argument("substitutions", metavar="NAME:VALUE,...", help="values of placeholders")
    parser.add_argument("-i", "--in_place", action="store_true", help="write the result to FILE")
    arguments = parser.parse_args()
    path = pathlib.Path(arguments.file_path)
    try:
        template = path.read_text(encoding="utf-8")
        values = parse_substitutions(arguments.substitutions)
    except (OSError, UnicodeDecodeError, Fault) as error:
        sys.exit(f"fill_template.py: {error}")
    warn_of_unknown(values, names_in(template), path)
    filled = string.Template(template).safe_substitute({**DEFAULTS, **values})
    if arguments.in_place:
        write_in_place(path, filled)
    else:
        sys.stdout.write(filled)


if __name__ == "__main__":
    main()
