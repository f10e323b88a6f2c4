"""Quantized checkpoints of every architecture, compared with the plain decoder on the dequantized weights."""
import math

import numpy as np
import plain_decoder
import plain_llama
import pytest
import run_logits
from quantised import Int4, Int8, awq, compressed, fp8_values, gptq, packed
from test_plain_decoder import CASES, VOCAB, check

GROUP = 16
FAMILIES = ("llama-bias-mqa mistral-window mixtral qwen2 qwen3 qwen3_moe phi3 starcoder2 gemma2 gemma3 gpt_bigcode gpt_bigcode-mha gpt_neox").split()
PARTS = ("mixtral", "phi3", "gpt_neox")  # families whose matrices are experts or rows of fused tensors
TABLES = ("embed_tokens.weight", "lm_head.weight", "wte.weight", "wpe.weight", "embed_in.weight", "embed_out.weight",
          "moe.gate.weight", "mlp.gate.weight")  # not quantized by the tools: embeddings, routers, heads


def integers(kind, write, **keys):
    """Returns a function that creates (tensors of a matrix [out, in], their dequantized values)."""

    def make(random, shape):
        act_order = keys.get("act_order", False)
        m = kind(random, shape, GROUP, lowest_zero=1, symmetric=keys.get("symmetric", False), order=random.permutation(shape[1]) if act_order else None)
        m.scale = (m.scale * np.float16(10 / math.sqrt(shape[1]))).astype(np.float16)
        return write(m), m.weight()

    return make


def fp8(by_channel):
    def make(random, shape):
        bits = random.integers(0x20, 0x48, shape).astype(np.uint8) | (random.integers(0, 2, shape).astype(np.uint8) << 7)
        scale = (random.uniform(0.5, 1.5, (shape[0], 1) if by_channel else ()) / math.sqrt(shape[1])).astype(np.float32)
        return {"weight": ("F8_E4M3", bits), "weight_scale": scale}, fp8_values(bits) * scale

    return make


def int8(m):
    return {"weight": (m.q - 128).astype(np.int8), "weight_scale": m.scale[:, :1]}


class WholeRows(Int8):
    """One scale per row."""

    def __init__(self, random, shape, group, **keys):
        super().__init__(random, shape, shape[1], **keys)


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP}
FLOATS = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "tensor"}}
FORMATS = {
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}, integers(Int4, awq)),
    "gptq": ({**GPTQ, "desc_act": False}, integers(Int4, gptq)),
    "gptq-act-order": ({**GPTQ, "desc_act": True}, integers(Int4, gptq, act_order=True)),
    "gptq-8": ({**GPTQ, "bits": 8}, integers(Int8, gptq)),
    "packed": (compressed(group_size=GROUP), integers(Int4, lambda m: packed(m, False), symmetric=True)),
    "int8": (compressed(num_bits=8, strategy="channel", group_size=None) | {"format": "int-quantized"}, integers(WholeRows, int8, symmetric=True)),
    "fp8-tensor": ({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": FLOATS}}, fp8(False)),
    "fp8-channel": ({"quant_method": "fp8"}, fp8(True)),
}


class QuantisedWeights(plain_decoder.FreshWeights):
    """Creates linear layers in the stored form of their format."""

    def __init__(self, seed, make, conv1d):
        super().__init__(seed)
        self.make, self.conv1d, self.parts, self.values = make, conv1d, {}, {}

    def __call__(self, name, *shape):
        if len(shape) != 2 or name.endswith(TABLES):
            return super().__call__(name, *shape)
        if name not in self.values:
            random = np.random.default_rng([self.seed, *name.encode()])
            parts, value = self.make(random, shape[::-1] if self.conv1d else shape)
            self.parts |= {name[: -len("weight")] + part: array for part, array in parts.items()}
            self.values[name] = value.T if self.conv1d else value
        return self.values[name]

    def stored(self):
        return self.parts | self.tensors  # real biases replace the zero biases of GPTQ


def answers_as_dequantised(folder, name, format_name, seed=5):
    config = CASES[name]
    quantization, make = FORMATS[format_name]
    weights = QuantisedWeights(seed, make, config["model_type"] == "gpt2")
    reference = plain_decoder.decoder(config, weights)
    random = np.random.default_rng(seed)
    prompts = [random.integers(3, VOCAB, length).tolist() for length in (3, 40)]
    reference.logits(prompts[0])  # creates the weights
    plain_llama.save_checkpoint(folder, weights.stored(), {**config, "quantization_config": quantization})
    answers = run_logits.run(folder, prompts, num_greedy=3)
    assert "error" not in answers[0], answers[0]
    assert len(weights.values) > 7
    for i, got in enumerate(answers):
        check(got, reference, prompts[i % len(prompts)])


ONE_GPTQ = [name for name in FORMATS if name not in ("gptq", "gptq-8")]
# Each family is tested with every second format; families with fused matrices with all of them.
PAIRS = [(name, format_name) for i, name in enumerate(FAMILIES) for k, format_name in enumerate(ONE_GPTQ) if name in PARTS or (i + k) % 2 == 0]


@pytest.mark.parametrize("name, format_name", PAIRS)
def test_a_quantised_checkpoint_answers_as_its_values(tmp_path, name, format_name):
    answers_as_dequantised(tmp_path, name, format_name)


@pytest.mark.parametrize("format_name", ["gptq", "gptq-act-order", "gptq-8"])
def test_gptq_of_transposed_matrices_is_stored_as_of_others(tmp_path, format_name):
    """GPT-2 stores plain matrices as [in, out], but tools pack them as [out, in] like those of every other architecture."""
    answers_as_dequantised(tmp_path, "gpt2", format_name)
