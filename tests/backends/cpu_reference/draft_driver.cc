// Drafts for Python tests: generates greedily with a drafter.
//
//   draft_driver DIRECTORY METHOD NUM_OUTPUT [CHOICES]
//
// Standard input: the prompt's token ids, separated by spaces. METHOD is eagle3=FOLDER, with chains
// of up to 4 tokens or with CHOICES explicit trees, or medusa=FOLDER, with trees of up to 12,
// explicit ones with CHOICES. Standard output: a line {"tokens", "drafts", "parents"} for each
// proposal, and at the end {"ids"}. If the heads are refused, the output is {"error"} and the exit
// status is 3.
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "backends/cpu_reference/cpu_executor.h"
#include "backends/cpu_reference/model/eagle3_layer.h"
#include "backends/cpu_reference/model/medusa_layers.h"
#include "backends/llm_core/engine/engine.h"
#include "backends/llm_core/speculation/eagle3_drafter.h"
#include "backends/llm_core/speculation/medusa_drafter.h"
#include "backends/llm_core/speculation/method.h"

namespace nereid::cpu {
namespace {

// Prints what another drafter proposes.
class PrintingDrafter : public llm::Drafter {
 public:
  explicit PrintingDrafter(std::unique_ptr<llm::Drafter> drafter) : drafter_(std::move(drafter)) {}
  std::string_view name() const override { return drafter_->name(); }
  bool is_costly() const override { return true; }
  bool proposes_trees() const override { return drafter_->proposes_trees(); }
  bool reads_hidden_states() const override { return true; }
  void Observe(std::unique_ptr<llm::DrafterState>& state, int32_t first_position,
               const llm::HiddenRows& rows) override {
    drafter_->Observe(state, first_position, rows);
  }
  void Propose(std::span<llm::DraftQuery> queries) override {
    drafter_->Propose(queries);
    for (const llm::DraftQuery& query : queries) {
      const nlohmann::json line = {
          {"tokens", std::vector<int32_t>(query.tokens.begin(), query.tokens.end())},
          {"drafts", *query.drafts},
          {"parents", *query.parents}};
      std::printf("%s\n", line.dump().c_str());
    }
  }

 private:
  const std::unique_ptr<llm::Drafter> drafter_;
};

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

Result<std::shared_ptr<const llm::Checkpoint>> Open(const std::string& directory) {
  NEREID_ASSIGN_OR_RETURN(llm::Checkpoint opened, llm::Checkpoint::Open(directory));
  return std::make_shared<const llm::Checkpoint>(std::move(opened));
}

constexpr int32_t kNumThreads = 2;

struct Target {
  std::shared_ptr<const llm::Checkpoint> checkpoint;
  llm::DecoderModel model;
};

// A drafter, and the layers whose hidden states it reads.
struct Drafting {
  std::unique_ptr<llm::Drafter> drafter;
  std::vector<int32_t> layers;
};

Result<Drafting> MakeEagle3(const std::string& folder, const Target& target, const char* text) {
  NEREID_ASSIGN_OR_RETURN(const auto checkpoint, Open(folder));
  NEREID_ASSIGN_OR_RETURN(llm::Eagle3Head head,
                          llm::ReadEagle3Head(*checkpoint, target.model.spec));
  std::vector<int32_t> layers = head.aux_layers;
  NEREID_ASSIGN_OR_RETURN(std::unique_ptr<llm::DraftHead> layer,
                          Eagle3Layer::Create(checkpoint, std::move(head), target.checkpoint,
                                              target.model, kNumThreads));
  auto drafter = std::make_unique<llm::Eagle3Drafter>(llm::MakeHostChains(std::move(layer)),
                                                      /*least_probability=*/0.0f);
  if (text != nullptr) {
    NEREID_ASSIGN_OR_RETURN(std::vector<llm::TreeChoice> choices,
                            llm::ParseCombChoices(text, llm::kMaxDraftTokens, 16));
    drafter->DraftTrees(std::move(choices));
  }
  return Drafting{std::move(drafter), std::move(layers)};
}

Result<Drafting> MakeMedusa(const std::string& folder, const Target& target, const char* text) {
  NEREID_ASSIGN_OR_RETURN(llm::Checkpoint opened, llm::OpenMedusaCheckpoint(folder));
  const auto checkpoint = std::make_shared<const llm::Checkpoint>(std::move(opened));
  NEREID_ASSIGN_OR_RETURN(llm::MedusaWeights weights,
                          llm::ReadMedusaWeights(*checkpoint, target.model.spec));
  std::vector<llm::TreeChoice> choices;
  if (text != nullptr) {
    NEREID_ASSIGN_OR_RETURN(choices,
                            llm::ParseTreeChoices(text, weights.num_heads, llm::kMaxMedusaTokens));
  }
  NEREID_ASSIGN_OR_RETURN(std::unique_ptr<llm::MedusaHeads> layers,
                          MedusaLayers::Create(checkpoint, std::move(weights), target.checkpoint,
                                               target.model, kNumThreads));
  return Drafting{std::make_unique<llm::MedusaDrafter>(std::move(layers), std::move(choices)),
                  {target.model.spec.num_layers()}};
}

Result<std::unique_ptr<llm::Engine>> Start(const std::string& directory, const char* text,
                                           const char* choices) {
  NEREID_ASSIGN_OR_RETURN(const llm::SpeculationMethod method, llm::ParseSpeculationMethod(text));
  Target target;
  NEREID_ASSIGN_OR_RETURN(target.checkpoint, Open(directory));
  NEREID_ASSIGN_OR_RETURN(target.model, llm::ReadDecoder(*target.checkpoint));
  const bool is_medusa = method.kind == llm::DrafterKind::kMedusa;
  NEREID_ASSIGN_OR_RETURN(Drafting drafting, is_medusa
                                                 ? MakeMedusa(method.folder, target, choices)
                                                 : MakeEagle3(method.folder, target, choices));
  CpuExecutorOptions executor_options;
  executor_options.num_threads = kNumThreads;
  NEREID_ASSIGN_OR_RETURN(
      auto executor,
      CpuExecutor::Create(target.checkpoint, std::move(target.model), executor_options));
  NEREID_RETURN_IF_ERROR(
      executor->CaptureHiddenStates(drafting.layers, llm::HiddenStatePlace::kHost));
  llm::EngineOptions options;
  options.speculation.drafter = std::make_shared<PrintingDrafter>(std::move(drafting.drafter));
  options.speculation.max_draft_tokens = is_medusa || choices != nullptr ? 12 : 4;
  options.speculation.adapts_length = false;
  return std::make_unique<llm::Engine>(std::move(options), std::move(executor));
}

int Main(const std::string& directory, const char* method, int num_output, const char* choices) {
  Result<std::unique_ptr<llm::Engine>> engine = Start(directory, method, choices);
  if (!engine.ok()) {
    std::printf("%s\n", nlohmann::json{{"error", engine.status().message()}}.dump().c_str());
    return 3;
  }
  auto request = std::make_unique<llm::GenerationRequest>();
  request->prompt.assign(std::istream_iterator<int32_t>(std::cin),
                         std::istream_iterator<int32_t>());
  request->stop.max_tokens = num_output;
  request->sampling.temperature = 0.0f;
  std::promise<llm::TokenIds> promise;
  std::future<llm::TokenIds> ids = promise.get_future();
  request->sink = std::make_unique<Sink>(std::move(promise));
  if (const Status queued = (*engine)->Enqueue(request); !queued.ok()) {
    std::fprintf(stderr, "%s\n", queued.message().c_str());
    return 1;
  }
  std::printf("%s\n", nlohmann::json{{"ids", ids.get()}}.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace nereid::cpu

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: draft_driver DIRECTORY METHOD NUM_OUTPUT [CHOICES]\n");
    return 64;
  }
  return nereid::cpu::Main(argv[1], argv[2], std::atoi(argv[3]), argc > 4 ? argv[4] : nullptr);
}
