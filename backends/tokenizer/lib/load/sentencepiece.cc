// Loads a SentencePiece model of type BPE or Unigram from its protobuf bytes. The file does not
// contain BPE's merge rules: every division of a piece into two pieces is a rule, ranked by the
// piece's score.
#include <algorithm>
#include <cfloat>
#include <nlohmann/json.hpp>

#include "backends/tokenizer/lib/load/side_files.h"
#include "backends/tokenizer/lib/load/tokenizer_components.h"
#include "backends/tokenizer/lib/model/bpe_model.h"
#include "backends/tokenizer/lib/model/unigram_model.h"
#include "backends/tokenizer/lib/normalize/charsmap.h"
#include "backends/tokenizer/lib/parse/protobuf_reader.h"
#include "backends/tokenizer/lib/text/utf8.h"
#include "backends/tokenizer/lib/vocabulary/token_trie.h"

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

// BPE with user-defined pieces, as in the sentencepiece library: these are tokens wherever they
// occur in the text, and nothing merges with them.
class UserDefinedPiecesModel final : public TokenizationModel {
 public:
  // `pieces` maps the user-defined pieces to ids; `model` encodes the text between them.
  UserDefinedPiecesModel(TokenTrie pieces, std::unique_ptr<const TokenizationModel> model)
      : pieces_(std::move(pieces)), model_(std::move(model)) {}

  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<int32_t>& out) const override;
  void EncodeSpans(std::string_view piece, ModelScratch& scratch,
                   std::vector<TokenSpan>& out) const override;
  bool searches_vocabulary() const override { return model_->searches_vocabulary(); }

 private:
  // Calls `between(begin, end)` and `user_defined(match)` for the sections of `piece`, in order.
  template <typename Between, typename UserDefined>
  void ForEachSection(std::string_view piece, Between between, UserDefined user_defined) const;

  TokenTrie pieces_;
  std::unique_ptr<const TokenizationModel> model_;
};

template <typename Between, typename UserDefined>
void UserDefinedPiecesModel::ForEachSection(std::string_view piece, Between between,
                                            UserDefined user_defined) const {
  size_t done = 0;
  while (const auto match = pieces_.Find(piece, done)) {
    if (done < match->begin) between(done, match->begin);
    user_defined(*match);
    done = match->end;
  }
  if (done < piece.size()) between(done, piece.size());
}

void UserDefinedPiecesModel::Encode(std::string_view piece, ModelScratch& scratch,
                                    std::vector<int32_t>& out) const {
  ForEachSection(
      piece,
      [&](size_t begin, size_t end) {
        model_->Encode(piece.substr(begin, end - begin), scratch, out);
      },
      [&](const TokenTrie::Match& match) { out.push_back(match.value); });
}

void UserDefinedPiecesModel::EncodeSpans(std::string_view piece, ModelScratch& scratch,
                                         std::vector<TokenSpan>& out) const {
  ForEachSection(
      piece,
      [&](size_t begin, size_t end) {
        const size_t first = out.size();
        model_->EncodeSpans(piece.substr(begin, end - begin), scratch, out);
        for (size_t i = first; i < out.size(); ++i) {
          out[i].begin += static_cast<uint32_t>(begin);
          out[i].end += static_cast<uint32_t>(begin);
        }
      },
      [&](const TokenTrie::Match& match) {
        out.push_back(
            {match.value, static_cast<uint32_t>(match.begin), static_cast<uint32_t>(match.end)});
      });
}

struct SentencePiece {
  std::string_view text;
  float score = 0;
  uint64_t type = kNormal;
};

struct SentencePieceModel {
  std::vector<SentencePiece> pieces;
  // From trainer_spec.
  uint64_t model_type = 1;
  bool byte_fallback = false, whitespace_as_suffix = false;
  int64_t bos_id = 1, eos_id = 2, pad_id = -1;
  // From normalizer_spec.
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  std::string_view charsmap;
};

// The field numbers are those of sentencepiece_model.proto.
bool ReadPiece(std::string_view bytes, SentencePiece& piece) {
  ProtobufReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 1) piece.text = reader.bytes();
    if (reader.field() == 2) piece.score = reader.AsFloat();
    if (reader.field() == 3) piece.type = reader.number();
  }
  return reader.ok();
}

bool ReadTrainerSpec(std::string_view bytes, SentencePieceModel& model) {
  ProtobufReader reader(bytes);
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

bool ReadNormalizerSpec(std::string_view bytes, SentencePieceModel& model) {
  ProtobufReader reader(bytes);
  while (reader.Next()) {
    if (reader.field() == 2) model.charsmap = reader.bytes();
    if (reader.field() == 3) model.add_dummy_prefix = reader.number() != 0;
    if (reader.field() == 4) model.remove_extra_whitespaces = reader.number() != 0;
    if (reader.field() == 5) model.escape_whitespaces = reader.number() != 0;
  }
  return reader.ok();
}

Result<SentencePieceModel> ReadModel(std::string_view bytes) {
  SentencePieceModel model;
  ProtobufReader reader(bytes);
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
                           " bytes are not its protobuf message, or a truncated one");
  }
  return model;
}

Status CheckSupported(const SentencePieceModel& model) {
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
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type == kUnused && model.model_type == kBpe)
      return UnsupportedError("unused pieces of a sentencepiece BPE model are not supported");
  }
  return {};
}

// Ranks follow descending scores. Equal scores share a rank, so that the leftmost of them merges
// first.
std::vector<MergeRule> MakeRules(const SentencePieceModel& model, const TokenTable& vocabulary) {
  std::vector<MergeRule> rules;
  std::vector<float> scores;
  const auto mergeable = [&](int32_t id) { return model.pieces[id].type == kNormal; };
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
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

// User-defined pieces are tokens wherever they occur, before and after normalization.
TokenTrie UserDefinedPieces(const SentencePieceModel& model) {
  TokenTrie pieces;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
    if (piece.type == kUserDefined) pieces.Add(piece.text, static_cast<int32_t>(id));
  }
  return pieces;
}

std::vector<AddedToken> SpecialPieces(const SentencePieceModel& model) {
  std::vector<AddedToken> tokens;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
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

// Scores as in sentencepiece 0.2.1 and later: in single precision; user-defined pieces win over all
// others, and one long user-defined piece wins over several short ones.
std::unique_ptr<const TokenizationModel> MakeUnigram(const SentencePieceModel& model,
                                                     const TokenTable& vocabulary,
                                                     std::optional<int32_t> unk_id) {
  constexpr float kUnkPenalty = 10.0F;
  float min_score = FLT_MAX;
  for (const SentencePiece& piece : model.pieces) {
    if (piece.type == kNormal) min_score = std::min(min_score, piece.score);
  }
  std::vector<UnigramModel::Token> tokens;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePiece& piece = model.pieces[id];
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

// Configures how spaces become U+2581 and whether a prefix is added. `first`: the prefix is added
// only at the start of the text, not after each special token.
Status SetSpaceHandling(const SentencePieceModel& model, const SideFileOptions& side,
                        TokenizerComponents& components) {
  const bool prefix = side.add_prefix_space.value_or(model.add_dummy_prefix);
  const bool first = prefix && !side.legacy;
  if (!model.charsmap.empty() || model.remove_extra_whitespaces) {
    NEREID_ASSIGN_OR_RETURN(
        Charsmap map,
        Charsmap::Make(model.charsmap.empty() ? std::string_view("\0\0\0\0", 4) : model.charsmap));
    const SentencePieceSpaces spaces{prefix && !first, model.remove_extra_whitespaces};
    components.normalizer =
        Normalizer::Of(MakeSentencePieceStep(std::move(map), UserDefinedPieces(model), spaces));
  } else {
    components.normalizer = Normalizer::ForSentencePiece(prefix && !first);
  }
  if (!first) return {};
  NEREID_ASSIGN_OR_RETURN(components.pre_tokenizer, PreTokenizer::Make({{"type", "Metaspace"},
                                                                        {"replacement", "\u2581"},
                                                                        {"prepend_scheme", "first"},
                                                                        {"split", false}}));
  return {};
}

}  // namespace

ComponentsResult LoadSentencePiece(std::string_view bytes, const SideFileOptions& side) {
  NEREID_ASSIGN_OR_RETURN(const SentencePieceModel model, ReadModel(bytes));
  NEREID_RETURN_IF_ERROR(CheckSupported(model));
  auto components = std::make_unique<TokenizerComponents>();
  components->vocabulary.Reserve(model.pieces.size(), bytes.size());
  std::optional<int32_t> unk_id;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    components->vocabulary.Add(model.pieces[id].text, static_cast<uint32_t>(id));
    if (model.pieces[id].type == kUnknown) unk_id = static_cast<int32_t>(id);
  }
  NEREID_RETURN_IF_ERROR(SetSpaceHandling(model, side, *components));
  if (model.model_type == kUnigram) {
    components->model = MakeUnigram(model, components->vocabulary, unk_id);
  } else {
    BpeOptions bpe;
    bpe.unk_id = unk_id;
    bpe.byte_fallback = model.byte_fallback;
    bpe.fuse_unk = true;
    const std::vector<MergeRule> rules = MakeRules(model, components->vocabulary);
    if (rules.size() > MergeTable::kMaxRank) {
      return InvalidArgError("expected at most ", MergeTable::kMaxRank, " merge rules, got ",
                             rules.size());
    }
    components->model = std::make_unique<BpeModel>(components->vocabulary, rules, bpe);
    if (TokenTrie pieces = UserDefinedPieces(model); !pieces.empty()) {
      components->model =
          std::make_unique<UserDefinedPiecesModel>(std::move(pieces), std::move(components->model));
    }
  }
  std::vector<AddedToken> added = SpecialPieces(model);
  OverlayAddedTokens(side.added, components->vocabulary, added);
  NEREID_ASSIGN_OR_RETURN(components->added,
                          AddedTokens::FromList(std::move(added), components->normalizer));
  const size_t count = model.pieces.size();
  components->special_ids = {ValidId(model.bos_id, count), ValidId(model.eos_id, count),
                             ValidId(model.pad_id, count), unk_id};
  // Unigram models such as T5's have EOS but no BOS.
  const SpecialIds& ids = components->special_ids;
  if (side.add_bos.value_or(true) && ids.bos)
    components->post.AddSpecialToken(*ids.bos, /*before_text=*/true);
  if (side.add_eos.value_or(!ids.bos) && ids.eos) {
    components->post.AddSpecialToken(*ids.eos, /*before_text=*/false);
  }
  if (!ids.bos) components->post.UseSingleTypeId();
  FinalizeComponents(DecoderSteps::ForSentencePiece(model.byte_fallback, model.add_dummy_prefix,
                                                    model.remove_extra_whitespaces),
                     *components);
  return components;
}

}  // namespace nereid::tokenizer
