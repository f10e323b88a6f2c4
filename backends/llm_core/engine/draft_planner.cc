// The drafts of a step: the client's, or what the drafter proposes.
#include "backends/llm_core/engine/draft_planner.h"

#include <algorithm>

#include "backends/llm_core/prompt/prompt_embeddings.h"
#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::llm {
namespace {

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
      MayPropose(sequence) && !trials_.is_resting() && options_.drafter->reads_hidden_states();
  for (const auto& sibling : sequence.siblings) Add(*sibling);
}

void DraftPlanner::Plan(std::span<const std::unique_ptr<Sequence>> running, int32_t budget) {
  if (!is_on()) return;
  draft_seconds_ = expected_ = 0.0;
  drafting_.clear();
  queries_.clear();
  const int32_t num_decoding = ChooseSequences(running);
  if (drafting_.empty()) return;
  // What a costly drafter proposes is verified: its cost is part of the step's.
  if (is_costly() && options_.adapts_length) ChooseLengths(num_decoding, budget);
  if (trials_.is_resting()) EndRest();
  Propose();
  if (!is_costly() && options_.adapts_length && !drafting_.empty())
    ChooseLengths(num_decoding, budget);
  for (Sequence* sequence : drafting_) {
    if (sequence->num_drafts > 0) sequence->drafts->num_idle_steps = 0;
    if (sequence->num_pending > 0) sequence->num_drafts = 0;
  }
}

int32_t DraftPlanner::ChooseSequences(std::span<const std::unique_ptr<Sequence>> running) {
  const bool reads_states = options_.drafter != nullptr && options_.drafter->reads_hidden_states();
  const bool is_crowded = reads_states && options_.max_hidden_state_sequences > 0 &&
                          running.size() > static_cast<size_t>(options_.max_hidden_state_sequences);
  size_t num_to_read = trials_.BeginPlan(running.size(), is_crowded);
  int32_t num_decoding = 0;
  int64_t num_cached = 0;
  for (const std::unique_ptr<Sequence>& owned : running) {
    Sequence& sequence = *owned;
    num_decoding += sequence.decodes_next() ? 1 : 0;
    num_cached += sequence.decodes_next() ? sequence.num_cached : 0;
    if (sequence.drafts == nullptr) continue;
    if (reads_states && MayPropose(sequence)) {
      sequence.drafts->reads_hidden_states = num_to_read > 0;
      num_to_read -= num_to_read > 0 ? 1 : 0;
    }
    sequence.num_drafts = 0;
    sequence.drafts->ClearProposal();
    if (sequence.decodes_next()) AllowDrafts(sequence, !is_crowded);
  }
  measured_.SetContext(num_cached);
  return num_decoding;
}

void DraftPlanner::AllowDrafts(Sequence& sequence, bool may_propose) {
  SequenceDrafts& drafts = *sequence.drafts;
  if (drafts.num_idle_steps < UINT8_MAX) ++drafts.num_idle_steps;
  const int32_t left = sequence.max_drafts();
  const bool takes_trees = proposes_trees() && options_.verifies_trees;
  const int32_t most =
      std::min({options_.max_draft_tokens, left, takes_trees ? kMaxTreeDrafts : kMaxDraftTokens});
  if (most <= 0) return;
  // A draft that is accepted is not replaced by a token that ends the reasoning.
  if (sequence.has_reasoning_budget && sequence.reasoning->IsDueWithin(int64_t{most} + 1)) return;
  if (sequence.num_pending == 0 && TakeClientDrafts(sequence, left)) {
    drafts.num_idle_steps = 0;
  } else if (may_propose && MayPropose(sequence)) {
    sequence.num_drafts = static_cast<uint8_t>(most);
    drafting_.push_back(&sequence);
  }
}

void DraftPlanner::ChooseLengths(int32_t num_decoding, int32_t budget) {
  expected_ = lengths_.Choose(drafting_, num_decoding, budget, counts_.num_drafted);
}

void DraftPlanner::EndRest() {
  const auto is_chosen = [](const Sequence* sequence) { return sequence->num_drafts > 0; };
  const auto is_unknown = [](const Sequence* sequence) {
    return sequence->num_drafts > 0 && !sequence->drafts->reads_hidden_states;
  };
  const bool is_any_unknown = std::any_of(drafting_.begin(), drafting_.end(), is_unknown);
  if (is_any_unknown) expected_ = 0.0;  // the drafter knows nothing of these sequences yet
  if (trials_.is_trial() || !measured_.IsAcceptanceMeasured()) {  // a trial
    if (!is_any_unknown) return;
    trials_.BeginReading();
    for (Sequence* sequence : drafting_) {
      if (is_unknown(sequence)) sequence->num_drafts = 0;
    }
  } else if (std::any_of(drafting_.begin(), drafting_.end(), is_chosen)) {
    trials_.EndRest();
  }
}

void DraftPlanner::Propose() {
  std::erase_if(drafting_, [](const Sequence* sequence) { return sequence->num_drafts == 0; });
  if (drafting_.empty()) return;
  for (Sequence* sequence : drafting_) queries_.push_back(QueryFor(*sequence));
  const double began = now_();
  options_.drafter->Propose(queries_);
  if (options_.drafter->is_costly()) RecordDrafting(now_() - began);
  for (size_t i = 0; i < queries_.size(); ++i) TakeProposal(queries_[i], *drafting_[i]);
  std::erase_if(drafting_, [](const Sequence* sequence) { return sequence->num_drafts == 0; });
}

DraftQuery DraftPlanner::QueryFor(Sequence& sequence) const {
  DraftQuery query;
  query.tokens = std::span(sequence.token_ids).first(sequence.num_known());
  query.max_drafts = sequence.num_drafts;
  query.state = &sequence.drafts->state;
  query.num_prompt = sequence.num_prompt;
  query.sampling = &sequence.sampling();
  if (sequence.request->lookahead) query.lookahead = &*sequence.request->lookahead;
  query.banned_ids = sequence.banned_ids();
  query.drafts = &sequence.drafts->ids;
  query.parents = &sequence.drafts->parents;
  query.takes_trees = options_.verifies_trees;
  return query;
}

void DraftPlanner::TakeProposal(const DraftQuery& query, Sequence& sequence) const {
  SequenceDrafts& drafts = *sequence.drafts;
  if (!IsTree(drafts.parents, drafts.ids.size())) {
    drafts.ids.clear();
    drafts.parents.clear();
  }
  CutBeforeVirtualToken(sequence);
  const auto num_drafts = static_cast<int32_t>(drafts.ids.size());
  drafts.match_class = query.match_class;
  drafts.num_direct = query.num_direct;
  drafts.are_of_drafter = true;
  drafts.returns_row_tokens = options_.verifies_trees && options_.drafter->reads_row_tokens();
  sequence.num_drafts = static_cast<uint8_t>(std::min(num_drafts, query.max_drafts));
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

}  // namespace nereid::llm
