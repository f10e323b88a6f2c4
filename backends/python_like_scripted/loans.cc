#include "backends/python_like_scripted/loans.h"

#include <algorithm>

#include "nereid/error.h"
#include "nereid/ext/lent_output.h"

namespace nereid::scripted {

struct Loans::Loan {
  const Block block;
  const bool is_handed_back;
  std::shared_ptr<Loans> loans;  // null: not counted

  ~Loan() {
    if (loans != nullptr) loans->Return(block.size_bytes);
  }
};

Loans::Loans(uint64_t region_max_bytes)
    : max_bytes_(region_max_bytes == 0 ? kMaxBytes : std::min(kMaxBytes, region_max_bytes / 4)) {}

bool Loans::Take(uint64_t size_bytes) {
  std::lock_guard lock(mutex_);
  if (num_blocks_ == kMaxBlocks || size_bytes > max_bytes_ - num_bytes_) return false;
  ++num_blocks_;
  num_bytes_ += size_bytes;
  return true;
}

void Loans::Return(uint64_t size_bytes) {
  std::lock_guard lock(mutex_);
  --num_blocks_;
  num_bytes_ -= size_bytes;
}

Result<bool> Loans::Lend(TRITONBACKEND_Output* output, const Block& block, bool is_handed_back) {
  const auto lend = FindOutputLend();
  if (lend == nullptr) return false;  // a host of others
  if (block.size_bytes < kMinBlockBytes) return false;
  std::unique_ptr<Loan> loan(new Loan{block, is_handed_back, nullptr});
  if (!Take(block.size_bytes)) return false;
  loan->loans = shared_from_this();
  if (is_handed_back) block.AddReader();
  bool is_taken = false;
  Status status =
      ToStatus(lend(output, block.data(), block.size_bytes, &GiveBack, loan.get(), &is_taken));
  if (is_taken) {
    (void)loan.release();  // GiveBack ends it
  } else if (is_handed_back) {
    block.DropReader();
  }
  if (!status.ok()) return status;
  return is_taken;
}

void Loans::GiveBack(void* loan) {
  const std::unique_ptr<Loan> ended(static_cast<Loan*>(loan));
  if (ended->is_handed_back) {
    ended->block.DropReader();
  } else {
    ended->block.Release();
  }
}

}  // namespace nereid::scripted
