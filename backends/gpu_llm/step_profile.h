// Operator times of a model against the device's roofline: sums by kind of step and by operator,
// and a table of them. No CUDA here. [engine thread]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nereid::gpu {

// The least that an operator has to move and to compute: weights, inputs and outputs once.
struct OperatorWork {
  double bytes = 0.0;
  double operations = 0.0;
  bool is_fp8 = false;  // fp8 operations take half the time of bf16
};

// Peak rates of the device.
struct DeviceRoofline {
  double bytes_per_s = 0.0;
  double operations_per_s = 0.0;  // of bf16

  // Time of the work at the roofline.
  double Seconds(const OperatorWork& work) const;
};

class StepProfile {
 public:
  void AddStep(bool is_decode, int32_t num_tokens);
  // Adds an operator of the newest step. `name` is a literal; the pointer is kept.
  void Add(const char* name, double seconds, const OperatorWork& work);

  int64_t num_steps() const { return decode_.num_steps + mixed_.num_steps; }
  // Empty if no step was added.
  std::string Table(const DeviceRoofline& roofline) const;

 private:
  struct OperatorRow {
    const char* name;
    int64_t count = 0;
    double seconds = 0.0, bytes = 0.0, operations = 0.0, fp8_operations = 0.0;
  };
  struct StepKindProfile {
    int64_t num_steps = 0, num_tokens = 0;
    std::vector<OperatorRow> rows;  // in the order of first occurrence
  };
  static void Append(const char* title, const StepKindProfile& kind, const DeviceRoofline& roofline,
                     std::string& text);

  StepKindProfile decode_, mixed_;
  StepKindProfile* newest_ = &decode_;
};

}  // namespace nereid::gpu
