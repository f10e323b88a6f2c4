#include "host/cli/load_progress.h"

#include <gtest/gtest.h>

namespace nereid::cli {
namespace {

constexpr char kSmaps[] =
    "7f00-7f10 r--p 00000000 00:1f 12    /models/a b/model-1.safetensors\n"
    "Size:               1024 kB\n"
    "Rss:                 512 kB\n"
    "VmFlags: rd mr mw me sd\n"
    "7f10-7f20 r-xp 00000000 00:1f 13    /lib/libc.so.6\n"
    "Rss:                  64 kB\n"
    "7f20-7f30 rw-p 00000000 00:00 0 \n"
    "Rss:                  32 kB\n"
    "7f30-7f40 r--p 00000000 00:1f 14    /models/model-2.safetensors\n"
    "Rss:                   8 kB\n";

TEST(LoadProgressTest, CountsTheResidentBytesOfTheWeightFiles) {
  EXPECT_EQ(ResidentBytes(kSmaps, {"/models/a b/model-1.safetensors"}), 512u * 1024);
  EXPECT_EQ(
      ResidentBytes(kSmaps, {"/models/a b/model-1.safetensors", "/models/model-2.safetensors"}),
      520u * 1024);
  EXPECT_EQ(ResidentBytes(kSmaps, {"/models/absent"}), 0u);
  EXPECT_EQ(ResidentBytes("", {"/models/absent"}), 0u);
}

TEST(LoadProgressTest, StopsBeforeItsFirstReadingToo) {
  std::FILE* const out = std::tmpfile();
  {
    ProgressBar progress(out);
    LoadProgress load({"/models/absent"}, 100, progress);
    load.Stop();
  }
  EXPECT_LE(std::ftell(out), 60);
  std::fclose(out);
}

}  // namespace
}  // namespace nereid::cli
