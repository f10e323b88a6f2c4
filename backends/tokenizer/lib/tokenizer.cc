// See tokenizer.h.
#include "backends/tokenizer/lib/tokenizer.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "backends/tokenizer/lib/aligned_encode.h"
#include "backends/tokenizer/lib/load/rank_tokenizer.h"
#include "backends/tokenizer/lib/load/side_files.h"
#include "backends/tokenizer/lib/load/tokenizer_parts.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {
namespace {

namespace fs = std::filesystem;

Result<std::string> ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return NotFoundError("tokenizer file '", path.string(), "' cannot be opened");
  const std::streamoff size = file.tellg();
  std::string bytes(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  file.seekg(0);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    return InvalidArgError("tokenizer file '", path.string(), "' cannot be read");
  }
  return bytes;
}

// The file to load: `path` itself, or what the directory `path` holds.
Result<fs::path> FindTokenizerFile(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    return NotFoundError("tokenizer '", path, "': no such file or directory");
  if (!fs::is_directory(status)) return fs::path(path);
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "spiece.model", "tekken.json", "tiktoken.model"}) {
    if (fs::exists(fs::path(path) / name, error)) return fs::path(path) / name;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
    if (entry.path().extension() == ".tiktoken") return entry.path();
  }
  return NotFoundError("tokenizer directory '", path,
                       "' holds neither tokenizer.json nor tokenizer.model, spiece.model, "
                       "tekken.json, tiktoken.model or a .tiktoken file");
}

bool LooksLikeJson(std::string_view bytes) {
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  return first != bytes.npos && bytes[first] == '{';
}

// A tekken.json says so in its first bytes; any other JSON is a tokenizer.json.
PartsResult LoadJson(std::string_view bytes, const SideOptions& side) {
  const std::string_view head = bytes.substr(0, 4096);
  if (head.find("\"token_bytes\"") != head.npos) return LoadTekken(bytes, side);
  return LoadTokenizerJson(bytes, side);
}

PartsResult LoadFile(const fs::path& file, const SideOptions& side) {
  NEREID_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file));
  if (file.extension() == ".json" || LooksLikeJson(bytes)) return LoadJson(bytes, side);
  if (LooksLikeTiktoken(bytes)) return LoadTiktoken(bytes, side);
  return LoadSentencePiece(bytes, side);
}

// Encodes the pieces that the pre-tokenizer cuts.
class ModelSink final : public PieceSink {
 public:
  ModelSink(const TextModel& model, std::vector<int32_t>& out) : model_(model), out_(out) {}
  bool Add(std::string_view piece, bool) override {
    model_.Encode(piece, scratch_, out_);
    return !scratch_.lacks_unknown;
  }
  bool lacks_unknown() const { return scratch_.lacks_unknown; }

 private:
  const TextModel& model_;
  ModelScratch scratch_;
  std::vector<int32_t>& out_;
};

using SharedTokenizer = Result<std::shared_ptr<const Tokenizer>>;

SharedTokenizer Wrap(PartsResult parts) {
  if (!parts.ok()) return std::move(parts).status();
  return std::shared_ptr<const Tokenizer>(std::make_shared<Tokenizer>(std::move(parts).value()));
}

// One pass over `text`; false when a pattern exceeded its work limit, or the sink says why.
bool EncodeInto(const TokenizerParts& parts, std::string_view text, ModelSink& sink,
                std::vector<int32_t>& ids) {
  std::vector<AddedTokens::Split> raw, normalized;
  std::string buffer;
  parts.added.SplitRaw(text, raw);
  for (const AddedTokens::Split& stretch : raw) {
    if (stretch.id >= 0) {
      ids.push_back(stretch.id);
      continue;
    }
    std::string_view piece = text.substr(stretch.begin, stretch.end - stretch.begin);
    if (!parts.normalizer.is_identity()) {
      if (!parts.normalizer.Normalize(piece, buffer)) return false;
      piece = buffer;
    }
    parts.added.SplitNormalized(piece, normalized);
    for (const AddedTokens::Split& part : normalized) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else if (!parts.pre_tokenizer.Split(piece.substr(part.begin, part.end - part.begin),
                                            stretch.begin == 0 && part.begin == 0, sink)) {
        return false;
      }
    }
  }
  return true;
}

Status EncodeText(const TokenizerParts& parts, std::string_view text, std::vector<int32_t>& ids) {
  ModelSink sink(*parts.model, ids);
  if (EncodeInto(parts, text, sink, ids)) return {};
  return CannotEncode(text.size(), sink.lacks_unknown());
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

SharedTokenizer Tokenizer::Load(const std::string& path) {
  NEREID_ASSIGN_OR_RETURN(const fs::path file, FindTokenizerFile(path));
  NEREID_ASSIGN_OR_RETURN(const SideFiles side_files, SideFiles::Read(file.parent_path().string()));
  NEREID_ASSIGN_OR_RETURN(const SideOptions side, side_files.Options());
  PartsResult parts = LoadFile(file, side);
  if (!parts.ok()) {
    return std::move(parts).status().WithContext(StrCat("tokenizer '", file.string(), "'"));
  }
  NEREID_RETURN_IF_ERROR(side_files.Finish(**parts));
  return Wrap(std::move(parts));
}

SharedTokenizer Tokenizer::FromJson(std::string_view json) {
  return Wrap(LoadJson(json, {}));
}

SharedTokenizer Tokenizer::FromTiktoken(std::string_view ranks) {
  return Wrap(LoadTiktoken(ranks, {}));
}

SharedTokenizer Tokenizer::FromSentencePiece(std::string_view model) {
  return Wrap(LoadSentencePiece(model, {}));
}

namespace {

// `text`, repaired in `buffer` where it is to be.
Result<std::string_view> ValidText(std::string_view text, InvalidUtf8 policy, std::string& buffer) {
  const size_t valid = ValidPrefix(text);
  if (valid == text.size()) return text;
  if (policy == InvalidUtf8::kRefuse) {
    return InvalidArgError("text of ", text.size(), " bytes: not UTF-8 at byte ", valid);
  }
  return Sanitize(text, buffer);
}

// Keeps the special tokens around the text; `ids` has those before it, not those behind.
Status TruncateIds(const TokenizerParts& parts, bool add_special_tokens,
                   std::vector<int32_t>& ids) {
  const size_t num_before = add_special_tokens ? parts.post.prefix_ids().size() : 0;
  const size_t num_added = add_special_tokens ? parts.post.NumAdded(/*is_pair=*/false) : 0;
  const size_t count = ids.size() - num_before;
  NEREID_ASSIGN_OR_RETURN(const size_t limit, parts.truncation->Limit(count, num_added));
  const auto first = ids.begin() + static_cast<ptrdiff_t>(num_before);
  if (parts.truncation->side == Side::kLeft) {
    ids.erase(first, first + static_cast<ptrdiff_t>(count - limit));
  } else {
    ids.resize(num_before + limit);
  }
  return {};
}

}  // namespace

Result<Encoding> Tokenizer::EncodeUnpadded(std::span<const std::string_view> texts,
                                           EncodeOptions options) const {
  std::array<std::string, 2> repaired;
  std::array<std::string_view, 2> valid;
  for (size_t i = 0; i < texts.size(); ++i) {
    NEREID_ASSIGN_OR_RETURN(valid[i], ValidText(texts[i], options.invalid_utf8, repaired[i]));
  }
  return EncodeWithOffsets(*parts_, std::span(valid).first(texts.size()),
                           options.add_special_tokens);
}

Result<std::vector<Encoding>> Tokenizer::Padded(std::vector<Encoding> batch) const {
  if (parts_->padding) NEREID_RETURN_IF_ERROR(Pad(batch, *parts_->padding));
  return batch;
}

Result<Encoding> Tokenizer::EncodeFully(std::string_view text, EncodeOptions options) const {
  NEREID_ASSIGN_OR_RETURN(std::vector<Encoding> batch, EncodeBatch(std::span(&text, 1), options));
  return std::move(batch.front());
}

Result<Encoding> Tokenizer::EncodePair(std::string_view first, std::string_view second,
                                       EncodeOptions options) const {
  const TextPair pair = {first, second};
  NEREID_ASSIGN_OR_RETURN(std::vector<Encoding> batch, EncodePairs(std::span(&pair, 1), options));
  return std::move(batch.front());
}

Result<std::vector<Encoding>> Tokenizer::EncodeBatch(std::span<const std::string_view> texts,
                                                     EncodeOptions options) const {
  std::vector<Encoding> batch;
  for (const std::string_view& text : texts) {
    NEREID_ASSIGN_OR_RETURN(Encoding encoding, EncodeUnpadded(std::span(&text, 1), options));
    batch.push_back(std::move(encoding));
  }
  return Padded(std::move(batch));
}

Result<std::vector<Encoding>> Tokenizer::EncodePairs(std::span<const TextPair> pairs,
                                                     EncodeOptions options) const {
  std::vector<Encoding> batch;
  for (const TextPair& pair : pairs) {
    const std::string_view texts[] = {pair.first, pair.second};
    NEREID_ASSIGN_OR_RETURN(Encoding encoding, EncodeUnpadded(texts, options));
    batch.push_back(std::move(encoding));
  }
  return Padded(std::move(batch));
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  NEREID_ASSIGN_OR_RETURN(text, ValidText(text, options.invalid_utf8, repaired));
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (options.add_special_tokens) ids = parts_->post.prefix_ids();
  NEREID_RETURN_IF_ERROR(EncodeText(*parts_, text, ids));
  if (options.truncate && parts_->truncation) {
    NEREID_RETURN_IF_ERROR(TruncateIds(*parts_, options.add_special_tokens, ids));
  }
  if (options.add_special_tokens) {
    const std::vector<int32_t>& suffix = parts_->post.suffix_ids();
    ids.insert(ids.end(), suffix.begin(), suffix.end());
  }
  return ids;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string text;
  DecodeState state(*parts_->decoder, skip_special_tokens, SIZE_MAX);
  text.reserve(ids.size() * 5);
  state.PushAll(ids, text);
  state.Finish(text);
  return text;
}

std::vector<int32_t> Tokenizer::Spell(std::string_view text, std::span<const int32_t> prior_ids,
                                      bool skip_special_tokens) const {
  if (text.empty()) return {};
  const auto spells = [&](std::span<const int32_t> ids) {
    IncrementalDecoder decoder(*this, skip_special_tokens);
    std::string before, added;
    decoder.Push(prior_ids, before);
    decoder.Push(ids, added);
    decoder.Finish(added);
    return added == text;
  };
  Result<std::vector<int32_t>> usual = Encode(text, {.add_special_tokens = false});
  if (usual.ok() && spells(*usual)) return std::move(*usual);
  std::vector<int32_t> pieces;
  for (std::string_view left = text; !left.empty();) {
    const int32_t id = parts_->decoder->LongestBeginning(left);
    if (id < 0) return {};
    pieces.push_back(id);
    left.remove_prefix(parts_->decoder->SizeOf(id));
  }
  if (!spells(pieces)) pieces.clear();
  return pieces;
}

std::optional<std::string_view> Tokenizer::IdToToken(int32_t id) const {
  for (const AddedToken& token : parts_->added.tokens()) {
    if (token.id == id) return token.content;
  }
  return parts_->vocabulary.OfId(id);
}

std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  return parts_->IdOfToken(token);
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return parts_->decoder->IsSpecial(id);
}
int32_t Tokenizer::vocab_size() const {
  return parts_->vocab_size;
}
int32_t Tokenizer::model_vocab_size() const {
  return parts_->model_vocab_size;
}
const SpecialIds& Tokenizer::special_ids() const {
  return parts_->special_ids;
}

struct IncrementalDecoder::State {
  const TokenDecoder& decoder;
  bool skip_special_tokens;
  size_t max_held_ids;
  DecodeState decode;
};

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens,
                                       size_t max_held_ids)
    : state_(
          new State{*tokenizer.parts_->decoder, skip_special_tokens, max_held_ids,
                    DecodeState(*tokenizer.parts_->decoder, skip_special_tokens, max_held_ids)}) {}
IncrementalDecoder::~IncrementalDecoder() = default;
IncrementalDecoder::IncrementalDecoder(IncrementalDecoder&&) noexcept = default;

void IncrementalDecoder::Replay(std::span<const int32_t> ids) {
  if (ids.size() >= state_->max_held_ids) state_->decode.AssumeStarted();
  std::string discarded;
  Push(ids, discarded);
}

void IncrementalDecoder::Push(std::span<const int32_t> ids, std::string& out) {
  for (const int32_t id : ids) state_->decode.Push(id, out);
}

bool IncrementalDecoder::is_settled() const {
  return state_->decode.is_settled();
}

void IncrementalDecoder::Finish(std::string& out) {
  state_->decode.Finish(out);
}

}  // namespace nereid::tokenizer
