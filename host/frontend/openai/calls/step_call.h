// One request to a model that another model's ensemble uses, without the rest of the ensemble.
// [loop thread]
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "host/frontend/http/calls/model_call.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/http_connection.h"
#include "nereid/infer_response.h"
#include "nereid/status.h"

namespace nereid::openai {

class StepCall final : public http::ModelCall {
 public:
  // Gets the outputs of the response, or why there are none, and answers the connection or starts a
  // further call. The views are valid until it returns.
  using Handler =
      std::function<void(http::HttpConnection&, const Result<std::vector<OutputView>>&)>;

  // On an error the connection must still be answered.
  static Status Start(http::KServeContext& context, http::HttpConnection& connection,
                      const std::string& model, http::InputTensors inputs,
                      const std::string& output, Handler handler);

  StepCall(http::KServeContext& context, http::HttpConnection& connection, http::RequestBody body,
           http::InputTensors inputs, Handler handler)
      : ModelCall(context, connection, std::move(body), std::move(inputs)),
        handler_(std::move(handler)) {}

 private:
  void OnModelResponse(InferResponse response) override;
  void OnModelEnd() override;

  const Handler handler_;
  InferResponse response_;
};

// The views of a response without an error.
Result<std::vector<OutputView>> OutputsOf(const InferResponse& response);

}  // namespace nereid::openai
