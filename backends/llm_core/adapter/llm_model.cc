// Loads the model, queues requests and cancels them on stop requests.
#include "backends/llm_core/adapter/llm_model.h"

#include "backends/llm_core/adapter/executor_requirements.h"
#include "backends/llm_core/adapter/model_tensors.h"
#include "backends/llm_core/adapter/request_reader.h"
#include "backends/llm_core/model/decoder_spec.h"

namespace nereid::llm {

Status LlmModel::AutoComplete(ConfigDraft& draft) {
  return CompleteTensors(draft);
}

Status LlmModel::Initialize() {
  NEREID_RETURN_IF_ERROR(CheckTensors(config()));
  std::vector<std::string> notes;
  NEREID_ASSIGN_OR_RETURN(const LlmParameters parameters,
                          ReadLlmParameters(context(), RunsOnGpu(), notes));
  for (const std::string& note : notes) LogWarning(StrCat("model '", name(), "': ", note));
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<const llm::Checkpoint> checkpoint,
                          OpenCheckpoint(parameters));
  NEREID_ASSIGN_OR_RETURN(llm::DecoderModel decoder,
                          parameters.uses_dummy_weights
                              ? llm::ReadDecoderSpec(*checkpoint, SupportsQuantizedWeights())
                              : llm::ReadDecoder(*checkpoint, SupportsQuantizedWeights()));
  defaults_ = MakeRequestDefaults(config(), parameters, decoder.spec);
  NEREID_RETURN_IF_ERROR(OpenTokenizer(parameters, decoder.spec.vocab_size));
  NEREID_RETURN_IF_ERROR(
      llm::LimitAttention(parameters.attention_windows, parameters.num_sink_tokens, decoder.spec));
  const std::string architecture = decoder.spec.architecture;
  llm::DecoderModel drafted_for;
  if (parameters.speculation.has_weights()) drafted_for = decoder;
  LoraTargets lora_targets = LoraTargets::Of(decoder.map, decoder.spec.num_layers());
  NEREID_ASSIGN_OR_RETURN(std::unique_ptr<llm::Executor> executor,
                          MakeExecutor(checkpoint, std::move(decoder), parameters));
  NEREID_RETURN_IF_ERROR(checkpoint->CheckIntact());
  NEREID_RETURN_IF_ERROR(CheckExecutor(parameters, *executor));
  NEREID_RETURN_IF_ERROR(OpenAdapters(parameters, std::move(lora_targets), *executor));
  const llm::ExecutorLimits limits = executor->limits();
  if (parameters.max_positions > limits.max_positions) {
    LogWarning(StrCat("model '", name(), "': parameter 'max_seq_len' is ", parameters.max_positions,
                      ", the model's own limit of ", limits.max_positions, " tokens holds"));
  }
  NEREID_RETURN_IF_ERROR(ApplyLimits(limits));
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<llm::Drafter> drafter,
                          MakeDrafter(parameters, {checkpoint, std::move(drafted_for), *executor}));
  metrics_ =
      LlmMetrics::Create(name(), context().version(), parameters.stats_period_ms, parameters.is_v1,
                         drafter == nullptr ? "" : std::string(drafter->name()));
  responses_ = std::make_unique<ResponseThread>();
  NEREID_ASSIGN_OR_RETURN(llm::EngineOptions options,
                          MakeEngineOptions(parameters, limits.block_size, drafter));
  NEREID_RETURN_IF_ERROR(executor->PrepareSteps());
  if (drafter != nullptr) {
    NEREID_RETURN_IF_ERROR(
        executor->PrepareDraftSteps({options.speculation.max_draft_tokens,
                                     drafter->proposes_trees(), drafter->reads_hidden_states()}));
  }
  engine_ = std::make_unique<llm::Engine>(std::move(options), std::move(executor));
  cancellation_poller_ =
      std::make_unique<CancellationPoller>([this] { engine_->CheckCancellations(); });
  StartCompiler(parameters);
  LogInfo(StrCat("model '", name(), "': ", architecture, " from '", parameters.checkpoint_directory,
                 "', up to ", limits.max_positions, " tokens a sequence, ",
                 limits.max_num_sequences, " sequences at a time, KV cache of ",
                 int64_t{limits.num_blocks} * limits.block_size, " tokens"));
  return {};
}

Result<std::shared_ptr<const llm::Checkpoint>> LlmModel::OpenCheckpoint(
    const LlmParameters& parameters) const {
  const bool is_dummy = parameters.uses_dummy_weights;
  if (is_dummy && !SupportsDummyWeights()) {
    return UnsupportedError(
        "parameter 'load_format' is 'dummy': this backend does not support dummy weights");
  }
  Result<llm::Checkpoint> opened =
      is_dummy ? llm::Checkpoint::OpenConfig(parameters.checkpoint_directory)
               : llm::Checkpoint::Open(parameters.checkpoint_directory);
  if (!opened.ok()) return std::move(opened).status().WithContext("parameter 'gpt_model_path'");
  return std::make_shared<const llm::Checkpoint>(std::move(*opened));
}

Status LlmModel::OpenTokenizer(const LlmParameters& parameters, int64_t vocab_size) {
  tokenizer_.emplace(parameters.tokenizer_path, parameters.skip_special_tokens,
                     parameters.cleans_up_spaces);
  defaults_.tokenizer = &*tokenizer_;
  NEREID_ASSIGN_OR_RETURN(const std::string fault,
                          tokenizer_->FaultBeside(parameters.checkpoint_directory, vocab_size));
  if (!fault.empty()) {
    LogWarning(StrCat("model '", name(), "': parameter 'tokenizer_dir': ", fault));
  }
  return {};
}

Status LlmModel::OpenAdapters(const LlmParameters& parameters, LoraTargets targets,
                              const llm::Executor& executor) {
  NEREID_ASSIGN_OR_RETURN(lora_, LoraRequests::Create(parameters.lora, std::move(targets), name()));
  defaults_.lora = lora_.get();
  if (executor.features().adapters) {
    adapter_commands_ = std::make_unique<AdapterCommands>(lora_->registry());
  }
  return {};
}

Status LlmModel::ApplyLimits(const llm::ExecutorLimits& limits) {
  defaults_.max_positions = limits.max_positions;
  defaults_.vocab_size = limits.vocab_size;
  defaults_.max_num_sequences = limits.max_num_sequences;
  virtual_tokens_.emplace(limits.vocab_size);
  outputs_.emplace(config());
  outputs_->vocab_size = limits.vocab_size;
  return outputs_->CheckLogits();
}

Result<llm::EngineOptions> LlmModel::MakeEngineOptions(
    const LlmParameters& parameters, int32_t block_size,
    const std::shared_ptr<llm::Drafter>& drafter) {
  llm::EngineOptions options;
  options.scheduler = parameters.scheduler;
  options.scheduler.mixed_step_tokens =
      parameters.mixed_step_tokens.value_or(DefaultMixedStepTokens());
  options.speculation = {.drafter = drafter};
  if (parameters.max_draft_tokens > 0) {
    options.speculation.max_draft_tokens = parameters.max_draft_tokens;
  } else if (drafter != nullptr) {
    options.speculation.max_draft_tokens = drafter->default_max_drafts();
  }
  options.max_queue_size = parameters.max_queue_size;
  options.overlaps_steps = parameters.overlaps_steps;
  options.polls_sinks = false;  // CancellationPoller polls instead
  if (metrics_ != nullptr) {
    options.on_step_end = [this](const llm::EngineStats& stats) {
      metrics_->Update(stats, lora_->usage());
    };
  }
  if (parameters.events.endpoint.empty()) return options;
  KvEventOptions events = parameters.events;
  events.block_size = block_size;
  NEREID_ASSIGN_OR_RETURN(options.kv_events, MakeKvEventPublisher(events));
  return options;
}

void LlmModel::StartCompiler(const LlmParameters& parameters) {
  grammar::CompilerLimits limits;
  limits.grammar.max_json_whitespace = parameters.max_json_whitespace;
  compiler_ = std::make_unique<grammar::GrammarCompiler>(
      [this]() -> Result<std::shared_ptr<const grammar::Vocabulary>> {
        NEREID_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer_->Get());
        return grammar::Vocabulary::Make(*tokenizer, defaults_.end_ids, defaults_.vocab_size);
      },
      limits);
}

Status LlmModel::Ready() {
  return engine_->health();
}

void LlmModel::Finalize() {
  compiler_.reset();
  cancellation_poller_.reset();
  engine_.reset();
  responses_.reset();
  metrics_.reset();
  adapter_commands_.reset();
  lora_.reset();
}

Status LlmModel::Execute(nereid::Batch& batch) {
  for (Request& request : batch.Take()) Accept(std::move(request));
  return {};
}

// An error fails this request only.
void LlmModel::Accept(Request request) {
  if (TakeAdapterCommand(request)) return;
  Result<ClientRequest> client = ReadRequest(request, defaults_);
  const Status error = client.ok() ? CheckServable(*client) : client.status();
  if (!error.ok()) {
    (void)request.Fail(error);
    return;
  }
  notes_.Note(*client, name());
  if (client->is_stop) {
    Stop(std::move(request), client->id);
  } else {
    Generate(std::move(request), std::move(*client));
  }
}

bool LlmModel::TakeAdapterCommand(Request& request) {
  Result<std::optional<AdapterCommand>> command = ReadAdapterCommand(request);
  if (!command.ok() || !*command) return false;
  if (adapter_commands_ != nullptr) {
    adapter_commands_->Post(std::move(request), std::move(**command));
  } else {
    (void)request.Fail(UnsupportedError("LoRA adapter '", (*command)->name,
                                        "': this backend's executor does not support adapters"));
  }
  return true;
}

Status LlmModel::CheckServable(const ClientRequest& client) const {
  if (client.is_stop && client.id.empty()) {
    return InvalidArgError("input 'stop' is true, but the request ID is not provided: it names ",
                           "the requests to stop");
  }
  if (config().is_decoupled()) return {};
  if (client.is_streaming) {
    return InvalidArgError("input 'streaming' is true: streaming is only supported if the model ",
                           "is deployed using decoupled mode (model_transaction_policy)");
  }
  if (client.items.size() > 1) {
    return InvalidArgError("batch of ", client.items.size(), " rows: a batch size over 1 requires ",
                           "that the model is deployed using decoupled mode");
  }
  return {};
}

void LlmModel::Generate(Request request, ClientRequest client) {
  Result<std::shared_ptr<ActiveRequest>> created =
      ActiveRequest::Create(std::move(request), client, *outputs_, *responses_, metrics_.get());
  if (!created.ok()) return;  // Create has answered the request
  const std::shared_ptr<ActiveRequest> active_request = std::move(*created);
  open_requests_.Add(active_request);
  cancellation_poller_->Add(active_request);
  for (size_t i = 0; i < client.items.size(); ++i) {
    RequestItem& item = client.items[i];
    std::unique_ptr<llm::GenerationRequest> generation = std::move(item.generation);
    if (item.embeddings != nullptr) {
      virtual_tokens_->Assign(*item.embeddings);
      item.embeddings->SetIds(generation->prompt);
      generation->embeddings = std::move(item.embeddings);
    }
    generation->sink =
        active_request->MakeSink(i, std::move(item.stop_strings), std::move(item.stop_reasons),
                                 lora_->Use(generation->adapter.get()));
    if (item.guide) {
      CompileAndEnqueue(active_request, i, std::move(*item.guide), std::move(generation));
    } else if (const Status queued = engine_->Enqueue(generation); !queued.ok()) {
      active_request->PostError(i, queued);
    }
  }
}

void LlmModel::CompileAndEnqueue(const std::shared_ptr<ActiveRequest>& active_request, size_t item,
                                 grammar::Guide guide,
                                 std::unique_ptr<llm::GenerationRequest> request) {
  // Shared, because a std::function can be copied.
  const auto owned = std::make_shared<std::unique_ptr<llm::GenerationRequest>>(std::move(request));
  compiler_->Compile(std::move(guide), [this, active_request, item,
                                        owned](const grammar::GrammarCompiler::Compiled& compiled) {
    Status queued = compiled.status();
    if (queued.ok()) {
      (*owned)->grammar = *compiled;
      queued = engine_->Enqueue(*owned);
    }
    if (!queued.ok()) active_request->PostError(item, queued);
    owned->reset();
  });
}

void LlmModel::Stop(Request request, const std::string& id) {
  open_requests_.Cancel(id);
  engine_->CheckCancellations();
  // A response without outputs, as that of TensorRT-LLM's backend, even if there was no request to
  // stop. Its clients take output ids for the answer of the stopped request.
  ResponseSender sender = std::move(request).IntoSender();
  Result<Response> response = sender.NewResponse();
  const Status answered =
      response.ok() ? sender.Send(std::move(*response), /*is_final=*/true) : response.status();
  if (!answered.ok() && sender.is_open()) (void)sender.Fail(answered);
}

}  // namespace nereid::llm
