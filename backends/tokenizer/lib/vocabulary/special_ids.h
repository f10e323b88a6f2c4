// The special tokens that have a part to play in a tokenizer. [any thread]
#pragma once

#include <cstdint>
#include <optional>

namespace nereid::tokenizer {

// What a checkpoint's side files say about special tokens; absent where no file says it.
struct SpecialIds {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<int32_t> pad;
  std::optional<int32_t> unk;
};

}  // namespace nereid::tokenizer
