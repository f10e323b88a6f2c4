// Rank 0 listens on an abstract Unix socket, named after the job. The others connect to it. Nobody
// accepts or sends: the kernel keeps the connections until rank 0 ends, and closes them then.
#include "host/launch_rank.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "host/log.h"
#include "nereid/status.h"

namespace nereid {
namespace {

constexpr int kMaxRanks = 4096;
constexpr std::chrono::milliseconds kRetry(100);

std::optional<int> Number(const char* text) {
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* const end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 0 || value > kMaxRanks) return std::nullopt;
  return value;
}

// The number that a text like "2(x3),1" begins with: the tasks of the first host.
std::optional<int> FirstNumber(const char* text) {
  if (text == nullptr) return std::nullopt;
  const std::string_view all = text;
  return Number(std::string(all.substr(0, all.find_first_not_of("0123456789"))).c_str());
}

// The address of the job's socket. Users cannot take each other's names.
std::pair<sockaddr_un, socklen_t> AddressOf(const LaunchRank& rank) {
  const std::string name = StrCat("nereid-rank-0-", getuid(), "-", rank.job);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data() + name.size() - size, size);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size)};
}

int NewSocket() {
  return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

}  // namespace

std::optional<LaunchRank> FindLaunchRank(const EnvironmentReader& environment) {
  if (const char* const mode = environment("NEREID_RANKS");
      mode != nullptr && std::string_view(mode) == "independent") {
    return std::nullopt;
  }
  struct Launcher {
    const char *rank, *num_ranks, *num_local_ranks, *job, *step;
  };
  constexpr Launcher kLaunchers[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
       "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_JOB_ID",
       "SLURM_STEP_ID"},
      {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_PORT", "PMI_ID"},
  };
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<int> rank = Number(environment(launcher.rank));
    const std::optional<int> num_ranks = Number(environment(launcher.num_ranks));
    if (!rank || !num_ranks || *num_ranks < 2 || *rank >= *num_ranks) continue;
    LaunchRank found{*rank, *num_ranks, *num_ranks, ""};
    found.num_local_ranks = std::clamp(
        FirstNumber(environment(launcher.num_local_ranks)).value_or(*num_ranks), 1, *num_ranks);
    const char* const job = environment(launcher.job);
    const char* const step = environment(launcher.step);
    // MPICH numbers its processes by PMI_ID, so that only the port names the job.
    const bool has_step = step != nullptr && std::string_view(launcher.step) != "PMI_ID";
    found.job = StrCat(job != nullptr ? job : "", "-", has_step ? step : "");
    if (found.job == "-") found.job = std::to_string(getppid());
    return found;
  }
  return std::nullopt;
}

void LeadRanks(const LaunchRank& rank) {
  if (rank.num_local_ranks > 1) {
    std::string devices = "0";
    for (int i = 1; i < rank.num_local_ranks; ++i) devices += StrCat(",", i);
    setenv("NEREID_GPU_DEVICE_IDS", devices.c_str(), /*overwrite=*/0);
  }
  const auto [address, size] = AddressOf(rank);
  const int listener = NewSocket();  // open until the process ends
  if (listener >= 0 && bind(listener, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
      listen(listener, kMaxRanks) == 0) {
    return;
  }
  LogWarning("rank 0 of ", rank.num_ranks,
             ": the other ranks cannot see this process: ", std::strerror(errno));
  if (listener >= 0) close(listener);
}

void WaitForFirstRank(const LaunchRank& rank) {
  const auto [address, size] = AddressOf(rank);
  const int connection = NewSocket();
  if (connection < 0) return;
  while (connect(connection, reinterpret_cast<const sockaddr*>(&address), size) != 0) {
    std::this_thread::sleep_for(kRetry);
  }
  char byte = 0;
  while (read(connection, &byte, 1) < 0 && errno == EINTR) {
  }
  close(connection);
}

}  // namespace nereid
