// See health_service.h.
#include "health_service.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "grpc_service.pb.h"
#include "json_to_proto.h"
#include "restriction.h"
#include "status_code.h"

namespace nereid {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

constexpr char kInferenceService[] = "inference.GRPCInferenceService";
constexpr std::chrono::milliseconds kPollInterval(250);

// Ends at once.
class RefusedWatch final : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  explicit RefusedWatch(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

// One Watch call: sends the state when it differs from the one sent before. [gRPC threads, poller]
class HealthWatch final : public grpc::ServerWriteReactor<HealthCheckResponse>,
                          public LongCall,
                          public std::enable_shared_from_this<HealthWatch> {
 public:
  using ServingStatus = HealthCheckResponse::ServingStatus;

  HealthWatch(std::string service, LongCalls& long_calls)
      : service_(std::move(service)), long_calls_(long_calls) {}

  void Start(ServingStatus status) {
    self_ = shared_from_this();
    long_calls_.Add(self_);
    Tell(status);
  }

  const std::string& service() const { return service_; }

  void Tell(ServingStatus status) {
    const std::lock_guard lock(mutex_);
    latest_ = status;
    Advance();
  }
  void EndWhenIdle() override { End({grpc::StatusCode::UNAVAILABLE, "the server is stopping"}); }

 private:
  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(mutex_);
    is_writing_ = false;
    Advance();
  }
  void OnCancel() override { End({grpc::StatusCode::CANCELLED, "the client cancelled the call"}); }
  void OnDone() override {
    long_calls_.Remove(this);
    self_.reset();
  }

  void End(grpc::Status status) {
    const std::lock_guard lock(mutex_);
    if (!end_status_.has_value()) end_status_ = std::move(status);
    Advance();
  }
  // Requires mutex_.
  void Advance() {
    if (is_writing_ || is_finished_) return;
    if (end_status_.has_value()) {
      is_finished_ = true;
      Finish(*end_status_);
    } else if (sent_ != latest_) {
      sent_ = latest_;
      is_writing_ = true;
      response_.set_status(*latest_);
      StartWrite(&response_);
    }
  }

  const std::string service_;
  LongCalls& long_calls_;
  std::shared_ptr<HealthWatch> self_;  // until OnDone
  std::mutex mutex_;                   // guards all below
  std::optional<ServingStatus> latest_;
  std::optional<ServingStatus> sent_;
  std::optional<grpc::Status> end_status_;
  HealthCheckResponse response_;  // what is being written
  bool is_writing_ = false;
  bool is_finished_ = false;
};

HealthService::HealthService(const Server& server, LongCalls& long_calls,
                             const RestrictedApis& restricted)
    : server_(server),
      long_calls_(long_calls),
      restricted_(restricted),
      poller_([this] { PollForWatches(); }) {}

HealthService::~HealthService() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  poller_.join();
}

HealthService::ServingStatus HealthService::StatusOf(const std::string& service) const {
  const auto as_status = [](const Result<bool>& is_ready) {
    return is_ready.ok() && *is_ready ? HealthCheckResponse::SERVING
                                      : HealthCheckResponse::NOT_SERVING;
  };
  if (service.empty() || service == kInferenceService) return as_status(server_.IsReady());
  const Result<bool> is_model_ready = server_.IsModelReady(service.c_str());
  if (is_model_ready.ok() && *is_model_ready) return HealthCheckResponse::SERVING;
  // Not ready, or not there: only the index can tell.
  const Result<Message> index = server_.ModelIndex(/*ready_only=*/false);
  if (!index.ok()) return HealthCheckResponse::NOT_SERVING;
  const Result<std::string_view> json = index->Json();
  inference::RepositoryIndexResponse models;
  if (!json.ok() || !JsonToProto(StrCat("{\"models\":", *json, "}"), models).ok()) {
    return HealthCheckResponse::NOT_SERVING;
  }
  const bool is_known = std::any_of(models.models().begin(), models.models().end(),
                                    [&](const auto& model) { return model.name() == service; });
  return is_known ? HealthCheckResponse::NOT_SERVING : HealthCheckResponse::SERVICE_UNKNOWN;
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* call,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  if (!IsAllowed(restricted_, ApiGroup::kHealth, *call)) {
    reactor->Finish(Restricted(restricted_, ApiGroup::kHealth));
    return reactor;
  }
  const ServingStatus status = StatusOf(request->service());
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) {
    reactor->Finish(
        ToGrpc(NotFoundError("unknown service '", request->service(), "': expected '', '",
                             kInferenceService, "' or the name of a model")));
  } else {
    response->set_status(status);
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext* call, const HealthCheckRequest* request) {
  if (!IsAllowed(restricted_, ApiGroup::kHealth, *call)) {
    return new RefusedWatch(Restricted(restricted_, ApiGroup::kHealth));
  }
  const auto watch = std::make_shared<HealthWatch>(request->service(), long_calls_);
  watch->Start(StatusOf(watch->service()));
  {
    const std::lock_guard lock(mutex_);
    watches_.push_back(watch);
  }
  changed_.notify_one();
  return watch.get();
}

void HealthService::PollForWatches() {
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    if (watches_.empty()) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_for(lock, kPollInterval);
    std::vector<std::shared_ptr<HealthWatch>> alive;
    for (const auto& watch : watches_) {
      if (auto held = watch.lock()) alive.push_back(std::move(held));
    }
    watches_.assign(alive.begin(), alive.end());
    lock.unlock();
    for (const auto& watch : alive) watch->Tell(StatusOf(watch->service()));
    alive.clear();
    lock.lock();
  }
}

}  // namespace nereid
