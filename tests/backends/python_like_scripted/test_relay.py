"""Messages between a forked process and the model's process: races and faults that occur rarely."""
import gc
import socket
import threading

import pytest

pytest.importorskip("numpy")
PATIENCE_S = 30


@pytest.fixture
def relay(worker):
    from nereid_worker import relay
    return relay


@pytest.fixture
def ends(relay):
    """Two connected connections."""
    pair = [relay.Connection(each) for each in socket.socketpair()]
    for each in pair:
        each._socket.settimeout(PATIENCE_S)
    yield pair
    for each in pair:
        each.close()


def in_time(function):
    """The result of the function, which runs on a daemon thread with a time limit."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert results, "it does not come back, or raised"
    return results[0]


class Sends:
    """Sends a message when it is deleted. It is in a reference cycle, so that the garbage collector deletes it."""

    def __init__(self, connection, message):
        self.own, self.connection, self.message = self, connection, message

    def __del__(self):
        self.connection.send(self.message)


def test_finalizers_may_send_while_their_thread_sends(ends):
    near, far = ends
    thresholds = gc.get_threshold()

    def send_all():
        gc.set_threshold(1)
        try:
            for each in range(1000):
                Sends(near, (each, "ended"))
                near.send((each, "sent"))
        finally:
            gc.set_threshold(*thresholds)
        gc.collect()
        return True
    reader = threading.Thread(target=lambda: seen.extend(far.receive() for _ in range(2000)), daemon=True)
    seen = []
    reader.start()
    assert in_time(send_all)
    reader.join(PATIENCE_S)
    assert sorted(seen) == sorted((each, what) for each in range(1000) for what in ("ended", "sent"))


class Interrupted:
    """A socket that calls a function before each part of a message, as a signal handler may run there."""

    def __init__(self, inside, happens):
        self.inside, self.happens = inside, happens

    def __getattr__(self, name):
        return getattr(self.inside, name)

    def sendall(self, data):
        self.happens()
        self.inside.sendall(data)


def test_a_message_that_is_sent_inside_another_one_follows_it(ends):
    near, far = ends
    more = [("third",), ("second",)]
    near._socket = Interrupted(near._socket, lambda: more and near.send(more.pop()))
    in_time(lambda: near.send(("first",)) or True)
    assert [far.receive() for _ in range(3)] == [("first",), ("second",), ("third",)]


class Host:
    """Records what the relay's process posts. Its answers are read when a test says so."""

    def __init__(self, relay, monkeypatch):
        self.posted, self.calls, self.protocol = [], relay.calls, relay.protocol
        monkeypatch.setattr(relay.channel, "is_model_process", lambda: True)
        monkeypatch.setattr(relay.channel, "post", self.posted.append)
        monkeypatch.setattr(relay.calls, "is_allowed", True)
        monkeypatch.setattr(relay.calls, "_reader_thread", "reads")

    def answers_call(self, packed, is_final, number=1):
        self.calls.channel.next_posted = lambda: (self.protocol.STREAM, number, packed, is_final)
        self.calls._read_one()


@pytest.fixture
def host(relay, monkeypatch):
    return Host(relay, monkeypatch)


@pytest.fixture
def asker(relay, ends, host):
    """The connection of a forked process, whose other end a relay serves."""
    near, far = ends
    relayed = relay.Relay(far)
    relayed.start()
    assert near.receive() == relay._ACCEPTED
    yield near
    near.end()
    wait_until(lambda: relayed not in relay._relays)


INFER_ARGUMENTS = (("m", -1, "", 0, 0, 0, (), (), (), 0, -1), True)


def too_long_for(dumps, text):
    """marshal.dumps, which treats messages with this text as longer than 2 GiB."""
    def dump(message, version):
        if text in repr(message):
            raise ValueError("unmarshallable object")
        return dumps(message, version)
    return dump


def wait_until(condition):
    tick = threading.Event()
    for _ in range(PATIENCE_S * 100):
        if condition():
            return
        tick.wait(0.01)
    pytest.fail("not in time")


def test_an_answer_that_is_too_long_ends_only_its_call(relay, host, asker, monkeypatch):
    monkeypatch.setattr(relay.marshal, "dumps", too_long_for(relay.marshal.dumps, "very long"))
    for number in (1, 2):
        asker.send((relay.protocol.CALL, 10 + number, relay.protocol.INFER, INFER_ARGUMENTS))
        wait_until(lambda: number in relay.calls._pending)
        host.answers_call(((), None, (("text", "very long" if number == 1 else "short"),)), False, number)
        kind, call, (_, error, parameters), is_final = asker.receive()
        assert (kind, call, is_final) == (relay.protocol.STREAM, 10 + number, number == 1)
        assert "below 2 GiB" in error[1] if number == 1 else parameters == (("text", "short"),)
    assert [each[1] for each in host.posted if each[0] == relay.protocol.CANCEL] == [1] and relay.calls._abandoned == {1}


def test_sending_a_message_that_is_too_long_raises(relay, ends, monkeypatch):
    monkeypatch.setattr(relay.marshal, "dumps", too_long_for(relay.marshal.dumps, "very long"))
    near, far = ends
    with pytest.raises(relay.TritonModelException, match="below 2 GiB"):
        near.send(("very long",))
    near.send(("short",))
    assert far.receive() == ("short",)


def test_an_incomplete_message_ends_the_connection(ends):
    """Also if a signal handler raises in the middle of it, because the rest would be read as the next message."""
    near, far = ends
    near.send(("first",))
    parts = [lambda: None, raise_interrupt]
    near._socket = Interrupted(near._socket, lambda: parts.pop(0)())
    with pytest.raises(KeyboardInterrupt):
        near.send(("second",))
    with pytest.raises(Exception, match="the other process is gone"):
        near._socket = near._socket.inside
        near.send(("third",))
    assert [far.receive() for _ in range(3)] == [("first",), None, None]


def raise_interrupt(*_):
    raise KeyboardInterrupt


def test_an_interrupted_receive_loses_no_message(ends):
    """An interruption in the middle of a message ends the connection."""
    near, far = ends

    class Interrupts(Interrupted):
        def recv(self, *_):
            raise_interrupt()
    near.send(("first",))
    inside = far._socket
    far._socket = Interrupts(inside, None)
    with pytest.raises(KeyboardInterrupt):
        far.receive()
    far._socket = inside
    assert far.receive() == ("first",)
    near.send(("second",))
    far._exactly = raise_interrupt
    with pytest.raises(KeyboardInterrupt):
        far.receive()
    del far._exactly
    with pytest.raises(Exception, match="the other process is gone"):
        near.send(("third",))


@pytest.fixture
def fork_listener(relay, host):
    fork_listener = relay.ForkListener()
    fork_listener.serve()
    return fork_listener


def test_connecting_raises_if_the_relay_cannot_start(relay, fork_listener, monkeypatch):
    """There are no more threads in the model's process; later there are."""
    def start(_):
        raise RuntimeError("can't start new thread")
    with monkeypatch.context() as without_threads:
        without_threads.setattr(relay.Relay, "start", start)
        assert "it has no descriptor or thread for that" in in_time(lambda: error_of(fork_listener.connect))
    wait_until(lambda: not relay._relays)
    in_time(fork_listener.connect).end()
    wait_until(lambda: not relay._relays)


def error_of(function):
    try:
        return f"no error, but {function()}"
    except Exception as error:  # noqa: BLE001 any error
        return str(error)


def test_a_forked_process_ends_with_a_message_if_the_model_process_is_gone(relay, monkeypatch, capsys):
    def end(status):
        raise SystemExit(status)
    monkeypatch.setattr(relay.calls.os, "_exit", end)
    monkeypatch.setattr(relay.channel, "next_posted", lambda: None)
    with pytest.raises(SystemExit, match="1"):
        relay.calls._read_one()
    assert "which forked it, is gone" in capsys.readouterr().err
