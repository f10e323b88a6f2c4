#include "host/core/scheduling/sequence_strategy.h"

#include <algorithm>

#include "base/clock.h"

namespace nereid::core {
namespace {

// The batching rules of the oldest strategy; the direct strategy does not use them.
DynamicBatching RulesOf(const SequenceBatching& config) {
  DynamicBatching rules;
  if (const auto* oldest = std::get_if<SequenceOldest>(&config.strategy)) {
    rules.preferred_batch_sizes = oldest->preferred_batch_sizes;
    rules.max_queue_delay_us = oldest->max_queue_delay_us;
  }
  return rules;
}

size_t NumSlots(const ModelConfig& config) {
  const auto* oldest = std::get_if<SequenceOldest>(&config.sequence_batching->strategy);
  return std::max(oldest != nullptr ? oldest->max_candidate_sequences : config.max_batch_size, 1);
}

}  // namespace

SequenceStrategy::SequenceStrategy(const ModelConfig& config)
    : kind_(config.sequence_batching->strategy),
      num_slots_(NumSlots(config)),
      rules_(RulesOf(*config.sequence_batching), config.max_batch_size) {}

SequenceStrategy::Choice SequenceStrategy::Choose(InstanceSlots& instance, uint64_t now_ns) const {
  if (IsDelayed(instance)) return {};
  return is_direct() ? ChooseDirect(instance, now_ns) : ChooseOldest(instance, now_ns);
}

bool SequenceStrategy::IsDelayed(InstanceSlots& instance) const {
  if (instance.delay.is_over()) return false;
  if (is_direct()) return true;  // the batcher ends the delay for all instances at once
  size_t num_waiting = 0;
  for (const auto& sequence : instance.slots) {
    if (sequence != nullptr) num_waiting += sequence->ready();
  }
  return instance.delay.ShouldDelay(num_waiting);
}

// Chooses all slots with work whose request shapes match those of the oldest request.
SequenceStrategy::Choice SequenceStrategy::ChooseDirect(const InstanceSlots& instance,
                                                        uint64_t now_ns) const {
  Choice choice;
  const InferRequest* oldest = nullptr;
  size_t num_ready = 0;
  for (const auto& sequence : instance.slots) {
    if (sequence == nullptr || !sequence->ready()) continue;
    ++num_ready;
    const InferRequest* front = sequence->front();
    if (oldest == nullptr || front->queue_start_ns < oldest->queue_start_ns) oldest = front;
  }
  if (oldest == nullptr) return choice;
  for (const auto& sequence : instance.slots) {
    if (sequence == nullptr || !sequence->ready()) continue;
    if (sequence->front() != oldest && !MayShareBatch(*oldest, *sequence->front())) continue;
    choice.sequences.push_back(sequence.get());
  }
  const auto& direct = std::get<SequenceDirect>(kind_);
  const float utilization = static_cast<float>(num_ready) / static_cast<float>(num_slots_);
  const uint64_t end_ns = AddNs(oldest->queue_start_ns, UsToNs(direct.max_queue_delay_us));
  if (utilization < direct.minimum_slot_utilization && now_ns < end_ns) {
    choice.wait_until_ns = end_ns;
  }
  return choice;
}

SequenceStrategy::Choice SequenceStrategy::ChooseOldest(const InstanceSlots& instance,
                                                        uint64_t now_ns) const {
  Choice choice;
  for (const auto& sequence : instance.slots) {
    if (sequence != nullptr && sequence->ready()) choice.sequences.push_back(sequence.get());
  }
  if (choice.sequences.empty()) return choice;
  std::stable_sort(choice.sequences.begin(), choice.sequences.end(),
                   [](const Sequence* a, const Sequence* b) {
                     return a->front()->queue_start_ns < b->front()->queue_start_ns;
                   });
  BatchRules::CandidateBatch candidate(rules_);
  for (const Sequence* sequence : choice.sequences) {
    if (!candidate.Add(*sequence->front())) break;
  }
  const BatchRules::Decision decision = candidate.Finish(now_ns);
  choice.sequences.resize(decision.num_requests);
  if (decision.wait_until_ns != 0) choice.wait_until_ns = decision.wait_until_ns;
  return choice;
}

}  // namespace nereid::core
