// See decoder_steps.h.
#include "backends/tokenizer/lib/decode/decoder_steps.h"

#include <algorithm>

#include "backends/tokenizer/lib/parse/json_fields.h"
#include "backends/tokenizer/lib/pre_tokenize/pre_tokenizer.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

void AppendReplaced(std::string_view text, std::string_view from, std::string_view to,
                    std::string& out) {
  size_t copied = 0;
  for (size_t at; (at = text.find(from, copied)) != text.npos; copied = at + from.size()) {
    out.append(text, copied, at - copied).append(to);
  }
  out.append(text, copied);
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool EndsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

struct Replacer final : SpanSink {
  Replacer(std::string_view to, std::string& text) : content(to), out(text) {}
  bool Add(std::string_view span, bool is_match) override {
    out.append(is_match ? content : span);
    return true;
  }
  std::string_view content;
  std::string& out;
};

// Undoes the spacing that tokenizers put around English punctuation and contractions.
std::string CleanUpEnglish(std::string text) {
  constexpr std::pair<const char*, const char*> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) {
    std::string next;
    AppendReplaced(text, from, to, next);
    text.swap(next);
  }
  return text;
}

// Which steps may follow.
enum class Stage { kTokens, kAfterFallback, kText };

class StepReader {
 public:
  Result<DecoderSteps> Read(const Json& spec) {
    NEREID_RETURN_IF_ERROR(Add(spec));
    return std::move(steps_);
  }

 private:
  Status Add(const Json& spec) {
    const std::string type = TypeOf(spec);
    if (type == "Sequence") {
      NEREID_ASSIGN_OR_RETURN(const Json* list, ArrayField(spec, "decoders", "decoder Sequence"));
      for (const Json& step : *list) NEREID_RETURN_IF_ERROR(Add(step));
      return {};
    }
    if (type == "Fuse") {
      stage_ = Stage::kText;
      return {};
    }
    if (type == "ByteLevel") {
      if (stage_ != Stage::kTokens) return Misplaced(type);
      steps_.byte_level = true;
      stage_ = Stage::kText;
      return {};
    }
    if (type == "ByteFallback") {
      if (stage_ != Stage::kTokens) return Misplaced(type);
      steps_.byte_fallback = true;
      stage_ = Stage::kAfterFallback;
      return {};
    }
    if (type == "Replace") return AddReplace(spec);
    if (type == "Strip") return AddStrip(spec);
    // CTC drops tokens, so that later components cannot tell which token is the first or the last.
    const bool needs_position = type == "Metaspace" || type == "WordPiece" || type == "BPEDecoder";
    if (needs_position && steps_.drops_repeats) return Misplaced(type);
    if (type == "Metaspace") return AddMetaspace(spec);
    if (type == "WordPiece") return AddWordPiece(spec);
    if (type == "BPEDecoder") return AddBpeDecoder(spec);
    if (type == "CTC") return AddCtc(spec);
    return UnsupportedError("decoder '", type, "' is not supported");
  }

  Status Misplaced(std::string_view type) const {
    return UnsupportedError("decoder '", type,
                            "' at this position of the sequence is not supported");
  }

  void Append(TokenStep step) {
    auto& list = stage_ == Stage::kTokens          ? steps_.before_fallback
                 : stage_ == Stage::kAfterFallback ? steps_.after_fallback
                                                   : steps_.on_text;
    list.push_back(std::move(step));
  }

  Status AddReplace(const Json& spec) {
    TokenStep step(TokenStep::Kind::kReplace);
    const Json& pattern = Member(spec, "pattern");
    NEREID_ASSIGN_OR_RETURN(step.to, StringField(spec, "content", "decoder Replace"));
    if (!Member(pattern, "Regex").is_null()) {
      if (stage_ == Stage::kText) return Misplaced("Replace by a regular expression");
      NEREID_ASSIGN_OR_RETURN(const std::string regex,
                              StringField(pattern, "Regex", "decoder Replace.pattern"));
      NEREID_ASSIGN_OR_RETURN(step.pattern, MakeRegexPattern(regex));
      step.kind = TokenStep::Kind::kReplacePattern;
      Append(std::move(step));
      return {};
    }
    NEREID_ASSIGN_OR_RETURN(step.from, StringField(pattern, "String", "decoder Replace.pattern"));
    if (step.from.empty()) return UnsupportedError("decoder Replace: an empty pattern");
    if (stage_ == Stage::kText && step.from.size() != Utf8Length(step.from[0])) {
      return UnsupportedError(
          "decoder 'Replace' of more than one character after Fuse is not "
          "supported");
    }
    Append(std::move(step));
    return {};
  }

  Status AddStrip(const Json& spec) {
    TokenStep step(TokenStep::Kind::kStrip);
    NEREID_ASSIGN_OR_RETURN(step.from, StringField(spec, "content", "decoder Strip"));
    NEREID_ASSIGN_OR_RETURN(step.start, CountField(spec, "start", "decoder Strip"));
    NEREID_ASSIGN_OR_RETURN(step.stop, CountField(spec, "stop", "decoder Strip"));
    if (step.from.empty() || step.from.size() != Utf8Length(step.from[0])) {
      return InvalidArgError("decoder Strip.content: expected one character, got '", step.from,
                             "'");
    }
    Append(std::move(step));
    return {};
  }

  Status AddMetaspace(const Json& spec) {
    if (stage_ == Stage::kText) return Misplaced("Metaspace");
    NEREID_ASSIGN_OR_RETURN(MetaspaceOptions options,
                            ReadMetaspaceOptions(spec, "decoder Metaspace"));
    TokenStep step(TokenStep::Kind::kMetaspace);
    step.from = std::move(options.replacement);
    step.drops_first = options.scheme != PrependScheme::kNever;
    Append(std::move(step));
    return {};
  }

  Status AddWordPiece(const Json& spec) {
    if (stage_ == Stage::kText) return Misplaced("WordPiece");
    TokenStep step(TokenStep::Kind::kWordPiece);
    NEREID_ASSIGN_OR_RETURN(step.from, StringField(spec, "prefix", "decoder WordPiece"));
    NEREID_ASSIGN_OR_RETURN(step.cleanup, BoolField(spec, "cleanup", true, "decoder WordPiece"));
    Append(std::move(step));
    return {};
  }

  Status AddBpeDecoder(const Json& spec) {
    if (stage_ == Stage::kText) return Misplaced("BPEDecoder");
    TokenStep step(TokenStep::Kind::kBpeSuffix);
    NEREID_ASSIGN_OR_RETURN(step.from, StringField(spec, "suffix", "decoder BPEDecoder"));
    if (step.from.empty()) return UnsupportedError("decoder BPEDecoder: an empty suffix");
    Append(std::move(step));
    return {};
  }

  // CTC compares tokens by id, so no earlier step may have changed their text.
  Status AddCtc(const Json& spec) {
    if (stage_ != Stage::kTokens || !steps_.before_fallback.empty()) return Misplaced("CTC");
    TokenStep step(TokenStep::Kind::kCtc);
    NEREID_ASSIGN_OR_RETURN(step.from, StringField(spec, "pad_token", "decoder CTC"));
    NEREID_ASSIGN_OR_RETURN(step.to, StringField(spec, "word_delimiter_token", "decoder CTC"));
    NEREID_ASSIGN_OR_RETURN(step.cleanup, BoolField(spec, "cleanup", true, "decoder CTC"));
    if (step.from.empty() || step.to.empty()) {
      return UnsupportedError("decoder CTC: an empty pad_token or word_delimiter_token");
    }
    steps_.drops_repeats = true;
    Append(std::move(step));
    return {};
  }

  DecoderSteps steps_;
  Stage stage_ = Stage::kTokens;
};

}  // namespace

std::string TokenStep::Apply(std::string_view token, bool first, bool last) const {
  std::string out;
  switch (kind) {
    case Kind::kReplace:
      AppendReplaced(token, from, to, out);
      break;
    case Kind::kReplacePattern: {
      Replacer replacer(to, out);
      (void)pattern->ForEachSpan(token, replacer);  // the text after the work limit is dropped
      break;
    }
    case Kind::kMetaspace:
      AppendReplaced(token, from, first && drops_first ? "" : " ", out);
      break;
    case Kind::kFirstMark:
      if (first && StartsWith(token, from)) token.remove_prefix(from.size());
      out = token;
      break;
    case Kind::kWordPiece:
      if (!first && StartsWith(token, from)) {
        token.remove_prefix(from.size());
      } else if (!first) {
        out = " ";
      }
      out.append(token);
      break;
    case Kind::kBpeSuffix:
      AppendReplaced(token, from, last ? "" : " ", out);
      break;
    case Kind::kCtc:
      AppendReplaced(token, from, "", out);
      break;
    case Kind::kStrip:
      for (uint64_t n = 0; n < start && StartsWith(token, from); ++n) {
        token.remove_prefix(from.size());
      }
      for (uint64_t n = 0; n < stop && EndsWith(token, from); ++n) {
        token.remove_suffix(from.size());
      }
      out = token;
  }
  if (!cleanup) return out;
  out = CleanUpEnglish(std::move(out));
  if (kind != Kind::kCtc) return out;
  std::string spaced;
  AppendReplaced(out, to, " ", spaced);
  return spaced;
}

void TextStepState::Push(std::string_view text, std::string& out) {
  if (step->kind == TokenStep::Kind::kReplace)
    return AppendReplaced(text, step->from, step->to, out);
  const std::string& unit = step->from;
  for (; num_start_left > 0 && !text.empty(); --num_start_left) {
    if (!StartsWith(text, unit)) {
      num_start_left = 0;
      break;
    }
    text.remove_prefix(unit.size());
  }
  if (step->stop == 0) {
    out.append(text);
    return;
  }
  std::string_view body = text;
  while (EndsWith(body, unit)) body.remove_suffix(unit.size());
  if (!body.empty()) {
    out.append(pending).append(body);
    pending.clear();
  }
  pending.append(text.substr(body.size()));
  const uint64_t units = pending.size() / unit.size();
  if (units > step->stop) {  // only the last units can still be stripped
    const size_t final_bytes = (units - step->stop) * unit.size();
    out.append(pending, 0, final_bytes);
    pending.erase(0, final_bytes);
  }
}

Result<DecoderSteps> DecoderSteps::Make(const Json& spec) {
  if (spec.is_null()) {
    DecoderSteps steps;
    steps.joins_with_spaces = true;
    return steps;
  }
  return StepReader().Read(spec);
}

DecoderSteps DecoderSteps::ForSentencePiece(bool byte_fallback, bool drops_first_mark,
                                            bool drops_leading_marks) {
  constexpr const char* kMark = "\u2581";
  DecoderSteps steps;
  steps.byte_fallback = byte_fallback;
  steps.first_until_text = drops_leading_marks;
  steps.strips_first_byte_space = drops_first_mark && !drops_leading_marks;
  if (drops_first_mark || drops_leading_marks) {
    steps.before_fallback.emplace_back(TokenStep::Kind::kFirstMark).from = kMark;
  }
  TokenStep& replace = steps.before_fallback.emplace_back(TokenStep::Kind::kReplace);
  replace.from = kMark;
  replace.to = " ";
  return steps;
}

template <typename Test>
bool DecoderSteps::AnyTokenStep(Test test) const {
  return std::any_of(before_fallback.begin(), before_fallback.end(), test) ||
         std::any_of(after_fallback.begin(), after_fallback.end(), test);
}

bool DecoderSteps::first_differs() const {
  return AnyTokenStep([](const TokenStep& step) {
    return step.drops_first || step.kind == TokenStep::Kind::kWordPiece ||
           step.kind == TokenStep::Kind::kFirstMark;
  });
}

bool DecoderSteps::last_differs() const {
  return AnyTokenStep([](const TokenStep& s) { return s.kind == TokenStep::Kind::kBpeSuffix; });
}

}  // namespace nereid::tokenizer
