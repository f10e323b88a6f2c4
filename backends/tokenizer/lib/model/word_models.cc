// See word_models.h.
#include "backends/tokenizer/lib/model/word_models.h"

#include <algorithm>

#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {

void WordLevelModel::Encode(std::string_view piece, ModelScratch& scratch,
                            std::vector<int32_t>& out) const {
  if (piece.empty()) return;
  if (const auto id = vocabulary_.Find(piece)) {
    out.push_back(*id);
  } else if (unk_id_) {
    out.push_back(*unk_id_);
  } else {
    scratch.lacks_unknown = true;
  }
}

void WordLevelModel::EncodeSpans(std::string_view piece, ModelScratch& scratch,
                                 std::vector<PieceToken>& out) const {
  std::vector<int32_t> ids;
  Encode(piece, scratch, ids);
  for (const int32_t id : ids) out.push_back({id, 0, static_cast<uint32_t>(piece.size())});
}

WordPieceModel::WordPieceModel(const TokenTable& vocabulary, Options options)
    : vocabulary_(vocabulary), options_(std::move(options)) {}

template <typename Visit>
bool WordPieceModel::ForEachToken(std::string_view piece, ModelScratch& scratch,
                                  Visit visit) const {
  const auto num_chars = static_cast<size_t>(
      std::count_if(piece.begin(), piece.end(), [](char c) { return !IsContinuation(c); }));
  if (num_chars > options_.max_chars) return false;
  std::string& spelt = scratch.text;
  for (size_t begin = 0; begin < piece.size();) {
    spelt.assign(begin == 0 ? "" : options_.continuing_prefix);
    const size_t prefix = spelt.size();
    spelt.append(piece, begin, vocabulary_.max_content_bytes());  // no token is longer
    std::optional<int32_t> id;
    size_t end = spelt.size();
    for (; end > prefix; --end) {
      const size_t next = begin + end - prefix;
      if (next < piece.size() && IsContinuation(piece[next])) continue;
      if ((id = vocabulary_.Find(std::string_view(spelt).substr(0, end)))) break;
    }
    if (!id) return false;  // one unknown part makes the word unknown
    begin += end - prefix;
    visit(*id, begin);
  }
  return true;
}

void WordPieceModel::Encode(std::string_view piece, ModelScratch& scratch,
                            std::vector<int32_t>& out) const {
  const size_t old_size = out.size();
  if (ForEachToken(piece, scratch, [&](int32_t id, size_t) { out.push_back(id); })) return;
  out.resize(old_size);
  out.push_back(options_.unk_id);
}

void WordPieceModel::EncodeSpans(std::string_view piece, ModelScratch& scratch,
                                 std::vector<PieceToken>& out) const {
  const size_t old_size = out.size();
  uint32_t begin = 0;
  const bool is_known = ForEachToken(piece, scratch, [&](int32_t id, size_t end) {
    out.push_back({id, begin, static_cast<uint32_t>(end)});
    begin = static_cast<uint32_t>(end);
  });
  if (is_known) return;
  out.resize(old_size);
  out.push_back({options_.unk_id, 0, static_cast<uint32_t>(piece.size())});
}

}  // namespace nereid::tokenizer
