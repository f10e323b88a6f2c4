// Tests formats, levels, files and the callback of the log.
#include "host/core/observe/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <new>
#include <regex>
#include <thread>
#include <vector>

namespace nereid::core::log {
namespace {

class LogTest : public testing::Test {
 protected:
  LogTest() : path_(std::filesystem::temp_directory_path() / StrCat("nereid-log-", getpid())) {
    std::filesystem::remove(path_);
    EXPECT_TRUE(SetFile(path_.string()).ok());
  }
  ~LogTest() override {
    SetCallback(nullptr);
    EXPECT_TRUE(SetFile("").ok());
    for (const Level level : {Level::kInfo, Level::kWarn, Level::kError}) SetEnabled(level, true);
    SetVerboseDepth(0);
    SetFormat(Format::kDefault);
    std::filesystem::remove(path_);
  }

  std::string Text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const std::filesystem::path path_;
};

TEST_F(LogTest, DefaultFormatHasLevelDateMicrosecondsPidFileAndLine) {
  Write(Level::kWarn, "/a/b/file.cc", 12, "text");
  EXPECT_TRUE(std::regex_match(Text(), std::regex(StrCat(R"(W\d{4} \d\d:\d\d:\d\d\.\d{6} )",
                                                         getpid(), R"( file\.cc:12\] "text"\n)"))))
      << Text();
}

TEST_F(LogTest, Iso8601FormatHasDateAndLetter) {
  SetFormat(Format::kIso8601);
  Write(Level::kError, "file.cc", 3, "text");
  EXPECT_TRUE(std::regex_match(Text(), std::regex(StrCat(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ E )",
                                                         getpid(), R"( file\.cc:3\] "text"\n)"))))
      << Text();
}

TEST_F(LogTest, JsonIsOneObjectPerLineForAnyBytes) {
  SetFormat(kJsonFormat);
  Write(Level::kError, "/a/file.cc", 3, "a \"text\"\nof \xc3\xa9 and \xff\xed\xa0\x80");
  EXPECT_TRUE(std::regex_match(
      Text(), std::regex(StrCat(
                  R"(\{"time":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z","level":"ERROR","pid":)",
                  getpid(), R"(,"file":"file\.cc","line":3,"message":"a \\"text\\"\\nof )",
                  "\xc3\xa9 and \uFFFD\uFFFD\uFFFD\uFFFD\"\\}\n"))))
      << Text();
}

TEST_F(LogTest, JsonWritesATableInOneLine) {
  SetFormat(kJsonFormat);
  WriteRaw(Level::kInfo, "f", 1, "a\nb");
  EXPECT_NE(Text().find(R"("level":"INFO")"), std::string::npos) << Text();
  EXPECT_NE(Text().find(R"("message":"a\nb"})"), std::string::npos) << Text();
}

TEST_F(LogTest, EscapesAMessageIntoOneLine) {
  Write(Level::kInfo, "f", 1, "a\n\"b\"\\\t\x01\b\f\x1b[0m");
  EXPECT_NE(Text().find(R"("a\n\"b\"\\\t\u0001\b\f\u001B[0m")"), std::string::npos) << Text();
}

TEST_F(LogTest, ADisabledLevelWritesNothing) {
  SetEnabled(Level::kInfo, false);
  NEREID_LOG_INFO("not this");
  NEREID_LOG_VERBOSE(1, "nor this");
  EXPECT_EQ(Text(), "");
  SetVerboseDepth(1);
  NEREID_LOG_VERBOSE(1, "but this");
  NEREID_LOG_VERBOSE(2, "too deep");
  EXPECT_NE(Text().find("but this"), std::string::npos);
  EXPECT_EQ(Text().find("too deep"), std::string::npos);
}

TEST_F(LogTest, AFileThatCannotBeOpenedDoesNotRedirectTheLog) {
  const Status status = SetFile("/nonexistent/folder/log");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArg);
  EXPECT_NE(status.message().find("/nonexistent/folder/log"), std::string::npos);
  NEREID_LOG_INFO("still here");
  EXPECT_NE(Text().find("still here"), std::string::npos);
  EXPECT_EQ(GetSettings().file, path_.string());
}

TEST_F(LogTest, TheCallbackGetsEachWrittenMessage) {
  std::vector<std::string> messages;
  SetCallback([&](Level, std::string_view file, int line, std::string_view message) {
    messages.push_back(StrCat(file, ":", line, " ", message));
  });
  Write(Level::kInfo, "x/f.cc", 7, "one\ntwo");
  SetCallback(nullptr);
  Write(Level::kInfo, "f.cc", 8, "three");
  EXPECT_EQ(messages, std::vector<std::string>{"f.cc:7 one\ntwo"});
}

TEST_F(LogTest, ALineForWhichMemoryFailsIsLostAndTheCallerGoesOn) {
  SetCallback([](Level, std::string_view, int, std::string_view) { throw std::bad_alloc(); });
  EXPECT_NO_THROW(NEREID_LOG_ERROR("lost"));
  SetCallback(nullptr);
  NEREID_LOG_ERROR("kept");
  EXPECT_NE(Text().find("kept"), std::string::npos);
}

TEST_F(LogTest, LinesOfSeveralThreadsDoNotMix) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) NEREID_LOG_INFO(std::string(100, 'x'));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::ifstream file(path_);
  std::string line;
  int num_lines = 0;
  while (std::getline(file, line)) {
    ++num_lines;
    EXPECT_EQ(line.substr(line.size() - 102), "\"" + std::string(100, 'x') + "\"");
  }
  EXPECT_EQ(num_lines, 400);
}

}  // namespace
}  // namespace nereid::core::log
