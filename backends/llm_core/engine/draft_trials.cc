// Lengths of trials and of the rests between them.
#include "backends/llm_core/engine/draft_trials.h"

#include <algorithm>
#include <utility>

namespace nereid::llm {
namespace {

// A trial of chains goes on until so many outcomes are known: fewer say little, and the rest after
// a trial in vain is long. It ends early if hardly any of the first ones was accepted.
constexpr int32_t kOutcomes = 12, kFewOutcomes = 6, kOutcomesIfHalf = 48;
constexpr int32_t kHardlyAny = 1;
// Before a trial, hidden states are read in so many steps, of so few sequences. After each trial in
// vain, the rest is twice as long, up to a limit.
constexpr int32_t kReadSteps = 16;
constexpr size_t kReadSequences = 4;
constexpr int32_t kLongestRest = 1024;
// Plain steps that are delayed before a rest begins.
constexpr int32_t kDelayedSteps = 8;

}  // namespace

size_t DraftTrials::BeginPlan(size_t num_running, bool is_crowded) {
  if (std::exchange(is_trial_, false) && !drafts_trees_) JudgeChains();
  if (is_crowded) {
    is_resting_ = true;
    num_read_steps_ = 0;
  }
  const size_t num_read = is_reading() ? kReadSequences : 0;
  if (is_reading()) ++num_read_steps_;
  return is_resting_ ? num_read : num_running;
}

void DraftTrials::BeginReading() {
  num_read_steps_ = std::max(num_read_steps_, 1);
}

bool DraftTrials::MustReadFirst() {
  if (!is_resting_ || num_read_steps_ > kReadSteps) return false;
  BeginReading();
  return true;
}

void DraftTrials::GiveUpIfRead() {
  if (num_read_steps_ > kReadSteps) Rest(num_accepted_ == 0);
}

void DraftTrials::PutOff() {
  if (is_reading()) Rest(num_accepted_ == 0);
}

void DraftTrials::EndRest() {
  is_resting_ = false;
  num_read_steps_ = 0;
}

void DraftTrials::RecordOutcome(int32_t num_drafts, int32_t num_accepted) {
  if (!is_trial_) return;
  num_outcomes_ += num_accepted + (num_accepted < num_drafts ? 1 : 0);
  num_accepted_ += num_accepted;
}

int32_t DraftTrials::num_steps_to_read() const {
  return is_resting_ ? std::max(0, kReadSteps - num_read_steps_) : 0;
}

bool DraftTrials::is_undecided() const {
  return is_resting_ && !drafts_trees_ && num_outcomes_ > 0 && num_outcomes_ < kOutcomes;
}

void DraftTrials::RecordPlain(double lost) {
  ++num_plain_steps_;
  if (!may_rest_ || is_resting_) return;
  gained_ -= lost;
  if (num_plain_steps_ >= (lost > 0.0 ? kDelayedSteps : kStepsBetween)) BeginRest();
}

// While the drafts between two rests gain nothing, the rests grow as after trials in vain.
void DraftTrials::BeginRest() {
  is_resting_ = true;
  if (!std::exchange(has_drafted_, false)) return;
  if (gained_ > 0.0) {
    num_rest_steps_ = 0;
  } else if (num_rest_steps_ > 0) {
    Rest(true);
  }
}

void DraftTrials::RecordDrafted(int32_t num_drafts, int32_t num_accepted, double gained) {
  num_plain_steps_ = 0;
  if (!is_trial_) {
    if (!std::exchange(has_drafted_, true)) gained_ = 0.0;
    gained_ += gained;
    num_steps_to_trial_ = kStepsBetween;
  } else {
    num_steps_to_trial_ = 0;
    if (drafts_trees_) {
      if (num_accepted == 0) Rest(true);
    } else if (num_drafts == 0) {
      ++num_outcomes_;  // nothing was likely enough
    }
  }
  if (!is_resting_) num_read_steps_ = 0;
}

void DraftTrials::JudgeChains() {
  const bool is_in_vain = num_outcomes_ >= kFewOutcomes && num_accepted_ <= kHardlyAny;
  const bool is_promising = 2 * num_accepted_ >= num_outcomes_;
  if (!is_in_vain && num_outcomes_ < (is_promising ? kOutcomesIfHalf : kOutcomes)) return;
  const bool is_all_accepted = num_accepted_ == num_outcomes_;
  num_outcomes_ = num_accepted_ = 0;
  if (!is_all_accepted) Rest(true);
}

void DraftTrials::Rest(bool is_longer) {
  if (!is_resting_) {
    num_rest_steps_ = kStepsBetween;
  } else if (is_longer || num_rest_steps_ == 0) {
    num_rest_steps_ = std::clamp(2 * num_rest_steps_, kStepsBetween, kLongestRest);
  }
  num_steps_to_trial_ = num_plain_steps_ + num_rest_steps_;
  num_read_steps_ = 0;
}

}  // namespace nereid::llm
