"""GPU memory, by the CUDA driver that is found at run time. The host's allocations are opened by their IPC handles. A model's allocations are
named to the host in the same way, and kept alive until the host has read them."""
import ctypes
import functools

from .errors import TritonModelException

_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * _HANDLE_BYTES)]


class _Driver:
    def __init__(self):
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise TritonModelException(f"memory of a GPU: no CUDA driver was found: {error}") from None
        self._contexts = {}  # by device number
        self._check("cuInit", 0)

    def _check(self, function, *arguments):
        code = getattr(self._library, function)(*arguments)
        if code != 0:
            raise TritonModelException(f"memory of a GPU: {function} failed with error {code}")

    def enter(self, device):
        """Makes the device's primary context, which other libraries use too, current on this thread."""
        context = self._contexts.get(device)
        if context is None:
            context = ctypes.c_void_p()
            self._check("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(device))
            self._contexts[device] = context
        self._check("cuCtxSetCurrent", context)

    def synchronize(self):
        self._check("cuCtxSynchronize")

    def copy(self, target, source, size):
        self._check("cuMemcpy", ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size))
        self.synchronize()

    def open(self, handle):
        """(begin, end)"""
        base = ctypes.c_uint64()
        self._check("cuIpcOpenMemHandle_v2", ctypes.byref(base), _Handle.from_buffer_copy(handle), ctypes.c_uint(_LAZY_PEER_ACCESS))
        return self._range_of(base)

    def allocation_of(self, pointer):
        """(begin, handle)"""
        begin, _ = self._range_of(ctypes.c_uint64(pointer))
        handle = _Handle()
        self._check("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(begin))
        return begin, ctypes.string_at(ctypes.addressof(handle), _HANDLE_BYTES)

    def _range_of(self, pointer):
        begin, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._check("cuMemGetAddressRange_v2", ctypes.byref(begin), ctypes.byref(size), pointer)
        return begin.value, begin.value + size.value


@functools.lru_cache(maxsize=None)
def _driver():
    return _Driver()


_opened: "dict[tuple[int, bytes], tuple[int, int]]" = {}  # (begin, end) of opened allocations of the host, by (device, handle)


class GpuMemory:
    """A range of GPU memory; `owner` keeps it alive."""
    __slots__ = ("device", "pointer", "size", "owner", "__weakref__")

    def __init__(self, device, pointer, size, owner):
        self.device, self.pointer, self.size, self.owner = device, pointer, size, owner

    @classmethod
    def received(cls, device, handle, offset, size, owner):
        if (device, handle) not in _opened:
            driver = _driver()
            driver.enter(device)
            _opened[device, handle] = driver.open(handle)
        return cls(device, _opened[device, handle][0] + offset, size, owner)

    def copied(self):
        """A copy of the bytes in host memory."""
        data = bytearray(self.size)
        if self.size:
            driver = _driver()
            driver.enter(self.device)
            driver.synchronize()
            driver.copy(ctypes.addressof(ctypes.c_char.from_buffer(data)), self.pointer, self.size)
        return data

    def location(self):
        """(device, handle, offset, size), or None for memory that cannot be shared. Waits for the work that is in flight on the device."""
        driver = _driver()
        driver.enter(self.device)
        driver.synchronize()
        for (device, handle), (begin, end) in _opened.items():
            if device == self.device and begin <= self.pointer < end:
                return device, handle, self.pointer - begin, self.size
        try:
            begin, handle = driver.allocation_of(self.pointer)
        except TritonModelException:
            return None
        return self.device, handle, self.pointer - begin, self.size
