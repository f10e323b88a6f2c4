"""Tensor: made by a model from an array, or received and converted to an array when that is first needed."""
import numpy as np

from . import channel
from .arguments import text_of
from .data_types import BF16, BYTES, DTYPES, NUMPY_TYPES, NAMES, deserialize, number_of, object_array, serialize
from .errors import TritonModelException

# Tensors up to this size travel inside their message.
INLINE_BYTES = 8192


class Tensor:
    __slots__ = ("_name", "_type", "_shape", "_array", "_data", "_gpu", "__weakref__")

    def __init__(self, name, numpy_array):
        if not isinstance(numpy_array, np.ndarray):
            raise TypeError(f"Tensor {name!r}: expected a numpy.ndarray, got {type(numpy_array).__name__}")
        if type(name) is not str or not name or not name.isascii():
            name = _checked_name(name)
        number = number_of(numpy_array.dtype)
        if number is None:
            raise TritonModelException("NumPy dtype is not supported.")
        if not numpy_array.flags.c_contiguous:  # as in Triton: contiguous arrays are shared with the model, others are copied now
            numpy_array = np.ascontiguousarray(numpy_array)
        self._name = name
        self._type = number
        self._shape = numpy_array.shape
        self._array = numpy_array
        self._data = serialize(numpy_array) if number == BYTES else None  # encoded now, because models reuse their arrays
        self._gpu = None

    @classmethod
    def received(cls, name, number, shape, data):
        """`data`: bytes; or in shared memory (offset, size), or for a part of a block (offset, size, block offset, block size); or on a GPU
        (device, handle, offset, size, token), whose token is in shared memory."""
        self = cls.__new__(cls)
        self._name = name
        self._type = number
        self._shape = shape
        self._array = self._gpu = None
        if type(data) is not tuple:
            self._data = data
        elif len(data) == 2:
            self._data = channel.incoming.array(*data)
        elif len(data) == 4:
            self._data = channel.incoming.block_part(*data)
        else:
            from .gpu import GpuMemory
            self._data = None
            self._gpu = GpuMemory.received(*data[:4], channel.incoming.array(data[4], 1))
        return self

    @classmethod
    def on_gpu(cls, name, number, shape, memory):
        self = cls.__new__(cls)
        self._name = name
        self._type = number
        self._shape = shape
        self._array = self._data = None
        self._gpu = memory
        return self

    def name(self):
        return self._name

    def triton_dtype(self):
        return self._type

    def shape(self):
        return list(self._shape)

    def is_cpu(self):
        return self._gpu is None

    def as_numpy(self):
        if self._array is None or self._type == BF16:
            self._array = self._decoded()
        return self._array

    def _decoded(self):
        data = self._data
        if self._gpu is not None:
            raise TritonModelException("Tensor is stored in GPU and cannot be converted to NumPy.")
        if self._type == BYTES:
            return object_array(deserialize(memoryview(data)), self._shape)
        if self._type == BF16:
            raise TritonModelException("Tensor dtype is BF16 and cannot be converted to NumPy. Use to_dlpack() and from_dlpack() instead.")
        array = np.ndarray(self._shape, DTYPES[self._type], bytearray(data) if type(data) is bytes else data)
        self._data = None
        return array

    def packed(self, kept=None, kept_on_gpu=None):
        """The encoded tensor: (name, type, shape, data). With a list `kept`, an array that came from the host is sent back by its location in the
        host's region, and is appended to the list, which keeps it alive until the host has read it. With a list `kept_on_gpu`, data in GPU memory
        stays there, and its GpuMemory is appended to that list."""
        if self._gpu is not None:
            data = self._gpu_location(kept_on_gpu)
        elif self._data is not None:
            data = self._data
            if type(data) is not bytes:
                data = self._shared_location(data, kept)
            elif len(data) > INLINE_BYTES:
                data = channel.outgoing.write_bytes(data)
        elif self._array.nbytes <= INLINE_BYTES:
            data = self._array.tobytes()
        else:
            data = self._shared_location(self._array, kept)
        return (self._name, self._type, self._shape, data)

    def _gpu_location(self, kept):
        location = None if kept is None else self._gpu.location()
        if location is not None:
            kept.append(self._gpu)
            return location
        data = bytes(self._gpu.copied())
        return data if len(data) <= INLINE_BYTES else channel.outgoing.write_bytes(data)

    @staticmethod
    def _shared_location(array, kept):
        location = None if kept is None else channel.incoming.location_of(array)
        if location is None:
            return channel.outgoing.write(array)
        kept.append(array)
        return (*location, True)

    # ---- DLPack

    def to_dlpack(self):
        from . import dlpack
        return dlpack.capsule_of(self)

    def __dlpack__(self, stream=None, **_):
        return self.to_dlpack()

    def __dlpack_device__(self):
        return (1, 0) if self._gpu is None else (2, self._gpu.device)

    @staticmethod
    def from_dlpack(name, tensor):
        from . import dlpack
        name = _checked_name(name)
        number, shape, data = dlpack.received(name, tensor)
        if not isinstance(data, np.ndarray):
            return Tensor.on_gpu(name, number, shape, data)
        return Tensor.of_bits(name, BF16, data) if number == BF16 else Tensor(name, data)

    @classmethod
    def of_bits(cls, name, number, bits):
        """A tensor of a type that NumPy lacks, from the bits of its elements."""
        self = cls(name, bits)
        self._type = number
        return self

    def bits(self):
        """The elements as an array that shares their memory; BF16 as uint16."""
        if self._type != BF16:
            return self.as_numpy()
        if self._array is None:
            data = self._data
            self._array = np.ndarray(self._shape, np.uint16, bytearray(data) if type(data) is bytes else data)
            self._data = None
        return self._array

    def __repr__(self):
        return f"Tensor({self._name!r}, {NAMES[self._type]}, {list(self._shape)})"


def _checked_name(name):
    name = text_of(name, "Tensor: expected the name")
    if not name:
        raise TritonModelException("Tensor name cannot be an empty string.")
    return name


def packed_all(tensors, kept=None, kept_on_gpu=None):
    """Tensor.packed of each tensor. If one fails, the shared memory of the others is released."""
    packed = []
    try:
        for each in tensors:
            packed.append(each.packed(kept, kept_on_gpu))
    except BaseException:
        release_packed(packed)
        raise
    return tuple(packed)


def shared_bytes(packed):
    """The bytes of encoded tensors that are in shared memory."""
    return sum([data[1] for _, _, _, data in packed if type(data) is tuple and len(data) < 4])


def release_packed(packed):
    """Releases the shared memory of encoded tensors that are not sent."""
    for _, _, _, data in packed:
        if type(data) is tuple and len(data) == 2:
            channel.outgoing.release(data[0])


def numpy_type(number):
    return NUMPY_TYPES[number]
