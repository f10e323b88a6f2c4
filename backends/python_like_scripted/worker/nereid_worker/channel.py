"""The two sockets to the host, and its shared memory: whole messages in marshal's format, version 2."""
import marshal
import os
import struct
import threading

from .errors import TritonModelException
from .look import Looker
from .region import IncomingRegion, OutgoingRegion

_MAX_PACKET = 60000
_ELSEWHERE = struct.Struct("<cQQ")  # in place of a long message: where it lies

asked_fd = posted_fd = -1
_posted = None
num_posted = 0
_post_lock = threading.RLock()  # what the garbage collector ends inside it posts too
on_leave = []  # in a process that the model forked: what else it has to do
_door = None  # for such processes, from the first fork on
_door_lock = threading.Lock()
_connection = None  # of such a process, with the model's
_connection_lock = threading.RLock()


class NoRegion:
    """In place of an outgoing one, where this is neither the model's process nor forked by it."""

    def place(self, array):
        _connected()

    place_bytes = give_back = place

    def free_bytes(self):
        return 0


class NoSharing(NoRegion):
    """In a process that the model forked: what is long travels as bytes, too."""

    def place(self, array):
        return array.tobytes()

    def place_bytes(self, data):
        return bytes(data)

    def give_back(self, offset):
        pass


incoming, outgoing = None, NoRegion()


def open_channels(asked, posted, to_worker, from_worker, growth, limit):
    global asked_fd, posted_fd, incoming, outgoing, _posted
    asked_fd, posted_fd = asked, posted
    _posted = Looker(posted)
    incoming = IncomingRegion(to_worker)
    outgoing = OutgoingRegion(from_worker, growth, limit)
    os.register_at_fork(before=_make_door, after_in_parent=_serve_door, after_in_child=_leave)


def _make_door():
    global _door
    with _door_lock:
        if _door is None and is_own():
            from .relay import Door
            try:
                _door = Door()
            except OSError:  # no more descriptors: this one cannot call the host
                pass


def _serve_door():
    if _door is not None and is_own():
        _door.serve()


def _leave():
    """In a process that the model forked: what it said would be taken for the model's own, and what it gave back is still in use there."""
    global asked_fd, posted_fd, outgoing, _connection, _post_lock, _door_lock, _connection_lock
    for descriptor in (asked_fd, posted_fd):
        if descriptor >= 0:
            os.close(descriptor)
    asked_fd = posted_fd = -1
    _posted.leave()
    incoming.leave()
    outgoing = NoSharing()
    # A thread that is not here may have held them.
    _post_lock, _door_lock, _connection_lock = threading.RLock(), threading.Lock(), threading.RLock()
    if _connection is not None:  # of the one that forked this one
        _connection.close()
        _connection = None
    if _door is not None:
        _door.leave()
    for each in on_leave:
        each()


def _connected():
    global _connection
    with _connection_lock:
        if _connection is None:
            if _door is None:
                raise TritonModelException(f"process {os.getpid()} cannot call the host: it has no way to the model's process")
            _connection = _door.connect()
        return _connection


def reach():
    """Raises where the host cannot be called from here."""
    if not is_own():
        _connected()


def can_tell():
    """Whether what ends here may be known elsewhere."""
    return is_own() or _connection is not None


def is_own():
    """Whether this is the process that the host started."""
    return posted_fd >= 0


def _packed(message):
    data = marshal.dumps(message, 2)
    if len(data) > _MAX_PACKET:
        data = _ELSEWHERE.pack(b"l", *outgoing.place_bytes(data))
    return data


def _unpacked(data):
    if data[0] == 108:  # "l"
        _, offset, size = _ELSEWHERE.unpack(data)
        data = incoming.copy(offset, size)
    return marshal.loads(data)


def answer(message):
    os.write(asked_fd, _packed(message))


def next_question():
    """None when the host is gone."""
    data = os.read(asked_fd, 131072)
    return _unpacked(data) if data else None


def post(message):
    """[any thread]"""
    global num_posted
    if not is_own():
        _connected().send(message)
        return
    data = _packed(message)
    with _post_lock:
        os.write(posted_fd, data)
        num_posted += 1


def next_posted():
    """None when the host is gone."""
    if not is_own():
        return _connected().receive()
    data = _posted.read(131072)
    return _unpacked(data) if data else None
