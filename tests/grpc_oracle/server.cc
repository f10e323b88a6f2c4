// A server on gRPC's own C++ library that answers as Nereid does with an identity model, so that
// tests can compare what the two libraries do with the same bytes: grpc_oracle_server
// <max-message-bytes>. Prints its port, and ends when its standard input ends: calls in flight then
// have ten seconds.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "grpc_service.grpc.pb.h"

namespace {

// The outputs are the inputs, with the names that Nereid's identity models use.
void Echo(const inference::ModelInferRequest& request, inference::ModelInferResponse* response) {
  response->set_model_name(request.model_name());
  response->set_model_version("1");
  response->set_id(request.id());
  for (const auto& input : request.inputs()) {
    auto* const output = response->add_outputs();
    output->set_name("OUTPUT0");
    output->set_datatype(input.datatype());
    *output->mutable_shape() = input.shape();
  }
  *response->mutable_raw_output_contents() = request.raw_input_contents();
}

class Service final : public inference::GRPCInferenceService::Service {
  grpc::Status ServerLive(grpc::ServerContext*, const inference::ServerLiveRequest*,
                          inference::ServerLiveResponse* response) override {
    response->set_live(true);
    return grpc::Status::OK;
  }

  grpc::Status ModelInfer(grpc::ServerContext*, const inference::ModelInferRequest* request,
                          inference::ModelInferResponse* response) override {
    Echo(*request, response);
    return grpc::Status::OK;
  }

  grpc::Status ModelStreamInfer(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<inference::ModelStreamInferResponse, inference::ModelInferRequest>*
          stream) override {
    inference::ModelInferRequest request;
    while (stream->Read(&request)) {
      inference::ModelStreamInferResponse response;
      Echo(request, response.mutable_infer_response());
      if (!stream->Write(response)) break;
    }
    return grpc::Status::OK;
  }
};

}  // namespace

int main(int num_arguments, char** arguments) {
  if (num_arguments != 2) {
    std::cerr << "usage: grpc_oracle_server <max-message-bytes>\n";
    return 2;
  }
  Service service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(std::atoi(arguments[1]));
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::cout << port << std::endl;
  while (std::cin.get() != std::istream::traits_type::eof()) {
  }
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(10));
  return 0;
}
