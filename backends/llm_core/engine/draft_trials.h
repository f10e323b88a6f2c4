// Decides when a drafter whose drafts have not paid is tried again, and when a trial ends. Needed
// for drafters whose acceptance is measured only by verifying drafts.
//
// A trial verifies a few drafts of a few sequences. After one in vain, nothing is tried for a
// number of plain steps (steps without drafts), which doubles up to a limit with each further one.
//
// Hidden states cost time even where no draft follows: a step that returns them cannot overlap with
// the next one. So a drafter that reads them rests while its drafts do not pay:
//
//   drafting -> resting   after some plain steps in a row, sooner if the states delayed them
//   resting  -> reading   when a trial is due: states of a few sequences are read for some steps
//   reading  -> trial     then drafts of these sequences are verified
//   trial    -> drafting  if drafts pay: the states of all sequences are read again
//   trial    -> resting   otherwise
//
// [engine thread]
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/llm_core/speculation/drafter.h"

namespace nereid::llm {

class DraftTrials {
 public:
  // Plain steps before a drafter is tried again.
  static constexpr int32_t kStepsBetween = 64;

  // `drafter`: null if there is none. `adapts_length`: see SpeculationOptions.
  DraftTrials(const Drafter* drafter, bool adapts_length)
      : drafts_trees_(drafter != nullptr && drafter->proposes_trees()),
        may_rest_(drafter != nullptr && drafter->reads_hidden_states() && adapts_length) {}

  // Called before each plan: ends the trial if it has told enough. `num_running`: the running
  // sequences. `is_crowded`: they are too many for drafts from hidden states. Returns the number of
  // sequences whose hidden states the next step returns, if the drafter reads them.
  size_t BeginPlan(size_t num_running, bool is_crowded);
  // Whether a trial may begin or go on.
  bool is_due() const { return num_plain_steps_ >= num_steps_to_trial_; }
  // Whether the last step with drafts was so long ago that rates of sequences mean little.
  bool is_long_ago() const { return num_plain_steps_ >= kStepsBetween; }
  // Whether hidden states are read of few sequences, or of none.
  bool is_resting() const { return is_resting_; }
  // Whether a rest is near its end, so that hidden states are read for the next trial.
  bool is_reading() const { return num_read_steps_ > 0; }
  // Steps in which hidden states are still to be read before the next trial.
  int32_t num_steps_to_read() const;
  // Whether the outcomes of the trial that goes on are too few to rely on.
  bool is_undecided() const;

  // During a rest: hidden states are read from the next step on.
  void BeginReading();
  // Returns whether a trial has to wait until the drafter has read hidden states, and begins to
  // read them.
  bool MustReadFirst();
  // The drafter has read hidden states as long as it should, and there is still nothing to try.
  void GiveUpIfRead();
  // A trial may cost too much now. It goes on later if it has begun.
  void PutOff();
  // The drafts of this plan are a trial.
  void BeginTrial() { is_trial_ = true; }
  bool is_trial() const { return is_trial_; }
  // Drafts pay again: hidden states are read of all sequences.
  void EndRest();

  // Of a sequence in a trial: so many of its drafts were verified and accepted.
  void RecordOutcome(int32_t num_drafts, int32_t num_accepted);
  // Record what a step had: no drafts, and no time of the drafter; or some. `lost`: the seconds for
  // which the executor was idle before the step because hidden states are read. With such steps, a
  // rest begins soon. `gained`: the seconds that the drafts saved, or took if negative.
  void RecordPlain(double lost = 0.0);
  void RecordDrafted(int32_t num_drafts, int32_t num_accepted, double gained = 0.0);

 private:
  // While its outcomes are few, a trial of chains goes on at once. That of a tree is a single step.
  void JudgeChains();
  // Nothing is tried for a while. `is_longer`: for twice as many steps as the last time.
  void Rest(bool is_longer);
  // Drafts of all sequences were not worth verifying for some steps.
  void BeginRest();

  const bool drafts_trees_;
  const bool may_rest_;
  int64_t num_plain_steps_ = 0;     // since the last step with drafts
  int64_t num_steps_to_trial_ = 0;  // plain steps before the next trial; 0 while one goes on
  int32_t num_rest_steps_ = 0;      // plain steps after the last trial in vain
  bool is_trial_ = false;           // the drafts of the last plan are a trial
  int32_t num_outcomes_ = 0;        // of this trial
  int32_t num_accepted_ = 0;        // of these
  bool is_resting_ = false;
  bool has_drafted_ = false;    // since the last rest, beyond trials
  double gained_ = 0.0;         // meanwhile, in seconds
  int32_t num_read_steps_ = 0;  // of a rest, in which hidden states are read for the next trial
};

}  // namespace nereid::llm
