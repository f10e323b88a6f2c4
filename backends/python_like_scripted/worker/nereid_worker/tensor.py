"""One tensor: made by a model from an array, or received and turned into an array when it is first asked for."""
import numpy as np

from . import channel
from .arguments import text_of
from .data_types import BF16, BYTES, DTYPES, NUMPY_TYPES, NAMES, deserialize, number_of, object_array, serialize
from .errors import TritonModelException

# Shorter tensors travel inside their message.
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
        if not numpy_array.flags.c_contiguous:  # as it is now: what lies in one piece is shared, what does not is copied, as there
            numpy_array = np.ascontiguousarray(numpy_array)
        self._name = name
        self._type = number
        self._shape = numpy_array.shape
        self._array = numpy_array
        self._data = serialize(numpy_array) if number == BYTES else None  # texts as they are now: models use their arrays again
        self._gpu = None

    @classmethod
    def received(cls, name, number, shape, data):
        """`data`: bytes, or (offset, size) in shared memory, or (offset, size, offset, size) for a part of a block there, or (device, handle,
        offset, size, token), whose token is in shared memory."""
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
            self._data = channel.incoming.part(*data)
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
        """As it travels: (name, type, shape, data). With a list `kept`, what came from the host goes back as its place there, and joins the
        list, which holds it until the host has read it; with a list `kept_on_gpu` memory of a GPU stays there, and joins that one."""
        if self._gpu is not None:
            data = self._placed_on_gpu(kept_on_gpu)
        elif self._data is not None:
            data = self._data
            if type(data) is not bytes:
                data = self._placed(data, kept)
            elif len(data) > INLINE_BYTES:
                data = channel.outgoing.place_bytes(data)
        elif self._array.nbytes <= INLINE_BYTES:
            data = self._array.tobytes()
        else:
            data = self._placed(self._array, kept)
        return (self._name, self._type, self._shape, data)

    def _placed_on_gpu(self, kept):
        place = None if kept is None else self._gpu.place()
        if place is not None:
            kept.append(self._gpu)
            return place
        data = bytes(self._gpu.copied())
        return data if len(data) <= INLINE_BYTES else channel.outgoing.place_bytes(data)

    @staticmethod
    def _placed(array, kept):
        place = None if kept is None else channel.incoming.place_of(array)
        if place is None:
            return channel.outgoing.place(array)
        kept.append(array)
        return (*place, True)

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
        return dlpack.tensor_of(_checked_name(name), tensor)

    @classmethod
    def of_bits(cls, name, number, bits):
        """A tensor whose elements NumPy has only the bits of."""
        self = cls(name, bits)
        self._type = number
        return self

    def bits(self):
        """Its elements as an array that shares their memory; BF16 as uint16."""
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
    """Tensor.packed of each, or of none: when one fails, what the others took of the shared memory is given back."""
    packed = []
    try:
        for each in tensors:
            packed.append(each.packed(kept, kept_on_gpu))
    except BaseException:
        give_back(packed)
        raise
    return tuple(packed)


def give_back(packed):
    """The shared memory of packed tensors that will not be sent."""
    for _, _, _, data in packed:
        if type(data) is tuple and len(data) == 2:
            channel.outgoing.give_back(data[0])


def numpy_type(number):
    return NUMPY_TYPES[number]
