// Places outside the cache of fake_executor.h. Copies run as late as the interface permits: a Store
// after the steps that were submitted before it, a Fetch some rounds later. A block that is used
// too early, or a place that is overwritten too early, changes the tokens.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "backends/llm_core/engine/block_storage.h"

namespace nereid::llm::testing {

class FakeStorage : public BlockStorage {
 public:
  // `cache` [num_blocks * block_size] is that of the executor.
  FakeStorage(std::vector<int32_t>* cache, int32_t num_blocks, int32_t block_size, int32_t num_host,
              int32_t num_file, uint32_t seed)
      : cache_(cache),
        num_blocks_(num_blocks),
        block_size_(block_size),
        num_host_(num_host),
        num_file_(num_file),
        places_(num_host + num_file),
        random_(seed) {}

  int32_t num_host_places() const override { return num_host_; }
  int32_t num_file_places() const override { return num_file_; }
  bool FileAccepts() const override { return num_file_ > 0 && ++num_questions_ % 7 != 0; }

  void Store(int32_t from, int32_t to, const BlockContent& content) override {
    copies_.push_back({from, to, content.serial, num_submitted_});
    RunCopies();
  }
  void Fetch(uint64_t ticket, std::vector<Transfer> transfers) override {
    open_.push_back({ticket, std::move(transfers), num_submitted_, num_copied_ + copies_.size(),
                     std::uniform_int_distribution<int>(0, 4)(random_)});
  }
  std::vector<Fetched> Collect(bool waits) override {
    RunCopies();
    std::vector<Fetched> ended;
    for (auto it = open_.begin(); it != open_.end();) {
      const bool is_due = it->after <= num_run_ && it->num_copies <= num_copied_;
      EXPECT_TRUE(is_due || !waits) << "waits while a step is in flight";
      if (!is_due || (it->delay-- > 0 && !waits)) {
        ++it;
        continue;
      }
      ended.push_back(End(*it));
      it = open_.erase(it);
    }
    return ended;
  }
  void Finish() override { RunCopies(); }

  // The executor reports that steps were submitted, and that they ran.
  void OnSubmit() { ++num_submitted_; }
  void OnRun() {
    RunCopies();
    ++num_run_;
  }
  int64_t num_lost() const { return num_lost_; }

 private:
  struct Place {
    uint64_t serial = 0;
    std::vector<int32_t> tokens;
  };
  struct Copy {
    int32_t from;
    int32_t to;
    uint64_t serial;
    int64_t after;  // this number of steps
  };
  struct Open {
    uint64_t ticket;
    std::vector<Transfer> transfers;
    int64_t after;
    size_t num_copies;
    int delay;
  };

  void RunCopies() {
    for (; !copies_.empty() && copies_.front().after <= num_run_; copies_.pop_front()) {
      const Copy& copy = copies_.front();
      Place& to = places_[copy.to - num_blocks_];
      to.serial = copy.serial;
      if (copy.from < num_blocks_) {
        const auto begin = cache_->begin() + static_cast<ptrdiff_t>(copy.from) * block_size_;
        to.tokens.assign(begin, begin + block_size_);
      } else {
        EXPECT_EQ(places_[copy.from - num_blocks_].serial, copy.serial);
        to.tokens = places_[copy.from - num_blocks_].tokens;
      }
      ++num_copied_;
    }
  }
  Fetched End(const Open& open) {
    Fetched fetched = {open.ticket, {}, 0.0};
    for (const Transfer& transfer : open.transfers) {
      const Place& place = places_[transfer.from - num_blocks_];
      EXPECT_EQ(place.serial, transfer.serial);
      const bool is_in_file = transfer.from >= num_blocks_ + num_host_;
      if (is_in_file && random_() % 8 == 0) {
        fetched.lost.push_back(transfer.from);
        ++num_lost_;
        continue;
      }
      std::copy(place.tokens.begin(), place.tokens.end(),
                cache_->begin() + static_cast<ptrdiff_t>(transfer.block) * block_size_);
    }
    return fetched;
  }

  std::vector<int32_t>* const cache_;
  const int32_t num_blocks_;
  const int32_t block_size_;
  const int32_t num_host_;
  const int32_t num_file_;
  std::vector<Place> places_;
  std::mt19937 random_;
  std::deque<Copy> copies_;
  std::deque<Open> open_;
  mutable int64_t num_questions_ = 0;
  size_t num_copied_ = 0;
  int64_t num_submitted_ = 0;
  int64_t num_run_ = 0;
  int64_t num_lost_ = 0;
};

}  // namespace nereid::llm::testing
