"""A process with GPU memory that uses only the CUDA driver: `python cuda_client.py LIBCUDA`. It answers each line of JSON with a line:
{"allocate": bytes} -> {"id", "handle"}, {"write": id, "data": hex} -> {}, {"read": id, "bytes": n} -> {"data"}. It exits if the driver returns
an error."""
import base64
import ctypes
import json
import subprocess
import sys


class CudaClient:
    """The test's side of that process."""

    def __init__(self, library, environment):
        self.process = subprocess.Popen([sys.executable, __file__, library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def allocate(self, size):
        answer = self.ask(allocate=size)
        return answer["id"], answer["handle"]

    def write(self, block, data):
        self.ask(write=block, data=data.hex())

    def read(self, block, size):
        return bytes.fromhex(self.ask(read=block, bytes=size)["data"])

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


def serve(library):
    cuda = ctypes.CDLL(library)

    def call(name, *arguments):
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            sys.exit(f"{name}: CUDA error {code}")

    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxPushCurrent_v2", context)
    for line in sys.stdin:
        request, answer = json.loads(line), {}
        if "allocate" in request:
            pointer, handle = ctypes.c_uint64(), ctypes.create_string_buffer(64)
            call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(request["allocate"]))
            call("cuIpcGetMemHandle", handle, pointer)
            answer = {"id": pointer.value, "handle": base64.b64encode(handle.raw).decode()}
        elif "write" in request:
            data = bytes.fromhex(request["data"])
            call("cuMemcpyHtoD_v2", ctypes.c_uint64(request["write"]), data, ctypes.c_size_t(len(data)))
        elif "read" in request:
            buffer = ctypes.create_string_buffer(request["bytes"])
            call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(request["read"]), ctypes.c_size_t(request["bytes"]))
            answer = {"data": buffer.raw.hex()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
