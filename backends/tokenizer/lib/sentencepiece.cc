// Loads a sentencepiece model of type BPE from its protobuf wire form. The merge rules are not in
// the file: every way to put a piece together from two pieces is one, ranked by the piece's score.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bpe_model.h"
#include "proto_reader.h"
#include "tokenizer_parts.h"
#include "utf8.h"

namespace nereid::tokenizer {
namespace {

enum PieceType {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Piece {
  std::string_view text;
  float score = 0;
  uint64_t type = kNormal;
};

struct Model {
  std::vector<Piece> pieces;
  // trainer_spec
  uint64_t model_type = 1;
  bool byte_fallback = false, whitespace_as_suffix = false;
  int64_t bos_id = 1, eos_id = 2, pad_id = -1;
  // normalizer_spec
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  size_t charsmap_bytes = 0;
  std::string_view normalizer_name;
};

// Field numbers of sentencepiece_model.proto.
bool ReadPiece(std::string_view bytes, Piece& piece) {
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1) piece.text = reader.bytes();
    if (reader.field() == 2) piece.score = reader.AsFloat();
    if (reader.field() == 3) piece.type = reader.number();
  }
  return reader.ok();
}

bool ReadTrainerSpec(std::string_view bytes, Model& model) {
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 3) model.model_type = reader.number();
    if (reader.field() == 24) model.whitespace_as_suffix = reader.number() != 0;
    if (reader.field() == 35) model.byte_fallback = reader.number() != 0;
    if (reader.field() == 41) model.bos_id = static_cast<int32_t>(reader.number());
    if (reader.field() == 42) model.eos_id = static_cast<int32_t>(reader.number());
    if (reader.field() == 43) model.pad_id = static_cast<int32_t>(reader.number());
  }
  return reader.ok();
}

bool ReadNormalizerSpec(std::string_view bytes, Model& model) {
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1) model.normalizer_name = reader.bytes();
    if (reader.field() == 2) model.charsmap_bytes = reader.bytes().size();
    if (reader.field() == 3) model.add_dummy_prefix = reader.number() != 0;
    if (reader.field() == 4) model.remove_extra_whitespaces = reader.number() != 0;
    if (reader.field() == 5) model.escape_whitespaces = reader.number() != 0;
  }
  return reader.ok();
}

Result<Model> ReadModel(std::string_view bytes) {
  Model model;
  ProtoReader reader(bytes);
  bool ok = true;
  while (ok && reader.Next()) {
    if (reader.field() == 1) {
      model.pieces.emplace_back();
      ok = ReadPiece(reader.bytes(), model.pieces.back());
      if (!IsValidUtf8(model.pieces.back().text)) {
        return InvalidArgError("piece ", model.pieces.size() - 1, " is not UTF-8");
      }
    }
    if (reader.field() == 2) ok = ReadTrainerSpec(reader.bytes(), model);
    if (reader.field() == 3) ok = ReadNormalizerSpec(reader.bytes(), model);
  }
  if (!ok || !reader.ok() || model.pieces.empty()) {
    return InvalidArgError("not a sentencepiece model: its ", bytes.size(),
                           " bytes are no such message, or a truncated one");
  }
  return model;
}

Status CheckSupported(const Model& model) {
  constexpr const char* kTypes[] = {"", "Unigram", "BPE", "Word", "Char"};
  if (model.model_type != 2) {
    return UnsupportedError("sentencepiece model of type ",
                            model.model_type < 5 ? kTypes[model.model_type] : "unknown",
                            " is not supported, only BPE is");
  }
  if (model.charsmap_bytes != 0) {
    return UnsupportedError("sentencepiece normalizer '", model.normalizer_name,
                            "' is not supported, only identity is");
  }
  if (model.remove_extra_whitespaces || !model.escape_whitespaces || model.whitespace_as_suffix) {
    return UnsupportedError("sentencepiece ",
                            model.remove_extra_whitespaces ? "remove_extra_whitespaces = true"
                            : model.whitespace_as_suffix   ? "treat_whitespace_as_suffix = true"
                                                           : "escape_whitespaces = false",
                            " is not supported");
  }
  if (model.pieces.size() >= kMaxTokenId)
    return InvalidArgError("more than ", kMaxTokenId, " pieces");
  for (const Piece& piece : model.pieces) {
    if (piece.type == kUnused)
      return UnsupportedError("unused sentencepiece pieces are not supported");
  }
  return {};
}

// Ranks follow scores, equal scores sharing one, so that the leftmost of equals is merged first.
std::vector<MergeRule> MakeRules(const Model& model, const TokenTable& vocabulary) {
  std::vector<MergeRule> rules;
  std::vector<float> scores;
  const auto mergeable = [&](int32_t id) { return model.pieces[id].type == kNormal; };
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (!mergeable(static_cast<int32_t>(id))) continue;
    for (size_t cut = 1; cut < piece.text.size(); ++cut) {
      if (IsContinuation(piece.text[cut])) continue;
      const auto left = vocabulary.Find(piece.text.substr(0, cut));
      if (!left || !mergeable(*left)) continue;
      const auto right = vocabulary.Find(piece.text.substr(cut));
      if (!right || !mergeable(*right)) continue;
      rules.push_back({*left, *right, static_cast<int32_t>(id), 0});
      scores.push_back(piece.score);
    }
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  for (MergeRule& rule : rules) {
    const float score = model.pieces[rule.merged].score;
    rule.rank = static_cast<uint32_t>(
        std::lower_bound(scores.begin(), scores.end(), score, std::greater<>()) - scores.begin());
  }
  return rules;
}

std::vector<AddedToken> AddedPieces(const Model& model) {
  std::vector<AddedToken> tokens;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type != kControl && piece.type != kUnknown && piece.type != kUserDefined) continue;
    AddedToken token;
    token.content = piece.text;
    token.id = static_cast<int32_t>(id);
    token.normalized = false;
    token.special = piece.type != kUserDefined;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::optional<int32_t> ValidId(int64_t id, size_t count) {
  if (id < 0 || id >= static_cast<int64_t>(count)) return std::nullopt;
  return static_cast<int32_t>(id);
}

// What sentencepiece's own decoder does, in the words of tokenizer.json.
nlohmann::json DecoderSpec(const Model& model) {
  auto steps = nlohmann::json::array();
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}});
  if (model.byte_fallback) steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (model.add_dummy_prefix) {
    steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1u}, {"stop", 0u}});
  }
  return {{"type", "Sequence"}, {"decoders", steps}};
}

}  // namespace

PartsResult LoadSentencePiece(std::string_view bytes, SentencePieceOptions options) {
  NEREID_ASSIGN_OR_RETURN(const Model model, ReadModel(bytes));
  NEREID_RETURN_IF_ERROR(CheckSupported(model));
  auto parts = std::make_unique<TokenizerParts>();
  parts->vocabulary.Reserve(model.pieces.size(), bytes.size());
  BpeOptions bpe;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    parts->vocabulary.Add(model.pieces[id].text, static_cast<uint32_t>(id));
    if (model.pieces[id].type == kUnknown) bpe.unk_id = static_cast<int32_t>(id);
  }
  bpe.byte_fallback = model.byte_fallback;
  bpe.fuse_unk = true;
  parts->normalizer = Normalizer::ForSentencePiece(model.add_dummy_prefix);
  parts->model =
      std::make_unique<BpeModel>(parts->vocabulary, MakeRules(model, parts->vocabulary), bpe);
  NEREID_ASSIGN_OR_RETURN(parts->added,
                          AddedTokens::FromList(AddedPieces(model), parts->normalizer));
  const size_t count = model.pieces.size();
  parts->special_ids = {ValidId(model.bos_id, count), ValidId(model.eos_id, count),
                        ValidId(model.pad_id, count), bpe.unk_id};
  if (options.add_bos && parts->special_ids.bos) parts->prefix_ids = {*parts->special_ids.bos};
  if (options.add_eos && parts->special_ids.eos) parts->suffix_ids = {*parts->special_ids.eos};
  NEREID_RETURN_IF_ERROR(FinishParts(DecoderSpec(model), *parts));
  return parts;
}

}  // namespace nereid::tokenizer
