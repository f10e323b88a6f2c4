// A limit on the sum of the bytes that many owners hold, and the reservations that count against
// it. The frontends use one budget for the bodies and messages of all requests in flight. [any
// thread]
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace nereid {

class ByteBudget {
 public:
  // 0 means that there is no limit.
  explicit ByteBudget(size_t max_bytes) : max_bytes_(max_bytes) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  size_t max_bytes() const { return max_bytes_; }
  size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  // Number of reservations that were refused.
  uint64_t num_refused() const { return num_refused_.load(std::memory_order_relaxed); }

 private:
  friend class ByteReservation;

  bool TryTake(size_t count) {
    const size_t before = used_bytes_.fetch_add(count, std::memory_order_relaxed);
    if (max_bytes_ == 0 || (before <= max_bytes_ && count <= max_bytes_ - before)) return true;
    used_bytes_.fetch_sub(count, std::memory_order_relaxed);
    num_refused_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  void Return(size_t count) { used_bytes_.fetch_sub(count, std::memory_order_relaxed); }

  const size_t max_bytes_;
  alignas(64) std::atomic<size_t> used_bytes_{0};
  std::atomic<uint64_t> num_refused_{0};
};

// Bytes taken from a budget. They return to it when the reservation is destroyed, so a reservation
// is kept beside the memory that it stands for. [one owner at a time, any thread]
class ByteReservation {
 public:
  // Counts nothing and is never refused.
  ByteReservation() = default;
  // `budget` outlives the reservation. Null: like the default constructor.
  explicit ByteReservation(ByteBudget* budget) : budget_(budget) {}
  ByteReservation(ByteReservation&& other) noexcept { *this = std::move(other); }
  ByteReservation& operator=(ByteReservation&& other) noexcept {
    if (this == &other) return *this;
    Clear();
    budget_ = other.budget_;
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~ByteReservation() { Clear(); }

  ByteBudget* budget() const { return budget_; }
  size_t bytes() const { return bytes_; }

  // Takes what is missing to `bytes`. Returns false, and changes nothing, if the budget has less
  // left.
  [[nodiscard]] bool GrowTo(size_t bytes) {
    if (bytes <= bytes_) return true;
    if (budget_ != nullptr && !budget_->TryTake(bytes - bytes_)) return false;
    bytes_ = bytes;
    return true;
  }
  [[nodiscard]] bool GrowBy(size_t bytes) { return GrowTo(bytes_ + bytes); }
  // Returns what exceeds `bytes`.
  void ShrinkTo(size_t bytes) {
    if (bytes >= bytes_) return;
    if (budget_ != nullptr) budget_->Return(bytes_ - bytes);
    bytes_ = bytes;
  }
  void Clear() { ShrinkTo(0); }

 private:
  ByteBudget* budget_ = nullptr;
  size_t bytes_ = 0;
};

// Returns the size of the memory to allocate for data whose sender has announced `claimed_bytes`
// and has sent `arrived_bytes`. A claim costs its sender nothing, so at most 32 times what has
// arrived is allocated, and at least `first_bytes`. Data that outgrows its memory is copied; all
// copies together are little more than half of the data.
inline size_t CapacityOfClaim(size_t claimed_bytes, size_t arrived_bytes, size_t first_bytes) {
  constexpr size_t kFactor = 16;
  if (arrived_bytes > claimed_bytes / (2 * kFactor)) return claimed_bytes;
  return std::min(claimed_bytes, std::max(first_bytes, arrived_bytes * kFactor));
}

}  // namespace nereid
