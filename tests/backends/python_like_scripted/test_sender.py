"""What a response's sender refuses before the host hears of it."""
import pathlib
import sys

import pytest

pytest.importorskip("numpy")
WORKER = pathlib.Path(__file__).parents[3] / "backends/python_like_scripted/worker"


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.syspath_prepend(str(WORKER))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    import nereid_worker
    yield nereid_worker
    for name in [each for each in sys.modules if each.split(".")[0] == "nereid_worker"]:
        del sys.modules[name]


@pytest.mark.parametrize("flags", [-1, 2**32, 1.0, "1", None, [1]])
def test_flags_that_are_no_number_of_32_bits_are_of_the_wrong_type(worker, flags):
    """As for pybind11, which Triton reads them with."""
    from nereid_worker.response import InferenceResponse, InferenceResponseSender
    sender = InferenceResponseSender.of(1, ())
    for response in (None, InferenceResponse()):
        with pytest.raises(TypeError, match="send: expected flags"):
            sender.send(response, flags)
    sender._close()


@pytest.mark.parametrize("flags", [2, 3, 2**32 - 1])
def test_other_flags_are_not_supported(worker, flags):
    from nereid_worker.errors import TritonModelException
    from nereid_worker.response import InferenceResponseSender
    sender = InferenceResponseSender.of(1, ())
    with pytest.raises(TritonModelException, match="Unsupported flag provided"):
        sender.send(None, flags)
    sender._close()
