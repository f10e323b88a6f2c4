// The tokenizer backend: text to ids or ids to text, by the parameter `mode`. The instances of a
// model share its tokenizer, and so do models of the same files.
#include "nereid/backend.h"

#include <filesystem>
#include <memory>
#include <optional>

#include "backends/tokenizer/lib/shared_tokenizer.h"
#include "backends/tokenizer/lib/tokenizer.h"
#include "backends/tokenizer/postprocessing.h"
#include "backends/tokenizer/preprocessing.h"
#include "backends/tokenizer/tensor_specs.h"

namespace nereid::tokenizer {
namespace {

class TokenizerModel : public Model {
 public:
  static Status DescribeBackend(BackendAttributes& attributes) {
    NEREID_RETURN_IF_ERROR(
        attributes.AddPreferredInstanceGroup(TRITONSERVER_INSTANCEGROUPKIND_CPU, 1));
    return attributes.SetParallelInstanceLoading(true);
  }

  Status AutoComplete(ConfigDraft& draft) override {
    NEREID_ASSIGN_OR_RETURN(const Mode mode, ModeOf(config()));
    return CompleteTensors(mode, draft);
  }

  Status Initialize() override {
    NEREID_ASSIGN_OR_RETURN(const Mode mode, ModeOf(config()));
    NEREID_RETURN_IF_ERROR(CheckTensors(mode, config()));
    if (parameters().Find("tokenizer_type") != nullptr) {
      LogWarning(StrCat("model '", name(),
                        "': parameter 'tokenizer_type' has no meaning any more: "
                        "the tokenizer's own files say what it is"));
    }
    NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer,
                            LoadShared(TokenizerPath().string()));
    if (mode == Mode::kPreprocessing) {
      NEREID_ASSIGN_OR_RETURN(const bool add, parameters().Bool("add_special_tokens", true));
      NEREID_ASSIGN_OR_RETURN(const InvalidUtf8 invalid, ReadInvalidUtf8());
      NEREID_ASSIGN_OR_RETURN(const bool truncate, ReadTruncation());
      preprocessing_.emplace(
          tokenizer,
          EncodeOptions{.add_special_tokens = add, .invalid_utf8 = invalid, .truncate = truncate});
    } else {
      NEREID_ASSIGN_OR_RETURN(const bool skip, parameters().Bool("skip_special_tokens", true));
      postprocessing_.emplace(tokenizer, skip);
    }
    return {};
  }

  Status Execute(Batch& batch) override {
    for (Request& request : batch) {
      const Status status = preprocessing_ ? preprocessing_->Answer(request, config())
                                           : postprocessing_->Answer(request, config());
      if (!status.ok()) NEREID_RETURN_IF_ERROR(request.Fail(status));
    }
    return {};
  }

 private:
  // Parameter `invalid_utf8`: what becomes of texts that are not UTF-8.
  Result<InvalidUtf8> ReadInvalidUtf8() const {
    const std::string* value = parameters().Find("invalid_utf8");
    if (value == nullptr || *value == "replace") return InvalidUtf8::kReplace;
    if (*value == "refuse") return InvalidUtf8::kRefuse;
    return InvalidArgError("parameter 'invalid_utf8': expected replace or refuse, got '", *value,
                           "'");
  }

  // Parameter `truncation`: whether prompts are cut as tokenizer.json says. Not unless it is asked
  // for, as in transformers: what a file says is often left over from training. Its padding is not
  // for prompts: rows are padded to the longest, and their true lengths go beside them.
  Result<bool> ReadTruncation() const {
    const std::string* value = parameters().Find("truncation");
    if (value == nullptr || *value == "none") return false;
    if (*value == "file") return true;
    return InvalidArgError("parameter 'truncation': expected none or file, got '", *value, "'");
  }

  // `tokenizer_dir`, relative to the model's folder; the version's folder when unset.
  std::filesystem::path TokenizerPath() const {
    const std::string* path = parameters().Find("tokenizer_dir");
    return path == nullptr ? context().version_directory() : context().directory() / *path;
  }

  // One of them, by the mode.
  std::optional<Preprocessing> preprocessing_;
  std::optional<Postprocessing> postprocessing_;
};

}  // namespace
}  // namespace nereid::tokenizer

NEREID_BACKEND(nereid::tokenizer::TokenizerModel);
