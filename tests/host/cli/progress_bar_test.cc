#include "host/cli/progress_bar.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace nereid::cli {
namespace {

TEST(ProgressBarTest, ShowsSizesAndNumbers) {
  EXPECT_EQ(ShowBytes(0), "0 bytes");
  EXPECT_EQ(ShowBytes(24'100'000), "24.1 MB");
  EXPECT_EQ(ShowBytes(16'381'000'000), "16.4 GB");
  EXPECT_EQ(ShowCount(8'190'735'360), "8.19 B");
  EXPECT_EQ(ShowCount(999), "999");
  EXPECT_EQ(ShowGrouped(0), "0");
  EXPECT_EQ(ShowGrouped(999), "999");
  EXPECT_EQ(ShowGrouped(65'536), "65,536");
  EXPECT_EQ(ShowGrouped(1'234'567), "1,234,567");
}

TEST(ProgressBarTest, PrintsAFewPlainLinesWhereThereIsNoTerminal) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const out = std::tmpfile();
  {
    ProgressBar progress(out);
    for (uint64_t done = 0; done <= 1000; ++done) progress.Update("file", done * 1000, 1'000'000);
    progress.Note("note");
    progress.Update("other", 5, 0);
  }
  std::rewind(out);
  std::string lines;
  while (getline(&text, &size, out) > 0) lines += text;
  std::free(text);
  std::fclose(out);
  EXPECT_EQ(lines,
            "file  0 bytes of 1.00 MB\n"
            "file  250 KB of 1.00 MB\n"
            "file  500 KB of 1.00 MB\n"
            "file  750 KB of 1.00 MB\n"
            "file  1.00 MB of 1.00 MB\n"
            "note\n"
            "other  5 bytes\n");
}

}  // namespace
}  // namespace nereid::cli
