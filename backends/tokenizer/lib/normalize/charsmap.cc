// See charsmap.h.
#include "backends/tokenizer/lib/normalize/charsmap.h"

#include <algorithm>
#include <cstring>

#include "backends/tokenizer/lib/text/byte_encoding.h"
#include "backends/tokenizer/lib/text/char_traits.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

// Like the reference, looks up graphemes of this many bytes or more only character by character.
constexpr size_t kLongGrapheme = 6;

// Bits of a darts-clone unit: whether a key ends here, the label, the offset of the children. The
// unit after the end of a key contains its value.
constexpr uint32_t kEnds = 0x100, kLabel = 0x800000FF, kValue = 0x7FFFFFFF;

uint32_t ChildrenOf(uint32_t unit) {
  return (unit >> 10) << ((unit & 0x200) >> 6);
}

class PrecompiledStep : public NormalizerStep {
 public:
  explicit PrecompiledStep(Charsmap map) : map_(std::move(map)) {}

  bool Apply(std::string_view text, std::string& out) const override {
    out.reserve(out.size() + text.size());
    for (size_t at = 0; at < text.size();) {
      const size_t plain = EndOfUnchanged(text, at);
      out.append(text, at, plain - at);
      at = plain;
      if (at == text.size()) break;
      const size_t end = GraphemeEnd(text, at);
      if (end - at < kLongGrapheme) {
        if (const Charsmap::Match match = map_.Shortest(text.substr(at, end - at));
            match.size > 0) {
          out.append(match.replacement);  // replaces the whole grapheme
          at = end;
          continue;
        }
      }
      for (size_t size; at < end; at += size) {
        size = Utf8Length(text[at]);
        const Charsmap::Match match = map_.Shortest(text.substr(at, size));
        out.append(match.size > 0 ? match.replacement : text.substr(at, size));
      }
    }
    return true;
  }
  bool ApplyAligned(AlignedText& text) const override {
    const std::string_view old = text.text();
    std::vector<CharChange> changes;
    for (size_t at = 0; at < old.size();) {
      const size_t end = GraphemeEnd(old, at);
      if (const std::string_view grapheme = old.substr(at, end - at);
          grapheme.size() < kLongGrapheme) {
        if (const Charsmap::Match match = map_.Shortest(grapheme); match.size > 0) {
          AppendChanges(grapheme, match.replacement, changes);
          at = end;
          continue;
        }
      }
      for (size_t size; at < end; at += size) {
        size = Utf8Length(old[at]);
        const std::string_view single = old.substr(at, size);
        const Charsmap::Match match = map_.Shortest(single);
        AppendChanges(single, match.size > 0 ? match.replacement : single, changes);
      }
    }
    text.Transform(changes);
    return true;
  }

 private:
  // Aligns the new characters with the old ones one by one. Further new characters are insertions.
  // Old characters without a counterpart count as removed after the preceding character. At the
  // start of the text there is none; as in the reference, offsets are then wrong.
  static void AppendChanges(std::string_view from, std::string_view to,
                            std::vector<CharChange>& changes) {
    size_t num_old = 0, num_new = 0;
    for (size_t at = 0; at < from.size(); at += Utf8Length(from[at])) ++num_old;
    for (size_t at = 0; at < to.size(); ++num_new) {
      const Utf8Char c = CharAt(to, at);
      at += c.size;
      changes.push_back({c.code, num_new < num_old ? 0 : 1});
    }
    if (num_new < num_old && !changes.empty()) {
      changes.back().change -= static_cast<int32_t>(num_old - num_new);
    }
  }

  // Returns the end of the ASCII characters that are unchanged and that no following character
  // joins.
  size_t EndOfUnchanged(std::string_view text, size_t at) const {
    const size_t begin = at;
    while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80 &&
           map_.IsAsciiUnchanged(text[at])) {
      ++at;
    }
    if (at > begin && at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80) --at;
    return at;
  }

  Charsmap map_;
};

}  // namespace

Result<Charsmap> Charsmap::Make(std::string_view bytes) {
  uint32_t trie_bytes = 0;
  if (bytes.size() < sizeof(trie_bytes)) {
    return InvalidArgError("character map: expected at least 4 bytes, got ", bytes.size());
  }
  std::memcpy(&trie_bytes, bytes.data(), sizeof(trie_bytes));
  bytes.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes > bytes.size() || trie_bytes % sizeof(uint32_t) != 0) {
    return InvalidArgError("character map: a trie of ", trie_bytes, " bytes, with ", bytes.size(),
                           " bytes left");
  }
  Charsmap map;
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  if (trie_bytes > 0) std::memcpy(map.units_.data(), bytes.data(), trie_bytes);
  map.replacements_ = bytes.substr(trie_bytes);
  if (!IsValidUtf8(map.replacements_)) {
    return InvalidArgError("character map: replacements that are not UTF-8");
  }
  for (uint32_t c = 0; c < 128; ++c) {
    map.is_ascii_unchanged_[c] = true;
    if (c == 0 || map.units_.empty()) continue;
    const uint32_t place = ChildrenOf(map.units_[0]) ^ c;
    map.is_ascii_unchanged_[c] = place >= map.units_.size() || (map.units_[place] & kLabel) != c;
  }
  return map;
}

Charsmap::Match Charsmap::Find(std::string_view text, bool longest) const {
  Match match;
  if (units_.empty()) return match;
  uint32_t place = ChildrenOf(units_[0]);
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == 0) break;
    place ^= byte;
    if (place >= units_.size() || (units_[place] & kLabel) != byte) break;
    const uint32_t unit = units_[place];
    place ^= ChildrenOf(unit);
    if (place >= units_.size()) break;
    if ((unit & kEnds) != 0) {
      const uint32_t offset = units_[place] & kValue;
      if (offset < replacements_.size()) {
        match.size = at + 1;
        match.replacement = std::string_view(replacements_.c_str() + offset);
        if (!longest) break;
      }
    }
  }
  return match;
}

namespace {

// Replaces characters and marks spaces. As configured, prepends a dummy space, strips spaces at
// both ends and collapses repeated ones.
class SentencePieceStep : public NormalizerStep {
 public:
  SentencePieceStep(Charsmap map, TokenTrie user_pieces, SentencePieceSpaces spaces)
      : map_(std::move(map)), user_pieces_(std::move(user_pieces)), spaces_(spaces) {}

  bool Apply(std::string_view text, std::string& out) const override {
    const size_t begin = out.size();
    Walk(
        text, [&] { out.append(kSpaceMark); },
        [&](std::string_view bytes, size_t, size_t, size_t) { out.append(bytes); });
    if (spaces_.remove_extra) {  // U+2581 written in the text is stripped at the end, too
      while (std::string_view(out).substr(begin).ends_with(kSpaceMark)) {
        out.resize(out.size() - kSpaceMark.size());
      }
    }
    return true;
  }

  bool ApplyAligned(AlignedText& text) const override {
    AlignedText rewritten_text = AlignedText::EmptyLike(text);
    bool has_prefix = false;
    Walk(
        text.text(), [&] { has_prefix = true; },
        [&](std::string_view bytes, size_t begin, size_t end, size_t copied) {
          if (copied != std::string::npos) {
            rewritten_text.Append(text, copied, copied + bytes.size());
          } else {
            rewritten_text.Append(bytes, text.Origin(begin, end));
          }
        });
    if (has_prefix && rewritten_text.text().empty())
      rewritten_text.Append(kSpaceMark, text.from(0));
    else if (has_prefix)
      rewritten_text.Prepend(kSpaceMark);
    const std::string_view rewritten = rewritten_text.text();
    size_t end = rewritten.size();
    while (spaces_.remove_extra && rewritten.substr(0, end).ends_with(kSpaceMark)) {
      end -= kSpaceMark.size();
    }
    text = end < rewritten.size() ? rewritten_text.Slice(0, end) : std::move(rewritten_text);
    return true;
  }

 private:
  // The next section of the text: `size` bytes, which become `replaced_by`.
  struct Section {
    size_t size;
    std::string_view replaced_by;
    bool is_copied;  // unchanged
  };
  Section NextSection(std::string_view text, size_t at) const {
    if (const auto user_pieces =
            user_pieces_.empty() ? std::nullopt : user_pieces_.FindAt(text, at)) {
      return {user_pieces->end - at, text.substr(at, user_pieces->end - at), true};
    }
    const Charsmap::Match match = map_.Longest(text.substr(at));
    if (match.size > 0) return {match.size, match.replacement, false};
    const size_t size = Utf8Length(text[at]);
    return {size, text.substr(at, size), true};
  }

  // Calls `prefix()` if a dummy prefix comes next, then `add(bytes, begin, end, copied)` for each
  // section of the result. The section corresponds to text[begin, end) and is a copy of the bytes
  // at `copied`, or no copy (npos).
  template <typename Prefix, typename Add>
  void Walk(std::string_view text, Prefix prefix, Add add) const {
    size_t at = 0;
    while (spaces_.remove_extra && at < text.size()) {
      const Section next = NextSection(text, at);
      if (next.replaced_by != " ") break;
      at += next.size;
    }
    if (at >= text.size()) return;
    if (spaces_.dummy_prefix) prefix();
    bool follows_space = spaces_.remove_extra;
    for (size_t size = 0; at < text.size(); at += size) {
      const Section next = NextSection(text, at);
      size = next.size;
      const std::string_view bytes = next.replaced_by;
      size_t done = 0;
      while (follows_space && done < bytes.size() && bytes[done] == ' ') ++done;
      if (done < bytes.size()) follows_space = spaces_.remove_extra && bytes.back() == ' ';
      while (done < bytes.size()) {
        const bool is_space = bytes[done] == ' ';
        const size_t end = is_space ? done + 1 : std::min(bytes.find(' ', done), bytes.size());
        const size_t copied = next.is_copied && !is_space ? at + done : std::string::npos;
        add(is_space ? kSpaceMark : bytes.substr(done, end - done), at, at + size, copied);
        done = end;
      }
    }
  }

  static constexpr std::string_view kSpaceMark = "\u2581";
  Charsmap map_;
  TokenTrie user_pieces_;
  SentencePieceSpaces spaces_;
};

}  // namespace

std::unique_ptr<const NormalizerStep> MakeSentencePieceStep(Charsmap map, TokenTrie user_pieces,
                                                            SentencePieceSpaces spaces) {
  return std::make_unique<SentencePieceStep>(std::move(map), std::move(user_pieces), spaces);
}

Result<std::unique_ptr<const NormalizerStep>> MakePrecompiledStep(std::string_view base64) {
  std::string bytes;
  bytes.reserve(base64.size() / 4 * 3);
  if (!AppendBase64(base64, bytes)) return InvalidArgError("precompiled_charsmap: not base64");
  NEREID_ASSIGN_OR_RETURN(Charsmap map, Charsmap::Make(bytes));
  return std::unique_ptr<const NormalizerStep>(std::make_unique<PrecompiledStep>(std::move(map)));
}

}  // namespace nereid::tokenizer
