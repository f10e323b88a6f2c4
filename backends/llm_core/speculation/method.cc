// Parses the names of the methods, and the parameters of lookahead decoding.
#include "backends/llm_core/speculation/method.h"

#include <charconv>

namespace nereid::llm {
namespace {

struct NamedMethod {
  std::string_view name;
  DrafterKind kind;
  bool takes_folder = false;
};

constexpr NamedMethod kMethods[] = {{"off", DrafterKind::kOff},
                                    {"auto", DrafterKind::kSuffix},
                                    {"ngram", DrafterKind::kNgram},
                                    {"suffix", DrafterKind::kSuffix},
                                    {"draft", DrafterKind::kDraftModel, true},
                                    {"eagle3", DrafterKind::kEagle3, true},
                                    {"medusa", DrafterKind::kMedusa, true}};

Result<int32_t> ParseParameter(std::string_view name, std::string_view text) {
  int32_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc() && stop == end) return value;
  return InvalidArgError("parameter '", name, "' is '", text, "', expected an integer");
}

Status ReadLookaheadSizes(const std::function<std::string(std::string_view)>& value_of,
                          bool has_sizes, SpeculationMethod& method) {
  for (const NamedLookaheadSize& parameter : kLookaheadSizes) {
    const std::string text = value_of(parameter.name);
    if (text.empty()) continue;
    if (method.kind != DrafterKind::kLookahead) {
      return InvalidArgError("parameter '", parameter.name, "' is ", text,
                             ": it needs 'decoding_mode' or 'speculative_decoding' lookahead");
    }
    NEREID_ASSIGN_OR_RETURN(const int32_t value, ParseParameter(parameter.name, text));
    int32_t& size = method.lookahead.*parameter.size;
    if (has_sizes && value != size) {
      return InvalidArgError("parameter '", parameter.name, "' is ", value,
                             " and that of 'speculative_decoding' is ", size,
                             ", expected the same or only one of them");
    }
    size = value;
  }
  if (method.kind != DrafterKind::kLookahead) return {};
  return CheckLookaheadSizes(method.lookahead, "parameter");
}

}  // namespace

Result<SpeculationMethod> ParseSpeculationMethod(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const bool has_value = equals != std::string_view::npos;
  const std::string_view value = has_value ? text.substr(equals + 1) : std::string_view();
  if (name == "lookahead") {
    SpeculationMethod method = {.kind = DrafterKind::kLookahead};
    if (!has_value) return method;
    NEREID_ASSIGN_OR_RETURN(method.lookahead, ParseLookaheadSizes(value));
    return method;
  }
  for (const NamedMethod& method : kMethods) {
    if (name != method.name) continue;
    if (method.takes_folder && value.empty()) {
      return InvalidArgError("got '", text, "': the method needs a folder, expected ", name,
                             "=FOLDER");
    }
    if (!method.takes_folder && has_value) break;
    return SpeculationMethod{method.kind, std::string(value)};
  }
  return InvalidArgError("got '", text, "', expected ", kSpeculationMethods);
}

Result<SpeculationMethod> FindSpeculationMethod(
    const std::function<std::string(std::string_view)>& value_of) {
  std::string text = value_of("speculative_decoding");
  const bool is_lookahead_mode = value_of("decoding_mode") == "lookahead";
  if (text.empty()) text = is_lookahead_mode ? "lookahead" : "off";
  Result<SpeculationMethod> method = ParseSpeculationMethod(text);
  if (!method.ok()) {
    return Status(method.status()).WithContext("parameter 'speculative_decoding'");
  }
  if (is_lookahead_mode && method->kind != DrafterKind::kLookahead) {
    return InvalidArgError(
        "parameter 'decoding_mode' is 'lookahead' and 'speculative_decoding' is '", text,
        "', expected lookahead or none");
  }
  const bool has_sizes = text.find('=') != std::string::npos;
  NEREID_RETURN_IF_ERROR(ReadLookaheadSizes(value_of, has_sizes, *method));
  const std::string text_of_most = value_of("max_draft_tokens");
  if (method->kind != DrafterKind::kLookahead || text_of_most.empty()) return method;
  NEREID_ASSIGN_OR_RETURN(const int32_t most, ParseParameter("max_draft_tokens", text_of_most));
  const int64_t num_drafts = method->lookahead.num_drafts();
  if (most >= num_drafts) return method;
  return InvalidArgError("parameter 'max_draft_tokens' is ", most,
                         ": lookahead decoding with these sizes has ", num_drafts,
                         " draft tokens a step, (window + verification set) * (ngram - 1) - 1, "
                         "expected at least as many or none");
}

}  // namespace nereid::llm
