"""Each option that a program prints with --help is in docs/, and each option of Nereid's commands that docs/ shows exists."""
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = "\n".join(path.read_text() for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests/conformance/README.md"])
OPTION = re.compile(r"--[a-z][a-zA-Z0-9_-]+")
COMMANDS = {"nereid serve": "nereid", "nereid generate": "nereid", "nereid chat": "nereid", "nereid top": "nereid", "nereid pull": "nereid", "nereid grammar test": "nereid",
            "nereid-repo": "nereid-repo", "nereid-backend-check": "nereid-backend-check", "nereid": "nereid"}


def help_of(dist, command):
    name, *arguments = command.split()
    done = subprocess.run([dist / "bin" / name, *arguments, "--help"], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_is_documented(dist, command):
    options = set(OPTION.findall(help_of(dist, command))) - {"--help", "--version", "--option"}
    assert options or command == "nereid pull"
    assert not sorted(option for option in options if not re.search(re.escape(option) + r"(?![a-zA-Z0-9_-])", PAGES))


def test_each_option_in_a_command_of_the_pages_exists(dist):
    known = {program: set() for program in COMMANDS.values()}
    for command, program in COMMANDS.items():
        known[program].update(OPTION.findall(help_of(dist, command)))
    lines = re.findall(r"^(?:dist/bin/)?(nereid(?:-repo|-backend-check)?|tritonserver) (.*)$", PAGES, re.MULTILINE)
    used = {("nereid" if program == "tritonserver" else program, option) for program, rest in lines for option in OPTION.findall(rest)}
    assert len(used) > 20
    assert not sorted(f"{program} {option}" for program, option in used if option not in known[program])
