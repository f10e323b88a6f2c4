// RopeTables: fills the tables on the device. [load thread]
#include "backends/gpu_llm/model/rope_tables.h"

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/attention/rope.h"

namespace nereid::gpu {

int32_t RopeTables::ShortPositionsOffset(const llm::DecoderSpec& spec, int32_t max_positions) {
  for (const llm::RopeSpec& rope : spec.ropes) {
    if (!rope.short_inv_freq.empty()) return max_positions;
  }
  return 0;
}

Result<RopeTables> RopeTables::Fill(const llm::DecoderSpec& spec, int32_t max_positions) {
  const int32_t short_offset = ShortPositionsOffset(spec, max_positions);
  RopeTables result;
  for (const llm::RopeSpec& rope : spec.ropes) {
    const auto half = static_cast<int64_t>(rope.inv_freq.size());
    const int64_t table_bytes = half * (max_positions + short_offset) * 8;
    NEREID_ASSIGN_OR_RETURN(const DeviceMemory inv_freq,
                            DeviceMemory::Allocate(half * 4, "rope frequencies"));
    NEREID_ASSIGN_OR_RETURN(DeviceMemory table,
                            DeviceMemory::Allocate(table_bytes, "the rope table"));
    const auto fill = [&](const std::vector<float>& frequencies, int32_t first) -> Status {
      NEREID_RETURN_IF_CUDA_ERROR(
          cudaMemcpy(inv_freq.data(), frequencies.data(), half * 4, cudaMemcpyHostToDevice));
      FillRopeTable(inv_freq.as<float>(), static_cast<int>(half), max_positions, rope.magnitude,
                    table.as<float2>() + first * half, nullptr);
      NEREID_RETURN_IF_CUDA_ERROR(cudaGetLastError());
      NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
      return {};
    };
    NEREID_RETURN_IF_ERROR(fill(rope.inv_freq, 0));
    if (short_offset > 0) {
      NEREID_RETURN_IF_ERROR(
          fill(rope.short_inv_freq.empty() ? rope.inv_freq : rope.short_inv_freq, short_offset));
    }
    result.tables_.push_back(std::move(table));
  }
  return result;
}

int64_t RopeTables::memory_bytes() const {
  size_t sum = 0;
  for (const DeviceMemory& table : tables_) sum += table.size_bytes();
  return static_cast<int64_t>(sum);
}

}  // namespace nereid::gpu
