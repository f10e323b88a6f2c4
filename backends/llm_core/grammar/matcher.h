// Follows one generated text through a grammar: says which tokens may come next and whether the
// text may end, and takes steps back. The grammar's rules are read by Earley's method over
// terminals that lexer.h reads byte by byte; all readings of an ambiguous text are followed, so
// that a token is allowed exactly if the text with the token's bytes is the beginning of some text
// of the grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/llm_core/grammar/grammar.h"
#include "nereid/status.h"

namespace nereid::llm::grammar {

struct MatcherLimits {
  size_t max_items_per_set = 50'000;
  size_t max_items = size_t{8} << 20;  // of the whole text
  // The work of masks and of reading text, in units of about 10 ns: what a matcher may spend at
  // once, and how much of it each byte or token of the text gives back. A grammar that needs more
  // delays everybody whose tokens are sampled in the same step.
  uint64_t max_work = 20'000'000;
  uint64_t work_per_step = 1'000'000;
};

// [one thread at a time]
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Grammar> grammar, const MatcherLimits& limits = {});
  // A copy continues from the same text independently.
  Matcher(const Matcher&) = default;
  Matcher& operator=(const Matcher&) = delete;

  // Appends bytes, or a token's bytes. Returns false, and changes nothing, if the text would no
  // longer be the beginning of a text of the grammar, or a limit was exceeded: see status().
  bool Accept(std::string_view bytes);
  bool AcceptToken(int32_t token);
  // Undoes the last `num` successful calls of Accept and AcceptToken together.
  void Rollback(size_t num);
  // Whether the text is a text of the grammar.
  bool CanEnd() const;
  // Whether it is one, and no longer text begins with it.
  bool MustEnd() const { return CanEnd() && current().empty(); }
  // Sets the bit of each token that may come next (bit id % 32 of word id / 32), and clears all
  // others. Those that end a generation are set if CanEnd(). `words` has num_mask_words() elements.
  // If a limit was exceeded, no bit is set: see status().
  void ComputeMask(std::span<uint32_t> words);
  // Computes the same by following every token through the grammar, without what is known of
  // terminals. Slow; for tests, and where a grammar is so ambiguous that the other way is longer.
  void ComputeMaskByWalk(std::span<uint32_t> words);
  // The bytes that every text of the grammar has next, at most `max_bytes`.
  std::string ForcedBytes(size_t max_bytes);

  // INVALID_ARG once the grammar needed more work or memory than the limits allow.
  const Status& status() const { return status_; }
  uint64_t work_left() const { return work_left_; }
  size_t num_accepted() const { return marks_.size() - 1; }
  const Grammar& grammar() const { return *grammar_; }

 private:
  static constexpr uint32_t kNone = ~0u;
  static constexpr uint64_t kWorkOfLexerStep = 10;

  // A state of a rule that began at set `origin`. `names`: the last unique name of the object that
  // the rule reads, an index into names_, or kNone.
  struct Item {
    StateId state;
    uint32_t origin;
    uint32_t names;
  };
  // All that may be the case between two terminals.
  struct Set {
    uint32_t items_begin, items_end;
    const LexState* start;  // before the terminals that may follow, or null
    bool can_end;
    size_t text_pos;
  };
  // Terminals being read that began at `set`.
  struct Scan {
    const LexState* state;
    uint32_t set;
  };
  struct Name {
    size_t begin, end;  // in text_
    uint32_t previous;
  };
  struct Sizes {
    size_t items, sets, names, text;
  };
  struct Mark {
    size_t scans_begin, scans_end;
    uint32_t set;  // at this position, or kNone
    Sizes sizes;
  };

  Sizes sizes() const { return {items_.size(), sets_.size(), names_.size(), text_.size()}; }
  void Truncate(const Sizes& sizes);
  bool Fail();
  // Takes work from what is left, or what the lexer has done of it. Fails if that is too much.
  bool Spend(uint64_t work);
  bool SpendLexerSteps() { return Spend(kWorkOfLexerStep * std::exchange(lexer_steps_, 0)); }
  // Gives work back for text that is longer than it ever was.
  void Refill();
  // Reads a byte from `from`: appends the scans after it to `to`. Returns the set after the byte.
  uint32_t Step(std::span<const Scan> from, uint8_t byte, std::vector<Scan>& to);
  uint32_t MakeSet(std::span<const Scan> ended);
  void AddAfter(const Scan& ended);
  void AddItem(const Item& item);
  void Close(uint32_t set);
  void FindStart(Set& set);
  std::span<const Scan> current() const {
    return {scans_.data() + marks_.back().scans_begin, scans_.data() + marks_.back().scans_end};
  }

  void SetToken(int32_t token, std::span<uint32_t> words) const;
  void FinishMask(std::span<uint32_t> words);
  uint32_t Follow(const Scan& ended, const TokenTrie& trie, uint32_t node);
  void WalkBelow(const TokenTrie& trie, uint32_t node, uint32_t set, std::span<uint32_t> words);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<Lexer> lexer_;
  const SyntaxGraph* graph_;
  MatcherLimits limits_;
  Status status_;
  uint64_t work_left_;
  size_t num_refilled_ = 0;   // of the steps of the text
  uint64_t lexer_steps_ = 0;  // not yet taken from work_left_

  std::vector<Item> items_;
  std::vector<Set> sets_;
  std::vector<Name> names_;
  std::string text_;  // kept only where the grammar has unique names
  std::vector<Scan> scans_;
  std::vector<Mark> marks_;

  // Scratch memory.
  uint32_t open_set_ = 0;  // the set whose items are being added
  struct Slot {
    uint64_t generation = 0;
    StateId state = 0;
    uint32_t origin = 0;
  };
  std::vector<Slot> slots_;
  uint64_t generation_ = 0;
  std::unordered_map<std::string, const LexState*> starts_;  // by the states of a set
  std::string key_;
  std::vector<Scan> ended_, before_, after_;
  std::vector<TerminalId> terminals_;
  std::vector<uint32_t> names_before_;
  struct PairHash {
    size_t operator()(const std::pair<uint64_t, const LexState*>& pair) const {
      return (pair.first * 0x9E3779B97F4A7C15u) ^ reinterpret_cast<uintptr_t>(pair.second);
    }
  };
  std::unordered_map<std::pair<uint64_t, const LexState*>, uint32_t, PairHash> followed_;
  std::vector<const LexState*> path_;
  size_t base_text_size_ = 0;
  uint64_t steps_left_ = 0;
  int depth_ = 0;
};

}  // namespace nereid::llm::grammar
