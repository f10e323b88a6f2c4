// Typed access to config.json for the architecture files. A missing or mistyped key sets an error
// that names it. Only the first error is kept, so that callers need no error checks between reads.
// [load thread]
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::llm {

class ConfigReader {
 public:
  // `file` is the file name for messages.
  explicit ConfigReader(nlohmann::json json, std::string_view file = "config.json")
      : file_(file), json_(std::move(json)) {}

  // A required integer from 1 to 2^24. Returns 1 after an error; see status().
  int32_t Size(std::string_view key);
  int32_t SizeOr(std::string_view key, int32_t fallback);  // null means absent
  // A required size of at most `limit`, for counts of objects that are allocated one by one.
  int32_t Count(std::string_view key, int32_t limit);
  double NumberOr(std::string_view key, double fallback);
  // The epsilon of a norm: 0 to 1.
  float EpsilonOr(std::string_view key, double fallback);
  bool BoolOr(std::string_view key, bool fallback);
  std::string StringOr(std::string_view key, std::string_view fallback);
  // A number or a list of numbers, as in eos_token_id. Empty if absent.
  std::vector<int32_t> Ids(std::string_view key);
  std::vector<double> Numbers(std::string_view key);
  std::vector<std::string> Strings(std::string_view key);
  // A reader of the object under `key`; an empty one if absent.
  ConfigReader Object(std::string_view key) const;
  bool Has(std::string_view key) const;  // false for null

  void Fail(Status status);
  const Status& status() const { return status_; }
  const nlohmann::json& json() const { return json_; }

 private:
  const nlohmann::json* Find(std::string_view key) const;

  std::string_view file_;
  nlohmann::json json_;
  Status status_;  // the first error
};

}  // namespace nereid::llm
