// Not a test: a program that scripts use to compare the library with the reference. It reads
// requests from stdin and writes one response per line.
//   tokenizer_driver PATH
// Each request is one JSON object per line:
//   {"encode": TEXT | {"hex": BYTES}, "special": BOOL, "truncate": BOOL} -> {"ids": [...]}
//   {"batch": [TEXT | [TEXT, TEXT], ...], "special": BOOL} -> {"encodings": [{"ids", "types",
//   "offsets", "attention", "special", "overflowing"}, ...]}
//   {"decode": IDS, "skip": BOOL, "clean_up": BOOL} -> {"text": TEXT}
//   {"stream": [IDS, ...], "skip": BOOL, "clean_up": BOOL} -> {"pieces": [...]}
// "truncate" applies the truncation of tokenizer.json, "clean_up" the clean_up_tokenization_spaces
// of tokenizer_config.json. The last of "pieces" is the text that Finish adds.
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "backends/tokenizer/lib/tokenizer.h"

using nereid::tokenizer::Encoding;
using nereid::tokenizer::IncrementalDecoder;
using nereid::tokenizer::TextPair;
using nereid::tokenizer::Tokenizer;
using Json = nlohmann::json;

namespace {

std::string Unhex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Json Members(const Encoding& encoding) {
  Json offsets = Json::array(), overflowing = Json::array();
  for (const auto& span : encoding.offsets) offsets.push_back({span.begin, span.end});
  for (const Encoding& part : encoding.overflowing) overflowing.push_back(Members(part));
  return {{"ids", encoding.ids},
          {"types", encoding.type_ids},
          {"offsets", offsets},
          {"attention", encoding.attention_mask},
          {"special", encoding.special_mask},
          {"overflowing", overflowing}};
}

// `batch` contains texts, or pairs of texts.
nereid::Result<std::vector<Encoding>> EncodeBatch(const Tokenizer& tokenizer, const Json& batch,
                                                  bool special) {
  const nereid::tokenizer::EncodeOptions options = {.add_special_tokens = special};
  if (!batch.empty() && batch[0].is_array()) {
    const auto texts = batch.get<std::vector<std::array<std::string, 2>>>();
    std::vector<TextPair> pairs;
    for (const auto& pair : texts) pairs.push_back({pair[0], pair[1]});
    return tokenizer.EncodePairs(pairs, options);
  }
  const auto texts = batch.get<std::vector<std::string>>();
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  return tokenizer.EncodeBatch(views, options);
}

Json Answer(const Tokenizer& tokenizer, const Json& request) {
  if (request.contains("encode")) {
    const Json& text = request["encode"];
    const auto ids =
        tokenizer.Encode(text.is_string() ? text.get<std::string>() : Unhex(text["hex"]),
                         {.add_special_tokens = request.value("special", false),
                          .truncate = request.value("truncate", false)});
    if (!ids.ok()) return {{"error", ids.status().message()}};
    return {{"ids", *ids}};
  }
  if (request.contains("batch")) {
    const auto batch = EncodeBatch(tokenizer, request["batch"], request.value("special", false));
    if (!batch.ok()) return {{"error", batch.status().message()}};
    Json answers = Json::array();
    for (const Encoding& one : *batch) answers.push_back(Members(one));
    return {{"encodings", answers}};
  }
  const nereid::tokenizer::DecodeOptions options = {
      .skip_special_tokens = request.value("skip", false),
      .cleans_up_spaces = request.value("clean_up", false) && tokenizer.cleans_up_spaces()};
  if (request.contains("decode")) {
    return {{"text", tokenizer.Decode(request["decode"].get<std::vector<int32_t>>(), options)}};
  }
  IncrementalDecoder decoder(tokenizer, options);
  Json pieces = Json::array();
  for (const Json& chunk : request["stream"]) {
    std::string piece;
    decoder.Push(chunk.get<std::vector<int32_t>>(), piece);
    pieces.push_back(piece);
  }
  std::string piece;
  decoder.Finish(piece);
  pieces.push_back(piece);
  return {{"pieces", pieces}};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto tokenizer = Tokenizer::Load(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status().message() << "\n";
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << Answer(**tokenizer, Json::parse(line)).dump() << "\n" << std::flush;
  }
  return 0;
}
