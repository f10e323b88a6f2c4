// Normalizers that look at one character at a time. [any thread]
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "backends/tokenizer/lib/normalize/normalizer.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

// Lowercase, Strip, StripAccents, Nmt, BertNormalizer and ByteLevel. UNSUPPORTED names any other.
Result<std::unique_ptr<const NormalizerStep>> MakeCharNormalizer(const std::string& type,
                                                                 const nlohmann::json& spec);

}  // namespace nereid::tokenizer
