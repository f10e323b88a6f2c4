// The values of the parameters `lora_adapters` and `lora_cache_max_adapter_size`, which nereid-repo
// checks as well. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nereid/status.h"

namespace nereid::llm {

// The greatest rank of an adapter: what lora_cache_max_adapter_size is by default, and at most.
inline constexpr int32_t kDefaultAdapterRank = 64, kMaxAdapterRank = 4096;

// Reads "a=/x,b=/y": the name and the folder of each adapter. Spaces around an entry do not count.
Result<std::vector<std::pair<std::string, std::string>>> ParseAdapterList(std::string_view text);

}  // namespace nereid::llm
