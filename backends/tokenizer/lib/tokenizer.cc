// See tokenizer.h.
#include "backends/tokenizer/lib/tokenizer.h"

#include <array>
#include <filesystem>

#include "backends/tokenizer/lib/decode/space_clean_up.h"
#include "backends/tokenizer/lib/encode_with_offsets.h"
#include "backends/tokenizer/lib/load/rank_tokenizer.h"
#include "backends/tokenizer/lib/load/side_files.h"
#include "backends/tokenizer/lib/load/tokenizer_components.h"
#include "backends/tokenizer/lib/parse/json_fields.h"
#include "backends/tokenizer/lib/text/utf8.h"
#include "base/file_content.h"

namespace nereid::tokenizer {
namespace {

namespace fs = std::filesystem;

// Returns the file to load: `path` itself, or the tokenizer file in the directory `path`.
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

// A tekken.json has "token_bytes" near its beginning. Any other JSON is a tokenizer.json.
ComponentsResult LoadJson(std::string_view bytes, const SideFileOptions& side) {
  const std::string_view head = bytes.substr(0, 4096);
  if (head.find("\"token_bytes\"") != head.npos) return LoadTekken(bytes, side);
  return LoadTokenizerJson(bytes, side);
}

ComponentsResult LoadFile(const fs::path& file, const SideFileOptions& side) {
  NEREID_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(file.string(), kMaxTokenizerBytes));
  if (file.extension() == ".json" || LooksLikeJson(bytes)) return LoadJson(bytes, side);
  if (LooksLikeTiktoken(bytes)) return LoadTiktoken(bytes, side);
  return LoadSentencePiece(bytes, side);
}

// Encodes each pre-token as the pre-tokenizer produces it.
class ModelSink final : public SpanSink {
 public:
  ModelSink(const TokenizationModel& model, std::vector<int32_t>& out) : model_(model), out_(out) {}
  bool Add(std::string_view pretoken, bool) override {
    model_.Encode(pretoken, scratch_, out_);
    return !scratch_.lacks_unk_token;
  }
  bool lacks_unk_token() const { return scratch_.lacks_unk_token; }

 private:
  const TokenizationModel& model_;
  ModelScratch scratch_;
  std::vector<int32_t>& out_;
};

using SharedTokenizer = Result<std::shared_ptr<const Tokenizer>>;

SharedTokenizer MakeTokenizer(ComponentsResult components) {
  if (!components.ok()) return std::move(components).status();
  return std::shared_ptr<const Tokenizer>(
      std::make_shared<Tokenizer>(std::move(components).value()));
}

// Whether special tokens at [begin, end) of the text would contain bytes that a client wrote.
AddedTokens::IsBarred BarsInput(const MarkedText* marks) {
  if (marks == nullptr || !marks->has_input()) return {};
  return [marks](const AddedToken& token, size_t begin, size_t end) {
    return token.special && marks->HasInput(begin, end);
  };
}

// Encodes the section that begins at byte `begin` of a text with its alignment, which tells what is
// at the text's start and which bytes a client wrote. `marks` may be null.
bool EncodeAligned(const TokenizerComponents& components, std::string_view section, size_t begin,
                   const MarkedText* marks, ModelSink& sink, std::vector<int32_t>& ids) {
  AlignedText aligned = AlignedText::Of(section, begin);
  if (!components.normalizer.NormalizeAligned(aligned)) return false;
  AddedTokens::IsBarred is_barred;
  if (marks != nullptr) {
    is_barred = [&](const AddedToken& token, size_t from, size_t to) {
      const TextSpan origin = aligned.Origin(from, to);
      return token.special && marks->HasInput(origin.begin, origin.end);
    };
  }
  std::vector<AddedTokens::Split> splits;
  components.added.SplitNormalized(aligned.text(), splits, is_barred);
  std::vector<AlignedText> pretokens;
  for (const AddedTokens::Split& split : splits) {
    if (split.id >= 0) {
      ids.push_back(split.id);
      continue;
    }
    pretokens.clear();
    const AlignedText cut = aligned.Slice(split.begin, split.end);
    if (!components.pre_tokenizer.SplitAligned(cut, pretokens)) return false;
    for (const AlignedText& pretoken : pretokens) {
      if (!sink.Add(pretoken.text(), false)) return false;
    }
  }
  return true;
}

// Encodes `text` in one pass. `marks`, if not null, tells which of its bytes a client wrote.
// Returns false if a pattern exceeded its work limit or the sink stopped (see its
// lacks_unk_token()).
bool EncodeInto(const TokenizerComponents& components, std::string_view text,
                const MarkedText* marks, ModelSink& sink, std::vector<int32_t>& ids) {
  std::vector<AddedTokens::Split> raw_splits, splits;
  std::string buffer;
  components.added.SplitRaw(text, raw_splits, BarsInput(marks));
  for (const AddedTokens::Split& raw_split : raw_splits) {
    if (raw_split.id >= 0) {
      ids.push_back(raw_split.id);
      continue;
    }
    std::string_view section = text.substr(raw_split.begin, raw_split.end - raw_split.begin);
    const bool needs_start = raw_split.begin == 0 && components.pre_tokenizer.needs_alignment(
                                                         !components.normalizer.is_identity());
    if (needs_start || (marks != nullptr && marks->HasInput(raw_split.begin, raw_split.end))) {
      if (!EncodeAligned(components, section, raw_split.begin, marks, sink, ids)) return false;
      continue;
    }
    if (!components.normalizer.is_identity()) {
      if (!components.normalizer.Normalize(section, buffer)) return false;
      section = buffer;
    }
    components.added.SplitNormalized(section, splits);
    for (const AddedTokens::Split& split : splits) {
      if (split.id >= 0) {
        ids.push_back(split.id);
      } else if (!components.pre_tokenizer.Split(
                     section.substr(split.begin, split.end - split.begin),
                     raw_split.begin == 0 && split.begin == 0, sink)) {
        return false;
      }
    }
  }
  return true;
}

Status EncodeText(const TokenizerComponents& components, std::string_view text,
                  const MarkedText* marks, std::vector<int32_t>& ids) {
  ModelSink sink(*components.model, ids);
  if (EncodeInto(components, text, marks, sink, ids)) return {};
  return EncodeError(text.size(), sink.lacks_unk_token());
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerComponents> components)
    : components_(std::move(components)) {}
Tokenizer::~Tokenizer() = default;

SharedTokenizer Tokenizer::Load(const std::string& path) {
  NEREID_ASSIGN_OR_RETURN(const fs::path file, FindTokenizerFile(path));
  NEREID_ASSIGN_OR_RETURN(const SideFiles side_files, SideFiles::Read(file.parent_path().string()));
  NEREID_ASSIGN_OR_RETURN(const SideFileOptions side, side_files.Options());
  ComponentsResult components = LoadFile(file, side);
  if (!components.ok()) {
    return std::move(components).status().WithContext(StrCat("tokenizer '", file.string(), "'"));
  }
  NEREID_RETURN_IF_ERROR(side_files.ApplyTo(**components));
  return MakeTokenizer(std::move(components));
}

SharedTokenizer Tokenizer::FromJson(std::string_view json) {
  return MakeTokenizer(LoadJson(json, {}));
}

SharedTokenizer Tokenizer::FromTiktoken(std::string_view ranks) {
  return MakeTokenizer(LoadTiktoken(ranks, {}));
}

SharedTokenizer Tokenizer::FromSentencePiece(std::string_view model) {
  return MakeTokenizer(LoadSentencePiece(model, {}));
}

namespace {

// Returns `text`, or its repaired copy in `buffer` if the policy allows repair.
Result<std::string_view> ValidText(std::string_view text, InvalidUtf8 policy, std::string& buffer) {
  const size_t valid = ValidPrefix(text);
  if (valid == text.size()) return text;
  if (policy == InvalidUtf8::kRefuse) {
    return InvalidArgError("text of ", text.size(), " bytes: not UTF-8 at byte ", valid);
  }
  return Sanitize(text, buffer);
}

// Truncates the text's tokens but not the special tokens around them. `ids` has the special tokens
// before the text, but not yet those after it.
Status TruncateIds(const TokenizerComponents& components, bool add_special_tokens,
                   std::vector<int32_t>& ids) {
  const size_t num_before = add_special_tokens ? components.post.prefix_ids().size() : 0;
  const size_t num_added = add_special_tokens ? components.post.NumAdded(/*is_pair=*/false) : 0;
  const size_t count = ids.size() - num_before;
  NEREID_ASSIGN_OR_RETURN(const size_t limit, components.truncation->NumKept(count, num_added));
  const auto first = ids.begin() + static_cast<ptrdiff_t>(num_before);
  if (components.truncation->side == Side::kLeft) {
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
  return EncodeWithOffsets(*components_, std::span(valid).first(texts.size()),
                           options.add_special_tokens);
}

Result<std::vector<Encoding>> Tokenizer::PadBatch(std::vector<Encoding> batch) const {
  if (components_->padding) NEREID_RETURN_IF_ERROR(Pad(batch, *components_->padding));
  return batch;
}

Result<Encoding> Tokenizer::EncodeDetailed(std::string_view text, EncodeOptions options) const {
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
  return PadBatch(std::move(batch));
}

Result<std::vector<Encoding>> Tokenizer::EncodePairs(std::span<const TextPair> pairs,
                                                     EncodeOptions options) const {
  std::vector<Encoding> batch;
  for (const TextPair& pair : pairs) {
    const std::string_view texts[] = {pair.first, pair.second};
    NEREID_ASSIGN_OR_RETURN(Encoding encoding, EncodeUnpadded(texts, options));
    batch.push_back(std::move(encoding));
  }
  return PadBatch(std::move(batch));
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  std::string repaired;
  NEREID_ASSIGN_OR_RETURN(text, ValidText(text, options.invalid_utf8, repaired));
  return EncodeValid(text, nullptr, options);
}

Result<std::vector<int32_t>> Tokenizer::EncodeMarked(const MarkedText& text,
                                                     EncodeOptions options) const {
  if (text.size() > UINT32_MAX) {
    return InvalidArgError("text of ", text.size(), " bytes: expected at most ", UINT32_MAX);
  }
  std::string unused;
  NEREID_RETURN_IF_ERROR(ValidText(text.bytes(), InvalidUtf8::kRefuse, unused).status());
  return EncodeValid(text.bytes(), &text, options);
}

Result<std::vector<int32_t>> Tokenizer::EncodeValid(std::string_view text, const MarkedText* marks,
                                                    EncodeOptions options) const {
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (options.add_special_tokens) ids = components_->post.prefix_ids();
  NEREID_RETURN_IF_ERROR(EncodeText(*components_, text, marks, ids));
  if (options.truncate && components_->truncation) {
    NEREID_RETURN_IF_ERROR(TruncateIds(*components_, options.add_special_tokens, ids));
  }
  if (options.add_special_tokens) {
    const std::vector<int32_t>& suffix = components_->post.suffix_ids();
    ids.insert(ids.end(), suffix.begin(), suffix.end());
  }
  return ids;
}

namespace {

std::string DecodeAll(DecodeState state, std::span<const int32_t> ids, bool cleans_up_spaces) {
  std::string text;
  text.reserve(ids.size() * 5);
  state.PushAll(ids, text);
  state.Finish(text);
  return cleans_up_spaces ? CleanUpSpaces(std::move(text)) : text;
}

}  // namespace

std::string Tokenizer::Decode(std::span<const int32_t> ids, DecodeOptions options) const {
  return DecodeAll(DecodeState(*components_->decoder, options.skip_special_tokens, SIZE_MAX), ids,
                   options.cleans_up_spaces);
}

std::string Tokenizer::DecodeInContext(std::span<const int32_t> ids, DecodeOptions options) const {
  DecodeState state(*components_->decoder, options.skip_special_tokens, SIZE_MAX);
  state.AssumeStarted();
  return DecodeAll(std::move(state), ids, options.cleans_up_spaces);
}

std::string Tokenizer::TokenBytes(int32_t id) const {
  std::optional<std::string> bytes = components_->decoder->BytesOf(id);
  if (bytes) return *std::move(bytes);
  return DecodeInContext(std::span(&id, 1), {.skip_special_tokens = false});
}

std::vector<int32_t> Tokenizer::EncodeContinuation(std::string_view text,
                                                   std::span<const int32_t> prior_ids,
                                                   DecodeOptions options) const {
  if (text.empty()) return {};
  const auto decodes_to_text = [&](std::span<const int32_t> ids) {
    IncrementalDecoder decoder(*this, options);
    std::string before, added;
    decoder.Push(prior_ids, before);
    decoder.Push(ids, added);
    decoder.Finish(added);
    return added == text;
  };
  Result<std::vector<int32_t>> encoded = Encode(text, {.add_special_tokens = false});
  if (encoded.ok() && decodes_to_text(*encoded)) return std::move(*encoded);
  std::vector<int32_t> greedy_ids;
  for (std::string_view left = text; !left.empty();) {
    const int32_t id = components_->decoder->FindLongestPrefix(left);
    if (id < 0) return {};
    greedy_ids.push_back(id);
    left.remove_prefix(components_->decoder->TextSize(id));
  }
  if (!decodes_to_text(greedy_ids)) greedy_ids.clear();
  return greedy_ids;
}

std::optional<std::string_view> Tokenizer::IdToToken(int32_t id) const {
  for (const AddedToken& token : components_->added.tokens()) {
    if (token.id == id) return token.content;
  }
  return components_->vocabulary.OfId(id);
}

std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  return components_->IdOfToken(token);
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return components_->decoder->IsSpecial(id);
}
int32_t Tokenizer::vocab_size() const {
  return components_->vocab_size;
}
int32_t Tokenizer::model_vocab_size() const {
  return components_->model_vocab_size;
}
bool Tokenizer::cleans_up_spaces() const {
  return components_->cleans_up_spaces;
}
std::string Tokenizer::CleanUp(std::string text) {
  return CleanUpSpaces(std::move(text));
}
const SpecialIds& Tokenizer::special_ids() const {
  return components_->special_ids;
}

struct IncrementalDecoder::State {
  State(const TokenDecoder& decoder, DecodeOptions options, size_t max_ids)
      : max_pending_ids(max_ids), decode(decoder, options.skip_special_tokens, max_ids) {
    if (options.cleans_up_spaces) clean_up.emplace(max_ids);
  }

  const size_t max_pending_ids;
  DecodeState decode;
  std::optional<SpaceCleanUp> clean_up;
};

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, DecodeOptions options,
                                       size_t max_pending_ids)
    : state_(new State(*tokenizer.components_->decoder, options, max_pending_ids)) {}
IncrementalDecoder::~IncrementalDecoder() = default;
IncrementalDecoder::IncrementalDecoder(IncrementalDecoder&&) noexcept = default;

void IncrementalDecoder::Replay(std::span<const int32_t> ids) {
  if (ids.size() >= state_->max_pending_ids) state_->decode.AssumeStarted();
  std::string discarded;
  Push(ids, discarded);
}

void IncrementalDecoder::Push(std::span<const int32_t> ids, std::string& out) {
  if (!state_->clean_up) {
    for (const int32_t id : ids) state_->decode.Push(id, out);
    return;
  }
  std::string piece;
  for (const int32_t id : ids) {
    piece.clear();
    state_->decode.Push(id, piece);
    state_->clean_up->PushToken(piece, out);
  }
}

bool IncrementalDecoder::is_flushed() const {
  return state_->decode.is_flushed() && (!state_->clean_up || state_->clean_up->is_flushed());
}

void IncrementalDecoder::Finish(std::string& out) {
  if (!state_->clean_up) return state_->decode.Finish(out);
  std::string piece;
  state_->decode.Finish(piece);
  state_->clean_up->PushToken(piece, out);
  state_->clean_up->Finish(out);
}

std::string DecodeChunk(const Tokenizer& tokenizer, DecodeOptions options,
                        std::span<const int32_t> prior_ids, std::span<const int32_t> ids,
                        bool is_final) {
  if (prior_ids.empty() && is_final) return tokenizer.Decode(ids, options);
  IncrementalDecoder decoder(tokenizer, options, kMaxPendingIds);
  std::string text;
  decoder.Replay(prior_ids);
  decoder.Push(ids, text);
  if (is_final) decoder.Finish(text);
  return text;
}

}  // namespace nereid::tokenizer
