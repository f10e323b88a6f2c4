#include "backends/python_like_scripted/session.h"

#include <deque>
#include <iterator>
#include <limits>
#include <utility>

#include "backends/python_like_scripted/host_calls.h"
#include "backends/python_like_scripted/request_codec.h"

namespace nereid::python {
namespace {

constexpr std::chrono::seconds kReadyTimeout{5};
// Outcomes that the worker sends in place of a response.
constexpr int64_t kRescheduled = 2;
constexpr int64_t kCancelled = 3;
// Limits of the commands that are sent ahead of the one that executes: message bytes, which must
// fit into the socket (longer messages are in shared memory), and bytes of the tensors that they
// refer to.
constexpr uint64_t kMaxMessageBytesAhead = kMaxPacketBytes;
constexpr uint64_t kMaxTensorBytesAhead = 4 << 20;
constexpr int64_t kFinalFlag = TRITONSERVER_RESPONSE_COMPLETE_FINAL;

void ReleaseAll(std::span<const SharedBlock> blocks) {
  for (const SharedBlock& block : blocks) block.Release();
}

const char* KindName(TRITONSERVER_InstanceGroupKind kind) {
  return TRITONSERVER_InstanceGroupKindString(kind);
}

}  // namespace

bool Session::UnansweredBytes::IsBelowLimit() const {
  return messages < kMaxMessageBytesAhead && tensors < kMaxTensorBytesAhead;
}

Session::Session(std::unique_ptr<Worker> worker, OpenRequests& open, DeferredCalls& deferred_calls,
                 SessionOwner& owner, const InstanceContext& instance)
    : worker_(std::move(worker)),
      open_(open),
      owner_(owner),
      instance_(instance),
      is_decoupled_(instance.model().config().is_decoupled()),
      calls_(std::make_unique<HostCalls>(instance, open, deferred_calls, worker_)) {
  worker_->SetInstance(instance.name());
  worker_->SetListener(this);
}

// Joins the worker thread first, because it uses members of the session.
Session::~Session() {
  worker_->End();
  calls_->CancelAll();
}

Status Session::Initialize(std::chrono::milliseconds timeout) {
  const ModelContext& model = instance_.model();
  const std::pair<const char*, std::string> arguments[] = {
      {"model_config", model.config().json().Dump()},
      {"model_instance_kind", KindName(instance_.kind())},
      {"model_instance_name", instance_.name()},
      {"model_instance_device_id", std::to_string(instance_.device_id())},
      {"model_repository", model.directory().string()},
      {"model_version", std::to_string(model.version())},
      {"model_name", model.name()}};
  MarshalWriter command;
  command.Tuple(4);
  command.Int(static_cast<int64_t>(WorkerCommand::kInitialize));
  command.Tuple(std::size(arguments));
  for (const auto& [name, value] : arguments) {
    command.Tuple(2);
    command.Text(name);
    command.Text(value);
  }
  command.Text(instance_.name());
  command.Bool(is_decoupled_);
  NEREID_ASSIGN_OR_RETURN(const std::string answer,
                          worker_->RunCommand(command.Take(), timeout, "finish initialize"));
  MarshalReader reader(answer);
  reader.TupleOf(2);
  (void)reader.Int();
  has_readiness_check_ = reader.Bool();
  worker_->SetServing();
  return reader.Finish();
}

void Session::Execute(const std::vector<uint64_t>& all_keys, std::chrono::milliseconds timeout) {
  std::vector<uint64_t> keys = all_keys;
  std::vector<SharedBlock> blocks;
  std::string command = WriteExecuteCommand(keys, blocks);
  if (keys.empty()) return;
  const Status sent = worker_->Send(std::move(command));
  if (sent.ok()) {
    (void)ReceiveAnswer(keys, timeout);
    return;
  }
  if (!worker_->has_exited()) ReleaseAll(blocks);
  for (const uint64_t key : keys) open_.Fail(key, sent);
}

size_t Session::ExecuteSerially(std::span<const uint64_t> keys, std::chrono::milliseconds timeout) {
  std::deque<UnansweredBytes> ahead;  // sizes of the sent commands, oldest first
  UnansweredBytes unread;             // sum of `ahead`
  size_t num_done = 0;
  while (num_done < keys.size()) {
    while (!worker_->has_exited() && num_done + ahead.size() < keys.size() &&
           (ahead.empty() || unread.IsBelowLimit())) {
      const uint64_t key = keys[num_done + ahead.size()];
      const Result<UnansweredBytes> asked = SendRequest(key, ahead.size());
      if (asked.ok()) {
        unread += *asked;
        ahead.push_back(*asked);
      } else if (ahead.empty() && !worker_->has_exited()) {
        open_.Fail(key, asked.status());
        ++num_done;
      } else {
        break;  // space may be free after the next answer
      }
    }
    if (ahead.empty()) break;
    const uint64_t key = keys[num_done++];
    open_.MarkStarted(key);
    const bool is_answered = ReceiveAnswer({key}, timeout);
    open_.ClearAwaited(key);
    unread -= ahead.front();
    ahead.pop_front();
    if (!worker_->has_exited()) continue;
    open_.Fail(key, worker_->ExitError());  // no response sender can answer it any more
    if (!is_answered) break;  // the worker exited during this request and did not start the others
  }
  return num_done;
}

bool Session::ReceiveAnswer(const std::vector<uint64_t>& keys, std::chrono::milliseconds timeout) {
  Result<std::string> answer = worker_->AwaitAnswer(timeout);
  Status status = answer.ok() ? Finish(keys, *answer) : answer.status();
  if (status.ok()) return true;
  const bool is_invalid = answer.ok();
  if (is_invalid) {
    worker_->Kill(StrCat("it sent an invalid message: ", status.message()));
    status = worker_->ExitError();
  }
  for (const uint64_t key : keys) open_.Fail(key, status);
  return !is_invalid && status.code() != StatusCode::kUnavailable;
}

std::string Session::WriteExecuteCommand(std::vector<uint64_t>& keys,
                                         std::vector<SharedBlock>& blocks) {
  MarshalWriter writer;
  writer.Tuple(3);
  writer.Int(static_cast<int64_t>(WorkerCommand::kExecute));
  const size_t list = writer.Mark();
  writer.Tuple(0);
  std::vector<uint64_t> written;
  for (const uint64_t key : keys) {
    Status status = WriteRequest(key, blocks, writer);
    if (status.ok()) {
      written.push_back(key);
    } else {
      open_.Fail(key, status);
    }
  }
  writer.PatchTuple(list, static_cast<uint32_t>(written.size()));
  writer.None();
  keys = std::move(written);
  return writer.Take();
}

Result<Session::UnansweredBytes> Session::SendRequest(uint64_t key, size_t num_unread) {
  MarshalWriter writer;
  writer.Tuple(3);
  writer.Int(static_cast<int64_t>(WorkerCommand::kExecute));
  writer.Tuple(1);
  std::vector<SharedBlock> blocks;
  NEREID_RETURN_IF_ERROR(WriteRequest(key, blocks, writer));
  writer.Int(static_cast<int64_t>(num_unread));
  std::string command = writer.Take();
  UnansweredBytes bytes{command.size(), 0};
  for (const SharedBlock& block : blocks) bytes.tensors += block.size_bytes;
  Status sent = worker_->Send(std::move(command));
  if (sent.ok()) return bytes;
  if (!worker_->has_exited()) ReleaseAll(blocks);
  return sent;
}

Status Session::WriteRequest(uint64_t key, std::vector<SharedBlock>& blocks,
                             MarshalWriter& writer) {
  const size_t mark = writer.Mark();
  const size_t num_blocks = blocks.size();
  Status status = open_.With(key, [&](Request& request) -> Status {
    NEREID_RETURN_IF_ERROR(EncodeRequest(request, key, *worker_, blocks, writer));
    request.sender().MarkInputsRead();
    return {};
  });
  if (status.ok()) return status;
  writer.Rewind(mark);
  ReleaseAll(std::span(blocks).subspan(num_blocks));
  blocks.resize(num_blocks);
  return std::move(status).WithContext(StrCat("model '", instance_.model().name(), "'"));
}

// (0, (number of posted messages, error or None, responses))
Status Session::Finish(const std::vector<uint64_t>& keys, const std::string& answer) {
  MarshalReader reader(answer);
  reader.TupleOf(2);
  (void)reader.Int();
  reader.TupleOf(3);
  const auto num_posted = static_cast<uint64_t>(reader.Int());
  NEREID_RETURN_IF_ERROR(reader.status());
  worker_->WaitForPosted(num_posted);
  if (!reader.TakeNone()) {
    const Status error = InternalError(reader.Text());
    reader.TupleOf(0);
    NEREID_RETURN_IF_ERROR(reader.Finish());
    for (const uint64_t key : keys) open_.Fail(key, error);
    return {};
  }
  reader.TupleOf(static_cast<uint32_t>(keys.size()));
  for (const uint64_t key : keys) {
    if (reader.TakeNone()) continue;  // its response sender answers it, now or later
    if (reader.Next() == 'i') {
      const int64_t outcome = reader.Int();
      if (outcome == kRescheduled) {
        open_.Reschedule(key);
      } else if (outcome == kCancelled) {
        open_.FailNotExecuted(key, CancelledError("request to model '", instance_.model().name(),
                                                  "' was cancelled before it ran"));
      } else {
        reader.Fail(StrCat("unknown outcome ", outcome, " in place of a response"));
      }
      continue;
    }
    PackedResponse response = ReadResponse(reader, worker_->from_worker(), &worker_->to_worker());
    NEREID_RETURN_IF_ERROR(reader.status());
    response.gpu = &worker_->gpu();
    response.leased_outputs = &worker_->leased_outputs();
    for (const PackedTensor& output : response.outputs) answers_on_gpu_ |= output.gpu.has_value();
    open_.Respond(key, &response, /*is_final=*/true);
    response.Release();
  }
  return reader.Finish();
}

Status Session::OnPosted(WorkerMessage kind, MarshalReader& message) {
  switch (kind) {
    case WorkerMessage::kRespond:
      return OnRespond(message);
    case WorkerMessage::kCall:
      return calls_->OnCall(message);
    case WorkerMessage::kCancel:
      return calls_->OnCancel(message);
    case WorkerMessage::kConsumed:
      return calls_->OnConsumed(message);
    case WorkerMessage::kReadiness:
      return OnReadiness(message);
    default:
      return InvalidArgError("a message of kind ", static_cast<int32_t>(kind));
  }
}

bool Session::ServeWaiting() {
  return calls_->ServeWaiting();
}

Status Session::OnRespond(MarshalReader& message) {
  const auto key = static_cast<uint64_t>(message.Int());
  if (message.TakeNone()) {
    const int64_t flags = message.Int();
    NEREID_RETURN_IF_ERROR(message.Finish());
    if ((flags & kFinalFlag) != 0) open_.Respond(key, nullptr, /*is_final=*/true);
    return {};
  }
  PackedResponse response = ReadResponse(message, worker_->from_worker(), &worker_->to_worker());
  const int64_t flags = message.Int();
  NEREID_RETURN_IF_ERROR(message.Finish());
  response.gpu = &worker_->gpu();
  response.leased_outputs = &worker_->leased_outputs();
  open_.Respond(key, &response, (flags & kFinalFlag) != 0);
  response.Release();
  return {};
}

Status Session::IsReady() {
  if (worker_->has_exited()) return WorkerExitError(instance_.name(), "is not running");
  if (!has_readiness_check_) return {};
  std::unique_lock lock(mutex_);
  const bool is_asked = num_answered_ < num_queries_;
  if (!is_asked) {
    MarshalWriter writer;
    writer.Tuple(2);
    writer.Int(static_cast<int64_t>(HostMessage::kIsReady));
    writer.Int(num_queries_ + 1);
    NEREID_RETURN_IF_ERROR(worker_->Post(writer.Take()));
    ++num_queries_;
  }
  const int64_t query = num_queries_;
  if (answered_.wait_for(lock, kReadyTimeout, [&] { return num_answered_ >= query; })) {
    return readiness_;
  }
  return UnavailableError("Timed out waiting for ", is_asked ? "in-flight" : "user-defined",
                          " is_ready() response");
}

Status Session::OnReadiness(MarshalReader& message) {
  const int64_t query = message.Int();
  const bool is_ready = message.Bool();
  const std::string text(message.Text());
  NEREID_RETURN_IF_ERROR(message.Finish());
  std::lock_guard lock(mutex_);
  if (query != num_queries_ || num_answered_ >= query)
    return {};  // the wait for this query has ended
  num_answered_ = query;
  readiness_ = {};
  if (!is_ready) {
    readiness_ = text.empty() ? UnavailableError("Model '", instance_.name(),
                                                 "' is not ready (user-defined check failed).")
                              : InternalError(text);
  }
  answered_.notify_all();
  return {};
}

void Session::EndReadinessQueries(const Status& why) {
  {
    std::lock_guard lock(mutex_);
    num_answered_ = std::numeric_limits<int64_t>::max();
    readiness_ = why;
  }
  answered_.notify_all();
}

void Session::OnWorkerExit(const std::string& how) {
  calls_->CancelAll();
  EndReadinessQueries(WorkerExitError(instance_.name(), how));
  owner_.OnSessionEnd(how);
}

void Session::Stop(std::chrono::milliseconds timeout) {
  worker_->Stop(timeout);
  EndReadinessQueries(WorkerExitError(instance_.name(), "was stopped"));
  calls_->CancelAll();
}

}  // namespace nereid::python
