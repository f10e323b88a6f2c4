// Measures the cost of the host per request: an identity model with 16 floats, called through the C
// API in this process in a closed loop. Prints microseconds, allocations and lock operations per
// request, including those of the client and the backend.
//   inprocess_bench [--requests=N] [--clients=C] [--batching] [--reuse] [--backends=DIR]
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "bench/host/call_counters.h"
#include "triton/core/tritonserver.h"

namespace {

struct Options {
  size_t requests = 200000;
  size_t clients = 1;
  bool batching = false;
  bool reuse = false;
  std::string backends = NEREID_TEST_BACKENDS;
};

void Check(TRITONSERVER_Error* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "%s\n", TRITONSERVER_ErrorMessage(error));
  std::exit(1);
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const std::string value = text.substr(std::min(text.size(), text.find('=') + 1));
    if (text.rfind("--requests=", 0) == 0) options.requests = std::stoul(value);
    if (text.rfind("--clients=", 0) == 0) options.clients = std::stoul(value);
    if (text.rfind("--backends=", 0) == 0) options.backends = value;
    if (text == "--batching") options.batching = true;
    if (text == "--reuse") options.reuse = true;
  }
  return options;
}

void WriteRepository(const std::filesystem::path& folder, bool batching) {
  std::filesystem::create_directories(folder / "identity" / "1");
  std::ofstream config(folder / "identity" / "config.pbtxt");
  config << "backend: \"identity_c\"\nmax_batch_size: " << (batching ? 8 : 0)
         << "\ninput { name: \"INPUT0\" data_type: TYPE_FP32 dims: 16 }"
            "\noutput { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: 16 }"
            "\ninstance_group { kind: KIND_CPU count: 1 }\n";
  if (batching) config << "dynamic_batching { }\n";
}

TRITONSERVER_Server* StartServer(const std::string& repository, const std::string& backends) {
  TRITONSERVER_ServerOptions* options = nullptr;
  TRITONSERVER_Server* server = nullptr;
  Check(TRITONSERVER_ServerOptionsNew(&options));
  Check(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, repository.c_str()));
  Check(TRITONSERVER_ServerOptionsSetBackendDirectory(options, backends.c_str()));
  Check(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
  Check(TRITONSERVER_ServerNew(&server, options));
  Check(TRITONSERVER_ServerOptionsDelete(options));
  return server;
}

// One client's input, output, and semaphore for the end of its request.
struct Client {
  float input[16] = {};
  float output[16] = {};
  std::counting_semaphore<2> answered{0};  // released by the response and by the release callback
  TRITONSERVER_ResponseAllocator* allocator = nullptr;
};

TRITONSERVER_Error* Allocate(TRITONSERVER_ResponseAllocator*, const char*, size_t,
                             TRITONSERVER_MemoryType, int64_t, void* client, void** buffer,
                             void** buffer_userp, TRITONSERVER_MemoryType* type, int64_t* id) {
  *buffer = static_cast<Client*>(client)->output;
  *buffer_userp = nullptr;
  *type = TRITONSERVER_MEMORY_CPU;
  *id = 0;
  return nullptr;
}

TRITONSERVER_Error* Free(TRITONSERVER_ResponseAllocator*, void*, void*, size_t,
                         TRITONSERVER_MemoryType, int64_t) {
  return nullptr;
}

void OnResponse(TRITONSERVER_InferenceResponse* response, uint32_t, void* client) {
  Check(TRITONSERVER_InferenceResponseError(response));
  Check(TRITONSERVER_InferenceResponseDelete(response));
  static_cast<Client*>(client)->answered.release();
}

void OnRelease(TRITONSERVER_InferenceRequest*, uint32_t, void* client) {
  static_cast<Client*>(client)->answered.release();
}

TRITONSERVER_InferenceRequest* NewRequest(TRITONSERVER_Server* server, bool batching,
                                          Client* client) {
  TRITONSERVER_InferenceRequest* request = nullptr;
  const int64_t shape[2] = {batching ? 1 : 16, 16};
  Check(TRITONSERVER_InferenceRequestNew(&request, server, "identity", -1));
  Check(TRITONSERVER_InferenceRequestSetId(request, "bench"));
  Check(TRITONSERVER_InferenceRequestAddInput(request, "INPUT0", TRITONSERVER_TYPE_FP32, shape,
                                              batching ? 2 : 1));
  Check(TRITONSERVER_InferenceRequestAppendInputData(
      request, "INPUT0", client->input, sizeof(client->input), TRITONSERVER_MEMORY_CPU, 0));
  Check(TRITONSERVER_InferenceRequestAddRequestedOutput(request, "OUTPUT0"));
  Check(TRITONSERVER_InferenceRequestSetReleaseCallback(request, &OnRelease, client));
  Check(TRITONSERVER_InferenceRequestSetResponseCallback(request, client->allocator, client,
                                                         &OnResponse, client));
  return request;
}

void RunClient(TRITONSERVER_Server* server, const Options& options, size_t num_requests) {
  Client client;
  Check(TRITONSERVER_ResponseAllocatorNew(&client.allocator, &Allocate, &Free, nullptr));
  TRITONSERVER_InferenceRequest* request = nullptr;
  for (size_t i = 0; i < num_requests; ++i) {
    if (request == nullptr) request = NewRequest(server, options.batching, &client);
    Check(TRITONSERVER_ServerInferAsync(server, request, nullptr));
    client.answered.acquire();
    client.answered.acquire();
    if (options.reuse) continue;
    Check(TRITONSERVER_InferenceRequestDelete(request));
    request = nullptr;
  }
  if (request != nullptr) Check(TRITONSERVER_InferenceRequestDelete(request));
  Check(TRITONSERVER_ResponseAllocatorDelete(client.allocator));
}

void RunClients(TRITONSERVER_Server* server, const Options& options, size_t num_requests) {
  std::vector<std::thread> clients;
  for (size_t i = 0; i < options.clients; ++i) {
    clients.emplace_back([&] { RunClient(server, options, num_requests / options.clients); });
  }
  for (std::thread& client : clients) client.join();
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

void Measure(TRITONSERVER_Server* server, const Options& options) {
  RunClients(server, options, options.requests / 10 + options.clients);
  const CallCounts before = ReadCallCounts();
  const double cpu_before = CpuSeconds();
  const auto start = std::chrono::steady_clock::now();
  RunClients(server, options, options.requests);
  const std::chrono::duration<double, std::micro> wall = std::chrono::steady_clock::now() - start;
  const double cpu_us = 1e6 * (CpuSeconds() - cpu_before);
  const CallCounts after = ReadCallCounts();
  const auto n = static_cast<double>(options.requests);
  std::printf("identity/%s/clients:%zu%s: %.2f us/request, %.2f us CPU, %.0f requests/s; ",
              options.batching ? "batching" : "direct", options.clients,
              options.reuse ? "/reuse" : "", wall.count() / n, cpu_us / n, 1e6 * n / wall.count());
  std::printf("%.2f allocations, %.2f mutex locks, %.2f condition signals a request\n",
              static_cast<double>(after.allocations - before.allocations) / n,
              static_cast<double>(after.locks - before.locks) / n,
              static_cast<double>(after.signals - before.signals) / n);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = Parse(argc, argv);
  std::printf("# %u cores, %zu requests of 16 floats; command:",
              std::thread::hardware_concurrency(), options.requests);
  for (int i = 0; i < argc; ++i) std::printf(" %s", argv[i]);
  std::printf("\n");
  char folder[] = "/tmp/inprocess_bench.XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  WriteRepository(folder, options.batching);
  TRITONSERVER_Server* server = StartServer(folder, options.backends);
  Measure(server, options);
  Check(TRITONSERVER_ServerDelete(server));
  std::filesystem::remove_all(folder);
  return 0;
}
