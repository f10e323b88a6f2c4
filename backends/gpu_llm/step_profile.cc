// StepProfile: sums and table of operator times. [engine thread]
#include "backends/gpu_llm/step_profile.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace nereid::gpu {

double DeviceRoofline::Seconds(const OperatorWork& work) const {
  const double operations = work.is_fp8 ? work.operations / 2 : work.operations;
  return std::max(work.bytes / bytes_per_s, operations / operations_per_s);
}

void StepProfile::AddStep(bool is_decode, int32_t num_tokens) {
  newest_ = is_decode ? &decode_ : &mixed_;
  ++newest_->num_steps;
  newest_->num_tokens += num_tokens;
}

void StepProfile::Add(const char* name, double seconds, const OperatorWork& work) {
  std::vector<OperatorRow>& rows = newest_->rows;
  auto row = std::find_if(rows.begin(), rows.end(),
                          [&](const OperatorRow& one) { return std::strcmp(one.name, name) == 0; });
  if (row == rows.end()) row = rows.insert(rows.end(), OperatorRow{name});
  ++row->count;
  row->seconds += seconds;
  row->bytes += work.bytes;
  (work.is_fp8 ? row->fp8_operations : row->operations) += work.operations;
}

void StepProfile::Append(const char* title, const StepKindProfile& kind,
                         const DeviceRoofline& roofline, std::string& text) {
  if (kind.num_steps == 0) return;
  double all = 0.0;
  for (const OperatorRow& row : kind.rows) all += row.seconds;
  const auto steps = static_cast<double>(kind.num_steps);
  char line[200];
  std::snprintf(
      line, sizeof(line),
      "%s: %lld, %.1f tokens each, %.3f ms in operators\n  %-22s %9s %9s %7s %8s %8s %7s\n", title,
      static_cast<long long>(kind.num_steps), static_cast<double>(kind.num_tokens) / steps,
      1e3 * all / steps, "operator", "us", "a step", "share", "GB/s", "TFLOP/s", "of roof");
  text += line;
  for (const OperatorRow& row : kind.rows) {
    const double operations = row.operations + row.fp8_operations;
    const double limit =
        std::max(row.bytes / roofline.bytes_per_s,
                 (row.operations + row.fp8_operations / 2) / roofline.operations_per_s);
    std::snprintf(line, sizeof(line), "  %-22s %9.2f %9.1f %5.1f %% %8.0f %8.1f %5.1f %%\n",
                  row.name, 1e6 * row.seconds / static_cast<double>(row.count),
                  static_cast<double>(row.count) / steps, 100.0 * row.seconds / all,
                  row.bytes / row.seconds / 1e9, operations / row.seconds / 1e12,
                  100.0 * limit / row.seconds);
    text += line;
  }
}

std::string StepProfile::Table(const DeviceRoofline& roofline) const {
  std::string text;
  Append("decode steps", decode_, roofline, text);
  Append("steps with prompts", mixed_, roofline, text);
  return text;
}

}  // namespace nereid::gpu
