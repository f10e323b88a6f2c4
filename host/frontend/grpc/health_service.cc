// See health_service.h.
#include "host/frontend/grpc/health_service.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/thread.h"
#include "grpc_service.pb.h"
#include "host/frontend/client_input.h"
#include "host/frontend/grpc/service_calls.h"

namespace nereid {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;

namespace {

constexpr char kInferenceService[] = "inference.GRPCInferenceService";
constexpr std::chrono::milliseconds kPollInterval(250);

// True if `service` means the whole server.
bool IsServer(std::string_view service) {
  return service.empty() || service == kInferenceService;
}

}  // namespace

// One Watch call: sends the status whenever it differs from the last one sent. [loop threads,
// poller thread]
class HealthWatch final : public CallHandler,
                          public DrainableCall,
                          public std::enable_shared_from_this<HealthWatch> {
 public:
  using ServingStatus = HealthCheckResponse::ServingStatus;

  HealthWatch(Call& call, std::string service, DrainableCalls& drainable_calls)
      : call_(call), service_(std::move(service)), drainable_calls_(drainable_calls) {}

  void Start(ServingStatus status) {
    self_ = shared_from_this();
    drainable_calls_.Add(self_);
    Update(status);
  }

  const std::string& service() const { return service_; }

  void Update(ServingStatus status) {
    const std::lock_guard lock(mutex_);
    latest_ = status;
    Advance();
  }
  void EndWhenIdle() override { End({GrpcCode::kUnavailable, "the server is stopping"}); }

 private:
  void OnWriteDone() override {
    const std::lock_guard lock(mutex_);
    is_writing_ = false;
    Advance();
  }
  void OnCancel() override { End({GrpcCode::kCancelled, "the client cancelled the call"}); }
  void OnDone() override {
    drainable_calls_.Remove(this);
    self_.reset();
  }

  void End(CallStatus status) {
    const std::lock_guard lock(mutex_);
    if (!end_status_.has_value()) end_status_ = std::move(status);
    Advance();
  }
  // Requires mutex_.
  void Advance() {
    if (is_writing_ || is_finished_) return;
    if (end_status_.has_value()) {
      is_finished_ = true;
      call_.Finish(*end_status_);
    } else if (sent_ != latest_) {
      sent_ = latest_;
      is_writing_ = true;
      HealthCheckResponse response;
      response.set_status(*latest_);
      call_.Write(Serialize(response));
    }
  }

  Call& call_;  // must not be used after it is finished
  const std::string service_;
  DrainableCalls& drainable_calls_;
  std::shared_ptr<HealthWatch> self_;  // until OnDone
  std::mutex mutex_;                   // guards all below
  std::optional<ServingStatus> latest_;
  std::optional<ServingStatus> sent_;
  std::optional<CallStatus> end_status_;
  bool is_writing_ = false;
  bool is_finished_ = false;
};

HealthService::HealthService(const Server& server, DrainableCalls& drainable_calls,
                             const AccessControl& access)
    : server_(server),
      drainable_calls_(drainable_calls),
      access_(access),
      poller_(StartThread([this] { PollForWatches(); })) {}

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
  if (IsServer(service)) return as_status(server_.IsReady());
  if (!RejectZeroByte("service", service).ok()) return HealthCheckResponse::SERVICE_UNKNOWN;
  const Result<bool> is_model_ready = server_.IsModelReady(service.c_str());
  if (is_model_ready.ok() && *is_model_ready) return HealthCheckResponse::SERVING;
  // The model is not ready or does not exist; only the repository index distinguishes the two.
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

void HealthService::AddTo(MethodTable& table) {
  // Watch is server streaming: it takes one request message, so it starts like a unary call.
  const auto check = [this](Call& call, const Slice& bytes) { return Check(call, bytes); };
  const auto watch = [this](Call& call, const Slice& bytes) { return Watch(call, bytes); };
  const auto admit = [this](Call& call) {
    return Authenticate(access_, call, ApiOperation::kServerHealth);
  };
  table.Add("/grpc.health.v1.Health/Check", {.admit = admit, .unary = check, .stream = nullptr});
  table.Add("/grpc.health.v1.Health/Watch", {.admit = admit, .unary = watch, .stream = nullptr});
}

bool HealthService::Admit(Call& call, const Slice& bytes, HealthCheckRequest& request) const {
  if (const Status status = ParseMessage(bytes, request); !status.ok()) {
    call.Finish(ToCallStatus(status));
    return false;
  }
  if (IsServer(request.service())) return true;
  return Authenticate(access_, call, ApiOperation::kModelHealth) &&
         Authorize(access_, call, ApiOperation::kModelHealth, request.service());
}

CallHandler* HealthService::Check(Call& call, const Slice& bytes) const {
  HealthCheckRequest request;
  if (!Admit(call, bytes, request)) return nullptr;
  HealthCheckResponse response;
  response.set_status(StatusOf(request.service()));
  const bool is_unknown = response.status() == HealthCheckResponse::SERVICE_UNKNOWN;
  RespondNow(call,
             is_unknown ? NotFoundError("unknown service '", request.service(), "': expected '', '",
                                        kInferenceService, "' or the name of a model")
                        : Status::Ok(),
             response);
  return nullptr;
}

CallHandler* HealthService::Watch(Call& call, const Slice& bytes) {
  HealthCheckRequest request;
  if (!Admit(call, bytes, request)) return nullptr;
  const auto watch = std::make_shared<HealthWatch>(call, request.service(), drainable_calls_);
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
    for (const auto& watch : alive) watch->Update(StatusOf(watch->service()));
    alive.clear();
    lock.lock();
  }
}

}  // namespace nereid
