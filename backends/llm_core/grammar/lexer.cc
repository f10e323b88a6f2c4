// See lexer.h.
#include "backends/llm_core/grammar/lexer.h"

#include <algorithm>
#include <set>

#include "backends/llm_core/grammar/code_points.h"
#include "backends/llm_core/grammar/json_text.h"

namespace nereid::llm::grammar {
namespace {

constexpr size_t kMaxSparseTokens = 1024;
constexpr size_t kMaxPlainPairs = 1000;
constexpr size_t kMaxPlainTables = 200;  // that are made for the question
constexpr uint64_t kStepsOfTable = 20;   // for making one

}  // namespace

Lexer::Lexer(const SyntaxGraph& graph, std::shared_ptr<const Vocabulary> vocabulary,
             const LexerLimits& limits)
    : graph_(graph), vocabulary_(std::move(vocabulary)), limits_(limits), pool_(graph.pool()) {
  pool_.ResetSteps();  // those of the compiler
  pool_.set_limits({.max_bytes = limits.max_bytes, .max_steps = limits.max_steps});
  ByteSet spaces;
  for (const char c : {' ', '\t', '\n', '\r'}) spaces.Add(static_cast<uint8_t>(c));
  space_ = pool_.Bytes(spaces);
  any_chars_[0] = SpellSet(pool_, CodePointSet::All(), Spelling::kJson);
  any_chars_[1] = SpellSet(pool_, CodePointSet::All(), Spelling::kJsonAnyEscape);
  path_.resize(std::max(vocabulary_->all().max_depth, vocabulary_->other().max_depth) + 1);
  Account(0);
}

Lexer::~Lexer() = default;

void Lexer::Account(size_t bytes) {
  other_bytes_ += bytes;
  const size_t total = other_bytes_ + token_set_bytes_ + pool_.size_bytes();
  size_bytes_.store(total, std::memory_order_relaxed);
  if (total > limits_.max_bytes || pool_.exhausted()) exhausted_ = true;
}

const LexState* Lexer::Intern(std::vector<LexState::Part> parts) {
  std::sort(parts.begin(), parts.end(), [](const auto& x, const auto& y) {
    return std::tie(x.terminal, x.rest) < std::tie(y.terminal, y.rest);
  });
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
  if (parts.empty()) return nullptr;
  uint64_t hash = 0;
  for (const LexState::Part& part : parts) {
    hash = (hash ^ (uint64_t{part.terminal} << 32 | part.rest)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 31;
  }
  for (auto [it, end] = states_by_hash_.equal_range(hash); it != end; ++it) {
    if (it->second->parts == parts) return it->second;
  }
  LexState& state = states_.emplace_back();
  for (const LexState::Part& part : parts) {
    if (pool_.IsNullable(part.rest)) state.accepting.push_back(part.terminal);
  }
  state.parts = std::move(parts);
  states_by_hash_.emplace(hash, &state);
  Account(sizeof(LexState) + 64 + state.parts.size() * sizeof(LexState::Part));
  return &state;
}

const LexState* Lexer::Start(std::span<const TerminalId> terminals) {
  std::lock_guard lock(mutex_);
  std::vector<LexState::Part> parts;
  for (const TerminalId id : terminals) parts.push_back({id, graph_.terminal(id).regex});
  return Intern(std::move(parts));
}

const LexState* Lexer::Start(std::span<const TerminalId> terminals,
                             std::span<const std::string_view> names, uint64_t& steps) {
  std::lock_guard lock(mutex_);
  pool_.ResetSteps();
  std::vector<RegexId> taken;
  for (const std::string_view name : names) taken.push_back(SpellJsonScalar(pool_, name));
  const RegexId others = pool_.Complement(pool_.Union(std::move(taken)));
  std::vector<LexState::Part> parts;
  for (const TerminalId id : terminals) {
    const Terminal& terminal = graph_.terminal(id);
    RegexId regex = terminal.regex;
    if (terminal.is_unique()) {
      const RegexId name = pool_.Intersection({terminal.name, others});
      regex = pool_.IsAlive(name) ? pool_.Concat(terminal.space, name) : RegexPool::kNothing;
    }
    if (regex != RegexPool::kNothing) parts.push_back({id, regex});
  }
  Account(0);
  steps += pool_.num_steps();
  return Intern(std::move(parts));
}

const LexState::Table* Lexer::Expand(const LexState* state, uint64_t& steps) {
  std::lock_guard lock(mutex_);
  pool_.ResetSteps();
  const LexState::Table* table = ExpandLocked(state);
  steps += pool_.num_steps();
  return table;
}

const LexState::Table* Lexer::ExpandLocked(const LexState* state) {
  if (const LexState::Table* known = state->next.load(std::memory_order_relaxed)) return known;
  if (exhausted()) return &nowhere_;
  pool_.Count(kStepsOfTable);
  ByteClasses classes;
  std::vector<RegexId> rests;
  for (const LexState::Part& part : state->parts) rests.push_back(part.rest);
  pool_.SplitClasses(rests, classes);
  std::array<const LexState*, 256> targets{};
  std::array<bool, 256> is_known{};
  LexState::Table& table = tables_.emplace_back();
  for (int byte = 0; byte < 256; ++byte) {
    const uint8_t each = classes.class_of[byte];
    if (!is_known[each]) {
      is_known[each] = true;
      std::vector<LexState::Part> parts;
      for (const LexState::Part& part : state->parts) {
        const RegexId rest = pool_.Derivative(part.rest, static_cast<uint8_t>(byte));
        if (rest != RegexPool::kNothing && pool_.IsAlive(rest)) {
          parts.push_back({part.terminal, rest});
        }
      }
      targets[each] = Intern(std::move(parts));
    }
    table[byte] = targets[each];
  }
  Account(sizeof(LexState::Table));
  if (exhausted()) return &nowhere_;
  state->next.store(&table, std::memory_order_release);
  return &table;
}

// Whether every text that a JSON string may contain without escapes, up to the length of plain
// tokens, can be read from `state` without an end of a terminal on its way.
bool Lexer::AllowsPlainText(const LexState* state) {
  if (state->allows_plain_text) return true;
  const auto ends_with_quote = [&](const LexState::Part& part) {
    return pool_.PlainlyRequires(part.rest, '"');
  };
  const auto is_open = [&](const LexState::Part& part) {
    return pool_.IsPlainlyOpen(part.rest, any_chars_, Vocabulary::kMaxPlainChars);
  };
  if (std::any_of(state->parts.begin(), state->parts.end(), is_open) &&
      std::all_of(state->parts.begin(), state->parts.end(), ends_with_quote)) {
    return true;
  }
  struct Entry {
    const LexState* state;
    int plain;
  };
  std::set<std::pair<const LexState*, int>> seen;
  std::vector<Entry> now{{state, 0}}, later;
  const size_t max_tables = tables_.size() + kMaxPlainTables;
  for (int num_chars = 0; num_chars < Vocabulary::kMaxPlainChars && !now.empty(); ++num_chars) {
    while (!now.empty()) {
      const Entry entry = now.back();
      now.pop_back();
      if (entry.plain == 0 && entry.state->allows_plain_text) continue;
      if (!seen.emplace(entry.state, entry.plain).second) continue;
      if (seen.size() > kMaxPlainPairs || tables_.size() > max_tables) return false;
      const LexState::Table& table = *ExpandLocked(entry.state);
      Entry previous{nullptr, -1};
      for (int byte = 0x20; byte < 0xF5; ++byte) {
        const int plain = NextPlainState(entry.plain, static_cast<uint8_t>(byte));
        if (plain < 0) continue;
        const LexState* next = table[byte];
        if (next == nullptr || !next->accepting.empty()) return false;
        if (next == previous.state && plain == previous.plain) continue;
        previous = {next, plain};
        (plain == 0 ? later : now).push_back(previous);
      }
    }
    now.swap(later);
  }
  if (now.empty()) {  // all that can follow was seen, so the length of the text does not matter
    for (const auto& [each, plain] : seen) {
      if (plain == 0) each->allows_plain_text = true;
    }
  }
  return true;
}

const TokenSet& Lexer::Tokens(const LexState* state, TokenSet& scratch, uint64_t& steps) {
  if (const TokenSet* known = state->tokens.load(std::memory_order_acquire)) return *known;
  std::lock_guard lock(mutex_);
  pool_.ResetSteps();
  const TokenSet* set = TokensLocked(state, scratch);
  steps += pool_.num_steps();
  return *set;
}

// The set is kept, or `scratch` holds it.
const TokenSet* Lexer::TokensLocked(const LexState* state, TokenSet& scratch) {
  if (const TokenSet* known = state->tokens.load(std::memory_order_relaxed)) return known;
  TokenSet set;
  const LexState* saturated = Saturated(state);
  const TokenSet* similar = nullptr;
  if (saturated != state) similar = TokensLocked(saturated, scratch);
  if (similar != nullptr && similar != &scratch) {
    if (!RemoveLong(state, *similar, set)) {
      state->tokens.store(similar, std::memory_order_release);
      return similar;
    }
  } else if (AllowsPlainText(state)) {
    set.words = vocabulary_->plain_mask();
    Collect(state, vocabulary_->other(), set);
  } else {
    Collect(state, vocabulary_->all(), set);
  }
  const size_t size = sizeof(TokenSet) + set.words.size() * 4 + set.ids.size() * 4 +
                      set.exits.size() * sizeof(TokenSet::Exit);
  if (exhausted() || token_set_bytes_ + size > limits_.max_token_set_bytes) {
    scratch = std::move(set);
    return &scratch;
  }
  token_set_bytes_ += size;
  Account(0);
  const TokenSet& kept = token_sets_.emplace_back(std::move(set));
  state->tokens.store(&kept, std::memory_order_release);
  return &kept;
}

const LexState* Lexer::Saturated(const LexState* state) {
  std::vector<LexState::Part> parts = state->parts;
  for (LexState::Part& part : parts) {
    part.rest = pool_.Saturate(part.rest, static_cast<int>(Vocabulary::kMaxShortBytes));
  }
  if (parts == state->parts || pool_.exhausted()) return state;
  return Intern(std::move(parts));
}

bool Lexer::RemoveLong(const LexState* state, const TokenSet& tokens, TokenSet& set) {
  // Most states begin with white space of a limited length, or with characters of strings.
  bool are_spaced = true;
  int max_spaces = 0, max_plain = 0;
  for (const LexState::Part& part : state->parts) {
    const auto form = pool_.LeadingRepeat(part.rest);
    const int max = !form ? 0 : form->max == RegexPool::kUnlimited ? INT32_MAX : form->max;
    const auto begins_with = [&](char c) {
      return pool_.Derivative(form->rest, static_cast<uint8_t>(c)) != RegexPool::kNothing;
    };
    if (form && form->operand == space_) {
      max_spaces = std::max(max_spaces, max);
      are_spaced &=
          !begins_with(' ') && !begins_with('\t') && !begins_with('\n') && !begins_with('\r');
    } else {
      are_spaced = false;
      if (form && (form->operand == any_chars_[0] || form->operand == any_chars_[1])) {
        max_plain = std::max(max_plain, max);
      }
    }
  }
  const auto reads = [&](const Vocabulary::LongToken& token) {
    if (token.num_spaces > 0 && (token.num_spaces <= max_spaces || are_spaced)) {
      return token.num_spaces <= max_spaces;
    }
    return (token.num_plain > 0 && token.num_plain <= max_plain) ||
           Reads(state, vocabulary_->token(token.id));
  };
  const auto has = [&](int32_t id) {
    return tokens.words.empty()
               ? std::find(tokens.ids.begin(), tokens.ids.end(), id) != tokens.ids.end()
               : (tokens.words[id / 32] >> (id % 32) & 1) != 0;
  };
  std::vector<int32_t> removed;
  for (const Vocabulary::LongToken& token : vocabulary_->long_tokens()) {
    if (!has(token.id) || reads(token)) continue;
    for (int32_t id = token.id; id >= 0; id = vocabulary_->NextTwin(id)) removed.push_back(id);
  }
  std::vector<TokenSet::Exit> exits;
  const bool has_other_exits = ReadExits(state, tokens, exits);
  if (removed.empty() && !has_other_exits) return false;
  set = tokens;
  for (const int32_t id : removed) {
    if (!set.words.empty()) set.words[id / 32] &= ~(1u << (id % 32));
    std::erase(set.ids, id);
  }
  set.exits = std::move(exits);
  return true;
}

bool Lexer::ReadExits(const LexState* state, const TokenSet& tokens,
                      std::vector<TokenSet::Exit>& exits) {
  bool any_differs = false;
  for (TokenSet::Exit exit : tokens.exits) {
    const size_t depth = tokens.trie->nodes[exit.node].depth;
    if (depth > Vocabulary::kMaxShortBytes) {
      const std::string_view bytes = vocabulary_->token(tokens.trie->TokenBelow(exit.node));
      const LexState* at = state;
      for (size_t i = 0; i < depth && at != nullptr; ++i) {
        at = (*ExpandLocked(at))[static_cast<uint8_t>(bytes[i])];
      }
      any_differs |= at == nullptr || at->accepting != exit.state->accepting;
      if (at == nullptr || at->accepting.empty()) continue;
      exit.state = at;
    }
    exits.push_back(exit);
  }
  return any_differs;
}

bool Lexer::Reads(const LexState* state, std::string_view bytes) {
  for (const LexState::Part& part : state->parts) {
    RegexId rest = part.rest;
    for (size_t i = 0; i < bytes.size() && rest != RegexPool::kNothing; ++i) {
      rest = pool_.Derivative(rest, static_cast<uint8_t>(bytes[i]));
    }
    if (rest != RegexPool::kNothing && pool_.IsAlive(rest)) return true;
  }
  return false;
}

void Lexer::Collect(const LexState* state, const TokenTrie& trie, TokenSet& set) {
  set.trie = &trie;
  const auto add = [&](int32_t id) {
    for (; id >= 0; id = vocabulary_->NextTwin(id)) {
      if (!set.words.empty()) {
        set.words[id / 32] |= 1u << (id % 32);
        continue;
      }
      set.ids.push_back(id);
      if (set.ids.size() <= kMaxSparseTokens) continue;
      set.words.resize(vocabulary_->num_mask_words());
      for (const int32_t each : set.ids) set.words[each / 32] |= 1u << (each % 32);
      set.ids.clear();
    }
  };
  path_[0] = state;
  const TokenTrie::Node* nodes = trie.nodes.data();
  const auto num_nodes = static_cast<uint32_t>(trie.nodes.size());
  for (uint32_t i = 0; i < num_nodes;) {
    const TokenTrie::Node& node = nodes[i];
    const LexState* before = path_[node.depth - 1];
    const LexState::Table* table = before->next.load(std::memory_order_relaxed);
    if (table == nullptr) table = ExpandLocked(before);
    const LexState* next = (*table)[node.byte];
    if (next == nullptr) {
      i = node.end;
      continue;
    }
    if (node.token >= 0) add(node.token);
    if (node.end > i + 1) {
      if (!next->accepting.empty()) set.exits.push_back({i, next});
      path_[node.depth] = next;
    }
    ++i;
  }
  set.ids.shrink_to_fit();
  set.exits.shrink_to_fit();
}

}  // namespace nereid::llm::grammar
