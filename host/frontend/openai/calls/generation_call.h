// The model requests of one HTTP request, one for each prompt, and their answers. [loop thread]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host/frontend/http/calls/model_call.h"
#include "host/frontend/http/kserve_context.h"
#include "host/frontend/http/transport/http_connection.h"
#include "host/frontend/openai/calls/answers.h"
#include "host/frontend/openai/calls/generation_request.h"
#include "host/frontend/openai/calls/running_requests.h"

namespace nereid::openai {

class GenerationCall final : public http::InFlightCall,
                             public std::enable_shared_from_this<GenerationCall> {
 public:
  // Starts the model requests. On an error the connection must still be answered.
  // `running` lists the request until it ends.
  static Status Start(http::KServeContext& context, RunningRequests& running,
                      http::HttpConnection& connection, const http::RequestHead& head,
                      GenerationRequest request, Answers answers,
                      std::unique_ptr<AnswerFormat> format);

  GenerationCall(http::HttpConnection& connection, GenerationRequest request, Answers answers,
                 std::unique_ptr<AnswerFormat> format);

 private:
  class PromptCall;

  Status LaunchAll(http::KServeContext& context, const http::RequestHead& head,
                   const std::shared_ptr<const ByteReservation>& reservation);

  void List(RunningRequests& running, const http::RequestHead& head);
  void OnOperatorCancel();
  void NoteOutput();

  void OnDisconnect() override;
  void OnOutputSent(size_t unsent_bytes) override;
  void OnSecond() override;

  // The events of a prompt's model request. `prompt` is its index.
  void OnResponse(size_t prompt, const InferResponse& response);
  void OnEnd(size_t prompt);

  Status AddResponse(size_t prompt, const InferResponse& response, std::string& events);
  static void DropTokens(AnswerPiece& piece);
  void Collect(Answer& answer, AnswerPiece& piece);
  void AppendPiece(std::string& events, size_t answer, const AnswerPiece& piece);
  void Fail(const ApiError& error);
  void FailForMemory();
  void Echo(size_t prompt, Answer& answer, AnswerPiece& piece) const;
  void KeepMostLikely();
  void Finish();
  void BeginStream();
  void CancelAll();
  std::string ResponseHeaders() const;

  http::HttpConnection* connection_;  // null once the client has disconnected or was answered
  GenerationRequest request_;
  Answers answers_;
  const std::unique_ptr<AnswerFormat> format_;
  std::vector<PromptCall*> open_;  // by prompt; null once its model request has ended
  size_t num_open_ = 0;
  bool has_begun_ = false;        // the head of the stream has been sent
  bool has_first_piece_ = false;  // the format has begun its events
  int silent_s_ = 0;              // seconds since the last event of a stream
  RequestCounts counts_;
  std::unique_ptr<RunningRequests::Entry> entry_;  // declared after counts_, which it refers to
};

}  // namespace nereid::openai
