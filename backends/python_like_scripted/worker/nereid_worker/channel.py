"""The two sockets to the host, and its shared memory: whole messages in marshal's format, version 2."""
import marshal
import os
import struct

from .region import IncomingRegion, OutgoingRegion

_MAX_PACKET = 60000
_ELSEWHERE = struct.Struct("<cQQ")  # in place of a long message: where it lies

asked_fd = posted_fd = -1
incoming = outgoing = None
num_posted = 0


def open_channels(asked, posted, to_worker, from_worker, growth, limit):
    global asked_fd, posted_fd, incoming, outgoing
    asked_fd, posted_fd = asked, posted
    incoming = IncomingRegion(to_worker)
    outgoing = OutgoingRegion(from_worker, growth, limit)


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
    data = _packed(message)
    with _post_lock:
        os.write(posted_fd, data)
        num_posted += 1


def next_posted():
    """None when the host is gone."""
    data = os.read(posted_fd, 131072)
    return _unpacked(data) if data else None


import threading  # noqa: E402

_post_lock = threading.Lock()
