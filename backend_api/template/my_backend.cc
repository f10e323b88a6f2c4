// A backend to copy: OUTPUT = INPUT * factor. It shows where everything goes; replace the
// arithmetic by your model.
//
// The host opens libtriton_my_backend.so, makes one MyModel for each model whose config.pbtxt says
// `backend: "my_backend"`, and hands it batches of requests. Headers to read next: nereid/model.h
// (the functions below and their threads), nereid/batch.h, nereid/request.h.
#include <string>

#include "nereid/backend.h"

namespace {

class MyModel : public nereid::Model {
 public:
  // Optional. A user may leave the tensors out of config.pbtxt: then this is where they come from.
  // What the user did write stays, and must agree.
  nereid::Status AutoComplete(nereid::ConfigDraft& draft) override {
    NEREID_RETURN_IF_ERROR(draft.AddInput({"INPUT", nereid::DataType::kFp32, {-1}}));
    return draft.AddOutput({"OUTPUT", nereid::DataType::kFp32, {-1}});
  }

  // Once, when the model is loaded: read parameters and weights. Files of this version lie in
  // context().version_directory(). An error fails the load, and users read its text.
  nereid::Status Initialize() override {
    NEREID_ASSIGN_OR_RETURN(const double factor, parameters().Double("factor", 1));
    factor_ = static_cast<float>(factor);
    nereid::LogInfo(nereid::StrCat("model '", name(), "': factor is ", factor_));
    return {};
  }

  // For each batch: here all its requests are computed at once. With several instances in
  // config.pbtxt this runs on several threads, so it only reads the members; state that changes
  // belongs into a class of its own for each instance (nereid::ModelInstance).
  nereid::Status Execute(nereid::Batch& batch) override {
    // The inputs of all requests, joined along the batch dimension: shape is [rows, n].
    NEREID_ASSIGN_OR_RETURN(const auto input, batch.Gather<float>("INPUT"));

    // Room for the outputs of all requests, in the same order. When this function returns, every
    // request gets its rows, statistics are reported, and the requests are given back.
    NEREID_ASSIGN_OR_RETURN(const auto output, batch.Output<float>("OUTPUT", input.shape));

    for (size_t i = 0; i < output.size(); ++i) output[i] = factor_ * input.elements[i];

    // An error, or an exception, would answer every request of this batch. To fail one request
    // alone, go through them one by one:
    //   for (nereid::Request& request : batch) ... request.Fail(nereid::InvalidArgError("..."));
    // To answer later, or with a stream of responses, take them out with batch.Take() and use
    // Request::IntoSender() on any thread.
    return {};
  }

  // Optional. Once, after the last request.
  void Finalize() override {}

 private:
  float factor_ = 1;
};

}  // namespace

// This line makes the functions that the host looks for.
NEREID_BACKEND(MyModel);
