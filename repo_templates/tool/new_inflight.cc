// `nereid-repo new inflight`: selects what one release of TensorRT-LLM had from the templates of
// all releases, and fills it in.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/file_content.h"
#include "repo_templates/tool/checkpoint.h"
#include "repo_templates/tool/new_repository.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kReleases[] = {"0.5", "0.9", "0.13", "0.18", "main"};
constexpr size_t kNumReleases = std::size(kReleases);
constexpr size_t kFirstWithBls = 1;

std::optional<size_t> FindRelease(std::string_view name) {
  const auto* const found = std::find(std::begin(kReleases), std::end(kReleases), name);
  if (found == std::end(kReleases)) return std::nullopt;
  return found - std::begin(kReleases);
}

// Whether a range of releases contains this one: "0.9", "0.9-", "-0.13" or "0.9-0.13". Empty if the
// text is no range.
std::optional<bool> Contains(std::string_view range, size_t release) {
  const size_t dash = range.find('-');
  const std::string_view from = range.substr(0, dash);
  const std::string_view to = dash == std::string_view::npos ? from : range.substr(dash + 1);
  const std::optional<size_t> first = from.empty() ? 0 : FindRelease(from);
  const std::optional<size_t> last = to.empty() ? kNumReleases - 1 : FindRelease(to);
  if (!first || !last) return std::nullopt;
  return *first <= release && release <= *last;
}

// The form that a line has in the release, without its mark; none if the release does not have it.
// A mark ends a line (`input { ... }  #@ 0.9-`) or begins one (`#@ -0.9: input { ... }`).
Result<std::optional<std::string>> SelectLine(std::string_view line, size_t release) {
  constexpr std::string_view kMark = "#@ ";
  const size_t mark = line.find(kMark);
  if (line.starts_with("# ") || mark == std::string_view::npos) {
    return std::optional<std::string>(line);
  }
  std::string_view range = line.substr(mark + kMark.size());
  const std::string_view before = line.substr(0, mark);
  std::string text(before.substr(0, before.find_last_not_of(' ') + 1));
  if (text.empty()) {
    const size_t colon = std::min(range.find(": "), range.size());
    text = StrCat(before, range.substr(std::min(colon + 2, range.size())));
    range = range.substr(0, colon);
  }
  const std::optional<bool> contains = Contains(range, release);
  if (!contains) return InvalidArgError("'", range, "' is no range of releases");
  return *contains ? std::optional<std::string>(text) : std::nullopt;
}

Result<std::string> SelectRelease(std::string_view text, size_t release, const std::string& name) {
  std::string selected;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    Result<std::optional<std::string>> line = SelectLine(text.substr(0, end), release);
    if (!line.ok()) return std::move(line).status().WithContext(StrCat(name, ":", number));
    if (*line) selected += StrCat(**line, "\n");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return selected;
}

TemplateValues ValuesFor(const NewInflightOptions& options, const CheckpointSummary& checkpoint,
                         size_t release) {
  return {
      {"triton_backend", options.backend == "auto" ? "tensorrtllm" : options.backend},
      {"triton_max_batch_size", StrCat(options.max_batch_size)},
      {"decoupled_mode", options.decoupled ? "true" : "false"},
      {"max_queue_delay_microseconds", "0"},
      {"max_queue_size", StrCat(options.max_queue_size)},
      {"engine_dir", checkpoint.directory},
      {"tokenizer_dir", checkpoint.directory},
      {"tokenizer_type", "auto"},
      // Releases 0.7 to 0.11 add no special tokens unless told to.
      {"add_special_tokens", kReleases[release] == "0.9" ? "false" : "true"},
      {"skip_special_tokens", "true"},
      {"exclude_input_in_output", "true"},
      {"preprocessing_instance_count", "1"},
      {"postprocessing_instance_count", "1"},
      {"bls_instance_count", "1"},
      {"logits_datatype", "TYPE_FP32"},
      {"encoder_input_features_data_type", "TYPE_FP16"},
      {"prompt_embedding_table_data_type", "TYPE_FP16"},
  };
}

// Gives every other placeholder the value that means "not set".
void UnsetOthers(std::string_view text, TemplateValues& values) {
  for (size_t at = text.find("${"); at != std::string_view::npos; at = text.find("${", at + 2)) {
    const size_t end = text.find('}', at);
    if (end == std::string_view::npos) return;  // FillTemplate reports it
    values.emplace(text.substr(at + 2, end - at - 2), "");
  }
}

Status WriteModel(const NewInflightOptions& options, size_t release, TemplateValues values,
                  const std::string& model) {
  const fs::path source = fs::path(options.templates) / model / "config.pbtxt";
  Result<std::string> all = ReadFile(source.string(), kMaxTextFileBytes);
  if (!all.ok()) return std::move(all).status().WithContext("template");
  NEREID_ASSIGN_OR_RETURN(const std::string text, SelectRelease(*all, release, source.string()));
  UnsetOthers(text, values);
  NEREID_ASSIGN_OR_RETURN(const std::string filled, FillTemplate(text, values, source.string()));
  const fs::path target = fs::path(options.out) / model;
  std::error_code error;
  fs::create_directories(target / "1", error);
  if (error) return InternalError("'", target.string(), "': ", error.message());
  std::ofstream config(target / "config.pbtxt", std::ios::binary);
  config << filled;
  config.close();
  if (config) return {};
  return InternalError("'", (target / "config.pbtxt").string(), "': cannot be written");
}

Status Validate(const NewInflightOptions& options) {
  if (!FindRelease(options.generation)) {
    return InvalidArgError("--generation: expected 0.5, 0.9, 0.13, 0.18 or main, got '",
                           options.generation, "'");
  }
  if (options.max_batch_size < 1) {
    return InvalidArgError("--max-batch-size: expected 1 or more, got ", options.max_batch_size);
  }
  std::error_code ignored;
  if (fs::exists(options.out, ignored) &&
      !(fs::is_directory(options.out, ignored) && fs::is_empty(options.out, ignored))) {
    return AlreadyExistsError("'", options.out, "': exists already and is not an empty folder");
  }
  return {};
}

}  // namespace

Status NewInflight(const NewInflightOptions& options) {
  NEREID_RETURN_IF_ERROR(Validate(options));
  NEREID_ASSIGN_OR_RETURN(const CheckpointSummary checkpoint,
                          InspectCheckpoint(options.checkpoint));
  const size_t release = *FindRelease(options.generation);
  std::vector<std::string> models = {"ensemble", "preprocessing", "tensorrt_llm", "postprocessing"};
  if (release >= kFirstWithBls) models.emplace_back("tensorrt_llm_bls");
  std::error_code ignored;
  const bool existed = fs::exists(options.out, ignored);
  for (const std::string& model : models) {
    Status status = WriteModel(options, release, ValuesFor(options, checkpoint, release), model);
    if (status.ok()) continue;
    for (const std::string& written : models) {
      fs::remove_all(fs::path(options.out) / written, ignored);
    }
    if (!existed) fs::remove(options.out, ignored);
    return status;
  }
  return {};
}

}  // namespace nereid::repo
