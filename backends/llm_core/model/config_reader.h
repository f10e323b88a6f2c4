// Typed access to config.json for the architecture files: a missing or mistyped key becomes an
// error that names it, collected so that an architecture reads in straight lines. [load thread]
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
  // `file` stands in messages.
  explicit ConfigReader(nlohmann::json json, std::string_view file = "config.json")
      : file_(file), json_(std::move(json)) {}

  // A required positive integer of at most 2^24. After a fault: 1, and status() tells.
  int32_t Size(std::string_view key);
  int32_t SizeOr(std::string_view key, int32_t fallback);  // null counts as absent
  // A required size of at most `limit`: what there is one of in memory for each.
  int32_t Count(std::string_view key, int32_t limit);
  double NumberOr(std::string_view key, double fallback);
  // What a norm adds to a variance: 0 to 1.
  float EpsilonOr(std::string_view key, double fallback);
  bool BoolOr(std::string_view key, bool fallback);
  std::string TextOr(std::string_view key, std::string_view fallback);
  // A number or a list of numbers, as Hugging Face writes eos_token_id; empty when absent.
  std::vector<int32_t> Ids(std::string_view key);
  std::vector<double> Numbers(std::string_view key);
  std::vector<std::string> Texts(std::string_view key);
  // The object under `key`, or an empty reader.
  ConfigReader Object(std::string_view key) const;
  bool Has(std::string_view key) const;  // and not null

  void Fail(Status status);
  const Status& status() const { return status_; }
  const nlohmann::json& json() const { return json_; }

 private:
  const nlohmann::json* Find(std::string_view key) const;

  std::string_view file_;
  nlohmann::json json_;
  Status status_;  // the first fault
};

}  // namespace nereid::llm
