#include "backends/python_like_scripted/host_calls.h"

#include <charconv>
#include <utility>

namespace nereid::python {
namespace {

template <typename Write>
std::string Value(const Write& write) {
  MarshalWriter writer;
  write(writer);
  return writer.Take();
}

std::string BoolValue(bool value) {
  return Value([&](MarshalWriter& writer) { writer.Bool(value); });
}
std::string IntValue(int64_t value) {
  return Value([&](MarshalWriter& writer) { writer.Int(value); });
}
std::string NoValue() {
  return Value([](MarshalWriter& writer) { writer.None(); });
}

MetricFamily::Labels ReadLabels(MarshalReader& message) {
  MetricFamily::Labels labels;
  const uint32_t count = message.Tuple();
  for (uint32_t i = 0; i < count && message.status().ok(); ++i) {
    message.TupleOf(2);
    std::string name(message.Text());
    labels.emplace_back(std::move(name), message.Text());
  }
  return labels;
}

// Posts the answer. `call` is 0 if the worker does not wait for an answer; then nothing is posted.
void Reply(Worker& worker, int64_t call, const Status& status, const std::string& value = "N") {
  if (call == 0) return;
  MarshalWriter writer;
  writer.Tuple(4);
  writer.Int(static_cast<int64_t>(HostMessage::kReply));
  writer.Int(call);
  writer.Bool(status.ok());
  if (status.ok()) {
    writer.Encoded(value);
  } else {
    writer.Tuple(2);
    writer.Int(static_cast<int64_t>(status.code()));
    writer.Text(status.message());
  }
  const Status posted = worker.Post(writer.Take());
  if (posted.ok()) return;
  // There was no shared memory for a long answer, and the worker waits: posts that error instead.
  if (status.ok() || status.message() != posted.message()) Reply(worker, call, posted, "");
}

// Parses a version; -1, the newest one, for an empty text.
Result<int64_t> VersionOf(const std::string& text) {
  if (text.empty()) return -1;
  int64_t version = -1;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, version);
  const bool is_number = error == std::errc() && stop == end;
  if (is_number && version >= 0) return version;
  return InvalidArgError("failed to get model version from specified version string '", text, "'",
                         is_number ? "" : " (details: stol)",
                         ", version should be an integral value > 0");
}

bool IsMetric(Operation operation) {
  return operation >= Operation::kNewMetricFamily && operation <= Operation::kDeleteMetricFamily;
}

}  // namespace

HostCalls::HostCalls(const InstanceContext& instance, OpenRequests& open,
                     DeferredCalls& deferred_calls, std::shared_ptr<Worker> worker)
    : server_(instance.model().server()),
      open_(open),
      worker_(std::move(worker)),
      infer_calls_(instance.model().server(), open, worker_),
      deferred_calls_(deferred_calls) {}

Status HostCalls::OnCall(MarshalReader& message) {
  const int64_t call = message.Int();
  const auto operation = static_cast<Operation>(message.Int());
  NEREID_RETURN_IF_ERROR(message.status());
  if (operation == Operation::kInfer) return infer_calls_.Start(call, message);
  if (operation == Operation::kLoadModel || operation == Operation::kUnloadModel) {
    return ControlModel(call, operation, message);
  }
  if (operation == Operation::kAwaitRoom) return AwaitRoom(call, message);
  if (operation == Operation::kIsModelReady) return CheckModelReady(call, message);
  const Result<std::string> value = Answer(operation, message);
  NEREID_RETURN_IF_ERROR(message.Finish());
  Reply(*worker_, call, value.status(), value.ok() ? *value : "");
  return {};
}

Status HostCalls::OnCancel(MarshalReader& message) {
  const int64_t call = message.Int();
  NEREID_RETURN_IF_ERROR(message.Finish());
  infer_calls_.Cancel(call);
  return {};
}

Status HostCalls::OnConsumed(MarshalReader& message) {
  const int64_t call = message.Int();
  const int64_t count = message.Int();
  NEREID_RETURN_IF_ERROR(message.Finish());
  infer_calls_.OnConsumed(call, count);
  return {};
}

Status HostCalls::AwaitRoom(int64_t call, MarshalReader& message) {
  message.TupleOf(1);
  const auto key = static_cast<uint64_t>(message.Int());
  NEREID_RETURN_IF_ERROR(message.Finish());
  if (open_.HasRoom(key)) {
    Reply(*worker_, call, {}, NoValue());
  } else {
    waiting_senders_.push_back({call, key});
  }
  return {};
}

bool HostCalls::ServeWaiting() {
  std::erase_if(waiting_senders_, [this](const WaitingSender& sender) {
    if (!open_.HasRoom(sender.request_key)) return false;
    Reply(*worker_, sender.call, {}, NoValue());
    return true;
  });
  return infer_calls_.ReleaseStalled() || !waiting_senders_.empty();
}

// Reads all of its arguments even if the call fails.
Result<std::string> HostCalls::Answer(Operation operation, MarshalReader& message) {
  if (IsMetric(operation)) return CallMetric(operation, message);
  message.TupleOf(1);
  const auto key = static_cast<uint64_t>(message.Int());
  NEREID_RETURN_IF_ERROR(message.status());
  if (operation == Operation::kIsCancelled) return BoolValue(open_.IsCancelled(key));
  if (operation == Operation::kTraceContext) return TraceContext(key);
  message.Fail(StrCat("unknown operation ", static_cast<int32_t>(operation)));
  return message.status();
}

Result<std::string> HostCalls::TraceContext(uint64_t request_key) {
  std::string value = NoValue();
  NEREID_RETURN_IF_ERROR(open_.With(request_key, [&](Request& request) -> Status {
    TRITONSERVER_InferenceTrace* trace = nullptr;
    const char* context = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONBACKEND_RequestTrace(request.handle(), &trace)));
    if (trace == nullptr) return {};
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_InferenceTraceContext(trace, &context)));
    if (context != nullptr && *context != '\0') {
      value = Value([&](MarshalWriter& writer) { writer.Text(context); });
    }
    return {};
  }));
  return value;
}

Result<std::string> HostCalls::CallMetric(Operation operation, MarshalReader& message) {
  if (operation == Operation::kNewMetricFamily) {
    message.TupleOf(3);
    const std::string name(message.Text());
    const std::string description(message.Text());
    const int64_t kind = message.Int();
    NEREID_RETURN_IF_ERROR(message.status());
    NEREID_ASSIGN_OR_RETURN(const int64_t key, metrics_.NewFamily(kind, name, description));
    return IntValue(key);
  }
  if (operation == Operation::kNewMetric) {
    message.TupleOf(3);
    const int64_t family = message.Int();
    const MetricFamily::Labels labels = ReadLabels(message);
    std::vector<double> buckets;
    const bool has_buckets = !message.TakeNone();
    const uint32_t count = has_buckets ? message.Tuple() : 0;
    for (uint32_t i = 0; i < count && message.status().ok(); ++i) {
      buckets.push_back(message.Float());
    }
    NEREID_RETURN_IF_ERROR(message.status());
    NEREID_ASSIGN_OR_RETURN(const int64_t key,
                            metrics_.New(family, labels, has_buckets ? &buckets : nullptr));
    return IntValue(key);
  }
  const uint32_t count = message.Tuple();
  const int64_t key = message.Int();
  const double number = count == 2 ? message.Float() : 0;
  NEREID_RETURN_IF_ERROR(message.status());
  if (operation == Operation::kDeleteMetric) {
    metrics_.Delete(key);
    return NoValue();
  }
  if (operation == Operation::kDeleteMetricFamily) {
    metrics_.DeleteFamily(key);
    return NoValue();
  }
  NEREID_ASSIGN_OR_RETURN(Metric * metric, metrics_.Find(key));
  if (operation == Operation::kMetricValue) {
    NEREID_ASSIGN_OR_RETURN(const double value, metric->Value());
    return Value([&](MarshalWriter& writer) { writer.Float(value); });
  }
  NEREID_RETURN_IF_ERROR(operation == Operation::kIncrementMetric ? metric->Increment(number)
                         : operation == Operation::kSetMetric     ? metric->Set(number)
                                                                  : metric->Observe(number));
  return NoValue();
}

Status HostCalls::ControlModel(int64_t call, Operation operation, MarshalReader& message) {
  const bool is_load = operation == Operation::kLoadModel;
  std::string config;
  bool with_dependents = false;
  std::vector<std::pair<std::string, std::string>> files;
  message.TupleOf(is_load ? 3 : 2);
  std::string name(message.Text());
  if (is_load) {
    config = message.Text();
    const uint32_t count = message.Tuple();
    for (uint32_t i = 0; i < count && message.status().ok(); ++i) {
      message.TupleOf(2);
      std::string path(message.Text());
      files.emplace_back(std::move(path), message.Bytes());
    }
  } else {
    with_dependents = message.Bool();
  }
  NEREID_RETURN_IF_ERROR(message.Finish());
  Defer(call, [=, worker = worker_, handle = server_.get()] {
    const Server server = Server::Borrow(handle);
    if (!is_load) return Reply(*worker, call, server.UnloadModel(name.c_str(), with_dependents));
    std::vector<Parameter> parameters;
    if (!config.empty()) parameters.push_back(Parameter::String("config", config));
    for (const auto& [path, bytes] : files) parameters.push_back(Parameter::Bytes(path, bytes));
    Reply(*worker, call, server.LoadModel(name.c_str(), parameters));
  });
  return {};
}

Status HostCalls::CheckModelReady(int64_t call, MarshalReader& message) {
  message.TupleOf(2);
  const std::string name(message.Text());
  const Result<int64_t> version = VersionOf(std::string(message.Text()));
  NEREID_RETURN_IF_ERROR(message.Finish());
  if (!version.ok()) {
    Reply(*worker_, call, version.status());
    return {};
  }
  Defer(call, [=, number = *version, worker = worker_, handle = server_.get()] {
    const Result<bool> is_ready = Server::Borrow(handle).IsModelReady(name.c_str(), number);
    Reply(*worker, call, is_ready.status(), BoolValue(is_ready.ok() && *is_ready));
  });
  return {};
}

void HostCalls::Defer(int64_t call, std::function<void()> work) {
  if (Status status = deferred_calls_.Run(std::move(work)); !status.ok())
    Reply(*worker_, call, status);
}

}  // namespace nereid::python
