// Small tokenizers for tests, built as tokenizer.json, and access to the shared test data.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/tokenizer/lib/text/byte_encoding.h"
#include "backends/tokenizer/lib/text/utf8.h"
#include "backends/tokenizer/lib/tokenizer.h"
#include "tests/support/sanitizer.h"
#include "tests/support/source_path.h"
#include "tests/support/test_folder.h"

namespace nereid::tokenizer {

// The length of texts that repeat one unit. Without sanitizers, work that grows with its square
// exceeds a test's time limit, and recursion exhausts the stack.
inline constexpr size_t kLongTextBytes = kHasSanitizer ? size_t{1} << 14 : size_t{1} << 18;

// Returns the folder of the shared test data, or nothing if this machine does not have it.
inline std::optional<std::filesystem::path> TestData() {
  const char* set = std::getenv("NEREID_TEST_DATA");
  const std::filesystem::path folder = set != nullptr ? set : SourcePath("../shared/data");
  if (!std::filesystem::exists(folder / "tokenizers")) return std::nullopt;
  return folder;
}

inline std::string Printable(uint8_t byte) {
  std::string text;
  AppendUtf8(ByteToChar(byte), text);
  return text;
}

// Byte-level: ids 0..255 are the bytes, then one id for each merge "left right", then
// "<|end|>" as a special added token.
inline nlohmann::json ByteLevelSpec(const std::vector<std::string>& merges = {"h e", "l l", "he ll",
                                                                              "hell o", "Ġ w"}) {
  nlohmann::json vocab = nlohmann::json::object();
  for (int b = 0; b < 256; ++b) vocab[Printable(static_cast<uint8_t>(b))] = b;
  for (const std::string& merge : merges) {
    std::string merged = merge;
    merged.erase(merged.find(' '), 1);
    vocab[merged] = vocab.size();
  }
  nlohmann::json spec;
  spec["version"] = "1.0";
  spec["added_tokens"] = {{{"id", vocab.size()},
                           {"content", "<|end|>"},
                           {"single_word", false},
                           {"lstrip", false},
                           {"rstrip", false},
                           {"normalized", false},
                           {"special", true}}};
  spec["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  spec["decoder"] = {{"type", "ByteLevel"}};
  spec["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}};
  return spec;
}

// Like a SentencePiece model: <unk> <s> </s>, byte tokens <0x00>..<0xFF> as ids 3..258, then
// `pieces`.
inline nlohmann::json MetaspaceSpec(const std::vector<std::string>& pieces,
                                    const std::vector<std::string>& merges) {
  nlohmann::json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", b);
    vocab[name] = 3 + b;
  }
  for (const std::string& piece : pieces) vocab[piece] = vocab.size();
  nlohmann::json spec;
  spec["added_tokens"] = {{{"id", 1}, {"content", "<s>"}, {"special", true}}};
  spec["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "▁"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}};
  spec["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1u}, {"stop", 0u}}}}};
  spec["model"] = {{"type", "BPE"},    {"unk_token", "<unk>"}, {"byte_fallback", true},
                   {"fuse_unk", true}, {"vocab", vocab},       {"merges", merges}};
  return spec;
}

inline std::shared_ptr<const Tokenizer> MustLoad(const nlohmann::json& spec) {
  auto tokenizer = Tokenizer::FromJson(spec.dump());
  if (!tokenizer.ok()) {
    ADD_FAILURE() << tokenizer.status().message();
    return nullptr;
  }
  return *tokenizer;
}

// A temporary folder for tokenizer files, deleted after the test.
class TokenizerFolderTest : public testing::Test {
 protected:
  void Write(const char* name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::shared_ptr<const Tokenizer> Load() {
    auto tokenizer = Tokenizer::Load(folder_.string());
    if (!tokenizer.ok()) ADD_FAILURE() << tokenizer.status().message();
    return tokenizer.ok() ? *tokenizer : nullptr;
  }
  std::string LoadError(const std::string& path) {
    const auto tokenizer = Tokenizer::Load(path);
    EXPECT_FALSE(tokenizer.ok());
    return tokenizer.ok() ? "" : tokenizer.status().message();
  }

 private:
  const TestFolder parent_;

 protected:
  const std::filesystem::path folder_ = parent_.path();
};

inline std::vector<int32_t> Ids(const Tokenizer& tokenizer, std::string_view text,
                                bool special = false) {
  const auto ids = tokenizer.Encode(text, {.add_special_tokens = special});
  if (!ids.ok()) ADD_FAILURE() << ids.status().message();
  return ids.ok() ? *ids : std::vector<int32_t>();
}

}  // namespace nereid::tokenizer
