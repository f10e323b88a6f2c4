"""The two sockets to the host and the shared memory. Messages are in marshal's format, version 2. A process that the model forks uses a
connection to the model's process instead (relay.py)."""
import marshal
import os
import struct
import threading

from .errors import TritonModelException
from .region import IncomingRegion, OutgoingRegion
from .spin_reader import SpinReader

_MAX_PACKET = 60000
_INDIRECT = struct.Struct("<cQQ")  # a packet that gives the location of a long message: tag, offset, size

command_fd = posted_fd = -1
_posted = None
num_posted = 0
_post_lock = threading.RLock()  # reentrant, because finalizers that run inside it post, too
after_fork_in_child: "list" = []  # functions that other modules register: called in a process that the model forked
_fork_listener = None  # relay.ForkListener of the model's process, from the first fork on; forked processes inherit it
_make_fork_listener = None
_fork_listener_lock = threading.Lock()
_connection = None  # of a forked process, to the model's process
_connection_lock = threading.RLock()


class UnconnectedRegion:
    """In place of the outgoing region in a process that cannot reach the host: neither the model's process nor forked by it."""

    def write(self, array):
        _connection_to_model()

    write_bytes = release = write

    def free_bytes(self):
        return 0


class InlineRegion(UnconnectedRegion):
    """In place of the outgoing region in a forked process: long tensors travel as bytes, too."""

    def write(self, array):
        return array.tobytes()

    def write_bytes(self, data):
        return bytes(data)

    def release(self, offset):
        pass


incoming, outgoing = None, UnconnectedRegion()


def open_channels(command, posted, to_worker, from_worker, growth, limit, make_fork_listener):
    """Opens the inherited descriptors. `growth` and `limit` as OutgoingRegion has them. `make_fork_listener` is called before the first fork: it
    returns a relay.ForkListener, whose module this one does not import."""
    global command_fd, posted_fd, incoming, outgoing, _posted, _make_fork_listener
    command_fd, posted_fd, _make_fork_listener = command, posted, make_fork_listener
    _posted = SpinReader(posted)
    incoming = IncomingRegion(to_worker)
    outgoing = OutgoingRegion(from_worker, growth, limit)
    os.register_at_fork(before=_prepare_fork, after_in_parent=_start_fork_listener, after_in_child=_reset_after_fork)


def _prepare_fork():
    global _fork_listener
    with _fork_listener_lock:
        if _fork_listener is None and is_model_process():
            try:
                _fork_listener = _make_fork_listener()
            except OSError:  # no more descriptors: the forked process cannot call the host
                pass


def _start_fork_listener():
    if _fork_listener is not None and is_model_process():
        _fork_listener.serve()


def _reset_after_fork():
    """In a forked process: closes the sockets, whose messages would be taken for the model's, and releases no blocks, which the parent still
    uses."""
    global command_fd, posted_fd, outgoing, _connection, _post_lock, _fork_listener_lock, _connection_lock
    for descriptor in (command_fd, posted_fd):
        if descriptor >= 0:
            os.close(descriptor)
    command_fd = posted_fd = -1
    _posted.close()
    incoming.reset_after_fork()
    outgoing = InlineRegion()
    # A thread that does not exist here may have held the locks.
    _post_lock, _fork_listener_lock, _connection_lock = threading.RLock(), threading.Lock(), threading.RLock()
    if _connection is not None:  # of the parent, if that was forked, too
        _connection.close()
        _connection = None
    if _fork_listener is not None:
        _fork_listener.reset_after_fork()
    for each in after_fork_in_child:
        each()


def _connection_to_model():
    global _connection
    with _connection_lock:
        if _connection is None:
            if _fork_listener is None:
                raise TritonModelException(f"process {os.getpid()} cannot call the host: it has no way to the model's process")
            _connection = _fork_listener.connect()
        return _connection


def check_connected():
    """Raises if the host cannot be called from this process."""
    if not is_model_process():
        _connection_to_model()


def is_connected():
    """Whether this process has a way to the host now."""
    return is_model_process() or _connection is not None


def is_model_process():
    """Whether this is the process that the host started, and not one that it forked."""
    return posted_fd >= 0


def _packed(message):
    data = marshal.dumps(message, 2)
    if len(data) > _MAX_PACKET:
        data = _INDIRECT.pack(b"l", *outgoing.write_bytes(data))
    return data


def _unpacked(data):
    if data[0] == 108:  # "l"
        _, offset, size = _INDIRECT.unpack(data)
        data = incoming.copy(offset, size)
    return marshal.loads(data)


def answer(message):
    os.write(command_fd, _packed(message))


def next_command():
    """None if the host is gone."""
    data = os.read(command_fd, 131072)
    return _unpacked(data) if data else None


def post(message):
    """[any thread]"""
    global num_posted
    if not is_model_process():
        _connection_to_model().send(message)
        return
    data = _packed(message)
    with _post_lock:
        os.write(posted_fd, data)
        num_posted += 1


def next_posted():
    """None if the host is gone."""
    if not is_model_process():
        return _connection_to_model().receive()
    data = _posted.read(131072)
    return _unpacked(data) if data else None
