"""Element types: Triton's numbers and names, and the corresponding NumPy types."""
import struct

import numpy as np

BYTES, BF16 = 13, 14
NUMPY_TYPES = (None, np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64, np.float16,
               np.float32, np.float64, np.object_, None)
DTYPES = tuple(None if each is None else np.dtype(each) for each in NUMPY_TYPES)
NAMES = ("INVALID", "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES",
         "BF16")
_NUMBERS = {dtype: number for number, dtype in enumerate(DTYPES) if dtype is not None}
_LENGTH = struct.Struct("<I")


def number_of(dtype):
    """Triton's number of a NumPy dtype: BYTES for bytes and objects; None if Triton has no such type, as for str and for numbers in another byte
    order."""
    number = _NUMBERS.get(dtype)
    return BYTES if number is None and dtype.kind in "SO" else number


def serialize(array):
    """The elements of an array of strings, each preceded by its length."""
    parts = []
    pack = _LENGTH.pack
    for element in array.ravel(order="C").tolist() if array.dtype.kind != "S" else [bytes(each) for each in array.ravel(order="C")]:
        if type(element) is not bytes:
            element = str(element).encode()
        parts.append(pack(len(element)))
        parts.append(element)
    return b"".join(parts)


def deserialize(data):
    """The elements as a list of bytes."""
    elements = []
    position, end = 0, len(data)
    unpack = _LENGTH.unpack_from
    while position < end:
        if end - position < 4:
            raise struct.error(f"BYTES tensor: expected the 4 bytes of a length at byte {position}, got {end - position}")
        size = unpack(data, position)[0]
        position += 4
        if end - position < size:
            raise struct.error(f"BYTES tensor: expected an element of {size} bytes at byte {position}, got {end - position}")
        elements.append(bytes(data[position:position + size]))
        position += size
    return elements


def object_array(elements, shape):
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array.reshape(shape)
