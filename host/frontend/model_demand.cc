#include "host/frontend/model_demand.h"

#include <algorithm>
#include <utility>

#include "base/thread.h"
#include "host/frontend/http/json/json_reader.h"

namespace nereid {
namespace {

using namespace std::chrono_literals;

constexpr size_t kMaxWaiting = 8192;
constexpr char kStopping[] = "the server shuts down";

class ServerModelControl final : public ModelControl {
 public:
  explicit ServerModelControl(const Server& server) : server_(server) {}

  bool IsReady(const std::string& name) const override {
    const Result<bool> is_ready = server_.IsModelReady(name.c_str());
    return is_ready.ok() && *is_ready;
  }

  bool WasUsedWithin(const std::string& name, std::chrono::seconds time) const override {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const int64_t since_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(now - time).count();
    const Result<int64_t> last_ms = LastInferenceMs(name);
    return last_ms.ok() && *last_ms >= since_ms;
  }

  Status Load(const std::string& name) override { return server_.LoadModel(name.c_str()); }

  Status Unload(const std::string& name) override {
    NEREID_RETURN_IF_ERROR(server_.UnloadModel(name.c_str(), /*unload_dependents=*/true));
    // Requests that have no lease are still answered.
    constexpr auto kMaxWait = 60s;
    const auto deadline = std::chrono::steady_clock::now() + kMaxWait;
    while (IsAnyUnloading()) {
      if (std::chrono::steady_clock::now() > deadline) {
        return UnavailableError("model '", name, "' still answers requests ", kMaxWait.count(),
                                " s after its unload began");
      }
      std::this_thread::sleep_for(2ms);
    }
    return Status::Ok();
  }

 private:
  // Calls on_member for each member of each object of the array that the reader is at.
  template <typename OnMember>
  static Status ReadObjects(http::JsonReader& reader, const OnMember& on_member) {
    return reader.ReadArray([&] { return reader.ReadObject(on_member); });
  }

  bool IsAnyUnloading() const {
    const Result<Message> index = server_.ModelIndex(/*ready_only=*/false);
    if (!index.ok()) return false;
    const Result<std::string_view> json = index->Json();
    if (!json.ok()) return false;
    bool is_any = false;
    http::JsonReader reader(*json, /*max_depth=*/8);
    (void)ReadObjects(reader, [&](std::string_view member) -> Status {
      if (member != "state") return reader.SkipValue();
      NEREID_ASSIGN_OR_RETURN(const std::string_view state, reader.ReadString());
      is_any = is_any || state == "UNLOADING";
      return Status::Ok();
    });
    return is_any;
  }

  // The time of the last inference of any version of the model; 0 if there was none.
  Result<int64_t> LastInferenceMs(const std::string& name) const {
    NEREID_ASSIGN_OR_RETURN(const Message message, server_.ModelStatistics(name.c_str()));
    NEREID_ASSIGN_OR_RETURN(const std::string_view json, message.Json());
    int64_t last_ms = 0;
    http::JsonReader reader(json, /*max_depth=*/16);
    NEREID_RETURN_IF_ERROR(reader.ReadObject([&](std::string_view key) -> Status {
      if (key != "model_stats") return reader.SkipValue();
      return ReadObjects(reader, [&](std::string_view member) -> Status {
        if (member != "last_inference") return reader.SkipValue();
        NEREID_ASSIGN_OR_RETURN(const int64_t ms, reader.ReadInt64());
        last_ms = std::max(last_ms, ms);
        return Status::Ok();
      });
    }));
    return last_ms;
  }

  const Server& server_;
};

}  // namespace

std::unique_ptr<ModelControl> ControlOf(const Server& server) {
  return std::make_unique<ServerModelControl>(server);
}

ModelDemand::ModelDemand(const ModelDemandOptions& options, std::unique_ptr<ModelControl> control)
    : max_bytes_(options.max_bytes), max_idle_(options.max_idle), control_(std::move(control)) {
  for (const ModelDemandOptions::Model& model : options.models) {
    models_[model.name] = {
        .name = model.name, .num_bytes = model.num_bytes, .used_at = Clock::now()};
  }
  thread_ = StartThread([this] { Run(); });
}

void ModelDemand::Stop() {
  {
    const std::scoped_lock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  std::deque<Waiting> ended;
  {
    const std::scoped_lock lock(mutex_);
    ended.swap(waiting_);
  }
  for (const Waiting& waiting : ended) waiting.on_ready(UnavailableError(kStopping));
}

std::vector<std::string> ModelDemand::names() const {
  std::vector<std::string> names;
  for (const auto& [name, model] : models_) names.push_back(name);
  return names;
}

Result<ModelDemand::Lease> ModelDemand::Use(const std::string& name, OnReady on_ready) {
  const std::scoped_lock lock(mutex_);
  if (is_stopping_) return UnavailableError(kStopping);
  Model& model = models_.at(name);
  if (!model.is_changing && control_->IsReady(name)) return MakeLease(model);
  if (waiting_.size() >= kMaxWaiting) {
    return UnavailableError("model '", name, "': ", kMaxWaiting, " requests wait for models that ",
                            "are not loaded");
  }
  waiting_.push_back({&model, std::move(on_ready)});
  changed_.notify_all();
  return Lease();
}

// The caller holds the lock.
ModelDemand::Lease ModelDemand::MakeLease(Model& model) {
  ++model.num_leases;
  model.used_at = Clock::now();
  return {&model, [this, &model](const void*) { Release(model); }};
}

void ModelDemand::Release(Model& model) {
  const std::scoped_lock lock(mutex_);
  model.used_at = Clock::now();
  if (--model.num_leases == 0) changed_.notify_all();
}

void ModelDemand::Run() {
  Lock lock(mutex_);
  while (!is_stopping_) {
    if (!waiting_.empty()) {
      ServeNext(lock);
    } else if (max_idle_.count() == 0) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, 500ms);
      UnloadIdle(lock);
    }
  }
}

// Loads the model that the oldest request waits for, and lets all requests go on that wait for it.
void ModelDemand::ServeNext(Lock& lock) {
  Model& model = *waiting_.front().model;
  const Status status = MakeReady(model, lock);
  if (is_stopping_) return;
  std::vector<std::pair<OnReady, Result<Lease>>> ready;
  for (Waiting& waiting : waiting_) {
    if (waiting.model != &model) continue;
    Result<Lease> lease = status.ok() ? Result<Lease>(MakeLease(model)) : Result<Lease>(status);
    ready.emplace_back(std::move(waiting.on_ready), std::move(lease));
  }
  std::erase_if(waiting_, [&](const Waiting& waiting) { return waiting.model == &model; });
  lock.unlock();
  for (auto& [on_ready, lease] : ready) on_ready(std::move(lease));
  ready.clear();  // leases that nobody has taken are released without the lock
  lock.lock();
}

Status ModelDemand::MakeReady(Model& model, Lock& lock) {
  if (control_->IsReady(model.name)) return Status::Ok();
  model.is_changing = true;
  Status status = MakeRoomFor(model, lock);
  if (status.ok() && !is_stopping_) {
    lock.unlock();
    status = control_->Load(model.name);
    lock.lock();
  }
  model.is_changing = false;
  return status;
}

Status ModelDemand::MakeRoomFor(const Model& model, Lock& lock) {
  while (!is_stopping_ && max_bytes_ != 0 && BytesBeside(model) + model.num_bytes > max_bytes_) {
    Model* const victim = ChooseVictim(model);
    if (victim == nullptr) {
      return UnavailableError("model '", model.name, "' needs ", model.num_bytes,
                              " bytes; the memory budget is ", max_bytes_, " bytes");
    }
    NEREID_RETURN_IF_ERROR(Unload(*victim, lock));
  }
  return Status::Ok();
}

uint64_t ModelDemand::BytesBeside(const Model& model) const {
  uint64_t num_bytes = 0;
  for (const auto& [name, other] : models_) {
    if (&other != &model && control_->IsReady(name)) num_bytes += other.num_bytes;
  }
  return num_bytes;
}

// A model without requests leaves first, and of these the one that was used longest ago.
ModelDemand::Model* ModelDemand::ChooseVictim(const Model& model) {
  Model* victim = nullptr;
  const auto rank = [](const Model& each) { return std::pair(each.num_leases != 0, each.used_at); };
  for (auto& [name, other] : models_) {
    if (&other == &model || !control_->IsReady(name)) continue;
    if (victim == nullptr || rank(other) < rank(*victim)) victim = &other;
  }
  return victim;
}

// Waits until the model has answered its requests, and unloads it.
Status ModelDemand::Unload(Model& model, Lock& lock) {
  model.is_changing = true;
  changed_.wait(lock, [&] { return is_stopping_ || model.num_leases == 0; });
  Status status;
  if (!is_stopping_) {
    lock.unlock();
    status = control_->Unload(model.name);
    lock.lock();
  }
  model.is_changing = false;
  return status;
}

void ModelDemand::UnloadIdle(Lock& lock) {
  for (auto& [name, model] : models_) {
    if (is_stopping_ || !waiting_.empty()) return;
    const bool is_idle = model.num_leases == 0 && Clock::now() - model.used_at > max_idle_;
    if (!is_idle || !control_->IsReady(name) || control_->WasUsedWithin(name, max_idle_)) continue;
    (void)Unload(model, lock);  // a model that is not unloaded stays, and is tried again
  }
}

}  // namespace nereid
