// Implicit state: tensors that the host keeps for a sequence from one request to the next. The
// backend reads each state as an input, writes the next state (TRITONBACKEND_State) and calls
// Update. The initial state is in CPU memory; a next state is in the memory that the backend
// requests, if that has enough free space. [one thread at a time: the one that executes a request
// of the sequence]
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "host/core/config/model_config.h"
#include "host/core/handle/handle_cast.h"
#include "host/core/memory/buffer_attributes.h"
#include "host/core/memory/owned_memory.h"
#include "host/core/request/tensor.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::core {

struct HostInputs;

// Maximum bytes of a growable state, by GPU; 1 GiB on other GPUs and in CPU memory.
using GrowthLimits = std::map<int, uint64_t>;

// A `state` of the configuration. Immutable.
struct StateSpec {
  std::string input_name;
  std::string output_name;
  DataType data_type = DataType::kInvalid;
  Shape dims;           // with the batch dimension if the model has one; -1: variable
  Shape initial_shape;  // dims with fixed sizes
  std::vector<char> initial_data;
  bool same_buffer = false;         // the next state is written to the buffer of the current one
  bool growable = false;            // the buffer grows without moving
  GrowthLimits limits;              // of a growable state
  MemoryManager* memory = nullptr;  // must outlive the states; null: only CPU memory
};

// `model_dir` has the folder initial_state/ with the data files. Errors name the state.
Result<std::vector<StateSpec>> MakeStateSpecs(const ModelConfig& config,
                                              const std::string& model_dir,
                                              MemoryManager* memory = nullptr,
                                              const GrowthLimits& limits = {});

// One state of a sequence: the current state, which requests read, and the next state, which the
// backend writes.
class StateTensor {
 public:
  // `spec` must outlive the state.
  explicit StateTensor(const StateSpec* spec) : spec_(spec) { Reset(); }

  // Restores the initial state.
  void Reset() { Set(spec_->initial_shape, spec_->initial_data); }
  // Sets the state to zeros, or empty strings, with the current shape of `like`.
  void SetToZeros(const StateTensor& like);
  // Adds the current state to a request's inputs, which keep its memory.
  void AddInput(HostInputs* inputs);

  // ---- TRITONBACKEND_State ----
  // Sets type and shape of the next state. INVALID_ARG names the state and both values.
  Status SetNextTypeAndShape(DataType data_type, std::span<const int64_t> shape);
  // The buffer for the next state, at `requested` if possible; attributes() tells its location. A
  // buffer of the same size is reused. If both states share a buffer, its content is kept; a
  // growable buffer also keeps its address unless another location is requested. INVALID_ARG if
  // `byte_size` exceeds the limit of a growable state.
  Result<void*> Buffer(uint64_t byte_size, MemoryLocation requested = {});
  BufferAttributes& attributes() { return attributes_; }
  // Makes the next state the current one. Does nothing if no buffer was requested for it.
  void Update();

  const StateSpec& spec() const { return *spec_; }

 private:
  using Memory = std::shared_ptr<OwnedMemory>;

  void Set(const Shape& shape, const std::vector<char>& data);
  void MakeGrowable();
  uint64_t GrowthLimit() const;
  Result<Memory> Allocate(MemoryLocation requested, uint64_t byte_size) const;
  Status Grow(OwnedMemory* memory, uint64_t byte_size) const;
  // Makes *memory at least `byte_size` bytes large, at `requested` if possible.
  Status EnsureCapacity(MemoryLocation requested, uint64_t byte_size, Memory* memory) const;

  const StateSpec* const spec_;
  Memory current_;
  Shape shape_;
  uint64_t byte_size_ = 0;
  Memory next_;
  Shape next_shape_;
  uint64_t next_byte_size_ = 0;
  bool written_ = false;  // Buffer was called since the last Update
  BufferAttributes attributes_;
};

// All states of one sequence. The sequence and its requests in flight share ownership.
class SequenceStates {
 public:
  // `specs` must outlive the states.
  explicit SequenceStates(const std::vector<StateSpec>& specs);
  // Zero states of the same shapes, for a null request in the same batch.
  std::shared_ptr<SequenceStates> MakeZeros() const;

  void Reset();
  void AddInputs(HostInputs* inputs);
  // INVALID_ARG if no state has this output name.
  Result<StateTensor*> FindOutput(std::string_view output_name);

 private:
  std::vector<std::unique_ptr<StateTensor>> states_;
};

}  // namespace nereid::core

NEREID_HANDLE(TRITONBACKEND_State, nereid::core::StateTensor);
