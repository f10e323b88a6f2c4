// nereid-repo: creates model repositories and checks them. Exit status: 0 success, 1 the check
// found errors, 2 the command could not be carried out.
#include <algorithm>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/closest_name.h"
#include "base/command_line.h"
#include "host/core/memory/gpus.h"
#include "repo_templates/tool/check.h"
#include "repo_templates/tool/llm_tables.h"
#include "repo_templates/tool/new_backend.h"
#include "repo_templates/tool/new_key.h"
#include "repo_templates/tool/new_repository.h"

namespace {

using nereid::CommandLine;
using nereid::InvalidArgError;
using nereid::Result;
using nereid::Status;
using nereid::StrCat;
using namespace nereid::repo;
namespace fs = std::filesystem;

constexpr const char* kUsage = R"(usage:
  nereid-repo new llm --checkpoint DIR --out REPO
      creates a repository (ensemble, preprocessing, tensorrt_llm, postprocessing) that serves the Hugging Face
      checkpoint in DIR
      --backend auto|gpu_llm|cpu_reference   the engine; auto (default): gpu_llm if there is a GPU
      --decoupled                            allow streaming
      --chat-parser auto|none|FAMILY         how reasoning and tool calls are found in answers; auto (default): by
                                             the chat template
      --tokenizer DIR                        a tokenizer to use in place of the checkpoint's
      --max-beam-width N                     the greatest beam_width of a request (default 1)
      --max-batch-size N                     maximum number of sequences in one request (default 64)
      --max-queue-size N                     maximum number of requests that wait for the engine (default 1024; 0: no limit)
      --copy | --link                        put the checkpoint's files into the repository, as copies or links;
                                             by default the repository refers to DIR
      --templates DIR                        template files to use instead of the installed ones
  nereid-repo new inflight --generation 0.5|0.9|0.13|0.18|main --checkpoint DIR --out REPO
      creates a repository with the models and tensors of that release of TensorRT-LLM: those of `new llm` and
      tensorrt_llm_bls; takes --backend, --decoupled, --max-batch-size, --max-queue-size and --templates, too
  nereid-repo new qaic-style --model_name NAME [--hf_model_name DIR] [--out REPO]
      creates the same with a model NAME in front, in the style of Qualcomm's LLM samples: input `prompt`, output
      `generation`; sample clients are in share/repo_templates/qaic/clients
      --hf_model_name DIR|ORGANIZATION/MODEL the checkpoint, or its name in the cache of `nereid pull`; by default that of
                                             the samples starcoder_15b, starcoder_decoupled, mistral_7b, mistral_decoupled
      --out REPO                             default: model_repo
      --model_type causal|kv_cache           accepted; the engine keeps a KV cache either way
      --python_backend_dir DIR               accepted; the model runs in the backend `python`
      --decoupled                            one response for each token
      --compile_config_path FILE             ctx_len, prefill_seq_len, batch_size, full_batch_size, mxint8_kv_cache are used
      --checkpoint_precision                 run a configuration with mxfp6_matmul with the weights as the checkpoint has them
  nereid-repo new backend NAME [--out DIR]
      copies the sample backend to DIR (default: the folder NAME), renamed to NAME
      --stream                               the sample that answers a text with a stream of responses, with instances
                                             and an option of the backend
  nereid-repo new key --name NAME --right RIGHT
      prints an API key for a client, and its entry in the file that the server reads with --api-key-file
      --right RIGHT                          infer, metadata, statistics, metrics, model-control, log, trace, shared-memory,
                                             or admin for the last four; may be given several times
      --model PATTERN                        the models for which the rights hold, like 'llama-*'; may be given several
                                             times; by default all
      --expires TIME                         like 2027-01-31T00:00:00Z; by default never
  nereid-repo check REPO
      prints file, line and key of every error, and how many there are
      --backend-directory DIR                the directory of backends (default: those installed with this program)
      --json                                 findings as JSON
  nereid-repo tables
      prints what becomes of each tensor and parameter of the `tensorrt_llm` model, as Markdown
  nereid-repo --help
)";

// <prefix>/bin/nereid-repo -> <prefix>
fs::path InstallPrefix() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : self.parent_path().parent_path();
}

std::string IfDirectory(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored) ? path.string() : std::string();
}

int Fail(const Status& status) {
  std::fprintf(stderr, "nereid-repo: %s\n", status.message().c_str());
  return 2;
}

CheckOptions CheckOptionsFrom(const CommandLine& line) {
  CheckOptions options;
  const auto given = line.values.find("--backend-directory");
  if (given != line.values.end()) options.backend_directories = given->second;
  const std::string own = IfDirectory(InstallPrefix() / "backends");
  if (!own.empty()) options.backend_directories.push_back(own);
  options.gpus = nereid::core::GpuDevices();
  options.runs_interpreters = true;
  return options;
}

Result<NewLlmOptions> NewLlmOptionsFrom(const CommandLine& line) {
  NewLlmOptions options;
  options.checkpoint = line.ValueOr("--checkpoint", "");
  options.out = line.ValueOr("--out", "");
  if (options.checkpoint.empty()) return InvalidArgError("new llm: --checkpoint is missing");
  if (options.out.empty()) return InvalidArgError("new llm: --out is missing");
  if (line.words.size() > 2) return InvalidArgError("unexpected argument '", line.words[2], "'");
  options.backend = line.ValueOr("--backend", options.backend);
  options.decoupled = line.Has("--decoupled");
  options.chat_parser = line.ValueOr("--chat-parser", options.chat_parser);
  options.tokenizer = line.ValueOr("--tokenizer", "");
  NEREID_ASSIGN_OR_RETURN(const int max_beam_width, line.IntOr("--max-beam-width", 1, 1, INT_MAX));
  if (max_beam_width > 1) options.engine_parameters["max_beam_width"] = StrCat(max_beam_width);
  NEREID_ASSIGN_OR_RETURN(options.max_batch_size,
                          line.IntOr("--max-batch-size", options.max_batch_size));
  NEREID_ASSIGN_OR_RETURN(options.max_queue_size,
                          line.IntOr("--max-queue-size", options.max_queue_size));
  if (line.Has("--copy") && line.Has("--link")) {
    return InvalidArgError("new llm: --copy and --link exclude each other");
  }
  if (line.Has("--copy")) options.files = NewLlmOptions::Files::kCopy;
  if (line.Has("--link")) options.files = NewLlmOptions::Files::kLink;
  options.templates =
      line.ValueOr("--templates", (InstallPrefix() / "share/repo_templates/llm").string());
  return options;
}

// The server that is installed beside this program, as a shell takes it.
std::string ServerCommand() {
  const fs::path server = InstallPrefix() / "bin" / "nereid";
  std::error_code ignored;
  return fs::exists(server, ignored) ? server.string() : "nereid";
}

// Checks the created repository in the same way as any other: it must load without changes.
int ReportNew(const std::string& out) {
  const Findings findings = CheckRepository(out, CheckOptions());
  std::fputs(ToText(findings).c_str(), stderr);
  if (HasError(findings)) return 1;
  const std::string path = fs::absolute(out).lexically_normal().string();
  std::printf("%s\nnext: %s --model-repository=%s\n", path.c_str(), ServerCommand().c_str(),
              path.c_str());
  return 0;
}

int RunNewLlm(const CommandLine& line) {
  Result<NewLlmOptions> options = NewLlmOptionsFrom(line);
  if (!options.ok()) return Fail(options.status());
  if (Status status = NewLlm(*options); !status.ok()) return Fail(status);
  return ReportNew(options->out);
}

Result<NewInflightOptions> NewInflightOptionsFrom(const CommandLine& line) {
  NewInflightOptions options;
  options.generation = line.ValueOr("--generation", options.generation);
  options.checkpoint = line.ValueOr("--checkpoint", "");
  options.out = line.ValueOr("--out", "");
  if (options.checkpoint.empty()) return InvalidArgError("new inflight: --checkpoint is missing");
  if (options.out.empty()) return InvalidArgError("new inflight: --out is missing");
  if (line.words.size() > 2) return InvalidArgError("unexpected argument '", line.words[2], "'");
  options.backend = line.ValueOr("--backend", options.backend);
  options.decoupled = line.Has("--decoupled");
  NEREID_ASSIGN_OR_RETURN(options.max_batch_size,
                          line.IntOr("--max-batch-size", options.max_batch_size));
  NEREID_ASSIGN_OR_RETURN(options.max_queue_size,
                          line.IntOr("--max-queue-size", options.max_queue_size));
  options.templates = line.ValueOr(
      "--templates", (InstallPrefix() / "share/repo_templates/inflight_batcher_llm").string());
  return options;
}

int RunNewInflight(const CommandLine& line) {
  const Result<NewInflightOptions> options = NewInflightOptionsFrom(line);
  if (!options.ok()) return Fail(options.status());
  if (Status status = NewInflight(*options); !status.ok()) return Fail(status);
  return ReportNew(options->out);
}

Result<NewQaicOptions> NewQaicOptionsFrom(const CommandLine& line) {
  NewQaicOptions options;
  options.model_name = line.ValueOr("--model_name", "");
  options.checkpoint = line.ValueOr("--hf_model_name", "");
  options.out = line.ValueOr("--out", "model_repo");
  if (options.model_name.empty()) return InvalidArgError("new qaic-style: --model_name is missing");
  if (const std::string binary = line.ValueOr("--aic_binary_dir", ""); !binary.empty()) {
    return nereid::UnsupportedError("new qaic-style: --aic_binary_dir: '", binary,
                                    "': compiled binaries are not supported; without this flag "
                                    "the checkpoint of --hf_model_name is served");
  }
  options.has_backend_dir = !line.ValueOr("--python_backend_dir", "").empty();
  if (line.words.size() > 2) return InvalidArgError("unexpected argument '", line.words[2], "'");
  options.model_type = line.ValueOr("--model_type", options.model_type);
  options.compile_config = line.ValueOr("--compile_config_path", "");
  options.backend = line.ValueOr("--backend", options.backend);
  options.decoupled = line.Has("--decoupled");
  options.uses_checkpoint_precision = line.Has("--checkpoint_precision");
  options.templates =
      line.ValueOr("--templates", (InstallPrefix() / "share/repo_templates").string());
  return options;
}

int RunNewQaic(const CommandLine& line) {
  Result<NewQaicOptions> options = NewQaicOptionsFrom(line);
  if (!options.ok()) return Fail(options.status());
  std::vector<std::string> notes;
  if (Status status = NewQaic(*options, notes); !status.ok()) return Fail(status);
  for (const std::string& note : notes) std::fprintf(stderr, "nereid-repo: %s\n", note.c_str());
  return ReportNew(options->out);
}

int RunNewBackend(const CommandLine& line) {
  if (line.words.size() != 3) {
    return Fail(InvalidArgError("new backend: expected one name, got ", line.words.size() - 2));
  }
  const std::string& name = line.words[2];
  const std::string out = line.ValueOr("--out", name);
  const std::string prefix = InstallPrefix().string();
  const char* const sample = line.Has("--stream") ? "stream_backend_template" : "backend_template";
  const std::string source = line.ValueOr("--templates", StrCat(prefix, "/share/nereid/", sample));
  if (Status status = CopyBackendTemplate({name, source, out}); !status.ok()) return Fail(status);
  std::printf(
      "%s\nnext: cmake -S %s -B %s/build -DCMAKE_PREFIX_PATH=%s && cmake --build %s/build\n",
      fs::absolute(out).lexically_normal().c_str(), out.c_str(), out.c_str(), prefix.c_str(),
      out.c_str());
  return 0;
}

int RunNewKey(const CommandLine& line) {
  const auto values_of = [&](const char* option) {
    const auto found = line.values.find(option);
    return found == line.values.end() ? std::vector<std::string>() : found->second;
  };
  if (line.words.size() > 2) {
    return Fail(InvalidArgError("unexpected argument '", line.words[2], "'"));
  }
  const Result<NewKey> key = MakeKey({line.ValueOr("--name", ""), values_of("--model"),
                                      values_of("--right"), line.ValueOr("--expires", "")});
  if (!key.ok()) return Fail(key.status());
  std::printf(
      "key for the client, which is not stored anywhere:\n%s\n\n"
      "element of \"keys\" in the file of --api-key-file:\n%s\n",
      key->text.c_str(), key->entry.c_str());
  return 0;
}

int RunCheck(const CommandLine& line) {
  if (line.words.size() != 2) return Fail(InvalidArgError("check: expected one repository"));
  if (IfDirectory(line.words[1]).empty()) {
    return Fail(InvalidArgError(
        "'", line.words[1], "': no such folder; name the one that contains the models' folders"));
  }
  const Findings findings = CheckRepository(line.words[1], CheckOptionsFrom(line));
  const bool json = line.Has("--json");
  std::fputs((json ? ToJson(findings) : ToText(findings)).c_str(), stdout);
  if (!json) std::puts(Summarize(CountModels(line.words[1]), findings).c_str());
  return HasError(findings) ? 1 : 0;
}

struct Command {
  const char* name;
  int (*run)(const CommandLine& line);
  std::vector<std::string> options;  // that the command takes; of `new` those of its commands count
};

// INVALID_ARG names an option that another command takes, and this one would ignore.
Status CheckOptionsOf(const Command& command, const std::string& full_name,
                      const CommandLine& line) {
  std::vector<std::string> given(line.switches.begin(), line.switches.end());
  for (const auto& [option, values] : line.values) given.push_back(option);
  for (const std::string& option : given) {
    if (std::find(command.options.begin(), command.options.end(), option) !=
        command.options.end()) {
      continue;
    }
    std::string known;
    for (const std::string& one : command.options) known += StrCat(known.empty() ? "" : ", ", one);
    return InvalidArgError(full_name, ": takes no option '", option,
                           "'; known: ", known.empty() ? "none" : known);
  }
  return Status::Ok();
}

int PrintTables(const CommandLine& line) {
  if (line.words.size() != 1) {
    return Fail(InvalidArgError("unexpected argument '", line.words[1], "'"));
  }
  std::fputs(EngineTablesPage().c_str(), stdout);
  return 0;
}

// Runs the command of `commands` that word `index` of the line names.
int RunNamed(const CommandLine& line, size_t index, std::span<const Command> commands) {
  const std::string name = index < line.words.size() ? line.words[index] : "";
  const std::string before = index == 0 ? "" : line.words[index - 1];
  std::vector<std::string> names;
  for (const Command& command : commands) {
    names.emplace_back(command.name);
    if (name != command.name) continue;
    const std::string full_name = StrCat(before, before.empty() ? "" : " ", name);
    const Status options = name == "new" ? Status::Ok() : CheckOptionsOf(command, full_name, line);
    return options.ok() ? command.run(line) : Fail(options);
  }
  std::string known;
  for (const std::string& one : names) known += StrCat(known.empty() ? "" : ", ", one);
  const std::string place = before.empty() ? "" : before + ": ";
  if (name.empty()) return Fail(InvalidArgError(place, "expected one of: ", known));
  return Fail(InvalidArgError(place, "unknown command '", name, "'",
                              nereid::DidYouMean(name, names), "; known: ", known));
}

int RunNew(const CommandLine& line) {
  const Command commands[] = {
      {"llm",
       RunNewLlm,
       {"--checkpoint", "--out", "--backend", "--decoupled", "--chat-parser", "--tokenizer",
        "--max-beam-width", "--max-batch-size", "--max-queue-size", "--copy", "--link",
        "--templates"}},
      {"inflight",
       RunNewInflight,
       {"--generation", "--checkpoint", "--out", "--backend", "--decoupled", "--max-batch-size",
        "--max-queue-size", "--templates"}},
      {"qaic-style",
       RunNewQaic,
       {"--model_name", "--hf_model_name", "--out", "--model_type", "--python_backend_dir",
        "--decoupled", "--compile_config_path", "--checkpoint_precision", "--aic_binary_dir",
        "--backend", "--templates"}},
      {"backend", RunNewBackend, {"--out", "--stream", "--templates"}},
      {"key", RunNewKey, {"--name", "--right", "--model", "--expires"}}};
  return RunNamed(line, 1, commands);
}

int RunCommand(const CommandLine& line) {
  const Command commands[] = {{"new", RunNew, {}},
                              {"check", RunCheck, {"--backend-directory", "--json"}},
                              {"tables", PrintTables, {}}};
  return RunNamed(line, 0, commands);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const Result<CommandLine> line = nereid::ParseCommandLine(
      arguments,
      {"--checkpoint",
       "--out",
       "--backend",
       "--max-batch-size",
       "--max-queue-size",
       "--templates",
       "--backend-directory",
       "--model_name",
       "--hf_model_name",
       "--model_type",
       "--compile_config_path",
       "--aic_binary_dir",
       "--python_backend_dir",
       "--name",
       "--right",
       "--model",
       "--expires",
       "--generation",
       "--chat-parser",
       "--tokenizer",
       "--max-beam-width"},
      {"--checkpoint_precision", "--decoupled", "--copy", "--link", "--json", "--stream"});
  if (!line.ok()) return Fail(line.status());
  if (line->Has("--help")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (line->words.empty()) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  return RunCommand(*line);
}
