// See bpe_model.h. The initial symbols are characters or bytes. The adjacent pair with the lowest
// rank is merged, the leftmost first, until no rule applies.
#include "backends/tokenizer/lib/model/bpe_model.h"

#include <algorithm>
#include <functional>
#include <span>

#include "backends/tokenizer/lib/text/byte_encoding.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

constexpr std::string_view kWordStart = "\u2581";
constexpr size_t kShortWord = 64;  // in symbols; for longer words a heap is faster than scanning

// Calls `visit` for each word, which is a run of U+2581 and the text up to the next U+2581.
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

// Returns the highest rank if each rank has only one merged token and no rank exceeds the number of
// rules; else 0.
uint32_t MaxRankIfUnique(const std::vector<MergeRule>& rules) {
  std::vector<int32_t> merged(rules.size(), -1);  // by rank
  uint32_t highest = 0;
  for (const MergeRule& rule : rules) {
    if (rule.rank >= merged.size()) return 0;
    if (merged[rule.rank] >= 0 && merged[rule.rank] != rule.merged) return 0;
    merged[rule.rank] = rule.merged;
    highest = std::max(highest, rule.rank);
  }
  return highest;
}

uint32_t PrintableSize(char byte) {
  return ByteToChar(static_cast<uint8_t>(byte)) < 0x80 ? 1 : 2;
}

// Converts token ranges in the printable form of `pretoken` to ranges of its bytes. A range that
// covers part of a byte's printable form covers the byte. Bytes may have been skipped.
void PrintableToByteSpans(std::string_view pretoken, std::span<TokenSpan> tokens) {
  uint32_t at = 0, printable_at = 0;  // a byte, and the start of its printable form
  const auto byte_of = [&](uint32_t position) {
    while (at + 1 < pretoken.size() && printable_at + PrintableSize(pretoken[at]) <= position) {
      printable_at += PrintableSize(pretoken[at++]);
    }
    return at;
  };
  for (TokenSpan& token : tokens) {
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
      merges_(rules.size(), MaxRankIfUnique(rules)) {
  for (const MergeRule& rule : rules) merges_.Add(rule.left, rule.right, {rule.rank, rule.merged});
  BuildSymbolIds(vocabulary);
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

void BpeModel::BuildSymbolIds(const TokenTable& vocabulary) {
  low_symbol_ids_.fill(-1);
  for (unsigned b = 0; b < 256; ++b) {
    std::string name;
    AppendUtf8(options_.byte_level ? ByteToChar(static_cast<uint8_t>(b)) : b, name);
    low_symbol_ids_[b] = vocabulary.Find(name).value_or(-1);
    fallback_[b] = vocabulary.Find(FallbackName(static_cast<uint8_t>(b))).value_or(-1);
  }
  if (options_.byte_level) return;
  for (size_t entry = 0; entry < vocabulary.num_entries(); ++entry) {
    const std::string_view content = vocabulary.Content(static_cast<int32_t>(entry));
    if (content.empty() || content.size() != Utf8Length(content[0])) continue;
    const Utf8Char c = CharAt(content, 0);
    if (c.code >= 256) high_symbol_ids_[c.code] = vocabulary.IdOf(static_cast<int32_t>(entry));
  }
}

// Whether merges within a word cannot depend on adjacent words: no merged token has U+2581 after
// another character. Long texts without a pre-tokenizer are then encoded word by word.
bool BpeModel::WordsAreIndependent(const TokenTable& vocabulary,
                                   const std::vector<MergeRule>& rules) const {
  if (SymbolId(CharAt(kWordStart, 0).code) < 0) return false;
  for (const MergeRule& rule : rules) {
    const std::string_view merged = vocabulary.OfId(rule.merged).value_or(kWordStart);
    size_t at = 0;
    while (merged.substr(at, kWordStart.size()) == kWordStart) at += kWordStart.size();
    if (merged.find(kWordStart, at) != merged.npos) return false;
  }
  return true;
}

void BpeModel::Encode(std::string_view pretoken, ModelScratch& scratch,
                      std::vector<int32_t>& out) const {
  if (!split_at_words_ || options_.ignore_merges) return EncodeWord(pretoken, scratch, out);
  ForEachWord(pretoken, [&](std::string_view word) { EncodeWord(word, scratch, out); });
}

void BpeModel::EncodeWord(std::string_view word, ModelScratch& scratch,
                          std::vector<int32_t>& out) const {
  if (word.empty()) return;
  const int32_t entry = word.size() <= tokens_->max_content_bytes() ? tokens_->FindEntry(word) : -1;
  if (entry < 0) return EncodeByMerges(word, scratch, out);
  const int32_t id = tokens_->IdOf(entry);
  std::atomic<uint8_t>& memo = memo_[entry];
  const uint8_t known =
      options_.ignore_merges ? uint8_t{kEncodesToItself} : memo.load(std::memory_order_relaxed);
  if (known == kUnknown) {
    const size_t old_size = out.size();
    EncodeByMerges(word, scratch, out);
    const bool itself = out.size() == old_size + 1 && out.back() == id;
    memo.store(itself ? kEncodesToItself : kEncodesToOthers, std::memory_order_relaxed);
  } else if (known == kEncodesToItself) {
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

int32_t BpeModel::SymbolId(char32_t code) const {
  if (code < 256) return low_symbol_ids_[code];
  const auto it = high_symbol_ids_.find(code);
  return it == high_symbol_ids_.end() ? -1 : it->second;
}

int32_t BpeModel::AffixedSymbolId(char32_t code, bool is_first, bool is_last) const {
  std::string unit = is_first ? "" : options_.continuing_prefix;
  AppendUtf8(options_.byte_level ? ByteToChar(static_cast<uint8_t>(code)) : code, unit);
  if (is_last) unit += options_.end_suffix;
  return vocabulary_.Find(unit).value_or(-1);
}

// An unknown character is pending in `unknown` until a known one follows. As in the reference,
// fallback bytes do not end the pending state; this only matters for vocabularies with some of the
// 256 byte tokens.
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
    const uint32_t size = kSized && options_.byte_level ? PrintableSize(word[at - 1]) : c.size;
    const int32_t id =
        has_affixes() ? AffixedSymbolId(c.code, at == c.size, at == word.size()) : SymbolId(c.code);
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

// Appends the ids of the character's bytes, or nothing if one is missing. Returns their number.
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

void BpeModel::EncodeSpans(std::string_view pretoken, ModelScratch& scratch,
                           std::vector<TokenSpan>& out) const {
  if (pretoken.empty()) return;
  if (options_.ignore_merges) {
    if (const auto id = tokens_->Find(pretoken)) {
      out.push_back({*id, 0, static_cast<uint32_t>(pretoken.size())});
      return;
    }
  }
  ReadSymbols<true>(pretoken, scratch);
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
  if (options_.byte_level) PrintableToByteSpans(pretoken, std::span(out).subspan(old_size));
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

// Merges the symbols; the result is the linked list of nodes that starts at the first. The caller
// sets the sizes of the nodes.
void BpeModel::MergeNodes(ModelScratch& scratch) const {
  const std::vector<int32_t>& symbols = scratch.symbols;
  auto& nodes = scratch.nodes;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(symbols.size());
  const auto push_merge =
      [&](int32_t i) {  // key: rank, then position, so that the leftmost of equal ranks comes first
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
  for (int32_t i = 0; i < count; ++i) push_merge(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto i = static_cast<int32_t>(heap.back() & UINT32_MAX);
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    heap.pop_back();
    ModelScratch::Node& node = nodes[i];
    if (node.merge.rank != rank) continue;  // the pair was merged otherwise
    ModelScratch::Node& right = nodes[node.next];
    node.id = node.merge.id;
    node.size += right.size;
    node.next = right.next;
    right.merge = {};
    if (node.next >= 0) nodes[node.next].previous = i;
    push_merge(i);
    if (node.previous >= 0) push_merge(node.previous);
  }
}

}  // namespace nereid::tokenizer
