// The normalizers that look at one character at a time (see normalizer.h).
#include "backends/tokenizer/lib/normalize/normalizer.h"

#include "backends/tokenizer/lib/parse/json_fields.h"
#include "backends/tokenizer/lib/text/byte_encoding.h"
#include "backends/tokenizer/lib/text/char_traits.h"
#include "backends/tokenizer/lib/text/unicode.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

template <typename Visit>
void ForEachChar(std::string_view text, Visit visit) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = CharAt(text, at);
    visit(c.code, text.substr(at, c.size));
    at += c.size;
  }
}

// Replaces each character by the result of `Rule::Append(code, its bytes, out)`.
template <typename Rule>
class CharStep : public NormalizerStep {
 public:
  bool Apply(std::string_view text, std::string& out) const override {
    out.reserve(out.size() + text.size());
    ForEachChar(text, [&](char32_t c, std::string_view bytes) { Rule::Append(c, bytes, out); });
    return true;
  }
  bool ApplyAligned(AlignedText& text) const override {
    AlignedText rewritten = AlignedText::EmptyLike(text);
    std::string added;
    size_t at = 0;
    ForEachChar(text.text(), [&](char32_t c, std::string_view bytes) {
      added.clear();
      Rule::Append(c, bytes, added);
      rewritten.Append(added, text.from(at));
      at += bytes.size();
    });
    text = std::move(rewritten);
    return true;
  }
};

struct LowercaseRule {
  static void Append(char32_t c, std::string_view, std::string& out) { AppendLowercase(c, out); }
};

struct StripAccentsRule {
  static void Append(char32_t c, std::string_view bytes, std::string& out) {
    if ((TraitsOf(c) & kAccent) == 0) out.append(bytes);
  }
};

struct StripNonspacingRule {
  static void Append(char32_t c, std::string_view bytes, std::string& out) {
    if ((TraitsOf(c) & kNonspacing) == 0) out.append(bytes);
  }
};

// The rules that sentencepiece's nmt_* normalizers apply before Unicode normalization.
struct NmtRule {
  static void Append(char32_t c, std::string_view bytes, std::string& out) {
    const bool dropped = (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) ||
                         c == 0x7F || c == 0x8F || c == 0x9F;
    const bool spaced = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                        (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                        c == 0xFEFF || c == 0xFFFD;
    if (!dropped) out.append(spaced ? std::string_view(" ") : bytes);
  }
};

struct ByteLevelRule {
  static void Append(char32_t, std::string_view bytes, std::string& out) {
    for (const char byte : bytes) AppendUtf8(ByteToChar(static_cast<uint8_t>(byte)), out);
  }
};

struct BertCleanRule {
  static void Append(char32_t c, std::string_view bytes, std::string& out) {
    if ((TraitsOf(c) & kBertControl) != 0) return;
    out.append(IsSpaceChar(c) ? std::string_view(" ") : bytes);
  }
};

struct BertCjkRule {
  static void Append(char32_t c, std::string_view bytes, std::string& out) {
    if (!IsCjk(c)) {
      out.append(bytes);
    } else {
      out.append(" ").append(bytes).append(" ");
    }
  }
};

class StripStep : public NormalizerStep {
 public:
  StripStep(bool left, bool right) : left_(left), right_(right) {}

  bool Apply(std::string_view text, std::string& out) const override {
    const auto [begin, end] = Kept(text);
    out.append(text.substr(begin, end - begin));
    return true;
  }
  bool ApplyAligned(AlignedText& text) const override {
    const auto [begin, end] = Kept(text.text());
    text = text.Slice(begin, end);
    return true;
  }

 private:
  // Returns the range that is kept.
  std::pair<size_t, size_t> Kept(std::string_view text) const {
    size_t begin = std::string_view::npos, end = 0, at = 0;
    ForEachChar(text, [&](char32_t c, std::string_view bytes) {
      if (!IsSpaceChar(c)) {
        begin = std::min(begin, at);
        end = at + bytes.size();
      }
      at += bytes.size();
    });
    if (begin == std::string_view::npos) {  // only spaces
      return {0, left_ || right_ ? 0 : text.size()};
    }
    if (!left_) begin = 0;
    if (!right_) end = text.size();
    return {begin, end};
  }

  bool left_, right_;
};

class BertStep : public NormalizerStep {
 public:
  BertStep(bool clean, bool cjk, bool strip_accents, bool lowercase)
      : clean_(clean), cjk_(cjk), strip_accents_(strip_accents), lowercase_(lowercase) {}

  bool Apply(std::string_view text, std::string& out) const override {
    std::string current(text);
    if (clean_) Rewrite<BertCleanRule>(current);
    if (cjk_) Rewrite<BertCjkRule>(current);
    if (strip_accents_) {
      std::string decomposed;
      AppendNormalForm(current, NormalForm::kNfd, decomposed);
      current.swap(decomposed);
      Rewrite<StripNonspacingRule>(current);
    }
    if (lowercase_) Rewrite<LowercaseRule>(current);
    out.append(current);
    return true;
  }
  bool ApplyAligned(AlignedText& text) const override {
    if (clean_) CharStep<BertCleanRule>().ApplyAligned(text);
    if (cjk_) CharStep<BertCjkRule>().ApplyAligned(text);
    if (strip_accents_) {
      text.Transform(NormalFormChanges(text.text(), NormalForm::kNfd));
      CharStep<StripNonspacingRule>().ApplyAligned(text);
    }
    if (lowercase_) CharStep<LowercaseRule>().ApplyAligned(text);
    return true;
  }

 private:
  template <typename Rule>
  static void Rewrite(std::string& text) {
    std::string next;
    CharStep<Rule>().Apply(text, next);
    text.swap(next);
  }

  bool clean_, cjk_, strip_accents_, lowercase_;
};

StepResult MakeBert(const Json& spec) {
  constexpr std::string_view kWhere = "normalizer BertNormalizer";
  NEREID_ASSIGN_OR_RETURN(const bool clean, BoolField(spec, "clean_text", true, kWhere));
  NEREID_ASSIGN_OR_RETURN(const bool cjk, BoolField(spec, "handle_chinese_chars", true, kWhere));
  NEREID_ASSIGN_OR_RETURN(const bool lowercase, BoolField(spec, "lowercase", true, kWhere));
  NEREID_ASSIGN_OR_RETURN(const bool strip, BoolField(spec, "strip_accents", lowercase, kWhere));
  return MakeStep<BertStep>(clean, cjk, strip, lowercase);
}

}  // namespace

StepResult MakeCharNormalizer(const std::string& type, const Json& spec) {
  if (type == "Lowercase") return MakeStep<CharStep<LowercaseRule>>();
  if (type == "StripAccents") return MakeStep<CharStep<StripAccentsRule>>();
  if (type == "Nmt") return MakeStep<CharStep<NmtRule>>();
  if (type == "ByteLevel") return MakeStep<CharStep<ByteLevelRule>>();
  if (type == "BertNormalizer") return MakeBert(spec);
  if (type == "Strip") {
    NEREID_ASSIGN_OR_RETURN(const bool left,
                            BoolField(spec, "strip_left", true, "normalizer Strip"));
    NEREID_ASSIGN_OR_RETURN(const bool right,
                            BoolField(spec, "strip_right", true, "normalizer Strip"));
    return MakeStep<StripStep>(left, right);
  }
  return UnsupportedError("normalizer '", type, "' is not supported");
}

}  // namespace nereid::tokenizer
