// See encode_with_offsets.h.
#include "backends/tokenizer/lib/encode_with_offsets.h"

#include <algorithm>
#include <array>

#include "backends/tokenizer/lib/text/byte_encoding.h"
#include "backends/tokenizer/lib/text/char_traits.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

struct SpaceCounts {
  uint32_t leading = 0, trailing = 0;  // number of characters
};

// Counts spaces both as characters and in the printable form of byte-level tokens.
SpaceCounts CountSpaces(std::string_view token) {
  SpaceCounts spaces;
  bool is_leading = true;
  const char32_t printable_space = ByteToChar(' ');
  for (size_t at = 0; at < token.size();) {
    const Utf8Char c = CharAt(token, at);
    at += c.size;
    const bool is_space = c.code == printable_space || IsSpaceChar(c.code);
    is_leading &= is_space;
    spaces.leading += is_leading;
    spaces.trailing = is_space ? spaces.trailing + 1 : 0;
  }
  return spaces;
}

// The tokens of a text before truncation and without special tokens.
struct EncodedText {
  std::vector<int32_t> ids;
  std::vector<TextSpan> offsets;
  std::vector<SpaceCounts>
      spaces;  // of each token's content; only filled if a post-processor trims offsets
  std::vector<TextSpan> windows;  // token ranges: first the kept window, then the overflowing ones
};

class OffsetEncoder {
 public:
  OffsetEncoder(const TokenizerComponents& components, std::string_view text)
      : components_(components), text_(text) {}

  bool lacks_unk_token() const { return scratch_.lacks_unk_token; }

  // Returns false if a pattern exceeded its work limit or lacks_unk_token() is true.
  bool Run() {
    std::vector<AddedTokens::Split> raw_splits, splits;
    components_.added.SplitRaw(text_, raw_splits);
    for (const AddedTokens::Split& raw_split : raw_splits) {
      const std::string_view section =
          text_.substr(raw_split.begin, raw_split.end - raw_split.begin);
      if (raw_split.id >= 0) {
        Add(raw_split.id, section, {Narrow(raw_split.begin), Narrow(raw_split.end)});
        continue;
      }
      AlignedText aligned = AlignedText::Of(section, raw_split.begin);
      if (!components_.normalizer.NormalizeAligned(aligned)) return false;
      components_.added.SplitNormalized(aligned.text(), splits);
      for (const AddedTokens::Split& split : splits) {
        const AlignedText cut = aligned.Slice(split.begin, split.end);
        if (split.id >= 0) {
          Add(split.id, cut.text(), cut.Origin(0, cut.text().size()));
        } else if (!EncodePretokens(cut)) {
          return false;
        }
      }
    }
    return true;
  }

  EncodedText Take() { return std::move(tokens_); }

 private:
  static uint32_t Narrow(size_t value) { return static_cast<uint32_t>(value); }

  bool EncodePretokens(const AlignedText& text) {
    pretokens_.clear();
    if (!components_.pre_tokenizer.SplitAligned(text, pretokens_)) return false;
    for (const AlignedText& pretoken : pretokens_) {
      token_spans_.clear();
      components_.model->EncodeSpans(pretoken.text(), scratch_, token_spans_);
      if (scratch_.lacks_unk_token) return false;
      for (const TokenSpan& token : token_spans_) {
        // Characters without a token make the tokens cover less than the pre-token.
        const size_t end = std::min<size_t>(token.end, pretoken.text().size());
        const size_t begin = std::min<size_t>(token.begin, end - 1);
        const std::string_view content =
            token.keeps_text ? std::string_view(pretoken.text()).substr(begin, end - begin)
                             : components_.vocabulary.OfId(token.id).value_or("");
        Add(token.id, content, pretoken.Origin(begin, end));
      }
    }
    return true;
  }

  void Add(int32_t id, std::string_view content, TextSpan bytes) {
    tokens_.ids.push_back(id);
    tokens_.offsets.push_back({CharOf(bytes.begin), CharOf(bytes.end)});
    if (components_.post.trims_offsets()) tokens_.spaces.push_back(CountSpaces(content));
  }

  // Returns how many characters of the text begin before byte `at`.
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

  const TokenizerComponents& components_;
  const std::string_view text_;
  EncodedText tokens_;
  std::vector<uint32_t> chars_;
  std::vector<AlignedText> pretokens_;
  std::vector<TokenSpan> token_spans_;
  ModelScratch scratch_;
};

// Excludes a token's leading and trailing spaces from its offset, except for the space that a
// pre-tokenizer prepended to the text.
void Trim(const OffsetTrim& trim, size_t index, SpaceCounts spaces, TextSpan& offset) {
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

// The chosen window of each text. Window 0 is kept; the others overflow.
using WindowChoice = std::array<size_t, 2>;

Encoding Assemble(const EncodingTemplate& encoding_template, std::span<const EncodedText> texts,
                  WindowChoice choice) {
  Encoding encoding;
  for (const TemplateItem& item : encoding_template.items) {
    const bool overflows = item.owner >= 0 && choice[static_cast<size_t>(item.owner)] > 0;
    const int32_t type_id = overflows ? item.overflow_type_id : item.type_id;
    if (item.text < 0) {
      encoding.Push(item.id, type_id, {}, item.is_special);
      continue;
    }
    const auto text = static_cast<size_t>(item.text);
    const EncodedText& tokens = texts[text];
    const TextSpan window = tokens.windows[choice[text]];
    for (size_t i = window.begin; i < window.end; ++i) {
      TextSpan offset = tokens.offsets[i];
      for (const OffsetTrim& trim : encoding_template.trims[text]) {
        Trim(trim, trim.num_before + i - window.begin, tokens.spaces[i], offset);
      }
      encoding.Push(tokens.ids[i], type_id, offset, item.is_special);
    }
  }
  return encoding;
}

// The combinations of windows that overflow: each window of the text that comes first in the
// template with each window of the other text, in the reference's order.
std::vector<WindowChoice> OverflowChoices(const EncodingTemplate& encoding_template,
                                          std::span<const EncodedText> texts) {
  std::vector<size_t> order;
  for (const TemplateItem& item : encoding_template.items) {
    if (item.text >= 0) order.push_back(static_cast<size_t>(item.text));
  }
  std::vector<WindowChoice> choices;
  const size_t num_others = order.size() == 2 ? texts[order[1]].windows.size() : 1;
  for (size_t i = 1; i <= texts[order[0]].windows.size(); ++i) {
    WindowChoice choice = {};
    choice[order[0]] = i % texts[order[0]].windows.size();  // window 0 of this text comes last
    for (size_t other = choice[order[0]] == 0 ? 1 : 0; other < num_others; ++other) {
      if (order.size() == 2) choice[order[1]] = other;
      choices.push_back(choice);
    }
  }
  return choices;
}

// Divides each text into its kept window and its overflowing windows.
Status TruncateTexts(const TokenizerComponents& components, size_t num_added,
                     std::span<EncodedText> texts) {
  std::array<size_t, 2> counts = {}, limits;
  for (size_t i = 0; i < texts.size(); ++i) limits[i] = counts[i] = texts[i].ids.size();
  if (components.truncation && texts.size() == 1) {
    NEREID_ASSIGN_OR_RETURN(limits[0], components.truncation->NumKept(counts[0], num_added));
  } else if (components.truncation) {
    NEREID_ASSIGN_OR_RETURN(limits, components.truncation->NumKeptOfPair(counts, num_added));
  }
  size_t num_windows = 1, length = num_added;
  for (size_t i = 0; i < texts.size(); ++i) {
    texts[i].windows = {{0, static_cast<uint32_t>(counts[i])}};
    if (components.truncation) {
      NEREID_ASSIGN_OR_RETURN(texts[i].windows, TruncationWindows(counts[i], limits[i], num_added,
                                                                  *components.truncation));
    }
    num_windows *= texts[i].windows.size();
    // If no token of a text is kept, the whole text overflows as one window.
    length += texts[i].windows.size() > 1 && limits[i] == 0 ? counts[i] : limits[i];
  }
  if (texts.size() > 1 && num_windows > 1 && num_windows > kMaxTokensPerCall / length) {
    return InvalidArgError("truncation: two texts of ", counts[0], " and ", counts[1],
                           " tokens make ", num_windows, " pairs of windows of up to ", length,
                           " tokens, expected at most ", kMaxTokensPerCall, " tokens in all");
  }
  return {};
}

}  // namespace

Status EncodeError(size_t num_bytes, bool lacks_unk_token) {
  return InvalidArgError("text of ", num_bytes, " bytes: ",
                         lacks_unk_token ? "the tokenizer has no token for a part of it, and no "
                                           "unknown token"
                                         : "a pattern of the tokenizer exceeded its work limit");
}

Result<Encoding> EncodeWithOffsets(const TokenizerComponents& components, Texts texts,
                                   bool add_special_tokens) {
  const bool is_pair = texts.size() > 1;
  NEREID_ASSIGN_OR_RETURN(const EncodingTemplate* encoding_template,
                          components.post.GetTemplate(is_pair, add_special_tokens));
  std::vector<EncodedText> tokens;
  for (const std::string_view text : texts) {
    if (text.size() > UINT32_MAX) {
      return InvalidArgError("text of ", text.size(), " bytes: expected at most ", UINT32_MAX);
    }
    OffsetEncoder encoder(components, text);
    if (!encoder.Run()) {
      return EncodeError(text.size(), encoder.lacks_unk_token());
    }
    tokens.push_back(encoder.Take());
  }
  const size_t num_added = add_special_tokens ? components.post.NumAdded(is_pair) : 0;
  NEREID_RETURN_IF_ERROR(TruncateTexts(components, num_added, tokens));
  Encoding encoding = Assemble(*encoding_template, tokens, {});
  for (const WindowChoice& choice : OverflowChoices(*encoding_template, tokens)) {
    encoding.overflowing.push_back(Assemble(*encoding_template, tokens, choice));
  }
  return encoding;
}

}  // namespace nereid::tokenizer
