#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "host/cli/generate.h"

namespace nereid::cli {
namespace {

TEST(GenerateOptionsTest, ReadsTheRequestAndTheCheckpoint) {
  const auto options = ParseGenerateOptions({"demo", "--prompt", "Once", "--max-tokens=7",
                                             "--temperature", "0.5", "--seed=9", "--engine=cpu"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->serve.checkpoints, std::vector<std::string>{"demo"});
  EXPECT_EQ(options->serve.engine, "cpu_reference");
  EXPECT_EQ(options->serve.server.http.port, 0);
  EXPECT_FALSE(options->serve.server.allow_grpc);
  const auto body = nlohmann::json::parse(GenerateBody(*options, "demo"));
  EXPECT_EQ(body, nlohmann::json::parse(R"({"model": "demo", "prompt": "Once", "max_tokens": 7,
                                            "stream": true, "temperature": 0.5, "seed": 9})"));
}

TEST(GenerateOptionsTest, LeavesOutWhatIsNotGiven) {
  const auto options = ParseGenerateOptions({"demo", "--prompt=x"});
  ASSERT_TRUE(options.ok());
  const auto body = nlohmann::json::parse(GenerateBody(*options, "demo"));
  EXPECT_FALSE(body.contains("temperature"));
  EXPECT_FALSE(body.contains("seed"));
  EXPECT_EQ(body["max_tokens"], 128);
}

TEST(GenerateOptionsTest, RefusesWhatIsWrong) {
  const auto message = [](const std::vector<std::string>& args) {
    return ParseGenerateOptions(args).status().message();
  };
  EXPECT_EQ(message({"demo"}), "--prompt is missing");
  EXPECT_EQ(message({"demo", "other", "--prompt=x"}), "expected one checkpoint, got 'other'");
  EXPECT_EQ(message({"demo", "--promt=x"}), "unknown option '--promt' (did you mean '--prompt'?)");
  EXPECT_EQ(message({"demo", "--prompt"}), "--prompt: expected a value");
  EXPECT_NE(message({"demo", "--prompt=x", "--max-tokens=0"}).find("--max-tokens"),
            std::string::npos);
  EXPECT_NE(message({"--prompt=x"}).find("expected a checkpoint"), std::string::npos);
}

TEST(ParseTextDeltaTest, ReadsChunksAndErrors) {
  EXPECT_EQ(ParseTextDelta(R"({"choices": [{"text": " upon"}]})").value(), " upon");
  EXPECT_EQ(ParseTextDelta(R"({"choices": []})").value(), "");
  EXPECT_EQ(ParseTextDelta(R"({"error": {"message": "stopped"}})").status().message(), "stopped");
  EXPECT_FALSE(ParseTextDelta("{}").ok());
  EXPECT_FALSE(ParseTextDelta("nonsense").ok());
}

}  // namespace
}  // namespace nereid::cli
