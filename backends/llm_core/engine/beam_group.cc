// Applies the decisions of a beam search to sequences and KV blocks.
#include "backends/llm_core/engine/beam_group.h"

#include <utility>

namespace nereid::llm {

void BeamGroup::CreateFor(Sequence& first) {
  const std::shared_ptr<BeamGroup> group(new BeamGroup(*first.request));
  first.beams = group;
  group->beams_.push_back(&first);
  group->prompt_logits_ = first.kept_logits.get();
  for (const auto& sibling : first.siblings) {
    sibling->beams = group;
    group->suspended_.push_back(sibling.get());
  }
}

int64_t BeamGroup::Apply(Sequence& beam, std::vector<SampledToken> candidates,
                         Scheduler& scheduler) {
  beam.candidates = std::move(candidates);
  if (++num_ready_ < static_cast<int32_t>(beams_.size())) return 0;
  num_ready_ = 0;
  std::vector<BeamView> views;
  for (const Sequence* each : beams_) {
    BeamView& view = views.emplace_back();
    view.output_ids = each->output_ids();
    view.log_probs = each->log_probs;
    view.cum_log_prob = each->cum_log_prob;
    view.candidates = each->candidates;
    if (each->kept_logits == nullptr) continue;
    view.logits = each->kept_logits->beam_logits;
    view.step_logits = each->kept_logits->step_logits;
  }
  const std::vector<BeamContinuation> next = search_.Advance(views);
  if (!next.empty()) {
    ApplyContinuations(next, scheduler);
    return static_cast<int64_t>(next.size());
  }
  if (search_.finished().empty()) {
    is_stuck_ = true;
    return 0;
  }
  is_over_ = true;
  EmitHypotheses();
  for (const std::vector<Sequence*>* list : {&beams_, &suspended_}) {
    for (Sequence* sequence : *list) sequence->finish = FinishReason::kStop;
  }
  return 0;
}

void BeamGroup::AppendSequences(std::vector<const Sequence*>& sequences) const {
  sequences.insert(sequences.end(), beams_.begin(), beams_.end());
  sequences.insert(sequences.end(), suspended_.begin(), suspended_.end());
}

// The first continuation of a beam reuses the beam's own sequence. The others fork from it before
// it changes. Beams without a continuation release their blocks before any fork allocates.
void BeamGroup::ApplyContinuations(std::span<const BeamContinuation> next, Scheduler& scheduler) {
  std::vector<const BeamContinuation*> first_of(beams_.size(), nullptr);
  for (const BeamContinuation& continuation : next) {
    const BeamContinuation*& first = first_of[continuation.parent];
    if (first == nullptr) first = &continuation;
  }
  for (size_t i = 0; i < beams_.size(); ++i) {
    if (first_of[i] != nullptr) continue;
    scheduler.Suspend(*beams_[i]);
    suspended_.push_back(beams_[i]);
  }
  const auto follow = [](const Sequence& parent, const BeamContinuation& continuation,
                         Sequence& beam) {
    beam.log_probs.push_back(continuation.token.log_prob);
    beam.cum_log_prob = continuation.cum_log_prob;
    if (parent.kept_logits != nullptr && parent.kept_logits->step_logits != nullptr) {
      beam.kept_logits->beam_logits.push_back(parent.kept_logits->step_logits);
    }
  };
  std::vector<Sequence*> beams;
  for (const BeamContinuation& continuation : next) {
    Sequence* beam = beams_[continuation.parent];
    if (first_of[continuation.parent] != &continuation) {
      const Sequence& parent = *beam;
      beam = suspended_.back();
      suspended_.pop_back();
      scheduler.Fork(parent, continuation.token.id, *beam);
      beam->log_probs = parent.log_probs;
      if (parent.kept_logits != nullptr && beam->kept_logits != nullptr) {
        beam->kept_logits->beam_logits = parent.kept_logits->beam_logits;
      }
      follow(parent, continuation, *beam);
    }
    beams.push_back(beam);
  }
  for (size_t i = 0; i < beams_.size(); ++i) {
    if (first_of[i] == nullptr) continue;
    beams_[i]->token_ids.push_back(first_of[i]->token.id);
    follow(*beams_[i], *first_of[i], *beams_[i]);
  }
  beams_ = std::move(beams);
}

void BeamGroup::EmitHypotheses() const {
  const Sequence& any = *beams_[0];
  const GenerationRequest& request = *any.request;
  const std::vector<BeamHypothesis>& finished = search_.finished();
  BeamHypothesis none;
  none.finish = FinishReason::kStop;
  for (int32_t i = 0; i < request.num_sequences; ++i) {
    const bool is_there = static_cast<size_t>(i) < finished.size();
    const BeamHypothesis& hypothesis = is_there ? finished[i] : none;
    SequenceOutput output;
    output.ids = hypothesis.ids;
    if (request.sampling.returns_log_probs) {
      output.log_probs = hypothesis.log_probs;
      output.cum_log_prob = hypothesis.cum_log_prob;
    }
    output.finish = hypothesis.finish;
    output.sequence_index = i;
    output.num_reused_blocks = any.num_reused_blocks;
    output.num_new_blocks = any.num_new_blocks;
    output.num_cached_tokens = request.num_cached_tokens;
    if (i == 0 && prompt_logits_ != nullptr) {
      output.prompt_log_probs = prompt_logits_->prompt_log_probs;
      output.context_logits = prompt_logits_->context_logits;
    }
    std::vector<float> logits;
    for (const LogitsRow& row : hypothesis.logits) {
      logits.insert(logits.end(), row->begin(), row->end());
    }
    output.generation_logits = logits;
    request.sink->OnOutput(output);
  }
}

}  // namespace nereid::llm
