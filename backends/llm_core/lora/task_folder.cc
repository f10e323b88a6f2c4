// See task_folder.h.
#include "backends/llm_core/lora/task_folder.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include "backends/llm_core/lora/npy_array.h"
#include "base/file_content.h"

namespace nereid::llm {
namespace {

namespace fs = std::filesystem;

constexpr char kWeightsFile[] = "model.lora_weights.npy";
constexpr char kConfigFile[] = "model.lora_config.npy";
constexpr size_t kMaxConfigFileBytes = size_t{16} << 20;
constexpr size_t kMaxNpyHeaderBytes = size_t{1} << 16;
constexpr size_t kMaxTasks = 65536;

bool IsDigits(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

// The folders whose names are numbers.
std::map<uint64_t, std::string> TasksIn(const std::string& folder,
                                        const std::function<void(const Status&)>& warn) {
  std::map<uint64_t, std::string> tasks;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const std::string name = entry->path().filename().string();
    if (!entry->is_directory(ignored) || tasks.size() >= kMaxTasks) continue;
    uint64_t id = 0;
    const char* const last = name.data() + name.size();
    if (!IsDigits(name) || std::from_chars(name.data(), last, id).ec != std::errc()) {
      warn(InvalidArgError("'", entry->path().string(), "' is no LoRA task: expected a number"));
      continue;
    }
    tasks.emplace(id, entry->path().string());
  }
  return tasks;
}

// Two dims, behind leading ones as the converters write them.
Result<std::pair<int64_t, int64_t>> MatrixShape(const NpyArray& array, const char* file) {
  const auto& shape = array.shape;
  const bool is_matrix = shape.size() >= 2 && std::all_of(shape.begin(), shape.end() - 2,
                                                          [](int64_t dim) { return dim == 1; });
  if (!is_matrix) {
    return InvalidArgError("'", file, "' has ", shape.size(),
                           " dims, expected [rows, columns], a row for each module");
  }
  return std::pair(shape[shape.size() - 2], shape.back());
}

Status CheckType(const NpyArray& array, const char* file, std::string_view expected) {
  if (array.type == expected) return Status::Ok();
  return UnsupportedError("'", file, "' has elements of type '", array.type, "', expected '",
                          expected, "'");
}

Status AddTask(uint64_t id, const std::string& folder, TaskAdapters& tasks) {
  const auto limit = static_cast<size_t>(tasks.max_bytes()) + kMaxNpyHeaderBytes;
  NEREID_ASSIGN_OR_RETURN(const std::string weights, ReadFile(folder + "/" + kWeightsFile, limit));
  NEREID_ASSIGN_OR_RETURN(const std::string config,
                          ReadFile(folder + "/" + kConfigFile, kMaxConfigFileBytes));
  std::vector<uint16_t> halves;
  std::vector<int32_t> numbers;
  NEREID_ASSIGN_OR_RETURN(const TaskWeights sent, ReadTaskFiles(weights, config, halves, numbers));
  const auto size_bytes = static_cast<int64_t>(halves.size() * sizeof(uint16_t));
  if (tasks.size_bytes() + size_bytes > tasks.max_bytes()) {
    return UnavailableError("the cache of LoRA adapters has ", tasks.max_bytes(),
                            " bytes, of which ", tasks.size_bytes(),
                            " are used, and the weights take ", size_bytes,
                            " (lora_cache_host_memory_bytes)");
  }
  return tasks.Add(id, sent).status();
}

}  // namespace

Result<TaskWeights> ReadTaskFiles(std::string_view weights, std::string_view config,
                                  std::vector<uint16_t>& halves, std::vector<int32_t>& numbers) {
  NEREID_ASSIGN_OR_RETURN(const NpyArray rows, ParseNpy(weights, kWeightsFile));
  NEREID_ASSIGN_OR_RETURN(const NpyArray places, ParseNpy(config, kConfigFile));
  NEREID_RETURN_IF_ERROR(CheckType(rows, kWeightsFile, "<f2"));
  NEREID_RETURN_IF_ERROR(CheckType(places, kConfigFile, "<i4"));
  NEREID_ASSIGN_OR_RETURN(const auto rows_shape, MatrixShape(rows, kWeightsFile));
  NEREID_ASSIGN_OR_RETURN(const auto places_shape, MatrixShape(places, kConfigFile));
  const auto [num_rows, width] = rows_shape;
  const auto [num_places, config_width] = places_shape;
  if (num_rows != num_places || config_width < 3 || config_width > 4) {
    return InvalidArgError("'", kWeightsFile, "' is [", num_rows, ", ", width, "] and '",
                           kConfigFile, "' [", num_places, ", ", config_width,
                           "], expected [n, numbers] and [n, 3], a row for each module");
  }
  halves.resize(static_cast<size_t>(rows.num_elements));
  numbers.resize(static_cast<size_t>(places.num_elements));
  if (!halves.empty()) std::memcpy(halves.data(), rows.bytes.data(), rows.bytes.size());
  if (!numbers.empty()) std::memcpy(numbers.data(), places.bytes.data(), places.bytes.size());
  return TaskWeights{.weights = halves,
                     .num_rows = num_rows,
                     .width = width,
                     .config = numbers,
                     .config_width = config_width};
}

void PrefetchTasks(const std::string& folder, TaskAdapters& tasks,
                   const std::function<void(const Status&)>& warn) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    return warn(NotFoundError("parameter 'lora_prefetch_dir': '", folder, "': no such folder"));
  }
  for (const auto& [id, path] : TasksIn(folder, warn)) {
    const Status added = AddTask(id, path, tasks);
    if (!added.ok()) warn(Status(added).WithContext(StrCat("LoRA task ", id, " in '", path, "'")));
  }
}

}  // namespace nereid::llm
