// A grammar as rules, each of which is an automaton: its edges read a terminal, which is a regular
// expression over bytes, call a rule, or read nothing. Front ends build one; Finish removes all
// that leads to no text, so that every state of a finished graph can be completed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/llm_core/grammar/regex_pool.h"
#include "nereid/status.h"

namespace nereid::llm::grammar {

using RuleId = uint32_t;
using StateId = uint32_t;
using TerminalId = uint32_t;

struct Terminal {
  RegexId regex = RegexPool::kNothing;
  // For names of JSON objects that no other name of the same object may equal, and for items of
  // arrays that must differ: `regex` is `space` followed by `name`, which the names read before are
  // taken from. kNothing for other terminals.
  RegexId space = RegexPool::kNothing, name = RegexPool::kNothing;

  bool is_unique() const { return name != RegexPool::kNothing; }
};

class SyntaxGraph {
 public:
  struct TerminalEdge {
    TerminalId terminal;
    StateId target;
  };
  struct CallEdge {
    RuleId rule;
    StateId target;
  };
  struct State {
    RuleId rule = 0;
    bool accepts = false;
    std::vector<TerminalEdge> terminals;
    std::vector<CallEdge> calls;
    std::vector<StateId> empties;
  };
  struct Rule {
    StateId start = 0;
    bool is_nullable = false;
  };

  explicit SyntaxGraph(const RegexLimits& limits = {}) : pool_(limits) {}

  RegexPool& pool() { return pool_; }
  const RegexPool& pool() const { return pool_; }

  static constexpr size_t kMaxStates = 4'000'000;

  // Whether the graph or its regular expressions have become too large. Front ends stop then.
  bool exhausted() const { return pool_.exhausted() || num_added_ > kMaxStates; }

  // Adds a rule with a start state. Rule 0 is the root.
  RuleId AddRule();
  StateId AddState(RuleId rule);
  TerminalId AddTerminal(RegexId regex);
  TerminalId AddUniqueName(RegexId space, RegexId name);
  void Read(StateId from, TerminalId terminal, StateId to);
  void Call(StateId from, RuleId rule, StateId to);
  void Skip(StateId from, StateId to) {
    ++num_added_;
    states_[from].empties.push_back(to);
  }
  void Accept(StateId state) { states_[state].accepts = true; }

  // Removes what leads to no text. INVALID_ARG if no text is left, unless `allows_no_text`, or a
  // limit was exceeded.
  Status Finish(bool allows_no_text = false);

  const State& state(StateId id) const { return states_[id]; }
  const Rule& rule(RuleId id) const { return rules_[id]; }
  const Terminal& terminal(TerminalId id) const { return terminals_[id]; }
  size_t num_states() const { return states_.size(); }
  size_t num_rules() const { return rules_.size(); }
  bool has_unique_names() const { return has_unique_names_; }
  size_t size_bytes() const;

 private:
  // For each state, whether edges that can be read lead from it to the end of its rule.
  std::vector<bool> FindUsefulStates() const;
  void FindNullableRules();
  void TurnTailCallsIntoLoops();

  RegexPool pool_;
  std::vector<Rule> rules_;
  std::vector<State> states_;
  std::vector<Terminal> terminals_;
  std::unordered_map<RegexId, TerminalId> terminal_of_regex_;
  std::unordered_map<uint64_t, TerminalId> unique_names_;
  bool has_unique_names_ = false;
  size_t num_added_ = 0;  // states and edges
};

}  // namespace nereid::llm::grammar
