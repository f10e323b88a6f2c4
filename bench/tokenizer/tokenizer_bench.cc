// Benchmarks the tokenizer library on one thread: load, encode, decode, streaming decode.
//   tokenizer_bench TOKENIZER TEXT_FILE [--json]
// TEXT_FILE is divided at line ends into documents of about 2 KB and is also encoded as one
// document. Prints the median CPU time of several passes, its median absolute deviation, and the
// heap memory of the tokenizer. --json prints one JSON object for compare.py.
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backends/tokenizer/lib/tokenizer.h"

using nereid::tokenizer::IncrementalDecoder;
using nereid::tokenizer::Tokenizer;

namespace {

constexpr int kPasses = 9;
constexpr size_t kDocumentBytes = 2048;

struct Timing {
  double median_s, mad_s;
};

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// CPU time of this thread, so that other load on the machine is not counted.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Timing Measure(const std::function<void()>& body) {
  std::vector<double> seconds;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double start = CpuSeconds();
    body();
    seconds.push_back(CpuSeconds() - start);
  }
  const double median = Median(seconds);
  for (double& s : seconds) s = std::abs(s - median);
  return {median, Median(seconds)};
}

bool as_json = false;

void Report(const char* name, const Timing& timing, double units, const char* unit) {
  if (as_json) {
    std::printf("\"%s\": %.9g, ", name, timing.median_s);
    return;
  }
  std::printf("%-24s %10.2f ms (MAD %.2f)  %10.2f %s\n", name, timing.median_s * 1e3,
              timing.mad_s * 1e3, units / timing.median_s / 1e6, unit);
}

std::vector<std::string_view> Documents(std::string_view text) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    const size_t end = text.find('\n', std::min(kDocumentBytes, text.size() - 1));
    documents.push_back(text.substr(0, end == text.npos ? end : end + 1));
    text.remove_prefix(documents.back().size());
  }
  return documents;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  as_json = argc > 3 && std::string_view(argv[3]) == "--json";
  std::ifstream file(argv[2], std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto heap = [] { return mallinfo2().uordblks + mallinfo2().hblkhd; };
  const size_t heap_before = heap();
  const auto loaded = Tokenizer::Load(argv[1]);
  const size_t heap_bytes = heap() - heap_before;
  if (!loaded.ok() || text.empty()) {
    std::fprintf(stderr, "%s\n", loaded.ok() ? "no text" : loaded.status().message().c_str());
    return 1;
  }
  const Tokenizer& tokenizer = **loaded;
  size_t string_bytes = 0;  // total size of the token contents, each counted once
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    string_bytes += tokenizer.IdToToken(id).value_or("").size();
  }
  if (as_json) {
    std::printf("{\"bytes\": %zu, \"heap\": %zu, \"strings\": %zu, ", text.size(), heap_bytes,
                string_bytes);
  } else {
    std::printf("%s %s %s: %zu bytes, %u cores, 1 thread; heap %.1f MB, tokens' strings %.1f MB\n",
                argv[0], argv[1], argv[2], text.size(), std::thread::hardware_concurrency(),
                static_cast<double>(heap_bytes) / 1e6, static_cast<double>(string_bytes) / 1e6);
  }

  const auto documents = Documents(text);
  std::vector<std::vector<int32_t>> ids(documents.size());
  size_t num_ids = 0;
  Report("load", Measure([&] { (void)Tokenizer::Load(argv[1]); }), 0, "");
  const auto bytes = static_cast<double>(text.size());
  Report("encode, 2 KB documents", Measure([&] {
           for (size_t i = 0; i < documents.size(); ++i) ids[i] = *tokenizer.Encode(documents[i]);
         }),
         bytes, "MB/s");
  Report("encode, one document", Measure([&] { (void)tokenizer.Encode(text); }), bytes, "MB/s");
  for (const auto& document : ids) num_ids += document.size();
  const auto tokens = static_cast<double>(num_ids);
  Report("decode, 2 KB documents", Measure([&] {
           for (const auto& document : ids) (void)tokenizer.Decode(document);
         }),
         tokens, "M tokens/s");
  Report("stream, id by id", Measure([&] {
           for (const auto& document : ids) {
             IncrementalDecoder decoder(tokenizer);
             std::string out;
             for (const int32_t& id : document) decoder.Push({&id, 1}, out);
             decoder.Finish(out);
           }
         }),
         tokens, "M tokens/s");
  if (as_json) std::printf("\"tokens\": %zu}\n", num_ids);
  return 0;
}
