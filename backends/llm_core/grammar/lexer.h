// The automaton that reads terminals, built where texts lead it. A state stands for all terminals
// that may be being read; it belongs to no particular place in the grammar, so that what is known
// of it serves all places where the same terminals are possible: which byte leads where, and which
// tokens lie inside of a terminal. Known parts are read without a lock; new ones are made under
// one. [any thread]
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backends/llm_core/grammar/syntax_graph.h"
#include "backends/llm_core/grammar/vocabulary.h"

namespace nereid::llm::grammar {

struct TokenSet;

struct LexState {
  struct Part {
    TerminalId terminal;
    RegexId rest;  // of the terminal
    bool operator==(const Part&) const = default;
  };
  using Table = std::array<const LexState*, 256>;

  std::vector<Part> parts;            // sorted; each can be completed
  std::vector<TerminalId> accepting;  // terminals that may end here
  mutable std::atomic<const Table*> next{nullptr};
  mutable std::atomic<const TokenSet*> tokens{nullptr};
  // Every text that a JSON string may contain without escapes can be read, however long, without an
  // end of a terminal. Guarded by the lexer's mutex.
  mutable bool allows_plain_text = false;
};

// The tokens that can be read from a state without leaving its terminals, and the places inside of
// longer tokens where a terminal may end.
struct TokenSet {
  struct Exit {
    uint32_t node;  // has further nodes below
    const LexState* state;
  };
  std::vector<uint32_t> words;      // as a mask, or empty
  std::vector<int32_t> ids;         // the tokens where `words` is empty
  const TokenTrie* trie = nullptr;  // of the exits
  std::vector<Exit> exits;
};

struct LexerLimits {
  size_t max_bytes = size_t{256} << 20;           // past it the lexer is exhausted
  size_t max_token_set_bytes = size_t{64} << 20;  // past it, token sets are not kept
  uint64_t max_steps = 2'000'000;                 // of one call
};

class Lexer {
 public:
  // `graph` must outlive the lexer.
  Lexer(const SyntaxGraph& graph, std::shared_ptr<const Vocabulary> vocabulary,
        const LexerLimits& limits = {});
  ~Lexer();

  // The state before any of the terminals, or null if none of them can be read.
  const LexState* Start(std::span<const TerminalId> terminals);
  // The same; `names` are scalars of JSON as they were read, and no unique name may equal one of
  // them. This function and the next three add the work that they have done to `steps`: about 100
  // ns each. What is known already is none.
  const LexState* Start(std::span<const TerminalId> terminals,
                        std::span<const std::string_view> names, uint64_t& steps);
  // The state after `byte`, or null.
  const LexState* Next(const LexState* state, uint8_t byte, uint64_t& steps) {
    const LexState::Table* table = state->next.load(std::memory_order_acquire);
    if (table == nullptr) table = Expand(state, steps);
    return (*table)[byte];
  }
  const LexState::Table& Table(const LexState* state, uint64_t& steps) {
    const LexState::Table* table = state->next.load(std::memory_order_acquire);
    return table != nullptr ? *table : *Expand(state, steps);
  }
  // `scratch` holds the set if it is not kept.
  const TokenSet& Tokens(const LexState* state, TokenSet& scratch, uint64_t& steps);

  // Whether a limit was exceeded. No result counts then.
  bool exhausted() const { return exhausted_.load(std::memory_order_relaxed); }
  size_t size_bytes() const { return size_bytes_.load(std::memory_order_relaxed); }
  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  const LexState* Intern(std::vector<LexState::Part> parts);
  const LexState::Table* Expand(const LexState* state, uint64_t& steps);
  const LexState::Table* ExpandLocked(const LexState* state);
  const TokenSet* TokensLocked(const LexState* state, TokenSet& scratch);
  // The state with counts that no short token exceeds replaced: it has the same tokens, but for
  // long ones.
  const LexState* Saturated(const LexState* state);
  // Makes the tokens of a state from those of its saturated state. Returns false if they are the
  // same.
  bool RemoveLong(const LexState* state, const TokenSet& tokens, TokenSet& set);
  // Fills `exits` with the ends of terminals inside of tokens; those that lie farther inside than a
  // short token is long are read anew from `state`. Returns whether any of these differs.
  bool ReadExits(const LexState* state, const TokenSet& tokens, std::vector<TokenSet::Exit>& exits);
  bool Reads(const LexState* state, std::string_view bytes);
  bool AllowsPlainText(const LexState* state);
  void Collect(const LexState* state, const TokenTrie& trie, TokenSet& set);
  void Account(size_t bytes);

  const SyntaxGraph& graph_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const LexerLimits limits_;
  std::atomic<bool> exhausted_{false};
  std::atomic<size_t> size_bytes_{0};
  LexState::Table nowhere_{};

  std::mutex mutex_;  // of everything below
  RegexPool pool_;
  std::deque<LexState> states_;
  std::unordered_multimap<uint64_t, const LexState*> states_by_hash_;
  std::deque<LexState::Table> tables_;
  std::deque<TokenSet> token_sets_;
  std::vector<const LexState*> path_;      // states by depth, of Collect
  RegexId space_ = 0, any_chars_[2] = {};  // of JSON: white space, and characters of strings
  size_t token_set_bytes_ = 0, other_bytes_ = 0;
};

}  // namespace nereid::llm::grammar
