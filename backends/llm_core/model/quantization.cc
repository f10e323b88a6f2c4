// One reader a quantisation method.
#include "llm_core/model/quantization.h"

#include <optional>
#include <string>

namespace nereid::llm {
namespace {

constexpr const char* kKnown =
    "known: awq (gemm), gptq and compressed-tensors of 4 bits, fp8 by tensor or channel";

// The first fault of a quantisation's keys.
class Checker {
 public:
  explicit Checker(ConfigReader& config) : config_(config) {}

  void Bits(std::string_view key, int32_t expected) {
    const int32_t bits = config_.SizeOr(key, expected);
    if (bits != expected) Refuse(key, StrCat(bits), StrCat("expected ", expected));
  }
  // One of `known`, the first of which is the default.
  std::string Text(std::string_view key, std::initializer_list<std::string_view> known) {
    const std::string text = config_.TextOr(key, *known.begin());
    std::string list;
    for (const std::string_view value : known) {
      if (text == value) return text;
      list += StrCat(list.empty() ? "" : ", ", value);
    }
    Refuse(key, StrCat("'", text, "'"), StrCat("known: ", list));
    return text;
  }
  // -1 (a whole row) becomes 0.
  int32_t GroupSize() {
    const double size = config_.NumberOr("group_size", 128);
    if (size == -1) return 0;
    if (size < 16 || size > 65536 || size != static_cast<int32_t>(size) ||
        static_cast<int32_t>(size) % 16 != 0) {
      Refuse("group_size", StrCat(size), "expected -1 or a multiple of 16");
      return 0;
    }
    const auto columns = static_cast<int32_t>(size);
    if (columns % 128 != 0 && 128 % columns != 0) {
      Refuse("group_size", StrCat(columns), "expected a divisor or a multiple of 128");
    }
    return columns;
  }
  void Refuse(std::string_view key, std::string_view value, std::string_view expected) {
    config_.Fail(UnsupportedError("config.json: quantisation '", key, "' is ", value,
                                  ", which is not supported (", expected, ")"));
  }

 private:
  ConfigReader& config_;
};

QuantSpec ReadAwq(ConfigReader& config) {
  Checker check(config);
  check.Bits("bits", 4);
  check.Text("version", {"gemm", "GEMM"});
  return {QuantMethod::kAwq, check.GroupSize(), true, 0};
}

QuantSpec ReadGptq(ConfigReader& config) {
  Checker check(config);
  check.Bits("bits", 4);
  const std::string format = check.Text("checkpoint_format", {"gptq", "gptq_v2"});
  return {QuantMethod::kGptq, check.GroupSize(), true, format == "gptq" ? 1 : 0};
}

QuantSpec ReadFp8(ConfigReader& config) {
  if (config.Has("weight_block_size")) {
    Checker(config).Refuse("weight_block_size", config.json()["weight_block_size"].dump(),
                           "fp8 scales are known by tensor or channel");
  }
  return {QuantMethod::kFp8, 0, false, 0};
}

// compressed-tensors: one group of config for all layers that it does not ignore.
QuantSpec ReadCompressed(ConfigReader& config) {
  Checker check(config);
  const std::string format =
      check.Text("format", {"pack-quantized", "float-quantized", "naive-quantized"});
  const ConfigReader groups = config.Object("config_groups");
  if (groups.json().size() != 1) {
    check.Refuse("config_groups", StrCat("of ", groups.json().size(), " groups"), "expected one");
    return {};
  }
  ConfigReader weights = groups.Object(groups.json().begin().key()).Object("weights");
  Checker check_weights(weights);
  const bool is_fp8 = format != "pack-quantized";
  check_weights.Bits("num_bits", is_fp8 ? 8 : 4);
  QuantSpec spec;
  if (is_fp8) {
    check_weights.Text("type", {"float"});
    check_weights.Text("strategy", {"tensor", "channel"});
    spec = {QuantMethod::kFp8, 0, false, 0};
  } else {
    check_weights.Text("type", {"int"});
    const std::string strategy = check_weights.Text("strategy", {"group", "channel"});
    const int32_t group_size = strategy == "group" ? check_weights.GroupSize() : 0;
    spec = {QuantMethod::kPacked, group_size, !weights.BoolOr("symmetric", true), 0};
  }
  config.Fail(weights.status());
  return spec;
}

// NVIDIA ModelOpt, in Hugging Face directories.
QuantSpec ReadModelOpt(ConfigReader& config) {
  Checker(config).Text("quant_algo", {"FP8"});
  return {QuantMethod::kFp8, 0, false, 0};
}

QuantSpec ReadTrtAwq(ConfigReader& config) {
  return {QuantMethod::kTrtAwq, Checker(config).GroupSize(), false, 0};
}

}  // namespace

Result<QuantSpec> ReadQuantization(const ConfigReader& config) {
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    if (!config.Has(key)) continue;
    ConfigReader section = config.Object(key);
    const std::string method = section.TextOr("quant_method", "");
    std::optional<QuantSpec> spec;
    if (method == "awq") spec = ReadAwq(section);
    if (method == "gptq") spec = ReadGptq(section);
    if (method == "fp8" || method == "fbgemm_fp8") spec = ReadFp8(section);
    if (method == "compressed-tensors") spec = ReadCompressed(section);
    if (method == "modelopt") spec = ReadModelOpt(section);
    if (method == "trtllm_awq") spec = ReadTrtAwq(section);
    NEREID_RETURN_IF_ERROR(section.status());
    if (spec) return *spec;
    return UnsupportedError("config.json: '", key, "' (",
                            method.empty() ? "unknown method" : method, ") is not supported (",
                            kKnown, ")");
  }
  return QuantSpec{};
}

}  // namespace nereid::llm
