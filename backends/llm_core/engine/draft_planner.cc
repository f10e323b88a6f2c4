// Draft lengths from measured costs and acceptance.
#include "backends/llm_core/engine/draft_planner.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backends/llm_core/prompt/prompt_embeddings.h"
#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::llm {
namespace {

// Acceptance of a class of proposals before any is measured. Longer matches have higher classes.
constexpr std::array<float, AcceptanceRates::kNumClasses> kPriors = {0.4f, 0.6f, 0.75f, 0.85f};
constexpr float kEngineWeight = 4.0f;    // outcomes that the prior of the engine's rate weighs
constexpr float kSequenceWeight = 3.0f;  // outcomes that the engine's rate weighs for a sequence
// The yield of a step with drafts must exceed that of a plain step by this factor.
constexpr double kLeastGain = 1.03;
// What a draft of a costly drafter takes before any was measured, in units of a plain step.
constexpr double kGuessedDraft = 0.1;
// Plain steps before a costly drafter is tried again.
constexpr int32_t kStepsBetweenProbes = 64;
constexpr int32_t kProbeLength = 2;
constexpr int32_t kTreeProbeLength = 8;
// A trial has drafts of so many sequences, in steps that follow each other, until so many outcomes
// are known: fewer say little, and the rest behind a trial in vain is long. It ends early if hardly
// any of the first ones was accepted.
constexpr size_t kProbeSequences = 4;
constexpr int32_t kProbeOutcomes = 12, kFewProbeOutcomes = 6;
constexpr int32_t kHardlyAny = 1;
// Sequences that a drafter catches up with in a step before it is known how long that takes.
constexpr size_t kFirstCatchUps = 8;
// The part of a step that a further sequence of a trial may take to catch up with it.
constexpr double kPartOfCatchUp = 0.02;
// While a drafter that reads hidden states rests, they are read in so many steps before it is tried
// again, and of so few sequences, one of which is tried. After each trial in vain, the rest is
// twice as long, up to a limit.
constexpr int32_t kReadSteps = 16;
constexpr size_t kReadSequences = 4;
constexpr int32_t kLongestRest = 1024;
// Drafts of a step before it is known whether those of a costly drafter are accepted.
constexpr int32_t kFirstDrafts = 8;
// Drafts before which the time to catch up with a sequence does not count as a loss.
constexpr int64_t kColdDrafts = 64;
// The part of a sequence's remaining time that a costly drafter may take to catch up with it.
constexpr double kGainOfCatchUp = 0.15;
// How much the sums of expected and accepted drafts keep in a step with drafts, and in one without;
// and the drafts that they are taken to have before.
constexpr double kMemoryOfSums = 0.95;
constexpr double kPlainMemoryOfSums = 0.99;
constexpr double kPriorSum = 4.0;
// How much the acceptance of a costly drafter, which is measured only by drafting, keeps in a step
// without drafts.
constexpr float kPlainMemoryOfRates = 0.998f;

// Tokens that `num_drafts` drafts add to a step if each is accepted at this rate.
double ExpectedAccepted(double rate, int32_t num_drafts) {
  double sum = 0.0;
  double all = 1.0;
  for (int32_t i = 0; i < num_drafts; ++i) sum += all *= rate;
  return sum;
}

// A lookup in the prompt may find what precedes a virtual token, which is never sampled.
void CutBeforeVirtualToken(Sequence& sequence) {
  const PromptEmbeddings* const embeddings = sequence.request->embeddings.get();
  if (embeddings == nullptr) return;
  std::vector<int32_t>& ids = sequence.drafts->ids;
  const auto is_virtual = [embeddings](int32_t id) { return embeddings->is_virtual(id); };
  ids.erase(std::find_if(ids.begin(), ids.end(), is_virtual), ids.end());
  if (!sequence.drafts->parents.empty()) sequence.drafts->parents.resize(ids.size());
}

}  // namespace

bool DraftPlanner::MayPropose(const Sequence& sequence) const {
  if (options_.drafter == nullptr) return false;
  return sequence.request->embeddings == nullptr || options_.drafter->reads_virtual_tokens();
}

void DraftPlanner::Add(Sequence& sequence) const {
  const GenerationRequest& request = *sequence.request;
  if (!is_on() || !request.speculates || request.uses_beams()) return;
  if (sequence.has_grammar && !options_.masks_drafts) return;
  if (!MayPropose(sequence) && request.draft_ids.empty() && !sequence.has_grammar) return;
  sequence.drafts = std::make_unique<SequenceDrafts>();
  sequence.drafts->reads_hidden_states =
      MayPropose(sequence) && !is_resting_ && options_.drafter->reads_hidden_states();
  for (const auto& sibling : sequence.siblings) Add(*sibling);
}

float DraftPlanner::RateOf(const Sequence& sequence) const {
  const int32_t match_class = sequence.drafts->match_class;
  const float engine_rate = acceptance_.Estimate(match_class, kPriors[match_class], kEngineWeight);
  if (num_plain_steps_ >= kStepsBetweenProbes && options_.drafter->is_costly()) {
    return engine_rate;  // what is known of the sequence is old
  }
  return sequence.drafts->acceptance.Estimate(match_class, engine_rate, kSequenceWeight);
}

void DraftPlanner::Plan(std::span<const std::unique_ptr<Sequence>> running) {
  if (!is_on()) return;
  draft_seconds_ = catch_up_seconds_ = expected_ = 0.0;
  if (std::exchange(is_probe_, false)) JudgeProbe();
  drafting_.clear();
  queries_.clear();
  int32_t num_decoding = 0;
  const bool reads_states = options_.drafter != nullptr && options_.drafter->reads_hidden_states();
  size_t num_to_read = running.size();
  const bool is_crowded = reads_states && options_.max_hidden_state_sequences > 0 &&
                          num_to_read > static_cast<size_t>(options_.max_hidden_state_sequences);
  if (is_crowded) {
    is_resting_ = true;
    num_read_steps_ = 0;
  }
  if (is_resting_) num_to_read = num_read_steps_ > 0 ? kReadSequences : 0;
  if (num_read_steps_ > 0) ++num_read_steps_;
  for (const std::unique_ptr<Sequence>& owned : running) {
    Sequence& sequence = *owned;
    const bool decodes = sequence.num_tokens() - sequence.num_cached == 1 && !sequence.is_suspended;
    num_decoding += decodes ? 1 : 0;
    if (sequence.drafts == nullptr) continue;
    SequenceDrafts& drafts = *sequence.drafts;
    if (reads_states && MayPropose(sequence)) {
      drafts.reads_hidden_states = num_to_read > 0;
      num_to_read -= num_to_read > 0 ? 1 : 0;
    }
    sequence.num_drafts = 0;
    drafts.ids.clear();
    drafts.parents.clear();
    drafts.logits = {};
    drafts.are_of_client = drafts.are_of_drafter = drafts.returns_row_tokens = false;
    if (!decodes) continue;
    if (drafts.num_idle_steps < UINT8_MAX) ++drafts.num_idle_steps;
    const int32_t left = sequence.num_max_tokens - sequence.num_tokens() - 1;
    const int32_t most =
        std::min({options_.max_draft_tokens, left,
                  proposes_trees() && options_.verifies_trees ? kMaxTreeDrafts : kMaxDraftTokens});
    // An accepted draft is not replaced.
    if (sequence.has_reasoning_budget && sequence.reasoning->IsDueWithin(int64_t{most} + 1)) {
      continue;
    }
    if (most <= 0) continue;
    if (sequence.num_pending == 0 && TakeClientDrafts(sequence, left)) {
      drafts.num_idle_steps = 0;
      continue;
    }
    if (!MayPropose(sequence) || is_crowded) continue;
    sequence.num_drafts = static_cast<uint8_t>(most);
    drafting_.push_back(&sequence);
  }
  if (drafting_.empty()) return;
  // What a costly drafter proposes is verified: its cost is part of the step's.
  if (is_costly() && options_.adapts_length) ChooseLengths(num_decoding);
  if (is_resting_) EndRest();
  Propose();
  if (!is_costly() && options_.adapts_length && !drafting_.empty()) ChooseLengths(num_decoding);
  for (Sequence* sequence : drafting_) {
    if (sequence->num_drafts > 0) sequence->drafts->num_idle_steps = 0;
    if (sequence->num_pending > 0) sequence->num_drafts = 0;
  }
}

void DraftPlanner::EndRest() {
  const auto is_chosen = [](const Sequence* sequence) { return sequence->num_drafts > 0; };
  const auto is_unknown = [](const Sequence* sequence) {
    return sequence->num_drafts > 0 && !sequence->drafts->reads_hidden_states;
  };
  const bool is_any_unknown = std::any_of(drafting_.begin(), drafting_.end(), is_unknown);
  if (is_any_unknown) expected_ = 0.0;  // the drafter knows nothing of these sequences yet
  if (is_probe_ || !acceptance_.IsMeasured(0)) {  // a trial
    if (!is_any_unknown) return;
    num_read_steps_ = std::max(num_read_steps_, 1);
    for (Sequence* sequence : drafting_) {
      if (is_unknown(sequence)) sequence->num_drafts = 0;
    }
  } else if (std::any_of(drafting_.begin(), drafting_.end(), is_chosen)) {
    is_resting_ = false;
    num_read_steps_ = 0;
  }
}

void DraftPlanner::RecordDrafting(double seconds) {
  draft_seconds_ = seconds;
  size_t longest = 0;
  int32_t num_caught_up = 0;
  for (size_t i = 0; i < queries_.size(); ++i) {
    longest = std::max(longest, queries_[i].drafts->size());
    num_caught_up += queries_[i].num_caught_up;
    drafting_[i]->drafts->num_seen = static_cast<int32_t>(queries_[i].tokens.size());
    drafting_[i]->drafts->num_observed = 0;
  }
  const auto num_queries = static_cast<int32_t>(queries_.size());
  const int32_t length = options_.drafter->DraftingSteps(static_cast<int32_t>(longest));
  if (num_caught_up == 0) {
    if (length > 0) draft_times_.Record(num_queries, length, seconds);
    return;
  }
  const double part = static_cast<double>(num_caught_up) / (num_caught_up + length * num_queries);
  catch_up_seconds_ = draft_times_.IsMeasured(num_queries)
                          ? std::max(0.0, seconds - draft_times_.Of(num_queries, length, 0.0))
                          : part * seconds;
  const double one = catch_up_seconds_ / num_caught_up;
  if (seconds_of_unseen_ == 0.0) {
    seconds_of_unseen_ = one;
  } else {  // as in StepCosts: delays say little
    seconds_of_unseen_ += (one < seconds_of_unseen_ ? 0.5 : 0.125) *
                          (std::min(one, 2.0 * seconds_of_unseen_) - seconds_of_unseen_);
  }
}

int32_t DraftPlanner::NumBehind(const Sequence& sequence) const {
  const int32_t num_unseen = options_.drafter->reads_hidden_states()
                                 ? sequence.drafts->num_observed
                                 : sequence.num_known() - sequence.drafts->num_seen;
  return num_unseen > kMaxDraftTokens + 1 ? num_unseen : 0;
}

void DraftPlanner::SkipCostlyCatchUps(int32_t num_decoding) {
  const double plain = costs_.PlainSeconds(num_decoding) / num_decoding;
  const int64_t most = options_.drafter->max_catch_up();
  double together = 0.0;
  int64_t num_together = 0;  // tokens
  size_t num_left = seconds_of_unseen_ > 0.0 ? drafting_.size() : kFirstCatchUps;
  for (size_t n = 0; n < drafting_.size(); ++n) {
    const size_t i = (n + num_plans_) % drafting_.size();
    Sequence& sequence = *drafting_[i];
    const int32_t num_behind = NumBehind(sequence);
    if (num_behind == 0) continue;
    const double seconds = num_behind * seconds_of_unseen_;
    const double left = sequence.num_max_tokens - sequence.num_tokens();
    if (seconds > kGainOfCatchUp * left * plain) sequence.num_drafts = 0;
    const bool is_too_much =
        num_left == 0 || (num_together > 0 && num_together + num_behind > most);
    // Half of what may be lost is left for the drafts.
    if (sequence.num_drafts == 0 || is_too_much ||
        (seconds > 0.0 && !account_.CanRisk(2.0 * (together + seconds)))) {
      longest_[i] = 0;
    } else {
      together += seconds;
      num_together += num_behind;
      --num_left;
    }
  }
}

void DraftPlanner::Propose() {
  std::erase_if(drafting_, [](const Sequence* sequence) { return sequence->num_drafts == 0; });
  for (Sequence* sequence : drafting_) {
    DraftQuery& query = queries_.emplace_back();
    query.tokens = std::span(sequence->token_ids).first(sequence->num_known());
    query.max_drafts = sequence->num_drafts;
    query.state = &sequence->drafts->state;
    query.num_prompt = sequence->num_prompt;
    query.sampling = &sequence->sampling();
    if (sequence->request->lookahead) query.lookahead = &*sequence->request->lookahead;
    if (sequence->num_tokens() < sequence->num_min_tokens) {
      query.banned_ids = sequence->request->stop.end_ids;
    }
    query.drafts = &sequence->drafts->ids;
    query.parents = &sequence->drafts->parents;
    query.takes_trees = options_.verifies_trees;
  }
  if (queries_.empty()) return;
  const double began = now_();
  options_.drafter->Propose(queries_);
  if (options_.drafter->is_costly()) RecordDrafting(now_() - began);
  for (size_t i = 0; i < queries_.size(); ++i) {
    Sequence& sequence = *drafting_[i];
    SequenceDrafts& drafts = *sequence.drafts;
    if (!IsTree(drafts.parents, drafts.ids.size())) {
      drafts.ids.clear();
      drafts.parents.clear();
    }
    CutBeforeVirtualToken(sequence);
    const auto num_drafts = static_cast<int32_t>(drafts.ids.size());
    drafts.match_class = queries_[i].match_class;
    drafts.num_direct = queries_[i].num_direct;
    drafts.are_of_drafter = true;
    drafts.returns_row_tokens = options_.verifies_trees && options_.drafter->reads_row_tokens();
    sequence.num_drafts = static_cast<uint8_t>(std::min(num_drafts, queries_[i].max_drafts));
  }
  std::erase_if(drafting_, [](const Sequence* sequence) { return sequence->num_drafts == 0; });
}

bool DraftPlanner::TakeClientDrafts(Sequence& sequence, int32_t most) {
  const TokenIds& all = sequence.request->draft_ids;
  const std::span<const int32_t> output = sequence.output_ids();
  if (output.size() >= all.size() || !std::equal(output.begin(), output.end(), all.begin())) {
    return false;
  }
  const auto count = std::min<size_t>({all.size() - output.size(), static_cast<size_t>(most),
                                       static_cast<size_t>(kMaxDraftTokens)});
  const auto first = all.begin() + static_cast<ptrdiff_t>(output.size());
  sequence.drafts->ids.assign(first, first + static_cast<ptrdiff_t>(count));
  sequence.drafts->are_of_client = true;
  if (const std::vector<float>& logits = sequence.request->draft_logits; !logits.empty()) {
    const size_t row_size = logits.size() / all.size();
    sequence.drafts->logits = std::span(logits).subspan(output.size() * row_size, count * row_size);
  }
  sequence.drafts->match_class = AcceptanceRates::kNumClasses - 1;
  sequence.num_drafts = static_cast<uint8_t>(count);
  return true;
}

// Two limits for all: `least` is the probability with which a draft must be reached to be verified,
// and `most` the length. Lower probabilities mean longer drafts. The limits with the greatest yield
// win.
void DraftPlanner::ChooseLengths(int32_t num_decoding) {
  ++num_plans_;
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
    int32_t most_together = costs_.LongestTrial(num_decoding);
    if (is_costly()) {
      SkipCostlyCatchUps(num_decoding);
      if (!acceptance_.IsMeasured(0)) most_together = std::min(most_together, kFirstDrafts);
    }
    if (proposes_trees()) {
      ConsiderTrees(num_decoding, most_together, choice);
    } else {
      ConsiderChains(num_decoding, most_together, choice);
    }
    if (choice.expected == 0.0) ConsiderProbe(num_decoding, choice);
    // Drafts on an acceptance that was measured long ago.
    is_probe_ |= counts_.num_drafted >= kColdDrafts && !acceptance_.IsMeasured(0);
  }
  expected_ = choice.expected;
  for (size_t i = 0; i < drafting_.size(); ++i) drafting_[i]->num_drafts = choice.lengths[i];
}

void DraftPlanner::ConsiderChains(int32_t num_decoding, int32_t most_together, Choice& choice) {
  constexpr std::array<float, 6> kLeast = {0.7f, 0.5f, 0.3f, 0.15f, 0.06f, 0.02f};
  // The steps of some sizes are much cheaper than slightly longer ones.
  constexpr std::array<int32_t, 4> kMost = {kMaxDraftTokens, 7, 3, 1};
  constexpr size_t kFewSequences = 8;  // for more, lengths matter less one by one
  const size_t num_caps = drafting_.size() <= kFewSequences ? kMost.size() : 1;
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
    const size_t i = (n + num_plans_) % drafting_.size();
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
    const size_t i = (n + num_plans_) % drafting_.size();
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
    catch_up += NumBehind(*drafting_[i]) * seconds_of_unseen_;
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
  double seconds = plain * cost.relative;
  is_measured &= cost.is_measured;
  if (is_costly()) {
    seconds += draft_times_.Of(num_drafting, options_.drafter->DraftingSteps(longest),
                               kGuessedDraft * plain);
    is_measured &= draft_times_.IsMeasured(num_drafting);
  }
  const double yield = (1.0 + expected / num_decoding) * plain / seconds;
  if (yield <= std::max(choice.yield, kLeastGain)) return;
  if (!(is_measured ? account_.MayGoOn(plain) : account_.CanRisk(seconds - plain))) return;
  if (catch_up > 0.0 && !account_.CanRisk(seconds - plain + catch_up)) return;
  choice = {lengths_, yield, expected};
}

int32_t DraftPlanner::ProbeLength(const Sequence& sequence) const {
  if (!proposes_trees()) return kProbeLength;
  const int32_t num_direct = sequence.drafts->num_direct;
  return num_direct > 0 ? std::min(kTreeProbeLength, num_direct) : kMaxTreeDrafts;
}

void DraftPlanner::ConsiderProbe(int32_t num_decoding, Choice& choice) {
  if (!needs_trials() || num_plain_steps_ < num_steps_to_probe_) return;
  std::vector<size_t> tried;  // those that the drafter is least behind come first
  for (size_t n = 0; n < drafting_.size(); ++n) {
    const size_t i = (n + num_plans_) % drafting_.size();
    if (drafting_[i]->num_drafts == 0) continue;
    if (num_read_steps_ > 0 && !drafting_[i]->drafts->reads_hidden_states) continue;
    tried.push_back(i);
  }
  if (tried.empty()) {
    if (num_read_steps_ > kReadSteps) RestFromProbes(num_probed_accepted_ == 0);
    return;
  }
  std::stable_sort(tried.begin(), tried.end(), [&](size_t a, size_t b) {
    return NumBehind(*drafting_[a]) < NumBehind(*drafting_[b]);
  });
  const auto length_of = [&](size_t i) {
    return std::min<int32_t>(ProbeLength(*drafting_[i]), drafting_[i]->num_drafts);
  };
  const double plain = costs_.PlainSeconds(num_decoding);
  const size_t most = proposes_trees() ? 1 : std::min(tried.size(), kProbeSequences);
  double catch_up = 0.0;
  int32_t num_drafts = 0, longest = 0;
  size_t count = 0;
  for (; count < most; ++count) {
    const double own = NumBehind(*drafting_[tried[count]]) * seconds_of_unseen_;
    if (count > 0 && own > kPartOfCatchUp * plain) break;
    catch_up += own;
    num_drafts += length_of(tried[count]);
    longest = std::max(longest, length_of(tried[count]));
  }
  double seconds = plain * costs_.Of(num_decoding, num_drafts).relative;
  if (is_costly()) {
    seconds += draft_times_.Of(static_cast<int32_t>(count),
                               options_.drafter->DraftingSteps(longest), kGuessedDraft * plain) +
               catch_up;
  }
  if (!account_.CanRisk(seconds - plain)) {
    if (num_read_steps_ > 0) RestFromProbes(num_probed_accepted_ == 0);  // the trial goes on then
    return;
  }
  if (is_resting_ && num_read_steps_ <= kReadSteps) {  // first, the drafter gets to know some
    num_read_steps_ = std::max(num_read_steps_, 1);
    return;
  }
  for (const size_t i : std::span(tried).first(count)) {
    choice.lengths[i] = static_cast<uint8_t>(length_of(i));
    choice.expected += Expected(i, choice.lengths[i]);
  }
  is_probe_ = true;
}

void DraftPlanner::RecordStep(int32_t num_sequences, int32_t num_drafts, int32_t num_accepted,
                              double seconds) {
  const double draft_seconds = std::exchange(draft_seconds_, 0.0);
  costs_.Record(num_sequences, num_drafts, seconds - draft_seconds);
  const bool is_plain = num_drafts == 0 && draft_seconds == 0.0;
  const double memory = is_plain ? kPlainMemoryOfSums : kMemoryOfSums;
  sum_expected_ *= memory;
  sum_accepted_ *= memory;
  const double expected = std::exchange(expected_, 0.0);
  if (is_plain) {
    is_resting_ |= ++num_plain_steps_ >= kStepsBetweenProbes && options_.drafter != nullptr &&
                   options_.drafter->reads_hidden_states() && options_.adapts_length;
    if (needs_trials()) acceptance_.Fade(kPlainMemoryOfRates);
    if (proposes_trees()) {
      for (TreeYields& yields : yields_) yields.Fade(kPlainMemoryOfRates);
    }
    account_.RecordPlain(seconds);
    return;
  }
  num_plain_steps_ = 0;
  if (is_probe_ && !proposes_trees()) {
    if (num_drafts == 0) ++num_probed_;  // nothing was likely enough
    num_steps_to_probe_ = 0;
  } else if (is_probe_) {
    num_steps_to_probe_ = 0;
    if (num_accepted == 0) RestFromProbes(true);
  } else {
    num_rest_steps_ = 0;
    num_steps_to_probe_ = kStepsBetweenProbes;
  }
  if (!is_resting_) num_read_steps_ = 0;
  if (expected > 0.0) {
    sum_expected_ += expected;
    sum_accepted_ += num_accepted;
  }
  const double plain = costs_.PlainSeconds(num_sequences);
  if (plain > 0.0)
    account_.RecordDrafted(seconds, plain, num_sequences, num_sequences + num_accepted);
}

// While its outcomes are few, a trial goes on at once. That of a tree is a single step.
void DraftPlanner::JudgeProbe() {
  if (proposes_trees()) return;
  const bool is_in_vain = num_probed_ >= kFewProbeOutcomes && num_probed_accepted_ <= kHardlyAny;
  if (!is_in_vain && num_probed_ < kProbeOutcomes) return;
  const bool is_all_accepted = num_probed_accepted_ == num_probed_;
  num_probed_ = num_probed_accepted_ = 0;
  if (!is_all_accepted) RestFromProbes(true);
}

void DraftPlanner::RestFromProbes(bool is_longer) {
  if (!is_resting_) {
    num_rest_steps_ = kStepsBetweenProbes;
  } else if (is_longer || num_rest_steps_ == 0) {
    num_rest_steps_ = std::clamp(2 * num_rest_steps_, kStepsBetweenProbes, kLongestRest);
  }
  num_steps_to_probe_ = num_plain_steps_ + num_rest_steps_;
  num_read_steps_ = 0;
}

}  // namespace nereid::llm
