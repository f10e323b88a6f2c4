"""Calls of the host, with what comes from it made up here: moments that threads meet only now and then."""
import enum
import marshal
import pathlib
import sys

import pytest

numpy = pytest.importorskip("numpy")
WORKER = pathlib.Path(__file__).parents[3] / "backends/python_like_scripted/worker"


@pytest.fixture
def calls(monkeypatch):
    monkeypatch.syspath_prepend(str(WORKER))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    from nereid_worker import calls, response  # noqa: F401 which says how a response is made
    yield calls
    for name in [each for each in sys.modules if each.split(".")[0] == "nereid_worker"]:
        del sys.modules[name]


def waiting(calls, number, messages=()):
    """The slot of a call that a thread waits for."""
    slot = calls._slots[number] = calls._Slot()
    slot.messages.extend(messages)
    slot.is_waiting = True
    return slot


def test_who_reads_next_has_no_answer_yet(calls):
    """One whose answer has come goes without reading, and so without waking another."""
    answered = waiting(calls, 1, ["answer"])
    unanswered = waiting(calls, 2)
    calls._wake_another()
    assert answered.event.locked() and not unanswered.event.locked()


def test_calls_may_end_while_one_is_looked_for(calls):
    """By the garbage collector, on the same thread."""
    class Ends:
        messages = ()

        @property
        def is_waiting(self):
            calls._slots.pop(3, None)
            return False
    calls._slots.update({1: Ends(), 2: Ends(), 3: calls._Slot()})
    last = waiting(calls, 4)
    calls._wake_another()
    assert not last.event.locked()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_last_answer_that_comes_while_its_call_ends_leaves_no_orphan(calls, monkeypatch, moment):
    """Just before or just after the call has no slot any more."""
    monkeypatch.setattr(calls.channel, "next_posted", lambda: (calls.protocol.STREAM, 1, None, True))
    monkeypatch.setattr(calls, "_pump", "reads")

    class Slots(dict):
        def pop(self, *arguments):
            if moment == "before":
                calls._read_one()
            popped = super().pop(*arguments)
            if moment == "after":
                calls._read_one()
            return popped
    monkeypatch.setattr(calls, "_slots", Slots())
    calls._end(1, waiting(calls, 1))
    assert not calls._orphans


def raise_error(*_, **__):
    raise RuntimeError("made up")


def test_an_answer_that_cannot_be_read_is_the_end_of_its_call_alone(calls, monkeypatch):
    """The next one is read, also where nobody takes them."""
    messages = [(calls.protocol.STREAM, 1, "packed", True), (calls.protocol.STREAM, 2, None, True)]
    monkeypatch.setattr(calls.channel, "next_posted", lambda: messages.pop(0))
    monkeypatch.setattr(calls, "make_response", raise_error)
    calls._orphans.update((1, 2))
    calls._is_draining = True
    calls._drain()
    assert not calls._orphans and not calls._is_draining


def test_answers_are_drained_once_there_are_threads_again(calls, monkeypatch):
    begun = []
    for begin in (raise_error, lambda *arguments: begun.append(arguments)):
        monkeypatch.setattr(calls._thread, "start_new_thread", begin)
        calls._end(1, waiting(calls, 1))
    assert begun == [(calls._drain, ())]


def test_a_model_that_cannot_be_asked_is_not_ready(calls, monkeypatch):
    """There are no more threads: whoever reads says so, and reads on."""
    from nereid_worker import runtime
    said = []
    monkeypatch.setattr(calls.channel, "post", said.append)
    monkeypatch.setattr(runtime.threading, "Thread", raise_error)
    runtime._ask_is_ready(7)
    [(kind, query, is_ready, text)] = said
    assert (kind, query, is_ready) == (calls.protocol.READINESS, 7, False) and text.startswith("RuntimeError: made up")


def test_who_reads_is_looked_for_again_once_there_are_threads_again(calls, monkeypatch):
    begun = []

    class Thread:
        def __init__(self, target, **_):
            self.target = target

        def start(self):
            if not begun:
                begun.append("too early")
                raise RuntimeError("made up")
            begun.append(self.target)
    monkeypatch.setattr(calls.threading, "Thread", Thread)
    with pytest.raises(RuntimeError, match="made up"):
        calls.start_pump()
    calls.start_pump()
    calls.start_pump()
    assert begun == ["too early", calls._pump_all]


def test_an_event_loop_is_looked_for_again_once_there_are_threads_again(calls, monkeypatch):
    from nereid_worker import runtime
    with monkeypatch.context() as without_threads:
        without_threads.setattr(runtime.threading, "Thread", raise_error)
        with pytest.raises(RuntimeError, match="made up"):
            runtime._event_loop()
    loop = runtime._event_loop()
    assert runtime._event_loop() is loop  # to the interpreter's end, as in a worker


def test_a_forked_process_waits_for_no_answer(calls):
    """Whoever reads in its parent does not read there. Here no host was ever there, as in one that was forked."""
    from nereid_worker.errors import TritonModelException
    calls._read_lock.acquire()
    with pytest.raises(TritonModelException, match="from the model's process alone"):
        calls._wait(calls._Slot())


class Text(str, enum.Enum):
    ONE = "one"


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize("text", [numpy.str_("one"), Text.ONE, b"one", bytearray(b"one"), numpy.bytes_(b"one"), "one"])
def test_texts_travel_as_str(calls, text):
    """marshal has no other kind, and would make bytes of some."""
    from nereid_worker.arguments import text_of
    from nereid_worker.errors import TritonError
    from nereid_worker.request import InferenceRequest
    assert [(type(each), each) for each in (text_of(text, ""), TritonError(text).message())] == [(str, "one")] * 2
    request = InferenceRequest(request_id=text, correlation_id=text if isinstance(text, str) else "one", model_name=text, inputs=[],
                               requested_output_names=[text], parameters={"one": text} if isinstance(text, str) else None)
    packed = request.packed([])
    assert marshal.loads(marshal.dumps(packed, 2)) == packed and packed[:4] == ("one", -1, "one", "one") and packed[7] == ("one",)


@pytest.mark.parametrize("number", [1, True, Number.ONE])
def test_numbers_travel_as_int(calls, number):
    from nereid_worker.request import InferenceRequest
    packed = InferenceRequest(correlation_id=number, flags=number, timeout=number, model_name="m", inputs=[], requested_output_names=[]).packed([])
    assert [type(each) for each in packed[3:6]] == [int] * 3 and packed[3] == 1
