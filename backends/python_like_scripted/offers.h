// Blocks of a worker's shared memory that large inputs are received into by whoever brings them, so
// that they need not be copied there. How much may be out at a time is limited, because what slow
// clients hold the worker has to do without. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "backends/python_like_scripted/shared_region.h"
#include "nereid/ext/offered_input.h"

namespace nereid::scripted {

// Of one worker; lives as long as it and each offer.
class Offers : public std::enable_shared_from_this<Offers> {
 public:
  // Shorter inputs are copied faster, and longer ones may have to wait for the machine's memory.
  static constexpr uint64_t kMinBlockBytes = 64 << 10;
  static constexpr uint64_t kMaxBlockBytes = 16 << 20;
  static constexpr size_t kMaxBlocks = 16;
  static constexpr uint64_t kMaxBytes = 64 << 20;

  struct Offer {
    void* base = nullptr;  // null: none
    NEREID_GiveBackFn_t give_back = nullptr;
    void* lender_userp = nullptr;
  };

  // None where the worker's memory may grow to `region_max_bytes` alone (0: without limit): between
  // what slow clients hold, a long input might find no place.
  explicit Offers(uint64_t region_max_bytes);

  // Of the worker's region, which the offer may outlive. Where that is too short there is none, and
  // the region's next GrowAsMissed makes room.
  Offer Make(SharedRegion& region, uint64_t size_bytes);
  // The block that all of `bytes` lie in, while it is offered.
  std::optional<Block> Find(std::span<const std::byte> bytes);

 private:
  struct Given;
  static void GiveBack(void* given);

  const uint64_t max_bytes_;
  std::mutex mutex_;  // guards what follows
  std::map<const std::byte*, Block> given_;
  uint64_t num_bytes_ = 0;
};

}  // namespace nereid::scripted
