// Adapters of PEFT: which tensors belong to which matrix, scales, and what is refused by name.
#include "backends/llm_core/lora/peft_adapter.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/backends/llm_core/adapter_files.h"
#include "tests/backends/llm_core/small_llama.h"
#include "tests/support/test_folder.h"

namespace nereid::llm {
namespace {

using testing::AddModule;
using testing::FloatTensor;
using testing::FloatTensors;
using ::testing::HasSubstr;

constexpr char kQProj[] = "model.layers.0.self_attn.q_proj";
constexpr char kRank2[] = R"({"peft_type":"LORA","r":2,"lora_alpha":6})";

class PeftAdapterTest : public ::testing::Test {
 protected:
  PeftAdapterTest() {
    folder_.Write("config.json", testing::kConfig);
    const auto checkpoint = Checkpoint::OpenConfig(folder_.path());
    const auto model = ReadDecoderSpec(*checkpoint);
    targets_ = LoraTargets::Of(model->map, model->spec.num_layers());
    AddModule(kQProj, 4, 4, 2, 1, tensors_);
  }

  Result<std::shared_ptr<const LoraAdapter>> Read(const std::string& config = kRank2) {
    testing::WriteAdapter(folder_ / "style", config, tensors_);
    return ReadPeftAdapter("style", folder_ / "style", targets_, 8);
  }
  Status ErrorOf(const std::string& config = kRank2) {
    const auto adapter = Read(config);
    EXPECT_FALSE(adapter.ok());
    return adapter.ok() ? Status::Ok() : adapter.status();
  }

  TestFolder folder_;
  LoraTargets targets_;
  FloatTensors tensors_;
};

TEST_F(PeftAdapterTest, HasTheMatricesOfItsModules) {
  const auto adapter = Read();
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  EXPECT_EQ((*adapter)->name(), "style");
  EXPECT_EQ((*adapter)->num_deltas(), 1u);
  EXPECT_EQ((*adapter)->max_rank(), 2);
  EXPECT_EQ((*adapter)->Find(0, WeightKind::kK), nullptr);
  const LoraDelta* delta = (*adapter)->Find(0, WeightKind::kQ);
  ASSERT_NE(delta, nullptr);
  EXPECT_EQ(delta->scale, 3.0f);
  const FloatTensor& a = tensors_.at(std::string("base_model.model.") + kQProj + ".lora_A.weight");
  for (size_t i = 0; i < a.values.size(); ++i) {
    EXPECT_EQ(delta->a.At(static_cast<int64_t>(i)), a.values[i]);
  }
}

TEST_F(PeftAdapterTest, HasAnotherSerialWhenItIsReadAgain) {
  EXPECT_NE((*Read())->serial(), (*Read())->serial());
}

TEST_F(PeftAdapterTest, ScalesAsTheConfigurationSays) {
  AddModule("model.layers.0.mlp.up_proj", 6, 4, 4, 2, tensors_);
  const auto adapter = Read(R"({"r":2,"lora_alpha":6,"use_rslora":true,
    "rank_pattern":{"up_proj":4},"alpha_pattern":{".*mlp\\.up_proj":5.0,"q_pro":99}})");
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  EXPECT_FLOAT_EQ((*adapter)->Find(0, WeightKind::kQ)->scale, 6.0f / std::sqrt(2.0f));
  EXPECT_FLOAT_EQ((*adapter)->Find(0, WeightKind::kUp)->scale, 2.5f);
}

TEST_F(PeftAdapterTest, AdaptsSeparateProjectionsThroughAFusedModule) {
  tensors_.clear();
  AddModule("model.layers.0.self_attn.qkv_proj", 8, 4, 2, 3, tensors_);
  const auto adapter = Read();
  ASSERT_TRUE(adapter.ok()) << adapter.status().message();
  EXPECT_EQ((*adapter)->num_deltas(), 3u);
  const FloatTensor& b =
      tensors_.at("base_model.model.model.layers.0.self_attn.qkv_proj.lora_B.weight");
  const LoraDelta* v = (*adapter)->Find(0, WeightKind::kV);
  ASSERT_EQ(v->b.rows, 2);
  EXPECT_EQ(v->b.At(0), b.values[6 * 2]);
}

TEST_F(PeftAdapterTest, NamesTensorAndBothShapesOfAnotherBase) {
  tensors_.clear();
  AddModule(kQProj, 4, 16, 2, 1, tensors_);
  EXPECT_EQ(
      ErrorOf().message(),
      "LoRA adapter 'style' in '" + folder_.path().string() +
          "/style': tensor "
          "'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight' is [2, 16], expected "
          "[2, 4]: the rank, and the inputs of the model's module");
  tensors_.clear();
  AddModule(kQProj, 5, 4, 2, 1, tensors_);
  EXPECT_THAT(ErrorOf().message(), HasSubstr("lora_B.weight' is [5, 2], expected [4, 2]"));
  tensors_.clear();
  AddModule("model.layers.7.self_attn.q_proj", 4, 4, 2, 1, tensors_);
  EXPECT_THAT(ErrorOf().message(),
              HasSubstr("module 'model.layers.7.self_attn.q_proj' is not one of the model's"));
}

TEST_F(PeftAdapterTest, RefusesRanksAboveTheMaximum) {
  tensors_.clear();
  AddModule(kQProj, 4, 4, 9, 1, tensors_);
  EXPECT_THAT(ErrorOf(R"({"r":9})").message(),
              HasSubstr("lora_A.weight' [9, 4] has rank 9, the maximum is 8"));
  EXPECT_THAT(ErrorOf(R"({"r":2})").message(), HasSubstr("is [9, 4], expected [2, 4]"));
  EXPECT_THAT(ErrorOf(R"({"r":0})").message(), HasSubstr("is 0, expected a whole number"));
}

TEST_F(PeftAdapterTest, RefusesNumbersThatAreNotFinite) {
  FloatTensor& b = tensors_.at(std::string("base_model.model.") + kQProj + ".lora_B.weight");
  b.values[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(ErrorOf().message(), HasSubstr("lora_B.weight' [4, 2] has nan in row 1, column 1"));
}

TEST_F(PeftAdapterTest, RefusesOtherFeaturesByName) {
  for (const auto& [key, text] :
       std::vector<std::pair<std::string, std::string>>{{"use_dora", "true"},
                                                        {"modules_to_save", R"(["lm_head"])"},
                                                        {"bias", R"("all")"},
                                                        {"peft_type", R"("IA3")"},
                                                        {"lora_bias", "true"},
                                                        {"layer_replication", "[[0,1]]"}}) {
    const Status error = ErrorOf("{\"r\":2,\"" + key + "\":" + text + "}");
    EXPECT_EQ(error.code(), StatusCode::kUnsupported);
    EXPECT_THAT(error.message(), HasSubstr("'" + key + "' is " + (text[0] == '"' ? "'" : "")));
  }
  EXPECT_TRUE(Read(R"({"r":2,"use_dora":false,"modules_to_save":null,"target_parameters":[],
    "target_modules":"all-linear"})")
                  .ok());
  EXPECT_THAT(ErrorOf(R"({"r":2,"target_modules":3})").message(),
              HasSubstr("'target_modules' is 3"));
}

TEST_F(PeftAdapterTest, RefusesEmbeddingsAndExpertsByName) {
  AddModule("model.embed_tokens", 8, 4, 2, 1, tensors_);
  EXPECT_THAT(ErrorOf().message(),
              HasSubstr("module 'model.embed_tokens' is an embedding: not supported"));
  tensors_.clear();
  AddModule("model.layers.0.mlp.experts.3.up_proj", 6, 4, 2, 1, tensors_);
  EXPECT_THAT(ErrorOf().message(), HasSubstr("belongs to a mixture of experts: not supported"));
  tensors_.clear();
  tensors_["base_model.model.model.embed_tokens.lora_embedding_A"] = testing::MakeTensor({2, 8}, 1);
  EXPECT_THAT(ErrorOf().message(), HasSubstr("belongs to an embedding: not supported"));
}

TEST_F(PeftAdapterTest, RefusesIncompleteFiles) {
  tensors_.erase(std::string("base_model.model.") + kQProj + ".lora_B.weight");
  EXPECT_THAT(ErrorOf().message(), HasSubstr("lora_A.weight', but no lora_B"));
  tensors_.clear();
  EXPECT_THAT(ErrorOf().message(), HasSubstr("adapter_model.safetensors has no tensors"));
  EXPECT_THAT(ErrorOf("[").message(), HasSubstr("adapter_config.json"));
  EXPECT_EQ(ReadPeftAdapter("x", folder_ / "none", targets_, 8).status().code(),
            StatusCode::kNotFound);
  EXPECT_THAT(ErrorOf(R"({"r":2,"alpha_pattern":{"(":1}})").message(),
              HasSubstr("'alpha_pattern' has '(': 1, expected a pattern"));
}

}  // namespace
}  // namespace nereid::llm
