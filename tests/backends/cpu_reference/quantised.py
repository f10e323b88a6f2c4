"""How AWQ, GPTQ, compressed-tensors and fp8 checkpoints store a matrix, written from the definitions of their layouts."""
import numpy


class Int4:
    """One matrix [out, in]: q [out, in], zero and scale [out, groups], and the group of each column."""

    bits = 4

    def __init__(self, random, shape, group, lowest_zero=0, symmetric=False, order=None):
        rows, columns = shape
        groups = columns // group
        end = 1 << self.bits
        self.q = random.integers(0, end, shape)
        self.zero = numpy.full((rows, groups), end // 2) if symmetric else random.integers(lowest_zero, end, (rows, groups))
        self.scale = (random.uniform(0.5, 1.5, (rows, groups)) / (4 * end)).astype(numpy.float16)
        self.group_of = numpy.arange(columns) // group
        if order is not None:
            self.group_of = self.group_of[order]

    def weight(self):
        return (self.q - self.zero[:, self.group_of]) * self.scale.astype(numpy.float64)[:, self.group_of]


class Int8(Int4):
    bits = 8


def pack(values, order=range(8), bits=4):
    """[..., n] values of a few bits -> int32 [..., n * bits / 32]. Element order[k] of a word is at its bits k * bits."""
    number = 32 // bits
    parts = values.reshape(*values.shape[:-1], -1, number).astype(numpy.uint32)
    words = numpy.zeros(parts.shape[:-1], numpy.uint32)
    for k, element in enumerate(order[:number]):
        words |= parts[..., element] << numpy.uint32(bits * k)
    return words.view(numpy.int32)


def awq(m):
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    return {"qweight": pack(m.q.T, order), "qzeros": pack(m.zero.T, order), "scales": m.scale.T}


def gptq(m, offset=1):
    return {
        "qweight": numpy.ascontiguousarray(pack(m.q, bits=m.bits).T),
        "qzeros": pack(m.zero.T - offset, bits=m.bits),
        "scales": m.scale.T,
        "g_idx": m.group_of.astype(numpy.int32),
        "bias": numpy.zeros(len(m.q), numpy.float16),  # AutoGPTQ adds zero biases to layers without a bias
    }


def packed(m, zeros, index=False):
    parts = {"weight_packed": pack(m.q, bits=m.bits), "weight_scale": m.scale, "weight_shape": numpy.array(m.q.shape, numpy.int64)}
    if zeros:
        parts["weight_zero_point"] = numpy.ascontiguousarray(pack(m.zero.T, bits=m.bits).T)
    if index:
        parts["weight_g_idx"] = m.group_of.astype(numpy.int32)
    return parts


def compressed(**weights):
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32, **weights}}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


def fp8_values(bits):
    """E4M3: sign, four exponent bits with bias 7, three mantissa bits."""
    sign, exponent, mantissa = bits >> 7, (bits >> 3) & 15, (bits & 7) / 8
    return numpy.where(sign == 1, -1, 1) * numpy.where(exponent == 0, mantissa * 2.0**-6, (1 + mantissa) * 2.0 ** (exponent.astype(int) - 7))
