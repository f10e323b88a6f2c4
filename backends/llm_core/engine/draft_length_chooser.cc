// See draft_length_chooser.h, which says in which order lengths are chosen.
#include "backends/llm_core/engine/draft_length_chooser.h"

#include <algorithm>
#include <array>

namespace nereid::llm {
namespace {

// The yield of a step with drafts must exceed that of a plain step by this factor.
constexpr double kLeastGain = 1.03;
// Drafts of a step before it is known whether those of a costly drafter are accepted.
constexpr int32_t kFirstDrafts = 8;
// Verified drafts after which an acceptance that does not count as measured is an old one.
constexpr int64_t kColdDrafts = 64;
// How much the acceptance of a sequence keeps in a step in which only others have drafts of a
// costly drafter: nothing else measures it again.
constexpr float kLeftOutMemory = 0.9f;
// Drafts of a sequence in a trial, and the most sequences in one.
constexpr int32_t kTrialLength = 2, kTreeTrialLength = 8;
constexpr size_t kTrialSequences = 4;
constexpr int32_t kTrialDrafts = 8;  // of all sequences
// The part of a step that a drafter may take to catch up with each further sequence of a trial.
constexpr double kPartOfCatchUp = 0.02;
// Sequences that a drafter catches up with in a step before it is known how long that takes.
constexpr size_t kFirstCatchUps = 8;
// The part of a sequence's remaining time that a costly drafter may take to catch up with it.
constexpr double kGainOfCatchUp = 0.15;

}  // namespace

double DraftLengthChooser::Choose(std::span<Sequence* const> drafting, int32_t num_decoding,
                                  int32_t budget, int64_t num_verified) {
  drafting_ = drafting;
  num_decoding_ = num_decoding;
  plain_seconds_ = measured_.costs().PlainSeconds(num_decoding);
  rates_.clear();
  longest_.clear();
  for (const Sequence* sequence : drafting_) {
    rates_.push_back(measured_.RateOf(*sequence, trials_.is_long_ago()));
    longest_.push_back(sequence->num_drafts);
  }
  Choice choice;
  choice.lengths.assign(drafting_.size(), 0);
  if (!measured_.costs().NeedsPlainStep(num_decoding)) {
    int32_t most_together = std::min(budget, measured_.costs().MostDrafts(num_decoding));
    if (drafter_->is_costly()) {
      SkipCostlyCatchUps();
      if (!measured_.IsAcceptanceMeasured()) most_together = std::min(most_together, kFirstDrafts);
    }
    if (drafter_->proposes_trees()) {
      ConsiderTrees(most_together, choice);
    } else {
      ConsiderChains(most_together, choice);
    }
    if (choice.expected == 0.0 && budget >= kTrialDrafts) ConsiderTrial(choice);
    // Any drafts are a trial if the acceptance was measured long ago.
    const bool is_old = num_verified >= kColdDrafts && !measured_.IsAcceptanceMeasured();
    if (is_old || trials_.is_undecided()) trials_.BeginTrial();
  }
  Apply(choice);
  return choice.expected;
}

void DraftLengthChooser::Apply(const Choice& choice) {
  size_t last = 0;  // that gets drafts
  for (size_t n = 0; n < drafting_.size(); ++n) {
    if (choice.lengths[InTurn(n)] > 0) last = n;
  }
  first_considered_ = InTurn(last + 1);
  for (size_t i = 0; i < drafting_.size(); ++i) {
    drafting_[i]->num_drafts = choice.lengths[i];
    const bool is_left_out =
        choice.lengths[i] == 0 && choice.expected > 0.0 && drafter_->is_costly();
    if (is_left_out) drafting_[i]->drafts->acceptance.Fade(kLeftOutMemory);
  }
}

// Later steps gain from it, if drafts pay at all.
bool DraftLengthChooser::MayCatchUp(double seconds) const {
  return measured_.IsAcceptanceMeasured() ? measured_.account().MayInvest(seconds, plain_seconds_)
                                          : measured_.account().CanRisk(seconds);
}

void DraftLengthChooser::SaveFor(double seconds) {
  if (!drafter_->reads_hidden_states()) measured_.account().SaveFor(seconds);
}

void DraftLengthChooser::SkipCostlyCatchUps() {
  const double of_unseen = measured_.draft_times().OfUnseen();
  const double seconds_a_token = plain_seconds_ / num_decoding_;
  const int64_t most = drafter_->max_catch_up();
  double together = 0.0;
  int64_t num_together = 0;  // tokens
  size_t num_left = of_unseen > 0.0 ? drafting_.size() : kFirstCatchUps;
  for (size_t n = 0; n < drafting_.size(); ++n) {
    const size_t i = InTurn(n);
    Sequence& sequence = *drafting_[i];
    const int32_t num_behind = measured_.NumBehind(sequence);
    if (num_behind == 0) continue;
    const double seconds = num_behind * of_unseen;
    const double left = sequence.num_max_tokens - sequence.num_tokens();
    if (seconds > kGainOfCatchUp * left * seconds_a_token) sequence.num_drafts = 0;
    const bool is_too_much =
        num_left == 0 || (num_together > 0 && num_together + num_behind > most);
    // Half of what may be lost is left for the drafts.
    const double risked = 2.0 * (together + seconds);
    const bool is_affordable = seconds == 0.0 || MayCatchUp(risked);
    if (sequence.num_drafts == 0 || is_too_much || !is_affordable) {
      longest_[i] = 0;
      if (!is_affordable && together == 0.0) SaveFor(risked);
    } else {
      together += seconds;
      num_together += num_behind;
      --num_left;
    }
  }
}

void DraftLengthChooser::ConsiderChains(int32_t most_together, Choice& choice) {
  constexpr std::array<float, 6> kLeast = {0.7f, 0.5f, 0.3f, 0.15f, 0.06f, 0.02f};
  // The steps of some sizes are much cheaper than slightly longer ones, and a costly drafter takes
  // as long as its longest chain.
  constexpr std::array<int32_t, 5> kMost = {kMaxDraftTokens, 7, 3, 2, 1};
  constexpr size_t kFewSequences = 8;  // for more, lengths matter less one by one
  const bool limits_length = drafting_.size() <= kFewSequences || drafter_->is_costly();
  for (const int32_t most : std::span(kMost).first(limits_length ? kMost.size() : 1)) {
    for (const float least : kLeast) {
      SetLengths(least, most, most_together);
      Consider(choice);
    }
  }
}

// What a drafter learns from the tokens behind its drafts pays in later steps only, so that drafts
// which are not direct are verified all together or not at all.
void DraftLengthChooser::ConsiderTrees(int32_t most_together, Choice& choice) {
  constexpr std::array<int32_t, 14> kSizes = {1,  2,  3,  4,  5,  7,  11,
                                              15, 23, 31, 47, 63, 95, kMaxTreeDrafts};
  for (const int32_t size : kSizes) {
    SetTreeSizes(size, /*only_direct=*/true, most_together);
    Consider(choice);
  }
  if (!drafter_->reads_row_tokens()) return;
  SetTreeSizes(kMaxTreeDrafts, /*only_direct=*/false, most_together);
  Consider(choice);
}

void DraftLengthChooser::SetLengths(float least, int32_t most, int32_t most_together) {
  lengths_.assign(drafting_.size(), 0);
  for (size_t n = 0; n < drafting_.size() && most_together > 0; ++n) {
    const size_t i = InTurn(n);
    const int32_t longest = std::min<int32_t>({most, longest_[i], most_together});
    int32_t length = 0;
    for (float reached = rates_[i]; length < longest && reached >= least; reached *= rates_[i]) {
      ++length;
    }
    lengths_[i] = static_cast<uint8_t>(length);
    most_together -= length;
  }
}

void DraftLengthChooser::SetTreeSizes(int32_t most, bool only_direct, int32_t most_together) {
  lengths_.assign(drafting_.size(), 0);
  for (size_t n = 0; n < drafting_.size() && most_together > 0; ++n) {
    const size_t i = InTurn(n);
    int32_t size = std::min<int32_t>({most, longest_[i], most_together});
    if (only_direct) size = std::min(size, drafting_[i]->drafts->num_direct);
    lengths_[i] = static_cast<uint8_t>(size);
    most_together -= size;
  }
}

void DraftLengthChooser::Consider(Choice& choice) const {
  int32_t num_drafts = 0, num_drafting = 0, longest = 0;
  double expected = 0.0, catch_up = 0.0;
  bool is_measured = true;
  for (size_t i = 0; i < drafting_.size(); ++i) {
    if (lengths_[i] == 0) continue;
    const SequenceDrafts& drafts = *drafting_[i]->drafts;
    ++num_drafting;
    num_drafts += lengths_[i];
    longest = std::max<int32_t>(longest, lengths_[i]);
    catch_up += measured_.CatchUpSeconds(*drafting_[i]);
    expected += measured_.ExpectedAccepted(drafts, rates_[i], lengths_[i]);
    is_measured &= measured_.IsAcceptanceMeasured(drafts.match_class);
  }
  if (num_drafts == 0) return;
  expected = measured_.Corrected(expected);
  const StepCost cost = measured_.costs().Of(num_decoding_, num_drafts);
  is_measured &= cost.is_measured;
  const double seconds = plain_seconds_ * cost.relative +
                         measured_.DraftingSeconds(num_drafting, longest, plain_seconds_);
  const double yield = (1.0 + expected / num_decoding_) * plain_seconds_ / seconds;
  if (yield <= std::max(choice.yield, kLeastGain)) return;
  const double loss = seconds - plain_seconds_;
  if (!MayTry(loss, num_drafting, is_measured)) return;
  if (catch_up > 0.0 && !MayCatchUp(loss + catch_up)) return;
  choice = {lengths_, yield, expected};
}

bool DraftLengthChooser::MayTry(double loss, int32_t num_drafting, bool is_measured) const {
  const GainAccount& account = measured_.account();
  if (!is_measured) return account.CanRisk(loss);
  const bool is_known = !drafter_->is_costly() || measured_.draft_times().IsMeasured(num_drafting);
  return is_known ? account.MayGoOn(plain_seconds_) : account.MayInvest(loss, plain_seconds_);
}

void DraftLengthChooser::ConsiderTrial(Choice& choice) {
  const bool needs_trials = drafter_->is_costly() || drafter_->proposes_trees();
  if (!needs_trials || !trials_.is_due()) return;
  std::vector<size_t> tried = SequencesToTry();
  if (tried.empty()) {
    trials_.GiveUpIfRead();
    return;
  }
  const size_t most = std::min(tried.size(), drafter_->proposes_trees() ? 1 : kTrialSequences);
  const double most_catch_up = kPartOfCatchUp * plain_seconds_;
  size_t count = 1;
  while (count < most && measured_.CatchUpSeconds(*drafting_[tried[count]]) <= most_catch_up) {
    ++count;
  }
  tried.resize(count);
  const double waiting = trials_.num_steps_to_read() * measured_.costs().IdleSeconds(num_decoding_);
  const double risked = waiting + TrialSeconds(tried) - plain_seconds_;
  if (!measured_.account().CanRisk(risked)) {
    SaveFor(risked);
    trials_.PutOff();
    return;
  }
  if (trials_.MustReadFirst()) return;
  for (const size_t i : tried) {
    choice.lengths[i] = static_cast<uint8_t>(TrialLength(*drafting_[i]));
    choice.expected +=
        measured_.ExpectedAccepted(*drafting_[i]->drafts, rates_[i], choice.lengths[i]);
  }
  trials_.BeginTrial();
}

// Those that the drafter is least behind come first.
std::vector<size_t> DraftLengthChooser::SequencesToTry() const {
  std::vector<size_t> tried;
  for (size_t n = 0; n < drafting_.size(); ++n) {
    const size_t i = InTurn(n);
    if (drafting_[i]->num_drafts == 0) continue;
    if (trials_.is_reading() && !drafting_[i]->drafts->reads_hidden_states) continue;
    tried.push_back(i);
  }
  std::stable_sort(tried.begin(), tried.end(), [&](size_t a, size_t b) {
    return measured_.NumBehind(*drafting_[a]) < measured_.NumBehind(*drafting_[b]);
  });
  return tried;
}

double DraftLengthChooser::TrialSeconds(std::span<const size_t> tried) const {
  double catch_up = 0.0;
  int32_t num_drafts = 0, longest = 0;
  for (const size_t i : tried) {
    catch_up += measured_.CatchUpSeconds(*drafting_[i]);
    num_drafts += TrialLength(*drafting_[i]);
    longest = std::max(longest, TrialLength(*drafting_[i]));
  }
  const double drafting =
      measured_.DraftingSeconds(static_cast<int32_t>(tried.size()), longest, plain_seconds_);
  return plain_seconds_ * measured_.costs().Of(num_decoding_, num_drafts).relative +
         (drafting + catch_up);
}

int32_t DraftLengthChooser::TrialLength(const Sequence& sequence) const {
  const int32_t most = sequence.num_drafts;
  if (!drafter_->proposes_trees()) return std::min(kTrialLength, most);
  const int32_t num_direct = sequence.drafts->num_direct;
  return num_direct > 0 ? std::min({kTreeTrialLength, num_direct, most}) : most;
}

}  // namespace nereid::llm
