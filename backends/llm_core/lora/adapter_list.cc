// Splits the list at commas and each entry at its first equals sign.
#include "backends/llm_core/lora/adapter_list.h"

#include <algorithm>

namespace nereid::llm {

Result<std::vector<std::pair<std::string, std::string>>> ParseAdapterList(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  std::vector<std::pair<std::string, std::string>> adapters;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view entry = text.substr(begin, end - begin);
    begin = end + 1;
    entry.remove_prefix(std::min(entry.find_first_not_of(kSpaces), entry.size()));
    entry = entry.substr(0, entry.find_last_not_of(kSpaces) + 1);
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos || equals + 1 == entry.size()) {
      return InvalidArgError("parameter 'lora_adapters' has '", entry,
                             "', expected NAME=FOLDER, separated by commas");
    }
    adapters.emplace_back(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return adapters;
}

}  // namespace nereid::llm
