"""Shared memory. Tensors lie in blocks behind a header whose first byte says who still needs them: the writer sets it, the reader
clears it, and only the writer hands blocks out."""
import mmap
import os
import sys
import threading
import weakref

import numpy

from .errors import TritonModelException

HEADER = 64
_UINT8 = numpy.dtype(numpy.uint8)


def _references(arrays):
    """To each array, and to the block that it lies in."""
    return [(sys.getrefcount(each), sys.getrefcount(each.base) if type(each.base) is numpy.ndarray else 0)
            for each in arrays if isinstance(each, numpy.ndarray)]


_ALONE = _references([numpy.empty(1)[:]])[0]


def are_alone(arrays):
    """Whether this list is all that keeps its arrays, and they are all that keeps their memory: then nobody can write to it any more."""
    return all(of_array <= _ALONE[0] and of_block <= _ALONE[1] for of_array, of_block in _references(arrays))


def _no_room(fd, size, why):
    """In Triton's words, which scripts look for. The region's name there is this file's."""
    try:
        name = os.readlink(f"/proc/self/fd/{fd}").replace("/memfd:", "").replace(" (deleted)", "")
    except OSError:  # no /proc
        name = "from_worker"
    return TritonModelException(f"Failed to increase the shared memory pool size for key '{name}' to {size} bytes: {why}")


class IncomingRegion:
    """What the host writes. A block is given back when the last array over it dies."""

    def __init__(self, fd):
        self._fd = fd
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self._living = {}  # (weak reference to a block's array, offset, that array's id) by the reference's id: arrays have no hash
        self._offsets = {}  # of living blocks, by the id of their array
        self._shared = {}  # weak reference to a block's array that several tensors share, by its offset

    def array(self, offset, size):
        """The bytes of a block as an array that owns it."""
        if offset + size > len(self._map):
            self._map = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        block = numpy.ndarray((size,), _UINT8, self._map, offset)
        reference = weakref.ref(block, self._give_back)
        self._living[id(reference)] = (reference, offset, id(block))
        self._offsets[id(block)] = offset
        return block

    def part(self, offset, size, block_offset, block_size):
        """Bytes of a block that several tensors lie in, as an array that owns a part of it."""
        reference = self._shared.get(block_offset)
        block = reference() if reference is not None else None
        if block is None:
            block = self.array(block_offset, block_size)
            self._shared[block_offset] = weakref.ref(block)
        return block[offset - block_offset:offset - block_offset + size]

    def place_of(self, array):
        """(offset, size) of an array whose bytes are the first of a block, else None."""
        block = array if array.base is None or type(array.base) is not numpy.ndarray else array.base
        offset = self._offsets.get(id(block))
        if offset is None or not array.flags.c_contiguous:
            return None
        if array.__array_interface__["data"][0] != block.__array_interface__["data"][0]:
            return None
        return offset, array.nbytes

    def copy(self, offset, size):
        """The bytes of a block, which is given back at once."""
        if offset + size > len(self._map):
            self._map = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        data = self._map[offset:offset + size]
        self._map[offset - HEADER] = 0
        return data

    def leave(self):
        """From now on nothing is given back: another process does that."""
        self._living.clear()
        self._offsets.clear()
        self._shared.clear()

    def _give_back(self, reference):
        _, offset, block = self._living.pop(id(reference))
        del self._offsets[block]
        self._shared.pop(offset, None)
        self._map[offset - HEADER] = 0


class OutgoingRegion:
    """What this worker writes and the host gives back. First fit: the memory that was used last is used again."""

    def __init__(self, fd, growth, limit):
        self._fd = fd
        self._growth = growth
        self._limit = limit  # 0: none
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self._used = []  # (begin, end), in order
        self._lock = threading.Lock()

    def place(self, array):
        """Copies an array; (offset, size) of its bytes."""
        size = array.nbytes
        with self._lock:
            offset = self._allocate(size)
            view = self._map
        numpy.copyto(numpy.ndarray(array.shape, array.dtype, view, offset), array)
        return offset, size

    def place_bytes(self, data):
        with self._lock:
            offset = self._allocate(len(data))
            self._map[offset:offset + len(data)] = data
        return offset, len(data)

    def give_back(self, offset):
        """What was placed and will not be sent."""
        self._map[offset - HEADER] = 0

    def free_bytes(self):
        with self._lock:
            return len(self._map) - sum(end - begin for begin, end in self._used if self._map[begin])

    def _allocate(self, size):
        need = HEADER + (size + HEADER - 1) // HEADER * HEADER
        begin, index, used = 0, 0, self._used
        while index < len(used):
            if not self._map[used[index][0]]:
                del used[index]
                continue
            if used[index][0] - begin >= need:
                break
            begin = used[index][1]
            index += 1
        if begin + need > len(self._map):
            self._grow(begin + need)
        used.insert(index, (begin, begin + need))
        self._map[begin] = 1
        return begin + HEADER

    def _grow(self, size):
        old = len(self._map)
        new = (max(size, old + self._growth) + 4095) // 4096 * 4096
        if self._limit:
            limit = (self._limit + 4095) // 4096 * 4096
            if size > limit:
                raise _no_room(self._fd, new, f"at most {limit} are allowed by shm-max-byte-size")
            new = min(new, limit)
        try:
            os.posix_fallocate(self._fd, old, new - old)
            self._map = mmap.mmap(self._fd, new)
        except OSError as error:
            raise _no_room(self._fd, new, os.strerror(error.errno)) from None
