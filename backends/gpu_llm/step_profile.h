// What a model's operators took on the device, against its roof: sums by kind of step and by
// operator, and the table of them. No CUDA here. [engine thread]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nereid::gpu {

// What an operator has to move and to compute at least: its weights once, its inputs and outputs
// once.
struct OperatorWork {
  double bytes = 0.0;
  double operations = 0.0;
  bool is_fp8 = false;  // whose operations take half the time of bf16's
};

// What the device can do.
struct Roof {
  double bytes_per_s = 0.0;
  double operations_per_s = 0.0;  // of bf16

  // The time that the work takes at the roof.
  double Seconds(const OperatorWork& work) const;
};

class StepProfile {
 public:
  void AddStep(bool is_decode, int32_t num_tokens);
  // An operator of the newest step. `name` is kept as it is: a literal.
  void Add(const char* name, double seconds, const OperatorWork& work);

  int64_t num_steps() const { return decode_.num_steps + mixed_.num_steps; }
  // Empty: no step was added.
  std::string Table(const Roof& roof) const;

 private:
  struct Row {
    const char* name;
    int64_t count = 0;
    double seconds = 0.0, bytes = 0.0, operations = 0.0, fp8_operations = 0.0;
  };
  struct Kind {
    int64_t num_steps = 0, num_tokens = 0;
    std::vector<Row> rows;  // in the order in which they first came
  };
  static void Append(const char* title, const Kind& kind, const Roof& roof, std::string& text);

  Kind decode_, mixed_;
  Kind* newest_ = &decode_;
};

}  // namespace nereid::gpu
