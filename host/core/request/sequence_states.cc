#include "host/core/request/sequence_states.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "base/file_content.h"
#include "host/core/observe/log.h"
#include "host/core/request/infer_request.h"

namespace nereid::core {
namespace {

constexpr size_t kMaxInitialTextBytes = size_t{1} << 30;
constexpr uint64_t kDefaultGrowthLimit = uint64_t{1} << 30;

// BYTES elements are initially empty strings of four bytes.
uint64_t ElementBytes(DataType type) {
  return type == DataType::kBytes ? 4 : ByteSize(type);
}

Result<uint64_t> ByteSize(const StateSpec& spec) {
  NEREID_ASSIGN_OR_RETURN(const int64_t count, ElementCount(spec.initial_shape.span()));
  int64_t bytes = 0;
  constexpr int64_t kMaxBytes = int64_t{1} << 40;
  if (__builtin_mul_overflow(count, ElementBytes(spec.data_type), &bytes) || bytes > kMaxBytes) {
    return InvalidArgError("initial shape ", ShapeText(spec.initial_shape.span()), " is too large");
  }
  return static_cast<uint64_t>(bytes);
}

// Whether `content` consists of `count` strings, each preceded by its length in four bytes.
bool ContainsStrings(std::string_view content, uint64_t count) {
  while (count > 0 && content.size() >= sizeof(uint32_t)) {
    uint32_t length = 0;
    std::memcpy(&length, content.data(), sizeof(length));
    content.remove_prefix(sizeof(length));
    if (length > content.size()) return false;
    content.remove_prefix(length);
    --count;
  }
  return count == 0 && content.empty();
}

// Reads the first `byte_size` bytes of the file, or all bytes of a BYTES state. A file whose
// content is not a list of strings is no error: Triton starts with empty strings, whatever the file
// has.
Status ReadInitialData(const std::string& path, uint64_t byte_size, StateSpec* spec) {
  const bool is_string = spec->data_type == DataType::kBytes;
  NEREID_ASSIGN_OR_RETURN(const std::string content, is_string
                                                         ? ReadFile(path, kMaxInitialTextBytes)
                                                         : ReadFileBeginning(path, byte_size));
  if (content.size() < byte_size) {
    return InvalidArgError("initial_state setting expects ", byte_size, " bytes, but the data in '",
                           path, "' has ", content.size(), " bytes");
  }
  const uint64_t num_strings = byte_size / sizeof(uint32_t);
  if (is_string && !ContainsStrings(content, num_strings)) {
    NEREID_LOG_WARN("state '", spec->input_name, "': expected ", num_strings,
                    " strings, each preceded by its length, in '", path,
                    "': the state starts with empty strings");
    spec->initial_data.assign(byte_size, 0);
    return Status::Ok();
  }
  spec->initial_data.assign(content.begin(), content.end());
  return Status::Ok();
}

Status FillInitialState(const SequenceInitialState* initial, size_t batch_dims,
                        const std::string& model_dir, StateSpec* spec) {
  if (initial != nullptr && initial->dims.size() + batch_dims == spec->dims.size()) {
    for (size_t i = 0; i < initial->dims.size(); ++i) {
      spec->initial_shape[batch_dims + i] = initial->dims[i];
    }
  }
  NEREID_ASSIGN_OR_RETURN(const uint64_t byte_size, ByteSize(*spec));
  if (initial == nullptr || initial->data_file.empty()) {
    spec->initial_data.assign(byte_size, 0);
    return Status::Ok();
  }
  NEREID_ASSIGN_OR_RETURN(const std::string path,
                          PathInside(model_dir, StrCat("initial_state/", initial->data_file)));
  return ReadInitialData(path, byte_size, spec);
}

// Copies the first `from_bytes` bytes of `from`, or as many as fit. The rest of `to` is zeroed
// unless it is GPU memory.
Status CopyState(const OwnedMemory& from, size_t from_bytes, OwnedMemory* to) {
  const size_t kept = std::min(from_bytes, to->byte_size());
  if (!to->location().is_gpu()) std::memset(to->base() + kept, 0, to->byte_size() - kept);
  return CopyMemory(to->base(), to->location(), from.base(), from.location(), kept);
}

}  // namespace

Result<std::vector<StateSpec>> MakeStateSpecs(const ModelConfig& config,
                                              const std::string& model_dir, MemoryManager* memory,
                                              const GrowthLimits& limits) {
  std::vector<StateSpec> specs;
  const size_t batch_dims = config.max_batch_size > 0 ? 1 : 0;
  for (const SequenceStateConfig& state : config.sequence_batching->states) {
    StateSpec& spec = specs.emplace_back();
    spec.input_name = state.input_name;
    spec.output_name = state.output_name;
    spec.data_type = state.data_type;
    spec.same_buffer = state.use_same_buffer_for_input_output;
    spec.growable = state.use_growable_memory;
    if (spec.growable) spec.limits = limits;
    spec.memory = memory;
    if (batch_dims > 0) spec.dims.push_back(1);
    spec.dims.Append(state.dims);
    for (const int64_t dim : spec.dims) spec.initial_shape.push_back(dim < 0 ? 1 : dim);
    const auto* initial = state.initial_states.empty() ? nullptr : &state.initial_states.front();
    Status status = FillInitialState(initial, batch_dims, model_dir, &spec);
    if (!status.ok()) {
      return std::move(status).WithContext(StrCat("state '", state.input_name, "'"));
    }
  }
  return specs;
}

// Allocates memory that is not growable, so that a waiting sequence reserves no addresses.
void StateTensor::Set(const Shape& shape, const std::vector<char>& data) {
  // The old memory is not reused: it may still be an input of a request in flight.
  auto memory = OwnedMemory::Allocate(nullptr, {}, data.size());
  if (!memory.ok()) throw std::bad_alloc();
  current_ = std::move(memory).value();
  if (!data.empty()) std::memcpy(current_->base(), data.data(), data.size());
  shape_ = shape;
  byte_size_ = data.size();
  written_ = false;
}

void StateTensor::SetToZeros(const StateTensor& like) {
  const bool is_string = spec_->data_type == DataType::kBytes;
  const Result<int64_t> count = ElementCount(like.shape_.span());
  Set(like.shape_, std::vector<char>(is_string && count.ok() ? *count * 4 : like.byte_size_));
}

void StateTensor::AddInput(HostInputs* inputs) {
  if (spec_->growable && !current_->is_growable()) MakeGrowable();
  InputTensor& tensor = inputs->tensors.emplace_back();
  tensor.name = spec_->input_name;
  tensor.data_type = spec_->data_type;
  tensor.client_shape = shape_;
  tensor.shape = shape_;
  tensor.byte_size = byte_size_;
  BufferAttributes attributes;
  attributes.byte_size = byte_size_;
  attributes.memory_type = current_->location().type;
  attributes.memory_type_id = current_->location().type_id;
  tensor.buffers.push_back({current_->base(), attributes});
  inputs->memory.push_back(current_);
}

// If no addresses are left, the state stays in its memory and is moved when it grows.
void StateTensor::MakeGrowable() {
  auto memory = OwnedMemory::AllocateGrowable({}, byte_size_, GrowthLimit());
  if (!memory.ok() || !CopyState(*current_, byte_size_, memory->get()).ok()) return;
  current_ = std::move(memory).value();
}

Status StateTensor::SetNextTypeAndShape(DataType data_type, std::span<const int64_t> shape) {
  if (data_type != spec_->data_type) {
    return InvalidArgError("unexpected datatype for state '", spec_->output_name, "'. Expected ",
                           Name(spec_->data_type), ", got ", Name(data_type));
  }
  bool same = shape.size() == spec_->dims.size();
  for (size_t i = 0; same && i < shape.size(); ++i) {
    same = shape[i] >= 0 && (spec_->dims[i] < 0 || spec_->dims[i] == shape[i]);
  }
  if (!same) {
    return InvalidArgError("unexpected shape for state '", spec_->output_name, "'. Expected ",
                           ShapeText(spec_->dims.span()), ", got ", ShapeText(shape));
  }
  next_shape_.assign(shape);
  return Status::Ok();
}

// The limit in CPU memory.
uint64_t StateTensor::GrowthLimit() const {
  return std::max<uint64_t>(kDefaultGrowthLimit, spec_->initial_data.size());
}

Result<StateTensor::Memory> StateTensor::Allocate(MemoryLocation requested,
                                                  uint64_t byte_size) const {
  if (!spec_->growable) return OwnedMemory::Allocate(spec_->memory, requested, byte_size);
  if (requested.is_gpu()) {
    const auto it = spec_->limits.find(static_cast<int>(requested.type_id));
    const uint64_t limit = it == spec_->limits.end() ? kDefaultGrowthLimit : it->second;
    if (byte_size <= limit) {
      auto memory = OwnedMemory::AllocateGrowable(requested, byte_size, limit);
      if (memory.ok()) return memory;
    }
  }
  auto memory = OwnedMemory::AllocateGrowable({}, byte_size, GrowthLimit());
  if (memory.ok()) return memory;
  if (memory.status().code() == StatusCode::kUnavailable) {
    return OwnedMemory::Allocate(spec_->memory, {}, byte_size);
  }
  return std::move(memory).status().WithContext(StrCat("state '", spec_->output_name, "'"));
}

Status StateTensor::Grow(OwnedMemory* memory, uint64_t byte_size) const {
  return memory->Grow(byte_size).WithContext(StrCat("state '", spec_->output_name, "'"));
}

Status StateTensor::EnsureCapacity(MemoryLocation requested, uint64_t byte_size,
                                   Memory* memory) const {
  // Growable memory cannot be pinned.
  if (requested.type == TRITONSERVER_MEMORY_CPU || (spec_->growable && !requested.is_gpu()))
    requested = {};
  const OwnedMemory* const now = memory->get();
  const bool is_at_requested = now != nullptr && now->location() == requested;
  const bool fits = now != nullptr && (spec_->same_buffer ? now->byte_size() >= byte_size
                                                          : now->byte_size() == byte_size);
  if (is_at_requested && now->is_growable()) return Grow(memory->get(), byte_size);
  if (is_at_requested && fits) return Status::Ok();
  // A buffer that is too small is replaced: a request in flight may still read the old one.
  NEREID_ASSIGN_OR_RETURN(Memory made, Allocate(requested, byte_size));
  if (now != nullptr && made->location() != requested) {
    // There is no free memory at the requested location, so the current buffer is kept if it can
    // be.
    if (now->is_growable()) return Grow(memory->get(), byte_size);
    if (fits) return Status::Ok();
  }
  if (spec_->same_buffer) NEREID_RETURN_IF_ERROR(CopyState(*now, byte_size_, made.get()));
  *memory = std::move(made);
  return Status::Ok();
}

Result<void*> StateTensor::Buffer(uint64_t byte_size, MemoryLocation requested) {
  Memory& memory = spec_->same_buffer ? current_ : next_;
  NEREID_RETURN_IF_ERROR(EnsureCapacity(requested, byte_size, &memory));
  next_byte_size_ = byte_size;
  written_ = true;
  attributes_ = BufferAttributes{};
  attributes_.byte_size = byte_size;
  attributes_.memory_type = memory->location().type;
  attributes_.memory_type_id = memory->location().type_id;
  return static_cast<void*>(memory->base());
}

void StateTensor::Update() {
  if (!written_) return;
  written_ = false;
  if (!spec_->same_buffer) std::swap(current_, next_);
  shape_ = next_shape_;
  byte_size_ = next_byte_size_;
}

SequenceStates::SequenceStates(const std::vector<StateSpec>& specs) {
  for (const StateSpec& spec : specs) states_.push_back(std::make_unique<StateTensor>(&spec));
}

std::shared_ptr<SequenceStates> SequenceStates::MakeZeros() const {
  auto zeros = std::make_shared<SequenceStates>(std::vector<StateSpec>());
  for (const auto& state : states_) {
    zeros->states_.emplace_back(std::make_unique<StateTensor>(&state->spec()))->SetToZeros(*state);
  }
  return zeros;
}

void SequenceStates::Reset() {
  for (const auto& state : states_) state->Reset();
}

void SequenceStates::AddInputs(HostInputs* inputs) {
  for (const auto& state : states_) state->AddInput(inputs);
}

Result<StateTensor*> SequenceStates::FindOutput(std::string_view output_name) {
  for (const auto& state : states_) {
    if (state->spec().output_name == output_name) return state.get();
  }
  return InvalidArgError("state '", output_name, "' is not a valid state name.");
}

}  // namespace nereid::core
