// A line of the file has the key's numbers, the algorithm's words, and a checksum, in hexadecimal.
#include "backends/gpu_llm/model/algorithm_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/file_content.h"

namespace nereid::gpu {
namespace {

uint64_t Checksum(const AlgorithmKey& key, const Algorithm& algorithm) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3u; };
  for (const int32_t number : key) add(static_cast<uint32_t>(number));
  for (const uint64_t word : algorithm) add(word), add(word >> 32);
  return hash;
}

std::string LineOf(const AlgorithmKey& key, const Algorithm& algorithm) {
  std::ostringstream line;
  line << std::hex;
  for (const int32_t number : key) line << static_cast<uint32_t>(number) << ' ';
  for (const uint64_t word : algorithm) line << word << ' ';
  line << Checksum(key, algorithm) << '\n';
  return line.str();
}

bool ReadLine(const std::string& text, AlgorithmKey& key, Algorithm& algorithm) {
  std::istringstream line(text);
  line >> std::hex;
  for (int32_t& number : key) {
    uint32_t bits = 0;
    line >> bits;
    number = static_cast<int32_t>(bits);
  }
  for (uint64_t& word : algorithm) line >> word;
  uint64_t check = 0;
  line >> check;
  return !line.fail() && check == Checksum(key, algorithm);
}

}  // namespace

AlgorithmCache::AlgorithmCache(const std::string& folder, std::string_view name) {
  if (folder.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::string file = "products-";
  for (const char c : name)
    file += std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' ? c : '-';
  path_ = (std::filesystem::path(folder) / file).string();
  constexpr size_t kMaxBytes = size_t{16} << 20;
  Result<std::string> content = ReadFile(path_, kMaxBytes);
  std::istringstream in(content.ok() ? *std::move(content) : std::string());
  for (std::string line; std::getline(in, line);) {
    ends_in_partial_line_ = in.eof();
    AlgorithmKey key = {};
    Algorithm algorithm = {};
    if (ReadLine(line, key, algorithm)) known_.insert_or_assign(key, algorithm);
  }
}

std::string AlgorithmCache::DefaultFolder() {
  if (const char* own = std::getenv("NEREID_CACHE_DIR"); own != nullptr) return own;
  if (const char* caches = std::getenv("XDG_CACHE_HOME"); caches != nullptr && caches[0] == '/')
    return std::string(caches) + "/nereid";
  if (const char* home = std::getenv("HOME"); home != nullptr && home[0] == '/')
    return std::string(home) + "/.cache/nereid";
  return "";
}

std::optional<Algorithm> AlgorithmCache::Find(const AlgorithmKey& key) const {
  const auto found = known_.find(key);
  if (found == known_.end()) return std::nullopt;
  return found->second;
}

void AlgorithmCache::AddInMemory(const AlgorithmKey& key, const Algorithm& algorithm) {
  known_.insert_or_assign(key, algorithm);
}

void AlgorithmCache::Add(const AlgorithmKey& key, const Algorithm& algorithm) {
  const bool is_new = known_.insert_or_assign(key, algorithm).second;
  if (path_.empty() || !is_new) return;
  const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return;
  const std::string line = (ends_in_partial_line_ ? "\n" : "") + LineOf(key, algorithm);
  // One write, so that lines of two processes do not mix.
  const ssize_t written = write(fd, line.data(), line.size());
  if (written > 0) ends_in_partial_line_ = static_cast<size_t>(written) < line.size();
  (void)close(fd);
}

}  // namespace nereid::gpu
