// A mapped shared-memory region of a client: system or CUDA memory. Immutable after construction.
// [any thread]
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "host/frontend/shared_memory.h"

namespace nereid {

class SharedRegion {
 public:
  SharedRegion(SharedMemoryKind kind, SharedRegionInfo info)
      : kind_(kind), info_(std::move(info)) {}
  virtual ~SharedRegion() = default;
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  SharedMemoryKind kind() const { return kind_; }
  const SharedRegionInfo& info() const { return info_; }
  virtual char* base() const = 0;
  virtual TRITONSERVER_MemoryType memory_type() const = 0;
  // Called before a request: an error if the owner has truncated the memory.
  virtual Status Check() const { return Status::Ok(); }
  // Called after a request: an error if pages that were accessed had been truncated.
  virtual Status CheckIntact() const { return Status::Ok(); }

 private:
  const SharedMemoryKind kind_;
  const SharedRegionInfo info_;
};

Result<std::shared_ptr<const SharedRegion>> MapSystemRegion(SharedRegionInfo info);
Result<std::shared_ptr<const SharedRegion>> OpenCudaRegion(SharedRegionInfo info,
                                                           std::string_view raw_handle);

}  // namespace nereid
