#include "backends/bls/single_response_client.h"

namespace nereid::bls {

void SingleResponseClient::Send(const ensemble::EnsembleResponse& response, bool is_final) {
  if (has_failed_) return;
  if (kept_) {
    return SendError(
        InvalidArgError("model '", model_name_,
                        "' sends one response to a request, and this one has several: a stream "
                        "('stream' is true) or "
                        "several sequences need `model_transaction_policy { decoupled: true }`"));
  }
  if (is_final) return client_.Send(response, true);
  kept_ = response;
}

void SingleResponseClient::SendError(const Status& error) {
  if (has_failed_) return;
  has_failed_ = true;
  kept_.reset();
  client_.SendError(error);
}

void SingleResponseClient::SendFinal() {
  if (has_failed_) return;
  if (!kept_) return SendError(InternalError("model '", model_name_, "': no response arrived"));
  client_.Send(*kept_, true);
  kept_.reset();
}

}  // namespace nereid::bls
