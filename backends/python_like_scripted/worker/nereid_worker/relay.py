"""Calls of the host from processes that a model forks. Such a process has a connection to the model's process, which calls the host on its
behalf. So the host serves one process only, and a forked process that ends during a call loses nothing of the others. Tensors travel as bytes."""
import marshal
import socket
import struct
import sys
import threading
from collections import deque
from _queue import SimpleQueue

from . import calls, channel, protocol
from .errors import TritonModelException
from .tensor import INLINE_BYTES, release_packed

_LENGTH = struct.Struct("<Q")
_RIGHT = struct.Struct("i")  # one descriptor, as SCM_RIGHTS passes it
_INTERNAL = 1  # TritonError.INTERNAL
_ACCEPTED = (protocol.REPLY, 0, True, None)  # the first message of a relay
_DELETED_BY = {protocol.NEW_METRIC_FAMILY: protocol.DELETE_METRIC_FAMILY, protocol.NEW_METRIC: protocol.DELETE_METRIC}

_relays: "set[Relay]" = set()  # of this process, while their descriptors are open: processes that are forked meanwhile inherit these


def packed(message):
    try:
        return marshal.dumps(message, 2)
    except ValueError:  # marshal's lengths have 31 bits
        raise TritonModelException("each tensor has to be below 2 GiB between a model's process and those that it forks") from None
    except MemoryError:
        raise TritonModelException("no memory for a message between a model's process and those that it forks") from None


class Connection:
    """Messages between two processes. One thread at a time receives; any thread sends."""

    def __init__(self, end):
        self._socket = end
        self._lock = threading.Lock()  # held by the thread that sends; never waited for
        self._unsent = deque()  # pairs of length and message

    def send(self, message):
        self.send_packed(packed(message))

    def send_packed(self, data):
        """Queues a message and sends all that are queued. If a message is being sent already, its sender goes on with this one: another thread,
        or an outer frame of this thread, which a signal handler or a finalizer interrupted."""
        self._unsent.append((_LENGTH.pack(len(data)), data))
        while self._unsent and self._lock.acquire(blocking=False):
            try:
                self._send_all()
            finally:
                self._lock.release()

    def _send_all(self):
        try:
            while self._unsent:
                for part in self._unsent.popleft():
                    self._socket.sendall(part)
        except BaseException as error:  # for example of a signal handler, in the middle of a message: the rest of the stream would be invalid
            self.end()
            self._unsent.clear()
            if isinstance(error, OSError):
                raise TritonModelException(f"the other process is gone: {error}") from None
            raise

    def receive(self):
        """The next message. None if the other process is gone, also in the middle of a message."""
        try:
            if not self._socket.recv(1, socket.MSG_PEEK):  # peeks, so that an exception of a signal handler loses no message
                return None
        except OSError:
            return None
        try:
            length = self._exactly(_LENGTH.size)
            data = length and self._exactly(_LENGTH.unpack(length)[0])
            return marshal.loads(data) if data else None
        except OSError:
            return None
        except BaseException:  # for example of a signal handler, in the middle of a message
            self.end()
            raise

    def _exactly(self, size):
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            count = self._socket.recv_into(rest)
            if not count:
                return None
            rest = rest[count:]
        return data

    def end(self):
        """Ends the connection for both processes, even if other processes hold its descriptors."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # it ended before
            pass

    def close(self):
        self._socket.close()


class ForkListener:
    """Accepts connections of forked processes: each sends one end of a socket pair. Forked processes inherit _connect_end."""

    def __init__(self):
        self._accept_end, self._connect_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._is_served = False

    def serve(self):
        """Starts the accepting thread, once. [after each fork, in the parent]"""
        if self._is_served:
            return
        self._is_served = True
        try:
            threading.Thread(target=self._serve, name="nereid-forks", daemon=True).start()
        except RuntimeError:  # no more threads: processes that connect get an error
            self._accept_end.close()

    def reset_after_fork(self):
        """[in a forked process]"""
        self._accept_end.close()
        for each in _relays:
            each.reset_after_fork()
        _relays.clear()

    def connect(self):
        """Connects to the model's process. [in a forked process]"""
        try:
            own, other = socket.socketpair()
            with other:
                self._connect_end.sendmsg([b"c"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _RIGHT.pack(other.fileno()))])
            connection = Connection(own)
            if connection.receive() is None:
                raise OSError("it has no descriptor or thread for that, or is gone")
        except OSError as error:
            raise TritonModelException(f"the model's process cannot be reached from the one that it forked: {error}") from None
        return connection

    def _serve(self):
        while True:
            _, rights, _, _ = self._accept_end.recvmsg(1, socket.CMSG_SPACE(_RIGHT.size), getattr(socket, "MSG_CMSG_CLOEXEC", 0))
            if not rights:  # no descriptor was left to receive it: the other end is closed, which the connecting process notices
                continue
            relay = Relay(Connection(socket.socket(fileno=_RIGHT.unpack(rights[0][2])[0])))
            try:
                calls.start_reader_thread()
                relay.start()
            except RuntimeError:  # no more threads
                relay.close()


class _RelayedCall(calls.PendingCall):
    """A call of the host on behalf of a forked process. Each message that arrives for it puts the forked process's number of the call into the
    relay's queue; one call of wake() may come without a message."""
    __slots__ = ("number", "operation", "child_call", "queue")

    def __init__(self, operation, child_call, queue):
        super().__init__()
        self.operation, self.child_call, self.queue = operation, child_call, queue

    def wake(self):
        self.queue.put(self.child_call)


class Relay:
    """Runs in the model's process, for one forked process. One thread receives its messages; another one sends the answers, which queue up here
    while the forked process reads none. Both threads end with the connection."""

    def __init__(self, connection):
        self._connection = connection
        self._queue = SimpleQueue()  # a call's number for each answer to it, a whole message, or None at the end
        self._lock = threading.Lock()  # guards the members below
        self._open = {}  # calls in flight, by the forked process's number
        self._metrics = {}  # the operation that deletes each metric and family that the forked process created, by its key
        _relays.add(self)

    def start(self):
        receiver = threading.Thread(target=self._receive_messages, name="nereid-fork-asks", daemon=True)
        threading.Thread(target=self._send_answers, name="nereid-fork-answers", daemon=True).start()
        try:
            receiver.start()
        except RuntimeError:
            self._end_calls()
            raise
        self._queue.put(_ACCEPTED)

    def reset_after_fork(self):
        """In a process that is forked meanwhile: it must not keep the connection open."""
        self._connection.close()

    def close(self):
        self._connection.end()
        self._connection.close()
        _relays.discard(self)

    # ---- messages of the forked process

    def _receive_messages(self):
        try:
            while True:
                message = self._connection.receive()
                if message is None:
                    return
                self._dispatch(*message)
        except Exception as error:  # noqa: BLE001 no message of a forked process may end the model's process
            print(f"messages of a process that the model forked are no longer read: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            self._end_calls()

    def _dispatch(self, kind, *rest):
        if kind == protocol.CALL:
            self._begin_call(*rest)
        elif kind == protocol.CANCEL:
            with self._lock:
                relayed = self._open.get(rest[0])
            if relayed is not None:
                _cancel(relayed)
        elif kind == protocol.CONSUMED:
            with self._lock:
                relayed = self._open.get(rest[0])
            if relayed is not None:
                channel.post((kind, relayed.number, rest[1]))
        elif kind == protocol.RESPOND:
            _respond(*rest)
        elif kind == protocol.LOG:
            try:
                channel.post((kind, *rest))
            except TritonModelException:  # no shared memory for it
                print(rest[1], file=sys.stderr, flush=True)

    def _begin_call(self, child_call, operation, arguments):
        if not child_call:  # needs no answer: deletes a metric. One that the forked process inherited is not its own and stays
            if self._metrics.pop(arguments[0], None) is not None:
                calls.post_without_reply(operation, arguments)
            return
        inputs = ()
        try:
            if operation == protocol.INFER:
                calls.check_allowed()
                request, decoupled = arguments
                inputs = _in_shared_memory(request[8])
                arguments = ((*request[:8], inputs, request[9], -1), decoupled)  # -1: outputs in host memory
            relayed = _RelayedCall(operation, child_call, self._queue)
            with self._lock:  # _answer waits for it
                relayed.number = calls.begin_call(operation, arguments, relayed)
                self._open[child_call] = relayed
        except TritonModelException as error:
            release_packed(inputs)
            self._queue.put(_refusal(child_call, operation, str(error)))

    def _end_calls(self):
        """Cancels inference calls, whose answers are no longer needed. Other calls are awaited, because the metrics that they create must be
        deleted."""
        with self._lock:
            inferences = [self._open.pop(child_call) for child_call, each in list(self._open.items()) if each.operation == protocol.INFER]
        for each in inferences:
            _cancel(each)
            calls.end_call(each.number, each)
        self._queue.put(None)

    # ---- answers to the forked process

    def _send_answers(self):
        try:
            self._send_answers_until_end()
        finally:
            self.close()
            for key, operation in reversed(list(self._metrics.items())):
                calls.post_without_reply(operation, (key,))

    def _send_answers_until_end(self):
        has_ended = False
        while not has_ended or self._open:
            item = self._queue.get()
            if item is None:
                has_ended = True
                continue
            data = self._packed_answer(item) if type(item) is int else packed(item)
            if data is None or has_ended:
                continue
            try:
                self._connection.send_packed(data)
            except TritonModelException:  # the forked process is gone; the other thread notices that, too
                pass

    def _packed_answer(self, child_call):
        """The next answer to a call; None if there is none. If it cannot be sent, the call ends with an error instead."""
        with self._lock:
            relayed = self._open.get(child_call)
        try:
            answer = self._answer(child_call)
            return answer and packed(answer)
        except Exception as error:  # noqa: BLE001 the answer is too long, or there is no memory for its bytes
            with self._lock:
                self._open.pop(child_call, None)
            _cancel(relayed)
            calls.end_call(relayed.number, relayed)
            text = str(error) if isinstance(error, TritonModelException) else f"{type(error).__name__}: {error}"
            return packed(_refusal(child_call, relayed.operation, text))

    def _answer(self, child_call):
        with self._lock:
            relayed = self._open.get(child_call)
            if relayed is None or not relayed.messages:
                return None
            kind, _, *rest = relayed.messages.popleft()
            if kind == protocol.REPLY or rest[1]:
                del self._open[child_call]
                calls.end_call(relayed.number, relayed)
        if kind == protocol.STREAM:
            return (kind, child_call, rest[0] and _inlined(rest[0]), rest[1])
        if rest[0] and relayed.operation in _DELETED_BY:
            self._metrics[rest[1]] = _DELETED_BY[relayed.operation]
        return (kind, child_call, *rest)


def _cancel(relayed):
    if relayed.operation == protocol.INFER and not relayed.is_over:
        channel.post((protocol.CANCEL, relayed.number))


def _respond(request_key, packed, flags):
    """Posts a response sender's response. If there is no shared memory for it, the client gets that error."""
    outputs = ()
    try:
        if packed is not None:
            outputs = _in_shared_memory(packed[0])
            packed = (outputs, *packed[1:])
        channel.post((protocol.RESPOND, request_key, packed, flags))
    except TritonModelException as error:
        release_packed(outputs)
        channel.post((protocol.RESPOND, request_key, ((), (_INTERNAL, str(error)), ()), flags))


def _refusal(child_call, operation, text):
    if operation == protocol.INFER:
        return (protocol.STREAM, child_call, ((), (_INTERNAL, text), ()), True)
    return (protocol.REPLY, child_call, False, (_INTERNAL, text))


def _in_shared_memory(tensors):
    """The tensors as the model's process sends them: long ones in shared memory."""
    moved = []
    try:
        for *head, data in tensors:
            moved.append((*head, channel.outgoing.write_bytes(data) if len(data) > INLINE_BYTES else data))
    except BaseException:
        release_packed(moved)
        raise
    return tuple(moved)


def _inlined(response):
    """The response with all tensors as bytes. Releases its shared memory."""
    outputs, *rest = response
    return (tuple([(*head, _bytes_of(data)) for *head, data in outputs]), *rest)


def _bytes_of(data):
    if type(data) is not tuple:
        return data
    array = channel.incoming.array(*data) if len(data) == 2 else channel.incoming.block_part(*data)
    return array.tobytes()
