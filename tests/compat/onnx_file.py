"""Writes ONNX models of a few operators. Serializes the messages of onnx.proto directly, as far as the tests need them."""
import numpy as np

TYPES = {"FP32": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "BYTES": 8, "BOOL": 9, "FP16": 10, "FP64": 11,
         "UINT32": 12, "UINT64": 13}


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name, datatype, dims):
    """Returns a ValueInfoProto. A dimension of -1 has no value."""
    shape = b"".join(field(1, b"" if dim < 0 else field(1, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, TYPES[datatype]) + field(2, shape)))


def weights(name, values):
    """Returns a TensorProto of 32-bit floats."""
    values = np.asarray(values, dtype=np.float32)
    return b"".join(field(1, dim) for dim in values.shape) + field(2, 1) + field(8, name) + field(9, values.tobytes())


def node(operator, inputs, outputs):
    return b"".join(field(1, name) for name in inputs) + b"".join(field(2, name) for name in outputs) + field(4, operator)


def model(nodes, inputs, outputs, initializers=()):
    graph = b"".join(field(1, each) for each in nodes) + field(2, "test") + b"".join(field(5, each) for each in initializers)
    graph += b"".join(field(11, each) for each in inputs) + b"".join(field(12, each) for each in outputs)
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))  # IR version 8, operator set 13
