// The command line of the benchmarks of speculation: the name of a measurement, then the batch
// sizes that it measures.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::bench {

struct SpeculationArguments {
  std::vector<int32_t> batches;  // numbers of sequences that run at once
  int num_gpus = 1;              // among which the model is divided
};

struct Measurement {
  std::string_view name;
  void (*run)(const SpeculationArguments& arguments);
};

struct SpeculationProgram {
  const char* name;
  std::vector<int32_t> default_batches;  // measured where the command line names none
  bool takes_num_gpus = false;           // `--gpus N` may stand in front of the batches
};

// Runs the measurement that the command line names, and returns the exit status of the program: 1
// where there is no such measurement, after a line that lists them. [main thread]
inline int RunMeasurement(const SpeculationProgram& program,
                          std::initializer_list<Measurement> measurements, int argc, char** argv) {
  SpeculationArguments arguments;
  for (int i = 2; i < argc; ++i) {
    if (program.takes_num_gpus && std::string_view(argv[i]) == "--gpus" && i + 1 < argc) {
      arguments.num_gpus = std::atoi(argv[++i]);
    } else {
      arguments.batches.push_back(std::atoi(argv[i]));
    }
  }
  if (arguments.batches.empty()) arguments.batches = program.default_batches;
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  std::string names;
  for (const Measurement& measurement : measurements) {
    if (measurement.name == wanted) {
      measurement.run(arguments);
      return 0;
    }
    if (!names.empty()) names += '|';
    names += measurement.name;
  }
  std::fprintf(stderr, "usage: %s %s %s[BATCH...]\n", program.name, names.c_str(),
               program.takes_num_gpus ? "[--gpus N] " : "");
  return 1;
}

}  // namespace nereid::bench
