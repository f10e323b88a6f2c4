// Fuzzes the files that accompany a tokenizer: one line per file in the order of kNames, and an
// empty line for a missing file. Arbitrary bytes must not crash. With accepted files, a tokenizer
// from JSON and one from byte ranks encode single texts and pairs, and streamed decoding equals
// decoding.
#include <cstdint>
#include <memory>
#include <string_view>

#include "backends/tokenizer/lib/load/rank_tokenizer.h"
#include "backends/tokenizer/lib/load/side_files.h"
#include "backends/tokenizer/lib/load/tokenizer_components.h"
#include "tests/fuzz/support/tokenizer_check.h"

namespace {

using namespace nereid::tokenizer;

constexpr const char* kNames[] = {"tokenizer_config.json", "special_tokens_map.json",
                                  "added_tokens.json", "generation_config.json", "config.json"};

constexpr std::string_view kTokenizerJson = R"({"version": "1.0",
  "added_tokens": [{"id": 1, "content": "<s>", "special": true, "normalized": false},
                   {"id": 6, "content": "new", "special": false, "lstrip": true}],
  "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "WhitespaceSplit"},
  "post_processor": {"type": "BertProcessing", "cls": ["<s>", 1], "sep": ["</s>", 2]},
  "decoder": null,
  "model": {"type": "WordLevel", "unk_token": "<unk>",
            "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "hello": 3, "a": 4, "12": 5}}})";

ComponentsResult LoadByteTokenizer(const SideFileOptions& side) {
  RankTokenizerSpec ranks;
  ranks.pattern = R"(\s+|\S+)";
  for (uint32_t byte = 0; byte < 256; ++byte) {
    ranks.arena.push_back(static_cast<char>(byte));
    ranks.tokens.push_back({byte, 1, byte});
  }
  return MakeRankTokenizer(ranks, side);
}

void Check(const SideFiles& files, ComponentsResult components) {
  if (!components.ok() || !files.ApplyTo(**components).ok()) return;
  const Tokenizer tokenizer(std::move(*components));
  CheckEncodesAndStreams(tokenizer);
  CheckEncodesFully(tokenizer);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::map<std::string, std::string> texts;
  for (const char* name : kNames) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (end > 0) texts[name] = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const auto files = SideFiles::FromTexts(texts);
  if (!files.ok()) return 0;
  const auto side = files->Options();
  if (!side.ok()) return 0;
  Check(*files, LoadTokenizerJson(kTokenizerJson, *side));
  Check(*files, LoadByteTokenizer(*side));
  return 0;
}
