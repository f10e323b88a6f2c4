#include "host/cli/serve_options.h"

#include <gtest/gtest.h>

namespace nereid::cli {
namespace {

std::string ErrorOf(const std::vector<std::string>& args) {
  const Result<ServeOptions> options = ParseServeOptions(args);
  return options.ok() ? "" : options.status().message();
}

TEST(ServeOptionsTest, TakeCheckpointsOwnOptionsAndFlagsOfTheServer) {
  const Result<ServeOptions> options = ParseServeOptions(
      {"/models/a", "--name", "first", "org/b", "--name=second", "--max-model-len=4096", "--engine",
       "cpu", "--port", "9000", "--host", "0.0.0.0", "--grpc-port=9001", "--log-verbose", "1"});
  ASSERT_TRUE(options.ok()) << options.status().message();
  EXPECT_EQ(options->checkpoints, (std::vector<std::string>{"/models/a", "org/b"}));
  EXPECT_EQ(options->names, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(options->max_model_len, 4096);
  EXPECT_EQ(options->engine, "cpu_reference");
  EXPECT_EQ(options->server.http.port, 9000);
  EXPECT_EQ(options->server.http.address, "0.0.0.0");
  EXPECT_EQ(options->server.grpc.port, 9001);
  EXPECT_EQ(options->server.log_verbose, 1u);
}

TEST(ServeOptionsTest, HaveTheDefaultsOfTheServer) {
  const Result<ServeOptions> options = ParseServeOptions({"demo"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->engine, "auto");
  EXPECT_EQ(options->server.http.port, 8000);
  EXPECT_EQ(options->server.http.address, "127.0.0.1");
  EXPECT_FALSE(options->server.log_info);
  EXPECT_TRUE(ParseServeOptions({"demo", "--log-info=true"})->server.log_info);
  EXPECT_TRUE(options->server.openai.console.value());
  EXPECT_FALSE(ParseServeOptions({"demo", "--host=0.0.0.0"})->server.openai.console.value());
  EXPECT_FALSE(ParseServeOptions({"demo", "--console=off"})->server.openai.console.value());
}

TEST(ServeOptionsTest, ABudgetIsASizeWithOrWithoutAUnit) {
  const auto budget = [](const std::string& text) {
    const Result<ServeOptions> options = ParseServeOptions({"demo", "--memory-budget", text});
    return options.ok() ? options->memory_budget : 0;
  };
  EXPECT_EQ(budget("24000000"), 24'000'000u);
  EXPECT_EQ(budget("16GB"), 16'000'000'000u);
  EXPECT_EQ(budget("1.5gib"), 1'610'612'736u);
  for (const char* text : {"", "GB", "0", "16 GB", "1.2.3GB", "-1", "1EB", "1e9", "nan"}) {
    EXPECT_EQ(budget(text), 0u) << text;
  }
  EXPECT_EQ(ErrorOf({"demo", "--memory-budget=some"}),
            "--memory-budget: expected a size such as 16GB or 1.5GiB, got 'some'");
  EXPECT_EQ(ParseServeOptions({"demo", "--idle-seconds=300"})->idle_s, 300);
  EXPECT_NE(ErrorOf({"demo", "--idle-seconds=-1"}).find("--idle-seconds: "), std::string::npos);
}

TEST(ServeOptionsTest, SuggestWhatAnUnknownOptionMeans) {
  EXPECT_EQ(ErrorOf({"demo", "--nme", "x"}), "unknown option '--nme' (did you mean '--name'?)");
  EXPECT_EQ(ErrorOf({"demo", "--metrics-prot=1"}),
            "unknown option '--metrics-prot' (did you mean '--metrics-port'?)");
}

TEST(ServeOptionsTest, RefuseByNameWhatIsNotSupportedYet) {
  EXPECT_EQ(ErrorOf({"demo", "--lora", "a"}), "--lora: expected NAME=FOLDER, got 'a'");
  EXPECT_EQ(ErrorOf({"demo", "--lora", "a=/b", "--lora=a=/c"}),
            "--lora: two adapters have the name 'a'");
  EXPECT_EQ(ErrorOf({"demo", "other", "--lora", "a=/b"}), "--lora: expected one checkpoint, got 2");
  EXPECT_EQ(ErrorOf({"demo", "--speculate=medusa=/head"}),
            "--speculate: 'medusa=/head': expected medusa=FOLDER, the folder of a checkpoint with "
            "config.json");
  EXPECT_EQ(ErrorOf({"demo", "--speculate=draft=/none"}),
            "--speculate: 'draft=/none': expected draft=FOLDER, the folder of a checkpoint with "
            "config.json");
  EXPECT_EQ(ParseServeOptions({"demo", "--model-repository", "/m"}).status().code(),
            StatusCode::kUnsupported);
}

TEST(ServeOptionsTest, CheckValues) {
  EXPECT_EQ(ErrorOf({"demo", "--speculate=eagle"}),
            "--speculate: expected off, auto, ngram, suffix, lookahead, lookahead=W,N,G, "
            "draft=FOLDER, eagle3=FOLDER or medusa=FOLDER, got 'eagle'");
  EXPECT_EQ(ParseServeOptions({"demo", "--speculate", "ngram"})->speculation, "ngram");
  EXPECT_EQ(ParseServeOptions({"demo"})->speculation, "off");
  for (const char* method : {"lookahead", "lookahead=7,5,7"}) {
    EXPECT_EQ(ParseServeOptions({"demo", "--speculate", method})->speculation, method);
  }
  EXPECT_EQ(ErrorOf({"demo", "--speculate", "lookahead=7,5"}),
            "--speculate: 'lookahead=7,5': expected lookahead, or "
            "lookahead=WINDOW,NGRAM,VERIFICATION, such as lookahead=4,3,4");
  for (const char* method : {"lookahead=", "lookahead=a,5,7", "lookahead=7,5,7,",
                             "lookahead=-7,5,7", "lookahead,7,5,7", "lookahead=7,5,7,7"}) {
    EXPECT_NE(ErrorOf({"demo", "--speculate", method}), "") << method;
  }
  EXPECT_EQ(ParseServeOptions({"demo", "--json-whitespace=0"})->json_whitespace, 0);
  EXPECT_EQ(ParseServeOptions({"demo"})->json_whitespace, -1);
  EXPECT_NE(ErrorOf({"demo", "--json-whitespace=-1"}), "");
  EXPECT_NE(ErrorOf({}).find("expected a checkpoint"), std::string::npos);
  EXPECT_EQ(ErrorOf({"demo", "--name"}), "--name: expected a value");
  EXPECT_EQ(ErrorOf({"a", "b", "--name", "x"}),
            "--name: expected one for each checkpoint, got 1 for 2");
  EXPECT_EQ(ErrorOf({"a", "b", "--chat-template", "x"}),
            "--chat-template: expected one checkpoint, got 2");
  EXPECT_EQ(ErrorOf({"a", "b", "--chat-parser", "glm"}),
            "--chat-parser: expected one checkpoint, got 2");
  EXPECT_EQ(ErrorOf({"a", "--chat-parser", "x\"y"}),
            "--chat-parser: expected auto, none or the name of a family, got 'x\"y'");
  EXPECT_NE(ErrorOf({"demo", "--engine", "tpu"}).find("--engine: "), std::string::npos);
  EXPECT_NE(ErrorOf({"demo", "--max-model-len", "0"}).find("--max-model-len: "), std::string::npos);
  EXPECT_NE(ErrorOf({"demo", "--port", "70000"}).find("--port: "), std::string::npos);
}

TEST(ServeOptionsTest, AreListedInTheHelpText) {
  const std::string text = ServeUsageText();
  for (const char* name : {"--name", "--chat-template", "--chat-parser", "--max-model-len",
                           "--engine", "--host", "--port", "--grpc-port", "--api-key-file"}) {
    EXPECT_NE(text.find(StrCat("  ", name, " <")), std::string::npos) << name;
  }
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 20);
}

}  // namespace
}  // namespace nereid::cli
