// Copies matrices into the memory of an adapter, and refuses numbers that are not finite.
#include "backends/llm_core/lora/lora_adapter.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

namespace nereid::llm {
namespace {

float FromHalf(uint16_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u, fraction = bits & 0x3ffu;
  if (exponent == 0) {
    return std::bit_cast<float>(sign) + (sign != 0 ? -1.0f : 1.0f) * std::ldexp(fraction, -24);
  }
  const uint32_t biased = exponent == 31 ? 255u : exponent + 112u;
  return std::bit_cast<float>(sign | biased << 23 | fraction << 13);
}

template <typename T>
T Load(const uint8_t* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

bool IsFloat(CheckpointDataType type) {
  return type == CheckpointDataType::kF32 || type == CheckpointDataType::kF16 ||
         type == CheckpointDataType::kBF16;
}

// Not finite: all bits of the exponent are set.
template <typename T>
int64_t FindNotFinite(const uint8_t* data, int64_t count, T exponent) {
  for (int64_t i = 0; i < count; ++i) {
    if ((Load<T>(data, i) & exponent) == exponent) return i;
  }
  return -1;
}

int64_t FindNotFinite(const LoraMatrix& matrix) {
  const int64_t count = matrix.rows * matrix.columns;
  switch (matrix.type) {
    case CheckpointDataType::kF32:
      return FindNotFinite<uint32_t>(matrix.data, count, 0x7f800000u);
    case CheckpointDataType::kF16:
      return FindNotFinite<uint16_t>(matrix.data, count, 0x7c00u);
    default:
      return FindNotFinite<uint16_t>(matrix.data, count, 0x7f80u);
  }
}

std::atomic<uint64_t> next_serial{1};

}  // namespace

float LoraMatrix::At(int64_t index) const {
  switch (type) {
    case CheckpointDataType::kF32:
      return Load<float>(data, index);
    case CheckpointDataType::kF16:
      return FromHalf(Load<uint16_t>(data, index));
    default:
      return std::bit_cast<float>(uint32_t{Load<uint16_t>(data, index)} << 16);
  }
}

LoraBuilder::LoraBuilder(std::string name, int32_t num_layers) : adapter_(new LoraAdapter) {
  adapter_->name_ = std::move(name);
  adapter_->serial_ = next_serial.fetch_add(1);
  adapter_->places_.assign(static_cast<size_t>(num_layers + 1) * LoraAdapter::kNumKinds, -1);
}

uint8_t* LoraBuilder::Allocate(int64_t num_bytes) {
  adapter_->size_bytes_ += num_bytes;
  return adapter_->memory_.emplace_back(new uint8_t[static_cast<size_t>(num_bytes)]).get();
}

Result<LoraMatrix> LoraBuilder::View(const std::string& tensor, const CheckpointTensor& from) {
  if (!IsFloat(from.type)) {
    return InvalidArgError("tensor '", tensor, "' is ", Info(from.type).name,
                           ", expected F32, F16 or BF16");
  }
  const LoraMatrix matrix{from.type, from.shape[0], from.shape[1], from.bytes.data()};
  const int64_t found = FindNotFinite(matrix);
  if (found < 0) return matrix;
  return InvalidArgError("tensor '", tensor, "' ", ShapeText(from.shape), " has ", matrix.At(found),
                         " in row ", found / matrix.columns, ", column ", found % matrix.columns,
                         ", expected finite numbers");
}

LoraMatrix LoraBuilder::Copy(const LoraMatrix& from) {
  uint8_t* const data = Allocate(from.rows * from.row_bytes());
  std::copy_n(from.data, from.rows * from.row_bytes(), data);
  return {from.type, from.rows, from.columns, data};
}

LoraMatrix LoraBuilder::CopyRows(const LoraMatrix& from, const WeightSource& source) {
  const int64_t num_bytes = from.row_bytes();
  uint8_t* const data = Allocate(source.num_rows() * num_bytes);
  for (int64_t row = 0; row < source.num_rows(); ++row) {
    std::copy_n(from.data + source.SourceRow(row) * num_bytes, num_bytes, data + row * num_bytes);
  }
  return {from.type, source.num_rows(), from.columns, data};
}

Status LoraBuilder::Add(const WeightKey& key, const std::string& module, const LoraDelta& delta) {
  int16_t& place = adapter_->places_[LoraAdapter::PlaceOf(key.layer, key.kind)];
  if (place >= 0) {
    return InvalidArgError("module '", module, "' changes a matrix that another one changes, too");
  }
  if (adapter_->deltas_.size() >= INT16_MAX) {
    return InvalidArgError("module '", module, "': more than ", INT16_MAX, " matrices");
  }
  place = static_cast<int16_t>(adapter_->deltas_.size());
  adapter_->deltas_.push_back(delta);
  adapter_->max_rank_ = std::max(adapter_->max_rank_, delta.rank());
  return Status::Ok();
}

std::shared_ptr<const LoraAdapter> LoraBuilder::Finish() {
  return std::move(adapter_);
}

}  // namespace nereid::llm
