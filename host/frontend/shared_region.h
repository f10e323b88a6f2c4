// One mapped region of memory that a client shares, of either kind. Immutable once made.
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
  // Whether the memory is still all there: its owner may have cut it short. Before a request.
  virtual Status Check() const { return Status::Ok(); }
  // Whether what was read and written so far was the client's memory. After a request.
  virtual Status CheckTouched() const { return Status::Ok(); }

 private:
  const SharedMemoryKind kind_;
  const SharedRegionInfo info_;
};

Result<std::shared_ptr<const SharedRegion>> MapSystemRegion(SharedRegionInfo info);
Result<std::shared_ptr<const SharedRegion>> OpenCudaRegion(SharedRegionInfo info,
                                                           std::string_view raw_handle);

}  // namespace nereid
