// A limit on the sum of the bytes that many owners hold, and the reservations that count against
// it. The frontends use one budget for the bodies and messages of all requests in flight. [any
// thread]
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace nereid {

class ByteBudget {
 public:
  // 0 means that there is no limit. `flag` is that of the limit, for error messages.
  explicit ByteBudget(size_t max_bytes, std::string_view flag = "--max-request-memory-size")
      : max_bytes_(max_bytes), flag_(flag) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  size_t max_bytes() const { return max_bytes_; }
  size_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  std::string_view flag() const { return flag_; }
  // Number of reservations that were refused, also by the shares.
  uint64_t num_refused() const { return num_refused_.load(std::memory_order_relaxed); }
  // The budget that has the least left: this one, or one of which it is a share.
  const ByteBudget& tightest() const {
    if (whole_ == nullptr) return *this;
    const ByteBudget& above = whole_->tightest();
    return above.left_bytes() < left_bytes() ? above : *this;
  }

 private:
  friend class ByteReservation;
  friend class BudgetShare;

  // A share, which lives as long as one of its users: its owner, reservations, and shares of it.
  ByteBudget(size_t max_bytes, std::string_view flag, ByteBudget& whole)
      : max_bytes_(max_bytes), flag_(flag), whole_(&whole) {
    whole.AddUser();
  }
  void AddUser() {
    if (whole_ != nullptr) num_users_.fetch_add(1, std::memory_order_relaxed);
  }
  void RemoveUser() {
    if (whole_ == nullptr || num_users_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    ByteBudget* const whole = whole_;
    delete this;
    whole->RemoveUser();
  }

  size_t left_bytes() const {
    const size_t used = used_bytes();
    return max_bytes_ == 0 ? SIZE_MAX : max_bytes_ - std::min(used, max_bytes_);
  }
  bool TryTake(size_t count) {
    const size_t before = used_bytes_.fetch_add(count, std::memory_order_relaxed);
    const bool fits = max_bytes_ == 0 || (before <= max_bytes_ && count <= max_bytes_ - before);
    if (fits && (whole_ == nullptr || whole_->TryTake(count))) return true;
    used_bytes_.fetch_sub(count, std::memory_order_relaxed);
    if (!fits) CountRefusal();
    return false;
  }
  void Return(size_t count) {
    used_bytes_.fetch_sub(count, std::memory_order_relaxed);
    if (whole_ != nullptr) whole_->Return(count);
  }
  void CountRefusal() {
    if (whole_ != nullptr) return whole_->CountRefusal();
    num_refused_.fetch_add(1, std::memory_order_relaxed);
  }

  const size_t max_bytes_;
  const std::string_view flag_;
  ByteBudget* const whole_ = nullptr;  // not null: this is a share
  alignas(64) std::atomic<size_t> used_bytes_{0};
  std::atomic<uint64_t> num_refused_{0};
  std::atomic<size_t> num_users_{1};  // of a share
};

// The owner of a part of a budget, which one client or one connection may use at most. What is
// taken from the part is taken from the whole, too. `whole` may be a share itself. Reservations may
// outlive the owner. [one owner at a time]
class BudgetShare {
 public:
  // `whole` outlives the share. If `max_bytes` is 0 or `whole` is null, the share has no limit of
  // its own: budget() is `whole`.
  BudgetShare(ByteBudget* whole, size_t max_bytes, std::string_view flag)
      : budget_(whole), is_own_(whole != nullptr && max_bytes > 0) {
    if (is_own_) budget_ = new ByteBudget(max_bytes, flag, *whole);
  }
  ~BudgetShare() {
    if (is_own_) budget_->RemoveUser();
  }
  BudgetShare(const BudgetShare&) = delete;
  BudgetShare& operator=(const BudgetShare&) = delete;

  ByteBudget* budget() const { return budget_; }
  // True while something is taken from the part.
  bool is_used() const { return is_own_ && budget_->used_bytes() > 0; }

 private:
  ByteBudget* budget_;
  const bool is_own_;
};

// Bytes taken from a budget. They return to it when the reservation is destroyed, so a reservation
// is kept beside the memory that it stands for. [one owner at a time, any thread]
class ByteReservation {
 public:
  // Counts nothing and is never refused.
  ByteReservation() = default;
  // `budget` outlives the reservation, or is a share, which the reservation keeps alive. Null: like
  // the default constructor.
  explicit ByteReservation(ByteBudget* budget) : budget_(budget) {
    if (budget != nullptr) budget->AddUser();
  }
  // `other` then counts nothing.
  ByteReservation(ByteReservation&& other) noexcept
      : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  ByteReservation& operator=(ByteReservation&& other) noexcept {
    if (this == &other) return *this;
    Release();
    budget_ = std::exchange(other.budget_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~ByteReservation() { Release(); }

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
  void Release() {
    Clear();
    if (budget_ != nullptr) budget_->RemoveUser();
  }

  ByteBudget* budget_ = nullptr;
  size_t bytes_ = 0;
};

// Returns the size of the memory to allocate for data whose sender has announced `claimed_bytes`
// and has sent `arrived_bytes`. A claim costs its sender nothing, so at most 32 times what has
// arrived is allocated, or `first_bytes` if that is more. Data that outgrows its memory is copied.
// Up to 16 times `first_bytes`, the memory is small at first and has its whole size next, so that a
// sixteenth is copied. Above that, all copies together are little more than half of the data.
inline size_t CapacityOfClaim(size_t claimed_bytes, size_t arrived_bytes, size_t first_bytes) {
  constexpr size_t kFactor = 16;
  if (claimed_bytes <= first_bytes) return claimed_bytes;
  if (arrived_bytes > claimed_bytes / (2 * kFactor)) return claimed_bytes;
  return std::max(std::min(first_bytes, claimed_bytes / kFactor), arrived_bytes * kFactor);
}

}  // namespace nereid
