// Parsers of the request bodies that load and unload models, change log and trace settings, and
// register shared memory. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/frontend/log_settings.h"
#include "host/frontend/tracing/trace_settings.h"
#include "nereid/status.h"

namespace nereid::http {

// A file that is added to the repository's files or replaces them.
struct LoadFile {
  std::string name;  // "file:<path>"
  std::string bytes;
};

// The contents of a load request except the model's name.
struct LoadBody {
  std::optional<std::string> config;  // JSON that replaces the model's config.pbtxt
  std::vector<LoadFile> files;
};

// The bodies of the repository extension may be empty.
Result<LoadBody> ReadLoadBody(std::string_view body, size_t max_depth);
// Returns whether the models of an ensemble are unloaded together with it.
Result<bool> ReadUnloadBody(std::string_view body, size_t max_depth);
// Returns whether the index lists only models that are ready.
Result<bool> ReadIndexBody(std::string_view body, size_t max_depth);

// Rejects unknown members, because a misspelled one would silently change nothing.
Result<LogChange> ReadLogChange(std::string_view body, size_t max_depth);
// The trace level is a list and the other values are strings. Null clears a setting. The caller
// checks whether a setting exists.
Result<TraceChange> ReadTraceChange(std::string_view body, size_t max_depth);

// The members of a register body, for system or CUDA shared memory.
struct SharedMemoryRegistration {
  std::optional<std::string> key;
  std::optional<std::string> raw_handle;  // decoded; empty if it is not base64
  std::optional<uint64_t> device_id;
  uint64_t offset = 0;
  std::optional<uint64_t> size_bytes;
};

Result<SharedMemoryRegistration> ReadRegistration(std::string_view body, size_t max_depth);

}  // namespace nereid::http
