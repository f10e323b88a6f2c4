// Memory that a backend offers for the inputs of a request: which models have it offered, and who
// has it for how long.
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>

#include "tests/host/core/model/serving_fixture.h"

namespace nereid {
namespace {

std::string Config(const std::string& more, const std::string& type = "TYPE_FP32") {
  return StrCat(R"({"backend": "fake", "input": [{"name": "IN", "data_type": ")", type,
                R"(", "dims": [-1]}], "output": [{"name": "OUT", "data_type": ")", type,
                R"(", "dims": [-1]}])", more, "}");
}

class ModelOfferTest : public test::ServingFixture {
 protected:
  ModelOfferTest() {
    backend.offer_input = [this](uint64_t) { return memory_; };
  }

  char memory_[16];
};

TEST_F(ModelOfferTest, ALoanIsGivenBackOnceByItsLastOwner) {
  Start(Config(""));
  {
    std::optional<InputLoan> loan(model_->OfferInput(16));
    EXPECT_EQ(loan->base(), memory_);
    const InputLoan moved(std::move(*loan));
    EXPECT_EQ(moved.base(), memory_);
    loan.reset();
    EXPECT_EQ(backend.num_given_back, 0);
  }
  EXPECT_EQ(backend.num_given_back, 1);
  EXPECT_EQ(backend.Calls().back(), "offer 16");
}

TEST_F(ModelOfferTest, ALoanOutlivesItsModel) {
  Start(Config(""));
  const InputLoan loan = model_->OfferInput(16);
  End();
  EXPECT_EQ(num_destroyed, 1);
  EXPECT_EQ(backend.num_given_back, 0);
}

TEST_F(ModelOfferTest, ABackendMayReadItsConfigurationWhileItOffers) {
  std::string config;
  backend.offer_input = [&](uint64_t) {
    config = model_->ConfigJson();
    return memory_;
  };
  Start(Config(""));
  EXPECT_EQ(model_->OfferInput(16).base(), memory_);
  EXPECT_NE(config.find("\"IN\""), std::string::npos) << config;
}

TEST_F(ModelOfferTest, ABackendMayThrowWhereItsMemoryComesBack) {
  Start(Config(""));
  const auto give_back = [](void*) { throw std::runtime_error("boom"); };
  testing::internal::CaptureStderr();
  { const InputLoan loan(memory_, give_back, nullptr); }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("threw where memory was given back to it: boom"), std::string::npos) << log;
}

TEST_F(ModelOfferTest, ABackendMayOfferNothing) {
  backend.offer_input = [](uint64_t) { return nullptr; };
  Start(Config(""));
  EXPECT_EQ(model_->OfferInput(16).base(), nullptr);
  EXPECT_EQ(backend.num_given_back, 0);
}

TEST_F(ModelOfferTest, NothingIsOfferedWithoutTheEntryPoint) {
  backend.offer_input = nullptr;
  Start(Config(""));
  EXPECT_EQ(model_->OfferInput(16).base(), nullptr);
}

TEST_F(ModelOfferTest, NothingIsOfferedByAModelThatTakesNoRequests) {
  Start(Config(""));
  model_->StopIntake();
  EXPECT_EQ(model_->OfferInput(16).base(), nullptr);
}

// Its requests may be executed again, with the inputs as they were.
TEST_F(ModelOfferTest, NothingIsOfferedForSequences) {
  Start(Config(R"(, "max_batch_size": 1, "sequence_batching": {})"));
  EXPECT_EQ(model_->OfferInput(16).base(), nullptr);
}

// The lengths of texts are checked before the model can write there, and must stay what they were.
TEST_F(ModelOfferTest, NothingIsOfferedForTexts) {
  Start(Config("", "TYPE_STRING"));
  EXPECT_EQ(model_->OfferInput(16).base(), nullptr);
}

// The one that will execute the request is not known.
TEST_F(ModelOfferTest, NothingIsOfferedBySeveralInstances) {
  Start(Config(R"(, "instance_group": [{"kind": "KIND_CPU", "count": 2}])"));
  EXPECT_EQ(model_->OfferInput(16).base(), nullptr);
}

}  // namespace
}  // namespace nereid
