#include "backends/python_like_scripted/host_calls.h"

namespace nereid::scripted {

template <typename Write>
void HostCalls::Reply(int64_t call, const Status& status, const Write& write) {
  if (call == 0) return;  // nobody waits
  MarshalWriter writer;
  writer.Tuple(4);
  writer.Int(static_cast<int64_t>(HostMessage::kReply));
  writer.Int(call);
  writer.Bool(status.ok());
  if (status.ok()) {
    write(writer);
  } else {
    writer.Tuple(2);
    writer.Int(static_cast<int64_t>(status.code()));
    writer.Text(status.message());
  }
  (void)worker_->Post(writer.Take());
}

Status HostCalls::OnCall(MarshalReader& message) {
  const int64_t call = message.Int();
  const auto operation = static_cast<Operation>(message.Int());
  NEREID_RETURN_IF_ERROR(message.status());
  if (operation == Operation::kIsCancelled) {
    message.TupleOf(1);
    const auto key = static_cast<uint64_t>(message.Int());
    NEREID_RETURN_IF_ERROR(message.Finish());
    Reply(call, Status(), [&](MarshalWriter& writer) { writer.Bool(open_.IsCancelled(key)); });
    return {};
  }
  Reply(call, UnsupportedError("operation ", static_cast<int32_t>(operation)),
        [](MarshalWriter&) {});
  return {};
}

Status HostCalls::OnCancel(MarshalReader& message) {
  (void)message.Int();
  return message.Finish();
}

}  // namespace nereid::scripted
