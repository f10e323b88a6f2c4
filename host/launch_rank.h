// The ranks of launchers like mpirun and srun, which start one process for each GPU. Nereid serves
// with the process of rank 0, which uses all GPUs; the others open no port and wait until it ends.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace nereid {

struct LaunchRank {
  int rank = 0;
  int num_ranks = 1;
  int num_local_ranks = 1;  // on this host
  // Equal for the ranks of one job on one host, and different for other jobs.
  std::string job;
};

// Reads a variable of the environment; null if it is not set.
using EnvironmentReader = std::function<const char*(const char*)>;

// The rank by the variables of Open MPI, MPICH and Slurm. Empty without a launcher, in a job of one
// process, and if NEREID_RANKS is "independent": then every process serves.
std::optional<LaunchRank> FindLaunchRank(const EnvironmentReader& environment);

// For rank 0: lets models that name no GPUs use those of all ranks on this host, and makes the
// process visible to WaitForFirstRank until it ends. [main thread, before others exist]
void LeadRanks(const LaunchRank& rank);

// For the other ranks: returns when the process of rank 0 on this host has ended. If that runs on
// another host, it waits for a signal, which ends the process.
void WaitForFirstRank(const LaunchRank& rank);

}  // namespace nereid
