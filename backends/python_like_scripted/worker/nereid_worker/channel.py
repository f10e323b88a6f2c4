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


def check_own():
    if posted_fd < 0:
        raise TritonModelException(f"the host can be called from the model's process alone, and process {os.getpid()} was forked or spawned by it")


class NoRegion:
    """In place of an outgoing one, where this is not the model's own process."""

    def place(self, array):
        check_own()

    place_bytes = give_back = place

    def free_bytes(self):
        return 0


incoming, outgoing = None, NoRegion()


def open_channels(asked, posted, to_worker, from_worker, growth, limit):
    global asked_fd, posted_fd, incoming, outgoing, _posted
    asked_fd, posted_fd = asked, posted
    _posted = Looker(posted)
    incoming = IncomingRegion(to_worker)
    outgoing = OutgoingRegion(from_worker, growth, limit)
    os.register_at_fork(after_in_child=_leave)


def _leave():
    """In a process that the model forked: what it said would be taken for the model's own, and what it gave back is still in use there."""
    global asked_fd, posted_fd, outgoing
    for descriptor in (asked_fd, posted_fd):
        if descriptor >= 0:
            os.close(descriptor)
    asked_fd = posted_fd = -1
    _posted.leave()
    incoming.leave()
    outgoing = NoRegion()


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
    check_own()
    data = _packed(message)
    with _post_lock:
        os.write(posted_fd, data)
        num_posted += 1


def next_posted():
    """None when the host is gone."""
    data = _posted.read(131072)
    return _unpacked(data) if data else None
