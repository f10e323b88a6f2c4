// See pre_tokenizer.h.
#include "backends/tokenizer/lib/pre_tokenize/pre_tokenizer.h"

#include "backends/tokenizer/lib/parse/json_fields.h"
#include "backends/tokenizer/lib/pattern/pattern.h"
#include "backends/tokenizer/lib/pre_tokenize/split_behavior.h"
#include "backends/tokenizer/lib/text/byte_encoding.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

class SplitStep : public PreTokenizerStep {
 public:
  SplitStep(std::unique_ptr<const Pattern> pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  bool Split(std::string_view text, bool, SpanSink& out) const override {
    if (behavior_ == SplitBehavior::kIsolated) return pattern_->ForEachSpan(text, out);
    BehaviorSink behavior(behavior_, invert_, out);
    return pattern_->ForEachSpan(text, behavior) && behavior.Finish();
  }

 private:
  std::unique_ptr<const Pattern> pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class PrefixSpaceStep : public PreTokenizerStep {
 public:
  bool Split(std::string_view text, bool, SpanSink& out) const override {
    if (text.substr(0, 1) == " ") return out.Add(text, false);
    return out.Add(StrCat(" ", text), false);
  }

 protected:
  void Rewrite(AlignedText& text) const override {
    if (!text.text().starts_with(' ')) text.Prepend(" ");
  }
  bool SplitRewritten(std::string_view text, SpanSink& out) const override {
    return out.Add(text, false);
  }
};

class PrintableBytesStep : public PreTokenizerStep {
 public:
  bool Split(std::string_view text, bool, SpanSink& out) const override {
    std::string printable;
    for (const char byte : text) AppendUtf8(ByteToChar(static_cast<uint8_t>(byte)), printable);
    return out.Add(printable, false);
  }

 protected:
  void Rewrite(AlignedText& text) const override {
    AlignedText rewritten_text = AlignedText::EmptyLike(text);
    std::string printable;
    for (size_t at = 0; at < text.text().size(); ++at) {
      printable.clear();
      AppendUtf8(ByteToChar(static_cast<uint8_t>(text.text()[at])), printable);
      rewritten_text.Append(printable, text.from(at));
    }
    text = std::move(rewritten_text);
  }
  bool SplitRewritten(std::string_view text, SpanSink& out) const override {
    return out.Add(text, false);
  }
};

// Pre-tokens of `length_` characters; the last one may be shorter.
class FixedLengthStep : public PreTokenizerStep {
 public:
  explicit FixedLengthStep(uint64_t length) : length_(length) {}

  bool Split(std::string_view text, bool, SpanSink& out) const override {
    size_t begin = 0;
    uint64_t count = 0;
    for (size_t at = 0; at < text.size();) {
      at += Utf8Length(text[at]);
      if (++count < length_) continue;
      if (!out.Add(text.substr(begin, at - begin), false)) return false;
      begin = at;
      count = 0;
    }
    return begin == text.size() || out.Add(text.substr(begin), false);
  }

 private:
  uint64_t length_;
};

class MetaspaceStep : public PreTokenizerStep {
 public:
  explicit MetaspaceStep(MetaspaceOptions options)
      : options_(std::move(options)), delimiter_(MakeLiteralPattern(options_.replacement)) {}

  bool Split(std::string_view text, bool at_start, SpanSink& out) const override {
    const std::string& mark = options_.replacement;
    std::string rewritten = NeedsMark(text, at_start) ? mark : "";
    for (const char c : text) {
      if (c == ' ') {
        rewritten += mark;
      } else {
        rewritten += c;
      }
    }
    return SplitRewritten(rewritten, out);
  }

 protected:
  void Rewrite(AlignedText& text) const override {
    const bool needs_mark = NeedsMark(text.text(), text.is_at_start());
    AlignedText rewritten_text = AlignedText::EmptyLike(text);
    for (size_t at = 0; at < text.text().size(); ++at) {
      if (text.text()[at] == ' ') {
        rewritten_text.Append(options_.replacement, text.from(at));
      } else {
        rewritten_text.Append(text, at, at + 1);
      }
    }
    if (needs_mark) rewritten_text.Prepend(options_.replacement);
    text = std::move(rewritten_text);
  }
  bool SplitRewritten(std::string_view text, SpanSink& out) const override {
    if (!options_.split) return out.Add(text, false);
    BehaviorSink behavior(SplitBehavior::kMergedWithNext, false, out);
    return delimiter_->ForEachSpan(text, behavior) && behavior.Finish();
  }

 private:
  bool NeedsMark(std::string_view text, bool at_start) const {
    const std::string& mark = options_.replacement;
    const bool prepends = options_.scheme == PrependScheme::kAlways ||
                          (options_.scheme == PrependScheme::kFirst && at_start);
    return prepends && text.substr(0, 1) != " " && text.substr(0, mark.size()) != mark;
  }

  MetaspaceOptions options_;
  std::unique_ptr<const Pattern> delimiter_;
};

using Steps = std::vector<std::unique_ptr<const PreTokenizerStep>>;

// Makes the components that split at single characters of some kind.
Result<Steps> MakeCharSplits(const std::string& type, const Json& spec) {
  Steps steps;
  const auto add = [&](std::unique_ptr<const Pattern> pattern, SplitBehavior behavior,
                       bool invert = false) {
    steps.push_back(std::make_unique<SplitStep>(std::move(pattern), behavior, invert));
  };
  if (type == "WhitespaceSplit" || type == "BertPreTokenizer") {
    add(MakeSpacePattern(), SplitBehavior::kRemoved);
  }
  if (type == "BertPreTokenizer") add(MakePunctuationPattern(), SplitBehavior::kIsolated);
  if (type == "Whitespace") add(MakeWordPattern(), SplitBehavior::kRemoved, /*invert=*/true);
  if (type == "UnicodeScripts") add(MakeScriptPattern(), SplitBehavior::kRemoved, /*invert=*/true);
  if (type == "Punctuation") {
    SplitBehavior behavior = SplitBehavior::kIsolated;
    if (!Member(spec, "behavior").is_null()) {
      NEREID_ASSIGN_OR_RETURN(const std::string name,
                              StringField(spec, "behavior", "pre_tokenizer Punctuation"));
      NEREID_ASSIGN_OR_RETURN(behavior, ParseSplitBehavior(name));
    }
    add(MakePunctuationPattern(), behavior);
  }
  if (type == "CharDelimiterSplit") {
    constexpr std::string_view kWhere = "pre_tokenizer CharDelimiterSplit";
    NEREID_ASSIGN_OR_RETURN(const std::string delimiter, StringField(spec, "delimiter", kWhere));
    if (delimiter.empty() || delimiter.size() != Utf8Length(delimiter[0])) {
      return InvalidArgError(kWhere, ".delimiter: expected one character, got '", delimiter, "'");
    }
    add(MakeLiteralPattern(delimiter), SplitBehavior::kRemoved);
  }
  if (type == "FixedLength") {
    constexpr std::string_view kWhere = "pre_tokenizer FixedLength";
    NEREID_ASSIGN_OR_RETURN(const uint64_t length, CountField(spec, "length", kWhere));
    if (length == 0) return InvalidArgError(kWhere, ".length: expected at least 1, got 0");
    steps.push_back(std::make_unique<FixedLengthStep>(length));
  }
  if (steps.empty()) return UnsupportedError("pre_tokenizer '", type, "' is not supported");
  return steps;
}

Result<std::unique_ptr<const PreTokenizerStep>> MakeSplit(const Json& spec) {
  constexpr std::string_view kWhere = "pre_tokenizer Split";
  NEREID_ASSIGN_OR_RETURN(const std::string name, StringField(spec, "behavior", kWhere));
  NEREID_ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseSplitBehavior(name));
  NEREID_ASSIGN_OR_RETURN(const bool invert, BoolField(spec, "invert", false, kWhere));
  const Json& pattern = Member(spec, "pattern");
  std::unique_ptr<const Pattern> compiled;
  if (const Json& literal = Member(pattern, "String"); literal.is_string()) {
    const auto text = literal.get<std::string>();
    if (text.empty()) return UnsupportedError(kWhere, ": an empty pattern");
    compiled = MakeLiteralPattern(text);
  } else {
    NEREID_ASSIGN_OR_RETURN(const std::string regex,
                            StringField(pattern, "Regex", "pre_tokenizer Split.pattern"));
    NEREID_ASSIGN_OR_RETURN(compiled, MakeRegexPattern(regex));
  }
  return std::unique_ptr<const PreTokenizerStep>(
      std::make_unique<SplitStep>(std::move(compiled), behavior, invert));
}

}  // namespace

// Passes each pre-token of one step to the next step; the last step adds to the caller's sink.
class PreTokenizer::ChainSink final : public SpanSink {
 public:
  // `start`: address of a pre-token that begins at the start of the input, or null.
  ChainSink(const PreTokenizer& chain, size_t step, const char* start, SpanSink& out)
      : chain_(chain), step_(step), start_(start), out_(out) {}

  bool Add(std::string_view span, bool) override {
    if (span.empty()) return true;
    const PreTokenizerStep& step = *chain_.steps_[step_];
    const bool at_start = span.data() == start_;
    if (step_ + 1 == chain_.steps_.size()) return step.Split(span, at_start, out_);
    ChainSink next(chain_, step_ + 1, at_start ? start_ : nullptr, out_);
    return step.Split(span, at_start, next);
  }

 private:
  const PreTokenizer& chain_;
  const size_t step_;
  const char* const start_;
  SpanSink& out_;
};

bool PreTokenizer::Split(std::string_view text, bool at_start, SpanSink& out) const {
  if (steps_.empty()) return out.Add(text, false);
  return ChainSink(*this, 0, at_start ? text.data() : nullptr, out).Add(text, false);
}

bool PreTokenizerStep::SplitAligned(AlignedText text, std::vector<AlignedText>& out) const {
  struct Slicer final : SpanSink {
    Slicer(const AlignedText& from, std::vector<AlignedText>& to) : source(from), pretokens(to) {}
    const AlignedText& source;
    std::vector<AlignedText>& pretokens;
    bool Add(std::string_view span, bool) override {
      if (span.empty()) return true;
      const auto begin = static_cast<size_t>(span.data() - source.text().data());
      pretokens.push_back(source.Slice(begin, begin + span.size()));
      return true;
    }
  };
  Rewrite(text);
  Slicer slicer(text, out);
  return SplitRewritten(text.text(), slicer);
}

bool PreTokenizer::SplitAligned(const AlignedText& text, std::vector<AlignedText>& out) const {
  std::vector<AlignedText> pretokens = {text}, next;
  for (const auto& step : steps_) {
    next.clear();
    for (AlignedText& pretoken : pretokens) {
      if (!step->SplitAligned(std::move(pretoken), next)) return false;
    }
    pretokens.swap(next);
  }
  out.insert(out.end(), std::make_move_iterator(pretokens.begin()),
             std::make_move_iterator(pretokens.end()));
  return true;
}

Result<PreTokenizer> PreTokenizer::Make(const Json& spec, std::optional<bool> add_prefix_space) {
  PreTokenizer chain;
  if (add_prefix_space && TypeOf(spec) == "ByteLevel") {
    Json changed = spec;
    changed["add_prefix_space"] = *add_prefix_space;
    NEREID_RETURN_IF_ERROR(chain.Add(changed));
  } else if (!spec.is_null()) {
    NEREID_RETURN_IF_ERROR(chain.Add(spec));
  }
  return chain;
}

PreTokenizer PreTokenizer::FromMatches(std::unique_ptr<const Pattern> pattern) {
  PreTokenizer chain;
  chain.steps_.push_back(
      std::make_unique<SplitStep>(std::move(pattern), SplitBehavior::kRemoved, /*invert=*/true));
  chain.byte_level_ = true;
  return chain;
}

Status PreTokenizer::Add(const Json& spec) {
  const std::string type = TypeOf(spec);
  if (type == "Sequence") {
    NEREID_ASSIGN_OR_RETURN(const Json* steps,
                            ArrayField(spec, "pretokenizers", "pre_tokenizer Sequence"));
    for (const Json& step : *steps) NEREID_RETURN_IF_ERROR(Add(step));
    return {};
  }
  if (byte_level_) MakeBytesPrintable();  // the following steps process the printable form
  if (type == "ByteLevel") return AddByteLevel(spec);
  if (type == "Split") {
    NEREID_ASSIGN_OR_RETURN(auto step, MakeSplit(spec));
    steps_.push_back(std::move(step));
    return {};
  }
  if (type == "Digits") {
    NEREID_ASSIGN_OR_RETURN(const bool individual,
                            BoolField(spec, "individual_digits", false, "pre_tokenizer Digits"));
    steps_.push_back(std::make_unique<SplitStep>(
        MakeDigitPattern(), individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
        false));
    return {};
  }
  if (type == "Metaspace") {
    NEREID_ASSIGN_OR_RETURN(MetaspaceOptions options,
                            ReadMetaspaceOptions(spec, "pre_tokenizer Metaspace"));
    if (options.scheme == PrependScheme::kFirst) {
      depends_on_start_ = true;
      start_is_rewritten_ |= rewrites_;
    }
    steps_.push_back(std::make_unique<MetaspaceStep>(std::move(options)));
    rewrites_ = true;
    return {};
  }
  NEREID_ASSIGN_OR_RETURN(auto steps, MakeCharSplits(type, spec));
  for (auto& step : steps) steps_.push_back(std::move(step));
  return {};
}

void PreTokenizer::MakeBytesPrintable() {
  if (!byte_level_) return;
  steps_.push_back(std::make_unique<PrintableBytesStep>());
  byte_level_ = false;
  rewrites_ = true;
}

Status PreTokenizer::AddByteLevel(const Json& spec) {
  constexpr std::string_view kWhere = "pre_tokenizer ByteLevel";
  NEREID_ASSIGN_OR_RETURN(const bool prefix, BoolField(spec, "add_prefix_space", true, kWhere));
  NEREID_ASSIGN_OR_RETURN(const bool use_regex, BoolField(spec, "use_regex", true, kWhere));
  if (prefix) steps_.push_back(std::make_unique<PrefixSpaceStep>());
  if (use_regex) {
    steps_.push_back(std::make_unique<SplitStep>(MakeKnownPattern(kGpt2Pattern),
                                                 SplitBehavior::kIsolated, false));
  }
  byte_level_ = true;
  return {};
}

Result<MetaspaceOptions> ReadMetaspaceOptions(const Json& spec, std::string_view where) {
  MetaspaceOptions options;
  NEREID_ASSIGN_OR_RETURN(options.replacement, StringField(spec, "replacement", where));
  if (options.replacement.empty() ||
      options.replacement.size() != Utf8Length(options.replacement[0])) {
    return InvalidArgError(where, ".replacement: expected one character, got '",
                           options.replacement, "'");
  }
  NEREID_ASSIGN_OR_RETURN(options.split, BoolField(spec, "split", true, where));
  NEREID_ASSIGN_OR_RETURN(const bool prefix, BoolField(spec, "add_prefix_space", true, where));
  const Json& scheme = Member(spec, "prepend_scheme");
  if (scheme == "never" || (scheme.is_null() && !prefix)) {
    options.scheme = PrependScheme::kNever;
  } else if (scheme == "first" && prefix) {
    options.scheme = PrependScheme::kFirst;
  } else if (!(scheme == "always" || scheme.is_null()) || !prefix) {
    return InvalidArgError(where,
                           ".prepend_scheme: expected always, first or never in agreement "
                           "with add_prefix_space, got ",
                           ShowJson(scheme));
  }
  return options;
}

}  // namespace nereid::tokenizer
