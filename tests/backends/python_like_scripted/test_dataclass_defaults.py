"""Dataclasses with defaults that Python 3.11 refuses, in the files of a model."""
import dataclasses
import importlib.util
import sys

import pytest

np = pytest.importorskip("numpy")
WORKER_MODEL = """
import dataclasses
from dataclasses import dataclass
from typing import ClassVar
import numpy as np

@dataclass
class Inner:
    size: int = 3

@dataclass
class Request:
    text: str = ""
    inner: Inner = Inner()
    weights: np.ndarray = np.zeros(2)
    shown: np.ndarray = dataclasses.field(default=np.ones(2), repr=False)
    limits: ClassVar[int] = 5

@dataclass(kw_only=True, slots=True)
class Slotted:
    inner: Inner = Inner()
"""


@pytest.fixture
def load(worker, tmp_path, monkeypatch):
    from nereid_worker import dataclass_defaults
    monkeypatch.setattr(dataclasses, "dataclass", dataclasses.dataclass)

    def load_file(code, folder=tmp_path, name="model_with_dataclasses"):
        path = tmp_path / f"{name}.py"
        path.write_text(code)
        dataclass_defaults.install(folder)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module
    return load_file


def test_a_mutable_default_is_the_same_object_in_all_instances(load):
    module = load(WORKER_MODEL)
    first, second = module.Request("a"), module.Request("b", weights=np.ones(1))
    assert first.inner is second.inner is module.Request.inner and first.inner.size == 3
    assert first.weights is module.Request.weights and second.weights.size == 1
    assert "shown" not in repr(first) and first.shown is second.shown
    assert [field.name for field in dataclasses.fields(module.Request)] == ["text", "inner", "weights", "shown"]
    assert module.Slotted().inner is module.Slotted().inner


@pytest.mark.parametrize("default", ["[]", "{}", "set()"])
def test_defaults_that_were_never_allowed_stay_refused(load, default):
    with pytest.raises(ValueError, match="mutable default"):
        load(f"from dataclasses import dataclass\n@dataclass\nclass Wrong:\n    field: object = {default}\n")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 allows it everywhere")
def test_classes_of_other_files_keep_the_rules_of_this_python(load, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "other.py").write_text("from dataclasses import dataclass\n")
    with pytest.raises(ValueError, match="mutable default"):
        load(WORKER_MODEL, folder=elsewhere)


def test_a_model_without_dataclasses_changes_nothing(load):
    before = dataclasses.dataclass
    load("value = 5\n")
    assert dataclasses.dataclass is before
