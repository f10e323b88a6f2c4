// Loads the model, queues requests and cancels them on stop requests.
#include "backends/llm_core/adapter/llm_model.h"

#include <algorithm>
#include <filesystem>

#include "backends/llm_core/adapter/model_tensors.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "backends/tokenizer/lib/vocabulary_fit.h"

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
  const bool is_dummy = parameters.uses_dummy_weights;
  if (is_dummy && !SupportsDummyWeights()) {
    return UnsupportedError(
        "parameter 'load_format' is 'dummy': this backend does not support dummy weights");
  }
  Result<llm::Checkpoint> opened =
      is_dummy ? llm::Checkpoint::OpenConfig(parameters.checkpoint_directory)
               : llm::Checkpoint::Open(parameters.checkpoint_directory);
  if (!opened.ok()) return std::move(opened).status().WithContext("parameter 'gpt_model_path'");
  const auto checkpoint = std::make_shared<const llm::Checkpoint>(std::move(*opened));
  NEREID_ASSIGN_OR_RETURN(llm::DecoderModel decoder,
                          is_dummy ? llm::ReadDecoderSpec(*checkpoint, SupportsQuantizedWeights())
                                   : llm::ReadDecoder(*checkpoint, SupportsQuantizedWeights()));
  defaults_.end_ids = decoder.spec.end_ids;
  if (parameters.uses_generation_config) defaults_.sampling = decoder.spec.sampling_defaults;
  defaults_.temperature_samples = parameters.uses_generation_config;
  defaults_.decoding_mode = parameters.decoding_mode;
  for (const TensorSpec& input : config().inputs()) {
    defaults_.asks_for_num_input |= input.name == "return_num_input_tokens";
    defaults_.asks_for_num_output |= input.name == "return_num_output_tokens";
  }
  for (const TensorSpec& output : config().outputs()) {
    defaults_.has_context_logits |= output.name == "context_logits";
    defaults_.has_generation_logits |= output.name == "generation_logits";
  }
  defaults_.num_outputs = config().outputs().size();
  defaults_.exclude_input_in_output = parameters.exclude_input_in_output;
  tokenizer_.emplace(parameters.tokenizer_path, parameters.skip_special_tokens,
                     parameters.cleans_up_spaces);
  defaults_.tokenizer = &*tokenizer_;
  NEREID_RETURN_IF_ERROR(CheckTokenizer(parameters, decoder.spec.vocab_size));
  defaults_.matches_words_as_text = parameters.stop_words_in_text;
  NEREID_RETURN_IF_ERROR(
      llm::LimitAttention(parameters.attention_windows, parameters.num_sink_tokens, decoder.spec));
  const std::string architecture = decoder.spec.architecture;
  defaults_.hidden_size = decoder.spec.hidden_size;
  llm::DecoderModel drafted_for;
  if (parameters.speculation.has_weights()) drafted_for = decoder;
  LoraTargets lora_targets = LoraTargets::Of(decoder.map, decoder.spec.num_layers());
  NEREID_ASSIGN_OR_RETURN(std::unique_ptr<llm::Executor> executor,
                          MakeExecutor(checkpoint, std::move(decoder), parameters));
  NEREID_RETURN_IF_ERROR(checkpoint->CheckIntact());
  const llm::ExecutorLimits limits = executor->limits();
  if (limits.num_sink_tokens != parameters.num_sink_tokens) {
    return UnsupportedError("parameter 'sink_token_length' is ", parameters.num_sink_tokens,
                            ": this backend has no attention sinks, expected 0");
  }
  if (parameters.tiers.is_enabled() && executor->block_storage() == nullptr) {
    return UnsupportedError(
        "parameter '",
        parameters.tiers.host_bytes > 0 ? "kv_cache_host_memory_bytes" : "kv_cache_disk_path",
        "': this backend's executor keeps no blocks outside the KV cache");
  }
  if (parameters.is_batch_invariant && !executor->features().batch_invariant) {
    return UnsupportedError(
        "parameter 'batch_invariant' is true: this backend's results may depend ",
        "on what else is in a batch");
  }
  if (parameters.lora.names_adapters() && !executor->features().adapters) {
    const char* const parameter = !parameters.lora.adapters.empty() ? "lora_adapters"
                                  : !parameters.lora.folder.empty() ? "lora_dir"
                                                                    : "lora_prefetch_dir";
    return UnsupportedError("parameter '", parameter,
                            "': this backend's executor does not support LoRA adapters");
  }
  NEREID_ASSIGN_OR_RETURN(lora_,
                          LoraRequests::Create(parameters.lora, std::move(lora_targets), name()));
  defaults_.lora = lora_.get();
  if (executor->features().adapters) {
    adapter_commands_ = std::make_unique<AdapterCommands>(lora_->registry());
  }
  defaults_.max_positions = limits.max_positions;
  defaults_.vocab_size = limits.vocab_size;
  virtual_tokens_.emplace(limits.vocab_size);
  defaults_.max_beam_width = parameters.max_beam_width;
  defaults_.max_num_sequences = limits.max_num_sequences;
  outputs_.emplace(config());
  NEREID_RETURN_IF_ERROR(outputs_->CheckLogits());
  outputs_->vocab_size = limits.vocab_size;
  if (parameters.speculation.kind != DrafterKind::kOff && !executor->features().draft_tokens) {
    return UnsupportedError(
        "parameter 'speculative_decoding' is '", parameters.speculative_decoding,
        "': this executor does not verify draft tokens (several GPUs), expected off");
  }
  NEREID_ASSIGN_OR_RETURN(const std::shared_ptr<llm::Drafter> drafter,
                          MakeDrafter(parameters, {checkpoint, std::move(drafted_for), *executor}));
  metrics_ =
      LlmMetrics::Create(name(), context().version(), parameters.stats_period_ms, parameters.is_v1,
                         drafter == nullptr ? "" : std::string(drafter->name()));
  responses_ = std::make_unique<ResponseThread>();
  llm::EngineOptions options;
  options.scheduler = parameters.scheduler;
  options.speculation = {.drafter = drafter, .max_draft_tokens = parameters.max_draft_tokens};
  options.scheduler.mixed_step_tokens =
      parameters.mixed_step_tokens.value_or(DefaultMixedStepTokens());
  options.max_queue_size = parameters.max_queue_size;
  options.overlaps_steps = parameters.overlaps_steps;
  if (metrics_ != nullptr) {
    options.on_step_end = [this](const llm::EngineStats& stats) {
      metrics_->Update(stats, lora_->usage());
    };
  }
  if (!parameters.events.endpoint.empty()) {
    KvEventOptions events = parameters.events;
    events.block_size = limits.block_size;
    NEREID_ASSIGN_OR_RETURN(options.kv_events, MakeKvEventPublisher(events));
  }
  options.polls_sinks = false;  // CancellationPoller polls instead
  engine_ = std::make_unique<llm::Engine>(std::move(options), std::move(executor));
  cancellation_poller_ =
      std::make_unique<CancellationPoller>([this] { engine_->CheckCancellations(); });
  grammar::CompilerLimits compiler_limits;
  compiler_limits.grammar.max_json_whitespace = parameters.max_json_whitespace;
  compiler_ = std::make_unique<grammar::GrammarCompiler>(
      [this]() -> Result<std::shared_ptr<const grammar::Vocabulary>> {
        NEREID_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer_->Get());
        return grammar::Vocabulary::Make(*tokenizer, defaults_.end_ids, defaults_.vocab_size);
      },
      compiler_limits);
  LogInfo(StrCat("model '", name(), "': ", architecture, " from '", parameters.checkpoint_directory,
                 "', up to ", limits.max_positions, " tokens a sequence, ",
                 limits.max_num_sequences, " sequences at a time, KV cache of ",
                 int64_t{limits.num_blocks} * limits.block_size, " tokens"));
  return {};
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
  if (error.ok() && client->unused_temperature) NoteUnusedTemperature(*client->unused_temperature);
  if (error.ok() && !client->noted_inputs.empty()) NoteInputs(*client);
  if (!error.ok()) {
    (void)request.Fail(error);
  } else if (client->is_stop) {
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

// Once for each model, because clients usually repeat what they send.
void LlmModel::NoteUnusedTemperature(float temperature) {
  if (has_noted_temperature_.exchange(true)) return;
  LogWarning(StrCat("model '", name(), "': a request has 'temperature' ", temperature,
                    " without runtime_top_k, runtime_top_p and min_p. It is greedy, as with "
                    "TensorRT-LLM, so that the temperature has no effect. To sample, send "
                    "runtime_top_p 1, or set the parameter sampling_defaults to "
                    "generation_config"));
}

// Once for each input of the model.
void LlmModel::NoteInputs(const ClientRequest& client) {
  const std::lock_guard lock(noted_inputs_mutex_);
  for (const EngineInput* const input : client.noted_inputs) {
    const auto first = noted_inputs_.begin(), last = noted_inputs_.end();
    if (std::find(first, last, input) != last) continue;
    noted_inputs_.push_back(input);
    LogInfo(StrCat("model '", name(), "': ", NoteOf(*input)));
  }
}

Status LlmModel::CheckTokenizer(const LlmParameters& parameters, int64_t vocab_size) {
  const auto folder_of = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::weakly_canonical(path, ignored);
  };
  if (folder_of(parameters.tokenizer_path) == folder_of(parameters.checkpoint_directory)) return {};
  const auto tokenizer = tokenizer_->Get();
  if (!tokenizer.ok()) return {};
  const tokenizer::VocabularyFit fit = tokenizer::CompareVocabulary(**tokenizer, vocab_size);
  if (fit.is_refused) return InvalidArgError("parameter 'tokenizer_dir': ", fit.fault);
  if (!fit.fault.empty()) {
    LogWarning(StrCat("model '", name(), "': parameter 'tokenizer_dir': ", fit.fault));
  }
  return {};
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
  Register(active_request);
  cancellation_poller_->Add(active_request);
  for (size_t item = 0; item < client.items.size(); ++item) {
    auto engine_request = std::make_unique<llm::GenerationRequest>();
    engine_request->prompt = std::move(client.items[item].prompt);
    if (const auto& embeddings = client.items[item].embeddings; embeddings != nullptr) {
      virtual_tokens_->Assign(*embeddings);
      embeddings->SetIds(engine_request->prompt);
      engine_request->embeddings = embeddings;
    }
    engine_request->sampling = std::move(client.items[item].sampling);
    engine_request->stop = std::move(client.items[item].stop);
    engine_request->beams = client.items[item].beams;
    engine_request->num_sequences = client.items[item].num_sequences;
    engine_request->output_fills_cache = client.items[item].output_fills_context;
    engine_request->speculates = client.speculates;
    engine_request->draft_ids = std::move(client.items[item].drafts.ids);
    engine_request->draft_logits = std::move(client.items[item].drafts.logits);
    engine_request->draft_threshold = client.items[item].drafts.threshold;
    engine_request->priority = client.items[item].priority;
    engine_request->cache_salt = client.items[item].cache_salt;
    engine_request->retention = std::move(client.items[item].retention);
    engine_request->returns_context_logits = client.items[item].returns_context_logits;
    engine_request->returns_generation_logits = client.items[item].returns_generation_logits;
    engine_request->returns_prompt_log_probs = client.items[item].returns_prompt_log_probs;
    engine_request->num_prompt_top_log_probs = client.items[item].num_prompt_top_log_probs;
    engine_request->reasoning = std::move(client.items[item].reasoning);
    engine_request->adapter = std::move(client.items[item].adapter);
    engine_request->sink = active_request->MakeSink(
        item, std::move(client.items[item].stop_strings),
        std::move(client.items[item].stop_reasons), lora_->Use(engine_request->adapter.get()));
    if (client.items[item].guide) {
      CompileAndEnqueue(active_request, item, std::move(*client.items[item].guide),
                        std::move(engine_request));
    } else if (const Status queued = engine_->Enqueue(engine_request); !queued.ok()) {
      active_request->PostError(item, queued);
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
  {
    const std::lock_guard lock(requests_mutex_);
    const auto [first, last] = requests_by_id_.equal_range(id);
    for (auto it = first; it != last; ++it) {
      if (const std::shared_ptr<ActiveRequest> active_request = it->second.lock())
        active_request->Cancel();
    }
  }
  engine_->CheckCancellations();
  // A response without outputs, as that of TensorRT-LLM's backend, even if there was no request to
  // stop. Its clients take output ids for the answer of the stopped request.
  ResponseSender sender = std::move(request).IntoSender();
  Result<Response> response = sender.NewResponse();
  const Status answered =
      response.ok() ? sender.Send(std::move(*response), /*is_final=*/true) : response.status();
  if (!answered.ok() && sender.is_open()) (void)sender.Fail(answered);
}

void LlmModel::Register(const std::shared_ptr<ActiveRequest>& active_request) {
  if (active_request->id().empty()) return;
  const std::lock_guard lock(requests_mutex_);
  // Remove ended requests whenever the number of entries has doubled.
  if (requests_by_id_.size() >= cleanup_size_) {
    std::erase_if(requests_by_id_, [](const auto& entry) { return entry.second.expired(); });
    cleanup_size_ = std::max<size_t>(64, 2 * requests_by_id_.size());
  }
  requests_by_id_.emplace(active_request->id(), active_request);
}

}  // namespace nereid::llm
