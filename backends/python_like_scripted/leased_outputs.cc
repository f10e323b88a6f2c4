#include "backends/python_like_scripted/leased_outputs.h"

#include <algorithm>

#include "nereid/error.h"
#include "nereid/ext/leased_output.h"

namespace nereid::python {

struct LeasedOutputs::Lease {
  const SharedBlock block;
  const bool is_host_block;
  std::shared_ptr<LeasedOutputs> leased_outputs;  // null: not counted in the limits

  ~Lease() {
    if (leased_outputs != nullptr) leased_outputs->Unreserve(block.size_bytes);
  }
};

LeasedOutputs::LeasedOutputs(uint64_t region_max_bytes)
    : max_bytes_(region_max_bytes == 0 ? kMaxBytes : std::min(kMaxBytes, region_max_bytes / 4)) {}

bool LeasedOutputs::Reserve(uint64_t size_bytes) {
  std::lock_guard lock(mutex_);
  if (num_blocks_ == kMaxBlocks || size_bytes > max_bytes_ - num_bytes_) return false;
  ++num_blocks_;
  num_bytes_ += size_bytes;
  return true;
}

void LeasedOutputs::Unreserve(uint64_t size_bytes) {
  std::lock_guard lock(mutex_);
  --num_blocks_;
  num_bytes_ -= size_bytes;
}

Result<bool> LeasedOutputs::TryLease(TRITONBACKEND_Output* output, const SharedBlock& block,
                                     bool is_host_block) {
  const auto output_lend = FindOutputLend();
  if (output_lend == nullptr) return false;  // Triton has no leases
  if (block.size_bytes < kMinBlockBytes) return false;
  std::unique_ptr<Lease> lease(new Lease{block, is_host_block, nullptr});
  if (!Reserve(block.size_bytes)) return false;
  lease->leased_outputs = shared_from_this();
  if (is_host_block) block.AddReader();
  bool is_taken = false;
  Status status = ToStatus(
      output_lend(output, block.data(), block.size_bytes, &Release, lease.get(), &is_taken));
  if (is_taken) {
    (void)lease.release();  // Release deletes it
  } else if (is_host_block) {
    block.RemoveReader();
  }
  if (!status.ok()) return status;
  return is_taken;
}

void LeasedOutputs::Release(void* lease) {
  const std::unique_ptr<Lease> ended(static_cast<Lease*>(lease));
  if (ended->is_host_block) {
    ended->block.RemoveReader();
  } else {
    ended->block.Release();
  }
}

}  // namespace nereid::python
