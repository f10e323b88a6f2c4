// Converts the tensors of a client's request to generation requests for the engine, one for each
// item of the batch. [instance thread]
#pragma once

#include "backends/llm_core/adapter/client_request.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/backend.h"

namespace nereid::llm {

// What the configuration and the checkpoint say of requests. The caller sets what depends on the
// executor: its limits, the tokenizer and the adapters. [load thread]
RequestDefaults MakeRequestDefaults(const ModelConfig& config, const LlmParameters& parameters,
                                    const DecoderSpec& spec);

// INVALID_ARG or UNSUPPORTED names the tensor, its value and the expected one.
Result<ClientRequest> ReadRequest(Request& request, const RequestDefaults& defaults);

}  // namespace nereid::llm
