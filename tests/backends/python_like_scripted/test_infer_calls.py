"""Inference calls of other models, with answers of the host that the test makes up: races between threads and coroutines."""
import asyncio
import queue
import threading

import pytest

pytest.importorskip("numpy")


@pytest.fixture
def calls(worker):
    from nereid_worker import calls
    return calls


def infer(*arguments):
    from nereid_worker import infer_calls
    return infer_calls.infer(*arguments)


def infer_async(*arguments):
    from nereid_worker import infer_calls
    return infer_calls.infer_async(*arguments)


def raise_error(*_, **__):
    raise RuntimeError("made up")


class Host:
    """Records posted messages and gives the answers that a test sets to a thread of the worker that reads. Calls have the numbers 1, 2 and so on."""

    def __init__(self, calls, monkeypatch):
        self.calls, self.posted, self.answers = calls, [], queue.Queue()
        monkeypatch.setattr(calls.channel, "is_model_process", lambda: True)
        monkeypatch.setattr(calls.channel, "post", self.posted.append)
        calls.channel.next_posted = self.answers.get  # not reset after the test, because the reading thread still uses it
        monkeypatch.setattr(calls, "is_allowed", True)

    def answers_call(self, packed, is_final, number=1):
        self.answers.put((self.calls.protocol.STREAM, number, packed, is_final))

    def cancelled(self):
        return [each[1] for each in self.posted if each[0] == self.calls.protocol.CANCEL]


@pytest.fixture
def host(calls, monkeypatch):
    """Daemon threads that read its answers outlive the test."""
    return Host(calls, monkeypatch)


def request():
    from nereid_worker.request import InferenceRequest
    return InferenceRequest(model_name="m", inputs=[], requested_output_names=[])


def tagged(tag):
    """An encoded response with this tag as a parameter."""
    return (), None, (("tag", tag),)


def tag_of(response):
    return response.error().message() if response.has_error() else response.parameters()


ONE, TWO, THREE = (f'{{"tag":{each}}}' for each in (1, 2, 3))


@pytest.mark.parametrize("decoupled", [False, True])
def test_awaiting_a_response_that_cannot_be_decoded_raises_the_error(calls, host, monkeypatch, decoupled):
    from nereid_worker.response import InferenceResponse
    monkeypatch.setattr(InferenceResponse, "received", raise_error)
    monkeypatch.setattr(calls, "_release_response", raise_error)

    async def ask():
        future = infer_async(request(), decoupled)
        host.answers_call(tagged(1), True)
        answer = await asyncio.wait_for(future, 30)
        next(answer)
    with pytest.raises(RuntimeError, match="made up"):
        asyncio.run(ask())
    assert not calls._pending and not calls._abandoned


def test_an_empty_response_is_an_error(calls, host):
    async def ask():
        future = infer_async(request(), False)
        host.answers_call(None, True, 2)
        return await asyncio.wait_for(future, 30)
    host.answers_call(None, True)
    first = infer(request(), False)
    assert [(tag_of(each), int(each.error().code())) for each in (first, asyncio.run(ask()))] == [("Unexpected empty response.", 1)] * 2
    assert not calls._pending



def test_a_stream_is_cancelled_if_its_loop_was_closed(calls, host, monkeypatch):
    monkeypatch.setattr(calls, "_reader_thread", "reads")

    async def ask():
        infer_async(request(), True)
    asyncio.run(ask())
    host.answers_call(tagged(1), False)
    calls._read_one()
    assert host.cancelled() == [1] and not calls._pending and calls._abandoned == {1}
    host.answers_call(None, True)
    calls._read_one()
    assert not calls._abandoned


@pytest.mark.parametrize("decoupled", [False, True])
def test_closing_a_loop_with_a_queued_answer_releases_its_memory(calls, host, monkeypatch, decoupled):
    made = []
    monkeypatch.setattr(calls, "_reader_thread", "reads")
    monkeypatch.setattr(calls, "_release_response", made.append)
    loop = asyncio.new_event_loop()

    async def ask():
        infer_async(request(), decoupled)
    loop.run_until_complete(ask())
    host.answers_call(tagged(1), True)
    calls._read_one()
    assert calls._pending and not made
    loop.close()
    assert not calls._pending and made == [tagged(1)] and not host.cancelled()


def test_closing_a_loop_while_an_answer_is_queued_ends_the_call(calls, host, monkeypatch):
    """A loop that is closing accepts a callback into a queue that is never run."""
    monkeypatch.setattr(calls, "_reader_thread", "reads")
    loop, queued = asyncio.new_event_loop(), []
    monkeypatch.setattr(loop, "call_soon_threadsafe", queued.append)

    async def ask():
        infer_async(request(), False)
    loop.run_until_complete(ask())
    loop.close()
    host.answers_call(tagged(1), True)
    calls._read_one()
    assert queued and not calls._pending


def test_a_future_that_is_cancelled_cancels_its_call(calls, host):
    async def ask(decoupled):
        future = infer_async(request(), decoupled)
        future.cancel()
        await asyncio.sleep(0)
    for decoupled in (False, True):
        asyncio.run(ask(decoupled))
    assert host.cancelled() == [1, 2] and not calls._pending


async def stream_of(calls, host):
    """A stream whose first response, with tag 1, was read."""
    future = infer_async(request(), True)
    host.answers_call(tagged(1), False)
    stream = await asyncio.wait_for(future, 30)
    assert tag_of(await asyncio.wait_for(stream.__anext__(), 30)) == ONE
    return stream


def test_a_cancelled_wait_loses_no_response(calls, host):
    async def read():
        stream = await stream_of(calls, host)
        for _ in range(3):
            waiting = asyncio.ensure_future(stream.__anext__())
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        assert not stream._pending_call.callbacks
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
    """Also together with coroutines."""
    stream, seen = infer(request(), True), []

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


def test_a_fast_stream_does_not_block_other_coroutines(calls, host):
    async def read():
        stream = await stream_of(calls, host)
        for tag in range(2, 20):
            host.answers_call(tagged(tag), tag == 19)
        while not stream._pending_call.is_over:
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
def test_a_call_without_shared_memory_ends_with_an_error(calls, host, monkeypatch, decoupled):
    from nereid_worker.errors import TritonModelException

    def no_room(_):
        raise TritonModelException("no room")

    async def ask():
        return await asyncio.wait_for(infer_async(request(), decoupled), 30)
    monkeypatch.setattr(calls.channel, "post", no_room)
    for answer in (infer(request(), decoupled), asyncio.run(ask())):
        assert [(tag_of(each), int(each.error().code())) for each in (answer if decoupled else [answer])] == [("no room", 1)]
    assert not calls._pending and not calls._abandoned



def test_a_forked_process_does_not_wait_for_locks_of_other_threads(calls, host):
    """The locks of a sender and of a stream that another thread used."""
    from nereid_worker import response
    from nereid_worker.errors import TritonModelException
    sender, stream = response.InferenceResponseSender.of(7, ()), infer(request(), True)
    locks = [stream._lock, stream._waiting, response._send_lock]
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
    for each in calls.channel.after_fork_in_child:
        each()
    user.start()
    user.join(30)
    is_over.set()
    assert len(told) == 1 and "call of the process that forked it" in told[0]
    sender._close()


def test_no_reader_thread_starts_if_the_host_cannot_be_called(calls):
    from nereid_worker.errors import TritonModelException

    async def ask():
        await infer_async(request(), False)
    with pytest.raises(TritonModelException, match="cannot call the host"):
        asyncio.run(ask())
    assert calls._reader_thread is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_waiting_thread_reads_after_the_reader_thread_failed(calls, host):
    waits = threading.Thread(target=calls.wait, args=(calls._pending.setdefault(1, calls.PendingCall()),), daemon=True)
    calls.start_reader_thread()
    reader = calls._reader_thread
    waits.start()
    while not calls._pending[1].is_waiting:
        threading.Event().wait(0.01)
    host.answers.put(())  # an invalid message
    host.answers_call(tagged(1), True)
    waits.join(30)
    reader.join(30)
    assert not waits.is_alive() and calls._reader_thread is None


@pytest.mark.parametrize("decoupled", [False, True])
def test_a_call_that_fails_after_its_start_leaves_nothing_pending(calls, host, monkeypatch, decoupled):
    """It fails while the host copies tensors from a GPU."""
    made = request()
    monkeypatch.setattr(type(made), "packed", lambda _, kept: kept.append("a tensor") or ("m", -1, "", 0, 0, 0, (), (), (), 0, -1))
    monkeypatch.setattr(calls, "await_handled", raise_error)
    failures = []

    async def ask():
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        with pytest.raises(RuntimeError, match="made up"):
            infer_async(made, decoupled)
        await asyncio.sleep(0.01)
    asyncio.run(ask())
    with pytest.raises(RuntimeError, match="made up"):
        infer(made, decoupled)
    assert not calls._pending and not failures and calls._abandoned == {1, 2}


def test_the_host_learns_which_responses_were_read(host, calls):
    for _ in range(70):
        host.answers_call(((), None, ()), False)
    host.answers_call(None, True)
    assert len(list(infer(request(), True))) == 71
    assert [each[1:] for each in host.posted if each[0] == calls.protocol.CONSUMED] == [(1, 32), (1, 32)]


def test_a_response_sender_waits_for_room_now_and_then(host, calls, monkeypatch):
    from nereid_worker import response
    monkeypatch.setattr(response, "is_decoupled", True)
    sender = response.InferenceResponseSender.of(7, ())
    waits = lambda: [each for each in host.posted if each[0] == calls.protocol.CALL]  # noqa: E731
    for _ in range(127):
        sender.send(response.InferenceResponse())
    assert not waits()
    host.answers.put((calls.protocol.REPLY, 1, True, None))
    sender.send(response.InferenceResponse())  # reads the answer
    assert host.answers.empty() and [each[2:] for each in waits()] == [(calls.protocol.AWAIT_ROOM, (7,))]
    for _ in range(127):
        sender.send(response.InferenceResponse())
    sender.send(response.InferenceResponse(), response.FINAL)  # the last one never waits
    assert len(waits()) == 1
