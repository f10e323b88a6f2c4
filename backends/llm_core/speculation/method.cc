// Parses the names of the methods.
#include "backends/llm_core/speculation/method.h"

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
                                    {"eagle3", DrafterKind::kEagle3, true}};

}  // namespace

Result<SpeculationMethod> ParseSpeculationMethod(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const std::string_view folder =
      equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1);
  for (const NamedMethod& method : kMethods) {
    if (name != method.name) continue;
    if (method.takes_folder && folder.empty()) {
      return InvalidArgError("got '", text, "': the method needs a folder, expected ", name,
                             "=FOLDER");
    }
    if (!method.takes_folder && equals != std::string_view::npos) break;
    return SpeculationMethod{method.kind, std::string(folder)};
  }
  for (const std::string_view known : {"medusa", "lookahead"}) {
    if (name != known) continue;
    return UnsupportedError("'", text, "': the engine has no such drafter yet, expected ",
                            kSpeculationMethods);
  }
  return InvalidArgError("got '", text, "', expected ", kSpeculationMethods);
}

}  // namespace nereid::llm
