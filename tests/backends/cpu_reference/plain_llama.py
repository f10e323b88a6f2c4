"""A reference Llama in NumPy and double precision, and a safetensors writer. Weight formats are compared with it."""
import json
import struct

import numpy

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "eos_token_id": 2,
}


def shapes(c):
    """Hugging Face name -> shape, for the linear layers of all decoder layers."""
    hidden, inner = c["hidden_size"], c["intermediate_size"]
    kv = hidden // c["num_attention_heads"] * c["num_key_value_heads"]
    one = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden)}
    one |= {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
    return {f"model.layers.{i}.{name}": shape for i in range(c["num_hidden_layers"]) for name, shape in one.items()}


def random_weights(seed, c=None):
    """Returns (linear layers, other weights), all in float32 and exact in fp16."""
    c = c or CONFIG
    random = numpy.random.default_rng(seed)
    normal = lambda *shape: random.standard_normal(shape).astype(numpy.float16).astype(numpy.float32)
    linear = {name: normal(*shape) / numpy.float32(8) for name, shape in shapes(c).items()}
    other = {"model.embed_tokens.weight": normal(c["vocab_size"], c["hidden_size"]), "lm_head.weight": normal(c["vocab_size"], c["hidden_size"]) / 8}
    norms = ["model.norm"] + [f"model.layers.{i}.{n}_layernorm" for i in range(c["num_hidden_layers"]) for n in ("input", "post_attention")]
    other |= {f"{name}.weight": (1 + normal(c["hidden_size"]) / 8).astype(numpy.float16).astype(numpy.float32) for name in norms}
    return linear, other


def logits(linear, other, ids, c=None, rope=None, angles=None, inputs=None):
    """Returns [len(ids), vocab_size]. `linear`: the effective weights; `rope`: frequencies, and the factor on cosine and sine; `angles`: the products
    of positions and frequencies. `inputs`: a list that gets the input of each layer, and the output of the last one.
    """
    c = c or CONFIG
    w = {name: value.astype(numpy.float64) for name, value in {**linear, **other}.items()}
    heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
    size = c["hidden_size"] // heads
    norm = lambda x, name: x / numpy.sqrt((x * x).mean(-1, keepdims=True) + c["rms_norm_eps"]) * w[name + ".weight"]
    frequencies, magnitude = rope or (c["rope_theta"] ** (-numpy.arange(0, size, 2) / size), 1.0)
    angle = numpy.outer(numpy.arange(len(ids)), frequencies) if angles is None else angles
    cos, sin = magnitude * numpy.cos(angle)[:, None], magnitude * numpy.sin(angle)[:, None]

    def rope(x):
        low, high = x[..., : size // 2], x[..., size // 2 :]
        return numpy.concatenate([low * cos - high * sin, high * cos + low * sin], -1)

    x = w["model.embed_tokens.weight"][ids]
    inputs = [] if inputs is None else inputs
    for i in range(c["num_hidden_layers"]):
        inputs.append(x)
        layer = f"model.layers.{i}."
        project = lambda y, name: y @ w[layer + name].T
        y = norm(x, layer + "input_layernorm")
        q = rope(project(y, "self_attn.q_proj").reshape(len(ids), heads, size))
        k = rope(project(y, "self_attn.k_proj").reshape(len(ids), kv_heads, size)).repeat(heads // kv_heads, 1)
        v = project(y, "self_attn.v_proj").reshape(len(ids), kv_heads, size).repeat(heads // kv_heads, 1)
        scores = numpy.einsum("ihd,jhd->hij", q, k) / numpy.sqrt(size) + numpy.triu(numpy.full((len(ids), len(ids)), -numpy.inf), 1)
        scores = numpy.exp(scores - scores.max(-1, keepdims=True))
        attended = numpy.einsum("hij,jhd->ihd", scores / scores.sum(-1, keepdims=True), v)
        x = x + project(attended.reshape(len(ids), -1), "self_attn.o_proj")
        y = norm(x, layer + "post_attention_layernorm")
        gate = project(y, "mlp.gate_proj")
        x = x + project(gate / (1 + numpy.exp(-gate)) * project(y, "mlp.up_proj"), "mlp.down_proj")
    inputs.append(x)
    return norm(x, "model.norm") @ w["lm_head.weight"].T


NAMES = {"float32": "F32", "float16": "F16", "int32": "I32", "int64": "I64", "int8": "I8", "uint8": "U8"}


def save(path, tensors):
    """tensors: name -> array, or (dtype name, array of its bits)."""
    header, data = {}, b""
    for name, value in tensors.items():
        dtype, array = value if isinstance(value, tuple) else (NAMES[str(value.dtype)], value)
        blob = numpy.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def save_checkpoint(folder, tensors, config):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save(folder / "model.safetensors", tensors)
