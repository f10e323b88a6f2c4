// See bpe_model.h. Symbols start as characters (or bytes); the adjacent pair of the lowest rank is
// merged, the leftmost first, until no rule applies.
#include "backends/tokenizer/lib/model/bpe_model.h"

#include <algorithm>
#include <functional>
#include <span>

#include "backends/tokenizer/lib/text/byte_level.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

constexpr std::string_view kWordStart = "\u2581";
constexpr size_t kShortWord = 64;  // symbols; above, a heap beats scanning

// Appends what stands between word starts: [run of U+2581][rest of the word], each to `visit`.
template <typename Visit>
void ForEachWord(std::string_view text, Visit visit) {
  size_t begin = 0;
  while (begin < text.size()) {
    size_t at = begin;
    while (text.substr(at, kWordStart.size()) == kWordStart) at += kWordStart.size();
    const size_t end = std::min(text.find(kWordStart, at), text.size());
    visit(text.substr(begin, end - begin));
    begin = end;
  }
}

// The highest rank where each has one merged token and the ranks are no more than the rules; else
// 0.
uint32_t RankThatTellsTheToken(const std::vector<MergeRule>& rules) {
  std::vector<int32_t> merged(rules.size(), -1);  // [rank]
  uint32_t highest = 0;
  for (const MergeRule& rule : rules) {
    if (rule.rank >= merged.size()) return 0;
    if (merged[rule.rank] >= 0 && merged[rule.rank] != rule.merged) return 0;
    merged[rule.rank] = rule.merged;
    highest = std::max(highest, rule.rank);
  }
  return highest;
}

uint32_t SpeltSize(char byte) {
  return ByteToChar(static_cast<uint8_t>(byte)) < 0x80 ? 1 : 2;
}

// What tokens reach over in the printable form of `piece`, in which bytes may be left out before
// them, to bytes of it: those of which they reach over any part.
void FromSpelling(std::string_view piece, std::span<PieceToken> tokens) {
  uint32_t at = 0, spelt = 0;  // a byte, and where its spelling begins
  const auto byte_of = [&](uint32_t place) {
    while (at + 1 < piece.size() && spelt + SpeltSize(piece[at]) <= place) {
      spelt += SpeltSize(piece[at++]);
    }
    return at;
  };
  for (PieceToken& token : tokens) {
    token.begin = byte_of(token.begin);
    token.end = byte_of(token.end - 1) + 1;
  }
}

}  // namespace

BpeModel::BpeModel(const TokenTable& vocabulary, const std::vector<MergeRule>& rules,
                   BpeOptions options)
    : vocabulary_(vocabulary),
      options_(std::move(options)),
      tokens_(&vocabulary),
      merges_(rules.size(), RankThatTellsTheToken(rules)) {
  for (const MergeRule& rule : rules) merges_.Add(rule.left, rule.right, {rule.rank, rule.merged});
  BuildUnits(vocabulary);
  if (options_.byte_level) {
    byte_tokens_.Reserve(vocabulary.num_entries(), vocabulary.num_entries() * 8);
    std::string bytes;
    for (size_t entry = 0; entry < vocabulary.num_entries(); ++entry) {
      bytes.clear();
      const auto e = static_cast<int32_t>(entry);
      if (AppendBytesOf(vocabulary.Content(e), bytes)) byte_tokens_.Add(bytes, vocabulary.IdOf(e));
    }
    byte_tokens_.DropIds();
    tokens_ = &byte_tokens_;
  } else if (!has_affixes()) {
    split_at_words_ = WordsAreIndependent(vocabulary, rules);
  }
  memo_ = std::make_unique<std::atomic<uint8_t>[]>(tokens_->num_entries());
}

void BpeModel::BuildUnits(const TokenTable& vocabulary) {
  low_units_.fill(-1);
  for (unsigned b = 0; b < 256; ++b) {
    std::string name;
    AppendUtf8(options_.byte_level ? ByteToChar(static_cast<uint8_t>(b)) : b, name);
    low_units_[b] = vocabulary.Find(name).value_or(-1);
    fallback_[b] = vocabulary.Find(FallbackName(static_cast<uint8_t>(b))).value_or(-1);
  }
  if (options_.byte_level) return;
  for (size_t entry = 0; entry < vocabulary.num_entries(); ++entry) {
    const std::string_view content = vocabulary.Content(static_cast<int32_t>(entry));
    if (content.empty() || content.size() != Utf8Length(content[0])) continue;
    const Utf8Char c = CharAt(content, 0);
    if (c.code >= 256) high_units_[c.code] = vocabulary.IdOf(static_cast<int32_t>(entry));
  }
}

// True when merges within one word cannot depend on its neighbours: no merged token holds U+2581
// behind another character. Long texts without pre-tokenizer are then encoded word by word.
bool BpeModel::WordsAreIndependent(const TokenTable& vocabulary,
                                   const std::vector<MergeRule>& rules) const {
  if (UnitId(CharAt(kWordStart, 0).code) < 0) return false;
  for (const MergeRule& rule : rules) {
    const std::string_view merged = vocabulary.OfId(rule.merged).value_or(kWordStart);
    size_t at = 0;
    while (merged.substr(at, kWordStart.size()) == kWordStart) at += kWordStart.size();
    if (merged.find(kWordStart, at) != merged.npos) return false;
  }
  return true;
}

void BpeModel::Encode(std::string_view piece, ModelScratch& scratch,
                      std::vector<int32_t>& out) const {
  if (!split_at_words_ || options_.ignore_merges) return EncodeWord(piece, scratch, out);
  ForEachWord(piece, [&](std::string_view word) { EncodeWord(word, scratch, out); });
}

void BpeModel::EncodeWord(std::string_view word, ModelScratch& scratch,
                          std::vector<int32_t>& out) const {
  if (word.empty()) return;
  const int32_t entry = word.size() <= tokens_->max_content_bytes() ? tokens_->FindEntry(word) : -1;
  if (entry < 0) return EncodeByMerges(word, scratch, out);
  const int32_t id = tokens_->IdOf(entry);
  std::atomic<uint8_t>& memo = memo_[entry];
  const uint8_t known =
      options_.ignore_merges ? uint8_t{kItself} : memo.load(std::memory_order_relaxed);
  if (known == kUnknown) {
    const size_t old_size = out.size();
    EncodeByMerges(word, scratch, out);
    const bool itself = out.size() == old_size + 1 && out.back() == id;
    memo.store(itself ? kItself : kDiffers, std::memory_order_relaxed);
  } else if (known == kItself) {
    out.push_back(id);
  } else {
    EncodeByMerges(word, scratch, out);
  }
}

void BpeModel::EncodeByMerges(std::string_view word, ModelScratch& scratch,
                              std::vector<int32_t>& out) const {
  ReadSymbols<false>(word, scratch);
  if (scratch.symbols.size() <= kShortWord) {
    MergeShort(scratch);
  } else {
    MergeLong(scratch);
  }
  out.insert(out.end(), scratch.symbols.begin(), scratch.symbols.end());
}

int32_t BpeModel::UnitId(char32_t code) const {
  if (code < 256) return low_units_[code];
  const auto it = high_units_.find(code);
  return it == high_units_.end() ? -1 : it->second;
}

int32_t BpeModel::AffixedUnitId(char32_t code, bool is_first, bool is_last) const {
  std::string unit = is_first ? "" : options_.continuing_prefix;
  AppendUtf8(options_.byte_level ? ByteToChar(static_cast<uint8_t>(code)) : code, unit);
  if (is_last) unit += options_.end_suffix;
  return vocabulary_.Find(unit).value_or(-1);
}

// Unknown characters wait in `unknown` until a known one follows; fallback bytes do not end the
// wait, a quirk of the reference that vocabularies with some bytes only would show.
template <bool kSized>
void BpeModel::ReadSymbols(std::string_view word, ModelScratch& scratch) const {
  std::vector<int32_t>& symbols = scratch.symbols;
  symbols.clear();
  if constexpr (kSized) scratch.sizes.clear();
  bool unknown = false;
  uint32_t unknown_size = 0;
  const auto add = [&](int32_t id, uint32_t size) {
    symbols.push_back(id);
    if constexpr (kSized) scratch.sizes.push_back(size);
  };
  for (size_t at = 0; at < word.size();) {
    Utf8Char c{static_cast<unsigned char>(word[at]), 1};
    if (!options_.byte_level) c = CharAt(word, at);
    at += c.size;
    const uint32_t size = kSized && options_.byte_level ? SpeltSize(word[at - 1]) : c.size;
    const int32_t id =
        has_affixes() ? AffixedUnitId(c.code, at == c.size, at == word.size()) : UnitId(c.code);
    if (id >= 0) {
      if (unknown) add(*options_.unk_id, unknown_size);
      unknown = false;
      add(id, size);
    } else if (const size_t num_bytes = AppendFallback(c.code, symbols); num_bytes > 0) {
      if constexpr (kSized) scratch.sizes.insert(scratch.sizes.end(), num_bytes, 1);
    } else if (options_.unk_id) {
      if (unknown && !options_.fuse_unk) add(*options_.unk_id, unknown_size);
      unknown_size = (unknown && options_.fuse_unk ? unknown_size : 0) + size;
      unknown = true;
    }
  }
  if (unknown) add(*options_.unk_id, unknown_size);
}

// How many ids it appended: those of the character's bytes, or none.
size_t BpeModel::AppendFallback(char32_t code, std::vector<int32_t>& symbols) const {
  if (!options_.byte_fallback) return 0;
  std::string bytes;
  AppendUtf8(options_.byte_level ? ByteToChar(static_cast<uint8_t>(code)) : code, bytes);
  for (const char byte : bytes) {
    if (fallback_[static_cast<unsigned char>(byte)] < 0) return 0;
  }
  for (const char byte : bytes) symbols.push_back(fallback_[static_cast<unsigned char>(byte)]);
  return bytes.size();
}

void BpeModel::EncodeSpans(std::string_view piece, ModelScratch& scratch,
                           std::vector<PieceToken>& out) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    if (const auto id = tokens_->Find(piece)) {
      out.push_back({*id, 0, static_cast<uint32_t>(piece.size())});
      return;
    }
  }
  ReadSymbols<true>(piece, scratch);
  const size_t count = scratch.symbols.size();
  scratch.nodes.resize(count);
  for (size_t i = 0; i < count; ++i) scratch.nodes[i].size = scratch.sizes[i];
  MergeNodes(scratch);
  const size_t old_size = out.size();
  uint32_t begin = 0;
  for (int32_t i = count > 0 ? 0 : -1; i >= 0; i = scratch.nodes[i].next) {
    const ModelScratch::Node& node = scratch.nodes[i];
    out.push_back({node.id, begin, begin + node.size});
    begin += node.size;
  }
  if (options_.byte_level) FromSpelling(piece, std::span(out).subspan(old_size));
}

void BpeModel::MergeShort(ModelScratch& scratch) const {
  std::vector<int32_t>& symbols = scratch.symbols;
  std::vector<Merge>& merges = scratch.merges;  // of symbols i and i + 1
  if (symbols.size() < 2) return;
  merges.resize(symbols.size() - 1);
  for (size_t i = 0; i < merges.size(); ++i) merges[i] = merges_.Find(symbols[i], symbols[i + 1]);
  while (!merges.empty()) {
    const auto best =
        std::min_element(merges.begin(), merges.end(),
                         [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->rank == Merge::kNone) return;
    const size_t i = best - merges.begin();
    symbols[i] = best->id;
    symbols.erase(symbols.begin() + i + 1);
    merges.erase(best);
    if (i > 0) merges[i - 1] = merges_.Find(symbols[i - 1], symbols[i]);
    if (i < merges.size()) merges[i] = merges_.Find(symbols[i], symbols[i + 1]);
  }
}

void BpeModel::MergeLong(ModelScratch& scratch) const {
  std::vector<int32_t>& symbols = scratch.symbols;
  const auto& nodes = scratch.nodes;
  scratch.nodes.resize(symbols.size());
  MergeNodes(scratch);
  const bool is_any = !symbols.empty();
  symbols.clear();
  for (int32_t i = is_any ? 0 : -1; i >= 0; i = nodes[i].next) symbols.push_back(nodes[i].id);
}

// Leaves what the symbols merge to in the nodes, linked from the first on. The nodes' sizes are the
// caller's.
void BpeModel::MergeNodes(ModelScratch& scratch) const {
  const std::vector<int32_t>& symbols = scratch.symbols;
  auto& nodes = scratch.nodes;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(symbols.size());
  const auto offer = [&](int32_t i) {  // [rank][position]: the leftmost of equal ranks comes first
    ModelScratch::Node& node = nodes[i];
    node.merge = node.next < 0 ? Merge{} : merges_.Find(node.id, nodes[node.next].id);
    if (node.merge.rank == Merge::kNone) return;
    heap.push_back(uint64_t{node.merge.rank} << 32 | static_cast<uint32_t>(i));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  heap.clear();
  for (int32_t i = 0; i < count; ++i) {
    nodes[i] = {symbols[i], i - 1, i + 1 < count ? i + 1 : -1, {}, nodes[i].size};
  }
  for (int32_t i = 0; i < count; ++i) offer(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto i = static_cast<int32_t>(heap.back() & UINT32_MAX);
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    heap.pop_back();
    ModelScratch::Node& node = nodes[i];
    if (node.merge.rank != rank) continue;  // the pair is gone
    ModelScratch::Node& right = nodes[node.next];
    node.id = node.merge.id;
    node.size += right.size;
    node.next = right.next;
    right.merge = {};
    if (node.next >= 0) nodes[node.next].previous = i;
    offer(i);
    if (node.previous >= 0) offer(node.previous);
  }
}

}  // namespace nereid::tokenizer
