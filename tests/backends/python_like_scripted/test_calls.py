"""Calls of the host, with what comes from it made up here: moments that threads meet only now and then."""
import asyncio
import enum
import marshal
import pathlib
import queue
import sys
import threading

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


class Host:
    """Notes what is posted; a thread of the worker reads what the test says it answers. The first call is number 1, and so on."""

    def __init__(self, calls, monkeypatch):
        self.calls, self.posted, self.answers = calls, [], queue.Queue()
        monkeypatch.setattr(calls.channel, "is_own", lambda: True)
        monkeypatch.setattr(calls.channel, "post", self.posted.append)
        calls.channel.next_posted = self.answers.get  # also when the test is over: whoever reads stays with it
        monkeypatch.setattr(calls, "is_allowed", True)

    def answers_call(self, packed, is_final, number=1):
        self.answers.put((self.calls.protocol.STREAM, number, packed, is_final))

    def cancelled(self):
        return [each[1] for each in self.posted if each[0] == self.calls.protocol.CANCEL]


@pytest.fixture
def host(calls, monkeypatch):
    """What it made up is read by daemon threads that the test leaves waiting for more."""
    return Host(calls, monkeypatch)


def request():
    from nereid_worker.request import InferenceRequest
    return InferenceRequest(model_name="m", inputs=[], requested_output_names=[])


def tagged(tag):
    """The packed response that says so."""
    return (), None, (("tag", tag),)


def tag_of(response):
    return response.error().message() if response.has_error() else response.parameters()


ONE, TWO, THREE = (f'{{"tag":{each}}}' for each in (1, 2, 3))


@pytest.mark.parametrize("decoupled", [False, True])
def test_who_awaits_an_answer_that_cannot_be_made_hears_why(calls, host, monkeypatch, decoupled):
    monkeypatch.setattr(calls, "make_response", raise_error)

    async def ask():
        future = calls.infer_async(request(), decoupled)
        host.answers_call(tagged(1), True)
        answer = await asyncio.wait_for(future, 30)
        next(answer)
    with pytest.raises(RuntimeError, match="made up"):
        asyncio.run(ask())
    assert not calls._slots and not calls._orphans


def test_a_model_that_answers_with_nothing_is_an_error(calls, host):
    async def ask():
        future = calls.infer_async(request(), False)
        host.answers_call(None, True, 2)
        return await asyncio.wait_for(future, 30)
    host.answers_call(None, True)
    first = calls.infer(request(), False)
    assert [(tag_of(each), int(each.error().code())) for each in (first, asyncio.run(ask()))] == [("Unexpected empty response.", 1)] * 2
    assert not calls._slots


def test_who_reads_goes_on_where_another_thread_tells_first(calls):
    slot = calls._Slot()

    class Taken(list):
        def popleft(self):
            self.clear()
            raise IndexError
    slot.to_tell = Taken(["a function"])
    slot.wake()


def test_a_stream_whose_loop_was_closed_is_cancelled(calls, host, monkeypatch):
    monkeypatch.setattr(calls, "_pump", "reads")

    async def ask():
        calls.infer_async(request(), True)
    asyncio.run(ask())
    host.answers_call(tagged(1), False)
    calls._read_one()
    assert host.cancelled() == [1] and not calls._slots and calls._orphans == {1}
    host.answers_call(None, True)
    calls._read_one()
    assert not calls._orphans


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_loop_that_is_closed_with_an_answer_in_its_queue_leaves_no_memory_in_use(calls, host, monkeypatch, decoupled):
    made = []
    monkeypatch.setattr(calls, "_pump", "reads")
    monkeypatch.setattr(calls, "make_response", made.append)
    loop = asyncio.new_event_loop()

    async def ask():
        calls.infer_async(request(), decoupled)
    loop.run_until_complete(ask())
    host.answers_call(tagged(1), True)
    calls._read_one()
    assert calls._slots and not made
    loop.close()
    assert not calls._slots and made == [tagged(1)] and not host.cancelled()


def test_a_loop_that_is_closed_while_it_is_told_leaves_no_memory_in_use(calls, host, monkeypatch):
    """Such a one takes what it is told into a queue that nobody looks at."""
    monkeypatch.setattr(calls, "_pump", "reads")
    loop, queued = asyncio.new_event_loop(), []
    monkeypatch.setattr(loop, "call_soon_threadsafe", queued.append)

    async def ask():
        calls.infer_async(request(), False)
    loop.run_until_complete(ask())
    loop.close()
    host.answers_call(tagged(1), True)
    calls._read_one()
    assert queued and not calls._slots


def test_a_future_that_is_cancelled_cancels_its_call(calls, host):
    async def ask(decoupled):
        future = calls.infer_async(request(), decoupled)
        future.cancel()
        await asyncio.sleep(0)
    for decoupled in (False, True):
        asyncio.run(ask(decoupled))
    assert host.cancelled() == [1, 2] and not calls._slots


async def stream_of(calls, host):
    """After its first response, which says 1."""
    future = calls.infer_async(request(), True)
    host.answers_call(tagged(1), False)
    stream = await asyncio.wait_for(future, 30)
    assert tag_of(await asyncio.wait_for(stream.__anext__(), 30)) == ONE
    return stream


def test_a_cancelled_wait_for_a_response_takes_none(calls, host):
    async def read():
        stream = await stream_of(calls, host)
        for _ in range(3):
            waiting = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert not stream._slot.to_tell
        host.answers_call(tagged(2), False)
        host.answers_call(tagged(3), True)
        return [tag_of(each) async for each in stream]
    assert asyncio.run(asyncio.wait_for(read(), 30)) == [TWO, THREE]


def test_several_coroutines_share_a_stream_to_its_end(calls, host):
    async def read():
        stream = await stream_of(calls, host)
        readers = [asyncio.ensure_future(collect(stream)) for _ in range(4)]
        await asyncio.sleep(0.01)
        for tag in range(2, 50):
            host.answers_call(tagged(tag), False)
        host.answers_call(None, True)
        return [tag for each in await asyncio.gather(*readers) for tag in each]

    async def collect(stream):
        return [tag_of(each) async for each in stream]
    assert sorted(asyncio.run(asyncio.wait_for(read(), 30))) == sorted([f'{{"tag":{each}}}' for each in range(2, 50)] + ["{}"])


@pytest.mark.parametrize("is_async", [False, True])
def test_several_threads_share_a_stream_to_its_end(calls, host, is_async):
    """And coroutines with them."""
    stream, seen = calls.infer(request(), True), []

    async def collect():
        async for each in stream:
            seen.append(tag_of(each))
    readers = [threading.Thread(target=lambda: seen.extend(map(tag_of, stream)), daemon=True) for _ in range(3)]
    readers += [threading.Thread(target=lambda: asyncio.run(collect()), daemon=True)] * is_async
    for each in readers:
        each.start()
    for tag in range(1, 200):
        host.answers_call(tagged(tag), False)
    host.answers_call(None, True)
    for each in readers:
        each.join(30)
    assert not any(each.is_alive() for each in readers)
    assert sorted(seen) == sorted([f'{{"tag":{each}}}' for each in range(1, 200)] + ["{}"])


def test_a_fast_stream_holds_up_no_other_coroutine(calls, host):
    async def read():
        stream = await stream_of(calls, host)
        for tag in range(2, 20):
            host.answers_call(tagged(tag), tag == 19)
        while not stream._slot.is_over:
            await asyncio.sleep(0.001)
        turns = []
        other = asyncio.ensure_future(take_turns(turns))
        async for _ in stream:
            turns.append("a response")
        await other
        return turns.index("another")

    async def take_turns(turns):
        turns.append("another")
    assert asyncio.run(asyncio.wait_for(read(), 30)) < 2


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_call_that_there_is_no_room_for_is_answered_with_an_error(calls, host, monkeypatch, decoupled):
    from nereid_worker.errors import TritonModelException

    def no_room(_):
        raise TritonModelException("no room")

    async def ask():
        return await asyncio.wait_for(calls.infer_async(request(), decoupled), 30)
    monkeypatch.setattr(calls.channel, "post", no_room)
    for answer in (calls.infer(request(), decoupled), asyncio.run(ask())):
        assert [(tag_of(each), int(each.error().code())) for each in (answer if decoupled else [answer])] == [("no room", 1)]
    assert not calls._slots and not calls._orphans


def test_a_forked_process_waits_for_no_answer_to_its_parent(calls):
    """Whoever reads in its parent does not read there."""
    from nereid_worker.errors import TritonModelException
    slot = waiting(calls, 1)
    calls._read_lock.acquire()
    calls._leave()
    with pytest.raises(TritonModelException, match="call of the process that forked it"):
        calls._wait(slot)
    calls._end(1, slot)
    assert not calls._orphans and calls._read_lock.acquire(blocking=False)


def test_calls_may_end_while_a_forked_process_leaves_them(calls):
    """By the garbage collector, in a process that was forked while another thread held a lock."""
    class Ends(calls._Slot):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "is_left" and value:
                calls._end(2, calls._slots[2])
    calls._slots[1] = Ends()
    waiting(calls, 2).is_over = True
    waiting(calls, 3)
    held, is_over = threading.Event(), threading.Event()

    def hold():
        with calls._slots_lock:
            held.set()
            is_over.wait()
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    left = threading.Thread(target=calls._leave, daemon=True)
    left.start()
    left.join(30)
    is_over.set()
    assert not left.is_alive() and not calls._slots and not calls._orphans


def test_a_forked_process_waits_for_no_lock_of_a_thread_that_is_not_there(calls, host):
    """Of a sender and of a stream, both of which another thread used."""
    from nereid_worker import response
    from nereid_worker.errors import TritonModelException
    sender, stream = response.InferenceResponseSender.of(7, ()), calls.infer(request(), True)
    locks = [stream._lock, stream._waiting, response._sending]
    held, is_over = threading.Event(), threading.Event()

    def hold():
        for each in locks:
            each.acquire()
        held.set()
        is_over.wait()

    def use():
        sender.send(response.InferenceResponse([]))
        try:
            next(stream)
        except TritonModelException as error:
            told.append(str(error))
    told, user = [], threading.Thread(target=use, daemon=True)
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    for each in calls.channel.on_leave:
        each()
    user.start()
    user.join(30)
    is_over.set()
    assert len(told) == 1 and "call of the process that forked it" in told[0]
    sender._close()


def test_no_thread_reads_where_the_host_cannot_be_called(calls):
    from nereid_worker.errors import TritonModelException

    async def ask():
        await calls.infer_async(request(), False)
    with pytest.raises(TritonModelException, match="cannot call the host"):
        asyncio.run(ask())
    assert calls._pump is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_waits_reads_where_the_thread_that_read_for_all_failed(calls, host):
    waits = threading.Thread(target=calls._wait, args=(calls._slots.setdefault(1, calls._Slot()),), daemon=True)
    calls.start_pump()
    waits.start()
    while not calls._slots[1].is_waiting:
        threading.Event().wait(0.01)
    host.answers.put(())  # no message
    host.answers_call(tagged(1), True)
    waits.join(30)
    assert not waits.is_alive() and calls._pump is None


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_call_that_fails_once_it_has_begun_leaves_nothing(calls, host, monkeypatch, decoupled):
    """While the host takes tensors that lie on a GPU."""
    made = request()
    monkeypatch.setattr(type(made), "packed", lambda _, kept: kept.append("a tensor") or ("m", -1, "", 0, 0, 0, (), (), (), 0, -1))
    monkeypatch.setattr(calls, "await_handled", raise_error)
    failures = []

    async def ask():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        with pytest.raises(RuntimeError, match="made up"):
            calls.infer_async(made, decoupled)
        await asyncio.sleep(0.01)
    asyncio.run(ask())
    with pytest.raises(RuntimeError, match="made up"):
        calls.infer(made, decoupled)
    assert not calls._slots and not failures and calls._orphans == {1, 2}


def test_a_wait_that_is_interrupted_lets_another_thread_read(calls):
    """It may have been woken to do so."""
    slot, other = waiting(calls, 1), waiting(calls, 2)
    calls._read_lock.acquire()

    class Interrupted:
        def acquire(self):
            raise KeyboardInterrupt
    slot.event = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        calls._wait(slot)
    assert not slot.is_waiting and not other.event.locked()


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


def test_arrays_have_a_truth_if_they_have_one_element(calls):
    from nereid_worker.arguments import bool_of
    assert [bool_of(numpy.array([each]), "") for each in (0, 1)] == [False, True]
    with pytest.raises(TypeError, match="wanted as bool"):
        bool_of(numpy.array([1, 2]), "wanted")
