// A template for a backend: OUTPUT = INPUT * factor. Copy it and replace the arithmetic by your
// model.
//
// The host loads libtriton_my_backend.so, creates one MyModel for each model whose config.pbtxt has
// `backend: "my_backend"`, and passes it batches of requests. Read next: nereid/model.h (the
// functions below and their threads), nereid/batch.h, nereid/request.h.
#include <string>

#include "nereid/backend.h"

namespace {

class MyModel : public nereid::Model {
 public:
  // Optional. Adds the tensors if config.pbtxt does not declare them. What config.pbtxt declares is
  // kept, and an error is returned if it differs.
  nereid::Status AutoComplete(nereid::ConfigDraft& draft) override {
    NEREID_RETURN_IF_ERROR(draft.AddInput({"INPUT", nereid::DataType::kFp32, {-1}}));
    return draft.AddOutput({"OUTPUT", nereid::DataType::kFp32, {-1}});
  }

  // Called once, when the model is loaded: read parameters and weights here. The files of this
  // version are in context().version_directory(). An error fails the load, and its text is shown to
  // users.
  nereid::Status Initialize() override {
    NEREID_ASSIGN_OR_RETURN(const double factor, parameters().Double("factor", 1));
    factor_ = static_cast<float>(factor);
    nereid::LogInfo(nereid::StrCat("model '", name(), "': factor is ", factor_));
    return {};
  }

  // Called for each batch; it computes all requests at once. If config.pbtxt has several instances,
  // several threads call it, so it may only read the members. State that changes belongs into a
  // class for each instance (nereid::ModelInstance).
  nereid::Status Execute(nereid::Batch& batch) override {
    // The inputs of all requests, joined along the batch dimension: the shape is [batch size, n].
    NEREID_ASSIGN_OR_RETURN(const auto input, batch.Gather<float>("INPUT"));

    // Memory for the outputs of all requests, in the same order. When this function returns, the
    // SDK sends every request its part, reports statistics and releases the requests.
    NEREID_ASSIGN_OR_RETURN(const auto output, batch.Output<float>("OUTPUT", input.shape));

    for (size_t i = 0; i < output.size(); ++i) output[i] = factor_ * input.elements[i];

    // An error or an exception would be sent to every request of this batch. To fail a single
    // request, loop over them:
    //   for (nereid::Request& request : batch) ... request.Fail(nereid::InvalidArgError("..."));
    // To answer later, or with several responses, take the requests out with batch.Take() and use
    // Request::IntoSender() on any thread.
    return {};
  }

  // Optional. Called once, after the last request.
  void Finalize() override {}

 private:
  float factor_ = 1;
};

}  // namespace

// Defines the functions that the host looks up.
NEREID_BACKEND(MyModel);
