// One reader for each quantization method.
#include "backends/llm_core/model/quantization.h"

#include <optional>
#include <string>

#include "base/json_reader.h"

namespace nereid::llm {
namespace {

constexpr const char* kSupportedMethods =
    "known: awq (gemm) of 4 bits, gptq and compressed-tensors of 4 or 8 bits, fp8 by tensor, "
    "channel or block of 128 x 128";

// Checks the keys of a quantization config and keeps the first error.
class QuantKeyChecker {
 public:
  explicit QuantKeyChecker(ConfigReader& config) : config_(config) {}

  // Returns the value, which must be one of `known`; the first one is the default.
  int32_t Bits(std::string_view key, std::initializer_list<int32_t> known) {
    const int32_t bits = config_.SizeOr(key, *known.begin());
    std::string list;
    for (const int32_t value : known) {
      if (bits == value) return bits;
      list += StrCat(list.empty() ? "expected " : " or ", value);
    }
    Refuse(key, StrCat(bits), list);
    return bits;
  }
  // Returns the value, which must be one of `known`; the first one is the default.
  std::string Text(std::string_view key, std::initializer_list<std::string_view> known) {
    const std::string text = config_.StringOr(key, *known.begin());
    std::string list;
    for (const std::string_view value : known) {
      if (text == value) return text;
      list += StrCat(list.empty() ? "" : ", ", value);
    }
    Refuse(key, StrCat("'", text, "'"), StrCat("known: ", list));
    return text;
  }
  // Returns 0 for -1, which means a whole row.
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
    config_.Fail(UnsupportedError("config.json: quantization '", key, "' is ", value,
                                  ", which is not supported (", expected, ")"));
  }

 private:
  ConfigReader& config_;
};

QuantSpec ReadAwq(ConfigReader& config) {
  QuantKeyChecker check(config);
  check.Bits("bits", {4});
  check.Text("version", {"gemm", "GEMM"});
  return {QuantMethod::kAwq, 4, check.GroupSize(), true, 0};
}

QuantSpec ReadGptq(ConfigReader& config) {
  QuantKeyChecker check(config);
  const int32_t bits = check.Bits("bits", {4, 8});
  const std::string format = check.Text("checkpoint_format", {"gptq", "gptq_v2"});
  return {QuantMethod::kGptq, bits, check.GroupSize(), true, format == "gptq" ? 1 : 0};
}

QuantSpec Fp8Of(bool by_block, bool quantizes_input) {
  QuantSpec spec;
  spec.quantizes_input = quantizes_input;
  spec.method = by_block ? QuantMethod::kFp8Blocks : QuantMethod::kFp8;
  return spec;
}

// Checks height and width of a scale block.
void CheckFp8Block(ConfigReader& config, const char* key) {
  if (config.json()[key] == nlohmann::json{kFp8Block, kFp8Block}) return;
  QuantKeyChecker(config).Refuse(key, ShowJson(config.json()[key]), "expected [128, 128]");
}

// `activation_scheme` (static or dynamic) is present if inputs are meant to be quantized. fbgemm
// always quantizes them.
QuantSpec ReadFp8(ConfigReader& config, bool is_fbgemm) {
  const bool by_block = config.Has("weight_block_size");
  if (by_block) CheckFp8Block(config, "weight_block_size");
  return Fp8Of(by_block, is_fbgemm || config.Has("activation_scheme"));
}

QuantSpec ReadCompressedFp8(ConfigReader& weights, bool quantizes_input) {
  QuantKeyChecker check(weights);
  check.Bits("num_bits", {8});
  check.Text("type", {"float"});
  const bool by_block = check.Text("strategy", {"tensor", "channel", "block"}) == "block";
  if (by_block) CheckFp8Block(weights, "block_structure");
  return Fp8Of(by_block, quantizes_input);
}

QuantSpec ReadCompressedIntegers(ConfigReader& weights, bool is_packed) {
  QuantKeyChecker check(weights);
  check.Text("type", {"int"});
  QuantSpec spec;
  spec.method = is_packed ? QuantMethod::kPacked : QuantMethod::kInt8;
  spec.num_bits = is_packed ? check.Bits("num_bits", {4, 8}) : check.Bits("num_bits", {8});
  const std::string strategy = is_packed ? check.Text("strategy", {"group", "channel"})
                                         : check.Text("strategy", {"channel", "tensor"});
  if (strategy == "group") spec.group_size = check.GroupSize();
  spec.has_zeros = !weights.BoolOr("symmetric", true);
  return spec;
}

// compressed-tensors: requires one config group for all layers that are not ignored. Activations
// are not quantized next to integer weights, whatever `input_activations` says.
QuantSpec ReadCompressed(ConfigReader& config) {
  QuantKeyChecker check(config);
  const std::string format = check.Text(
      "format", {"pack-quantized", "float-quantized", "naive-quantized", "int-quantized"});
  const ConfigReader groups = config.Object("config_groups");
  if (groups.json().size() != 1) {
    check.Refuse("config_groups", StrCat("of ", groups.json().size(), " groups"), "expected one");
    return {};
  }
  const ConfigReader group = groups.Object(groups.json().begin().key());
  ConfigReader weights = group.Object("weights");
  const bool is_integer = format.ends_with("pack-quantized") || format == "int-quantized" ||
                          weights.StringOr("type", "float") == "int";
  const QuantSpec spec = is_integer ? ReadCompressedIntegers(weights, format == "pack-quantized")
                                    : ReadCompressedFp8(weights, group.Has("input_activations"));
  config.Fail(weights.status());
  return spec;
}

// NVIDIA ModelOpt, in Hugging Face directories.
QuantSpec ReadModelOpt(ConfigReader& config) {
  QuantKeyChecker(config).Text("quant_algo", {"FP8"});
  return Fp8Of(false, true);
}

QuantSpec ReadTrtAwq(ConfigReader& config) {
  return {QuantMethod::kTrtAwq, 4, QuantKeyChecker(config).GroupSize(), false, 0};
}

}  // namespace

Result<QuantSpec> ReadQuantization(const ConfigReader& config) {
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    if (!config.Has(key)) continue;
    ConfigReader section = config.Object(key);
    const std::string method = section.StringOr("quant_method", "");
    std::optional<QuantSpec> spec;
    if (method == "awq") spec = ReadAwq(section);
    if (method == "gptq") spec = ReadGptq(section);
    if (method == "fp8" || method == "fbgemm_fp8") spec = ReadFp8(section, method != "fp8");
    if (method == "compressed-tensors") spec = ReadCompressed(section);
    if (method == "modelopt") spec = ReadModelOpt(section);
    if (method == "trtllm_awq") spec = ReadTrtAwq(section);
    NEREID_RETURN_IF_ERROR(section.status());
    if (spec) return *spec;
    return UnsupportedError("config.json: '", key, "' (",
                            method.empty() ? "unknown method" : method, ") is not supported (",
                            kSupportedMethods, ")");
  }
  return QuantSpec{};
}

}  // namespace nereid::llm
