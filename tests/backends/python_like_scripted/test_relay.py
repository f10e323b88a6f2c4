"""What a process that a model forked and the model's process say to each other, at moments that they meet only now and then."""
import gc
import pathlib
import socket
import sys
import threading

import pytest

pytest.importorskip("numpy")
WORKER = pathlib.Path(__file__).parents[3] / "backends/python_like_scripted/worker"
PATIENCE_S = 30


@pytest.fixture
def relay(monkeypatch):
    monkeypatch.syspath_prepend(str(WORKER))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    from nereid_worker import relay, response  # noqa: F401 which says how a response is made
    yield relay
    for name in [each for each in sys.modules if each.split(".")[0] == "nereid_worker"]:
        del sys.modules[name]


@pytest.fixture
def ends(relay):
    """Two connections, one to the other."""
    pair = [relay.Connection(each) for each in socket.socketpair()]
    for each in pair:
        each._socket.settimeout(PATIENCE_S)
    yield pair
    for each in pair:
        each.close()


def in_time(function):
    """What it returns, on a thread that a test need not wait for without end."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()), daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    assert results, "it does not come back, or raised"
    return results[0]


class Sends:
    """In a cycle, so that the garbage collector ends it."""

    def __init__(self, connection, message):
        self.own, self.connection, self.message = self, connection, message

    def __del__(self):
        self.connection.send(self.message)


def test_what_the_garbage_collector_ends_may_send_while_its_thread_does(ends):
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
    """A socket; at each part of a message that goes through it something else happens, as a signal handler may do."""

    def __init__(self, inside, happens):
        self.inside, self.happens = inside, happens

    def __getattr__(self, name):
        return getattr(self.inside, name)

    def sendall(self, data):
        self.happens()
        self.inside.sendall(data)


def test_a_message_in_the_middle_of_another_one_follows_it(ends):
    near, far = ends
    more = [("third",), ("second",)]
    near._socket = Interrupted(near._socket, lambda: more and near.send(more.pop()))
    in_time(lambda: near.send(("first",)) or True)
    assert [far.receive() for _ in range(3)] == [("first",), ("second",), ("third",)]


class Host:
    """Notes what a relay's process posts. Its answers are read where a test says so."""

    def __init__(self, relay, monkeypatch):
        self.posted, self.calls, self.protocol = [], relay.calls, relay.protocol
        monkeypatch.setattr(relay.channel, "is_own", lambda: True)
        monkeypatch.setattr(relay.channel, "post", self.posted.append)
        monkeypatch.setattr(relay.calls, "is_allowed", True)
        monkeypatch.setattr(relay.calls, "_pump", "reads")

    def answers_call(self, packed, is_final, number=1):
        self.calls.channel.next_posted = lambda: (self.protocol.STREAM, number, packed, is_final)
        self.calls._read_one()


@pytest.fixture
def host(relay, monkeypatch):
    return Host(relay, monkeypatch)


@pytest.fixture
def asker(relay, ends, host):
    """The end of a process that asks, with a relay behind the other one."""
    near, far = ends
    relayed = relay.Relay(far)
    relayed.start()
    assert near.receive() == relay._HEARD
    yield near
    near.end()
    wait_until(lambda: relayed not in relay._relays)


INFER_ARGUMENTS = (("m", -1, "", 0, 0, 0, (), (), (), 0, -1), True)


def too_long_for(dumps, text):
    """marshal's, as it takes messages with 2 GiB where they have this text."""
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


def test_an_answer_that_is_too_long_is_an_error_and_the_next_call_is_answered(relay, host, asker, monkeypatch):
    monkeypatch.setattr(relay.marshal, "dumps", too_long_for(relay.marshal.dumps, "very long"))
    for number in (1, 2):
        asker.send((relay.protocol.CALL, 10 + number, relay.protocol.INFER, INFER_ARGUMENTS))
        wait_until(lambda: number in relay.calls._slots)
        host.answers_call(((), None, (("text", "very long" if number == 1 else "short"),)), False, number)
        kind, call, (_, error, parameters), is_final = asker.receive()
        assert (kind, call, is_final) == (relay.protocol.STREAM, 10 + number, number == 1)
        assert "below 2 GiB" in error[1] if number == 1 else parameters == (("text", "short"),)
    assert [each[1] for each in host.posted if each[0] == relay.protocol.CANCEL] == [1] and relay.calls._orphans == {1}


def test_who_sends_too_long_a_message_hears_so(relay, ends, monkeypatch):
    monkeypatch.setattr(relay.marshal, "dumps", too_long_for(relay.marshal.dumps, "very long"))
    near, far = ends
    with pytest.raises(relay.TritonModelException, match="below 2 GiB"):
        near.send(("very long",))
    near.send(("short",))
    assert far.receive() == ("short",)


def test_a_message_that_ends_in_its_middle_is_the_last(ends):
    """Also where what a signal handler raises ends it: the rest of it would be taken for the next one."""
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


def test_a_wait_for_a_message_that_is_interrupted_loses_none(ends):
    """What is interrupted in the middle of one ends the connection."""
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
def door(relay, host):
    door = relay.Door()
    door.serve()
    return door


def test_a_forked_process_hears_that_it_is_not_served(relay, door, monkeypatch):
    """There are no more threads there; later there are."""
    def start(_):
        raise RuntimeError("can't start new thread")
    with monkeypatch.context() as without_threads:
        without_threads.setattr(relay.Relay, "start", start)
        assert "it has no descriptor or thread for that" in in_time(lambda: error_of(door.connect))
    wait_until(lambda: not relay._relays)
    in_time(door.connect).end()
    wait_until(lambda: not relay._relays)


def error_of(function):
    try:
        return f"no error, but {function()}"
    except Exception as error:  # noqa: BLE001 whatever it is
        return str(error)


def test_a_forked_process_that_hears_nothing_any_more_says_so_and_ends(relay, monkeypatch, capsys):
    def end(status):
        raise SystemExit(status)
    monkeypatch.setattr(relay.calls.os, "_exit", end)
    monkeypatch.setattr(relay.channel, "next_posted", lambda: None)
    with pytest.raises(SystemExit, match="1"):
        relay.calls._read_one()
    assert "does not hear it any more" in capsys.readouterr().err
