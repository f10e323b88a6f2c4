// A template for a backend that streams: it answers TEXT with one response for each word. Copy it
// and replace the words by what your model generates.
//
// The host loads libtriton_my_backend.so, creates one MyModel for each model whose config.pbtxt has
// `backend: "my_backend"`, and one MyInstance for each of its instances. Read next: nereid/model.h
// (the functions below and their threads), nereid/response_sender.h. backend_api/template is the
// simpler example, without streams and instances.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "nereid/backend.h"

namespace {

// What all instances share. They read it on several threads, so it does not change after
// Initialize.
class MyModel : public nereid::Model {
 public:
  nereid::Status AutoComplete(nereid::ConfigDraft& draft) override {
    NEREID_RETURN_IF_ERROR(draft.AddInput({"TEXT", nereid::DataType::kBytes, {1}}));
    NEREID_RETURN_IF_ERROR(draft.AddOutput({"WORD", nereid::DataType::kBytes, {1}}));
    NEREID_RETURN_IF_ERROR(draft.AddOutput({"POSITION", nereid::DataType::kInt32, {1}}));
    draft.SetDecoupled(true);
    return {};
  }

  nereid::Status Initialize() override {
    // An option of the backend, for all of its models: --backend-config=my_backend,max-words=100
    NEREID_ASSIGN_OR_RETURN(max_words_, context().backend_options().Int("max-words", 1000));
    if (max_words_ >= 1) return {};
    return nereid::InvalidArgError("backend option 'max-words': expected 1 or more, got ",
                                   max_words_);
  }

  int64_t max_words() const { return max_words_; }

 private:
  int64_t max_words_ = 0;
};

// Splits a text at its spaces.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  // An empty text after the last word.
  std::string_view Next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    const std::string_view word = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(word.size());
    return word;
  }

 private:
  std::string_view rest_;
};

// What an instance does not share: here the memory that it uses again for each word. One thread at
// a time uses it.
class MyInstance : public nereid::ModelInstance<MyModel> {
 public:
  nereid::Status Execute(nereid::Batch& batch) override {
    for (nereid::Request& request : batch) {
      const nereid::Status status = Stream(request);
      // An error ends this request alone; its client gets it after the words that were sent.
      if (!status.ok()) NEREID_RETURN_IF_ERROR(request.Fail(status));
    }
    return {};
  }

 private:
  nereid::Status Stream(nereid::Request& request) {
    // The view points into the request's memory, which lives until the last response.
    NEREID_ASSIGN_OR_RETURN(nereid::TensorView input, request.Input("TEXT"));
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, input.String());
    nereid::ResponseSender& sender = request.sender();
    sender.MarkInputsRead();
    Words words(text);
    int32_t position = 0;
    for (std::string_view word = words.Next(); !word.empty(); word = words.Next()) {
      if (position == model().max_words()) {
        return nereid::InvalidArgError("input 'TEXT': expected at most ", model().max_words(),
                                       " words");
      }
      // The client has gone or does not want the rest.
      if (request.IsCancelled()) return nereid::CancelledError("the client cancelled the request");
      word_ = word;
      NEREID_RETURN_IF_ERROR(SendWord(sender, position++));
    }
    // Ends the stream. The last word could have done that, too: Send(..., /*is_final=*/true).
    return sender.Finish();
  }

  nereid::Status SendWord(nereid::ResponseSender& sender, int32_t position) {
    NEREID_ASSIGN_OR_RETURN(nereid::Response response, sender.NewResponse());
    NEREID_RETURN_IF_ERROR(response.SetStrings("WORD", {1}, std::span(&word_, 1)));
    NEREID_RETURN_IF_ERROR(response.SetOutput<int32_t>("POSITION", {1}, std::span(&position, 1)));
    // Waits while the client reads slowly. A thread that serves many requests asks HasRoom instead.
    return sender.Send(std::move(response));
  }

  std::string word_;
};

}  // namespace

// Defines the functions that the host looks up.
NEREID_BACKEND(MyModel, MyInstance);
