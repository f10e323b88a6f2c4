// Rope scalings. The arithmetic follows the reference (transformers, modeling_rope_utils) in order
// and in float32, so that angles agree to the last bits at large positions.
#include "backends/llm_core/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/json_reader.h"

namespace nereid::llm {
namespace {

// The context that the model was trained on before the extension. The config's own key takes
// precedence over that of the scaling, as in the reference.
double OriginalPositions(ConfigReader& config, ConfigReader& scaling, double fallback) {
  constexpr const char* kKey = "original_max_position_embeddings";
  return config.NumberOr(kKey, scaling.NumberOr(kKey, fallback));
}

// Null and 0 mean the default.
double PositiveOr(ConfigReader& scaling, const char* key, double usual) {
  const double value = scaling.NumberOr(key, usual);
  return value == 0.0 ? usual : value;
}

// Llama 3.1: low frequencies are divided by `factor`, high ones are kept, and those between are
// interpolated.
void ApplyLlama3(ConfigReader& scaling, double context, std::vector<float>& inv_freq) {
  const double factor = scaling.NumberOr("factor", 1.0);
  const double low = scaling.NumberOr("low_freq_factor", 1.0);
  const double high = scaling.NumberOr("high_freq_factor", 4.0);
  const auto divisor = static_cast<float>(factor);
  for (float& frequency : inv_freq) {
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / frequency;
    if (wavelength < static_cast<float>(context / high)) continue;
    if (wavelength > static_cast<float>(context / low)) {
      frequency /= divisor;
      continue;
    }
    const float smooth = (static_cast<float>(context) / wavelength - static_cast<float>(low)) /
                         static_cast<float>(high - low);
    frequency = (1.0f - smooth) * frequency / divisor + smooth * frequency;
  }
}

// The dimension whose frequency makes `rotations` turns within `context` positions.
double YarnDimension(double rotations, int32_t dim, double theta, double context) {
  return dim * std::log(context / (rotations * 2.0 * std::numbers::pi)) / (2.0 * std::log(theta));
}

double YarnMagnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// theta ^ (2 i / dim) for each pair of dimensions: the reciprocals of the plain frequencies. The
// scalings of the reference start from them where a further division would round a second time.
std::vector<float> RopePeriods(int32_t dim, double theta) {
  std::vector<float> periods;
  for (int32_t i = 0; i < (dim + 1) / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    periods.push_back(static_cast<float>(std::pow(theta, exponent)));
  }
  return periods;
}

void ApplyYarn(ConfigReader& scaling, double theta, double factor, double context, RopeSpec& rope) {
  double low = YarnDimension(PositiveOr(scaling, "beta_fast", 32.0), rope.dim, theta, context);
  double high = YarnDimension(PositiveOr(scaling, "beta_slow", 1.0), rope.dim, theta, context);
  if (scaling.BoolOr("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, rope.dim - 1.0);
  if (low == high) high += 0.001;
  const std::vector<float> periods = RopePeriods(rope.exponent_dim, theta);
  for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float share = 1.0f - ramp;  // of the plain frequency
    const float interpolated = 1.0f / (static_cast<float>(factor) * periods[i]);
    rope.inv_freq[i] = interpolated * (1.0f - share) + (1.0f / periods[i]) * share;
  }
  const double mscale = scaling.NumberOr("mscale", 0.0);
  const double mscale_all = scaling.NumberOr("mscale_all_dim", 0.0);
  const double fallback = mscale != 0.0 && mscale_all != 0.0
                              ? YarnMagnitude(factor, mscale) / YarnMagnitude(factor, mscale_all)
                              : YarnMagnitude(factor, 1.0);
  rope.magnitude = static_cast<float>(scaling.NumberOr("attention_factor", fallback));
}

std::vector<float> LongRopeFrequencies(ConfigReader& scaling, std::string_view key, double theta,
                                       const RopeSpec& rope) {
  const std::vector<double> factors = scaling.Numbers(key);
  if (factors.size() != rope.inv_freq.size()) {
    scaling.Fail(InvalidArgError("config.json: '", key, "' has ", factors.size(),
                                 " factors, expected ", rope.inv_freq.size()));
    return rope.inv_freq;
  }
  const std::vector<float> periods = RopePeriods(rope.exponent_dim, theta);
  std::vector<float> inv_freq;
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0.0)) {
      scaling.Fail(
          InvalidArgError("config.json: '", key, "' holds ", factors[i], ", expected more than 0"));
    }
    inv_freq.push_back(1.0f / (static_cast<float>(factors[i]) * periods[i]));
  }
  return inv_freq;
}

void ApplyLongRope(ConfigReader& config, ConfigReader& scaling, const RopeDefaults& defaults,
                   double theta, int32_t max_positions, RopeSpec& rope) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  const int32_t fallback = defaults.original_positions > 0
                               ? defaults.original_positions
                               : scaling.SizeOr(kOriginal, max_positions);
  const int32_t context = config.SizeOr(kOriginal, fallback);
  const double factor = scaling.NumberOr("factor", static_cast<double>(max_positions) / context);
  const double magnitude =
      factor <= 1.0 || context < 2 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(context));
  rope.magnitude = static_cast<float>(scaling.NumberOr("attention_factor", magnitude));
  rope.short_positions = context;
  rope.short_inv_freq = LongRopeFrequencies(scaling, "short_factor", theta, rope);
  rope.inv_freq = LongRopeFrequencies(scaling, "long_factor", theta, rope);
}

// Older configs have rope_scaling and rope_theta, newer ones only rope_parameters. If both are
// present, the older form takes precedence, as in the reference.
ConfigReader ScalingOf(const ConfigReader& config) {
  const bool is_old = !config.Object("rope_scaling").json().empty();
  return config.Object(is_old ? "rope_scaling" : "rope_parameters");
}

std::string KindOf(ConfigReader& scaling) {
  return scaling.StringOr("rope_type", scaling.StringOr("type", "default"));
}

// The fraction of a head that is rotated.
double TurningShare(ConfigReader& config, ConfigReader& scaling, const RopeDefaults& defaults) {
  if (!defaults.allows_partial_rotary && KindOf(scaling) == "default")
    return defaults.partial_factor;
  constexpr const char* kKey = "partial_rotary_factor";
  return scaling.NumberOr(kKey, config.NumberOr(kKey, defaults.partial_factor));
}

}  // namespace

RopeSpec PlainRope(int32_t dim, double theta) {
  RopeSpec rope;
  rope.dim = dim + dim % 2;
  rope.exponent_dim = dim;
  for (const float period : RopePeriods(dim, theta)) rope.inv_freq.push_back(1.0f / period);
  return rope;
}

void DynamicFrequencies(const RopeSpec& rope, int32_t num_tokens, float* inv_freq) {
  const double stretch = rope.dynamic_factor * num_tokens / rope.trained_positions;
  const double theta = rope.theta * std::pow(stretch - (rope.dynamic_factor - 1.0),
                                             rope.exponent_dim / (rope.exponent_dim - 2.0));
  const std::vector<float> plain = PlainRope(rope.exponent_dim, theta).inv_freq;
  std::copy(plain.begin(), plain.end(), inv_freq);
}

int32_t ReadExtendedPositions(ConfigReader& config, int32_t positions) {
  ConfigReader scaling = ScalingOf(config);
  if (scaling.Has("full_attention")) scaling = scaling.Object("full_attention");
  const std::string kind = KindOf(scaling);
  if (kind != "linear" && kind != "dynamic" && kind != "yarn") return positions;
  const double trained = kind == "yarn" ? OriginalPositions(config, scaling, positions) : positions;
  const double reach = trained * scaling.NumberOr("factor", 1.0);
  return static_cast<int32_t>(
      std::clamp(reach, static_cast<double>(positions), static_cast<double>(1 << 24)));
}

RopeSpec ReadRope(ConfigReader& config, int32_t head_dim, const RopeDefaults& defaults) {
  ConfigReader scaling = ScalingOf(config);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!config.Has(key) || config.json()[key].is_object()) continue;
    config.Fail(InvalidArgError("config.json: '", key, "' is ", ShowJson(config.json()[key]),
                                ", expected an object"));
  }
  const double theta =
      scaling.NumberOr("rope_theta", config.NumberOr("rope_theta", defaults.theta));
  const double turning = head_dim * TurningShare(config, scaling, defaults);
  const int32_t dim = turning >= 1.0 && turning <= head_dim ? static_cast<int32_t>(turning) : 0;
  RopeSpec rope = PlainRope(dim, theta);
  if (theta <= 1.0 || dim == 0 || rope.dim > head_dim) {
    config.Fail(InvalidArgError(
        "config.json: rope of ", turning, " of ", head_dim, " dimensions with rope_theta ", theta,
        " is invalid, expected 1 or more dimensions and rope_theta over 1"));
    return {};
  }
  std::string kind = KindOf(scaling);
  if (kind == "su" || (kind == "yarn" && defaults.original_positions > 0)) kind = "longrope";
  const int32_t max_positions = config.SizeOr("max_position_embeddings", defaults.max_positions);
  // For yarn without a factor, it follows from the extension of the context.
  const double context = OriginalPositions(config, scaling, max_positions);
  const double extension = kind == "yarn" ? max_positions / context : 1.0;
  const double factor = scaling.NumberOr("factor", extension);
  if (factor < 1.0) {
    config.Fail(InvalidArgError("config.json: rope factor is ", factor, ", expected 1 or more"));
  } else if (dim % 2 != 0 && kind == "yarn") {  // the ramp of yarn has one step per pair
    config.Fail(UnsupportedError("config.json: rope type 'yarn' of ", dim,
                                 " dimensions is not supported (expected an even number)"));
  } else if (kind == "linear") {
    for (float& frequency : rope.inv_freq) frequency /= static_cast<float>(factor);
  } else if (kind == "llama3") {
    ApplyLlama3(scaling, context, rope.inv_freq);
  } else if (kind == "yarn") {
    ApplyYarn(scaling, theta, factor, context, rope);
  } else if (kind == "longrope") {
    ApplyLongRope(config, scaling, defaults, theta, max_positions, rope);
  } else if (kind == "dynamic") {
    // With one pair, the base has no effect.
    if (rope.dim > 2) rope.trained_positions = max_positions;
    rope.dynamic_factor = factor;
    rope.theta = theta;
  } else if (kind != "default") {
    config.Fail(UnsupportedError(
        "config.json: rope type '", kind,
        "' is not supported (known: default, dynamic, linear, llama3, longrope, yarn)"));
  }
  config.Fail(scaling.status());
  return rope;
}

}  // namespace nereid::llm
