// Checks what models of backend `python` need before they can load: an interpreter, its NumPy, and
// a model.py that compiles. Runs each interpreter once. No code of a model is executed.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <sstream>

#include "backends/python_like_scripted/child_process.h"
#include "backends/python_like_scripted/execution_env.h"
#include "backends/python_like_scripted/stub_interpreter.h"
#include "base/clock.h"
#include "repo_templates/tool/check.h"

namespace nereid::repo {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxRunNs = 60'000'000'000;
constexpr size_t kMaxOutputBytes = 1 << 20;

// Arguments: the files, and the descriptor that ChildProcess::Start appends. Prints a line for each
// fault: kMark, the file's index (-1: the interpreter), line, column and message.
constexpr char kMark[] = "nereid-check";
constexpr char kProgram[] = R"(
import sys
sys.path[:1] = []
def report(*fields):
    print("nereid-check", *[str(each).replace("\t", " ").replace("\n", " ") for each in fields], sep="\t")
try:
    import numpy
except ImportError as error:
    if error.name == "numpy":
        error = f"no NumPy is installed for {sys.executable}; install it, with 'apt-get install python3-numpy' for Debian's interpreter or with '{sys.executable} -m pip install numpy'"
    report(-1, 0, 0, error)
for index, path in enumerate(sys.argv[1:-1]):
    try:
        with open(path, "rb") as file:
            compile(file.read(), path, "exec", dont_inherit=True)
    except SyntaxError as error:
        report(index, error.lineno or 0, error.offset or 0, f"{type(error).__name__}: {error.msg}: {(error.text or '').strip()}")
    except Exception as error:
        report(index, 0, 0, f"{type(error).__name__}: {error}")
report("end")
)";

// A model's code and the interpreter that will run it.
struct Script {
  const RepositoryModel* model = nullptr;
  std::string file;
  std::shared_ptr<const python::ExecutionEnv> env;  // null: `interpreter` is used
  std::string interpreter;
};

std::string Interpreter(const RepositoryModel& model) {
  const char* named = std::getenv("NEREID_PYTHON");
  const bool is_configured = named != nullptr && *named != '\0';
  const std::string configured = is_configured ? named : "python3";
  const std::string version =
      python::StubPythonVersion(fs::path(model.folder.path) / "triton_python_backend_stub");
  if (version.empty()) return configured;
  return python::InterpreterForVersion(version, configured, is_configured);
}

// What the process writes until it ends, is silent for too long, or writes too much.
std::string ReadOutput(int fd) {
  std::string output;
  const uint64_t deadline_ns = SteadyNowNs() + kMaxRunNs;
  char buffer[4096];
  while (output.size() < kMaxOutputBytes && SteadyNowNs() < deadline_ns) {
    pollfd polled{fd, POLLIN, 0};
    if (poll(&polled, 1, 100) == 0) continue;
    const ssize_t size = read(fd, buffer, sizeof buffer);
    if (size <= 0) break;
    output.append(buffer, static_cast<size_t>(size));
  }
  return output;
}

Result<std::string> RunProgram(const Script& first, const std::vector<Script>& scripts) {
  std::vector<std::string> arguments{"-c", kProgram};
  for (const Script& script : scripts) arguments.push_back(script.file);
  python::ProcessCommand command;
  if (first.env == nullptr) {
    command.arguments = {first.interpreter};
    command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
  } else {
    command.arguments = first.env->Command(arguments);
  }
  command.environment = python::EnvironmentWith({});
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return UnavailableError("pipe: ", std::strerror(errno));
  const UniqueFd output(ends[0]);
  UniqueFd output_end(ends[1]);
  NEREID_ASSIGN_OR_RETURN(const auto process,
                          python::ChildProcess::Start(std::move(command), {}, output_end.get()));
  output_end.Reset(-1);
  const std::string text = ReadOutput(output.get());
  process->Kill();
  (void)process->Wait();
  return text;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

int NumberOf(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// An error at the configuration of each model that the interpreter is to run.
void ReportInterpreter(const std::vector<Script>& scripts, const std::string& message,
                       Findings& findings) {
  for (const Script& script : scripts) {
    findings.push_back(FindingAt(script.model->folder, "backend", message));
  }
}

void CheckScripts(const std::vector<Script>& scripts, Findings& findings) {
  const Result<std::string> output = RunProgram(scripts.front(), scripts);
  if (!output.ok()) return ReportInterpreter(scripts, output.status().message(), findings);
  bool has_ended = false;
  for (const std::string& line : Split(*output, '\n')) {
    const std::vector<std::string> fields = Split(line, '\t');
    if (fields.size() < 2 || fields[0] != kMark) continue;
    has_ended |= fields[1] == "end";
    if (fields.size() != 5) continue;
    const auto index = static_cast<size_t>(NumberOf(fields[1]));
    if (fields[1] == "-1") {
      ReportInterpreter(scripts, fields[4], findings);
    } else if (index < scripts.size()) {
      findings.push_back(
          {{scripts[index].file, NumberOf(fields[2]), NumberOf(fields[3]), "", fields[4]}, false});
    }
  }
  if (has_ended) return;
  ReportInterpreter(scripts,
                    StrCat("interpreter '", scripts.front().interpreter,
                           "' did not compile the model's code; it said: ", output->substr(0, 500)),
                    findings);
}

}  // namespace

void CheckPythonModels(const Repository& repository, Findings& findings) {
  std::map<std::string, std::vector<Script>> by_interpreter;
  for (const RepositoryModel& model : repository) {
    if (!model.config.has_value()) continue;
    const std::optional<std::string> file = PythonFile(model);
    std::error_code error;
    if (!file.has_value() || !fs::is_regular_file(*file, error)) continue;
    Script script{&model, *file, nullptr, Interpreter(model)};
    const auto& parameters = model.config->parameters;
    if (const auto path = parameters.find("EXECUTION_ENV_PATH"); path != parameters.end()) {
      auto env = python::ExecutionEnv::Open(path->second, model.folder.path);
      if (!env.ok()) {
        findings.push_back(FindingAtMapEntry(model.folder, "parameters", "EXECUTION_ENV_PATH",
                                             env.status().message()));
        continue;
      }
      script.env = std::move(*env);
      script.interpreter = script.env->interpreter();
    }
    by_interpreter[script.interpreter].push_back(std::move(script));
  }
  for (const auto& [interpreter, scripts] : by_interpreter) CheckScripts(scripts, findings);
}

}  // namespace nereid::repo
