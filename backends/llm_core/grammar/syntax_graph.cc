// See syntax_graph.h.
#include "backends/llm_core/grammar/syntax_graph.h"

#include <algorithm>

namespace nereid::llm::grammar {

RuleId SyntaxGraph::AddRule() {
  const auto id = static_cast<RuleId>(rules_.size());
  rules_.push_back({});
  rules_[id].start = AddState(id);
  return id;
}

StateId SyntaxGraph::AddState(RuleId rule) {
  ++num_added_;
  states_.push_back({});
  states_.back().rule = rule;
  return static_cast<StateId>(states_.size() - 1);
}

TerminalId SyntaxGraph::AddTerminal(RegexId regex) {
  const auto [it, is_new] =
      terminal_of_regex_.emplace(regex, static_cast<TerminalId>(terminals_.size()));
  if (is_new) terminals_.push_back({.regex = regex});
  return it->second;
}

TerminalId SyntaxGraph::AddUniqueName(RegexId space, RegexId name) {
  const auto [it, is_new] = unique_names_.emplace(uint64_t{space} << 32 | name,
                                                  static_cast<TerminalId>(terminals_.size()));
  if (is_new) terminals_.push_back({pool_.Concat(space, name), space, name});
  has_unique_names_ = true;
  return it->second;
}

void SyntaxGraph::Read(StateId from, TerminalId terminal, StateId to) {
  const RegexId regex = terminals_[terminal].regex;
  if (!pool_.IsAlive(regex)) return;
  if (pool_.IsNullable(regex)) {  // terminals never read nothing
    Skip(from, to);
    const RegexId some = pool_.Intersection({regex, pool_.Complement(RegexPool::kEmpty)});
    if (!pool_.IsAlive(some)) return;
    terminal = AddTerminal(some);
  }
  ++num_added_;
  states_[from].terminals.push_back({terminal, to});
}

void SyntaxGraph::Call(StateId from, RuleId rule, StateId to) {
  ++num_added_;
  states_[from].calls.push_back({rule, to});
}

size_t SyntaxGraph::size_bytes() const {
  size_t size = pool_.size_bytes() + rules_.capacity() * sizeof(Rule) +
                terminals_.capacity() * sizeof(Terminal) + states_.capacity() * sizeof(State);
  for (const State& state : states_) {
    size += state.terminals.capacity() * sizeof(TerminalEdge) +
            state.calls.capacity() * sizeof(CallEdge) + state.empties.capacity() * sizeof(StateId);
  }
  return size;
}

std::vector<bool> SyntaxGraph::FindUsefulStates() const {
  std::vector<std::vector<StateId>> before(states_.size());
  std::vector<std::vector<StateId>> callers(rules_.size());
  std::vector<bool> is_useful(states_.size());
  std::vector<StateId> queue;
  const auto mark = [&](StateId state) {
    if (is_useful[state]) return;
    is_useful[state] = true;
    queue.push_back(state);
  };
  for (StateId id = 0; id < states_.size(); ++id) {
    const State& state = states_[id];
    for (const TerminalEdge& edge : state.terminals) before[edge.target].push_back(id);
    for (const StateId target : state.empties) before[target].push_back(id);
    for (const CallEdge& edge : state.calls) {
      callers[edge.rule].push_back(id);
      before[edge.target].push_back(id);
    }
    if (state.accepts) mark(id);
  }
  const auto check = [&](StateId id) {  // marks a state one of whose edges may have become usable
    const State& state = states_[id];
    if (std::any_of(state.calls.begin(), state.calls.end(),
                    [&](const CallEdge& edge) {
                      return is_useful[edge.target] && is_useful[rules_[edge.rule].start];
                    }) ||
        std::any_of(state.terminals.begin(), state.terminals.end(),
                    [&](const TerminalEdge& edge) { return is_useful[edge.target]; }) ||
        std::any_of(state.empties.begin(), state.empties.end(),
                    [&](StateId target) { return is_useful[target]; })) {
      mark(id);
    }
  };
  while (!queue.empty()) {
    const StateId id = queue.back();
    queue.pop_back();
    for (const StateId each : before[id]) {
      if (!is_useful[each]) check(each);
    }
    if (rules_[states_[id].rule].start != id) continue;
    for (const StateId each : callers[states_[id].rule]) {
      if (!is_useful[each]) check(each);
    }
  }
  return is_useful;
}

Status SyntaxGraph::Finish(bool allows_no_text) {
  const auto limit_error = [] {
    return InvalidArgError(
        "the grammar is too large: compiling it exceeds the limit of work or memory");
  };
  if (exhausted()) return limit_error();
  const std::vector<bool> is_useful = FindUsefulStates();
  if (rules_.empty() || (!is_useful[rules_[0].start] && !allows_no_text)) {
    return InvalidArgError("no text fits the grammar");
  }
  for (State& state : states_) {
    std::erase_if(state.calls, [&](const CallEdge& edge) {
      return !is_useful[edge.target] || !is_useful[rules_[edge.rule].start];
    });
    std::erase_if(state.terminals,
                  [&](const TerminalEdge& edge) { return !is_useful[edge.target]; });
    std::erase_if(state.empties, [&](StateId target) { return !is_useful[target]; });
  }
  TurnTailCallsIntoLoops();
  FindNullableRules();
  if (exhausted()) return limit_error();
  return Status::Ok();
}

// A rule that ends by calling itself loops instead, so that a long list is not a deep stack.
void SyntaxGraph::TurnTailCallsIntoLoops() {
  for (State& state : states_) {
    for (size_t i = 0; i < state.calls.size();) {
      const CallEdge& edge = state.calls[i];
      const State& target = states_[edge.target];
      if (edge.rule == state.rule && target.accepts && target.terminals.empty() &&
          target.calls.empty() && target.empties.empty()) {
        state.empties.push_back(rules_[edge.rule].start);
        state.calls.erase(state.calls.begin() + static_cast<ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }
}

void SyntaxGraph::FindNullableRules() {
  // can_end[q]: the rule can end at q without reading. Repeats until nothing changes; a change
  // makes one more rule nullable.
  std::vector<std::vector<StateId>> before(states_.size());
  std::vector<std::vector<std::pair<StateId, StateId>>> callers(rules_.size());
  std::vector<bool> can_end(states_.size());
  std::vector<StateId> queue;
  const auto mark = [&](StateId state) {
    if (can_end[state]) return;
    can_end[state] = true;
    queue.push_back(state);
  };
  std::vector<std::vector<std::pair<StateId, RuleId>>> calls_to(states_.size());
  for (StateId id = 0; id < states_.size(); ++id) {
    for (const StateId target : states_[id].empties) before[target].push_back(id);
    for (const CallEdge& edge : states_[id].calls) {
      callers[edge.rule].emplace_back(id, edge.target);
      calls_to[edge.target].emplace_back(id, edge.rule);
    }
    if (states_[id].accepts) mark(id);
  }
  while (!queue.empty()) {
    const StateId id = queue.back();
    queue.pop_back();
    for (const StateId each : before[id]) mark(each);
    for (const auto& [from, rule] : calls_to[id]) {
      if (rules_[rule].is_nullable) mark(from);
    }
    Rule& own = rules_[states_[id].rule];
    if (own.start != id || own.is_nullable) continue;
    own.is_nullable = true;
    for (const auto& [from, target] : callers[states_[id].rule]) {
      if (can_end[target]) mark(from);
    }
  }
}

}  // namespace nereid::llm::grammar
