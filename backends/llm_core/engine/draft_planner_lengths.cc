// Draft lengths from measured costs and acceptance.
#include <algorithm>
#include <array>

#include "backends/llm_core/engine/draft_planner.h"

namespace nereid::llm {
namespace {

// Acceptance of a class of proposals before any is measured. Longer matches have higher classes.
constexpr std::array<float, AcceptanceRates::kNumClasses> kPriors = {0.4f, 0.6f, 0.75f, 0.85f};
constexpr float kEngineWeight = 4.0f;    // outcomes that the prior of the engine's rate weighs
constexpr float kSequenceWeight = 3.0f;  // outcomes that the engine's rate weighs for a sequence
// The yield of a step with drafts must exceed that of a plain step by this factor.
constexpr double kLeastGain = 1.03;
// The drafts that the sums of expected and accepted drafts are taken to have before any is counted.
constexpr double kPriorSum = 4.0;
// What a draft of a costly drafter takes before any was measured, in units of a plain step.
constexpr double kGuessedDraft = 0.1;
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

// Tokens that `num_drafts` drafts add to a step if each is accepted at this rate.
double ExpectedAccepted(double rate, int32_t num_drafts) {
  double sum = 0.0;
  double all = 1.0;
  for (int32_t i = 0; i < num_drafts; ++i) sum += all *= rate;
  return sum;
}

}  // namespace

float DraftPlanner::RateOf(const Sequence& sequence) const {
  const int32_t match_class = sequence.drafts->match_class;
  const float engine_rate = acceptance_.Estimate(match_class, kPriors[match_class], kEngineWeight);
  if (trials_.is_long_ago() && options_.drafter->is_costly()) {
    return engine_rate;  // what is known of the sequence is old
  }
  return sequence.drafts->acceptance.Estimate(match_class, engine_rate, kSequenceWeight);
}

int32_t DraftPlanner::NumBehind(const Sequence& sequence) const {
  const int32_t num_unseen = options_.drafter->reads_hidden_states()
                                 ? sequence.drafts->num_observed
                                 : sequence.num_known() - sequence.drafts->num_seen;
  return num_unseen > kMostUnseenOfStep ? num_unseen : 0;
}

double DraftPlanner::CatchUpSeconds(const Sequence& sequence) const {
  return NumBehind(sequence) * draft_times_.OfUnseen();
}

// Of some limits that all sequences share, those with the greatest yield win: of chains, the least
// probability with which a draft is reached, and the most drafts; of trees, the most drafts.
void DraftPlanner::ChooseLengths(int32_t num_decoding, int32_t budget) {
  rates_.clear();
  longest_.clear();
  for (const Sequence* sequence : drafting_) {
    rates_.push_back(proposes_trees() ? TreeFactorOf(*sequence) : RateOf(*sequence));
    longest_.push_back(sequence->num_drafts);
  }
  Choice choice;
  choice.lengths.assign(drafting_.size(), 0);
  // Nothing is verified in a step that is measured without drafts.
  if (!costs_.NeedsPlainStep(num_decoding)) {
    int32_t most_together = std::min(budget, costs_.LongestTrial(num_decoding));
    if (is_costly()) {
      SkipCostlyCatchUps(num_decoding);
      if (!acceptance_.IsMeasured(0)) most_together = std::min(most_together, kFirstDrafts);
    }
    if (proposes_trees()) {
      ConsiderTrees(num_decoding, most_together, choice);
    } else {
      ConsiderChains(num_decoding, most_together, choice);
    }
    if (choice.expected == 0.0 && budget >= kTrialDrafts) ConsiderTrial(num_decoding, choice);
    // Any drafts are a trial if the acceptance was measured long ago.
    const bool is_old = counts_.num_drafted >= kColdDrafts && !acceptance_.IsMeasured(0);
    if (is_old || trials_.is_undecided()) trials_.BeginTrial();
  }
  expected_ = choice.expected;
  size_t last = 0;  // that gets drafts
  for (size_t n = 0; n < drafting_.size(); ++n) {
    if (choice.lengths[InTurn(n)] > 0) last = n;
  }
  first_considered_ = InTurn(last + 1);
  for (size_t i = 0; i < drafting_.size(); ++i) {
    drafting_[i]->num_drafts = choice.lengths[i];
    const bool is_left_out = choice.lengths[i] == 0 && choice.expected > 0.0 && is_costly();
    if (is_left_out) drafting_[i]->drafts->acceptance.Fade(kLeftOutMemory);
  }
}

// Later steps gain from it, if drafts pay at all.
bool DraftPlanner::MayCatchUp(double seconds, double plain) const {
  return acceptance_.IsMeasured(0) ? account_.MayInvest(seconds, plain) : account_.CanRisk(seconds);
}

void DraftPlanner::SkipCostlyCatchUps(int32_t num_decoding) {
  const double plain = costs_.PlainSeconds(num_decoding) / num_decoding;
  const int64_t most = options_.drafter->max_catch_up();
  double together = 0.0;
  int64_t num_together = 0;  // tokens
  size_t num_left = draft_times_.OfUnseen() > 0.0 ? drafting_.size() : kFirstCatchUps;
  for (size_t n = 0; n < drafting_.size(); ++n) {
    const size_t i = InTurn(n);
    Sequence& sequence = *drafting_[i];
    const int32_t num_behind = NumBehind(sequence);
    if (num_behind == 0) continue;
    const double seconds = num_behind * draft_times_.OfUnseen();
    const double left = sequence.num_max_tokens - sequence.num_tokens();
    if (seconds > kGainOfCatchUp * left * plain) sequence.num_drafts = 0;
    const bool is_too_much =
        num_left == 0 || (num_together > 0 && num_together + num_behind > most);
    // Half of what may be lost is left for the drafts.
    const double risked = 2.0 * (together + seconds);
    const bool is_affordable = seconds == 0.0 || MayCatchUp(risked, num_decoding * plain);
    if (sequence.num_drafts == 0 || is_too_much || !is_affordable) {
      longest_[i] = 0;
      if (!is_affordable && together == 0.0) account_.SaveFor(risked);
    } else {
      together += seconds;
      num_together += num_behind;
      --num_left;
    }
  }
}

void DraftPlanner::ConsiderChains(int32_t num_decoding, int32_t most_together, Choice& choice) {
  constexpr std::array<float, 6> kLeast = {0.7f, 0.5f, 0.3f, 0.15f, 0.06f, 0.02f};
  // The steps of some sizes are much cheaper than slightly longer ones, and a costly drafter takes
  // as long as its longest chain.
  constexpr std::array<int32_t, 5> kMost = {kMaxDraftTokens, 7, 3, 2, 1};
  constexpr size_t kFewSequences = 8;  // for more, lengths matter less one by one
  const size_t num_caps = drafting_.size() <= kFewSequences || is_costly() ? kMost.size() : 1;
  for (const int32_t most : std::span(kMost).first(num_caps)) {
    for (const float least : kLeast) {
      SetLengths(least, most, most_together);
      Consider(num_decoding, choice);
    }
  }
}

// What a drafter learns from the tokens behind its drafts pays in later steps only, so that drafts
// which are not direct are verified all together or not at all.
void DraftPlanner::ConsiderTrees(int32_t num_decoding, int32_t most_together, Choice& choice) {
  constexpr std::array<int32_t, 14> kSizes = {1,  2,  3,  4,  5,  7,  11,
                                              15, 23, 31, 47, 63, 95, kMaxTreeDrafts};
  for (const int32_t size : kSizes) {
    SetTreeSizes(size, /*only_direct=*/true, most_together);
    Consider(num_decoding, choice);
  }
  if (!options_.drafter->reads_row_tokens()) return;
  SetTreeSizes(kMaxTreeDrafts, /*only_direct=*/false, most_together);
  Consider(num_decoding, choice);
}

void DraftPlanner::SetTreeSizes(int32_t most, bool only_direct, int32_t most_together) {
  lengths_.assign(drafting_.size(), 0);
  for (size_t n = 0; n < drafting_.size() && most_together > 0; ++n) {
    const size_t i = InTurn(n);
    int32_t size = std::min<int32_t>({most, longest_[i], most_together});
    if (only_direct) size = std::min(size, drafting_[i]->drafts->num_direct);
    lengths_[i] = static_cast<uint8_t>(size);
    most_together -= size;
  }
}

double DraftPlanner::Expected(size_t i, int32_t num_drafts) const {
  if (!proposes_trees()) return ExpectedAccepted(rates_[i], num_drafts);
  const bool is_direct = num_drafts <= drafting_[i]->drafts->num_direct;
  return rates_[i] * yields_[is_direct ? 0 : 1].Of(num_drafts);
}

// In turn, another sequence is the first.
void DraftPlanner::SetLengths(float least, int32_t most, int32_t most_together) {
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

void DraftPlanner::Consider(int32_t num_decoding, Choice& choice) const {
  int32_t num_drafts = 0, num_drafting = 0, longest = 0;
  double expected = 0.0, catch_up = 0.0;
  bool is_measured = true;
  for (size_t i = 0; i < drafting_.size(); ++i) {
    if (lengths_[i] == 0) continue;
    catch_up += CatchUpSeconds(*drafting_[i]);
    ++num_drafting;
    num_drafts += lengths_[i];
    longest = std::max<int32_t>(longest, lengths_[i]);
    expected += Expected(i, lengths_[i]);
    is_measured &= acceptance_.IsMeasured(drafting_[i]->drafts->match_class);
  }
  if (num_drafts == 0) return;
  expected *= std::min(1.0, (sum_accepted_ + kPriorSum) / (sum_expected_ + kPriorSum));
  const double plain = costs_.PlainSeconds(num_decoding);
  const StepCost cost = costs_.Of(num_decoding, num_drafts);
  const double seconds = plain * cost.relative + DraftingSeconds(num_drafting, longest, plain);
  is_measured &= cost.is_measured;
  const double yield = (1.0 + expected / num_decoding) * plain / seconds;
  if (yield <= std::max(choice.yield, kLeastGain)) return;
  if (!MayTry(seconds - plain, plain, num_drafting, is_measured)) return;
  if (catch_up > 0.0 && !MayCatchUp(seconds - plain + catch_up, plain)) return;
  choice = {lengths_, yield, expected};
}

bool DraftPlanner::MayTry(double loss, double plain, int32_t num_drafting, bool is_measured) const {
  if (!is_measured) return account_.CanRisk(loss);
  const bool is_known = !is_costly() || draft_times_.IsMeasured(num_drafting);
  return is_known ? account_.MayGoOn(plain) : account_.MayInvest(loss, plain);
}

double DraftPlanner::DraftingSeconds(int32_t num_drafting, int32_t longest, double plain) const {
  if (!is_costly()) return 0.0;
  return draft_times_.Of(num_drafting, options_.drafter->DraftingSteps(longest),
                         kGuessedDraft * plain);
}

int32_t DraftPlanner::TrialLength(const Sequence& sequence) const {
  const int32_t most = sequence.num_drafts;
  if (!proposes_trees()) return std::min(kTrialLength, most);
  const int32_t num_direct = sequence.drafts->num_direct;
  return num_direct > 0 ? std::min({kTreeTrialLength, num_direct, most}) : most;
}

// Those that the drafter is least behind come first.
std::vector<size_t> DraftPlanner::SequencesToTry() const {
  std::vector<size_t> tried;
  for (size_t n = 0; n < drafting_.size(); ++n) {
    const size_t i = InTurn(n);
    if (drafting_[i]->num_drafts == 0) continue;
    if (trials_.is_reading() && !drafting_[i]->drafts->reads_hidden_states) continue;
    tried.push_back(i);
  }
  std::stable_sort(tried.begin(), tried.end(), [&](size_t a, size_t b) {
    return NumBehind(*drafting_[a]) < NumBehind(*drafting_[b]);
  });
  return tried;
}

double DraftPlanner::TrialSeconds(int32_t num_decoding, std::span<const size_t> tried) const {
  double catch_up = 0.0;
  int32_t num_drafts = 0, longest = 0;
  for (const size_t i : tried) {
    catch_up += CatchUpSeconds(*drafting_[i]);
    num_drafts += TrialLength(*drafting_[i]);
    longest = std::max(longest, TrialLength(*drafting_[i]));
  }
  const double plain = costs_.PlainSeconds(num_decoding);
  const double drafting = DraftingSeconds(static_cast<int32_t>(tried.size()), longest, plain);
  return plain * costs_.Of(num_decoding, num_drafts).relative + (drafting + catch_up);
}

void DraftPlanner::ConsiderTrial(int32_t num_decoding, Choice& choice) {
  if (!needs_trials() || !trials_.is_due()) return;
  std::vector<size_t> tried = SequencesToTry();
  if (tried.empty()) {
    trials_.GiveUpIfRead();
    return;
  }
  const double plain = costs_.PlainSeconds(num_decoding);
  const size_t most = std::min(tried.size(), proposes_trees() ? 1 : kTrialSequences);
  size_t count = 1;
  while (count < most && CatchUpSeconds(*drafting_[tried[count]]) <= kPartOfCatchUp * plain) {
    ++count;
  }
  tried.resize(count);
  const double waiting = trials_.num_steps_to_read() * costs_.IdleSeconds(num_decoding);
  const double risked = waiting + TrialSeconds(num_decoding, tried) - plain;
  if (!account_.CanRisk(risked)) {
    account_.SaveFor(risked);
    trials_.PutOff();
    return;
  }
  if (trials_.MustReadFirst()) return;
  for (const size_t i : tried) {
    choice.lengths[i] = static_cast<uint8_t>(TrialLength(*drafting_[i]));
    choice.expected += Expected(i, choice.lengths[i]);
  }
  trials_.BeginTrial();
}

}  // namespace nereid::llm
