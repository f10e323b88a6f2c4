#include "backends/gpu_llm/model/device_adapters.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backends/gpu_llm/bf16.h"
#include "backends/gpu_llm/cuda/runtime.h"
#include "base/thread.h"

namespace nereid::gpu {
namespace {

using llm::CheckpointDataType;
using llm::WeightKind;

// The order of a layer's matrices in a slot; the head follows the layers.
constexpr WeightKind kKinds[] = {
    WeightKind::kQ,    WeightKind::kK,  WeightKind::kV,   WeightKind::kAttentionOut,
    WeightKind::kGate, WeightKind::kUp, WeightKind::kDown};
constexpr int kNumKinds = static_cast<int>(std::size(kKinds));
constexpr AdapterGroup kGroups[] = {
    AdapterGroup::kQkv,    AdapterGroup::kQkv,    AdapterGroup::kQkv, AdapterGroup::kAttentionOut,
    AdapterGroup::kGateUp, AdapterGroup::kGateUp, AdapterGroup::kDown};

int32_t PaddedRank(int32_t rank) {
  return (rank + kAdapterRankUnit - 1) / kAdapterRankUnit * kAdapterRankUnit;
}
int64_t Aligned(int64_t bytes) {
  return (bytes + AdapterSlots::kAlign - 1) / AdapterSlots::kAlign * AdapterSlots::kAlign;
}

// Calls visit(index among the matrices of a slot, group, kind, delta) for each matrix that changes.
template <typename Visit>
Status VisitDeltas(const llm::LoraAdapter& adapter, int32_t num_layers, Visit visit) {
  for (int32_t layer = 0; layer < num_layers; ++layer) {
    for (int i = 0; i < kNumKinds; ++i) {
      if (const llm::LoraDelta* delta = adapter.Find(layer, kKinds[i]))
        NEREID_RETURN_IF_ERROR(visit(layer * kNumKinds + i, kGroups[i], kKinds[i], *delta));
    }
  }
  if (const llm::LoraDelta* delta = adapter.Find(llm::kNoLayer, WeightKind::kLmHead))
    return visit(num_layers * kNumKinds, AdapterGroup::kHead, WeightKind::kLmHead, *delta);
  return {};
}

// The rows of the LM head that are tokens, of those on GPU `rank`.
IndexRange HeadRows(const Sharding& sharding, int32_t rank, int32_t vocab_size) {
  IndexRange rows = sharding.HeadRows(rank, PaddedVocabulary(vocab_size));
  rows.count = std::min(rows.count, vocab_size - rows.first);
  return rows;
}

// Columns of the input of a group's matrices.
int32_t DepthOf(const llm::DecoderSpec& spec, AdapterGroup group) {
  if (group == AdapterGroup::kAttentionOut) return static_cast<int32_t>(spec.q_size());
  return group == AdapterGroup::kDown ? spec.intermediate_size : spec.hidden_size;
}

// The number of sums that shrink writes of a row: parts of all modules of a group.
int32_t MaxParts(const llm::DecoderSpec& spec) {
  int32_t most = 0;
  for (const auto& [group, num_modules] : {std::pair{AdapterGroup::kQkv, 3},
                                           {AdapterGroup::kAttentionOut, 1},
                                           {AdapterGroup::kGateUp, 2},
                                           {AdapterGroup::kDown, 1}}) {
    most = std::max(most, num_modules * NumAdapterParts(DepthOf(spec, group)));
  }
  return most;
}

// A finite half. Its exponent is made that of a float by a product, which also fits subnormals.
float FromHalf(uint16_t bits) {
  const float magnitude = std::bit_cast<float>(uint32_t{bits & 0x7fffu} << 13) * 0x1p112f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | uint32_t{bits & 0x8000u} << 16);
}

// Values in F32 or F16 as bf16. A step waits for them: the compiler vectorizes both loops.
void RoundRow(CheckpointDataType type, const uint8_t* data, int64_t count, uint16_t* to) {
  if (type == CheckpointDataType::kF32) {
    for (int64_t i = 0; i < count; ++i) {
      float value;
      std::memcpy(&value, data + 4 * i, 4);
      to[i] = RoundToBf16(value);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, data + 2 * i, 2);
    to[i] = RoundToBf16(FromHalf(half));
  }
}

}  // namespace

Result<std::unique_ptr<DeviceAdapters>> DeviceAdapters::Create(const llm::DecoderSpec& spec,
                                                               const DeviceAdaptersOptions& given) {
  DeviceAdaptersOptions options = given;
  options.max_rank = PaddedRank(options.max_rank);
  std::unique_ptr<DeviceAdapters> adapters(new DeviceAdapters(spec, options));
  NEREID_ASSIGN_OR_RETURN(
      adapters->memory_,
      DeviceMemory::Allocate(static_cast<size_t>(options.memory_bytes), "LoRA adapters"));
  const size_t table_bytes =
      sizeof(AdapterMatrix) * static_cast<size_t>(options.num_slots * adapters->num_matrices());
  NEREID_ASSIGN_OR_RETURN(adapters->table_,
                          DeviceMemory::Allocate(table_bytes, "the table of LoRA adapters"));
  NEREID_ASSIGN_OR_RETURN(adapters->host_table_, PinnedMemory::Allocate(table_bytes));
  adapters->low_rank_stride_ = int64_t{MaxParts(spec)} * options.max_rank;
  NEREID_ASSIGN_OR_RETURN(
      adapters->low_rank_,
      DeviceMemory::Allocate(
          static_cast<size_t>(4 * adapters->low_rank_stride_ * int64_t{options.max_num_rows}),
          "the inner rows of LoRA adapters"));
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetDevice(&adapters->device_));
  NEREID_ASSIGN_OR_RETURN(adapters->copy_stream_, MakeStream());
  NEREID_ASSIGN_OR_RETURN(adapters->copied_, MakeEvent());
  for (Staging& staging : adapters->staging_) {
    NEREID_ASSIGN_OR_RETURN(staging.memory, PinnedMemory::Allocate(kStagingBytes));
    NEREID_ASSIGN_OR_RETURN(staging.copied, MakeEvent());
  }
  return adapters;
}

int32_t DeviceAdapters::num_matrices() const {
  return spec_->num_layers() * kNumKinds + 1;
}

IndexRange DeviceAdapters::ColumnsOf(WeightKind kind, const llm::LoraDelta& delta) const {
  IndexRange columns = {options_.sharding.FirstColumn(kind), delta.a.columns};
  if (options_.sharding.count() == 1) return columns;
  if (kind == WeightKind::kAttentionOut) columns.count = spec_->q_size();
  if (kind == WeightKind::kDown) columns.count = spec_->intermediate_size;
  return columns;
}

IndexRange DeviceAdapters::RowsOf(WeightKind kind, const llm::LoraDelta& delta) const {
  const Sharding& sharding = options_.sharding;
  IndexRange rows = {sharding.FirstRow(kind), delta.b.rows};
  if (sharding.count() == 1) return rows;
  switch (kind) {
    case WeightKind::kQ:
      rows.count = spec_->q_size();
      break;
    case WeightKind::kK:
    case WeightKind::kV:
      rows.count = spec_->kv_size();
      break;
    case WeightKind::kGate:
    case WeightKind::kUp:
      rows.count = spec_->intermediate_size;
      break;
    case WeightKind::kLmHead:
      return HeadRows(sharding, sharding.rank(), spec_->vocab_size);
    default:
      break;
  }
  return rows;
}

int64_t DeviceAdapters::BytesOfA(WeightKind kind, const llm::LoraDelta& delta) const {
  return Aligned(int64_t{PaddedRank(delta.rank())} * ColumnsOf(kind, delta).count * 2);
}

// Bytes of matrix B of an adapter. GPUs may hold different numbers of rows of the LM head. For it,
// each GPU returns the bytes of the GPU with the most rows, so that all place adapters alike.
int64_t DeviceAdapters::BytesOfB(WeightKind kind, const llm::LoraDelta& delta) const {
  int64_t rows = RowsOf(kind, delta).count;
  for (int32_t rank = 0; kind == WeightKind::kLmHead && rank < options_.sharding.count(); ++rank)
    rows = std::max(rows, HeadRows(options_.sharding, rank, spec_->vocab_size).count);
  return Aligned(int64_t{PaddedRank(delta.rank())} * rows * 2);
}

Result<int64_t> DeviceAdapters::BytesOf(const llm::LoraAdapter& adapter) const {
  const int32_t rank = adapter.max_rank();
  if (rank > options_.max_rank) {
    return InvalidArgError("LoRA adapter '", adapter.name(), "' has rank ", rank,
                           ", expected at most ", options_.max_rank);
  }
  for (int32_t layer = 0; layer < spec_->num_layers(); ++layer) {
    if (adapter.Find(layer, WeightKind::kRouter) != nullptr) {
      return UnsupportedError("LoRA adapter '", adapter.name(), "' changes the router of layer ",
                              layer, ", which gpu_llm does not support; cpu_reference does");
    }
  }
  int64_t bytes = 0;
  NEREID_RETURN_IF_ERROR(
      VisitDeltas(adapter, spec_->num_layers(),
                  [&](int32_t, AdapterGroup, WeightKind kind, const llm::LoraDelta& delta) {
                    bytes += BytesOfA(kind, delta) + BytesOfB(kind, delta);
                    return Status();
                  }));
  if (bytes > options_.memory_bytes) {
    return InvalidArgError("LoRA adapter '", adapter.name(), "' takes ", bytes,
                           " bytes of GPU memory, but all adapters have ", options_.memory_bytes,
                           ": see lora_cache_gpu_memory_fraction");
  }
  return bytes;
}

DeviceAdapters::~DeviceAdapters() {
  FinishPreparation();
}

void DeviceAdapters::FinishPreparation() {
  if (preparation_ == nullptr) return;
  for (std::thread& thread : preparation_->threads) thread.join();
  if (!preparation_->status.ok()) {
    Forget(*preparation_->adapter);
    unprepared_.insert(preparation_->adapter->serial());
  }
  preparation_.reset();
}

Result<bool> DeviceAdapters::Prepare(const std::shared_ptr<const llm::LoraAdapter>& adapter,
                                     int64_t step, int64_t first_running) {
  if (preparation_ != nullptr && preparation_->is_done) FinishPreparation();
  if (unprepared_.contains(adapter->serial())) return true;
  const int64_t resident_bytes = slots_.BytesOf(adapter->serial());
  if (preparation_ != nullptr && (resident_bytes < 0 || preparation_->adapter == adapter))
    return false;
  AdapterSlots::Need need = {adapter->serial(), resident_bytes};
  if (resident_bytes < 0) {
    NEREID_ASSIGN_OR_RETURN(need.bytes, BytesOf(*adapter));
  }
  // Memory that was replaced may be that of a running step.
  if (resident_bytes < 0 && slots_.last_replaced_step() >= first_running) return false;
  AdapterSlots::Place place;
  if (!slots_.Prepare(need, step, first_running, place) || !place.is_new) return true;
  CountAdapter(*adapter);
  preparation_ = std::make_unique<Preparation>();
  preparation_->adapter = adapter;
  const auto copy = [this, place, preparation = preparation_.get()](size_t) {
    preparation->status = CopyAndWait(*preparation->adapter, place);
    preparation->is_done = true;
  };
  StartThreads(1, copy, preparation_->threads);
  if (!preparation_->threads.empty()) return false;
  Forget(*adapter);  // the system starts no thread: the step copies it
  preparation_.reset();
  return true;
}

// [preparation's thread]
Status DeviceAdapters::CopyAndWait(const llm::LoraAdapter& adapter,
                                   const AdapterSlots::Place& place) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(copied_.get()));
  NEREID_RETURN_IF_ERROR(Copy(adapter, place.slot, place.offset));
  return CudaStatus(cudaStreamSynchronize(copy_stream_.get()), "a LoRA adapter");
}

void DeviceAdapters::CountAdapter(const llm::LoraAdapter& adapter) {
  ++num_copied_;
  (void)VisitDeltas(adapter, spec_->num_layers(),
                    [&](int32_t, AdapterGroup group, WeightKind, const llm::LoraDelta&) {
                      groups_ |= 1u << static_cast<int>(group);
                      return Status();
                    });
}

Result<std::vector<llm::FailedAdapter>> DeviceAdapters::Load(
    std::span<const std::shared_ptr<const llm::LoraAdapter>> adapters, int64_t step,
    const RunningStep* running, cudaStream_t stream) {
  needs_.clear();
  const bool must_finish = std::any_of(adapters.begin(), adapters.end(), [&](const auto& adapter) {
    return slots_.BytesOf(adapter->serial()) < 0 ||
           (preparation_ != nullptr && preparation_->adapter == adapter);
  });
  if (must_finish) FinishPreparation();
  for (const auto& adapter : adapters) {
    if (!unprepared_.empty()) unprepared_.erase(adapter->serial());
    const int64_t resident_bytes = slots_.BytesOf(adapter->serial());
    if (resident_bytes >= 0) {  // counting them visits every matrix
      needs_.push_back({adapter->serial(), resident_bytes});
      continue;
    }
    NEREID_ASSIGN_OR_RETURN(const int64_t bytes, BytesOf(*adapter));
    needs_.push_back({adapter->serial(), bytes});
  }
  if (!slots_.Find(needs_, step, places_)) {
    return InternalError("the ", needs_.size(), " LoRA adapters of a step exceed the ",
                         options_.memory_bytes, " bytes of GPU memory for adapters");
  }
  found_.clear();
  bool has_new = false;
  for (const AdapterSlots::Place& place : places_) {
    found_.push_back(place.slot);
    has_new |= place.is_new;
  }
  if (!has_new) return std::vector<llm::FailedAdapter>();
  return CopyNew(adapters, running, stream);
}

Result<std::vector<llm::FailedAdapter>> DeviceAdapters::CopyNew(
    std::span<const std::shared_ptr<const llm::LoraAdapter>> adapters, const RunningStep* running,
    cudaStream_t stream) {
  // The pinned memory of the last copies is used again.
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(copied_.get()));
  if (running != nullptr && slots_.last_replaced_step() >= running->step)
    NEREID_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(copy_stream_.get(), running->done));
  std::vector<llm::FailedAdapter> failed;
  for (size_t i = 0; i < places_.size(); ++i) {
    if (!places_[i].is_new) continue;
    CountAdapter(*adapters[i]);
    Status copied = Copy(*adapters[i], places_[i].slot, places_[i].offset);
    if (copied.ok()) continue;
    failed.push_back({adapters[i], std::move(copied).WithContext(
                                       StrCat("LoRA adapter '", adapters[i]->name(),
                                              "' could not be copied to GPU ", device_))});
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(copied_.get(), copy_stream_.get()));
  NEREID_RETURN_IF_CUDA_ERROR(cudaStreamWaitEvent(stream, copied_.get()));
  return failed;
}

Status DeviceAdapters::Copy(const llm::LoraAdapter& adapter, int32_t slot, int64_t offset) {
  if (!failing_name_.empty() && adapter.name() == failing_name_)
    return CudaStatus(cudaErrorUnknown, "an injected fault");
  auto* const row = host_table_.as<AdapterMatrix>() + int64_t{slot} * num_matrices();
  std::fill_n(row, num_matrices(), AdapterMatrix{});
  const auto* next = memory_.as<uint8_t>() + offset;
  target_ = memory_.as<uint8_t>() + offset;
  staged_ = 0;  // a copy that failed may have left something
  const auto copy = [&](int32_t index, AdapterGroup, WeightKind kind,
                        const llm::LoraDelta& delta) -> Status {
    const int32_t rank = PaddedRank(delta.rank());
    const int64_t bytes_of_a = BytesOfA(kind, delta), bytes_of_b = BytesOfB(kind, delta);
    row[index] = {reinterpret_cast<const __nv_bfloat16*>(next),
                  reinterpret_cast<const __nv_bfloat16*>(next + bytes_of_a), rank, delta.scale};
    next += bytes_of_a + bytes_of_b;
    const IndexRange columns = ColumnsOf(kind, delta), rows = RowsOf(kind, delta);
    NEREID_RETURN_IF_ERROR(
        CopyMatrix(delta.a, {{0, delta.a.rows}, columns}, bytes_of_a, columns.count));
    return CopyMatrix(delta.b, {rows, {0, delta.b.columns}}, bytes_of_b, rank);
  };
  NEREID_RETURN_IF_ERROR(VisitDeltas(adapter, spec_->num_layers(), copy));
  NEREID_RETURN_IF_ERROR(Flush());
  const size_t row_bytes = sizeof(AdapterMatrix) * static_cast<size_t>(num_matrices());
  return CudaStatus(cudaMemcpyAsync(table_.as<char>() + slot * row_bytes, row, row_bytes,
                                    cudaMemcpyHostToDevice, copy_stream_.get()),
                    "a LoRA adapter's matrices");
}

// Appends the part as bf16, padded with zeros to rows of `columns` and to `size_bytes` in all.
Status DeviceAdapters::CopyMatrix(const llm::LoraMatrix& from, const Part& part, int64_t size_bytes,
                                  int64_t columns) {
  const int64_t row_bytes = columns * 2;
  const int64_t element_bytes = from.row_bytes() / std::max<int64_t>(1, from.columns);
  const uint8_t* const first =
      from.data + part.rows.first * from.row_bytes() + part.columns.first * element_bytes;
  const int64_t num_values = part.columns.count;
  if (from.type == CheckpointDataType::kBF16 && from.columns == columns && num_values == columns) {
    const int64_t given = part.rows.count * row_bytes;
    for (int64_t at = 0; at < given;) {
      const int64_t count = std::min(given - at, kStagingBytes / 4);
      NEREID_ASSIGN_OR_RETURN(uint8_t* const to, Stage(count));
      std::memcpy(to, first + at, static_cast<size_t>(count));
      at += count;
    }
  } else {
    for (int64_t row = 0; row < part.rows.count; ++row) {
      const uint8_t* const data = first + row * from.row_bytes();
      NEREID_ASSIGN_OR_RETURN(uint8_t* const to, Stage(row_bytes));
      std::memset(to + 2 * num_values, 0, static_cast<size_t>(row_bytes - 2 * num_values));
      if (from.type == CheckpointDataType::kBF16) {
        std::memcpy(to, data, static_cast<size_t>(2 * num_values));
        continue;
      }
      RoundRow(from.type, data, num_values, reinterpret_cast<uint16_t*>(to));
    }
  }
  for (int64_t left = size_bytes - part.rows.count * row_bytes; left > 0;) {
    const int64_t count = std::min(left, kStagingBytes / 4);
    NEREID_ASSIGN_OR_RETURN(uint8_t* const to, Stage(count));
    std::memset(to, 0, static_cast<size_t>(count));
    left -= count;
  }
  return {};
}

Result<uint8_t*> DeviceAdapters::Stage(int64_t size_bytes) {
  if (staged_ + size_bytes > kStagingBytes) NEREID_RETURN_IF_ERROR(Flush());
  uint8_t* const to = staging_[current_].memory.as<uint8_t>() + staged_;
  staged_ += size_bytes;
  return to;
}

// Copies what is staged, and waits until the other staging buffer is free.
Status DeviceAdapters::Flush() {
  if (staged_ == 0) return {};
  Staging& staging = staging_[current_];
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(target_, staging.memory.as<void>(),
                                              static_cast<size_t>(staged_), cudaMemcpyHostToDevice,
                                              copy_stream_.get()));
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventRecord(staging.copied.get(), copy_stream_.get()));
  target_ += staged_;
  staged_ = 0;
  current_ ^= 1;
  return CudaStatus(cudaEventSynchronize(staging_[current_].copied.get()), "a LoRA adapter");
}

AdapterRows DeviceAdapters::RowsOf(const StepShape& shape, const int32_t* words) const {
  const StepLayout layout(shape);
  AdapterRows rows = {};
  rows.table = table_.as<AdapterMatrix>();
  rows.matrices_per_slot = num_matrices();
  rows.slots = words + layout.adapter_slots;
  rows.num_tiles = shape.num_adapter_tiles > 0 ? shape.num_adapter_tiles : shape.num_tokens;
  if (shape.num_adapter_tiles > 0)
    rows.tiles = reinterpret_cast<const AdapterTile*>(words + layout.adapter_tiles);
  return rows;
}

AdapterGemmParams DeviceAdapters::ParamsOf(const Target& target, const AdapterRows& rows) const {
  AdapterGemmParams params = {};
  params.rows = rows;
  params.depth = DepthOf(*spec_, target.group);
  params.low_rank = low_rank_.as<float>();
  params.low_rank_stride = low_rank_stride_;
  params.max_rank = options_.max_rank;
  const int first =
      (target.layer == llm::kNoLayer ? spec_->num_layers() : target.layer) * kNumKinds;
  const auto add = [&](int index, int num_outputs, int first_column, bool interleaves = false) {
    params.modules[params.num_modules++] = {first + index, num_outputs, first_column, interleaves};
  };
  switch (target.group) {
    case AdapterGroup::kQkv: {
      const auto q_size = static_cast<int>(spec_->q_size());
      const auto kv_size = static_cast<int>(spec_->kv_size());
      add(0, q_size, 0);
      add(1, kv_size, q_size);
      add(2, kv_size, q_size + kv_size);
      break;
    }
    case AdapterGroup::kAttentionOut:
      add(3, spec_->hidden_size, 0);
      break;
    case AdapterGroup::kGateUp: {
      const bool is_gated = spec_->mlp == llm::MlpKind::kGated;
      if (is_gated) add(4, spec_->intermediate_size, 0, true);
      add(5, spec_->intermediate_size, is_gated ? 8 : 0, is_gated);
      break;
    }
    case AdapterGroup::kDown:
      add(6, spec_->hidden_size, 0);
      break;
    case AdapterGroup::kHead:
      add(0,
          static_cast<int>(
              HeadRows(options_.sharding, options_.sharding.rank(), spec_->vocab_size).count),
          0);
      params.output = AdapterOutput::kFloat;
      break;
  }
  return params;
}

Status DeviceAdapters::Shrink(const Target& target, const AdapterRows& rows,
                              const __nv_bfloat16* in, cudaStream_t stream) const {
  AdapterGemmParams params = ParamsOf(target, rows);
  params.in = in;
  AdapterShrink(params, stream);
  return CudaStatus(cudaGetLastError(), "LoRA adapters");
}

Status DeviceAdapters::Expand(const Target& target, const AdapterRows& rows, void* out,
                              int64_t out_stride, cudaStream_t stream) const {
  AdapterGemmParams params = ParamsOf(target, rows);
  params.out = out;
  params.out_stride = out_stride;
  AdapterExpand(params, stream);
  return CudaStatus(cudaGetLastError(), "LoRA adapters");
}

Status DeviceAdapters::ExpandGated(int32_t layer, const AdapterRows& rows, __nv_bfloat16* gate_up,
                                   __nv_bfloat16* gated, cudaStream_t stream) const {
  AdapterGemmParams params = ParamsOf({layer, AdapterGroup::kGateUp}, rows);
  params.out = gate_up;
  params.out_stride = int64_t{2} * spec_->intermediate_size;
  params.output = AdapterOutput::kSiluGate;
  params.gated = gated;
  AdapterExpand(params, stream);
  return CudaStatus(cudaGetLastError(), "LoRA adapters");
}

}  // namespace nereid::gpu
