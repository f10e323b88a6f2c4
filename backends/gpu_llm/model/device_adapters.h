// The LoRA adapters on the device: copies those of a step that are not there yet, and adds what
// they change to the outputs of the decoder's matrix products. [engine thread]
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/gpu_llm/adapter_slots.h"
#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/kernels/gemm/adapter_gemm.h"
#include "backends/gpu_llm/model/sharding.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/lora/lora_adapter.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::gpu {

// Matrices that are multiplied with the same input.
enum class AdapterGroup : uint8_t { kQkv, kAttentionOut, kGateUp, kDown, kHead };

struct DeviceAdaptersOptions {
  int64_t memory_bytes = 0;  // of adapters
  int32_t max_rank = 64;
  int32_t num_slots = 1;
  int32_t max_num_rows = 0;  // of a step
  // With several GPUs, each has the parts of A and B that belong to its shard of the matrix.
  Sharding sharding;
};

class DeviceAdapters {
 public:
  ~DeviceAdapters();
  // `spec`, the decoder of this GPU, is borrowed. For the current device.
  static Result<std::unique_ptr<DeviceAdapters>> Create(const llm::DecoderSpec& spec,
                                                        const DeviceAdaptersOptions& options);

  // Bytes that the adapter takes, the same on all GPUs of a model. UNSUPPORTED names a matrix that
  // this backend does not adapt; INVALID_ARG a rank above the maximum, or more bytes than there
  // are. [any thread]
  Result<int64_t> BytesOf(const llm::LoraAdapter& adapter) const;

  // A step that has not ended, and the event of its end.
  struct RunningStep {
    int64_t step;
    cudaEvent_t done;
  };
  // Puts the adapters of step `step` on the device. Returns those whose copy failed; they keep
  // their places until Forget(). `running`: the step before; null: it has ended.
  Result<std::vector<llm::FailedAdapter>> Load(
      std::span<const std::shared_ptr<const llm::LoraAdapter>> adapters, int64_t step,
      const RunningStep* running, cudaStream_t stream);
  // The adapter has no place any more. No step uses it.
  void Forget(const llm::LoraAdapter& adapter) { slots_.Forget(adapter.serial()); }
  // The slots of the adapters of the last Load(), parallel to them.
  std::span<const int32_t> slots() const { return found_; }

  // Begins to copy an adapter that a step from `step` on will need; steps before `first_running`
  // have ended. One adapter is copied at a time, on a thread of its own. True: the adapter is on
  // the device, or Load() has to make room for it, or its copy failed and Load() tries again.
  Result<bool> Prepare(const std::shared_ptr<const llm::LoraAdapter>& adapter, int64_t step,
                       int64_t first_running);

  // Whether an adapter that was loaded so far changes a matrix of the group. Only grows.
  bool Changes(AdapterGroup group) const { return (groups_ >> static_cast<int>(group) & 1) != 0; }
  uint32_t groups() const { return groups_; }

  // The rows of a step's tokens.
  AdapterRows RowsOf(const StepShape& shape, const int32_t* words) const;
  // What the adapters add to the products of a group's matrices with the same input. `layer`:
  // kNoLayer for the head.
  struct Target {
    int32_t layer;
    AdapterGroup group;
  };
  // Multiplies `in` [rows, depth] with the first matrices. Before the model's own product.
  Status Shrink(const Target& target, const AdapterRows& rows, const __nv_bfloat16* in,
                cudaStream_t stream) const;
  // Adds the products of the newest Shrink() with the second matrices to the model's own product in
  // `out` [rows, out_stride]: float for the head, otherwise bf16.
  Status Expand(const Target& target, const AdapterRows& rows, void* out, int64_t out_stride,
                cudaStream_t stream) const;
  // The same for gate and up, without a change of `gate_up`: gated = silu(gate) * up.
  Status ExpandGated(int32_t layer, const AdapterRows& rows, __nv_bfloat16* gate_up,
                     __nv_bfloat16* gated, cudaStream_t stream) const;

  int64_t memory_bytes() const {
    return static_cast<int64_t>(memory_.size_bytes() + table_.size_bytes() +
                                low_rank_.size_bytes());
  }
  int64_t pinned_bytes() const {
    return static_cast<int64_t>(host_table_.size_bytes() + staging_[0].memory.size_bytes() +
                                staging_[1].memory.size_bytes());
  }
  int64_t num_copied() const { return num_copied_; }  // adapters
  // For tests: makes every later copy of adapters with this name fail; "": of none.
  void FailCopiesOf(std::string name) { failing_name_ = std::move(name); }

 private:
  DeviceAdapters(const llm::DecoderSpec& spec, const DeviceAdaptersOptions& options)
      : spec_(&spec), options_(options), slots_(options.memory_bytes, options.num_slots) {}

  // The adapter that Prepare() copies. The thread has the staging buffers and the copy stream until
  // it is joined.
  struct Preparation {
    std::shared_ptr<const llm::LoraAdapter> adapter;
    Status status;
    std::atomic<bool> is_done{false};
    std::vector<std::thread> threads;  // one
  };
  // Waits for the adapter that is being copied, if there is one. If its copy failed, it has no
  // place, and the first step that needs it copies it again.
  void FinishPreparation();

  int32_t num_matrices() const;
  // Without input and output.
  AdapterGemmParams ParamsOf(const Target& target, const AdapterRows& rows) const;
  // Notes which groups the adapter changes.
  void CountAdapter(const llm::LoraAdapter& adapter);
  // Copies the new ones of places_, parallel to `adapters`. Returns those whose copy failed.
  Result<std::vector<llm::FailedAdapter>> CopyNew(
      std::span<const std::shared_ptr<const llm::LoraAdapter>> adapters, const RunningStep* running,
      cudaStream_t stream);
  // Copies the adapter to `offset` of the memory and fills its row of the table. The pinned memory
  // of earlier copies is free.
  Status Copy(const llm::LoraAdapter& adapter, int32_t slot, int64_t offset);
  Status CopyAndWait(const llm::LoraAdapter& adapter, const AdapterSlots::Place& place);
  // Rows or columns of an adapter's matrix.
  struct Part {
    IndexRange rows, columns;
  };
  Status CopyMatrix(const llm::LoraMatrix& from, const Part& part, int64_t size_bytes,
                    int64_t columns);
  // This GPU's columns of A and rows of B.
  IndexRange ColumnsOf(llm::WeightKind kind, const llm::LoraDelta& delta) const;
  IndexRange RowsOf(llm::WeightKind kind, const llm::LoraDelta& delta) const;
  int64_t BytesOfA(llm::WeightKind kind, const llm::LoraDelta& delta) const;
  int64_t BytesOfB(llm::WeightKind kind, const llm::LoraDelta& delta) const;
  // Pinned memory for the next `size_bytes` bytes of the adapter that is being copied.
  Result<uint8_t*> Stage(int64_t size_bytes);
  Status Flush();
  static constexpr int64_t kStagingBytes = int64_t{16} << 20;

  const llm::DecoderSpec* spec_;
  const DeviceAdaptersOptions options_;
  AdapterSlots slots_;
  DeviceMemory memory_, table_, low_rank_;
  int64_t low_rank_stride_ = 0;  // floats of a row of low_rank_
  PinnedMemory host_table_;
  Stream copy_stream_;
  Event copied_;
  struct Staging {
    PinnedMemory memory;
    Event copied;
  };
  std::array<Staging, 2> staging_;
  int current_ = 0;            // the staging buffer that is being filled
  int64_t staged_ = 0;         // its bytes
  uint8_t* target_ = nullptr;  // on the device, of its first byte
  uint32_t groups_ = 0;
  int64_t num_copied_ = 0;
  std::unique_ptr<Preparation> preparation_;  // null: none
  std::set<uint64_t> unprepared_;             // serials: failed copies ahead of a step
  std::string failing_name_;
  int device_ = 0;
  std::vector<AdapterSlots::Need> needs_;
  std::vector<AdapterSlots::Place> places_;
  std::vector<int32_t> found_;
};

}  // namespace nereid::gpu
