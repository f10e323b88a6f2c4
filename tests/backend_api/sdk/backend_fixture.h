// A model, an instance and their entry points on the fake core, for tests of Execute.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nereid/backend.h"
#include "tests/support/fake_core/fake_core.h"

namespace nereid::fake {
inline bool operator==(const Error& a, const Error& b) {
  return a.code == b.code && a.message == b.message;
}
inline std::ostream& operator<<(std::ostream& out, const Error& error) {
  return out << error.code << " " << error.message;
}
}  // namespace nereid::fake

namespace nereid {

// A model whose functions the test supplies.
class ScriptedModel : public Model {
 public:
  inline static std::function<Status(ScriptedModel&, Batch&)> on_execute;
  inline static std::function<Status(ScriptedModel&)> on_initialize;
  inline static std::function<Status(ConfigDraft&)> on_complete;
  inline static int num_finalized = 0;

  Status AutoComplete(ConfigDraft& draft) override {
    return on_complete ? on_complete(draft) : Status();
  }
  Status Initialize() override { return on_initialize ? on_initialize(*this) : Status(); }
  Status Execute(Batch& batch) override { return on_execute(*this, batch); }
  void Finalize() override { ++num_finalized; }
};

class BackendTest : public testing::Test {
 protected:
  using Entry = EntryPoints<ScriptedModel>;

  BackendTest() {
    ScriptedModel::on_execute = nullptr;
    ScriptedModel::on_initialize = nullptr;
    ScriptedModel::on_complete = nullptr;
    ScriptedModel::num_finalized = 0;
    live_before_ = fake::NumLiveHandles();
  }
  ~BackendTest() override {
    if (is_loaded_) Unload();
    EXPECT_EQ(fake::NumLiveHandles(), live_before_) << "handles were not given back";
  }

  void Load(int max_batch_size, bool is_decoupled = false) {
    model_.config =
        StrCat(R"({"name":"model","max_batch_size":)", max_batch_size,
               R"(,"model_transaction_policy":{"decoupled":)", is_decoupled ? "true" : "false",
               R"(},"output":[{"name":"OUT","data_type":"TYPE_FP32","dims":[-1]},)",
               R"({"name":"TEXT","data_type":"TYPE_STRING","dims":[-1]}]})");
    ASSERT_EQ(fake::Take(Entry::InitializeModel(model_.handle())), std::nullopt);
    ASSERT_EQ(fake::Take(Entry::InitializeInstance(instance_.handle())), std::nullopt);
    is_loaded_ = true;
  }
  void Unload() {
    is_loaded_ = false;
    EXPECT_EQ(fake::Take(Entry::FinalizeInstance(instance_.handle())), std::nullopt);
    EXPECT_EQ(fake::Take(Entry::FinalizeModel(model_.handle())), std::nullopt);
  }

  // A request with FP32 input IN of shape [batch_size, values / batch_size] that requests OUT and
  // TEXT.
  fake::Request& AddRequest(std::vector<float> values, int64_t batch_size = 1) {
    auto request = std::make_unique<fake::Request>();
    const auto num_values = static_cast<int64_t>(values.size());
    request->inputs = {{"IN",
                        TRITONSERVER_TYPE_FP32,
                        {batch_size, num_values / batch_size},
                        {fake::BytesOf(std::move(values))}}};
    request->requested_outputs = {"OUT", "TEXT"};
    requests_.push_back(std::move(request));
    return *requests_.back();
  }

  void Execute(std::function<Status(Batch&)> body) {
    ScriptedModel::on_execute = [body = std::move(body)](ScriptedModel&, Batch& batch) {
      return body(batch);
    };
    std::vector<TRITONBACKEND_Request*> handles;
    for (const auto& request : requests_) handles.push_back(request->handle());
    EXPECT_EQ(fake::Take(Entry::Execute(instance_.handle(), handles.data(),
                                        static_cast<uint32_t>(handles.size()))),
              std::nullopt);
  }

  fake::Model model_;
  fake::Instance instance_{&model_};
  std::vector<std::unique_ptr<fake::Request>> requests_;

 private:
  bool is_loaded_ = false;
  int live_before_ = 0;
};

using Events = std::vector<std::string>;

}  // namespace nereid
