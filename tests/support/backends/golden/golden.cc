// A backend that passes for the Python backend: by the name of the model it behaves as that model's
// model.py in the repository whose answers of Triton were recorded, error texts and all. Models of
// other names copy INPUT0 to OUTPUT0. Built as libtriton_python.so.
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "nereid/backend.h"
#include "tests/support/backends/golden/answers.h"
#include "tests/support/backends/golden/python_text.h"

namespace nereid::golden {
namespace {

class GoldenModel : public Model {
 public:
  Status AutoComplete(ConfigDraft& draft) override {
    if (name() != "autoc") return {};
    NEREID_RETURN_IF_ERROR(draft.AddInput({"INPUT0", DataType::kFp32, {4}}));
    NEREID_RETURN_IF_ERROR(draft.AddOutput({"OUTPUT0", DataType::kFp32, {4}}));
    draft.SetMaxBatchSize(4);
    draft.SetDynamicBatching();
    return {};
  }

  Status Initialize() override {
    if (!std::filesystem::exists(context().version_directory() / "model.py")) {
      return InternalError("ModuleNotFoundError: No module named 'model'");
    }
    if (name() != "initfail") return {};
    return InternalError(
        Traceback(context(), StrCat("ValueError: no weights: ", name()), 3, "initialize"));
  }
};

class GoldenInstance : public ModelInstance<GoldenModel> {
 public:
  Status Initialize() override {
    const std::map<std::string, std::function<Status(Request&)>> answers = {
        {"add_one", [](Request& request) { return Linear(request, 1, 1); }},
        {"double", [](Request& request) { return Linear(request, 2, 0); }},
        {"dtypes", CopyEachType},
        {"fail", FailAsTold},
        {"params", DescribeRequest},
        {"repeat", StreamNumbers},
        {"textgen", StreamText},
        {"seq", [this](Request& request) { return AddToSum(request, sums_); }},
        {"seq_oldest", [this](Request& request) { return AddToSum(request, sums_); }},
        {"slow", SleepThenCopy}};
    const auto found = answers.find(model().name());
    answer_ = found != answers.end() ? found->second : [](Request& request) {
      return CopyInput(request, "INPUT0", "OUTPUT0");
    };
    return {};
  }

  // An error is an exception of the Python model: it answers every request of the batch.
  Status Execute(Batch& batch) override {
    for (Request& request : batch) NEREID_RETURN_IF_ERROR(answer_(request));
    return {};
  }

 private:
  std::function<Status(Request&)> answer_;
  Sums sums_;
};

}  // namespace
}  // namespace nereid::golden

NEREID_BACKEND(nereid::golden::GoldenModel, nereid::golden::GoldenInstance);
