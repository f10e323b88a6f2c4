// Patterns without a hand-written matcher. They run on PCRE2, with its JIT compiler if available.
// The work of one match is limited, so that an untrusted text cannot block a thread.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "backends/tokenizer/lib/pattern/pattern.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

// The match memory of this thread. Only the whole match is used, so that one pair of offsets serves
// all patterns.
pcre2_match_data* ThreadMatchData() {
  thread_local const std::unique_ptr<pcre2_match_data, FreeMatchData> data(
      pcre2_match_data_create(1, nullptr));
  return data.get();
}

class PcrePattern : public Pattern {
 public:
  explicit PcrePattern(std::unique_ptr<pcre2_code, FreeCode> code)
      : code_(std::move(code)), context_(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
    pcre2_jit_compile(code_.get(),
                      PCRE2_JIT_COMPLETE);  // if this fails, PCRE2 interprets the pattern
  }

  bool ForEachSpan(std::string_view text, SpanSink& sink) const override {
    if (text.empty()) return true;  // the reference finds not even an empty match
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    pcre2_match_data* const match = ThreadMatchData();
    size_t covered = 0;  // the spans before this were added
    size_t last_match_end = SIZE_MAX;
    for (size_t from = 0; from <= text.size();) {
      const int rc = pcre2_match(code_.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, match,
                                 context_.get());
      if (rc == PCRE2_ERROR_NOMATCH) break;
      if (rc < 0) return false;
      const size_t begin = pcre2_get_ovector_pointer(match)[0];
      const size_t end = pcre2_get_ovector_pointer(match)[1];
      if (begin > end || begin < covered)
        return false;  // TranslateToPcre refuses \K and similar constructs
      if (begin == end && end == last_match_end) {  // no empty match directly after a match
        from += from < text.size() ? Utf8Length(text[from]) : 1;
        continue;
      }
      if (covered < begin && !sink.Add(text.substr(covered, begin - covered), false)) return false;
      if (!sink.Add(text.substr(begin, end - begin), true)) return false;
      covered = from = last_match_end = end;
    }
    return covered == text.size() || sink.Add(text.substr(covered), false);
  }

 private:
  std::unique_ptr<pcre2_code, FreeCode> code_;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context_;
};

class LiteralPattern : public Pattern {
 public:
  explicit LiteralPattern(std::string_view literal) : literal_(literal) {}

  bool ForEachSpan(std::string_view text, SpanSink& sink) const override {
    size_t covered = 0;
    for (size_t at; (at = text.find(literal_, covered)) != text.npos;
         covered = at + literal_.size()) {
      if (covered < at && !sink.Add(text.substr(covered, at - covered), false)) return false;
      if (!sink.Add(text.substr(at, literal_.size()), true)) return false;
    }
    return covered == text.size() || sink.Add(text.substr(covered), false);
  }

 private:
  std::string literal_;
};

}  // namespace

Result<std::unique_ptr<const Pattern>> CompilePcre(std::string_view regex) {
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  std::unique_ptr<pcre2_code, FreeCode> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex.data()), regex.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, context.get()));
  if (code == nullptr) {
    char message[256] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof(message));
    return InvalidArgError(message);
  }
  return std::unique_ptr<const Pattern>(std::make_unique<PcrePattern>(std::move(code)));
}

Result<std::unique_ptr<const Pattern>> MakePcrePattern(std::string_view regex,
                                                       RegexDialect dialect) {
  NEREID_ASSIGN_OR_RETURN(const std::string translated, TranslateToPcre(regex, dialect));
  auto pattern = CompilePcre(translated);
  if (pattern.ok()) return pattern;
  return std::move(pattern).status().WithContext(StrCat("pattern '", regex, "'"));
}

std::unique_ptr<const Pattern> MakeLiteralPattern(std::string_view literal) {
  return std::make_unique<LiteralPattern>(literal);
}

Result<std::unique_ptr<const Pattern>> MakeRegexPattern(std::string_view regex,
                                                        RegexDialect dialect) {
  if (auto known = MakeKnownPattern(regex)) return known;
  return MakePcrePattern(regex, dialect);
}

}  // namespace nereid::tokenizer
