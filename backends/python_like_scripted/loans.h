// Blocks of a worker's shared memory that clients are sent from where they lie. How much may be out
// at a time is limited, because what slow clients hold the worker has to do without; the rest is
// copied. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "backends/python_like_scripted/shared_region.h"
#include "nereid/status.h"
#include "triton/core/tritonbackend.h"

namespace nereid::scripted {

// Of one worker; lives as long as it and each loan.
class Loans : public std::enable_shared_from_this<Loans> {
 public:
  // Shorter ones are copied faster.
  static constexpr uint64_t kMinBlockBytes = 64 << 10;
  static constexpr int kMaxBlocks = 16;
  static constexpr uint64_t kMaxBytes = 64 << 20;

  // A worker whose memory may grow to `region_max_bytes` (0: without limit) has a quarter of it
  // out.
  explicit Loans(uint64_t region_max_bytes);

  // Whether the client of `output` has the block's bytes as they are: then the block is given back
  // when nobody reads it any more, whatever has become of the worker by then; else it stays with
  // the caller. `is_handed_back`: it is one of the host's own.
  Result<bool> Lend(TRITONBACKEND_Output* output, const Block& block, bool is_handed_back);

 private:
  struct Loan;
  static void GiveBack(void* loan);
  bool Take(uint64_t size_bytes);
  void Return(uint64_t size_bytes);

  const uint64_t max_bytes_;
  std::mutex mutex_;  // guards what follows
  int num_blocks_ = 0;
  uint64_t num_bytes_ = 0;
};

}  // namespace nereid::scripted
