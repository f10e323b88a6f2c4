// Makes calls with gRPC's own C++ client and prints one line per call, "<name>: <what happened>":
// grpc_oracle_client <target> <max-message-bytes> [shutdown]. Against every correct server the
// lines are the same. With `shutdown` it opens a stream, prints "open", and goes on with the call
// when a line arrives on standard input; the test stops the server in between.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "grpc_service.grpc.pb.h"

namespace {

using Stub = inference::GRPCInferenceService::Stub;
using Stream =
    grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelStreamInferResponse>;
using Context = grpc::ClientContext;

std::string target;
size_t max_message_bytes = 0;

std::chrono::system_clock::time_point After(int milliseconds) {
  return std::chrono::system_clock::now() + std::chrono::milliseconds(milliseconds);
}

std::unique_ptr<Stub> Connect(const grpc::ChannelArguments& given = {}) {
  grpc::ChannelArguments arguments = given;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return inference::GRPCInferenceService::NewStub(
      grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments));
}

inference::ModelInferRequest Request(int num_values, char value = 1) {
  inference::ModelInferRequest request;
  request.set_model_name("identity_fp32");
  auto* const input = request.add_inputs();
  input->set_name("INPUT0");
  input->set_datatype("FP32");
  input->add_shape(num_values);
  request.add_raw_input_contents(std::string(4 * static_cast<size_t>(num_values), value));
  return request;
}

// A request of exactly `size_bytes` on the wire, at least some hundred.
inference::ModelInferRequest RequestOfSize(size_t size_bytes) {
  inference::ModelInferRequest request = Request(static_cast<int>((size_bytes - 400) / 4));
  std::string id(200, 'i');
  request.set_id(id);
  id.resize(id.size() + size_bytes - request.ByteSizeLong(), 'i');
  request.set_id(id);
  return request;
}

void Report(const std::string& name, const grpc::Status& status, const std::string& more = "") {
  std::cout << name << ": code " << status.error_code() << more << std::endl;
  if (!status.ok()) std::cerr << name << ": " << status.error_message() << std::endl;
}

void Infer(const std::string& name, Stub& stub, Context& context,
           const inference::ModelInferRequest& request) {
  context.set_deadline(After(20'000));
  inference::ModelInferResponse response;
  const grpc::Status status = stub.ModelInfer(&context, request, &response);
  const bool is_same = response.raw_output_contents_size() == 1 &&
                       response.raw_output_contents(0) == request.raw_input_contents(0) &&
                       response.id() == request.id();
  Report(name, status, is_same ? ", the same tensor" : ", no tensor");
}

size_t ReadAll(Stream& stream) {
  size_t count = 0;
  inference::ModelStreamInferResponse response;
  while (stream.Read(&response)) {
    if (response.error_message().empty()) ++count;
  }
  return count;
}

void UnaryCalls() {
  const auto stub = Connect();
  {
    Context context;
    inference::ServerLiveResponse response;
    const grpc::Status status = stub->ServerLive(&context, {}, &response);
    Report("live", status, response.live() ? ", live" : "");
  }
  for (const int num_values : {0, 1, 1000, 200'000}) {
    Context context;
    Infer("infer " + std::to_string(num_values), *stub, context, Request(num_values));
  }
  {
    Context context;
    context.set_deadline(After(-1000));
    inference::ModelInferResponse response;
    Report("deadline in the past", stub->ModelInfer(&context, Request(1), &response));
  }
  {
    Context context;
    context.AddMetadata("plain", "a value, with commas; and more");
    context.AddMetadata("plain", "a second value");
    context.AddMetadata("empty", "");
    context.AddMetadata("bytes-bin", std::string("\0\1\2\xff,\n", 6));
    context.AddMetadata("empty-bin", "");
    Infer("metadata", *stub, context, Request(3));
  }
  for (const size_t size : {4'000, 40'000}) {
    Context context;
    context.AddMetadata("long", std::string(size, 'x'));
    Infer("metadata of " + std::to_string(size) + " bytes", *stub, context, Request(3));
  }
  // gRPC's own server sometimes closes the connection after it: the client connects again.
  for (int attempt = 0; attempt < 3; ++attempt) {
    Context context;
    inference::ModelInferResponse response;
    const grpc::Status status = stub->ModelInfer(&context, Request(1), &response);
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) break;
  }
  {
    Context context;
    Infer("after long metadata", *stub, context, Request(3));
  }
  {
    Context context;
    context.AddMetadata("long", std::string(100'000, 'x'));
    Infer("metadata of 100000 bytes", *Connect(), context, Request(3));
  }
}

void Compression() {
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    const std::string name = algorithm == GRPC_COMPRESS_GZIP ? "gzip" : "deflate";
    grpc::ChannelArguments arguments;
    arguments.SetCompressionAlgorithm(algorithm);
    const auto stub = Connect(arguments);
    Context context;
    Infer(name + " channel", *stub, context, Request(50'000));
    const auto plain_stub = Connect();
    Context one;
    one.set_compression_algorithm(algorithm);
    Infer(name + " call", *plain_stub, one, Request(50'000));
    Context mixed;
    mixed.set_deadline(After(20'000));
    mixed.set_compression_algorithm(algorithm);
    const auto stream = plain_stub->ModelStreamInfer(&mixed);
    stream->Write(Request(10'000));
    stream->Write(Request(10'000), grpc::WriteOptions().set_no_compression());
    stream->Write(Request(10'000));
    stream->WritesDone();
    const size_t count = ReadAll(*stream);
    Report(name + " stream with a plain message", stream->Finish(),
           ", " + std::to_string(count) + " responses");
  }
}

void Sizes() {
  const auto stub = Connect();
  const size_t max = max_message_bytes;
  for (const size_t size : {max - 1, max, max + 1, 2 * max}) {
    const auto difference = static_cast<long>(size) - static_cast<long>(max);
    Context context;
    Infer("message of the limit and " + std::to_string(difference) + " bytes", *stub, context,
          RequestOfSize(size));
  }
  Context context;
  Infer("after too large messages", *stub, context, Request(1));
}

void Streams() {
  const auto stub = Connect();
  for (const int num_messages : {0, 1, 5}) {
    Context context;
    context.set_deadline(After(20'000));
    const auto stream = stub->ModelStreamInfer(&context);
    for (int i = 0; i < num_messages; ++i) stream->Write(Request(10));
    stream->WritesDone();
    const size_t count = ReadAll(*stream);
    Report("half-closed stream after " + std::to_string(num_messages), stream->Finish(),
           ", " + std::to_string(count) + " responses");
  }
  {
    Context context;
    context.set_deadline(After(100));
    const auto stream = stub->ModelStreamInfer(&context);
    const size_t count = ReadAll(*stream);
    Report("deadline of a silent stream", stream->Finish(),
           ", " + std::to_string(count) + " responses");
  }
  {
    Context context;
    context.set_deadline(After(20'000));
    const auto stream = stub->ModelStreamInfer(&context);
    inference::ModelStreamInferResponse response;
    stream->Write(Request(10));
    const bool has_read = stream->Read(&response);
    context.TryCancel();
    ReadAll(*stream);
    Report("cancelled stream", stream->Finish(), has_read ? ", one response" : "");
  }
  {
    Context context;
    context.set_deadline(After(20'000));
    const auto stream = stub->ModelStreamInfer(&context);
    stream->Write(RequestOfSize(max_message_bytes + 1));
    ReadAll(*stream);
    Report("stream with a too large message", stream->Finish());
  }
  {  // The client sends much before it reads.
    Context context;
    context.set_deadline(After(30'000));
    const auto stream = stub->ModelStreamInfer(&context);
    std::thread writer([&] {
      for (int i = 0; i < 200; ++i) stream->Write(Request(20'000));
      stream->WritesDone();
    });
    const size_t count = ReadAll(*stream);
    writer.join();
    Report("stream of 200 tensors", stream->Finish(), ", " + std::to_string(count) + " responses");
  }
}

void ManyStreams() {
  struct Open {
    Context context;
    std::unique_ptr<Stream> stream;
  };
  const auto stub = Connect();
  std::vector<std::unique_ptr<Open>> open;
  for (int i = 0; i < 300; ++i) {
    open.push_back(std::make_unique<Open>());
    open.back()->context.set_deadline(After(30'000));
    open.back()->stream = stub->ModelStreamInfer(&open.back()->context);
  }
  size_t num_responses = 0;
  size_t num_ok = 0;
  for (const auto& each : open) each->stream->Write(Request(100));
  for (const auto& each : open) each->stream->WritesDone();
  for (const auto& each : open) {
    num_responses += ReadAll(*each->stream);
    if (each->stream->Finish().ok()) ++num_ok;
  }
  std::cout << "300 streams: " << num_ok << " ok, " << num_responses << " responses" << std::endl;
}

void Keepalive() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 50);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  const auto stub = Connect(arguments);
  Context context;
  context.set_deadline(After(20'000));
  const auto stream = stub->ModelStreamInfer(&context);
  stream->Write(Request(1));
  inference::ModelStreamInferResponse response;
  const bool has_read = stream->Read(&response);
  ReadAll(*stream);  // until the server ends the connection, because of the pings
  const grpc::Status status = stream->Finish();
  Report("too many pings", status, has_read ? ", one response" : "");
}

void Shutdown() {
  const auto stub = Connect();
  Context context;
  context.set_deadline(After(30'000));
  const auto stream = stub->ModelStreamInfer(&context);
  inference::ModelStreamInferResponse response;
  stream->Write(Request(10));
  const bool has_first = stream->Read(&response);
  std::cout << "open" << std::endl;
  std::string line;
  std::getline(std::cin, line);
  stream->Write(Request(10));
  const bool has_second = stream->Read(&response) && response.error_message().empty();
  stream->WritesDone();
  Report(
      "stream during a stop", stream->Finish(),
      std::string(has_first ? ", first response" : "") + (has_second ? ", second response" : ""));
  Context late;
  late.set_deadline(After(20'000));
  inference::ServerLiveResponse live;
  Report("call after a stop", stub->ServerLive(&late, {}, &live));
}

}  // namespace

int main(int num_arguments, char** arguments) {
  if (num_arguments < 3) {
    std::cerr << "usage: grpc_oracle_client <target> <max-message-bytes> [shutdown]\n";
    return 2;
  }
  target = arguments[1];
  max_message_bytes = static_cast<size_t>(std::atoll(arguments[2]));
  if (num_arguments > 3) {
    Shutdown();
    return 0;
  }
  UnaryCalls();
  Compression();
  Sizes();
  Streams();
  ManyStreams();
  Keepalive();
  return 0;
}
