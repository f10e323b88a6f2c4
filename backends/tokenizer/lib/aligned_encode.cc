// See aligned_encode.h.
#include "backends/tokenizer/lib/aligned_encode.h"

#include <algorithm>
#include <array>

#include "backends/tokenizer/lib/text/byte_level.h"
#include "backends/tokenizer/lib/text/char_traits.h"
#include "backends/tokenizer/lib/text/utf8.h"

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

// A text before anything is cut off or put around it.
struct TextTokens {
  std::vector<int32_t> ids;
  std::vector<TextSpan> offsets;
  std::vector<Spaces> spaces;    // of each token's spelling, where offsets are trimmed
  std::vector<TextSpan> pieces;  // what stays of the tokens, then what overflows
};

class AlignedEncoder {
 public:
  AlignedEncoder(const TokenizerParts& parts, std::string_view text) : parts_(parts), text_(text) {}

  bool lacks_unknown() const { return scratch_.lacks_unknown; }

  // False when a pattern exceeded its work limit, or lacks_unknown().
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

  TextTokens Take() { return std::move(tokens_); }

 private:
  static uint32_t Narrow(size_t value) { return static_cast<uint32_t>(value); }

  bool EncodePieces(const AlignedText& text, bool at_start) {
    pieces_.clear();
    if (!parts_.pre_tokenizer.SplitAligned(text, at_start, pieces_)) return false;
    for (const AlignedText& piece : pieces_) {
      of_piece_.clear();
      parts_.model->EncodeSpans(piece.text(), scratch_, of_piece_);
      if (scratch_.lacks_unknown) return false;
      for (const PieceToken& token : of_piece_) {
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
    tokens_.ids.push_back(id);
    tokens_.offsets.push_back({CharOf(bytes.begin), CharOf(bytes.end)});
    if (parts_.post.trims_offsets()) tokens_.spaces.push_back(SpacesOf(spelling));
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
  TextTokens tokens_;
  std::vector<uint32_t> chars_;
  std::vector<AlignedText> pieces_;
  std::vector<PieceToken> of_piece_;
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

using Texts = std::span<const std::string_view>;

// Which piece of each text; 0 stays, the others overflow.
using PieceChoice = std::array<size_t, 2>;

Encoding Assemble(const PostLayout& layout, std::span<const TextTokens> texts, PieceChoice choice) {
  Encoding made;
  for (const PostItem& item : layout.items) {
    const bool overflows = item.owner >= 0 && choice[static_cast<size_t>(item.owner)] > 0;
    const int32_t type_id = overflows ? item.overflow_type_id : item.type_id;
    if (item.text < 0) {
      made.Push(item.id, type_id, {}, item.is_special);
      continue;
    }
    const auto text = static_cast<size_t>(item.text);
    const TextTokens& tokens = texts[text];
    const TextSpan piece = tokens.pieces[choice[text]];
    for (size_t i = piece.begin; i < piece.end; ++i) {
      TextSpan offset = tokens.offsets[i];
      for (const OffsetTrim& trim : layout.trims[text]) {
        Trim(trim, trim.num_before + i - piece.begin, tokens.spaces[i], offset);
      }
      made.Push(tokens.ids[i], type_id, offset, item.is_special);
    }
  }
  return made;
}

// What overflows: each piece of the text that comes first with all of the other's, in the
// reference's order.
std::vector<PieceChoice> Overflowing(const PostLayout& layout, std::span<const TextTokens> texts) {
  std::vector<size_t> order;
  for (const PostItem& item : layout.items) {
    if (item.text >= 0) order.push_back(static_cast<size_t>(item.text));
  }
  std::vector<PieceChoice> choices;
  const size_t num_others = order.size() == 2 ? texts[order[1]].pieces.size() : 1;
  for (size_t i = 1; i <= texts[order[0]].pieces.size(); ++i) {
    PieceChoice choice = {};
    choice[order[0]] = i % texts[order[0]].pieces.size();  // what stays of it comes last
    for (size_t other = choice[order[0]] == 0 ? 1 : 0; other < num_others; ++other) {
      if (order.size() == 2) choice[order[1]] = other;
      choices.push_back(choice);
    }
  }
  return choices;
}

// Says what stays and what overflows of each text.
Status CutTexts(const TokenizerParts& parts, size_t num_added, std::span<TextTokens> texts) {
  std::array<size_t, 2> counts = {}, limits;
  for (size_t i = 0; i < texts.size(); ++i) limits[i] = counts[i] = texts[i].ids.size();
  if (parts.truncation && texts.size() == 1) {
    NEREID_ASSIGN_OR_RETURN(limits[0], parts.truncation->Limit(counts[0], num_added));
  } else if (parts.truncation) {
    NEREID_ASSIGN_OR_RETURN(limits, parts.truncation->PairLimits(counts, num_added));
  }
  size_t num_pieces = 1, length = num_added;
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i].pieces = {{0, static_cast<uint32_t>(counts[i])}};
    if (parts.truncation) {
      NEREID_ASSIGN_OR_RETURN(texts[i].pieces,
                              CutRanges(counts[i], limits[i], num_added, *parts.truncation));
    }
    num_pieces *= texts[i].pieces.size();
    // Where nothing of a text may stay, all of it overflows in one piece.
    length += texts[i].pieces.size() > 1 && limits[i] == 0 ? counts[i] : limits[i];
  }
  if (texts.size() > 1 && num_pieces > 1 && num_pieces > kMaxTokensOfCall / length) {
    return InvalidArgError("truncation: two texts of ", counts[0], " and ", counts[1],
                           " tokens make ", num_pieces, " pairs of pieces of up to ", length,
                           " tokens, expected at most ", kMaxTokensOfCall, " tokens in all");
  }
  return {};
}

}  // namespace

Status CannotEncode(size_t num_bytes, bool lacks_unknown) {
  return InvalidArgError("text of ", num_bytes, " bytes: ",
                         lacks_unknown ? "the tokenizer has no token for a part of it, and no "
                                         "unknown token"
                                       : "a pattern of the tokenizer exceeded its work limit");
}

Result<Encoding> EncodeWithOffsets(const TokenizerParts& parts, Texts texts,
                                   bool add_special_tokens) {
  const bool is_pair = texts.size() > 1;
  NEREID_ASSIGN_OR_RETURN(const PostLayout* layout, parts.post.Layout(is_pair, add_special_tokens));
  std::vector<TextTokens> tokens;
  for (const std::string_view text : texts) {
    if (text.size() > UINT32_MAX) {
      return InvalidArgError("text of ", text.size(), " bytes: expected at most ", UINT32_MAX);
    }
    AlignedEncoder encoder(parts, text);
    if (!encoder.Run()) {
      return CannotEncode(text.size(), encoder.lacks_unknown());
    }
    tokens.push_back(encoder.Take());
  }
  const size_t num_added = add_special_tokens ? parts.post.NumAdded(is_pair) : 0;
  NEREID_RETURN_IF_ERROR(CutTexts(parts, num_added, tokens));
  Encoding encoding = Assemble(*layout, tokens, {});
  for (const PieceChoice& choice : Overflowing(*layout, tokens)) {
    encoding.overflowing.push_back(Assemble(*layout, tokens, choice));
  }
  return encoding;
}

}  // namespace nereid::tokenizer
