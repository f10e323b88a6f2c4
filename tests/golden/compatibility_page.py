"""The tables of docs/compatibility.md that are made from other files: the flags from the server's own help text, the differences from
differences.toml. `python tests/golden/compatibility_page.py` writes them anew (NEREID_DIST names the installed tree)."""
import os
import pathlib
import re
import subprocess

import differences

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/compatibility.md"


def help_text():
    return subprocess.run([os.environ["NEREID_DIST"] + "/bin/nereid", "--help"], capture_output=True, text=True, check=True).stdout


def flags():
    """(name, value, what it does) of each flag."""
    found = []
    for line in help_text().splitlines()[3:]:
        if re.match(r"  --", line):
            name, _, value = line.strip().partition(" ")
            found.append([name, value.strip("<>"), ""])
        elif line.startswith("     "):
            found[-1][2] = (found[-1][2] + " " + line.strip()).strip()
    return found


def cell(text):
    return text.replace("|", "\\|")


def flag_table():
    rows = ["| flag | value | |", "|---|---|---|"]
    for name, value, text in flags():
        rows.append(f"| `{name}` | {cell(value)} | {cell(text)} |")
    return rows


def instead(entry):
    """What Nereid answers, in a few words."""
    parts = [str(entry[key]) for key in ("status", "grpc_status") if key in entry]
    if "error" in entry:
        parts.append("another text" if parts == [] else "says what is wrong")
    return ", ".join(parts) or "another content"


def difference_table():
    rows = ["| recorded request | Nereid answers | why |", "|---|---|---|"]
    for entry in differences.DIFFERENCES:
        names = ", ".join(f"`{name}`" for name in entry["recordings"])
        rows.append(f"| {names} | {cell(instead(entry))} | {cell(entry['reason'])} |")
    return rows


TABLES = {"flags": flag_table, "differences": difference_table}


def marked(name):
    return f"<!-- {name}: made by tests/golden/compatibility_page.py -->"


def table_on_page(name):
    """The lines between the table's marks."""
    text = PAGE.read_text()
    return text.split(marked(name) + "\n\n", 1)[1].split("\n\n<!-- end -->", 1)[0].splitlines()


def write():
    text = PAGE.read_text()
    for name, make in TABLES.items():
        head, rest = text.split(marked(name) + "\n", 1)
        text = head + marked(name) + "\n\n" + "\n".join(make()) + "\n\n<!-- end -->" + rest.split("<!-- end -->", 1)[1]
    PAGE.write_text(text)


if __name__ == "__main__":
    write()
