// Implicit state: tensors that the host keeps for a sequence from one request to the next. The
// backend gets each as an input, writes its successor (TRITONBACKEND_State) and says when that
// counts. It lies where the backend wishes, if there is room, and at first in CPU memory. [one
// thread at a time: whoever executes a request of the sequence]
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

namespace nereid {

struct HostInputs;

// Bytes that a growable state may reach on a GPU, by device; 1 GiB on others and in CPU memory.
using GrowthLimits = std::map<int, uint64_t>;

// One `state` of the configuration. Immutable.
struct StateSpec {
  std::string input_name;
  std::string output_name;
  DataType data_type = DataType::kInvalid;
  Shape dims;           // batch dimension in front where the model has one; -1: any
  Shape initial_shape;  // as dims, without -1
  std::vector<char> initial_data;
  bool same_buffer = false;         // the successor is written over its predecessor
  bool growable = false;            // grows where it is
  GrowthLimits limits;              // of growable ones
  MemoryManager* memory = nullptr;  // outlives the states; null: there is CPU memory alone
};

// `model_dir` holds the folder initial_state/. The error names the state.
Result<std::vector<StateSpec>> MakeStateSpecs(const ModelConfig& config,
                                              const std::string& model_dir,
                                              MemoryManager* memory = nullptr,
                                              const GrowthLimits& limits = {});

// A state of one sequence: what the next request reads and what this one writes.
class StateTensor {
 public:
  // `spec` outlives the state.
  explicit StateTensor(const StateSpec* spec) : spec_(spec) { Reset(); }

  // Back to the initial state.
  void Reset() { Set(spec_->initial_shape, spec_->initial_data); }
  // Zeros, or empty texts, in the shape that `like` has now.
  void BecomeZeros(const StateTensor& like);
  // Adds the current state to a request's inputs; what it refers to lives as long as they do.
  void AddInput(HostInputs* inputs);

  // ---- TRITONBACKEND_State ----
  // The successor has this type and shape. INVALID_ARG names the state and both values.
  Status Describe(DataType data_type, std::span<const int64_t> shape);
  // Memory for the successor, at `wish` if possible, as attributes() then say; what an earlier one
  // of the same size left there is used again. Where both share a buffer it keeps its content; a
  // growable one keeps its address too, unless the wish is another place. INVALID_ARG beyond its
  // limit.
  Result<void*> Buffer(uint64_t byte_size, MemoryPlace wish = {});
  BufferAttributes& attributes() { return attributes_; }
  // The next request reads the successor; without one nothing changes.
  void Update();

  const StateSpec& spec() const { return *spec_; }

 private:
  using Memory = std::shared_ptr<OwnedMemory>;

  void Set(const Shape& shape, const std::vector<char>& data);
  void MakeGrowable();
  uint64_t GrowthLimit() const;
  Result<Memory> Allocate(MemoryPlace wish, uint64_t byte_size) const;
  Status Grow(OwnedMemory* memory, uint64_t byte_size) const;
  // Makes *memory as large as that, at `wish` if possible.
  Status Provide(MemoryPlace wish, uint64_t byte_size, Memory* memory) const;

  const StateSpec* const spec_;
  Memory current_;
  Shape shape_;
  uint64_t byte_size_ = 0;
  Memory next_;
  Shape next_shape_;
  uint64_t next_byte_size_ = 0;
  bool written_ = false;  // since the last Update
  BufferAttributes attributes_;
};

// All states of one sequence. Counted: the sequence and each of its requests in flight hold it.
class SequenceStates {
 public:
  // `specs` outlive the states.
  explicit SequenceStates(const std::vector<StateSpec>& specs);
  // Those of a row that nobody asked for, in a batch beside a sequence with these: zeros.
  std::shared_ptr<SequenceStates> Zeros() const;

  void Reset();
  void AddInputs(HostInputs* inputs);
  // INVALID_ARG for a name that no state has as its output.
  Result<StateTensor*> FindOutput(std::string_view output_name);

 private:
  std::vector<std::unique_ptr<StateTensor>> states_;
};

}  // namespace nereid

NEREID_HANDLE(TRITONBACKEND_State, nereid::StateTensor);
