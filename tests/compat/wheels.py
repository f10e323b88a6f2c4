"""Third-party wheels for the tests, unpacked but not installed, because their dependencies would change our environment. They are kept in
build/compat/. Tests of a wheel that cannot be downloaded are skipped."""
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

STORE = pathlib.Path(__file__).resolve().parents[2] / "build/compat"


def unpacked(requirement, extra=()):
    """Returns the folder with the unpacked wheel `requirement`, such as "name==1.2"."""
    target = STORE / requirement.replace("==", "-")
    if (target / "complete").exists():
        return target
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", str(target), *extra, requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{requirement} was not downloaded within 300 s")
    wheels = list(target.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        pytest.skip(f"{requirement} cannot be downloaded: {done.stderr.strip()[-300:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(target / "content")
    wheels[0].unlink()
    (target / "complete").touch()
    return target
