// The nghttp2 session of a connection: its settings, and callbacks to the connection and its
// streams. [loop thread]
#include "host/frontend/grpc/transport/http2_connection.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <new>

#include "host/frontend/grpc/transport/http2_stream.h"

namespace nereid::grpc {
namespace {

constexpr uint32_t kStreamWindowBytes = 1 << 20;      // unread bytes per call
constexpr int32_t kConnectionWindowBytes = 16 << 20;  // unread bytes per connection
constexpr uint32_t kMaxFrameBytes = 256 << 10;        // of a DATA frame
constexpr uint32_t kMaxHeaderListBytes = 16 << 10;
// Rate limit of stream resets by one client: a burst, then a rate per second.
constexpr uint64_t kResetBurst = 10'000;
constexpr uint64_t kResetsASecond = 1'000;

Http2Stream* StreamOf(nghttp2_session* session, int32_t id) {
  return static_cast<Http2Stream*>(nghttp2_session_get_stream_user_data(session, id));
}

std::string_view View(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

// Runs `work`, a part of a callback. No exception may pass through nghttp2. A connection without
// memory for its own state is closed.
template <typename Work>
int WithoutExceptions(const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::bad_alloc&) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
}

}  // namespace

// Callbacks of nghttp2; `self` is the Http2Connection.
struct SessionCallbacks {
  static int OnBeginFrame(nghttp2_session*, const nghttp2_frame_hd* head, void* self) {
    if (head->type == NGHTTP2_HEADERS) {
      static_cast<Http2Connection*>(self)->OnHeadersFrame(head->stream_id);
    }
    return 0;
  }

  static int OnBeginHeaders(nghttp2_session* session, const nghttp2_frame* frame, void* self) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    return WithoutExceptions([&] {
      auto* const stream =
          new Http2Stream(*static_cast<Http2Connection*>(self), frame->hd.stream_id);
      nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
    });
  }

  static int OnHeader(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                      size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t, void*) {
    Http2Stream* const stream = StreamOf(session, frame->hd.stream_id);
    if (stream == nullptr) return 0;
    return WithoutExceptions(
        [&] { stream->OnHeader(View(name, name_bytes), View(value, value_bytes)); });
  }

  static int OnFrame(nghttp2_session* session, const nghttp2_frame* frame, void* self) {
    auto& connection = *static_cast<Http2Connection*>(self);
    switch (frame->hd.type) {
      case NGHTTP2_HEADERS:
      case NGHTTP2_DATA: {
        Http2Stream* const stream = StreamOf(session, frame->hd.stream_id);
        if (stream == nullptr) return 0;
        return WithoutExceptions([&] {
          if (frame->hd.type == NGHTTP2_HEADERS) stream->OnHeadersEnd();
          if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) stream->OnRemoteEnd();
        });
      }
      case NGHTTP2_SETTINGS:
        connection.has_settings_ = true;
        return 0;
      case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) {
          connection.OnPing();
        } else {
          connection.OnPingAck();
        }
        return 0;
      default:
        return 0;
    }
  }

  static int OnData(nghttp2_session* session, uint8_t, int32_t stream_id, const uint8_t* data,
                    size_t size, void* self) {
    Http2Stream* const stream = StreamOf(session, stream_id);
    if (stream == nullptr) {
      static_cast<Http2Connection*>(self)->Consume(stream_id, size);
      return 0;
    }
    return WithoutExceptions([&] { stream->OnData(View(data, size)); });
  }

  static int OnStreamClose(nghttp2_session* session, int32_t stream_id, uint32_t, void*) {
    Http2Stream* const stream = StreamOf(session, stream_id);
    if (stream == nullptr) return 0;
    nghttp2_session_set_stream_user_data(session, stream_id, nullptr);
    stream->OnClosed();
    return 0;
  }

  static int OnFrameSent(nghttp2_session* session, const nghttp2_frame* frame, void* self) {
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    static_cast<Http2Connection*>(self)->OnDataSent();
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
    Http2Stream* const stream = StreamOf(session, frame->hd.stream_id);
    if (stream != nullptr) stream->OnLocalEnd();
    return 0;
  }

  static int SendData(nghttp2_session*, nghttp2_frame*, const uint8_t* frame_head, size_t length,
                      nghttp2_data_source* source, void* self) {
    constexpr size_t kFrameHeadBytes = 9;
    SendBuffer& out = static_cast<Http2Connection*>(self)->out_;
    out.Append(View(frame_head, kFrameHeadBytes));
    static_cast<Http2Stream*>(source->ptr)->MoveDataTo(length, out);
    return 0;
  }

  static ssize_t ChooseDataBytes(nghttp2_session*, uint8_t, int32_t, int32_t connection_window,
                                 int32_t stream_window, uint32_t max_frame_bytes, void*) {
    const int32_t window = std::min(connection_window, stream_window);
    return std::min<int64_t>(window, std::min(max_frame_bytes, kMaxFrameBytes));
  }
};

namespace {

// Created once and never freed.
const nghttp2_session_callbacks* Callbacks() {
  static const nghttp2_session_callbacks* const made = [] {
    nghttp2_session_callbacks* callbacks = nullptr;
    if (nghttp2_session_callbacks_new(&callbacks) != 0) return callbacks;
    using Events = SessionCallbacks;
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, &Events::OnBeginFrame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, &Events::OnBeginHeaders);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, &Events::OnHeader);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, &Events::OnFrame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, &Events::OnData);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, &Events::OnStreamClose);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, &Events::OnFrameSent);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, &Events::SendData);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks,
                                                                   &Events::ChooseDataBytes);
    return callbacks;
  }();
  return made;
}

// Created once and never freed.
const nghttp2_option* Options() {
  static const nghttp2_option* const made = [] {
    nghttp2_option* option = nullptr;
    if (nghttp2_option_new(&option) != 0) return option;
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    // gRPC's own servers accept metadata with leading and trailing spaces.
    nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(option, 1);
    nghttp2_option_set_stream_reset_rate_limit(option, kResetBurst, kResetsASecond);
    return option;
  }();
  return made;
}

}  // namespace

nghttp2_session* NewSession(Http2Connection& connection, const GrpcOptions& options) {
  nghttp2_session* session = nullptr;
  if (Callbacks() == nullptr || Options() == nullptr ||
      nghttp2_session_server_new2(&session, Callbacks(), &connection, Options()) != 0) {
    return nullptr;
  }
  nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindowBytes},
                                       {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kMaxFrameBytes},
                                       {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMaxHeaderListBytes},
                                       {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                        static_cast<uint32_t>(options.max_streams_per_connection)}};
  const size_t num_settings = options.max_streams_per_connection > 0 ? 4 : 3;
  nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, settings, num_settings);
  nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, kConnectionWindowBytes);
  return session;
}

}  // namespace nereid::grpc
