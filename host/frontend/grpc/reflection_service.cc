// See reflection_service.h.
#include "host/frontend/grpc/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <memory>
#include <mutex>
#include <set>

#include "host/frontend/grpc/service_calls.h"
#include "reflection.pb.h"

namespace nereid {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using ::grpc::reflection::v1alpha::ServerReflectionRequest;
using ::grpc::reflection::v1alpha::ServerReflectionResponse;

constexpr const char* kServices[] = {"inference.GRPCInferenceService", "grpc.health.v1.Health",
                                     "grpc.reflection.v1alpha.ServerReflection"};

// Adds `file` and its imports, each once.
void AddFile(const FileDescriptor& file, std::set<const FileDescriptor*>& added,
             ::grpc::reflection::v1alpha::FileDescriptorResponse& answer) {
  if (!added.insert(&file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  answer.add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), added, answer);
}

void AnswerFile(const FileDescriptor* file, ServerReflectionResponse& response) {
  if (file == nullptr) {
    auto& error = *response.mutable_error_response();
    error.set_error_code(static_cast<int>(GrpcCode::kNotFound));
    error.set_error_message("not found");
    return;
  }
  std::set<const FileDescriptor*> added;
  AddFile(*file, added, *response.mutable_file_descriptor_response());
}

ServerReflectionResponse AnswerTo(const ServerReflectionRequest& request) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const char* name : kServices) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case ServerReflectionRequest::kFileByFilename:
      AnswerFile(pool.FindFileByName(request.file_by_filename()), response);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      AnswerFile(pool.FindFileContainingSymbol(request.file_containing_symbol()), response);
      break;
    default:  // in proto3 only options have extensions, and these files define none
      AnswerFile(nullptr, response);
      break;
  }
  return response;
}

// One call: reads a request, answers it, and reads the next. [loop thread; EndWhenIdle: any thread]
class ReflectionCall final : public CallHandler,
                             public DrainableCall,
                             public std::enable_shared_from_this<ReflectionCall> {
 public:
  ReflectionCall(Call& call, DrainableCalls& drainable_calls)
      : call_(call), drainable_calls_(drainable_calls) {}

  void Start() {
    self_ = shared_from_this();
    call_.Read();
    drainable_calls_.Add(self_);
  }
  void EndWhenIdle() override { End({GrpcCode::kUnavailable, "the server is stopping"}); }

 private:
  void OnReadDone(const Slice* message) override {
    if (message == nullptr) return End({});
    ServerReflectionRequest request;
    if (const Status status = ParseMessage(*message, request); !status.ok()) {
      return End(ToCallStatus(status));
    }
    const std::lock_guard lock(mutex_);
    if (is_finished_) return;
    is_writing_ = true;
    call_.Write(Serialize(AnswerTo(request)));
  }
  void OnWriteDone() override {
    const std::lock_guard lock(mutex_);
    is_writing_ = false;
    if (is_finished_) return;
    if (end_status_) {
      is_finished_ = true;
      call_.Finish(*end_status_);
    } else {
      call_.Read();
    }
  }
  void OnCancel() override { End({GrpcCode::kCancelled, "the client cancelled the call"}); }
  void OnDone() override {
    drainable_calls_.Remove(this);
    self_.reset();
  }

  void End(CallStatus status) {
    const std::lock_guard lock(mutex_);
    if (is_finished_ || end_status_) return;
    end_status_ = std::move(status);
    if (is_writing_) return;
    is_finished_ = true;
    call_.Finish(*end_status_);
  }

  Call& call_;  // must not be used after it is finished
  DrainableCalls& drainable_calls_;
  std::shared_ptr<ReflectionCall> self_;  // until OnDone
  std::mutex mutex_;                      // guards all below
  std::optional<CallStatus> end_status_;
  bool is_writing_ = false;
  bool is_finished_ = false;
};

}  // namespace

void AddReflection(const AccessControl& access, DrainableCalls& drainable_calls,
                   MethodTable& table) {
  const auto admit = [&access](Call& call) {
    return Authenticate(access, call, ApiOperation::kDescribeApi) &&
           Authorize(access, call, ApiOperation::kDescribeApi, {});
  };
  const auto reflect = [&drainable_calls](Call& call) -> CallHandler* {
    const auto handler = std::make_shared<ReflectionCall>(call, drainable_calls);
    handler->Start();
    return handler.get();
  };
  for (const char* version : {"v1", "v1alpha"}) {
    table.Add(StrCat("/grpc.reflection.", version, ".ServerReflection/ServerReflectionInfo"),
              {.admit = admit, .unary = nullptr, .stream = reflect});
  }
}

}  // namespace nereid
