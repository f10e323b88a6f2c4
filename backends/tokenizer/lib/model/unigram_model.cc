// See unigram_model.h. The forward pass keeps the best segmentation up to each byte; the result is
// read backwards from the last byte.
#include "backends/tokenizer/lib/model/unigram_model.h"

#include <algorithm>

#include "backends/tokenizer/lib/text/byte_encoding.h"
#include "backends/tokenizer/lib/text/utf8.h"

namespace nereid::tokenizer {

UnigramModel::UnigramModel(const TokenTable& vocabulary, const std::vector<Token>& tokens,
                           double unk_score, UnigramOptions options)
    : vocabulary_(vocabulary),
      options_(options),
      unk_score_(unk_score),
      memo_(std::make_unique<std::atomic<uint8_t>[]>(vocabulary.num_entries())) {
  std::vector<DoubleArrayTrie::Key> keys;
  scores_.resize(vocabulary.id_end());
  for (const Token& token : tokens) {
    if (!token.text.empty()) keys.push_back({token.text, token.id});
    scores_[token.id] = token.score;
  }
  trie_ = DoubleArrayTrie(std::move(keys));
  for (unsigned b = 0; b < 256; ++b) {
    fallback_[b] = vocabulary.Find(FallbackName(static_cast<uint8_t>(b))).value_or(-1);
  }
}

void UnigramModel::Encode(std::string_view pretoken, ModelScratch& scratch,
                          std::vector<int32_t>& out) const {
  const int32_t entry =
      pretoken.size() <= vocabulary_.max_content_bytes() ? vocabulary_.FindEntry(pretoken) : -1;
  if (entry < 0) return EncodeByScores(pretoken, scratch, out);
  const int32_t id = vocabulary_.IdOf(entry);
  std::atomic<uint8_t>& memo = memo_[entry];
  const uint8_t known = memo.load(std::memory_order_relaxed);
  if (known == kEncodesToItself) {
    out.push_back(id);
    return;
  }
  const size_t old_size = out.size();
  EncodeByScores(pretoken, scratch, out);
  const bool itself = out.size() == old_size + 1 && out.back() == id;
  if (scratch.lacks_unk_token) return;
  if (known == kUnknown)
    memo.store(itself ? kEncodesToItself : kEncodesToOthers, std::memory_order_relaxed);
}

template <typename Score>
void UnigramModel::RunViterbi(std::string_view pretoken, ModelScratch& scratch) const {
  auto& viterbi = scratch.viterbi;
  const auto relax = [&](size_t end, double sum, int32_t id, size_t begin) {
    ModelScratch::ViterbiState& path = viterbi[end];
    const auto score = static_cast<Score>(sum);
    const bool is_better = path.begin < 0 || score > path.score;
    if (is_better) path = {score, id, static_cast<int32_t>(begin)};
    return is_better;
  };
  for (size_t begin = 0; begin < pretoken.size();) {
    const double so_far = viterbi[begin].score;
    const size_t next = begin + Utf8Length(pretoken[begin]);
    bool has_single = false;
    trie_.ForEachPrefix(pretoken, begin, [&](int32_t id, size_t end) {
      relax(end, scores_[id] + so_far, id, begin);
      has_single |= end == next;
    });
    if (!has_single && relax(next, unk_score_ + so_far, options_.unk_id.value_or(-1), begin) &&
        !options_.unk_id) {
      scratch.lacks_unk_token = true;
    }
    begin = next;
  }
}

template <typename Visit>
void UnigramModel::ForEachToken(std::string_view pretoken, ModelScratch& scratch,
                                Visit visit) const {
  if (pretoken.empty()) return;
  auto& viterbi = scratch.viterbi;
  viterbi.assign(pretoken.size() + 1, {0.0, -1, -1});
  if (options_.single_precision) {
    RunViterbi<float>(pretoken, scratch);
  } else {
    RunViterbi<double>(pretoken, scratch);
  }
  // The ends of the tokens, last first. Consecutive unknown characters become one token.
  auto& ends = scratch.symbols;
  ends.clear();
  const int32_t unk_id = options_.unk_id.value_or(-1);
  for (auto end = static_cast<int32_t>(pretoken.size()); end > 0; end = viterbi[end].begin) {
    const bool extends =
        !ends.empty() && viterbi[end].id == unk_id && viterbi[ends.back()].id == unk_id;
    if (extends) {
      viterbi[ends.back()].begin = viterbi[end].begin;
    } else {
      ends.push_back(end);
    }
  }
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const ModelScratch::ViterbiState& path = viterbi[*end];
    visit(static_cast<size_t>(path.begin), static_cast<size_t>(*end), path.id);
  }
}

void UnigramModel::EncodeByScores(std::string_view pretoken, ModelScratch& scratch,
                                  std::vector<int32_t>& out) const {
  const int32_t unk_id = options_.unk_id.value_or(-1);
  ForEachToken(pretoken, scratch, [&](size_t begin, size_t end, int32_t id) {
    if (id != unk_id) {
      out.push_back(id);
    } else {
      AppendUnknown(pretoken.substr(begin, end - begin), id, out);
    }
  });
}

// Each byte token of an unknown section covers the whole section.
void UnigramModel::EncodeSpans(std::string_view pretoken, ModelScratch& scratch,
                               std::vector<TokenSpan>& out) const {
  const int32_t unk_id = options_.unk_id.value_or(-1);
  std::vector<int32_t> ids;
  ForEachToken(pretoken, scratch, [&](size_t begin, size_t end, int32_t id) {
    ids.assign(1, id);
    if (id == unk_id) {
      ids.clear();
      AppendUnknown(pretoken.substr(begin, end - begin), id, ids);
    }
    for (const int32_t one : ids) {
      out.push_back({one, static_cast<uint32_t>(begin), static_cast<uint32_t>(end), one == unk_id});
    }
  });
}

// Encodes an unknown section: as a token if it happens to be one, else as bytes, else as unknown.
void UnigramModel::AppendUnknown(std::string_view text, int32_t id,
                                 std::vector<int32_t>& out) const {
  if (const auto known = vocabulary_.Find(text)) {
    out.push_back(*known);
    return;
  }
  const bool has_bytes =
      options_.byte_fallback && std::all_of(text.begin(), text.end(), [&](char byte) {
        return fallback_[static_cast<unsigned char>(byte)] >= 0;
      });
  if (has_bytes) {
    for (const char byte : text) out.push_back(fallback_[static_cast<unsigned char>(byte)]);
  } else if (id >= 0) {
    out.push_back(id);
  }
}

}  // namespace nereid::tokenizer
