// See normalizer.h.
#include "backends/tokenizer/lib/normalize/normalizer.h"

#include "backends/tokenizer/lib/normalize/charsmap.h"
#include "backends/tokenizer/lib/parse/json_fields.h"
#include "backends/tokenizer/lib/pattern/pattern.h"
#include "backends/tokenizer/lib/text/unicode.h"

namespace nereid::tokenizer {
namespace {

class NormalFormStep : public NormalizerStep {
 public:
  explicit NormalFormStep(NormalForm form) : form_(form) {}
  bool Apply(std::string_view text, std::string& out) const override {
    AppendNormalForm(text, form_, out);
    return true;
  }
  bool ApplyAligned(AlignedText& text) const override {
    text.Transform(NormalFormChanges(text.text(), form_));
    return true;
  }

 private:
  NormalForm form_;
};

class PrependStep : public NormalizerStep {
 public:
  explicit PrependStep(std::string prefix) : prefix_(std::move(prefix)) {}
  bool Apply(std::string_view text, std::string& out) const override {
    if (!text.empty()) out.append(prefix_).append(text);
    return true;
  }
  bool ApplyAligned(AlignedText& text) const override {
    text.Prepend(prefix_);
    return true;
  }

 private:
  std::string prefix_;
};

// Replaces a single ASCII character, as in SentencePiece-like tokenizers.
class ReplaceCharStep : public NormalizerStep {
 public:
  ReplaceCharStep(char from, std::string to) : from_(from), to_(std::move(to)) {}
  bool Apply(std::string_view text, std::string& out) const override {
    out.reserve(out.size() + text.size() + text.size() / 2);
    size_t copied = 0;
    for (size_t at; (at = text.find(from_, copied)) != text.npos; copied = at + 1) {
      out.append(text, copied, at - copied).append(to_);
    }
    out.append(text, copied);
    return true;
  }
  bool ApplyAligned(AlignedText& text) const override {
    AlignedText result = AlignedText::EmptyLike(text);
    for (size_t at = 0; at < text.text().size(); ++at) {
      if (text.text()[at] == from_) {
        result.Append(to_, text.from(at));
      } else {
        result.Append(text, at, at + 1);
      }
    }
    text = std::move(result);
    return true;
  }

 private:
  char from_;
  std::string to_;
};

class ReplaceStep : public NormalizerStep {
 public:
  ReplaceStep(std::unique_ptr<const Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  bool Apply(std::string_view text, std::string& out) const override {
    Replacer replacer;
    replacer.content = content_;
    replacer.out = &out;
    return pattern_->ForEachSpan(text, replacer);
  }
  bool ApplyAligned(AlignedText& text) const override {
    AlignedReplacer replacer{text, AlignedText::EmptyLike(text), content_};
    if (!pattern_->ForEachSpan(text.text(), replacer)) return false;
    text = std::move(replacer.result);
    return true;
  }

 private:
  struct Replacer final : SpanSink {
    std::string_view content;
    std::string* out;
    bool Add(std::string_view span, bool is_match) override {
      out->append(is_match ? content : span);
      return true;
    }
  };
  // A replacement is aligned with the last character of the match.
  struct AlignedReplacer final : SpanSink {
    AlignedReplacer(const AlignedText& from, AlignedText to, std::string_view with)
        : source(from), result(std::move(to)), content(with) {}
    const AlignedText& source;
    AlignedText result;
    std::string_view content;
    bool Add(std::string_view span, bool is_match) override {
      const auto begin = static_cast<size_t>(span.data() - source.text().data());
      const size_t end = begin + span.size();
      if (!is_match) {
        result.Append(source, begin, end);
      } else {
        const uint32_t start = source.from(0).begin;
        result.Append(content, end > 0 ? source.from(end - 1) : TextSpan{start, start});
      }
      return true;
    }
  };
  std::unique_ptr<const Pattern> pattern_;
  std::string content_;
};

constexpr std::pair<const char*, NormalForm> kNormalForms[] = {{"NFC", NormalForm::kNfc},
                                                               {"NFD", NormalForm::kNfd},
                                                               {"NFKC", NormalForm::kNfkc},
                                                               {"NFKD", NormalForm::kNfkd}};

StepResult MakeReplace(const Json& spec) {
  NEREID_ASSIGN_OR_RETURN(std::string content, StringField(spec, "content", "normalizer Replace"));
  const Json& pattern = Member(spec, "pattern");
  if (const Json& literal = Member(pattern, "String"); literal.is_string()) {
    const auto text = literal.get<std::string>();
    if (text.empty()) return UnsupportedError("normalizer Replace: an empty pattern");
    if (text.size() == 1) return MakeStep<ReplaceCharStep>(text[0], std::move(content));
    return MakeStep<ReplaceStep>(MakeLiteralPattern(text), std::move(content));
  }
  NEREID_ASSIGN_OR_RETURN(const std::string regex,
                          StringField(pattern, "Regex", "normalizer Replace.pattern"));
  NEREID_ASSIGN_OR_RETURN(auto compiled, MakeRegexPattern(regex));
  return MakeStep<ReplaceStep>(std::move(compiled), std::move(content));
}

}  // namespace

Result<Normalizer> Normalizer::Make(const Json& spec) {
  Normalizer normalizer;
  if (!spec.is_null()) NEREID_RETURN_IF_ERROR(normalizer.Add(spec));
  return normalizer;
}

Status Normalizer::Add(const Json& spec) {
  const std::string type = TypeOf(spec);
  if (type == "Sequence") {
    NEREID_ASSIGN_OR_RETURN(const Json* steps,
                            ArrayField(spec, "normalizers", "normalizer Sequence"));
    for (const Json& step : *steps) NEREID_RETURN_IF_ERROR(Add(step));
    return {};
  }
  for (const auto& [name, form] : kNormalForms) {
    if (type != name) continue;
    steps_.push_back(std::make_unique<NormalFormStep>(form));
    return {};
  }
  if (type == "Prepend") {
    NEREID_ASSIGN_OR_RETURN(std::string prefix, StringField(spec, "prepend", "normalizer Prepend"));
    steps_.push_back(std::make_unique<PrependStep>(std::move(prefix)));
    return {};
  }
  if (type == "Replace") {
    NEREID_ASSIGN_OR_RETURN(auto step, MakeReplace(spec));
    steps_.push_back(std::move(step));
    return {};
  }
  if (type == "Precompiled") {
    NEREID_ASSIGN_OR_RETURN(const std::string map,
                            StringField(spec, "precompiled_charsmap", "normalizer Precompiled"));
    NEREID_ASSIGN_OR_RETURN(auto step, MakePrecompiledStep(map));
    steps_.push_back(std::move(step));
    return {};
  }
  NEREID_ASSIGN_OR_RETURN(auto step, MakeCharNormalizer(type, spec));
  steps_.push_back(std::move(step));
  return {};
}

Normalizer Normalizer::ForSentencePiece(bool add_dummy_prefix) {
  Normalizer normalizer;
  if (add_dummy_prefix) normalizer.steps_.push_back(std::make_unique<PrependStep>(" "));
  normalizer.steps_.push_back(std::make_unique<ReplaceCharStep>(' ', "\u2581"));
  return normalizer;
}

Normalizer Normalizer::Of(std::unique_ptr<const NormalizerStep> step) {
  Normalizer normalizer;
  normalizer.steps_.push_back(std::move(step));
  return normalizer;
}

bool Normalizer::NormalizeAligned(AlignedText& text) const {
  for (const auto& step : steps_) {
    if (!step->ApplyAligned(text)) return false;
  }
  return true;
}

bool Normalizer::Normalize(std::string_view text, std::string& out) const {
  out.clear();
  if (steps_.empty()) {
    out.append(text);
    return true;
  }
  if (!steps_.front()->Apply(text, out)) return false;
  std::string previous;
  for (size_t i = 1; i < steps_.size(); ++i) {
    previous.swap(out);
    out.clear();
    if (!steps_[i]->Apply(previous, out)) return false;
  }
  return true;
}

}  // namespace nereid::tokenizer
