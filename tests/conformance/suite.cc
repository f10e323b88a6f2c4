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

// Rules that every answer obeys, whatever was asked.
Status CheckAnswer(const Subject& subject, const RequestShape& shape, const Answer& answer) {
  if (!answer.complete) {
    return UnavailableError("request '", shape.id, "': ", answer.num_responses, " responses, ",
                            answer.num_final, " of them final, and no end in time");
  }
  if (answer.num_final != 1) {
    return InternalError("request '", shape.id, "': expected 1 final response, got ",
                         answer.num_final);
  }
  if (!subject.decoupled() && answer.num_responses != 1) {
    return InternalError("request '", shape.id, "': expected 1 response, got ",
                         answer.num_responses);
  }
  return {};
}

Status CheckSuccess(const Subject& subject, const RequestShape& shape, const Answer& answer) {
  NEREID_RETURN_IF_ERROR(CheckAnswer(subject, shape, answer));
  if (!answer.error.ok()) {
    return InternalError("request '", shape.id, "' was answered with: ", answer.error.message());
  }
  if (answer.num_responses > 0 && answer.request_id != shape.id) {
    return InternalError("request '", shape.id, "': its response has the id '", answer.request_id,
                         "'");
  }
  return {};
}

Result<Answer> AskWell(const Subject& subject, const RequestShape& shape) {
  NEREID_ASSIGN_OR_RETURN(Answer answer, subject.Ask(shape));
  NEREID_RETURN_IF_ERROR(CheckSuccess(subject, shape, answer));
  return answer;
}

RequestShape Plain(std::string id) {
  RequestShape shape;
  shape.id = std::move(id);
  return shape;
}

Outcome Loads(Subject& subject) {
  const Status loaded = subject.Load();
  return From(loaded.ok() ? subject.Describe() : loaded);
}

Outcome LoadsAgain(Subject& subject) {
  for (int i = 0; i < 3; ++i) {
    Status status = subject.Unload();
    if (status.ok()) status = subject.Load();
    if (!status.ok()) return From(status);
  }
  return Passed();
}

Outcome Answers(Subject& subject) {
  return From(AskWell(subject, Plain("plain")).status());
}

Outcome AnswersEveryOutput(Subject& subject) {
  const auto answer = AskWell(subject, Plain("all outputs"));
  if (!answer.ok()) return From(answer.status());
  for (const TensorInfo& output : subject.outputs()) {
    if (answer->outputs.count(output.name) == 0) {
      return Failed(StrCat("output '", output.name, "' is missing where none was named"));
    }
  }
  return Passed();
}

Outcome AnswersWhatIsAsked(Subject& subject) {
  if (subject.outputs().size() < 2) return Skipped("the model has one output");
  for (const TensorInfo& output : subject.outputs()) {
    RequestShape shape = Plain("output " + output.name);
    shape.outputs = {output.name};
    const auto answer = AskWell(subject, shape);
    if (!answer.ok()) return From(answer.status());
    if (answer->outputs.size() != 1 || answer->outputs.count(output.name) == 0) {
      return Failed(
          StrCat("asked for '", output.name, "' alone, got ", answer->outputs.size(), " outputs"));
    }
  }
  return Passed();
}

Outcome ReadsPieces(Subject& subject) {
  const auto whole = AskWell(subject, Plain("whole"));
  RequestShape shape = Plain("pieces");
  shape.num_pieces = 3;
  const auto pieces = AskWell(subject, shape);
  if (!whole.ok() || !pieces.ok()) return From(whole.ok() ? pieces.status() : whole.status());
  if (whole->outputs == pieces->outputs) return Passed();
  return Failed("inputs that lie in three pieces give another answer than the same in one");
}

Outcome TakesBatches(Subject& subject) {
  if (subject.max_batch_size() < 2) return Skipped("the model has no batches");
  for (const int64_t rows : {int64_t{2}, subject.max_batch_size()}) {
    RequestShape shape = Plain(StrCat(rows, " rows"));
    shape.rows = rows;
    const auto answer = AskWell(subject, shape);
    if (!answer.ok()) return From(answer.status());
  }
  return Passed();
}

Outcome TakesManyAtOnce(Subject& subject) {
  std::vector<RequestShape> shapes;
  for (int i = 0; i < 64; ++i) shapes.push_back(Plain(StrCat("at once ", i)));
  const auto answers = subject.AskAtOnce(shapes);
  if (!answers.ok()) return From(answers.status());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Status status = CheckSuccess(subject, shapes[i], (*answers)[i]);
    if (!status.ok()) return From(status);
  }
  return Passed();
}

// More instances join, work beside each other, and leave again.
Outcome ServesWithSeveralInstances(Subject& subject) {
  constexpr int64_t kNumInstances = 4;
  const Status joined = subject.LoadInstances(kNumInstances);
  if (joined.code() == StatusCode::kUnsupported) return Skipped(joined.message());
  if (!joined.ok()) return From(joined);
  const Outcome while_many = TakesManyAtOnce(subject);
  if (while_many.verdict == Outcome::Verdict::kFailed) {
    return Failed(StrCat("with ", kNumInstances, " instances: ", while_many.detail));
  }
  const Status left = subject.LoadInstances(1);
  if (!left.ok()) return From(left);
  const Outcome with_one = TakesManyAtOnce(subject);
  if (with_one.verdict == Outcome::Verdict::kFailed) {
    return Failed(StrCat("after all instances but one left: ", with_one.detail));
  }
  return From(subject.Load());
}

Outcome TakesEmptyTensors(Subject& subject) {
  bool has_free_dim = false;
  for (const TensorInfo& input : subject.inputs()) {
    for (const int64_t dim : input.dims) has_free_dim = has_free_dim || dim < 0;
  }
  if (!has_free_dim) return Skipped("no input may be empty");
  RequestShape shape = Plain("empty");
  shape.free_dim = 0;
  const auto answer = subject.Ask(shape);
  return From(answer.ok() ? CheckAnswer(subject, shape, *answer) : answer.status());
}

Outcome EndsCancelled(Subject& subject) {
  std::vector<RequestShape> shapes;
  for (int i = 0; i < 16; ++i) {
    shapes.push_back(Plain(StrCat("cancelled ", i)));
    shapes.back().cancelled = true;
  }
  const auto answers = subject.AskAtOnce(shapes);
  if (!answers.ok()) return From(answers.status());
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Status status = CheckAnswer(subject, shapes[i], (*answers)[i]);
    if (!status.ok()) return From(status);
  }
  return Passed();
}

Outcome Reports(Subject& subject) {
  const auto before = subject.NumReported();
  const auto answer = AskWell(subject, Plain("reported"));
  const auto after = subject.NumReported();
  if (!before.ok() || !answer.ok() || !after.ok()) {
    return From(!before.ok() ? before.status() : !answer.ok() ? answer.status() : after.status());
  }
  if (*after == *before + 1) return Passed();
  return Failed(
      StrCat("a request raised the count of successes from ", *before, " to ", *after,
             ": TRITONBACKEND_ModelInstanceReportStatistics is due once a request, before "
             "its release"));
}

Outcome UnloadsInUse(Subject& subject) {
  std::vector<RequestShape> shapes;
  for (int i = 0; i < 16; ++i) shapes.push_back(Plain(StrCat("while unloading ", i)));
  const auto answers = subject.AskAtOnce(shapes);
  if (!answers.ok()) return From(answers.status());
  const Status status = subject.Unload();
  if (!status.ok()) return From(status);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Status answered = CheckAnswer(subject, shapes[i], (*answers)[i]);
    if (!answered.ok()) return From(answered);
  }
  return Passed();
}

const char* Mark(Outcome::Verdict verdict, bool is_quirk) {
  if (verdict == Outcome::Verdict::kSkipped) return "skipped";
  if (verdict == Outcome::Verdict::kFailed) return is_quirk ? "quirk" : "FAILED";
  return is_quirk ? "ok, though named a quirk" : "ok";
}

}  // namespace

const std::vector<Check>& Suite() {
  static const std::vector<Check> suite = {
      {"load", "the library opens, the model loads", Loads},
      {"reload", "the model ends and loads again", LoadsAgain},
      {"answer", "a request is answered with success, once, and given back", Answers},
      {"all_outputs", "who names no output gets all of them", AnswersEveryOutput},
      {"named_outputs", "who names outputs gets those alone", AnswersWhatIsAsked},
      {"pieces", "inputs may lie in several buffers", ReadsPieces},
      {"batch", "requests of several rows", TakesBatches},
      {"at_once", "many requests at once, each with its own answer", TakesManyAtOnce},
      {"instances", "several instances serve at once, and all but one leave",
       ServesWithSeveralInstances},
      {"empty", "an empty tensor is answered, if only with an error", TakesEmptyTensors},
      {"cancel", "cancelled requests end", EndsCancelled},
      {"statistics", "requests are reported before their release", Reports},
      {"unload", "the model ends after the last request", UnloadsInUse},
  };
  return suite;
}

int RunSuite(Subject& subject, const Quirks& quirks) {
  int passed = 0, failed = 0, skipped = 0;
  bool loaded = true;
  for (const Check& check : Suite()) {
    const Outcome outcome = loaded ? check.run(subject) : Skipped("the model did not load");
    const bool is_quirk = quirks.names.count(check.name) > 0;
    const bool is_load = std::string_view(check.name) == "load";
    if (is_load && outcome.verdict == Outcome::Verdict::kFailed) loaded = false;
    passed += outcome.verdict == Outcome::Verdict::kPassed;
    skipped += outcome.verdict == Outcome::Verdict::kSkipped;
    failed += outcome.verdict == Outcome::Verdict::kFailed && !is_quirk;
    std::printf("%-14s %-8s %s%s%s\n", check.name, Mark(outcome.verdict, is_quirk), check.meaning,
                outcome.detail.empty() ? "" : ": ", outcome.detail.c_str());
    std::fflush(stdout);
  }
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed;
}

}  // namespace nereid::conformance
