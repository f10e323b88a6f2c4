"""Every weight format compared with a plain double-precision model whose weights NumPy decodes from the same bytes."""
import json

import numpy
import plain_llama
import pytest
import run_logits
from quantised import Int4, Int8, awq, compressed, fp8_values, gptq, packed

PROMPTS = [[5], [1, 17, 40, 9, 77, 30, 2, 61, 8, 90, 33]]
WIDE = {**plain_llama.CONFIG, "hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 1}


def check(folder, linear, other, config=None):
    answers = run_logits.run(folder, PROMPTS)
    assert answers and "error" not in answers[0], answers
    expected = [plain_llama.logits(linear, other, prompt, config) for prompt in PROMPTS]
    for i, answer in enumerate(answers):
        logits = expected[i % len(PROMPTS)]
        assert numpy.abs(numpy.array(answer["logits"]) - logits[-1]).max() < 1e-4, answer["isa"]
        run_logits.check_argmax(answer, logits)


def refusal(folder):
    answers = run_logits.run(folder, PROMPTS)
    assert "error" in answers[0], "accepted"
    return answers[0]["error"]


def named(tensors):
    return {f"{name}.weight": value for name, value in tensors.items()}


# ---- plain weights


def bf16_bits(values):
    return (values.view(numpy.uint32) >> 16).astype(numpy.uint16)


def bf16_values(bits):
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_plain_weights(tmp_path, kind):
    linear, other = plain_llama.random_weights(1)
    weights = {**named(linear), **other}
    if kind == "BF16":
        stored = {name: ("BF16", bf16_bits(value)) for name, value in weights.items()}
        linear = {name: bf16_values(bf16_bits(value)) for name, value in linear.items()}
        other = {name: bf16_values(bf16_bits(value)) for name, value in other.items()}
    else:
        stored = {name: value.astype(kind.replace("F", "float")) for name, value in weights.items()}
    plain_llama.save_checkpoint(tmp_path, stored, plain_llama.CONFIG)
    check(tmp_path, linear, other)


# ---- integers: q, zero and scale are random; the weight follows from them


def save_int4(folder, config, quantization, make, write, seed=2):
    random = numpy.random.default_rng(seed)
    _, other = plain_llama.random_weights(seed, config)
    matrices = {name: make(random, shape) for name, shape in plain_llama.shapes(config).items()}
    tensors = {f"{name}.{part}": value for name, m in matrices.items() for part, value in write(m).items()}
    tensors |= {name: value.astype(numpy.float16) for name, value in other.items()}
    plain_llama.save_checkpoint(folder, tensors, {**config, "quantization_config": quantization})
    return {name: m.weight() for name, m in matrices.items()}, other


def check_int4(folder, config, quantization, make, write):
    check(folder, *save_int4(folder, config, quantization, make, write), config)


@pytest.mark.parametrize("config, group", [(plain_llama.CONFIG, 16), (plain_llama.CONFIG, 64), (WIDE, 128), (WIDE, 32)])
def test_awq(tmp_path, config, group):
    quantization = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    check_int4(tmp_path, config, quantization, lambda r, s: Int4(r, s, group), awq)


@pytest.mark.parametrize("integers", [Int4, Int8])
@pytest.mark.parametrize("group", [16, 32, 64])
def test_gptq(tmp_path, group, integers):
    quantization = {"quant_method": "gptq", "bits": integers.bits, "group_size": group, "desc_act": False, "sym": False}
    check_int4(tmp_path, plain_llama.CONFIG, quantization, lambda r, s: integers(r, s, group, lowest_zero=1), gptq)


def test_gptq_of_8_bits_whose_zero_is_256(tmp_path):
    def make(random, shape):
        m = Int8(random, shape, 128 if shape[1] % 128 == 0 else shape[1])
        m.zero[:] = 256  # stored as 255
        return m

    quantization = {"quant_method": "gptq", "bits": 8, "group_size": 128, "desc_act": False}
    check_int4(tmp_path, WIDE, quantization, make, gptq)


@pytest.mark.parametrize("integers", [Int4, Int8])
def test_gptq_of_a_whole_row(tmp_path, integers):
    quantization = {"quant_method": "gptq", "bits": integers.bits, "group_size": -1, "desc_act": False, "checkpoint_format": "gptq_v2"}
    check_int4(tmp_path, WIDE, quantization, lambda r, s: integers(r, s, s[1]), lambda m: gptq(m, 0))


@pytest.mark.parametrize("integers", [Int4, Int8])
def test_gptq_with_act_order(tmp_path, integers):
    quantization = {"quant_method": "gptq", "bits": integers.bits, "group_size": 32, "desc_act": True, "checkpoint_format": "gptq"}
    make = lambda r, s: integers(r, s, 32, lowest_zero=1, order=r.permutation(s[1]))
    check_int4(tmp_path, plain_llama.CONFIG, quantization, make, gptq)


def test_gptq_groups_of_uneven_size_are_refused(tmp_path):
    quantization = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}
    make = lambda r, s: Int4(r, s, 32, lowest_zero=1, order=numpy.zeros(s[1], int))
    save_int4(tmp_path, plain_llama.CONFIG, quantization, make, gptq)
    assert "is in group 0, expected groups 0 to 1 of 32 columns each" in refusal(tmp_path)


@pytest.mark.parametrize("integers", [Int4, Int8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_compressed_tensors(tmp_path, symmetric, integers):
    make = lambda r, s: integers(r, s, 32, symmetric=symmetric)
    quantization = compressed(symmetric=symmetric, num_bits=integers.bits)
    check_int4(tmp_path, plain_llama.CONFIG, quantization, make, lambda m: packed(m, not symmetric))


@pytest.mark.parametrize("scales", ["channel", "tensor"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_compressed_tensors_of_plain_int8(tmp_path, symmetric, scales):
    """W8A8: weights in two's complement, one per byte. Activations are not quantized here."""

    def make(random, shape):
        m = Int8(random, shape, shape[1], symmetric=symmetric)
        if scales == "tensor":
            m.scale[:], m.zero[:] = m.scale[0], m.zero[0]
        return m

    def write(m):
        rows = 1 if scales == "tensor" else len(m.q)
        parts = {"weight": (m.q - 128).astype(numpy.int8), "weight_scale": m.scale[:rows].reshape(-1, 1)[: len(m.q)]}
        if scales == "tensor":
            parts["weight_scale"] = parts["weight_scale"].reshape(1)
        if not symmetric:
            parts["weight_zero_point"] = (m.zero[:rows] - 128).astype(numpy.int8).reshape(parts["weight_scale"].shape)
        return parts

    quantization = compressed(num_bits=8, strategy=scales, group_size=None, symmetric=symmetric) | {"format": "int-quantized"}
    quantization["config_groups"]["group_0"]["input_activations"] = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True}
    check_int4(tmp_path, plain_llama.CONFIG, quantization, make, write)


def test_compressed_tensors_by_channel_and_by_activation_order(tmp_path):
    quantization = compressed(strategy="channel", group_size=None)
    check_int4(tmp_path / "channel", WIDE, quantization, lambda r, s: Int4(r, s, s[1], symmetric=True), lambda m: packed(m, False))
    make = lambda r, s: Int4(r, s, 32, symmetric=True, order=r.permutation(s[1]))
    check_int4(tmp_path / "order", plain_llama.CONFIG, compressed(actorder="group"), make, lambda m: packed(m, False, True))


# ---- fp8


@pytest.mark.parametrize("method", ["fp8", "compressed-tensors"])
def test_fp8_with_a_scale_for_each_block(tmp_path, method):
    config = {**WIDE, "intermediate_size": 320}  # the last blocks are partial
    random = numpy.random.default_rng(8)
    _, other = plain_llama.random_weights(8, config)
    tensors = {name: value.astype(numpy.float16) for name, value in other.items()}
    linear = {}
    for name, (rows, columns) in plain_llama.shapes(config).items():
        bits = random.integers(0, 0x7F, (rows, columns)).astype(numpy.uint8) | (random.integers(0, 2, (rows, columns)).astype(numpy.uint8) << 7)
        scale = (random.uniform(0.5, 1.5, (-(-rows // 128), -(-columns // 128))) / 2048).astype(numpy.float32)
        linear[name] = fp8_values(bits) * scale.repeat(128, 0)[:rows].repeat(128, 1)[:, :columns]
        tensors |= {f"{name}.weight": ("F8_E4M3", bits), f"{name}.weight_scale{'_inv' if method == 'fp8' else ''}": scale}
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    if method == "compressed-tensors":
        group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}}
        quantization = {"quant_method": method, "format": "float-quantized", "config_groups": {"group_0": group}}
    plain_llama.save_checkpoint(tmp_path, tensors, {**config, "quantization_config": quantization})
    check(tmp_path, linear, other, config)


@pytest.mark.parametrize("scale_shape", ["tensor", "channel"])
@pytest.mark.parametrize("method", ["fp8", "compressed-tensors", "modelopt"])
def test_fp8(tmp_path, method, scale_shape):
    random = numpy.random.default_rng(3)
    _, other = plain_llama.random_weights(3)
    tensors = {name: value.astype(numpy.float16) for name, value in other.items()}
    linear = {}
    for name, shape in plain_llama.shapes(plain_llama.CONFIG).items():
        bits = random.integers(0, 0x7F, shape).astype(numpy.uint8) | (random.integers(0, 2, shape).astype(numpy.uint8) << 7)
        scale = (random.uniform(0.5, 1.5, (shape[0], 1) if scale_shape == "channel" else ()) / 1024).astype(numpy.float32)
        linear[name] = fp8_values(bits) * scale
        tensors |= {f"{name}.weight": ("F8_E4M3", bits), f"{name}.weight_scale": scale, f"{name}.input_scale": numpy.array([1.0], numpy.float32)}
    quantization = {"quant_method": method}
    if method == "modelopt":
        quantization["quant_algo"] = "FP8"
    if method == "compressed-tensors":
        group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": scale_shape}}
        quantization |= {"format": "float-quantized", "config_groups": {"group_0": group}}
    plain_llama.save_checkpoint(tmp_path, tensors, {**plain_llama.CONFIG, "quantization_config": quantization})
    check(tmp_path, linear, other)


# ---- rejected checkpoints and their messages


@pytest.mark.parametrize(
    "quantization, expected",
    [
        ({"quant_method": "bitsandbytes"}, "'quantization_config' (bitsandbytes) is not supported"),
        ({"quant_method": "awq", "bits": 8}, "'bits' is 8, which is not supported (expected 4)"),
        ({"quant_method": "awq", "version": "gemv"}, "'version' is 'gemv'"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 48}, "'group_size' is 48"),
        ({"quant_method": "gptq", "bits": 3}, "'bits' is 3, which is not supported (expected 4 or 8)"),
        ({"quant_method": "fp8", "weight_block_size": [64, 128]}, "'weight_block_size' is [64,128], which is not supported (expected [128, 128])"),
        (compressed(num_bits=2), "'num_bits' is 2, which is not supported (expected 4 or 8)"),
        (compressed(num_bits=4) | {"format": "int-quantized"}, "'num_bits' is 4, which is not supported (expected 8)"),
        (compressed() | {"format": "marlin-24"}, "'format' is 'marlin-24', which is not supported (known: pack-quantized, "),
        (compressed() | {"format": "nvfp4-pack-quantized"}, "'format' is 'nvfp4-pack-quantized'"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "'config_groups' is of 0 groups"),
    ],
)
def test_refusals_name_key_and_value(tmp_path, quantization, expected):
    linear, other = plain_llama.random_weights(4)
    plain_llama.save_checkpoint(tmp_path, {**named(linear), **other}, {**plain_llama.CONFIG, "quantization_config": quantization})
    assert expected in refusal(tmp_path)


def test_all_faults_of_quantised_tensors_come_in_one_message(tmp_path):
    def write(m):
        parts = awq(m)
        if m.q.shape == (32, 64):  # k_proj and v_proj
            del parts["scales"]
            parts["qzeros"] = parts["qzeros"].astype(numpy.int64)
        if m.q.shape == (64, 128):  # down_proj
            parts["qweight"] = parts["qweight"].T
        return parts

    quantization = {"quant_method": "awq", "bits": 4, "group_size": 32}
    save_int4(tmp_path, plain_llama.CONFIG, quantization, lambda r, s: Int4(r, s, 32), write)
    message = refusal(tmp_path)
    assert "missing (4): 'model.layers.0.self_attn.k_proj.scales' [2, 32]" in message
    assert "'model.layers.1.mlp.down_proj.qweight' expected [128, 8], got [8, 128]" in message
    assert "'model.layers.1.self_attn.v_proj.qzeros' I64" in message


# ---- TensorRT-LLM checkpoints: each rank's shard, by the rules of tensor and pipeline parallelism


def trtllm_config(tp, pp, quantization):
    c = plain_llama.CONFIG
    config = {"architecture": "LlamaForCausalLM", "dtype": "float16", "hidden_act": "silu", "norm_epsilon": c["rms_norm_eps"], "rotary_base": 10000.0}
    config |= {key: c[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")}
    config |= {"num_key_value_heads": c["num_key_value_heads"], "max_position_embeddings": 64, "position_embedding_type": "rope_gpt_neox"}
    config["mapping"] = {"world_size": tp * pp, "tp_size": tp, "pp_size": pp}
    config["quantization"] = quantization
    return config


def rank_part(array, rank, tp, axis):
    return numpy.split(array, tp, axis)[rank]


def rank_tensors(parts, other, rank, tp, pp):
    """parts: layer name -> {tensor name: (array, how its axes are sharded)}."""
    c = plain_llama.CONFIG
    stage, rank = divmod(rank, tp)
    layers = c["num_hidden_layers"] // pp
    kv_step = max(1, tp // c["num_key_value_heads"])
    tensors = {}
    if stage == 0:
        tensors["transformer.vocab_embedding.weight"] = other["model.embed_tokens.weight"]
    if stage == pp - 1:
        tensors["transformer.ln_f.weight"] = other["model.norm.weight"]
        tensors["lm_head.weight"] = rank_part(other["lm_head.weight"], rank, tp, 0)
    for local in range(layers):
        layer, to = f"model.layers.{stage * layers + local}.", f"transformer.layers.{local}."
        tensors[to + "input_layernorm.weight"] = other[layer + "input_layernorm.weight"]
        tensors[to + "post_layernorm.weight"] = other[layer + "post_attention_layernorm.weight"]
        for part in parts[layer + "self_attn.q_proj"]:
            get = lambda name: parts[layer + name][part]
            if part == "prequant_scaling_factor":
                tensors |= {to + "attention.qkv." + part: get("self_attn.q_proj"), to + "mlp.fc." + part: get("mlp.gate_proj")}
                tensors |= {to + "mlp.gate." + part: get("mlp.up_proj")}
                tensors[to + "attention.dense." + part] = rank_part(get("self_attn.o_proj"), rank, tp, 0)
                tensors[to + "mlp.proj." + part] = rank_part(get("mlp.down_proj"), rank, tp, 0)
                continue
            q = rank_part(get("self_attn.q_proj"), rank, tp, 0)
            k, v = (rank_part(get(f"self_attn.{n}_proj"), rank // kv_step, tp // kv_step, 0) for n in "kv")
            tensors[to + "attention.qkv." + part] = numpy.concatenate([q, k, v])
            tensors[to + "attention.dense." + part] = rank_part(get("self_attn.o_proj"), rank, tp, 1)
            tensors[to + "mlp.fc." + part] = rank_part(get("mlp.gate_proj"), rank, tp, 0)
            tensors[to + "mlp.gate." + part] = rank_part(get("mlp.up_proj"), rank, tp, 0)
            tensors[to + "mlp.proj." + part] = rank_part(get("mlp.down_proj"), rank, tp, 1)
    return {name: value if value.dtype == numpy.int8 else value.astype(numpy.float16) for name, value in tensors.items()}


def save_trtllm(folder, parts, other, tp, pp, quantization):
    (folder / "config.json").write_text(json.dumps(trtllm_config(tp, pp, quantization)))
    for rank in range(tp * pp):
        plain_llama.save(folder / f"rank{rank}.safetensors", rank_tensors(parts, other, rank, tp, pp))


RANKS = [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize("tp, pp", RANKS)
def test_trtllm_checkpoint(tmp_path, tp, pp):
    linear, other = plain_llama.random_weights(5)
    save_trtllm(tmp_path, {name: {"weight": value} for name, value in linear.items()}, other, tp, pp, {"quant_algo": None})
    check(tmp_path, linear, other)


@pytest.mark.parametrize("tp, pp", RANKS)
def test_trtllm_checkpoint_of_awq(tmp_path, tp, pp):
    random = numpy.random.default_rng(6)
    _, other = plain_llama.random_weights(6)
    parts, linear = {}, {}
    shared = {}  # q, k and v of a layer have one pre_quant_scale, because they have the same input
    for name, shape in plain_llama.shapes(plain_llama.CONFIG).items():
        m = Int4(random, shape, 16, symmetric=True)
        signed = (m.q - 8).astype(numpy.int8)
        # Two outputs per byte, the even one in the low half.
        weight = ((signed[0::2] & 15) | (signed[1::2] << 4)).astype(numpy.int8)
        scale = random.uniform(0.5, 1.5, shape[1]).astype(numpy.float16)
        if name.split(".")[-1] in ("q_proj", "k_proj", "v_proj"):
            scale = shared.setdefault(name.split(".self_attn")[0], scale)
        parts[name] = {"weight": weight, "weights_scaling_factor": m.scale, "prequant_scaling_factor": scale}
        linear[name] = m.weight() * scale.astype(numpy.float64)
    quantization = {"quant_algo": "W4A16_AWQ", "group_size": 16, "has_zero_point": False, "pre_quant_scale": True, "exclude_modules": ["lm_head"]}
    save_trtllm(tmp_path, parts, other, tp, pp, quantization)
    check(tmp_path, linear, other)


def test_trtllm_scales_of_the_cache_are_left_alone(tmp_path):
    linear, other = plain_llama.random_weights(8)
    parts = {name: {"weight": value} for name, value in linear.items()}
    save_trtllm(tmp_path, parts, other, 2, 1, {"quant_algo": None, "kv_cache_quant_algo": "INT8"})
    layers = plain_llama.CONFIG["num_hidden_layers"]
    scales = {f"transformer.layers.{layer}.attention.kv_cache_scaling_factor": numpy.array([0.1], numpy.float32) for layer in range(layers)}
    for rank in range(2):
        plain_llama.save(tmp_path / f"rank{rank}.safetensors", rank_tensors(parts, other, rank, 2, 1) | scales)
    check(tmp_path, linear, other)


def test_trtllm_faults(tmp_path):
    linear, other = plain_llama.random_weights(7)
    parts = {name: {"weight": value} for name, value in linear.items()}
    save_trtllm(tmp_path, parts, other, 2, 1, {"quant_algo": "W8A8_SQ_PER_CHANNEL"})
    assert "quant_algo 'W8A8_SQ_PER_CHANNEL' is not supported (known: W4A16_AWQ)" in refusal(tmp_path)
    save_trtllm(tmp_path, parts, other, 2, 1, {"quant_algo": None})
    plain_llama.save(tmp_path / "rank1.safetensors", {"transformer.ln_f.weight": numpy.ones(3, numpy.float16)})
    message = refusal(tmp_path)
    assert "missing" in message and "'model.norm.weight' [64]" in message and "transformer.ln_f.weight [64]" in message
    (tmp_path / "rank1.safetensors").unlink()
    assert "rank1.safetensors" in refusal(tmp_path)
    config = trtllm_config(1, 1, None) | {"architecture": "BloomForCausalLM"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "architecture 'BloomForCausalLM' is not supported" in refusal(tmp_path)
