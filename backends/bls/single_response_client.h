// Answers a request of a model that is not decoupled. The engine that it calls is, and may announce
// the end of its answer after the answer itself; so the one response is kept until the end is
// known. [as ClientRequest]
#pragma once

#include <optional>

#include "backends/ensemble/step_models.h"

namespace nereid::bls {

class SingleResponseClient : public ensemble::ClientRequest {
 public:
  // `client` outlives this object. `model_name` appears in errors.
  SingleResponseClient(ensemble::ClientRequest& client, std::string model_name)
      : client_(client), model_name_(std::move(model_name)) {}

  bool IsCancelled() override { return client_.IsCancelled(); }
  // A second response is an error: the client asked for a stream, or for several sequences.
  void Send(const ensemble::EnsembleResponse& response, bool is_final) override;
  void SendError(const Status& error) override;
  void SendFinal() override;
  void Release() override { client_.Release(); }

 private:
  ensemble::ClientRequest& client_;
  const std::string model_name_;
  std::optional<ensemble::EnsembleResponse> kept_;
  bool has_failed_ = false;
};

}  // namespace nereid::bls
