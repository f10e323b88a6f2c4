// The tokenizer backend: encodes text or decodes ids, depending on the model parameter `mode`. All
// instances of a model, and all models that load the same files, share one tokenizer.
#include "nereid/backend.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/tokenizer/answer_parsing.h"
#include "backends/tokenizer/lib/chat/chat_template.h"
#include "backends/tokenizer/lib/shared_tokenizer.h"
#include "backends/tokenizer/lib/tokenizer.h"
#include "backends/tokenizer/lib/vocabulary_fit.h"
#include "backends/tokenizer/parsed_outputs.h"
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
    NEREID_ASSIGN_OR_RETURN(const BackendMode mode, ReadMode(config()));
    return CompleteTensors(mode, draft);
  }

  Status Initialize() override {
    NEREID_ASSIGN_OR_RETURN(const BackendMode mode, ReadMode(config()));
    NEREID_RETURN_IF_ERROR(CheckTensors(mode, config()));
    if (parameters().Find("tokenizer_type") != nullptr) {
      LogWarning(StrCat("model '", name(),
                        "': parameter 'tokenizer_type' is ignored: the tokenizer's "
                        "files determine its type"));
    }
    NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer,
                            LoadShared(TokenizerPath().string()));
    NEREID_RETURN_IF_ERROR(CheckVocabulary(*tokenizer));
    if (mode == BackendMode::kPreprocessing) {
      NEREID_ASSIGN_OR_RETURN(const bool add,
                              parameters().Bool("add_special_tokens", AddsSpecialTokens()));
      NEREID_ASSIGN_OR_RETURN(const InvalidUtf8 invalid, ReadInvalidUtf8());
      NEREID_ASSIGN_OR_RETURN(const bool truncate, ReadTruncation());
      NEREID_ASSIGN_OR_RETURN(const bool trusts, parameters().Bool("trust_special_tokens", false));
      NEREID_ASSIGN_OR_RETURN(const auto chat_template, LoadChatTemplate());
      NEREID_ASSIGN_OR_RETURN(const ParserFamily* family, ChooseFamily(chat_template.get()));
      preprocessing_.emplace(
          tokenizer, chat_template, family,
          EncodeOptions{.add_special_tokens = add, .invalid_utf8 = invalid, .truncate = truncate},
          trusts);
    } else {
      NEREID_ASSIGN_OR_RETURN(const bool skip, parameters().Bool("skip_special_tokens", true));
      NEREID_ASSIGN_OR_RETURN(
          const bool cleans_up,
          parameters().Bool("clean_up_tokenization_spaces", tokenizer->cleans_up_spaces()));
      NEREID_ASSIGN_OR_RETURN(auto parsed_outputs, MakeParsedOutputs(tokenizer));
      postprocessing_.emplace(
          tokenizer, DecodeOptions{.skip_special_tokens = skip, .cleans_up_spaces = cleans_up},
          std::move(parsed_outputs));
    }
    return {};
  }

  Status Execute(Batch& batch) override {
    for (Request& request : batch) {
      const Status status = preprocessing_ ? preprocessing_->Process(request, config())
                                           : postprocessing_->Process(request, config());
      if (!status.ok()) NEREID_RETURN_IF_ERROR(request.Fail(status));
    }
    return {};
  }

 private:
  // The default of `add_special_tokens`. The templates of TensorRT-LLM 0.7 to 0.11, which declare
  // QUERY with dims [ -1 ], mean false where the parameter is there and not filled in; all other
  // releases mean true.
  bool AddsSpecialTokens() const {
    if (config().json()["parameters"]["add_special_tokens"].is_null()) return true;
    const auto is_old = [](const TensorSpec& input) {
      return input.name == "QUERY" && input.dims == std::vector<int64_t>{-1};
    };
    return std::none_of(config().inputs().begin(), config().inputs().end(), is_old);
  }

  // Parameter `invalid_utf8`: how to handle texts that are not valid UTF-8.
  Result<InvalidUtf8> ReadInvalidUtf8() const {
    const std::string* value = parameters().Find("invalid_utf8");
    if (value == nullptr || *value == "replace") return InvalidUtf8::kReplace;
    if (*value == "refuse") return InvalidUtf8::kRefuse;
    return InvalidArgError("parameter 'invalid_utf8': expected replace or refuse, got '", *value,
                           "'");
  }

  // Parameter `truncation`: whether prompts are truncated as tokenizer.json says. The default is
  // no, as in transformers, because the setting in the file is often left over from training. The
  // padding of tokenizer.json is not applied to prompts: rows are padded to the longest one and a
  // separate output carries their lengths.
  Result<bool> ReadTruncation() const {
    const std::string* value = parameters().Find("truncation");
    if (value == nullptr || *value == "none") return false;
    if (*value == "file") return true;
    return InvalidArgError("parameter 'truncation': expected none or file, got '", *value, "'");
  }

  // Parameter `chat_parser`. Null if answers are not parsed. `chat_template` may be null.
  Result<const ParserFamily*> ChooseFamily(const ChatTemplate* chat_template) const {
    return ChooseParserFamily(parameters().String("chat_parser"), chat_template == nullptr
                                                                      ? std::string_view()
                                                                      : chat_template->source());
  }

  // Null if answers are not parsed.
  Result<std::unique_ptr<ParsedOutputs>> MakeParsedOutputs(
      const std::shared_ptr<const Tokenizer>& tokenizer) const {
    const auto chat_template = ChatTemplate::Load(TokenizerFolder());
    NEREID_ASSIGN_OR_RETURN(const ParserFamily* family,
                            ChooseFamily(chat_template.ok() ? chat_template->get() : nullptr));
    if (family == nullptr) return std::unique_ptr<ParsedOutputs>();
    LogInfo(
        StrCat("model '", name(), "': parser of answers '", family->name, "': ", family->summary));
    AnswerStreams::Limits limits;
    // With one instance, the responses of a stream come in order.
    int64_t num_instances = 0;
    for (const auto& group : config().json()["instance_group"].elements()) {
      num_instances += group["count"].AsInt(1);
    }
    if (num_instances > 1) limits.max_wait = std::chrono::seconds(1);
    return std::make_unique<ParsedOutputs>(tokenizer, *family, limits);
  }

  // The chat template beside the tokenizer's files; null if there is none. A template that cannot
  // be parsed makes conversations fail, not the model, which also takes plain prompts.
  Result<std::shared_ptr<const ChatTemplate>> LoadChatTemplate() const {
    auto chat_template = ChatTemplate::Load(TokenizerFolder());
    if (!chat_template.ok()) {
      LogWarning(StrCat("model '", name(),
                        "': conversations are not supported: ", chat_template.status().message()));
      return std::shared_ptr<const ChatTemplate>();
    }
    return chat_template;
  }

  std::string TokenizerFolder() const {
    const std::filesystem::path path = TokenizerPath();
    std::error_code error;
    const bool is_folder = std::filesystem::is_directory(path, error);
    return (is_folder ? path : path.parent_path()).string();
  }

  // `tokenizer_dir`, relative to the model's folder. The default is the version's folder.
  std::filesystem::path TokenizerPath() const {
    const std::string* path = parameters().Find("tokenizer_dir");
    return path == nullptr ? context().version_directory() : context().directory() / *path;
  }

  // Refuses a tokenizer that does not fit the checkpoint in the same folder: requests with the
  // tokens in question would fail one by one. Without a checkpoint's config.json there is nothing
  // to compare; the engine does so for its own tokenizer.
  Status CheckVocabulary(const Tokenizer& tokenizer) const {
    const std::filesystem::path path = TokenizerPath();
    std::error_code ignored;
    const std::filesystem::path folder =
        std::filesystem::is_directory(path, ignored) ? path : path.parent_path();
    const std::string config = (folder / "config.json").string();
    const VocabularyFit fit = CompareVocabulary(tokenizer, VocabularySizeOf(config));
    if (fit.fault.empty()) return {};
    const std::string text = StrCat("'", config, "': ", fit.fault);
    if (fit.is_refused) return InvalidArgError(text);
    LogWarning(StrCat("model '", name(), "': ", text));
    return {};
  }

  // The mode decides which of the two is set.
  std::optional<Preprocessing> preprocessing_;
  std::optional<Postprocessing> postprocessing_;
};

}  // namespace
}  // namespace nereid::tokenizer

NEREID_BACKEND(nereid::tokenizer::TokenizerModel);
