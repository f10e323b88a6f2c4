#include "tests/conformance/suite.h"

#include <cstdio>

namespace nereid::conformance {
namespace {

Outcome Passed() {
  return {};
}
Outcome Failed(std::string detail) {
  return {Outcome::Verdict::kFailed, std::move(detail)};
}
Outcome Skipped(std::string detail) {
  return {Outcome::Verdict::kSkipped, std::move(detail)};
}
Outcome From(const Status& status) {
  return status.ok() ? Passed() : Failed(status.message());
}

// Rules for every answer, whatever was requested.
Status CheckAnswer(const ModelUnderTest& model, const RequestVariant& shape, const Answer& answer) {
  if (!answer.complete) {
    return UnavailableError("request '", shape.id, "': ", answer.num_responses, " responses, ",
                            answer.num_final,
                            " of them final; timed out before the final response and the release");
  }
  if (answer.num_final != 1) {
    return InternalError("request '", shape.id, "': expected 1 final response, got ",
                         answer.num_final);
  }
  if (!model.decoupled() && answer.num_responses != 1) {
    return InternalError("request '", shape.id, "': expected 1 response, got ",
                         answer.num_responses);
  }
  return {};
}

Status CheckSuccess(const ModelUnderTest& model, const RequestVariant& shape,
                    const Answer& answer) {
  NEREID_RETURN_IF_ERROR(CheckAnswer(model, shape, answer));
  if (!answer.error.ok()) {
    return InternalError("request '", shape.id, "' was answered with: ", answer.error.message());
  }
  if (answer.num_responses > 0 && answer.request_id != shape.id) {
    return InternalError("request '", shape.id, "': its response has the id '", answer.request_id,
                         "'");
  }
  return {};
}

Result<Answer> AskExpectingSuccess(const ModelUnderTest& model, const RequestVariant& shape) {
  NEREID_ASSIGN_OR_RETURN(Answer answer, model.Ask(shape));
  NEREID_RETURN_IF_ERROR(CheckSuccess(model, shape, answer));
  return answer;
}

RequestVariant Plain(std::string id) {
  RequestVariant shape;
  shape.id = std::move(id);
  return shape;
}

Outcome Loads(ModelUnderTest& model) {
  const Status loaded = model.Load();
  return From(loaded.ok() ? model.Describe() : loaded);
}

Outcome LoadsAgain(ModelUnderTest& model) {
  for (int i = 0; i < 3; ++i) {
    Status status = model.Unload();
    if (status.ok()) status = model.Load();
    if (!status.ok()) return From(status);
  }
  return Passed();
}

Outcome Answers(ModelUnderTest& model) {
  return From(AskExpectingSuccess(model, Plain("plain")).status());
}

Outcome AnswersEveryOutput(ModelUnderTest& model) {
  const auto answer = AskExpectingSuccess(model, Plain("all outputs"));
  if (!answer.ok()) return From(answer.status());
  for (const TensorInfo& output : model.outputs()) {
    if (answer->outputs.count(output.name) == 0) {
      return Failed(StrCat("output '", output.name, "' is missing where none was named"));
    }
  }
  return Passed();
}

Outcome AnswersWhatIsAsked(ModelUnderTest& model) {
  if (model.outputs().size() < 2) return Skipped("the model has one output");
  for (const TensorInfo& output : model.outputs()) {
    RequestVariant shape = Plain("output " + output.name);
    shape.outputs = {output.name};
    const auto answer = AskExpectingSuccess(model, shape);
    if (!answer.ok()) return From(answer.status());
    if (answer->outputs.size() != 1 || answer->outputs.count(output.name) == 0) {
      return Failed(
          StrCat("requested only '", output.name, "', got ", answer->outputs.size(), " outputs"));
    }
  }
  return Passed();
}

Outcome ReadsSeveralBuffers(ModelUnderTest& model) {
  const auto whole = AskExpectingSuccess(model, Plain("whole"));
  RequestVariant shape = Plain("pieces");
  shape.num_buffers = 3;
  const auto divided = AskExpectingSuccess(model, shape);
  if (!whole.ok() || !divided.ok()) return From(whole.ok() ? divided.status() : whole.status());
  if (whole->outputs == divided->outputs) return Passed();
  return Failed("inputs in three buffers give another answer than in one buffer");
}

Outcome TakesBatches(ModelUnderTest& model) {
  if (model.max_batch_size() < 2) return Skipped("the model does not batch");
  for (const int64_t rows : {int64_t{2}, model.max_batch_size()}) {
    RequestVariant shape = Plain(StrCat(rows, " rows"));
    shape.rows = rows;
    const auto answer = AskExpectingSuccess(model, shape);
    if (!answer.ok()) return From(answer.status());
  }
  return Passed();
}

Outcome TakesManyAtOnce(ModelUnderTest& model) {
  std::vector<RequestVariant> shapes;
  for (int i = 0; i < 64; ++i) shapes.push_back(Plain(StrCat("at once ", i)));
  const auto answers = model.AskAtOnce(shapes);
  if (!answers.ok()) return From(answers.status());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Status status = CheckSuccess(model, shapes[i], (*answers)[i]);
    if (!status.ok()) return From(status);
  }
  return Passed();
}

// Adds instances, sends requests to all of them, and removes all but one.
Outcome ServesWithSeveralInstances(ModelUnderTest& model) {
  constexpr int64_t kNumInstances = 4;
  const Status joined = model.LoadInstances(kNumInstances);
  if (joined.code() == StatusCode::kUnsupported) return Skipped(joined.message());
  if (!joined.ok()) return From(joined);
  const Outcome while_many = TakesManyAtOnce(model);
  if (while_many.verdict == Outcome::Verdict::kFailed) {
    return Failed(StrCat("with ", kNumInstances, " instances: ", while_many.detail));
  }
  const Status left = model.LoadInstances(1);
  if (!left.ok()) return From(left);
  const Outcome with_one = TakesManyAtOnce(model);
  if (with_one.verdict == Outcome::Verdict::kFailed) {
    return Failed(StrCat("after all instances but one were removed: ", with_one.detail));
  }
  return From(model.Load());
}

Outcome TakesEmptyTensors(ModelUnderTest& model) {
  bool has_free_dim = false;
  for (const TensorInfo& input : model.inputs()) {
    for (const int64_t dim : input.dims) has_free_dim = has_free_dim || dim < 0;
  }
  if (!has_free_dim) return Skipped("no input has a variable dimension");
  RequestVariant shape = Plain("empty");
  shape.free_dim = 0;
  const auto answer = model.Ask(shape);
  return From(answer.ok() ? CheckAnswer(model, shape, *answer) : answer.status());
}

Outcome EndsCancelled(ModelUnderTest& model) {
  std::vector<RequestVariant> shapes;
  for (int i = 0; i < 16; ++i) {
    shapes.push_back(Plain(StrCat("cancelled ", i)));
    shapes.back().cancelled = true;
  }
  const auto answers = model.AskAtOnce(shapes);
  if (!answers.ok()) return From(answers.status());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Status status = CheckAnswer(model, shapes[i], (*answers)[i]);
    if (!status.ok()) return From(status);
  }
  return Passed();
}

Outcome Reports(ModelUnderTest& model) {
  const auto before = model.NumReported();
  const auto answer = AskExpectingSuccess(model, Plain("reported"));
  const auto after = model.NumReported();
  if (!before.ok() || !answer.ok() || !after.ok()) {
    return From(!before.ok() ? before.status() : !answer.ok() ? answer.status() : after.status());
  }
  if (*after == *before + 1) return Passed();
  return Failed(StrCat("a request raised the count of successes from ", *before, " to ", *after,
                       ": TRITONBACKEND_ModelInstanceReportStatistics must be called once for each "
                       "request, before its release"));
}

Outcome UnloadsInUse(ModelUnderTest& model) {
  std::vector<RequestVariant> shapes;
  for (int i = 0; i < 16; ++i) shapes.push_back(Plain(StrCat("while unloading ", i)));
  const auto answers = model.AskAtOnce(shapes);
  if (!answers.ok()) return From(answers.status());
  const Status status = model.Unload();
  if (!status.ok()) return From(status);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Status answered = CheckAnswer(model, shapes[i], (*answers)[i]);
    if (!answered.ok()) return From(answered);
  }
  return Passed();
}

const char* VerdictText(Outcome::Verdict verdict, bool is_quirk) {
  if (verdict == Outcome::Verdict::kSkipped) return "skipped";
  if (verdict == Outcome::Verdict::kFailed) return is_quirk ? "quirk" : "FAILED";
  return is_quirk ? "ok, though named a quirk" : "ok";
}

}  // namespace

const std::vector<Check>& Suite() {
  static const std::vector<Check> suite = {
      {"load", "the library opens, the model loads", Loads},
      {"reload", "the model unloads and loads again", LoadsAgain},
      {"answer", "a request gets one successful response and is released", Answers},
      {"all_outputs", "without named outputs, all of them are returned", AnswersEveryOutput},
      {"named_outputs", "only the named outputs are returned", AnswersWhatIsAsked},
      {"pieces", "inputs may have several buffers", ReadsSeveralBuffers},
      {"batch", "requests with a batch size above 1", TakesBatches},
      {"at_once", "many requests at once, each with its own answer", TakesManyAtOnce},
      {"instances", "several instances serve at once, and all but one are removed",
       ServesWithSeveralInstances},
      {"empty", "an empty tensor is answered, possibly with an error", TakesEmptyTensors},
      {"cancel", "cancelled requests end", EndsCancelled},
      {"statistics", "requests are reported before their release", Reports},
      {"unload", "the model unloads after the last request", UnloadsInUse},
  };
  return suite;
}

int RunSuite(ModelUnderTest& model, const Quirks& quirks) {
  int passed = 0, failed = 0, skipped = 0;
  bool loaded = true;
  for (const Check& check : Suite()) {
    const Outcome outcome = loaded ? check.run(model) : Skipped("the model did not load");
    const bool is_quirk = quirks.names.count(check.name) > 0;
    const bool is_load = std::string_view(check.name) == "load";
    if (is_load && outcome.verdict == Outcome::Verdict::kFailed) loaded = false;
    passed += outcome.verdict == Outcome::Verdict::kPassed;
    skipped += outcome.verdict == Outcome::Verdict::kSkipped;
    failed += outcome.verdict == Outcome::Verdict::kFailed && !is_quirk;
    std::printf("%-14s %-8s %s%s%s\n", check.name, VerdictText(outcome.verdict, is_quirk),
                check.meaning, outcome.detail.empty() ? "" : ": ", outcome.detail.c_str());
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed;
}

}  // namespace nereid::conformance
