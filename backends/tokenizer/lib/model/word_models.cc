// See word_models.h.
#include "backends/tokenizer/lib/model/word_models.h"

#include <algorithm>

#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {

void WordLevelModel::Encode(std::string_view pretoken, ModelScratch& scratch,
                            std::vector<int32_t>& out) const {
  if (pretoken.empty()) return;
  if (const auto id = vocabulary_.Find(pretoken)) {
    out.push_back(*id);
  } else if (unk_id_) {
    out.push_back(*unk_id_);
  } else {
    scratch.lacks_unk_token = true;
  }
}

void WordLevelModel::EncodeSpans(std::string_view pretoken, ModelScratch& scratch,
                                 std::vector<TokenSpan>& out) const {
  std::vector<int32_t> ids;
  Encode(pretoken, scratch, ids);
  for (const int32_t id : ids) out.push_back({id, 0, static_cast<uint32_t>(pretoken.size())});
}

WordPieceModel::WordPieceModel(const TokenTable& vocabulary, Options options)
    : vocabulary_(vocabulary), options_(std::move(options)) {}

template <typename Visit>
bool WordPieceModel::ForEachToken(std::string_view pretoken, ModelScratch& scratch,
                                  Visit visit) const {
  const auto num_chars = static_cast<size_t>(
      std::count_if(pretoken.begin(), pretoken.end(), [](char c) { return !IsContinuation(c); }));
  if (num_chars > options_.max_chars) return false;
  std::string& candidate = scratch.text;
  for (size_t begin = 0; begin < pretoken.size();) {
    candidate.assign(begin == 0 ? "" : options_.continuing_prefix);
    const size_t prefix = candidate.size();
    candidate.append(pretoken, begin, vocabulary_.max_content_bytes());  // no token is longer
    std::optional<int32_t> id;
    size_t end = candidate.size();
    for (; end > prefix; --end) {
      const size_t next = begin + end - prefix;
      if (next < pretoken.size() && IsContinuation(pretoken[next])) continue;
      if ((id = vocabulary_.Find(std::string_view(candidate).substr(0, end)))) break;
    }
    if (!id) return false;  // one unknown part makes the whole word unknown
    begin += end - prefix;
    visit(*id, begin);
  }
  return true;
}

void WordPieceModel::Encode(std::string_view pretoken, ModelScratch& scratch,
                            std::vector<int32_t>& out) const {
  const size_t old_size = out.size();
  if (ForEachToken(pretoken, scratch, [&](int32_t id, size_t) { out.push_back(id); })) return;
  out.resize(old_size);
  out.push_back(options_.unk_id);
}

void WordPieceModel::EncodeSpans(std::string_view pretoken, ModelScratch& scratch,
                                 std::vector<TokenSpan>& out) const {
  const size_t old_size = out.size();
  uint32_t begin = 0;
  const bool is_known = ForEachToken(pretoken, scratch, [&](int32_t id, size_t end) {
    out.push_back({id, begin, static_cast<uint32_t>(end)});
    begin = static_cast<uint32_t>(end);
  });
  if (is_known) return;
  out.resize(old_size);
  out.push_back({options_.unk_id, 0, static_cast<uint32_t>(pretoken.size())});
}

}  // namespace nereid::tokenizer
