#include "backends/python_like_scripted/session.h"

#include <charconv>
#include <deque>
#include <iterator>
#include <limits>
#include <utility>

#include "backends/python_like_scripted/death.h"
#include "backends/python_like_scripted/host_calls.h"

namespace nereid::scripted {
namespace {

constexpr std::chrono::seconds kReadyTimeout{5};
// In the place of a response.
constexpr int64_t kRescheduled = 2;
constexpr int64_t kCancelled = 3;
// What may wait in a worker's hands before it is asked no more: messages, which have to fit their
// socket (a longer one lies in shared memory), and the tensors that they name.
constexpr uint64_t kMostMessageBytesAhead = kMaxPacketBytes;
constexpr uint64_t kMostTensorBytesAhead = 4 << 20;
constexpr int64_t kFinalFlag = TRITONSERVER_RESPONSE_COMPLETE_FINAL;

// The shortest text that is this number again, and that Python reads as a float.
std::string DoubleText(double value) {
  char number[32];
  const char* const end = std::to_chars(std::begin(number), std::end(number), value).ptr;
  std::string text(number, static_cast<size_t>(end - number));
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

Result<std::string> ParametersText(const Request& request) {
  NEREID_ASSIGN_OR_RETURN(const std::vector<ParameterView> parameters, request.Parameters());
  if (parameters.empty()) return std::string("{}");
  std::string text = "{";
  for (const ParameterView& parameter : parameters) {
    if (text.size() > 1) text += ',';
    text += Json(parameter.name).Dump() + ':';
    switch (parameter.type) {
      case TRITONSERVER_PARAMETER_STRING:
        text += Json(std::string(parameter.AsString())).Dump();
        break;
      case TRITONSERVER_PARAMETER_INT:
        text += std::to_string(parameter.AsInt());
        break;
      case TRITONSERVER_PARAMETER_BOOL:
        text += parameter.AsBool() ? "true" : "false";
        break;
      case TRITONSERVER_PARAMETER_DOUBLE:
        text += DoubleText(parameter.AsDouble());
        break;
      default:
        return UnsupportedError("parameter '", parameter.name, "': expected a string, an integer, ",
                                "a bool or a double, got type ", int{parameter.type});
    }
  }
  return text + '}';
}

void ReleaseAll(std::span<const Block> blocks) {
  for (const Block& block : blocks) block.Release();
}

const char* KindName(TRITONSERVER_InstanceGroupKind kind) {
  return TRITONSERVER_InstanceGroupKindString(kind);
}

}  // namespace

bool Session::Bytes::MayBeMore() const {
  return messages < kMostMessageBytesAhead && tensors < kMostTensorBytesAhead;
}

Session::Session(std::unique_ptr<Worker> worker, OpenRequests& open, Errands& errands,
                 SessionOwner& owner, const InstanceContext& instance)
    : worker_(std::move(worker)),
      open_(open),
      owner_(owner),
      instance_(instance),
      is_decoupled_(instance.model().config().is_decoupled()),
      calls_(std::make_unique<HostCalls>(instance, open, errands, worker_)) {
  worker_->SetInstance(instance.name());
  worker_->SetListener(this);
}

// The worker's thread uses what dies with this.
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
  MarshalWriter question;
  question.Tuple(4);
  question.Int(static_cast<int64_t>(Question::kInitialize));
  question.Tuple(std::size(arguments));
  for (const auto& [name, value] : arguments) {
    question.Tuple(2);
    question.Text(name);
    question.Text(value);
  }
  question.Text(instance_.name());
  question.Bool(is_decoupled_);
  NEREID_ASSIGN_OR_RETURN(const std::string answer,
                          worker_->Ask(question.Take(), timeout, "finish initialize"));
  MarshalReader reader(answer);
  reader.TupleOf(2);
  (void)reader.Int();
  asks_model_ready_ = reader.Bool();
  worker_->SetServing();
  return reader.Finish();
}

void Session::Execute(const std::vector<uint64_t>& all_keys, std::chrono::milliseconds timeout) {
  std::vector<uint64_t> keys = all_keys;
  std::vector<Block> blocks;
  std::string question = WriteQuestion(keys, blocks);
  if (keys.empty()) return;
  const Status sent = worker_->Send(std::move(question));
  if (sent.ok()) {
    (void)TakeAnswer(keys, timeout);
    return;
  }
  if (!worker_->is_dead()) ReleaseAll(blocks);
  for (const uint64_t key : keys) open_.Fail(key, sent);
}

size_t Session::ExecuteInTurn(std::span<const uint64_t> keys, std::chrono::milliseconds timeout) {
  std::deque<Bytes> ahead;  // of the request that is next to be over, and of those behind it
  Bytes unread;             // of all of them
  size_t num_over = 0;
  while (num_over < keys.size()) {
    while (!worker_->is_dead() && num_over + ahead.size() < keys.size() &&
           (ahead.empty() || unread.MayBeMore())) {
      const uint64_t key = keys[num_over + ahead.size()];
      const Result<Bytes> asked = AskAbout(key, ahead.size());
      if (asked.ok()) {
        unread += *asked;
        ahead.push_back(*asked);
      } else if (ahead.empty() && !worker_->is_dead()) {
        open_.Fail(key, asked.status());
        ++num_over;
      } else {
        break;  // there may be room when those are answered
      }
    }
    if (ahead.empty()) break;
    const uint64_t key = keys[num_over++];
    open_.Begin(key);
    const bool is_answered = TakeAnswer({key}, timeout);
    open_.Leave(key);
    unread -= ahead.front();
    ahead.pop_front();
    if (!worker_->is_dead()) continue;
    open_.Fail(key, worker_->DeadError());  // a sender would have answered it
    if (!is_answered) break;                // it died in this one; it had not begun with others
  }
  return num_over;
}

bool Session::TakeAnswer(const std::vector<uint64_t>& keys, std::chrono::milliseconds timeout) {
  Result<std::string> answer = worker_->Await(timeout);
  Status status = answer.ok() ? Finish(keys, *answer) : std::move(answer).status();
  if (status.ok()) return true;
  const bool is_garbage = answer.ok();
  if (is_garbage) {
    worker_->Kill(StrCat("it sent garbage: ", status.message()));
    status = worker_->DeadError();
  }
  for (const uint64_t key : keys) open_.Fail(key, status);
  return !is_garbage && status.code() != StatusCode::kUnavailable;
}

std::string Session::WriteQuestion(std::vector<uint64_t>& keys, std::vector<Block>& blocks) {
  MarshalWriter writer;
  writer.Tuple(3);
  writer.Int(static_cast<int64_t>(Question::kExecute));
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

Result<Session::Bytes> Session::AskAbout(uint64_t key, size_t num_unread) {
  MarshalWriter writer;
  writer.Tuple(3);
  writer.Int(static_cast<int64_t>(Question::kExecute));
  writer.Tuple(1);
  std::vector<Block> blocks;
  NEREID_RETURN_IF_ERROR(WriteRequest(key, blocks, writer));
  writer.Int(static_cast<int64_t>(num_unread));
  std::string question = writer.Take();
  Bytes bytes{question.size(), 0};
  for (const Block& block : blocks) bytes.tensors += block.size_bytes;
  Status sent = worker_->Send(std::move(question));
  if (sent.ok()) return bytes;
  if (!worker_->is_dead()) ReleaseAll(blocks);
  return sent;
}

Status Session::WriteRequest(uint64_t key, std::vector<Block>& blocks, MarshalWriter& writer) {
  const size_t mark = writer.Mark();
  const size_t num_blocks = blocks.size();
  Status status = open_.With(key, [&](Request& request) -> Status {
    NEREID_RETURN_IF_ERROR(WriteRequest(request, key, blocks, writer));
    request.sender().MarkInputsRead();
    return {};
  });
  if (status.ok()) return status;
  writer.Rewind(mark);
  ReleaseAll(std::span(blocks).subspan(num_blocks));
  blocks.resize(num_blocks);
  return std::move(status).WithContext(StrCat("model '", instance_.model().name(), "'"));
}

// (key, id, correlation id, flags, timeout, parameters, outputs, inputs)
Status Session::WriteRequest(Request& request, uint64_t key, std::vector<Block>& blocks,
                             MarshalWriter& writer) {
  writer.Tuple(8);
  writer.Uint(key);
  NEREID_ASSIGN_OR_RETURN(const std::string_view id, request.Id());
  writer.Text(id);
  if (const Result<uint64_t> number = request.CorrelationId(); number.ok()) {
    writer.Uint(*number);
  } else {
    NEREID_ASSIGN_OR_RETURN(const std::string_view text, request.CorrelationIdString());
    writer.Text(text);
  }
  NEREID_ASSIGN_OR_RETURN(const uint32_t flags, request.Flags());
  writer.Int(flags);
  NEREID_ASSIGN_OR_RETURN(const uint64_t timeout_us, request.TimeoutUs());
  writer.Uint(timeout_us);
  NEREID_ASSIGN_OR_RETURN(const std::string parameters, ParametersText(request));
  writer.Text(parameters);
  NEREID_ASSIGN_OR_RETURN(const auto outputs, request.RequestedOutputs());
  writer.Tuple(static_cast<uint32_t>(outputs.size()));
  for (const std::string_view output : outputs) writer.Text(output);
  // The codec copies by itself what the worker wants elsewhere.
  NEREID_ASSIGN_OR_RETURN(const std::vector<TensorView> inputs,
                          request.Inputs(TRITONSERVER_MEMORY_GPU));
  writer.Tuple(static_cast<uint32_t>(inputs.size()));
  for (const TensorView& input : inputs) {
    NEREID_RETURN_IF_ERROR(WriteTensor(input, worker_->to_worker(), worker_->offers(),
                                       worker_->input_gpu(), blocks, writer));
  }
  return {};
}

// (0, (posted, error or None, responses))
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
    if (reader.TakeNone()) continue;  // answered by its sender, now or later
    if (reader.Next() == 'i') {
      const int64_t outcome = reader.Int();
      if (outcome == kRescheduled) {
        open_.Reschedule(key);
      } else if (outcome == kCancelled) {
        open_.FailUnrun(key, CancelledError("request to model '", instance_.model().name(),
                                            "' was cancelled before it ran"));
      } else {
        reader.Fail("a response is a number");
      }
      continue;
    }
    PackedResponse response = ReadResponse(reader, worker_->from_worker(), &worker_->to_worker());
    NEREID_RETURN_IF_ERROR(reader.status());
    response.gpu = &worker_->gpu();
    response.loans = &worker_->loans();
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
    case WorkerMessage::kReadiness:
      return OnReadiness(message);
    default:
      return InvalidArgError("a message of kind ", static_cast<int32_t>(kind));
  }
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
  response.loans = &worker_->loans();
  open_.Respond(key, &response, (flags & kFinalFlag) != 0);
  response.Release();
  return {};
}

Status Session::IsReady() {
  if (worker_->is_dead()) return WorkerLost(instance_.name(), "is not running");
  if (!asks_model_ready_) return {};
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
  if (query != num_queries_ || num_answered_ >= query) return {};  // the model's queries have ended
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

void Session::EndQueries(const Status& why) {
  {
    std::lock_guard lock(mutex_);
    num_answered_ = std::numeric_limits<int64_t>::max();
    readiness_ = why;
  }
  answered_.notify_all();
}

void Session::OnDeath(const std::string& how) {
  calls_->CancelAll();
  EndQueries(WorkerLost(instance_.name(), how));
  owner_.OnSessionDeath(how);
}

void Session::Stop(std::chrono::milliseconds timeout) {
  worker_->Stop(timeout);
  EndQueries(WorkerLost(instance_.name(), "was stopped"));
  calls_->CancelAll();
}

}  // namespace nereid::scripted
