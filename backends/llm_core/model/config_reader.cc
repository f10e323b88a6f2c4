// Reads keys of config.json.
#include "backends/llm_core/model/config_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json_reader.h"

namespace nereid::llm {

using Json = nlohmann::json;

namespace {
constexpr size_t kMaxStringBytes = 4096;  // strings become part of messages
constexpr int32_t kMaxSize = 1 << 24;     // the product of two sizes fits in 64 bits
}  // namespace

const Json* ConfigReader::Find(std::string_view key) const {
  if (!json_.is_object()) return nullptr;
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::Has(std::string_view key) const {
  return Find(key) != nullptr;
}

void ConfigReader::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

int32_t ConfigReader::Size(std::string_view key) {
  if (!Has(key)) {
    Fail(InvalidArgError(file_, ": '", key, "' is missing"));
    return 1;
  }
  return SizeOr(key, 1);
}

int32_t ConfigReader::SizeOr(std::string_view key, int32_t fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number_unsigned() || *value > kMaxSize || *value == 0) {
    Fail(InvalidArgError(file_, ": '", key, "' is ", ShowJson(*value), ", expected 1 to ",
                         kMaxSize));
    return 1;
  }
  return value->get<int32_t>();
}

int32_t ConfigReader::Count(std::string_view key, int32_t limit) {
  const int32_t count = Size(key);
  if (count <= limit) return count;
  Fail(InvalidArgError(file_, ": '", key, "' is ", count, ", limit ", limit));
  return 1;
}

double ConfigReader::NumberOr(std::string_view key, double fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    Fail(InvalidArgError(file_, ": '", key, "' is ", ShowJson(*value), ", expected a number"));
    return fallback;
  }
  return value->get<double>();
}

float ConfigReader::EpsilonOr(std::string_view key, double fallback) {
  const double epsilon = NumberOr(key, fallback);
  if (epsilon < 0.0 || epsilon > 1.0) {
    Fail(InvalidArgError(file_, ": '", key, "' is ", epsilon, ", expected 0 to 1"));
  }
  return static_cast<float>(std::clamp(epsilon, 0.0, 1.0));
}

bool ConfigReader::BoolOr(std::string_view key, bool fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    Fail(InvalidArgError(file_, ": '", key, "' is ", ShowJson(*value), ", expected a bool"));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::StringOr(std::string_view key, std::string_view fallback) {
  const Json* value = Find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    Fail(InvalidArgError(file_, ": '", key, "' is ", ShowJson(*value), ", expected a text"));
    return std::string(fallback);
  }
  if (const size_t size = value->get_ref<const std::string&>().size(); size > kMaxStringBytes) {
    Fail(InvalidArgError(file_, ": '", key, "' has ", size, " bytes, limit ", kMaxStringBytes));
    return std::string(fallback);
  }
  return value->get<std::string>();
}

std::vector<int32_t> ConfigReader::Ids(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return {};
  const Json list = value->is_array() ? *value : Json::array({*value});
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id > std::numeric_limits<int32_t>::max() || id < -1) {
      Fail(InvalidArgError(file_, ": '", key, "' holds ", ShowJson(id), ", expected a token id"));
      return {};
    }
    if (id >= 0) ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::vector<double> ConfigReader::Numbers(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_array()) return {};
  std::vector<double> numbers;
  for (const Json& number : *value) {
    if (!number.is_number()) {
      Fail(InvalidArgError(file_, ": '", key, "' holds ", ShowJson(number), ", expected a number"));
      return {};
    }
    numbers.push_back(number.get<double>());
  }
  return numbers;
}

std::vector<std::string> ConfigReader::Strings(std::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr) return {};
  std::vector<std::string> texts;
  for (const Json& text : value->is_array() ? *value : Json::array({*value})) {
    if (!text.is_string()) {
      Fail(InvalidArgError(file_, ": '", key, "' holds ", ShowJson(text), ", expected a text"));
      return {};
    }
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

ConfigReader ConfigReader::Object(std::string_view key) const {
  const Json* value = Find(key);
  return ConfigReader(value != nullptr && value->is_object() ? *value : Json::object(), file_);
}

}  // namespace nereid::llm
