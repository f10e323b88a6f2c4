#include "host/frontend/http/bodies/generate_members.h"

#include <string>
#include <vector>

#include "base/closest_name.h"

namespace nereid::http {
namespace {

constexpr MissingFeature kMissingFeatures[] = {
    {"encoder_input_features", "encoder-decoder models"},
    {"encoder_output_lengths", "encoder-decoder models"},
    {"cross_attention_mask", "cross attention"},
    {"skip_cross_attn_blocks", "cross attention"},
    {"context_phase_params", "context and generation on different servers"},
    {"mrope_rotary_cos_sin", "multimodal rotary positions"},
    {"mrope_position_deltas", "multimodal rotary positions"},
};

}  // namespace

std::span<const MissingFeature> MissingFeatures() {
  return kMissingFeatures;
}

bool IsLanguageModel(const ModelSignature& model) {
  const auto has = [&](std::string_view first, std::string_view second) {
    return model.Find(first) != nullptr && model.Find(second) != nullptr;
  };
  return has("text_input", "max_tokens") || has("input_ids", "request_output_len") ||
         has("QUERY", "REQUEST_OUTPUT_LEN");
}

Status CheckUnknownMember(std::string_view name, bool is_false, const ModelSignature& model) {
  for (const MissingFeature& missing : kMissingFeatures) {
    if (missing.member != name) continue;
    if (is_false) return Status::Ok();
    return InvalidArgError("member '", name, "': this feature is not supported (", missing.feature,
                           ")");
  }
  constexpr size_t kMinNameBytes = 4;   // every shorter name is close to another
  constexpr size_t kMaxNameBytes = 64;  // the search for close names takes quadratic time
  if (name.size() < kMinNameBytes || name.size() > kMaxNameBytes) return Status::Ok();
  std::vector<std::string> names;
  for (const InputSignature& input : model.inputs) names.push_back(input.name);
  const std::string closest = ClosestName(name, names);
  if (closest.empty()) return Status::Ok();
  return InvalidArgError("unknown member '", name, "'; did you mean '", closest, "'?");
}

std::string UnknownMemberLog::LineFor(std::string_view model, std::string_view member) {
  std::string name(member.substr(0, kMaxNameBytes));
  const std::lock_guard lock(mutex_);
  if (named_.size() == kMaxNames) return {};
  const auto [at, is_new] = named_.emplace(std::string(model), std::move(name));
  if (!is_new) return {};
  return StrCat("model '", model, "' has no input '", at->second,
                "': generate passes this member on as a request parameter, which language models "
                "do not read; it is not named again",
                named_.size() == kMaxNames ? ", nor is any further member" : "");
}

}  // namespace nereid::http
