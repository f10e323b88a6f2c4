// The choice of a form of the kernels by GPU, build and setting.
#include "backends/gpu_llm/kernel_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nereid::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<KernelForm> Choose(int major, int minor, const char* architectures,
                          const char* setting = nullptr) {
  return ChooseKernelForm({1, "a GPU", major, minor}, ParseArchitectures(architectures),
                          *ParseKernelFormSetting(setting));
}

TEST(KernelFormTest, ArchitecturesAreCodeAndPtx) {
  const BuiltKernels built = ParseArchitectures("80,89,90a,90-real,100-virtual,120");
  EXPECT_TRUE(built.has_native);
  EXPECT_THAT(built.portable_code, ElementsAre(80, 89, 90, 120));
  EXPECT_THAT(built.portable_ptx, ElementsAre(80, 100, 120));
  EXPECT_FALSE(ParseArchitectures("80").has_native);
}

TEST(KernelFormTest, HopperRunsItsOwnKernelsAndAllOthersThePortableOnes) {
  EXPECT_EQ(*Choose(9, 0, "80,90a"), KernelForm::kNative);
  EXPECT_EQ(*Choose(9, 0, "80,90a", "auto"), KernelForm::kNative);
  EXPECT_EQ(*Choose(9, 0, "80,90a", "portable"), KernelForm::kPortable);
  EXPECT_EQ(*Choose(9, 0, "80"), KernelForm::kPortable);
  for (const auto [major, minor] : {std::pair(8, 0), {8, 6}, {8, 9}, {10, 0}, {12, 0}})
    EXPECT_EQ(*Choose(major, minor, "80,90a"), KernelForm::kPortable) << major << "." << minor;
}

TEST(KernelFormTest, CodeRunsOnGpusOfItsMajorVersionAndPtxOnNewerOnes) {
  EXPECT_TRUE(Choose(8, 6, "80-real").ok());
  EXPECT_FALSE(Choose(8, 6, "89-real").ok());
  EXPECT_FALSE(Choose(9, 0, "80-real").ok());
  EXPECT_TRUE(Choose(12, 0, "80-virtual").ok());
  EXPECT_THAT(Choose(8, 9, "90a").status().message(),
              HasSubstr("GPU 1 (a GPU) has compute capability 8.9, for which this build has no "
                        "kernels; build with 89 or 80 in NEREID_GPU_ARCHITECTURES"));
}

TEST(KernelFormTest, OlderGpusAndWrongSettingsAreRefusedByName) {
  EXPECT_THAT(Choose(7, 5, "80,90a").status().message(),
              HasSubstr("GPU 1 (a GPU) has compute capability 7.5, gpu_llm needs 8.0 or newer"));
  EXPECT_THAT(Choose(8, 9, "80,90a", "native").status().message(), HasSubstr("needs 9.0"));
  EXPECT_THAT(Choose(9, 0, "80", "native").status().message(), HasSubstr("no native kernels"));
  EXPECT_THAT(ParseKernelFormSetting("fast").status().message(),
              HasSubstr("NEREID_GPU_KERNELS is 'fast', expected auto, native or portable"));
}

TEST(KernelFormTest, WhatThePortableKernelsLackIsNamed) {
  EXPECT_TRUE(CheckPortableSupport(1).ok());
  EXPECT_THAT(CheckPortableSupport(2).message(), HasSubstr("names 2 GPUs"));
}

TEST(KernelFormTest, TheLogSaysWhatTheDriverLoaded) {
  EXPECT_EQ(DescribeKernels(KernelForm::kNative, 90, 90), "native kernels, code for 9.0");
  EXPECT_EQ(DescribeKernels(KernelForm::kPortable, 80, 90),
            "portable kernels, PTX of 8.0 compiled by the driver for 9.0");
}

TEST(KernelFormTest, AnOldDriverIsNamedWithBothVersions) {
  EXPECT_TRUE(CheckDriverVersion(13000, 13000).ok());
  EXPECT_TRUE(CheckDriverVersion(13010, 13020).ok());
  EXPECT_THAT(CheckDriverVersion(12080, 13000).message(),
              HasSubstr("supports CUDA 12.8, but gpu_llm is built with CUDA 13.0"));
}

TEST(KernelFormTest, AMachineWithoutADriverIsToldSo) {
  EXPECT_EQ(CheckDriverVersion(0, 13000).message(), "no GPU: no driver of NVIDIA is installed");
}

}  // namespace
}  // namespace nereid::gpu
