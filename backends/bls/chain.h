// The chain preprocessing -> engine -> postprocessing that a `bls` model runs, as the configuration
// of an ensemble. Which tensors exist depends on the release of TensorRT-LLM that the repository
// was made for, so the chain connects those that both sides declare. Pure. [any thread]
#pragma once

#include <set>
#include <span>
#include <string>

#include "backends/ensemble/ensemble_config.h"
#include "backends/ensemble/tensor.h"

namespace nereid::bls {

enum ChainStep { kPreprocessing, kEngine, kPostprocessing, kNumChainSteps };

// Names of the called models, by ChainStep.
using ChainModels = std::string[kNumChainSteps];

struct Chain {
  // The steps, and the tensors of the `bls` model that are connected to them.
  ensemble::EnsembleConfig config;
  // Tensors that the `bls` model declares and that no called model has.
  std::set<std::string> unused_inputs;
  std::set<std::string> absent_outputs;
};

// `model` is the `bls` model, `called` are the models of the steps.
Chain MakeChain(const ensemble::ModelSpec& model, const ChainModels& names,
                std::span<const ensemble::ModelSpec> called);

// The shape with which a client sends an input of the model, from the one that the model is given:
// behind the `reshape` of its configuration, which the called models do not have. Inputs with
// variable dims stay as they are.
ensemble::Shape ShapeOfClient(const ensemble::TensorSpec& input, bool is_batching,
                              const ensemble::Shape& given);

}  // namespace nereid::bls
