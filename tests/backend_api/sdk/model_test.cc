// Tests the life cycle of models and instances, and the attributes of requests.
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/backend_api/sdk/backend_fixture.h"

namespace nereid {
namespace {

class ModelTest : public BackendTest {};

TEST_F(ModelTest, KnowsItselfWhenItIsInitialised) {
  std::string seen;
  ScriptedModel::on_initialize = [&](ScriptedModel& model) -> Status {
    seen = StrCat(model.name(), " ", model.context().version(), " ",
                  model.context().version_directory().string(), " ",
                  model.context().backend_directory().string());
    return {};
  };
  Load(/*max_batch_size=*/0);
  EXPECT_EQ(seen, "model 1 /models/model/1 /backends/fake");
}

TEST_F(ModelTest, CompletesItsConfigurationBeforeItIsInitialised) {
  ScriptedModel::on_complete = [](ConfigDraft& draft) {
    return draft.AddInput({"IN", DataType::kFp32, {-1}});
  };
  size_t num_inputs = 0;
  ScriptedModel::on_initialize = [&](ScriptedModel& model) -> Status {
    num_inputs = model.config().inputs().size();
    return {};
  };
  Load(/*max_batch_size=*/0);
  EXPECT_EQ(num_inputs, 1u);
  EXPECT_EQ(model_.num_set_config, 1);
}

TEST_F(ModelTest, LeavesAConfigurationAloneThatNeedsNothing) {
  ScriptedModel::on_complete = [](ConfigDraft&) { return Status(); };
  Load(/*max_batch_size=*/0);
  EXPECT_EQ(model_.num_set_config, 0);
}

TEST_F(ModelTest, DoesNotCompleteWhereTheHostForbidsIt) {
  model_.may_complete = false;
  ScriptedModel::on_complete = [](ConfigDraft&) -> Status { return InternalError("called"); };
  Load(/*max_batch_size=*/0);
}

TEST_F(ModelTest, AFailedLoadTellsWhyAndIsNotFinalised) {
  model_.config = "{}";
  ScriptedModel::on_initialize = [](ScriptedModel&) -> Status {
    return NotFoundError("no weights");
  };
  EXPECT_EQ(fake::Take(Entry::InitializeModel(model_.handle())),
            (fake::Error{TRITONSERVER_ERROR_NOT_FOUND, "no weights"}));
  EXPECT_EQ(fake::Take(Entry::FinalizeModel(model_.handle())), std::nullopt)
      << "hosts call it all the same";
  EXPECT_EQ(ScriptedModel::num_finalized, 0);
}

TEST_F(ModelTest, AnExceptionInALoadBecomesItsError) {
  model_.config = "{}";
  ScriptedModel::on_initialize = [](ScriptedModel&) -> Status {
    throw std::runtime_error("bad file");
  };
  EXPECT_EQ(fake::Take(Entry::InitializeModel(model_.handle())),
            (fake::Error{TRITONSERVER_ERROR_INTERNAL, "model: bad file"}));
  ScriptedModel::on_initialize = [](ScriptedModel&) -> Status { throw std::bad_alloc(); };
  EXPECT_EQ(fake::Take(Entry::InitializeModel(model_.handle())),
            (fake::Error{TRITONSERVER_ERROR_UNAVAILABLE, "model: out of memory"}));
}

TEST_F(ModelTest, IsFinalisedOnce) {
  Load(/*max_batch_size=*/0);
  Unload();
  EXPECT_EQ(ScriptedModel::num_finalized, 1);
}

TEST_F(ModelTest, RefusesAHostOfAnEarlierMinorOrAnotherMajorVersion) {
  EXPECT_EQ(fake::Take(Entry::Initialize(nullptr)), std::nullopt);
  fake::SetApiVersion(1, 18);
  EXPECT_EQ(fake::Take(Entry::Initialize(nullptr))->message,
            "expected backend API 1.19 or a later minor, got 1.18");
  fake::SetApiVersion(2, 19);
  EXPECT_EQ(fake::Take(Entry::Initialize(nullptr))->code, TRITONSERVER_ERROR_UNSUPPORTED);
  fake::SetApiVersion(1, 20);
  EXPECT_EQ(fake::Take(Entry::Initialize(nullptr)), std::nullopt);
  fake::SetApiVersion(TRITONBACKEND_API_VERSION_MAJOR, TRITONBACKEND_API_VERSION_MINOR);
}

class DescribedModel : public ScriptedModel {
 public:
  static Status DescribeBackend(BackendAttributes& attributes) {
    return attributes.SetParallelInstanceLoading(true);
  }
};

TEST_F(ModelTest, DescribesItsBackendIfTheModelDefinesIt) {
  bool is_parallel = false;
  auto* attribute = reinterpret_cast<TRITONBACKEND_BackendAttribute*>(&is_parallel);
  EXPECT_EQ(fake::Take(Entry::Describe(attribute)), std::nullopt);
  EXPECT_FALSE(is_parallel);
  EXPECT_EQ(fake::Take(EntryPoints<DescribedModel>::Describe(attribute)), std::nullopt);
  EXPECT_TRUE(is_parallel);
}

class CountingInstance : public ModelInstance<ScriptedModel> {
 public:
  inline static std::vector<std::string> calls;
  Status Initialize() override {
    calls.push_back("initialize " + name() + " of " + model().name());
    return {};
  }
  Status Execute(Batch& batch) override {
    calls.push_back("execute");
    return batch.SetStrings("TEXT", {1}, {"x"});
  }
  void Finalize() override { calls.push_back("finalize"); }
};

TEST_F(ModelTest, AnInstanceClassTakesExecuteOver) {
  using InstanceEntry = EntryPoints<ScriptedModel, CountingInstance>;
  model_.config = "{}";
  ASSERT_EQ(fake::Take(InstanceEntry::InitializeModel(model_.handle())), std::nullopt);
  ASSERT_EQ(fake::Take(InstanceEntry::InitializeInstance(instance_.handle())), std::nullopt);
  fake::Request& request = AddRequest({1});
  TRITONBACKEND_Request* handle = request.handle();
  EXPECT_EQ(fake::Take(InstanceEntry::Execute(instance_.handle(), &handle, 1)), std::nullopt);
  EXPECT_EQ(fake::Take(InstanceEntry::Ready(instance_.handle())), std::nullopt);
  EXPECT_EQ(fake::Take(InstanceEntry::FinalizeInstance(instance_.handle())), std::nullopt);
  EXPECT_EQ(fake::Take(InstanceEntry::FinalizeModel(model_.handle())), std::nullopt);
  EXPECT_EQ(CountingInstance::calls,
            (Events{"initialize model_0 of model", "execute", "finalize"}));
  EXPECT_EQ(request.responses.at(0).outputs.count("TEXT"), 1u);
}

TEST_F(ModelTest, ReadsWhatARequestSays) {
  Load(/*max_batch_size=*/0);
  fake::Request& request = AddRequest({1});
  request.id = "r1";
  request.correlation_id = 7;
  request.flags = TRITONSERVER_REQUEST_FLAG_SEQUENCE_START;
  request.timeout_us = 99;
  request.parameters = {{"s", TRITONSERVER_PARAMETER_STRING, "text"},
                        {"n", TRITONSERVER_PARAMETER_INT, "", 5}};
  request.inputs.push_back(
      {"max_tokens", TRITONSERVER_TYPE_INT32, {1}, {fake::BytesOf<int32_t>({3})}});
  Execute([](Batch& batch) -> Status {
    Request& r = batch[0];
    EXPECT_EQ(*r.Id(), "r1");
    EXPECT_EQ(*r.CorrelationId(), 7u);
    EXPECT_FALSE(r.CorrelationIdString().ok());
    EXPECT_EQ(*r.Flags(), 1u);
    EXPECT_EQ(*r.TimeoutUs(), 99u);
    EXPECT_EQ(r.FindParameter("s").value()->AsString(), "text");
    EXPECT_EQ(r.FindParameter("n").value()->AsInt(), 5);
    EXPECT_FALSE(r.FindParameter("x").value().has_value());
    EXPECT_EQ(*r.ScalarOr<int32_t>("max_tokens", 1), 3);
    EXPECT_EQ(*r.ScalarOr<int32_t>("absent", 1), 1);
    EXPECT_EQ(*r.StringOr("absent", "otherwise"), "otherwise");
    EXPECT_EQ(r.Input("absent").status().code(), StatusCode::kInvalidArg);
    EXPECT_EQ(r.Inputs()->size(), 2u);
    EXPECT_EQ(r.RequestedOutputs()->size(), 2u);
    NEREID_ASSIGN_OR_RETURN(Response * response, r.GetOrCreateResponse());
    NEREID_RETURN_IF_ERROR(response->SetParameter("finish", "stop"));
    return response->SetParameter("n", int64_t{1});
  });
  ASSERT_FALSE(request.responses.at(0).error.has_value());
  EXPECT_EQ(request.responses[0].parameters.size(), 2u);
}

}  // namespace
}  // namespace nereid
