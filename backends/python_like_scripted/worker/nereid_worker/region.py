"""The shared memory. Tensors are in blocks; the first byte of a block's header says whether the block is in use. The writer sets it, the reader
clears it, and only the writer allocates blocks."""
import mmap
import os
import sys
import threading
import weakref

import numpy

from .errors import TritonModelException

HEADER = 64
_UINT8 = numpy.dtype(numpy.uint8)


def _reference_counts(arrays):
    """The reference counts of each array and of the block that it is in."""
    return [(sys.getrefcount(each), sys.getrefcount(each.base) if type(each.base) is numpy.ndarray else 0)
            for each in arrays if isinstance(each, numpy.ndarray)]


_UNREFERENCED = _reference_counts([numpy.empty(1)[:]])[0]


def are_unreferenced(arrays):
    """Whether only this list refers to its arrays, and only they refer to their blocks: then the model can no longer write to the memory."""
    return all(of_array <= _UNREFERENCED[0] and of_block <= _UNREFERENCED[1] for of_array, of_block in _reference_counts(arrays))


def _region_full_error(fd, size, why):
    """Triton's error text, which scripts look for. The region's name in it is the name of the memfd."""
    try:
        name = os.readlink(f"/proc/self/fd/{fd}").replace("/memfd:", "").replace(" (deleted)", "")
    except OSError:  # /proc is not mounted
        name = "from_worker"
    return TritonModelException(f"Failed to increase the shared memory pool size for key '{name}' to {size} bytes: {why}")


class IncomingRegion:
    """The region that the host writes. A block is released when the last array over it is deleted."""

    def __init__(self, fd):
        self._fd = fd
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self._living = {}  # (weak reference to a block's array, offset, id of the array), by the id of the reference, because arrays have no hash
        self._offsets = {}  # offsets of blocks in use, by the id of their array
        self._shared = {}  # weak reference to the array of a block that several tensors share, by its offset

    def array(self, offset, size):
        """The bytes of a block as an array that owns the block."""
        if offset + size > len(self._map):
            self._map = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        block = numpy.ndarray((size,), _UINT8, self._map, offset)
        reference = weakref.ref(block, self._on_array_deleted)
        self._living[id(reference)] = (reference, offset, id(block))
        self._offsets[id(block)] = offset
        return block

    def block_part(self, offset, size, block_offset, block_size):
        """A part of a block that several tensors share, as an array that keeps the block in use."""
        reference = self._shared.get(block_offset)
        block = reference() if reference is not None else None
        if block is None:
            block = self.array(block_offset, block_size)
            self._shared[block_offset] = weakref.ref(block)
        return block[offset - block_offset:offset - block_offset + size]

    def location_of(self, array):
        """(offset, size) of an array that begins at the start of a block; None for other arrays."""
        block = array if array.base is None or type(array.base) is not numpy.ndarray else array.base
        offset = self._offsets.get(id(block))
        if offset is None or not array.flags.c_contiguous:
            return None
        if array.__array_interface__["data"][0] != block.__array_interface__["data"][0]:
            return None
        return offset, array.nbytes

    def copy(self, offset, size):
        """A copy of a block's bytes. Releases the block."""
        if offset + size > len(self._map):
            self._map = mmap.mmap(self._fd, os.fstat(self._fd).st_size)
        data = self._map[offset:offset + size]
        self._map[offset - HEADER] = 0
        return data

    def reset_after_fork(self):
        """In a forked process: blocks are no longer released here, because the parent does that."""
        self._living.clear()
        self._offsets.clear()
        self._shared.clear()

    def _on_array_deleted(self, reference):
        _, offset, block = self._living.pop(id(reference))
        del self._offsets[block]
        self._shared.pop(offset, None)
        self._map[offset - HEADER] = 0


class OutgoingRegion:
    """The region that this worker writes and whose blocks the host releases. Allocates first fit, so that recently used memory is used again."""

    def __init__(self, fd, growth, limit):
        self._fd = fd
        self._growth = growth
        self._limit = limit  # 0: without limit
        self._map = mmap.mmap(fd, os.fstat(fd).st_size)
        self._used = []  # (begin, end) of allocated blocks, ordered
        self._lock = threading.Lock()

    def write(self, array):
        """Copies an array into a new block. Returns (offset, size) of its bytes."""
        size = array.nbytes
        with self._lock:
            offset = self._allocate(size)
            view = self._map
        numpy.copyto(numpy.ndarray(array.shape, array.dtype, view, offset), array)
        return offset, size

    def write_bytes(self, data):
        with self._lock:
            offset = self._allocate(len(data))
            self._map[offset:offset + len(data)] = data
        return offset, len(data)

    def release(self, offset):
        """Releases a block that is not sent."""
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
                raise _region_full_error(self._fd, new, f"at most {limit} are allowed by shm-max-byte-size")
            new = min(new, limit)
        try:
            os.posix_fallocate(self._fd, old, new - old)
            self._map = mmap.mmap(self._fd, new)
        except OSError as error:
            raise _region_full_error(self._fd, new, os.strerror(error.errno)) from None
