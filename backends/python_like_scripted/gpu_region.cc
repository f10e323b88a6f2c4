#include "backends/python_like_scripted/gpu_region.h"

#include <algorithm>
#include <utility>

namespace nereid::python {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr uint64_t kChunkBytes = 16 << 20;
// Opening an allocation takes far longer than a short copy; a model answers from few allocations.
constexpr size_t kMaxOpened = 16;

Status NoDriver() {
  return UnsupportedError("memory of a GPU: no CUDA driver was found");
}

}  // namespace

GpuRegion::~GpuRegion() {
  const CudaDriver* const driver = CudaDriver::Get();
  for (const Chunk& chunk : chunks_) driver->FreeOnDevice(chunk.device, chunk.base);
  for (const Chunk& chunk : opened_) driver->CloseIpcHandle(chunk.device, chunk.base);
}

bool GpuRegion::FindSpace(Chunk& chunk, uint64_t needed_bytes, uint64_t* begin) {
  *begin = 0;
  for (auto it = chunk.used.begin(); it != chunk.used.end();) {
    const auto& [end, token] = it->second;
    if (!token.is_in_use()) {
      it = chunk.used.erase(it);
      continue;
    }
    if (it->first - *begin >= needed_bytes) return true;
    *begin = end;
    ++it;
  }
  return chunk.size_bytes - *begin >= needed_bytes;
}

Result<GpuRegion::Chunk*> GpuRegion::ChunkWithSpace(int64_t device, uint64_t needed_bytes,
                                                    uint64_t* begin) {
  for (Chunk& chunk : chunks_) {
    if (chunk.device == device && FindSpace(chunk, needed_bytes, begin)) return &chunk;
  }
  const CudaDriver* const driver = CudaDriver::Get();
  if (driver == nullptr) return NoDriver();
  Chunk chunk;
  chunk.device = device;
  chunk.size_bytes = std::max(needed_bytes, kChunkBytes);
  NEREID_ASSIGN_OR_RETURN(void* const base, driver->AllocateOnDevice(device, chunk.size_bytes));
  chunk.base = static_cast<std::byte*>(base);
  Result<CudaDriver::IpcHandle> handle = driver->ExportIpcHandle(device, base);
  if (!handle.ok()) {
    driver->FreeOnDevice(device, base);
    return handle.status();
  }
  chunk.handle = *handle;
  *begin = 0;
  return &chunks_.emplace_back(std::move(chunk));
}

Result<GpuBlock> GpuRegion::Allocate(int64_t device, uint64_t size_bytes) {
  if (size_bytes > uint64_t{1} << 46) {
    return UnavailableError("GPU ", device, ": ", size_bytes, " bytes are too many");
  }
  const uint64_t needed_bytes = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::lock_guard lock(mutex_);
  GpuBlock block;
  uint64_t begin = 0;
  NEREID_ASSIGN_OR_RETURN(Chunk* const chunk, ChunkWithSpace(device, needed_bytes, &begin));
  NEREID_ASSIGN_OR_RETURN(block.token, tokens_.Allocate(1));
  chunk->used.emplace(begin, std::pair(begin + needed_bytes, block.token));
  block.range = {device, chunk->handle, begin, size_bytes};
  block.data = chunk->base + begin;
  return block;
}

Result<const GpuRegion::Chunk*> GpuRegion::Find(const GpuRange& range) {
  const auto is_it = [&](const Chunk& chunk) {
    return chunk.device == range.device && chunk.handle == range.handle;
  };
  const auto own = std::find_if(chunks_.begin(), chunks_.end(), is_it);
  if (own != chunks_.end()) return &*own;
  const auto known = std::find_if(opened_.begin(), opened_.end(), is_it);
  if (known != opened_.end()) {
    opened_.splice(opened_.begin(), opened_, known);
    return &opened_.front();
  }
  const CudaDriver* const driver = CudaDriver::Get();
  if (driver == nullptr) return NoDriver();
  Chunk chunk;
  chunk.device = range.device;
  chunk.handle = range.handle;
  NEREID_ASSIGN_OR_RETURN(const CudaDriver::IpcMapping opened,
                          driver->OpenIpcHandle(range.device, range.handle));
  chunk.base = opened.base;
  chunk.size_bytes = opened.size_bytes;
  opened_.push_front(std::move(chunk));
  if (opened_.size() > kMaxOpened) {
    driver->CloseIpcHandle(opened_.back().device, opened_.back().base);
    opened_.pop_back();
  }
  return &opened_.front();
}

Status GpuRegion::CopyFrom(const GpuRange& range, void* target) {
  if (range.size_bytes == 0) return {};
  std::lock_guard lock(mutex_);
  NEREID_ASSIGN_OR_RETURN(const Chunk* const chunk, Find(range));
  if (range.offset > chunk->size_bytes || range.size_bytes > chunk->size_bytes - range.offset) {
    return InvalidArgError("a message names ", range.size_bytes, " bytes at ", range.offset,
                           " of memory of GPU ", range.device, ", which has ", chunk->size_bytes);
  }
  return CudaDriver::Get()->Copy(range.device, target, chunk->base + range.offset,
                                 range.size_bytes);
}

}  // namespace nereid::python
