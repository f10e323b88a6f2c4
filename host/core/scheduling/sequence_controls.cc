#include "host/core/scheduling/sequence_controls.h"

#include <cstring>
#include <limits>

namespace nereid::core {
namespace {

uint64_t LargestId(DataType type) {
  switch (type) {
    case DataType::kInt32:
      return std::numeric_limits<int32_t>::max();
    case DataType::kUint32:
      return std::numeric_limits<uint32_t>::max();
    case DataType::kInt64:
      return std::numeric_limits<int64_t>::max();
    default:
      return std::numeric_limits<uint64_t>::max();
  }
}

// The number of a correlation ID: 64-bit FNV-1a hash of a string; 0 if there is no ID.
uint64_t NumberOf(const CorrelationId& id) {
  if (const auto* number = std::get_if<uint64_t>(&id)) return *number;
  const std::string& text = std::get<std::string>(id);
  if (text.empty()) return 0;
  uint64_t hash = 14695981039346656037ull;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ull;
  return hash;
}

// An element of a BYTES tensor: 4-byte length, then the string.
std::string BytesElement(const std::string& text) {
  const auto length = static_cast<uint32_t>(text.size());
  std::string element(sizeof(length), '\0');
  std::memcpy(element.data(), &length, sizeof(length));
  return element + text;
}

}  // namespace

std::string CorrelationIdText(const CorrelationId& id) {
  const auto* number = std::get_if<uint64_t>(&id);
  return number != nullptr ? std::to_string(*number) : std::get<std::string>(id);
}

bool IsCorrelationId(const CorrelationId& id) {
  const auto* number = std::get_if<uint64_t>(&id);
  return number != nullptr ? *number != 0 : !std::get<std::string>(id).empty();
}

SequenceControls::SequenceControls(const SequenceBatching& config, bool has_batch_dim) {
  if (has_batch_dim) shape_.push_back(1);
  shape_.push_back(1);
  for (const SequenceControlInput& input : config.control_inputs) {
    for (const SequenceControl& control : input.controls) {
      if (control.kind == SequenceControl::Kind::kCorrelationId) {
        id_name_ = input.name;
        id_type_ = control.data_type;
      } else {
        flags_.push_back(MakeFlag(input.name, control));
      }
    }
  }
}

SequenceControls::Flag SequenceControls::MakeFlag(const std::string& name,
                                                  const SequenceControl& control) {
  Flag flag;
  flag.name = name;
  flag.kind = control.kind;
  const auto set = [&flag](DataType type, const auto& values, auto as) {
    flag.data_type = type;
    flag.byte_size = sizeof(as);
    for (size_t i = 0; i < 2 && i < values.size(); ++i) {
      as = values[i];
      std::memcpy(flag.values[i].data(), &as, sizeof(as));
    }
  };
  if (!control.int32_false_true.empty()) {
    set(DataType::kInt32, control.int32_false_true, int32_t{});
  } else if (!control.fp32_false_true.empty()) {
    set(DataType::kFp32, control.fp32_false_true, float{});
  } else {
    set(DataType::kBool, control.bool_false_true, bool{});
  }
  return flag;
}

Status SequenceControls::CheckId(const CorrelationId& id, const std::string& model_name) const {
  if (id_name_.empty() || id_type_ == DataType::kBytes) return Status::Ok();
  const auto* number = std::get_if<uint64_t>(&id);
  if (number == nullptr && ByteSize(id_type_) == sizeof(uint64_t)) return Status::Ok();
  if (number != nullptr && *number <= LargestId(id_type_)) return Status::Ok();
  return InvalidArgError("inference request to model '", model_name, "' has correlation ID ",
                         number == nullptr ? "'" : "", CorrelationIdText(id),
                         number == nullptr ? "'" : "", ", but control input '", id_name_,
                         "' holds ", Name(id_type_));
}

void SequenceControls::AddTensor(const std::string& name, DataType type, const void* base,
                                 uint64_t byte_size, HostInputs* inputs) const {
  InputTensor& tensor = inputs->tensors.emplace_back();
  tensor.name = name;
  tensor.data_type = type;
  tensor.client_shape = shape_;
  tensor.shape = shape_;
  tensor.byte_size = byte_size;
  BufferAttributes attributes;
  attributes.byte_size = byte_size;
  tensor.buffers.push_back({base, attributes});
}

void SequenceControls::AddInputs(const Values& values, HostInputs* inputs) const {
  for (const Flag& flag : flags_) {
    const bool value = flag.kind == SequenceControl::Kind::kStart ? values.start
                       : flag.kind == SequenceControl::Kind::kEnd ? values.end
                                                                  : values.ready;
    AddTensor(flag.name, flag.data_type, flag.values[value ? 1 : 0].data(), flag.byte_size, inputs);
  }
  if (id_name_.empty()) return;
  if (id_type_ == DataType::kBytes) {
    inputs->id_bytes =
        BytesElement(IsCorrelationId(values.id) ? CorrelationIdText(values.id) : std::string());
  } else {
    // Little-endian: the first bytes are the value in a narrower type. CheckId has checked that it
    // fits.
    const uint64_t id = NumberOf(values.id) & LargestId(id_type_);
    inputs->id_bytes.assign(reinterpret_cast<const char*>(&id), ByteSize(id_type_));
  }
  AddTensor(id_name_, id_type_, inputs->id_bytes.data(), inputs->id_bytes.size(), inputs);
}

}  // namespace nereid::core
