// Fuzzes quantized matrices: arbitrary text as config.json, and tensors of arbitrary type and shape
// with the names of the supported formats. Nothing may crash. Accepted matrices unpack to values of
// the stated bit width.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "backends/llm_core/model/integer_weight_rows.h"
#include "backends/llm_core/model/quantization.h"
#include "backends/llm_core/model/weight_map.h"

namespace {

using namespace nereid::llm;

constexpr const char* kTensorSuffixes[] = {"weight",
                                           "qweight",
                                           "qzeros",
                                           "scales",
                                           "g_idx",
                                           "bias",
                                           "weight_scale",
                                           "weight_scale_inv",
                                           "input_scale",
                                           "weight_shape",
                                           "weight_g_idx",
                                           "weight_packed",
                                           "weight_zero_point",
                                           "weights_scaling_factor",
                                           "prequant_scaling_factor"};

class ByteSource {
 public:
  explicit ByteSource(std::string_view bytes) : bytes_(bytes) {}
  uint8_t Next() { return at_ < bytes_.size() ? static_cast<uint8_t>(bytes_[at_++]) : 0; }

 private:
  std::string_view bytes_;
  size_t at_ = 0;
};

// Chooses one of the plausible sizes of a tensor, so that shapes match occasionally.
int64_t ChooseDim(uint8_t byte, int64_t rows, int64_t columns, int64_t group) {
  const int64_t dims[] = {
      rows,        columns,  rows / 8,    columns / 8, rows / 4,
      columns / 4, rows / 2, columns / 2, 1,           (columns + group - 1) / group,
      0,           3};
  return dims[byte % std::size(dims)];
}

void Check(const ResolvedWeight& weight) {
  auto unpacked = IntegerWeightRows::Of(weight, 8);
  if (!unpacked.ok()) return;
  for (int64_t row = 0; row < unpacked->num_rows(); ++row) {
    for (const uint8_t value : unpacked->Row(row)) {
      if (value >> unpacked->num_bits() != 0) std::abort();
    }
    for (int64_t group = 0; group < unpacked->num_groups(); ++group) {
      (void)unpacked->Scale(row, group);
      if (unpacked->Zero(row, group) < 0 ||
          unpacked->Zero(row, group) > 1 << unpacked->num_bits()) {
        std::abort();
      }
    }
  }
  for (const int32_t column : unpacked->column_order()) {
    if (column < 0 || column >= unpacked->num_columns()) std::abort();
  }
}

}  // namespace

// The input is config.json and a zero byte, then rows, columns and group in steps of 8 and 16, then
// for each tensor its presence, type and shape. A step byte per tensor determines the tensor's
// values.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const size_t separator = text.find('\0');
  if (separator == std::string::npos) return 0;
  const ConfigReader config(nlohmann::json::parse(text.substr(0, separator), nullptr, false));
  if (!config.json().is_object()) return 0;
  const auto quant = ReadQuantization(config);
  if (!quant.ok()) return 0;
  ByteSource bytes(std::string_view(text).substr(separator + 1));
  const int64_t rows = 8 * (bytes.Next() % 12 + 1), columns = 8 * (bytes.Next() % 12 + 1);
  const int64_t group = std::max<int64_t>(16, quant->group_size);
  std::deque<std::vector<uint8_t>> memory;
  TensorMap tensors;
  for (const char* suffix : kTensorSuffixes) {
    const uint8_t kind = bytes.Next();
    if (kind == 0) continue;
    CheckpointTensor tensor{
        kCheckpointDataTypes[kind % std::size(kCheckpointDataTypes)].type, {}, {}};
    size_t count = 1;
    for (int dims = bytes.Next() % 3; dims > 0; --dims) {
      tensor.shape.push_back(ChooseDim(bytes.Next(), rows, columns, group));
      count *= static_cast<size_t>(tensor.shape.back());
    }
    std::vector<uint8_t>& values = memory.emplace_back(count * Info(tensor.type).size_bytes);
    const uint8_t step = bytes.Next();
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<uint8_t>(step == 0 ? 0 : step * i);
    }
    tensor.bytes = values;
    tensors.emplace(std::string("layer.") + suffix, tensor);
  }
  WeightMap map;
  map.sources[{0, WeightKind::kQ, kNoExpert}] = Matrix("layer.weight", rows, columns);
  const Checkpoint checkpoint = Checkpoint::FromParts("input", "", "", std::move(tensors));
  const auto resolved = ResolveWeights(map, checkpoint, *quant);
  if (!resolved.ok()) return 0;
  for (const auto& [key, weight] : *resolved) {
    if (weight.quant.num_bits > 0) Check(weight);
  }
  return 0;
}
