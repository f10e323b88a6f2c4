"""Calls of the host from processes that a model forks. Such a process has a connection of its own to the model's process, which asks in its
place: so the host knows one process, and one that dies in the middle of a call takes nothing with it. Tensors travel as bytes."""
import marshal
import socket
import struct
import sys
import threading
from collections import deque
from _queue import SimpleQueue

from . import calls, channel, protocol
from .errors import TritonModelException
from .tensor import INLINE_BYTES, give_back

_LENGTH = struct.Struct("<Q")
_RIGHT = struct.Struct("i")  # a descriptor
_INTERNAL = 1  # TritonError's
_HEARD = (protocol.REPLY, 0, True, None)  # a relay's first message
_DELETED_BY = {protocol.NEW_METRIC_FAMILY: protocol.DELETE_METRIC_FAMILY, protocol.NEW_METRIC: protocol.DELETE_METRIC}

_relays = set()  # of this process, as long as their descriptors are open: a process that is forked meanwhile has them too


def packed(message):
    try:
        return marshal.dumps(message, 2)
    except ValueError:  # its lengths have 31 bits
        raise TritonModelException("each tensor has to be below 2 GiB between a model's process and those that it forks") from None
    except MemoryError:
        raise TritonModelException("no memory for a message between a model's process and those that it forks") from None


class Connection:
    """Messages between two processes. One thread at a time receives, any sends."""

    def __init__(self, end):
        self._socket = end
        self._lock = threading.Lock()  # who holds it sends; nobody waits for it
        self._unsent = deque()  # lengths and messages

    def send(self, message):
        self.send_packed(packed(message))

    def send_packed(self, data):
        """Where another one is being sent, who sends that one goes on with it: perhaps this thread, further out than a signal handler or
        what the garbage collector ends."""
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
        except BaseException as error:  # perhaps of a signal handler, in the middle of a message: what would follow means nothing
            self.end()
            self._unsent.clear()
            if isinstance(error, OSError):
                raise TritonModelException(f"the other process is gone: {error}") from None
            raise

    def receive(self):
        """None when the other one is gone, also in the middle of a message."""
        try:
            if not self._socket.recv(1, socket.MSG_PEEK):  # what a signal handler raises while nothing was taken loses nothing
                return None
        except OSError:
            return None
        try:
            length = self._exactly(_LENGTH.size)
            data = length and self._exactly(_LENGTH.unpack(length)[0])
            return marshal.loads(data) if data else None
        except OSError:
            return None
        except BaseException:  # in the middle of a message
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
        """For both processes, whoever else has a descriptor of it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # ended before
            pass

    def close(self):
        self._socket.close()


class Door:
    """Where forked processes hand in an end of their connection. They inherit the outside."""

    def __init__(self):
        self._inside, self._outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._is_served = False

    def serve(self):
        """[after each fork]"""
        if self._is_served:
            return
        self._is_served = True
        try:
            threading.Thread(target=self._serve, name="nereid-forks", daemon=True).start()
        except RuntimeError:  # no more threads: whoever knocks gets an error
            self._inside.close()

    def leave(self):
        """In a forked process."""
        self._inside.close()
        for each in _relays:
            each.leave()
        _relays.clear()

    def connect(self):
        """In a forked process."""
        try:
            own, other = socket.socketpair()
            with other:
                self._outside.sendmsg([b"c"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, _RIGHT.pack(other.fileno()))])
            connection = Connection(own)
            if connection.receive() is None:
                raise OSError("it has no descriptor or thread for that, or is gone")
        except OSError as error:
            raise TritonModelException(f"the model's process cannot be reached from the one that it forked: {error}") from None
        return connection

    def _serve(self):
        while True:
            _, rights, _, _ = self._inside.recvmsg(1, socket.CMSG_SPACE(_RIGHT.size), getattr(socket, "MSG_CMSG_CLOEXEC", 0))
            if not rights:  # no more descriptors: the other end is closed, who holds it hears of it
                continue
            relay = Relay(Connection(socket.socket(fileno=_RIGHT.unpack(rights[0][2])[0])))
            try:
                calls.start_pump()
                relay.start()
            except RuntimeError:  # no more threads
                relay.close()


class _Begun(calls._Slot):
    """A call of the host for a forked process, whose number for it goes into a queue at each answer, and perhaps once more."""
    __slots__ = ("number", "operation", "its_number", "arrived")

    def __init__(self, operation, its_number, arrived):
        super().__init__()
        self.operation, self.its_number, self.arrived = operation, its_number, arrived

    def wake(self):
        self.arrived.put(self.its_number)


class Relay:
    """In the model's process, of one forked process: a thread takes what it asks, another one brings the answers, which wait there while it
    takes none. Both end with it."""

    def __init__(self, connection):
        self._connection = connection
        self._arrived = SimpleQueue()  # numbers of its calls, for each answer, or whole messages, or None at its end
        self._lock = threading.Lock()  # guards what follows
        self._open = {}  # what is begun, by the number that it has there
        self._metrics = {}  # those that it made: what deletes them, by their keys
        _relays.add(self)

    def start(self):
        taker = threading.Thread(target=self._take, name="nereid-fork-asks", daemon=True)
        threading.Thread(target=self._bring, name="nereid-fork-answers", daemon=True).start()
        try:
            taker.start()
        except RuntimeError:
            self._end()
            raise
        self._arrived.put(_HEARD)

    def leave(self):
        self._connection.close()

    def close(self):
        self._connection.end()
        self._connection.close()
        _relays.discard(self)

    # ---- what it asks

    def _take(self):
        try:
            while True:
                message = self._connection.receive()
                if message is None:
                    return
                self._pass(*message)
        except Exception as error:  # noqa: BLE001 nothing of a forked process ends the model's
            print(f"a process that the model forked is not heard any more: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            self._end()

    def _pass(self, kind, *rest):
        if kind == protocol.CALL:
            self._begin(*rest)
        elif kind == protocol.CANCEL:
            with self._lock:
                begun = self._open.get(rest[0])
            if begun is not None:
                _cancel(begun)
        elif kind == protocol.RESPOND:
            _respond(*rest)
        elif kind == protocol.LOG:
            try:
                channel.post((kind, *rest))
            except TritonModelException:  # no room for it
                print(rest[1], file=sys.stderr, flush=True)

    def _begin(self, call, operation, arguments):
        if not call:  # nobody waits: the end of a metric, its own or one that it inherited
            if self._metrics.pop(arguments[0], None) is not None:
                calls.tell(operation, arguments)
            return
        inputs = ()
        try:
            if operation == protocol.INFER:
                calls.check_allowed()
                request, decoupled = arguments
                inputs = _placed(request[8])
                arguments = ((*request[:8], inputs, request[9], -1), decoupled)  # its outputs lie in the host's memory
            begun = _Begun(operation, call, self._arrived)
            with self._lock:  # which the first answer waits for
                begun.number = calls._begin(operation, arguments, begun)
                self._open[call] = begun
        except TritonModelException as error:
            give_back(inputs)
            self._arrived.put(_refusal(call, operation, str(error)))

    def _end(self):
        """Nobody waits there for other models any more; what else was begun is awaited for the metrics that come of it."""
        with self._lock:
            begun = [self._open.pop(call) for call, each in list(self._open.items()) if each.operation == protocol.INFER]
        for each in begun:
            _cancel(each)
            calls._end(each.number, each)
        self._arrived.put(None)

    # ---- what it is answered

    def _bring(self):
        try:
            self._bring_all()
        finally:
            self.close()
            for key, operation in reversed(list(self._metrics.items())):
                calls.tell(operation, (key,))

    def _bring_all(self):
        is_over = False
        while not is_over or self._open:
            arrived = self._arrived.get()
            if arrived is None:
                is_over = True
                continue
            data = self._packed_answer(arrived) if type(arrived) is int else packed(arrived)
            if data is None or is_over:
                continue
            try:
                self._connection.send_packed(data)
            except TritonModelException:  # it is gone, as the other thread hears
                pass

    def _packed_answer(self, call):
        """None where there is none. One that cannot be sent is its call's last, an error."""
        with self._lock:
            begun = self._open.get(call)
        try:
            answer = self._answer(call)
            return answer and packed(answer)
        except Exception as error:  # noqa: BLE001 too long, or no memory for the bytes
            with self._lock:
                self._open.pop(call, None)
            _cancel(begun)
            calls._end(begun.number, begun)
            text = str(error) if isinstance(error, TritonModelException) else f"{type(error).__name__}: {error}"
            return packed(_refusal(call, begun.operation, text))

    def _answer(self, call):
        with self._lock:
            begun = self._open.get(call)
            if begun is None or not begun.messages:
                return None
            kind, _, *rest = begun.messages.popleft()
            if kind == protocol.REPLY or rest[1]:
                del self._open[call]
                calls._end(begun.number, begun)
        if kind == protocol.STREAM:
            return (kind, call, rest[0] and _with_bytes(rest[0]), rest[1])
        if rest[0] and begun.operation in _DELETED_BY:
            self._metrics[rest[1]] = _DELETED_BY[begun.operation]
        return (kind, call, *rest)


def _cancel(begun):
    if begun.operation == protocol.INFER and not begun.is_over:
        channel.post((protocol.CANCEL, begun.number))


def _respond(request_key, packed, flags):
    """Of a sender. Where there is no room for it the client hears so."""
    outputs = ()
    try:
        if packed is not None:
            outputs = _placed(packed[0])
            packed = (outputs, *packed[1:])
        channel.post((protocol.RESPOND, request_key, packed, flags))
    except TritonModelException as error:
        give_back(outputs)
        channel.post((protocol.RESPOND, request_key, ((), (_INTERNAL, str(error)), ()), flags))


def _refusal(call, operation, text):
    if operation == protocol.INFER:
        return (protocol.STREAM, call, ((), (_INTERNAL, text), ()), True)
    return (protocol.REPLY, call, False, (_INTERNAL, text))


def _placed(tensors):
    """The same, as the model's own process would send them: long ones in shared memory."""
    placed = []
    try:
        for *head, data in tensors:
            placed.append((*head, channel.outgoing.place_bytes(data) if len(data) > INLINE_BYTES else data))
    except BaseException:
        give_back(placed)
        raise
    return tuple(placed)


def _with_bytes(response):
    """The same, without the shared memory, which is given back."""
    outputs, *rest = response
    return (tuple([(*head, _bytes_of(data)) for *head, data in outputs]), *rest)


def _bytes_of(data):
    if type(data) is not tuple:
        return data
    array = channel.incoming.array(*data) if len(data) == 2 else channel.incoming.part(*data)
    return array.tobytes()

