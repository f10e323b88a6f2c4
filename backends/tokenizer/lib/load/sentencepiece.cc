// Loads a sentencepiece model of type BPE or Unigram from its protobuf wire form. The merge rules
// of BPE are not in the file: every way to put a piece together from two pieces is one, ranked by
// the piece's score.
#include <algorithm>
#include <cfloat>
#include <nlohmann/json.hpp>

#include "backends/tokenizer/lib/load/side_files.h"
#include "backends/tokenizer/lib/load/tokenizer_parts.h"
#include "backends/tokenizer/lib/model/bpe_model.h"
#include "backends/tokenizer/lib/model/frozen_pieces.h"
#include "backends/tokenizer/lib/model/unigram_model.h"
#include "backends/tokenizer/lib/normalize/charsmap.h"
#include "backends/tokenizer/lib/reading/proto_reader.h"
#include "backends/tokenizer/lib/text/utf8.h"

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

constexpr uint64_t kUnigram = 1, kBpe = 2;

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
  std::string_view charsmap;
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
    if (reader.field() == 2) model.charsmap = reader.bytes();
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
  if (model.model_type != kUnigram && model.model_type != kBpe) {
    return UnsupportedError("sentencepiece model of type ",
                            model.model_type < 5 ? kTypes[model.model_type] : "unknown",
                            " is not supported, only Unigram and BPE are");
  }
  if (!model.escape_whitespaces || model.whitespace_as_suffix) {
    return UnsupportedError("sentencepiece ",
                            model.whitespace_as_suffix ? "treat_whitespace_as_suffix = true"
                                                       : "escape_whitespaces = false",
                            " is not supported");
  }
  if (model.pieces.size() >= kMaxTokenId)
    return InvalidArgError("more than ", kMaxTokenId, " pieces");
  for (const Piece& piece : model.pieces) {
    if (piece.type == kUnused && model.model_type == kBpe)
      return UnsupportedError("unused pieces of a sentencepiece BPE model are not supported");
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

// Tokens wherever they stand, in the text as it is and as it is segmented.
TokenTrie UserPieces(const Model& model) {
  TokenTrie pieces;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type == kUserDefined) pieces.Add(piece.text, static_cast<int32_t>(id));
  }
  return pieces;
}

std::vector<AddedToken> AddedPieces(const Model& model) {
  std::vector<AddedToken> tokens;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type != kControl && piece.type != kUnknown) continue;
    AddedToken token;
    token.content = piece.text;
    token.id = static_cast<int32_t>(id);
    token.normalized = false;
    token.special = true;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::optional<int32_t> ValidId(int64_t id, size_t count) {
  if (id < 0 || id >= static_cast<int64_t>(count)) return std::nullopt;
  return static_cast<int32_t>(id);
}

// Scores as sentencepiece has them (0.2.1 and later): single precision, user-defined pieces before
// all others, one long one before several.
std::unique_ptr<const TextModel> MakeUnigram(const Model& model, const TokenTable& vocabulary,
                                             std::optional<int32_t> unk_id) {
  constexpr float kUnkPenalty = 10.0F;
  float min_score = FLT_MAX;
  for (const Piece& piece : model.pieces) {
    if (piece.type == kNormal) min_score = std::min(min_score, piece.score);
  }
  std::vector<UnigramModel::Token> tokens;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const Piece& piece = model.pieces[id];
    if (piece.type != kNormal && piece.type != kUserDefined) continue;
    const auto user_score = static_cast<float>(0.1 * (static_cast<double>(piece.text.size()) - 1));
    const float score = piece.type == kNormal ? piece.score : user_score;
    tokens.push_back({piece.text, static_cast<int32_t>(id), score});
  }
  UnigramOptions options;
  options.unk_id = unk_id;
  options.byte_fallback = model.byte_fallback;
  options.single_precision = true;
  return std::make_unique<UnigramModel>(vocabulary, tokens, min_score - kUnkPenalty, options);
}

// Where spaces become U+2581, and what is put before the text. `first`: only before the whole text,
// not behind every special token.
Status SetSpaces(const Model& model, const SideOptions& side, TokenizerParts& parts) {
  const bool prefix = side.add_prefix_space.value_or(model.add_dummy_prefix);
  const bool first = prefix && !side.legacy;
  if (!model.charsmap.empty() || model.remove_extra_whitespaces) {
    NEREID_ASSIGN_OR_RETURN(
        Charsmap map,
        Charsmap::Make(model.charsmap.empty() ? std::string_view("\0\0\0\0", 4) : model.charsmap));
    const SentencePieceSpaces spaces{prefix && !first, model.remove_extra_whitespaces};
    parts.normalizer =
        Normalizer::Of(MakeSentencePieceStep(std::move(map), UserPieces(model), spaces));
  } else {
    parts.normalizer = Normalizer::ForSentencePiece(prefix && !first);
  }
  if (!first) return {};
  NEREID_ASSIGN_OR_RETURN(parts.pre_tokenizer, PreTokenizer::Make({{"type", "Metaspace"},
                                                                   {"replacement", "\u2581"},
                                                                   {"prepend_scheme", "first"},
                                                                   {"split", false}}));
  return {};
}

}  // namespace

PartsResult LoadSentencePiece(std::string_view bytes, const SideOptions& side) {
  NEREID_ASSIGN_OR_RETURN(const Model model, ReadModel(bytes));
  NEREID_RETURN_IF_ERROR(CheckSupported(model));
  auto parts = std::make_unique<TokenizerParts>();
  parts->vocabulary.Reserve(model.pieces.size(), bytes.size());
  std::optional<int32_t> unk_id;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    parts->vocabulary.Add(model.pieces[id].text, static_cast<uint32_t>(id));
    if (model.pieces[id].type == kUnknown) unk_id = static_cast<int32_t>(id);
  }
  NEREID_RETURN_IF_ERROR(SetSpaces(model, side, *parts));
  if (model.model_type == kUnigram) {
    parts->model = MakeUnigram(model, parts->vocabulary, unk_id);
  } else {
    BpeOptions bpe;
    bpe.unk_id = unk_id;
    bpe.byte_fallback = model.byte_fallback;
    bpe.fuse_unk = true;
    const std::vector<MergeRule> rules = MakeRules(model, parts->vocabulary);
    if (rules.size() > MergeTable::kMaxRank) {
      return InvalidArgError("expected at most ", MergeTable::kMaxRank, " ways to merge, got ",
                             rules.size());
    }
    parts->model = std::make_unique<BpeModel>(parts->vocabulary, rules, bpe);
    if (TokenTrie pieces = UserPieces(model); !pieces.empty()) {
      parts->model = std::make_unique<FrozenPieces>(std::move(pieces), std::move(parts->model));
    }
  }
  std::vector<AddedToken> added = AddedPieces(model);
  Overlay(side.added, parts->vocabulary, added);
  NEREID_ASSIGN_OR_RETURN(parts->added, AddedTokens::FromList(std::move(added), parts->normalizer));
  const size_t count = model.pieces.size();
  parts->special_ids = {ValidId(model.bos_id, count), ValidId(model.eos_id, count),
                        ValidId(model.pad_id, count), unk_id};
  // A Unigram model of T5's kind has an end but no beginning.
  const SpecialIds& ids = parts->special_ids;
  if (side.add_bos.value_or(true) && ids.bos) parts->post.Surround(*ids.bos, /*in_front=*/true);
  if (side.add_eos.value_or(!ids.bos) && ids.eos) {
    parts->post.Surround(*ids.eos, /*in_front=*/false);
  }
  if (!ids.bos) parts->post.GiveOneType();
  FinishParts(DecoderSteps::ForSentencePiece(model.byte_fallback, model.add_dummy_prefix,
                                             model.remove_extra_whitespaces),
              *parts);
  return parts;
}

}  // namespace nereid::tokenizer
