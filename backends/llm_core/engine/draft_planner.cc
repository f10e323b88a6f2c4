// Draft lengths from measured costs and acceptance.
#include "backends/llm_core/engine/draft_planner.h"

#include <algorithm>
#include <array>

#include "backends/llm_core/prompt/prompt_embeddings.h"

namespace nereid::llm {
namespace {

// Acceptance of a class of proposals before any is measured. Longer matches have higher classes.
constexpr std::array<float, AcceptanceRates::kNumClasses> kPriors = {0.4f, 0.6f, 0.75f, 0.85f};
constexpr float kEngineWeight = 4.0f;    // outcomes that the prior of the engine's rate weighs
constexpr float kSequenceWeight = 3.0f;  // outcomes that the engine's rate weighs for a sequence
// The yield of a step with drafts must exceed that of a plain step by this factor.
constexpr double kLeastGain = 1.03;
constexpr double kNever = 1e9;

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
}

}  // namespace

bool DraftPlanner::MayPropose(const Sequence& sequence) const {
  if (options_.drafter == nullptr) return false;
  return sequence.request->embeddings == nullptr || options_.drafter->reads_virtual_tokens();
}

void DraftPlanner::Add(Sequence& sequence) const {
  const GenerationRequest& request = *sequence.request;
  if (!is_on() || !request.speculates || request.uses_beams()) return;
  if (!MayPropose(sequence) && request.draft_ids.empty() && !sequence.has_grammar) return;
  sequence.drafts = std::make_unique<SequenceDrafts>();
  for (const auto& sibling : sequence.siblings) Add(*sibling);
}

float DraftPlanner::RateOf(const Sequence& sequence) const {
  const int32_t match_class = sequence.drafts->match_class;
  const float engine_rate = acceptance_.Estimate(match_class, kPriors[match_class], kEngineWeight);
  return sequence.drafts->acceptance.Estimate(match_class, engine_rate, kSequenceWeight);
}

void DraftPlanner::Plan(std::span<const std::unique_ptr<Sequence>> running) {
  if (!is_on()) return;
  drafting_.clear();
  queries_.clear();
  int32_t num_decoding = 0;
  for (const std::unique_ptr<Sequence>& owned : running) {
    Sequence& sequence = *owned;
    const bool decodes = sequence.num_tokens() - sequence.num_cached == 1 && !sequence.is_suspended;
    num_decoding += decodes ? 1 : 0;
    if (sequence.drafts == nullptr) continue;
    SequenceDrafts& drafts = *sequence.drafts;
    sequence.num_drafts = 0;
    drafts.ids.clear();
    if (!decodes) continue;
    if (drafts.num_idle_steps < UINT8_MAX) ++drafts.num_idle_steps;
    const int32_t left = sequence.num_max_tokens - sequence.num_tokens() - 1;
    const int32_t most = std::min(options_.max_draft_tokens, left);
    // An accepted draft is not replaced.
    if (sequence.has_reasoning_budget && sequence.reasoning->IsDueWithin(int64_t{most} + 1)) {
      continue;
    }
    if (most <= 0) continue;
    if (sequence.num_pending == 0 && TakeClientDrafts(sequence, left)) {
      drafts.num_idle_steps = 0;
      continue;
    }
    if (!MayPropose(sequence)) continue;
    drafting_.push_back(&sequence);
    queries_.push_back({.tokens = std::span(sequence.token_ids).first(sequence.num_known()),
                        .max_drafts = most,
                        .state = &drafts.state,
                        .drafts = &drafts.ids});
  }
  if (queries_.empty()) return;
  options_.drafter->Propose(queries_);
  for (size_t i = 0; i < queries_.size(); ++i) {
    Sequence& sequence = *drafting_[i];
    CutBeforeVirtualToken(sequence);
    const auto num_drafts = static_cast<int32_t>(sequence.drafts->ids.size());
    sequence.drafts->match_class = queries_[i].match_class;
    sequence.num_drafts = static_cast<uint8_t>(std::min(num_drafts, queries_[i].max_drafts));
  }
  std::erase_if(drafting_, [](const Sequence* sequence) { return sequence->num_drafts == 0; });
  if (options_.adapts_length && !drafting_.empty()) ChooseLengths(num_decoding);
  for (Sequence* sequence : drafting_) {
    if (sequence->num_drafts > 0) sequence->drafts->num_idle_steps = 0;
    if (sequence->num_pending > 0) sequence->num_drafts = 0;
  }
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
  sequence.drafts->match_class = AcceptanceRates::kNumClasses - 1;
  sequence.num_drafts = static_cast<uint8_t>(count);
  return true;
}

// Two limits for all: `least` is the probability with which a draft must be reached to be verified,
// and `most` the length. Lower probabilities mean longer drafts. The limits with the greatest yield
// win.
void DraftPlanner::ChooseLengths(int32_t num_decoding) {
  constexpr std::array<float, 6> kLeast = {0.7f, 0.5f, 0.3f, 0.15f, 0.06f, 0.02f};
  // The steps of some sizes are much cheaper than slightly longer ones.
  constexpr std::array<int32_t, 4> kMost = {kMaxDraftTokens, 7, 3, 1};
  constexpr size_t kFewSequences = 8;  // for more, lengths matter less one by one
  rates_.clear();
  for (const Sequence* sequence : drafting_) rates_.push_back(RateOf(*sequence));
  const auto length_at = [this](size_t i, float least, int32_t most) {
    const int32_t longest = std::min<int32_t>(most, drafting_[i]->num_drafts);
    float reached = rates_[i];
    int32_t length = 0;
    while (length < longest && reached >= least) {
      ++length;
      reached *= rates_[i];
    }
    return length;
  };
  // Nothing is verified in a step that is measured without drafts.
  double best_yield = costs_.NeedsPlainStep(num_decoding) ? kNever : kLeastGain;
  float best_least = 2.0f;  // nothing is verified
  int32_t best_most = 0;
  const size_t num_caps = drafting_.size() <= kFewSequences ? kMost.size() : 1;
  for (const int32_t most : std::span(kMost).first(num_caps)) {
    for (const float least : kLeast) {
      int32_t num_drafts = 0;
      double expected = num_decoding;
      for (size_t i = 0; i < drafting_.size(); ++i) {
        const int32_t length = length_at(i, least, most);
        num_drafts += length;
        expected += ExpectedAccepted(rates_[i], length);
      }
      if (num_drafts == 0) continue;
      const double yield = expected / num_decoding / costs_.Relative(num_decoding, num_drafts);
      if (yield > best_yield) {
        best_yield = yield;
        best_least = least;
        best_most = most;
      }
    }
  }
  for (size_t i = 0; i < drafting_.size(); ++i)
    drafting_[i]->num_drafts = static_cast<uint8_t>(length_at(i, best_least, best_most));
}

void DraftPlanner::RecordAccepted(Sequence& sequence, int32_t num_drafts, int32_t num_accepted) {
  SequenceDrafts& drafts = *sequence.drafts;
  drafts.num_drafted += num_drafts;
  drafts.num_accepted += num_accepted;
  drafts.acceptance.Record(drafts.match_class, num_drafts, num_accepted);
  acceptance_.Record(drafts.match_class, num_drafts, num_accepted);
  counts_.num_drafted += num_drafts;
  counts_.num_accepted += num_accepted;
  ++counts_.num_verified_chains;
}

void DraftPlanner::RecordUnverified(Sequence& sequence, int32_t token) {
  SequenceDrafts& drafts = *sequence.drafts;
  if (drafts.ids.empty()) return;
  const int32_t num_accepted = drafts.ids.front() == token ? 1 : 0;
  drafts.acceptance.Record(drafts.match_class, 1, num_accepted);
  acceptance_.Record(drafts.match_class, 1, num_accepted);
  if (num_accepted == 0) {
    drafts.ids.clear();
  } else {
    drafts.ids.erase(drafts.ids.begin());
  }
}

}  // namespace nereid::llm
