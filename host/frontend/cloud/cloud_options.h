// Options of the SageMaker and Vertex AI ports, from the command line and the platforms'
// environment variables.
#pragma once

#include <string>

namespace nereid::http {

struct SageMakerOptions {
  std::string default_model;  // SAGEMAKER_TRITON_DEFAULT_MODEL_NAME: the model of /invocations
  std::string inference = "infer";  // SAGEMAKER_TRITON_INFERENCE_TYPE: or generate, generate_stream
};

struct VertexAiOptions {
  std::string predict_route;  // AIP_PREDICT_ROUTE
  std::string health_route;   // AIP_HEALTH_ROUTE
  std::string default_model;  // empty: the only ready model
};

}  // namespace nereid::http
