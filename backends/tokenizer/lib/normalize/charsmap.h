// sentencepiece's precompiled character map: a trie of replacements as darts-clone lays it out,
// and the replacements behind it. Bounds-checked: a hostile map gives wrong text, never a fault.
// Immutable after creation. [any thread]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/lib/normalize/normalizer.h"
#include "backends/tokenizer/lib/vocabulary/token_trie.h"
#include "nereid/status.h"

namespace nereid::tokenizer {

class Charsmap {
 public:
  // Of the bytes in sentencepiece's normalizer_spec.
  static Result<Charsmap> Make(std::string_view bytes);

  struct Match {
    size_t size = 0;  // bytes of the text, 0: nothing matches
    std::string_view replacement;
  };
  // Of the entries that `text` starts with, the shortest or the longest.
  Match Shortest(std::string_view text) const { return Find(text, /*longest=*/false); }
  Match Longest(std::string_view text) const { return Find(text, /*longest=*/true); }

  // Whether `c`, ASCII, begins no entry.
  bool KeepsAscii(char c) const { return keeps_ascii_[static_cast<unsigned char>(c)]; }

 private:
  Match Find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // each ended by a zero byte
  bool keeps_ascii_[128] = {};
};

// What sentencepiece does before it segments: replaces characters by the longest entries of the map
// and writes spaces as U+2581. What `kept` finds in the text stays as it is but for its spaces.
struct SentencePieceSpaces {
  bool dummy_prefix = true;
  bool remove_extra = true;
};
std::unique_ptr<const NormalizerStep> MakeSentencePieceStep(Charsmap map, TokenTrie kept,
                                                            SentencePieceSpaces spaces);

// The Precompiled normalizer. `base64` is its precompiled_charsmap.
Result<std::unique_ptr<const NormalizerStep>> MakePrecompiledStep(std::string_view base64);

}  // namespace nereid::tokenizer
