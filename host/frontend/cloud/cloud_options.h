// What the command line and the platform's environment say about the routes of cloud vendors.
#pragma once

#include <string>

namespace nereid::http {

struct SageMakerOptions {
  std::string default_model;        // SAGEMAKER_TRITON_DEFAULT_MODEL_NAME: what /invocations asks
  std::string inference = "infer";  // SAGEMAKER_TRITON_INFERENCE_TYPE: or generate, generate_stream
};

struct VertexAiOptions {
  std::string predict_route;  // AIP_PREDICT_ROUTE
  std::string health_route;   // AIP_HEALTH_ROUTE
  std::string default_model;  // empty: the only model there is
};

}  // namespace nereid::http
