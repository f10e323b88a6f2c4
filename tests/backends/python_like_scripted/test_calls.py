"""Calls of the host, with messages of the host that the test makes up: races between threads that occur rarely."""
import threading

import pytest

numpy = pytest.importorskip("numpy")


@pytest.fixture
def calls(worker):
    from nereid_worker import calls
    return calls


def waiting(calls, number, messages=()):
    """A pending call that a thread waits for."""
    pending = calls._pending[number] = calls.PendingCall()
    pending.messages.extend(messages)
    pending.is_waiting = True
    return pending


def test_the_next_reader_is_a_thread_without_an_answer(calls):
    """A thread whose answer has arrived returns without reading and so does not wake another."""
    answered = waiting(calls, 1, ["answer"])
    unanswered = waiting(calls, 2)
    calls._wake_another()
    assert answered.event.locked() and not unanswered.event.locked()


def test_calls_may_end_while_the_next_reader_is_chosen(calls):
    """As finalizers on the same thread do."""
    class Ends:
        messages = ()

        @property
        def is_waiting(self):
            calls._pending.pop(3, None)
            return False
    calls._pending.update({1: Ends(), 2: Ends(), 3: calls.PendingCall()})
    last = waiting(calls, 4)
    calls._wake_another()
    assert not last.event.locked()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_last_answer_that_arrives_while_its_call_ends_leaves_no_abandoned_call(calls, monkeypatch, moment):
    """The answer arrives just before or just after the call is no longer pending."""
    monkeypatch.setattr(calls.channel, "next_posted", lambda: (calls.protocol.STREAM, 1, None, True))
    monkeypatch.setattr(calls, "_reader_thread", "reads")

    class Slots(dict):
        def pop(self, *arguments):
            if moment == "before":
                calls._read_one()
            popped = super().pop(*arguments)
            if moment == "after":
                calls._read_one()
            return popped
    monkeypatch.setattr(calls, "_pending", Slots())
    calls.end_call(1, waiting(calls, 1))
    assert not calls._abandoned


def raise_error(*_, **__):
    raise RuntimeError("made up")


def test_an_answer_that_cannot_be_decoded_ends_only_its_call(calls, monkeypatch):
    """The next message is read, also for abandoned calls."""
    messages = [(calls.protocol.STREAM, 1, "packed", True), (calls.protocol.STREAM, 2, None, True)]
    monkeypatch.setattr(calls.channel, "next_posted", lambda: messages.pop(0))
    monkeypatch.setattr(calls, "_release_response", raise_error)
    calls._abandoned.update((1, 2))
    calls._is_reading_abandoned = True
    calls._read_abandoned()
    assert not calls._abandoned and not calls._is_reading_abandoned


def test_answers_of_abandoned_calls_are_read_once_threads_can_start_again(calls, monkeypatch):
    begun = []
    for begin in (raise_error, lambda *arguments: begun.append(arguments)):
        monkeypatch.setattr(calls._thread, "start_new_thread", begin)
        calls.end_call(1, waiting(calls, 1))
    assert begun == [(calls._read_abandoned, ())]


def test_a_model_whose_readiness_cannot_be_checked_is_not_ready(calls, monkeypatch):
    """There are no more threads: the reading thread reports that and goes on."""
    from nereid_worker import runtime
    said = []
    monkeypatch.setattr(calls.channel, "post", said.append)
    monkeypatch.setattr(runtime.threading, "Thread", raise_error)
    runtime._ask_is_ready(7)
    [(kind, query, is_ready, text)] = said
    assert (kind, query, is_ready) == (calls.protocol.READINESS, 7, False) and text.startswith("RuntimeError: made up")


def test_the_reader_thread_is_started_again_after_a_failure(calls, monkeypatch):
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
        calls.start_reader_thread()
    calls.start_reader_thread()
    calls.start_reader_thread()
    assert begun == ["too early", calls._read_forever]


def test_the_event_loop_is_started_again_after_a_failure(calls, monkeypatch):
    from nereid_worker import event_loop
    with monkeypatch.context() as without_threads:
        without_threads.setattr(event_loop.threading, "Thread", raise_error)
        with pytest.raises(RuntimeError, match="made up"):
            event_loop._event_loop()
    loop = event_loop._event_loop()
    assert event_loop._event_loop() is loop  # kept until the interpreter ends, as in a worker


def test_wake_returns_if_another_thread_takes_the_callback(calls):
    pending = calls.PendingCall()

    class Taken(list):
        def popleft(self):
            self.clear()
            raise IndexError
    pending.callbacks = Taken(["a function"])
    pending.wake()


def test_a_forked_process_cannot_wait_for_a_call_of_its_parent(calls):
    """The thread that reads in the parent does not exist in the forked process."""
    from nereid_worker.errors import TritonModelException
    pending = waiting(calls, 1)
    calls._read_lock.acquire()
    calls._reset_after_fork()
    with pytest.raises(TritonModelException, match="call of the process that forked it"):
        calls.wait(pending)
    calls.end_call(1, pending)
    assert not calls._abandoned and calls._read_lock.acquire(blocking=False)


def test_calls_may_end_while_a_forked_process_resets(calls):
    """As finalizers do, in a process that was forked while another thread held a lock."""
    class Ends(calls.PendingCall):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "is_inherited" and value:
                calls.end_call(2, calls._pending[2])
    calls._pending[1] = Ends()
    waiting(calls, 2).is_over = True
    waiting(calls, 3)
    held, is_over = threading.Event(), threading.Event()

    def hold():
        with calls._pending_lock:
            held.set()
            is_over.wait()
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    left = threading.Thread(target=calls._reset_after_fork, daemon=True)
    left.start()
    left.join(30)
    is_over.set()
    assert not left.is_alive() and not calls._pending and not calls._abandoned


def test_an_interrupted_wait_lets_another_thread_read(calls):
    """The interrupted thread may have been woken to read."""
    pending, other = waiting(calls, 1), waiting(calls, 2)
    calls._read_lock.acquire()

    class Interrupted:
        def acquire(self):
            raise KeyboardInterrupt
    pending.event = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        calls.wait(pending)
    assert not pending.is_waiting and not other.event.locked()
