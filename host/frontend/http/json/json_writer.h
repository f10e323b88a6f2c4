// Appends JSON to text: what replies are made with, without a tree. Numbers look as Triton prints
// them. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace nereid::http {

// Quoted and escaped. `text` is UTF-8, or see AppendLossyJsonString.
void AppendJsonString(std::string& json, std::string_view text);
// As above; bytes that are not UTF-8 become U+FFFD.
void AppendLossyJsonString(std::string& json, std::string_view text);

void AppendJsonInt(std::string& json, int64_t value);
void AppendJsonUint(std::string& json, uint64_t value);
// The shortest digits that read back as `value`, which is finite: 1.0, 0.1, 1e30.
void AppendJsonDouble(std::string& json, double value);

}  // namespace nereid::http
