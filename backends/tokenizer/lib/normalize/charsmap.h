// SentencePiece's precompiled character map: a darts-clone trie of replacements, followed by the
// replacement strings. All accesses are bounds-checked: an untrusted map can produce wrong text but
// no fault. Immutable after creation. [any thread]
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
  // `bytes` is precompiled_charsmap of SentencePiece's normalizer_spec.
  static Result<Charsmap> Make(std::string_view bytes);

  struct Match {
    size_t size = 0;  // bytes of the text that match; 0: no entry matches
    std::string_view replacement;
  };
  // Returns the shortest or the longest entry that is a prefix of `text`.
  Match Shortest(std::string_view text) const { return Find(text, /*longest=*/false); }
  Match Longest(std::string_view text) const { return Find(text, /*longest=*/true); }

  // Whether no entry begins with the ASCII character `c`.
  bool IsAsciiUnchanged(char c) const { return is_ascii_unchanged_[static_cast<unsigned char>(c)]; }

 private:
  Match Find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // each terminated by a zero byte
  bool is_ascii_unchanged_[128] = {};
};

// The sentencepiece library's normalization: replaces characters by the longest matching entries of
// the map and writes spaces as U+2581. In the matches of `user_pieces` only spaces are changed.
struct SentencePieceSpaces {
  bool dummy_prefix = true;
  bool remove_extra = true;
};
std::unique_ptr<const NormalizerStep> MakeSentencePieceStep(Charsmap map, TokenTrie user_pieces,
                                                            SentencePieceSpaces spaces);

// Makes the Precompiled normalizer. `base64` is its precompiled_charsmap.
Result<std::unique_ptr<const NormalizerStep>> MakePrecompiledStep(std::string_view base64);

}  // namespace nereid::tokenizer
