"""Which requests of commands that were sent ahead are checked for cancellation, with a fake clock."""
import gc
import types
import weakref

import pytest



@pytest.fixture
def clock():
    return types.SimpleNamespace(now_s=0.0)


@pytest.fixture
def runtime(worker, monkeypatch, clock):
    from nereid_worker import runtime
    monkeypatch.setattr(runtime, "time", types.SimpleNamespace(perf_counter=lambda: clock.now_s))
    monkeypatch.setattr(runtime.response, "is_decoupled", True)
    return runtime


class Request:
    _release_flags = 1
    is_over = False

    def __init__(self, clock, is_cancelled=False):
        self.clock = clock
        self.num_asked = 0
        self._is_cancelled = is_cancelled

    def is_cancelled(self):
        self.clock.now_s += 0.005  # the host takes long to answer
        self.num_asked += 1
        return self._is_cancelled

    def get_response_sender(self):
        pass

    def _close(self):
        self.is_over = True


def execute(runtime, monkeypatch, request, takes_s):
    def execute(requests):
        request.clock.now_s += takes_s
    monkeypatch.setattr(runtime, "_model", types.SimpleNamespace(execute=execute))
    monkeypatch.setattr(runtime.InferenceRequest, "received", lambda packed: request)
    return runtime._execute(((),), 0)


def test_a_long_cancellation_check_is_not_a_long_execution(runtime, monkeypatch, clock):
    execute(runtime, monkeypatch, Request(clock), takes_s=0.1)
    asked = [Request(clock, is_cancelled=i % 2 == 1) for i in range(20)]
    for each in asked:
        execute(runtime, monkeypatch, each, takes_s=0.0001)
    assert [each.num_asked for each in asked] == [1] * 16 + [0] * 4


def test_requests_are_checked_after_a_long_execution(runtime, monkeypatch, clock):
    for _ in range(2):
        execute(runtime, monkeypatch, Request(clock), takes_s=0.1)
        cancelled = Request(clock, is_cancelled=True)
        assert execute(runtime, monkeypatch, cancelled, takes_s=0.0001)[1:] == (None, (runtime._CANCELLED,))
        assert cancelled.is_over


@pytest.mark.parametrize("is_decoupled", [False, True])
def test_requests_are_deleted_when_their_coroutine_raised(runtime, monkeypatch, is_decoupled):
    """Without a run of the garbage collector, which may be much later: the inputs use memory of the host."""
    seen, posted = [], []

    class Model:
        async def execute(self, requests):
            seen.append(weakref.ref(requests[0]))
            raise ValueError("made up")

    async def nothing():
        pass
    monkeypatch.setattr(runtime, "_model", Model())
    monkeypatch.setattr(runtime.response, "is_decoupled", is_decoupled)
    monkeypatch.setattr(runtime.channel, "is_model_process", lambda: True)
    monkeypatch.setattr(runtime.channel, "post", posted.append)
    gc.disable()
    try:
        _, failure, _ = runtime._execute(((1, "", 0, 0, 0, "{}", ("OUT",), ()),), None)
        runtime.event_loop.result_of(runtime.event_loop.start(nothing()))  # the loop has completed the other coroutine
        assert seen[0]() is None
    finally:
        gc.enable()
    assert "ValueError: made up" in (str(posted) if is_decoupled else failure)
