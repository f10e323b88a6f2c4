// Limits of a decoder below those of its checkpoint: positions, attention windows, sink tokens.
#include "backends/llm_core/model/decoder_spec.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace nereid::llm {
namespace {

Result<std::vector<int32_t>> ParseWindows(std::string_view text) {
  std::vector<int32_t> windows;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    int32_t window = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), window);
    if (error != std::errc() || end != item.data() + item.size() || window < 1) {
      return InvalidArgError("parameter 'max_attention_window_size' is '", text,
                             "', expected comma-separated numbers of 1 or more");
    }
    windows.push_back(window);
  }
  return windows;
}

}  // namespace

Status LimitAttention(std::string_view windows, int32_t num_sinks, DecoderSpec& spec) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<int32_t> limits, ParseWindows(windows));
  int32_t narrowest = 0;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    int32_t& window = spec.layers[i].sliding_window;
    if (!limits.empty()) {
      const int32_t limit = limits[i % limits.size()];
      // A window of max_positions or more has no effect.
      if (limit < spec.max_positions) window = window == 0 ? limit : std::min(window, limit);
    }
    if (window > 0) narrowest = narrowest == 0 ? window : std::min(narrowest, window);
  }
  if (num_sinks > 0 && num_sinks >= narrowest) {
    return InvalidArgError(
        "parameter 'sink_token_length' is ", num_sinks,
        ", expected less than the narrowest attention window, ",
        narrowest == 0 ? std::string("but no layer has one") : StrCat(narrowest, " tokens"));
  }
  spec.num_sink_tokens = num_sinks;
  return Status::Ok();
}

int32_t DecoderSpec::attention_window() const {
  int32_t window = 0;
  for (const LayerSpec& layer : layers) {
    if (layer.sliding_window == 0) return 0;
    window = std::max(window, layer.sliding_window);
  }
  return window;
}

void LimitPositions(DecoderSpec& spec, int32_t max_positions) {
  const int32_t most = std::max(spec.max_positions, spec.extended_positions);
  if (max_positions > 0) spec.max_positions = std::min(most, max_positions);
  for (RopeSpec& rope : spec.ropes) {
    if (spec.max_positions <= rope.trained_positions) rope.trained_positions = 0;
    if (spec.max_positions > rope.short_positions || rope.short_inv_freq.empty()) continue;
    rope.inv_freq = std::move(rope.short_inv_freq);
    rope.short_inv_freq.clear();
  }
}

}  // namespace nereid::llm
