// What the server says of itself.
#pragma once

namespace nereid {

// The version of Triton whose behaviour is kept; clients and scripts compare it.
inline constexpr char kServerVersion[] = "2.51.0";
inline constexpr const char* kServerExtensions[] = {"classification",
                                                    "sequence",
                                                    "model_repository",
                                                    "model_repository(unload_dependents)",
                                                    "schedule_policy",
                                                    "model_configuration",
                                                    "system_shared_memory",
                                                    "cuda_shared_memory",
                                                    "binary_tensor_data",
                                                    "parameters",
                                                    "statistics",
                                                    "trace",
                                                    "logging"};

}  // namespace nereid
