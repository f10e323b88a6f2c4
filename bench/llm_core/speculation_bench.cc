// What speculative decoding brings on the CPU, with real acceptance: the same requests without
// draft tokens and with each drafter, in turn. Checks that the tokens are the same. Prints CSV.
//
//   speculation_bench [--whole] [--editor FOLDER] [CHECKPOINT [ROUNDS [METHOD...]]]
//
// With --whole every proposal is verified at full length, whatever it costs. With --editor
// other tasks are measured: the LoRA adapter of that folder tells a passage again and replaces one
// word of it.
//
// The methods are written as `nereid serve --speculate` takes them; ngram and suffix by default.
//
// The time is that of the process's threads, of which one computes, so that other programs on the
// machine disturb it little; the best round counts. The engine measures its steps by the same time.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/cpu_reference/model/medusa_layers.h"
#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/lora/peft_adapter.h"
#include "backends/llm_core/speculation/lookahead_drafter.h"
#include "backends/llm_core/speculation/lookup_drafters.h"
#include "backends/llm_core/speculation/medusa_drafter.h"
#include "backends/llm_core/speculation/model_drafter.h"
#include "backends/tokenizer/lib/tokenizer.h"

namespace nereid::bench {
namespace {

constexpr int32_t kNumOutput = 160;
constexpr int32_t kEndId = 0;  // of the demo model: <|endoftext|>

constexpr const char* kStory =
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big red ball under a tree. She wanted to play with it, but a small dog was "
    "sitting on the ball. Lily asked the dog to move. The dog barked and ran away. Lily was happy "
    "and played with the ball all day.\n";

constexpr const char* kEdit =
    "A wolf lived at the edge of a great forest, and all the shepherds were afraid of him. One "
    "evening the wolf came down to the village, for he was hungry, and he looked in at the window "
    "of the mill. The miller's wife saw the wolf and ran to shut the door, but he had already put "
    "his paw upon the step.\n\n"
    "\"Good evening,\" said the wolf. \"I smell fresh bread, and I have not eaten for three "
    "days.\"\n\n"
    "\"If you will guard my hens until the morning,\" said the miller's wife, \"you shall have a "
    "loaf, and butter too.\"\n\n"
    "So the wolf sat down before the hen-house and watched all night, and when the sun rose not "
    "one feather was missing. From that day the wolf had bread and butter every morning, and the "
    "shepherds were afraid of him no longer.\n\n"
    "Tell it again, with a fox instead of the wolf:\n\n";

struct Task {
  const char* name;
  std::string prompt;
  float temperature = 0.0f;  // 0: greedy
  int num_requests = 1;      // at the same time
  // Null: an answer has kNumOutput tokens and does not stop at an end id. With an adapter it stops
  // at kEndId, or else after 2 * kNumOutput tokens.
  std::shared_ptr<const llm::LoraAdapter> adapter = nullptr;
};

std::vector<Task> Tasks() {
  const std::string copies = std::string(kStory) + kStory + kStory + "Once upon a time,";
  return {{"repeat the prompt", copies},
          {"repeat the prompt, 8 requests", copies, 0.0f, 8},
          {"continue a story", "Once upon a time, there was a big", 0.0f},
          {"continue a story, sampled", "Tom and his cat went to", 1.0f},
          {"continue a story, sampled, 8 requests", "Tom and his cat went to", 1.0f, 8}};
}

std::vector<Task> EditTasks(const std::shared_ptr<const llm::LoraAdapter>& editor) {
  return {{"edit a passage", kEdit, 0.0f, 1, editor},
          {"edit a passage, sampled", kEdit, 1.0f, 1, editor},
          {"edit a passage, 8 requests", kEdit, 0.0f, 8, editor}};
}

class Sink : public llm::OutputSink {
 public:
  explicit Sink(std::promise<llm::TokenIds> promise) : promise_(std::move(promise)) {}
  bool IsCancelled() const override { return false; }
  void OnOutput(const llm::SequenceOutput& output) override {
    if (output.finish == llm::FinishReason::kNone) return;
    promise_.set_value({output.ids.begin(), output.ids.end()});
  }
  void OnError(const Status& status) override {
    std::fprintf(stderr, "%s\n", status.message().c_str());
    std::exit(1);
  }

 private:
  std::promise<llm::TokenIds> promise_;
};

double ProcessorSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

class ProcessorClock : public llm::EngineClock {
 public:
  TimePoint Now() override {
    return TimePoint(std::chrono::duration_cast<TimePoint::duration>(
        std::chrono::duration<double>(ProcessorSeconds())));
  }
};

template <typename T>
T Require(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.status().message().c_str());
  std::exit(1);
}

std::shared_ptr<const llm::Checkpoint> OpenCheckpoint(const std::string& directory) {
  return std::make_shared<const llm::Checkpoint>(Require(llm::Checkpoint::Open(directory)));
}

std::unique_ptr<cpu::CpuExecutor> OpenModel(const std::string& directory) {
  auto checkpoint = OpenCheckpoint(directory);
  auto model = llm::ReadDecoder(*checkpoint, true);
  cpu::CpuExecutorOptions options;
  options.num_threads = 1;
  return std::move(*cpu::CpuExecutor::Create(std::move(checkpoint), std::move(*model), options));
}

std::shared_ptr<const llm::LoraAdapter> ReadEditor(const std::string& directory,
                                                   const std::string& folder) {
  const llm::DecoderModel model = Require(llm::ReadDecoder(*OpenCheckpoint(directory), true));
  return Require(llm::ReadPeftAdapter(
      "editor", folder, llm::LoraTargets::Of(model.map, model.spec.num_layers()), 64));
}

llm::SpeculationMethod ParseMethod(const std::string& text) {
  auto method = llm::ParseSpeculationMethod(text);
  if (method.ok()) return std::move(*method);
  std::fprintf(stderr, "%s\n", method.status().message().c_str());
  std::exit(1);
}

std::shared_ptr<llm::Drafter> MakeMedusaDrafter(const std::string& directory,
                                                const std::string& folder,
                                                cpu::CpuExecutor& executor) {
  const auto target = OpenCheckpoint(directory);
  const llm::DecoderModel model = Require(llm::ReadDecoder(*target, true));
  const auto checkpoint =
      std::make_shared<const llm::Checkpoint>(Require(llm::OpenMedusaCheckpoint(folder)));
  llm::MedusaWeights weights = Require(llm::ReadMedusaWeights(*checkpoint, model.spec));
  auto heads = Require(
      cpu::MedusaLayers::Create(checkpoint, std::move(weights), target, model, /*num_threads=*/1));
  const int32_t last = model.spec.num_layers();
  if (!executor.CaptureHiddenStates(std::span(&last, 1), heads->place()).ok()) std::exit(1);
  return std::make_shared<llm::MedusaDrafter>(std::move(heads));
}

std::shared_ptr<llm::Drafter> MakeDrafter(const llm::SpeculationMethod& method) {
  switch (method.kind) {
    case llm::DrafterKind::kOff:
      return nullptr;
    case llm::DrafterKind::kDraftModel: {
      auto drafter = std::make_shared<llm::ModelDrafter>(OpenModel(method.folder));
      if (const Status status = drafter->WarmUp(); !status.ok()) {
        std::fprintf(stderr, "%s\n", status.message().c_str());
        std::exit(1);
      }
      return drafter;
    }
    case llm::DrafterKind::kLookahead:
      return std::make_shared<llm::LookaheadDrafter>(method.lookahead);
    default:
      return llm::MakeLookupDrafter(method);
  }
}

std::unique_ptr<llm::Engine> StartEngine(const std::string& directory, const std::string& text,
                                         bool adapts_length) {
  const llm::SpeculationMethod method = ParseMethod(text);
  llm::EngineOptions engine_options;
  std::unique_ptr<cpu::CpuExecutor> executor = OpenModel(directory);
  engine_options.speculation.drafter = method.kind == llm::DrafterKind::kMedusa
                                           ? MakeMedusaDrafter(directory, method.folder, *executor)
                                           : MakeDrafter(method);
  engine_options.speculation.adapts_length = adapts_length;
  if (method.kind == llm::DrafterKind::kLookahead) {
    engine_options.speculation.max_draft_tokens =
        static_cast<int32_t>(method.lookahead.num_drafts());
  } else if (engine_options.speculation.drafter != nullptr) {
    engine_options.speculation.max_draft_tokens =
        engine_options.speculation.drafter->default_max_drafts();
  }
  engine_options.clock = std::make_shared<ProcessorClock>();
  return std::make_unique<llm::Engine>(std::move(engine_options), std::move(executor));
}

std::vector<llm::TokenIds> RunTask(llm::Engine& engine, const llm::TokenIds& prompt,
                                   const Task& task, uint64_t seed) {
  std::vector<std::future<llm::TokenIds>> answers;
  for (int i = 0; i < task.num_requests; ++i) {
    auto request = std::make_unique<llm::GenerationRequest>();
    request->prompt = prompt;
    request->stop.max_tokens = kNumOutput;
    if (task.adapter != nullptr) {
      request->stop.max_tokens = 2 * kNumOutput;
      request->stop.end_ids = {kEndId};
      request->adapter = task.adapter;
    }
    request->sampling.temperature = task.temperature;
    request->sampling.top_p = 1.0f;
    request->sampling.seed = seed + static_cast<uint64_t>(i);
    std::promise<llm::TokenIds> promise;
    answers.push_back(promise.get_future());
    request->sink = std::make_unique<Sink>(std::move(promise));
    if (const Status queued = engine.Enqueue(request); !queued.ok()) {
      std::fprintf(stderr, "%s\n", queued.message().c_str());
      std::exit(1);
    }
  }
  std::vector<llm::TokenIds> result;
  for (auto& answer : answers) result.push_back(answer.get());
  return result;
}

struct Figures {
  double best_seconds = 1e9;
  size_t num_tokens = 0;  // of the best round
};

void Measure(const std::string& directory, const tokenizer::Tokenizer& tokenizer, const Task& task,
             int num_rounds, const std::vector<std::string>& methods, bool adapts_length) {
  const llm::TokenIds prompt = *tokenizer.Encode(task.prompt);
  std::map<std::string, Figures> figures;
  std::map<std::string, std::unique_ptr<llm::Engine>> engines;
  for (const std::string& method : methods)
    engines[method] = StartEngine(directory, method, adapts_length);
  for (int round = 0; round < num_rounds; ++round) {
    std::vector<llm::TokenIds> plain;
    for (const std::string& method : methods) {
      llm::Engine& engine = *engines[method];
      const double start = ProcessorSeconds();
      const std::vector<llm::TokenIds> ids =
          RunTask(engine, prompt, task, 100 * static_cast<uint64_t>(round % 3));
      // Rounds with the same seeds are compared with each other.
      const double seconds = ProcessorSeconds() - start;
      if (round % 3 == 0 && seconds < figures[method].best_seconds) {
        figures[method] = {seconds, 0};
        for (const llm::TokenIds& answer : ids) figures[method].num_tokens += answer.size();
      }
      if (plain.empty()) plain = ids;
      if (ids != plain) {
        std::fprintf(stderr, "%s, %s: other tokens than without drafts\n", task.name,
                     method.c_str());
        std::exit(1);
      }
    }
  }
  for (const std::string& method : methods) {
    const llm::SpeculationCounts counts = engines[method]->stats().speculation;
    const auto drafted = static_cast<double>(counts.num_drafted);
    const auto chains = static_cast<double>(counts.num_verified_chains);
    const auto accepted = static_cast<double>(counts.num_accepted);
    const double seconds = figures[method].best_seconds;
    // The name of a folder tells nothing.
    const bool has_folder = ParseMethod(method).has_weights();
    const std::string name = has_folder ? method.substr(0, method.find('=')) : method;
    std::printf("\"%s\",\"%s\",%.0f,%.2f,%.2f,%.2f\n", task.name, name.c_str(),
                static_cast<double>(figures[method].num_tokens) / seconds,
                figures["off"].best_seconds / seconds, drafted == 0 ? 0.0 : accepted / drafted,
                chains == 0 ? 0.0 : 1.0 + accepted / chains);
  }
}

int Run(const std::string& directory, const std::string& editor, int num_rounds,
        std::vector<std::string> methods, bool adapts_length) {
  const auto tokenizer = tokenizer::Tokenizer::Load(directory);
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", tokenizer.status().message().c_str());
    return 1;
  }
  std::printf("task,drafter,tokens a second,speed-up,acceptance,tokens a verified step\n");
  methods.insert(methods.begin(), "off");
  for (const Task& task : editor.empty() ? Tasks() : EditTasks(ReadEditor(directory, editor)))
    Measure(directory, **tokenizer, task, num_rounds, methods, adapts_length);
  return 0;
}

}  // namespace
}  // namespace nereid::bench

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool is_whole = !arguments.empty() && arguments[0] == "--whole";
  if (is_whole) arguments.erase(arguments.begin());
  std::string editor;
  if (arguments.size() > 1 && arguments[0] == "--editor") {
    editor = arguments[1];
    arguments.erase(arguments.begin(), arguments.begin() + 2);
  }
  std::vector<std::string> methods = {"ngram", "suffix"};
  if (arguments.size() > 2) methods.assign(arguments.begin() + 2, arguments.end());
  return nereid::bench::Run(arguments.empty() ? "demo/model" : arguments[0], editor,
                            arguments.size() > 1 ? std::atoi(arguments[1].c_str()) : 15,
                            std::move(methods), !is_whole);
}
