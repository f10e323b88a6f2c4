#include "host/frontend/openai/calls/step_call.h"

#include <memory>
#include <utility>

namespace nereid::openai {

Status StepCall::Start(http::KServeContext& context, http::HttpConnection& connection,
                       const std::string& model, http::InputTensors inputs,
                       const std::string& output, Handler handler) {
  std::vector<http::RequestedOutput> outputs(1);
  outputs[0].name = output;
  NEREID_ASSIGN_OR_RETURN(InferRequest request,
                          http::BuildRequest(context.server, {model}, {}, inputs, outputs));
  http::RequestBody body{.memory = {}, .reservation = ByteReservation(connection.budget())};
  NEREID_RETURN_IF_ERROR(http::ReserveInputs(inputs, body.reservation));
  return Launch(std::make_unique<StepCall>(context, connection, std::move(body), std::move(inputs),
                                           std::move(handler)),
                std::move(request), /*trace=*/nullptr);
}

void StepCall::OnModelResponse(InferResponse response) {
  if (response_.empty()) response_ = std::move(response);
}

void StepCall::OnModelEnd() {
  if (response_.empty()) {
    return handler_(*connection(), InternalError("the model has sent no response"));
  }
  handler_(*connection(), OutputsOf(response_));
}

Result<std::vector<OutputView>> OutputsOf(const InferResponse& response) {
  NEREID_RETURN_IF_ERROR(response.Error());
  NEREID_ASSIGN_OR_RETURN(const uint32_t count, response.OutputCount());
  std::vector<OutputView> outputs;
  outputs.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    NEREID_ASSIGN_OR_RETURN(const OutputView output, response.Output(i));
    outputs.push_back(output);
  }
  return outputs;
}

}  // namespace nereid::openai
