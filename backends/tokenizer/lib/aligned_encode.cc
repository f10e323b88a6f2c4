// See aligned_encode.h.
#include "aligned_encode.h"

#include <algorithm>

#include "byte_level.h"
#include "char_traits.h"
#include "utf8.h"

namespace nereid::tokenizer {
namespace {

struct Spaces {
  uint32_t leading = 0, trailing = 0;  // characters
};

// Spaces as a byte-level token spells them, or as they are.
Spaces SpacesOf(std::string_view token) {
  Spaces spaces;
  bool is_leading = true;
  const char32_t spelt = ByteToChar(' ');
  for (size_t at = 0; at < token.size();) {
    const Utf8Char c = CharAt(token, at);
    at += c.size;
    const bool is_space = c.code == spelt || IsSpaceChar(c.code);
    is_leading &= is_space;
    spaces.leading += is_leading;
    spaces.trailing = is_space ? spaces.trailing + 1 : 0;
  }
  return spaces;
}

class AlignedEncoder {
 public:
  AlignedEncoder(const TokenizerParts& parts, std::string_view text) : parts_(parts), text_(text) {}

  // False when a pattern exceeded its work limit.
  bool Run() {
    std::vector<AddedTokens::Split> raw, normalized;
    parts_.added.SplitRaw(text_, raw);
    for (const AddedTokens::Split& stretch : raw) {
      const std::string_view piece = text_.substr(stretch.begin, stretch.end - stretch.begin);
      if (stretch.id >= 0) {
        Add(stretch.id, piece, {Narrow(stretch.begin), Narrow(stretch.end)});
        continue;
      }
      AlignedText aligned = AlignedText::Of(piece, stretch.begin);
      if (!parts_.normalizer.NormalizeAligned(aligned)) return false;
      parts_.added.SplitNormalized(aligned.text(), normalized);
      for (const AddedTokens::Split& part : normalized) {
        const AlignedText cut = aligned.Slice(part.begin, part.end);
        if (part.id >= 0) {
          Add(part.id, cut.text(), cut.Origin(0, cut.text().size()));
        } else if (!EncodePieces(cut, stretch.begin == 0 && part.begin == 0)) {
          return false;
        }
      }
    }
    return true;
  }

  Encoding Take() { return std::move(encoding_); }
  const std::vector<Spaces>& spaces() const { return spaces_; }

 private:
  static uint32_t Narrow(size_t value) { return static_cast<uint32_t>(value); }

  bool EncodePieces(const AlignedText& text, bool at_start) {
    pieces_.clear();
    if (!parts_.pre_tokenizer.SplitAligned(text, at_start, pieces_)) return false;
    for (const AlignedText& piece : pieces_) {
      tokens_.clear();
      parts_.model->EncodeSpans(piece.text(), scratch_, tokens_);
      for (const PieceToken& token : tokens_) {
        // Characters that no token stands for make tokens reach less far than the piece.
        const size_t end = std::min<size_t>(token.end, piece.text().size());
        const size_t begin = std::min<size_t>(token.begin, end - 1);
        const std::string_view spelling =
            token.is_spelt_as_text ? std::string_view(piece.text()).substr(begin, end - begin)
                                   : parts_.vocabulary.OfId(token.id).value_or("");
        Add(token.id, spelling, piece.Origin(begin, end));
      }
    }
    return true;
  }

  void Add(int32_t id, std::string_view spelling, TextSpan bytes) {
    encoding_.Push(id, {CharOf(bytes.begin), CharOf(bytes.end)}, false);
    if (!parts_.offset_trims.empty()) spaces_.push_back(SpacesOf(spelling));
  }

  // How many characters of the text begin before byte `at`.
  uint32_t CharOf(size_t at) {
    if (chars_.empty()) {
      chars_.resize(text_.size() + 1);
      uint32_t count = 0;
      for (size_t i = 0; i < text_.size(); ++i) {
        count += !IsContinuation(text_[i]);
        chars_[i + 1] = count;
      }
    }
    return chars_[at];
  }

  const TokenizerParts& parts_;
  const std::string_view text_;
  Encoding encoding_;
  std::vector<Spaces> spaces_;  // of each token's spelling, where offsets are trimmed
  std::vector<uint32_t> chars_;
  std::vector<AlignedText> pieces_;
  std::vector<PieceToken> tokens_;
  ModelScratch scratch_;
};

// A token's spaces do not belong to what it stands for, but for the one that was put before the
// text.
void Trim(const OffsetTrim& trim, size_t index, Spaces spaces, TextSpan& offset) {
  if (spaces.leading > 0) {
    const bool is_first = index == 0 || offset.begin == 0;
    if (is_first && trim.add_prefix_space && spaces.leading == 1) spaces.leading = 0;
    offset.begin = std::min(offset.begin + spaces.leading, offset.end);
  }
  if (spaces.trailing > 0 && offset.end >= spaces.trailing) {
    offset.end = std::max(offset.end - spaces.trailing, offset.begin);
  }
}

void Wrap(const TokenizerParts& parts, Encoding& encoding) {
  Encoding wrapped;
  for (const int32_t id : parts.prefix_ids) wrapped.Push(id, {}, true);
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    wrapped.Push(encoding.ids[i], encoding.offsets[i], encoding.special_mask[i] != 0);
  }
  for (const int32_t id : parts.suffix_ids) wrapped.Push(id, {}, true);
  encoding = std::move(wrapped);
}

}  // namespace

Result<Encoding> EncodeWithOffsets(const TokenizerParts& parts, std::string_view text,
                                   bool add_special_tokens) {
  if (text.size() > UINT32_MAX) {
    return InvalidArgError("text of ", text.size(), " bytes: expected at most ", UINT32_MAX);
  }
  AlignedEncoder encoder(parts, text);
  if (!encoder.Run()) {
    return InvalidArgError("text of ", text.size(),
                           " bytes: a pattern of the tokenizer exceeded its work limit");
  }
  const Encoding whole = encoder.Take();
  const size_t count = whole.ids.size();
  std::vector<TextSpan> ranges = {{0, static_cast<uint32_t>(count)}};
  if (parts.truncation) {
    const size_t num_added =
        add_special_tokens ? parts.prefix_ids.size() + parts.suffix_ids.size() : 0;
    NEREID_ASSIGN_OR_RETURN(const size_t limit, parts.truncation->Limit(count, num_added));
    NEREID_ASSIGN_OR_RETURN(ranges, CutRanges(count, limit, num_added, *parts.truncation));
  }
  std::vector<Encoding> pieces;
  for (const TextSpan& range : ranges) {
    Encoding& piece = pieces.emplace_back(whole.Part(range.begin, range.end));
    for (const OffsetTrim& trim : parts.offset_trims) {
      const size_t num_before = add_special_tokens ? trim.num_before : 0;
      for (size_t i = 0; i < piece.ids.size(); ++i) {
        Trim(trim, num_before + i, encoder.spaces()[range.begin + i], piece.offsets[i]);
      }
    }
    if (add_special_tokens) Wrap(parts, piece);
  }
  Encoding encoding = std::move(pieces.front());
  encoding.overflowing.assign(std::make_move_iterator(pieces.begin() + 1),
                              std::make_move_iterator(pieces.end()));
  return encoding;
}

}  // namespace nereid::tokenizer
