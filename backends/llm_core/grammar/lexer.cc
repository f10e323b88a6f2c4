// See lexer.h.
#include "backends/llm_core/grammar/lexer.h"

#include <algorithm>
#include <set>

#include "backends/llm_core/grammar/json_text.h"

namespace nereid::llm::grammar {
namespace {

constexpr size_t kMaxSparseTokens = 1024;
constexpr size_t kMaxPlainPairs = 1000;
constexpr size_t kMaxPlainTables = 200;  // that are made for the question

}  // namespace

Lexer::Lexer(const SyntaxGraph& graph, std::shared_ptr<const Vocabulary> vocabulary,
             const LexerLimits& limits)
    : graph_(graph), vocabulary_(std::move(vocabulary)), limits_(limits), pool_(graph.pool()) {
  pool_.set_limits({.max_bytes = limits.max_bytes, .max_steps = limits.max_steps});
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
                             std::span<const std::string_view> names) {
  std::lock_guard lock(mutex_);
  pool_.ResetSteps();
  std::vector<RegexId> taken;
  for (const std::string_view name : names) taken.push_back(SpellJsonName(pool_, name));
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
  return Intern(std::move(parts));
}

const LexState::Table* Lexer::Expand(const LexState* state) {
  std::lock_guard lock(mutex_);
  return ExpandLocked(state);
}

const LexState::Table* Lexer::ExpandLocked(const LexState* state) {
  if (const LexState::Table* known = state->next.load(std::memory_order_relaxed)) return known;
  if (exhausted()) return &nowhere_;
  pool_.ResetSteps();
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

const TokenSet& Lexer::Tokens(const LexState* state, TokenSet& scratch) {
  if (const TokenSet* known = state->tokens.load(std::memory_order_acquire)) return *known;
  std::lock_guard lock(mutex_);
  if (const TokenSet* known = state->tokens.load(std::memory_order_relaxed)) return *known;
  TokenSet set;
  if (AllowsPlainText(state)) {
    set.words = vocabulary_->plain_mask();
    Collect(state, vocabulary_->other(), set);
  } else {
    Collect(state, vocabulary_->all(), set);
  }
  const size_t size = sizeof(TokenSet) + set.words.size() * 4 + set.ids.size() * 4 +
                      set.exits.size() * sizeof(TokenSet::Exit);
  if (exhausted() || token_set_bytes_ + size > limits_.max_token_set_bytes) {
    scratch = std::move(set);
    return scratch;
  }
  token_set_bytes_ += size;
  Account(0);
  const TokenSet& kept = token_sets_.emplace_back(std::move(set));
  state->tokens.store(&kept, std::memory_order_release);
  return kept;
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
