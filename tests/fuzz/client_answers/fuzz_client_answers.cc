// Fuzzes what the sub-commands read from servers: answers of a hub, streams of a chat and metrics.
// Names that become paths stay inside of their folder, and a stream has the same events however it
// is cut. The first byte selects the reader.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "host/cli/chat_stream.h"
#include "host/cli/hub_connection.h"
#include "host/cli/hub_download.h"
#include "host/cli/load_table.h"

namespace {

using namespace nereid::cli;

void CheckNames(const nereid::Result<std::vector<std::string>>& names) {
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (!IsPlainFileName(name)) std::abort();
  }
}

void CheckRevision(const std::string& text) {
  const nereid::Result<HubRevision> revision = ParseHubRevision(text, "input");
  if (!revision.ok()) return;
  if (!IsCommit(revision->commit)) std::abort();
  CheckNames(SideFiles(revision->files));
}

std::vector<std::string> EventsOf(std::string_view stream, size_t piece) {
  EventReader reader;
  std::vector<std::string> events;
  for (size_t at = 0; at < stream.size(); at += piece) {
    reader.Append(stream.substr(at, piece));
    for (std::string data; reader.Next(data);) events.push_back(data);
  }
  return events;
}

void CheckEvents(const std::string& stream) {
  const std::vector<std::string> events = EventsOf(stream, stream.size() + 1);
  if (events != EventsOf(stream, 1) || events != EventsOf(stream, 7)) std::abort();
  for (const std::string& event : events) (void)ParseChatDelta(event);
  (void)ErrorText(stream);
}

void CheckRedirect(const std::string& location) {
  const nereid::Result<std::string> target = RedirectTarget("https://hub/a", location);
  if (target.ok() && !OriginOf(*target).starts_with("https://")) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      CheckRevision(text);
      break;
    case 1:
      CheckNames(WeightFilesToDownload({"a.safetensors", "b.safetensors"}, text));
      break;
    case 2:
      CheckEvents(text);
      break;
    case 3: {
      const ServerLoad load = ReadServerLoad(ParseMetrics(text));
      (void)ShowServerLoad(load, load, 1);
      break;
    }
    default:
      CheckRedirect(text);
  }
  return 0;
}
