// See matcher.h.
#include "backends/llm_core/grammar/matcher.h"

#include <algorithm>

namespace nereid::llm::grammar {
namespace {

constexpr size_t kFewItems = 24;  // up to which a set is searched instead of hashed
constexpr size_t kMaxKeptStarts = 4096;
constexpr uint64_t kMaxFastSteps = 300'000;  // past which a mask is computed by walk

}  // namespace

Matcher::Matcher(std::shared_ptr<const Grammar> grammar, const MatcherLimits& limits)
    : grammar_(std::move(grammar)),
      lexer_(grammar_->AcquireLexer()),
      graph_(&grammar_->graph()),
      limits_(limits),
      work_left_(limits.max_work) {
  const Vocabulary& vocabulary = grammar_->vocabulary();
  path_.resize(std::max(vocabulary.all().max_depth, vocabulary.other().max_depth) + 1);
  sets_.push_back({0, 0, nullptr, false, 0});
  open_set_ = 0;
  ++generation_;
  AddItem({graph_->rule(0).start, 0, kNone});
  Close(0);
  if (sets_[0].start != nullptr) scans_.push_back({sets_[0].start, 0});
  marks_.push_back({0, scans_.size(), 0, sizes()});
}

void Matcher::Truncate(const Sizes& sizes) {
  items_.resize(sizes.items);
  sets_.resize(sizes.sets);
  names_.resize(sizes.names);
  text_.resize(sizes.text);
}

bool Matcher::Fail() {
  if (status_.ok()) {
    status_ = InvalidArgError(
        "the grammar is too ambiguous or too large: following the text "
        "exceeds the limit of work or memory");
  }
  return false;
}

bool Matcher::Spend(uint64_t work) {
  if (work <= work_left_) {
    work_left_ -= work;
    return true;
  }
  work_left_ = 0;
  return Fail();
}

void Matcher::Refill() {
  if (num_accepted() <= num_refilled_) return;
  num_refilled_ = num_accepted();
  work_left_ = std::min(limits_.max_work, work_left_ + limits_.work_per_step);
}

void Matcher::AddItem(const Item& item) {
  const size_t begin = sets_[open_set_].items_begin;
  const size_t size = items_.size() - begin;
  if (size < kFewItems) {
    for (size_t i = begin; i < items_.size(); ++i) {
      if (items_[i].state == item.state && items_[i].origin == item.origin) return;
    }
    items_.push_back(item);
    return;
  }
  const auto find = [&](const Item& each) -> Slot& {
    uint64_t hash = (uint64_t{each.state} << 32 | each.origin) * 0x9E3779B97F4A7C15u;
    for (hash >>= 20;; ++hash) {
      Slot& slot = slots_[hash & (slots_.size() - 1)];
      if (slot.generation != generation_ ||
          (slot.state == each.state && slot.origin == each.origin)) {
        return slot;
      }
    }
  };
  if (size == kFewItems || size * 2 > slots_.size()) {
    ++generation_;
    slots_.resize(std::max<size_t>(slots_.size(), 256));
    while (size * 2 >= slots_.size()) slots_.resize(slots_.size() * 2);
    for (size_t i = begin; i < items_.size(); ++i) {
      find(items_[i]) = {generation_, items_[i].state, items_[i].origin};
    }
  }
  Slot& slot = find(item);
  if (slot.generation == generation_) return;
  slot = {generation_, item.state, item.origin};
  items_.push_back(item);
}

// Adds the items of set `ended.set` whose terminal has ended.
void Matcher::AddAfter(const Scan& ended) {
  const std::vector<TerminalId>& accepting = ended.state->accepting;
  const uint32_t begin = sets_[ended.set].items_begin, end = sets_[ended.set].items_end;
  for (uint32_t i = begin; i < end; ++i) {
    const Item item = items_[i];
    for (const SyntaxGraph::TerminalEdge& edge : graph_->state(item.state).terminals) {
      if (!std::binary_search(accepting.begin(), accepting.end(), edge.terminal)) continue;
      uint32_t names = item.names;
      if (graph_->terminal(edge.terminal).is_unique()) {
        names = static_cast<uint32_t>(names_.size());
        names_.push_back({sets_[ended.set].text_pos, text_.size(), item.names});
      }
      AddItem({edge.target, item.origin, names});
    }
  }
}

// Adds what follows from the items of a set: the rules that they call, and the callers of rules
// that end.
void Matcher::Close(uint32_t set) {
  for (size_t i = sets_[set].items_begin; i < items_.size(); ++i) {
    if (i - sets_[set].items_begin > limits_.max_items_per_set ||
        items_.size() > limits_.max_items) {
      Fail();
      break;
    }
    const Item item = items_[i];
    const SyntaxGraph::State& state = graph_->state(item.state);
    for (const StateId target : state.empties) AddItem({target, item.origin, item.names});
    for (const SyntaxGraph::CallEdge& edge : state.calls) {
      AddItem({graph_->rule(edge.rule).start, set, kNone});
      if (graph_->rule(edge.rule).is_nullable) AddItem({edge.target, item.origin, item.names});
    }
    if (!state.accepts) continue;
    if (state.rule == 0 && item.origin == 0) sets_[set].can_end = true;
    if (item.origin == set) continue;  // an empty reading, which is_nullable has covered
    const uint32_t begin = sets_[item.origin].items_begin, end = sets_[item.origin].items_end;
    for (uint32_t j = begin; j < end; ++j) {
      const Item caller = items_[j];
      for (const SyntaxGraph::CallEdge& edge : graph_->state(caller.state).calls) {
        if (edge.rule == state.rule) AddItem({edge.target, caller.origin, caller.names});
      }
    }
  }
  sets_[set].items_end = static_cast<uint32_t>(items_.size());
  FindStart(sets_[set]);
}

void Matcher::FindStart(Set& set) {
  set.start = nullptr;
  // Readings of an ambiguous text may have read other names as unique ones. No reading has any of
  // them left: what is unique in one of them is listed in the others.
  names_before_.clear();
  key_.clear();
  for (uint32_t i = set.items_begin; i < set.items_end; ++i) {
    const StateId state = items_[i].state;
    if (graph_->state(state).terminals.empty()) continue;
    key_.append(reinterpret_cast<const char*>(&state), sizeof(state));
    if (items_[i].names == kNone) continue;
    for (const SyntaxGraph::TerminalEdge& edge : graph_->state(state).terminals) {
      if (!graph_->terminal(edge.terminal).is_unique()) continue;
      if (std::find(names_before_.begin(), names_before_.end(), items_[i].names) ==
          names_before_.end()) {
        names_before_.push_back(items_[i].names);
      }
    }
  }
  if (key_.empty()) return;
  if (names_before_.empty()) {
    if (const auto it = starts_.find(key_); it != starts_.end()) {
      set.start = it->second;
      return;
    }
  }
  terminals_.clear();
  for (uint32_t i = set.items_begin; i < set.items_end; ++i) {
    for (const SyntaxGraph::TerminalEdge& edge : graph_->state(items_[i].state).terminals) {
      terminals_.push_back(edge.terminal);
    }
  }
  std::sort(terminals_.begin(), terminals_.end());
  terminals_.erase(std::unique(terminals_.begin(), terminals_.end()), terminals_.end());
  if (names_before_.empty()) {
    set.start = lexer_->Start(terminals_);
    if (starts_.size() < kMaxKeptStarts) starts_.emplace(key_, set.start);
    return;
  }
  std::vector<std::string_view> taken;
  for (const uint32_t last : names_before_) {
    for (uint32_t i = last; i != kNone; i = names_[i].previous) {
      taken.push_back(
          std::string_view(text_).substr(names_[i].begin, names_[i].end - names_[i].begin));
    }
  }
  set.start = lexer_->Start(terminals_, taken, lexer_steps_);
}

uint32_t Matcher::MakeSet(std::span<const Scan> ended) {
  const auto set = static_cast<uint32_t>(sets_.size());
  const auto begin = static_cast<uint32_t>(items_.size());
  sets_.push_back({begin, begin, nullptr, false, text_.size()});
  open_set_ = set;
  ++generation_;
  for (const Scan& each : ended) AddAfter(each);
  Close(set);
  return set;
}

uint32_t Matcher::Step(std::span<const Scan> from, uint8_t byte, std::vector<Scan>& to) {
  if (graph_->has_unique_names()) text_.push_back(static_cast<char>(byte));
  ended_.clear();
  for (const Scan& scan : from) {
    const LexState* next = lexer_->Next(scan.state, byte, lexer_steps_);
    if (next == nullptr) continue;
    to.push_back({next, scan.set});
    if (!next->accepting.empty()) ended_.push_back({next, scan.set});
  }
  if (ended_.empty()) return kNone;
  const uint32_t set = MakeSet(ended_);
  if (sets_[set].start != nullptr) to.push_back({sets_[set].start, set});
  return set;
}

bool Matcher::Accept(std::string_view bytes) {
  if (!status_.ok()) return false;
  const Sizes sizes_before = sizes();
  before_.assign(current().begin(), current().end());
  uint32_t set = marks_.back().set;
  for (const char c : bytes) {
    after_.clear();
    set = Step(before_, static_cast<uint8_t>(c), after_);
    before_.swap(after_);
    SpendLexerSteps();
    if (lexer_->exhausted()) Fail();
    if (before_.empty() && set == kNone) break;
  }
  if (!status_.ok() || (before_.empty() && set == kNone)) {
    Truncate(sizes_before);
    return false;
  }
  // A scan that cannot be continued has ended in `set`.
  std::erase_if(before_, [&](const Scan& scan) {
    const LexState::Table& table = lexer_->Table(scan.state, lexer_steps_);
    return std::all_of(table.begin(), table.end(), [](const LexState* s) { return s == nullptr; });
  });
  const size_t begin = scans_.size();
  scans_.insert(scans_.end(), before_.begin(), before_.end());
  marks_.push_back({begin, scans_.size(), set, sizes()});
  Refill();
  return true;
}

bool Matcher::AcceptToken(int32_t token) {
  if (token < 0 || static_cast<size_t>(token) >= grammar_->vocabulary().size()) return false;
  const std::string_view bytes = grammar_->vocabulary().token(token);
  return !bytes.empty() && Accept(bytes);
}

void Matcher::Rollback(size_t num) {
  marks_.resize(marks_.size() - std::min(num, num_accepted()));
  scans_.resize(marks_.back().scans_end);
  Truncate(marks_.back().sizes);
}

bool Matcher::CanEnd() const {
  return status_.ok() && marks_.back().set != kNone && sets_[marks_.back().set].can_end;
}

void Matcher::SetToken(int32_t token, std::span<uint32_t> words) const {
  for (; token >= 0; token = grammar_->vocabulary().NextTwin(token)) {
    words[token / 32] |= 1u << (token % 32);
  }
}

void Matcher::FinishMask(std::span<uint32_t> words) {
  if (lexer_->exhausted()) Fail();
  if (!status_.ok()) {
    std::fill(words.begin(), words.end(), 0);
    return;
  }
  if (!CanEnd()) return;
  for (const int32_t id : grammar_->vocabulary().end_ids()) words[id / 32] |= 1u << (id % 32);
}

void Matcher::ComputeMask(std::span<uint32_t> words) {
  std::fill(words.begin(), words.end(), 0);
  if (!status_.ok()) return;
  const Sizes sizes_before = sizes();
  base_text_size_ = text_.size();
  followed_.clear();
  steps_left_ = kMaxFastSteps;
  TokenSet scratch;
  bool is_first = true;
  for (size_t i = marks_.back().scans_begin; i < marks_.back().scans_end; ++i) {
    const Scan scan = scans_[i];
    const TokenSet& set = lexer_->Tokens(scan.state, scratch, lexer_steps_);
    if (!SpendLexerSteps()) break;
    if (is_first && !set.words.empty()) {
      std::copy(set.words.begin(), set.words.end(), words.begin());
    } else {
      for (size_t w = 0; w < set.words.size(); ++w) words[w] |= set.words[w];
    }
    is_first = false;
    for (const int32_t id : set.ids) words[id / 32] |= 1u << (id % 32);
    for (const TokenSet::Exit& exit : set.exits) {
      const uint32_t next = Follow({exit.state, scan.set}, *set.trie, exit.node);
      if (sets_[next].start != nullptr) WalkBelow(*set.trie, exit.node, next, words);
      if (steps_left_ == 0 || !status_.ok()) break;
    }
  }
  Truncate(sizes_before);
  Spend(kMaxFastSteps - steps_left_);
  if (status_.ok() && steps_left_ == 0 && !lexer_->exhausted()) return ComputeMaskByWalk(words);
  FinishMask(words);
}

// The set after a terminal that ends at `node`, inside of a token.
uint32_t Matcher::Follow(const Scan& ended, const TokenTrie& trie, uint32_t node) {
  // Names begin at positions of the text, so that a set of another depth is another set.
  const uint64_t depth = graph_->has_unique_names() ? trie.nodes[node].depth : 0;
  const auto key = std::make_pair(depth << 32 | ended.set, ended.state);
  if (const auto it = followed_.find(key); it != followed_.end()) return it->second;
  steps_left_ -= std::min<uint64_t>(steps_left_, 10);
  bool has_unique = false;
  if (graph_->has_unique_names()) {
    const std::string_view path =
        grammar_->vocabulary().token(trie.TokenBelow(node)).substr(0, trie.nodes[node].depth);
    text_.resize(base_text_size_);
    text_.append(path);
    for (const TerminalId id : ended.state->accepting) {
      has_unique |= graph_->terminal(id).is_unique();
    }
  }
  const uint32_t set = MakeSet({&ended, 1});
  // What follows a unique name depends on its text.
  if (!has_unique) followed_.emplace(key, set);
  return set;
}

void Matcher::WalkBelow(const TokenTrie& trie, uint32_t node, uint32_t set,
                        std::span<uint32_t> words) {
  if (++depth_ > 200) steps_left_ = 0;  // the other way does not recurse
  const TokenTrie::Node* nodes = trie.nodes.data();
  path_[nodes[node].depth] = sets_[set].start;
  const uint32_t end = nodes[node].end;
  for (uint32_t i = node + 1; i < end && steps_left_ > 0;) {
    --steps_left_;
    const TokenTrie::Node& each = nodes[i];
    const LexState* next = lexer_->Next(path_[each.depth - 1], each.byte, lexer_steps_);
    if (lexer_steps_ > 0 && !SpendLexerSteps()) break;
    if (next == nullptr) {
      i = each.end;
      continue;
    }
    if (each.token >= 0) SetToken(each.token, words);
    if (each.end > i + 1) {
      if (!next->accepting.empty()) {
        const uint32_t after = Follow({next, set}, trie, i);
        if (!status_.ok()) break;
        if (sets_[after].start != nullptr) WalkBelow(trie, i, after, words);
      }
      path_[each.depth] = next;
    }
    ++i;
  }
  --depth_;
}

void Matcher::ComputeMaskByWalk(std::span<uint32_t> words) {
  std::fill(words.begin(), words.end(), 0);
  if (!status_.ok()) return;
  const Sizes sizes_before = sizes();
  const TokenTrie& trie = grammar_->vocabulary().all();
  struct Level {
    std::vector<Scan> scans;
    Sizes sizes;
  };
  std::vector<Level> levels(trie.max_depth + 1);
  levels[0] = {{current().begin(), current().end()}, sizes_before};
  for (uint32_t i = 0; i < trie.nodes.size();) {
    const TokenTrie::Node& node = trie.nodes[i];
    const Level& from = levels[node.depth - 1];
    Level& to = levels[node.depth];
    Truncate(from.sizes);
    to.scans.clear();
    const uint32_t set = Step(from.scans, node.byte, to.scans);
    to.sizes = sizes();
    SpendLexerSteps();
    if (lexer_->exhausted()) Fail();
    if (!Spend(1 + from.scans.size() + (to.sizes.items - from.sizes.items)) || !status_.ok()) break;
    if (to.scans.empty() && set == kNone) {
      i = node.end;
      continue;
    }
    if (node.token >= 0) SetToken(node.token, words);
    ++i;
  }
  Truncate(sizes_before);
  FinishMask(words);
}

std::string Matcher::ForcedBytes(size_t max_bytes) {
  std::string forced;
  while (forced.size() < max_bytes && status_.ok() && !CanEnd()) {
    int only = -1, num = 0;
    for (int byte = 0; byte < 256 && num < 2; ++byte) {
      for (const Scan& scan : current()) {
        if (lexer_->Next(scan.state, static_cast<uint8_t>(byte), lexer_steps_) == nullptr) continue;
        only = byte;
        ++num;
        break;
      }
    }
    const char c = static_cast<char>(only);
    if (num != 1 || !Accept({&c, 1})) break;
    forced += c;
  }
  Rollback(forced.size());
  return forced;
}

}  // namespace nereid::llm::grammar
