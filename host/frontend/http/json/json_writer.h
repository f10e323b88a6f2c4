// Appends JSON to a string, without building a tree. Numbers are formatted as Triton formats them.
// [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::http {

// Appends `text` quoted and escaped. `text` is valid UTF-8.
void AppendJsonString(std::string& json, std::string_view text);
// Does the same for arbitrary bytes. Bytes that are not UTF-8 become U+FFFD.
void AppendLossyJsonString(std::string& json, std::string_view text);

void AppendJsonInt(std::string& json, int64_t value);
void AppendJsonUint(std::string& json, uint64_t value);
// Appends the shortest digits that read back as `value`, which is finite: 1.0, 0.1, 1e30.
void AppendJsonDouble(std::string& json, double value);

}  // namespace nereid::http
