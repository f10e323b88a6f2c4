// Fuzzes the bounded JSON reader. What it accepts is what nlohmann's parser accepts within the
// limits, with the same result, and what it shows of a value is short.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json_reader.h"

namespace {

constexpr nereid::JsonLimits kLimits{.max_bytes = 1 << 16, .max_depth = 16, .max_values = 1000};

template <typename Json>
size_t Depth(const Json& json) {
  if (!json.is_structured()) return 0;
  size_t deepest = 0;
  for (const Json& element : json) deepest = std::max(deepest, Depth(element));
  return deepest + 1;
}

template <typename Json>
void Check(std::string_view text) {
  const nereid::Result<Json> read = nereid::ReadJson<Json>(text, "input", kLimits);
  if (read.ok() != nereid::CheckJson(text, "input", kLimits).ok()) std::abort();
  if (!nereid::CheckJsonLimits(text, kLimits).ok()) {
    if (read.ok()) std::abort();
    return;  // the library may build a deep tree, which its destructor cannot destroy
  }
  const Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (read.ok() == parsed.is_discarded()) std::abort();
  if (!read.ok()) return;
  if (*read != parsed || Depth(*read) > kLimits.max_depth) std::abort();
  if (nereid::ShowJson(*read).size() > 60) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Check<nlohmann::json>(text);
  Check<nlohmann::ordered_json>(text);
  return 0;
}
