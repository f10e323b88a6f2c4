"""Runs the case that CASE names, which uses the host's functions for models, and returns the result as JSON."""
import asyncio
import copy
import enum
import itertools
import json
import multiprocessing
import os
import pickle
import sys
import time
import weakref

import numpy as np
import triton_python_backend_utils as pb_utils


def call(model, values, **further):
    return pb_utils.InferenceRequest(model_name=model, requested_output_names=["OUT"], inputs=[pb_utils.Tensor("IN", values)], **further)


def result_of(response):
    if response.has_error():
        return {"error": response.error().message(), "code": int(response.error().code())}
    if not response.output_tensors():
        return "empty"
    return pb_utils.get_output_tensor_by_name(response, "OUT").as_numpy().tolist()


class Text(str, enum.Enum):
    MODEL, TENSOR, ID = "echo", "IN", "an id"


def put_square(results, value):
    results.put(value * value)


def put_what_calls_come_to(results):
    async def ask():
        return await call("doubler", np.ones(2, np.float32)).async_exec()
    told = []
    for attempt in (call("doubler", np.ones(2, np.float32)).exec, lambda: asyncio.run(ask())):
        try:
            told.append(result_of(attempt()))
        except pb_utils.TritonModelException as error:
            told.append(str(error))
    results.put(told)


class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        try:
            call("doubler", np.ones(2, np.float32)).exec()
            self.early = "no error"
        except pb_utils.TritonModelException as error:
            self.early = str(error)

    def execute(self, requests):
        responses = []
        for request in requests:
            case = pb_utils.get_input_tensor_by_name(request, "CASE").as_numpy()[0].decode()
            values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            text = json.dumps(getattr(self, "case_" + case)(values, request))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([text.encode()], object))]))
        return responses

    def case_early(self, values, request):
        return self.early

    def case_args(self, values, request):
        return {key: self.args[key] for key in self.args if key != "model_config"} | {"config": json.loads(self.args["model_config"])["name"]}

    def case_exec(self, values, request):
        return result_of(call("doubler", values).exec())

    def case_large(self, values, request):
        """Tensors that pass through shared memory, in and out."""
        large = np.arange(300_000, dtype=np.float32)
        output = result_of(call("doubler", large).exec())
        return output == (large * 2).tolist() or output

    def case_bytes(self, values, request):
        """Names as elements of a BYTES tensor, as models forward them."""
        response = pb_utils.InferenceRequest(model_name=b"doubler", request_id=b"r", requested_output_names=[b"OUT"],
                                             inputs=[pb_utils.Tensor(b"IN", values)]).exec()
        return result_of(response)

    def case_kinds_of_texts(self, values, request):
        """Strings and numbers of subclasses of str and int."""
        heard = []
        for kind, correlation in ((np.str_, np.str_("of NumPy")), (Text, Text.ID), (str, True), (str, enum.IntEnum("Number", "ONE TWO").TWO)):
            pb_utils.Logger.log_info(kind("an id"))
            echo = pb_utils.InferenceRequest(model_name=kind("echo"), request_id=kind("an id"), correlation_id=correlation,
                                             inputs=[pb_utils.Tensor(kind("IN"), values)], requested_output_names=[np.str_("OUT")])
            answer = json.loads(echo.exec().output_tensors()[0].as_numpy()[0])
            heard.append([answer["id"], answer["correlation"], pb_utils.is_model_ready(kind("echo")), pb_utils.TritonError(kind("an id")).message()])
        return heard

    def case_reused_arrays(self, values, request):
        """String tensors keep the content that their arrays had at creation, or that was received."""
        texts = np.array([b"final_later"], object)
        made, received = pb_utils.Tensor("CASE", texts), pb_utils.get_input_tensor_by_name(request, "CASE")
        texts[0] = received.as_numpy()[0] = b"raised"
        answers = [pb_utils.InferenceRequest(model_name="speaker", requested_output_names=["OUT"], inputs=[each]).exec() for each in (made, received)]
        return [answers[0].output_tensors()[0].as_numpy()[0].decode(), "AttributeError" in answers[1].error().message(), made.as_numpy()[0].decode()]

    def case_texts_of_numbers(self, values, request):
        error = pb_utils.TritonError("none", pb_utils.TritonError.NOT_FOUND)
        named = (pb_utils.TRITONSERVER_MEMORY_CPU, pb_utils.MetricFamily.GAUGE, pb_utils.Logger.WARNING, error.code())
        return [[str(each), f"{each}", int(each)] for each in named]

    def case_weak_references(self, values, request):
        """As keys of weak dictionaries."""
        response = call("doubler", values).exec()
        kept = weakref.WeakKeyDictionary(dict.fromkeys((request, response), 1))
        before = len(kept)
        del response
        return [before, len(kept)]

    def case_ranges(self, values, request):
        """Numbers out of range, and values that are not numbers."""
        attempts = [{"flags": 2**32}, {"flags": -1}, {"flags": 1.0}, {"timeout": 2**64}, {"timeout": -1}, {"timeout": None}, {"model_version": 2**63},
                    {"model_version": "1"}, {"model_version": -2**63}, {"flags": 2**32 - 1}, {"timeout": 2**64 - 1}, {"flags": True},
                    {"timeout": np.uint64(5)}]
        own = [lambda number=number: request.set_flags(number) for number in (2**32, -1, "1", 1.5, np.int32(0))]
        return [self.raised(lambda further=further: call("doubler", values, **further)) for further in attempts] + [self.raised(each) for each in own]

    def case_wide_parameters(self, values, request):
        """Numbers of more than 64 bits are an error of the model, not of the worker."""
        attempts = [lambda number=number: call("doubler", values, parameters={"p": number}).exec() for number in (2**63, 2**70, -2**63 - 1)]
        attempts += [lambda: pb_utils.InferenceResponse(parameters={"p": 2**70})]
        return [self.told(each) for each in attempts]

    def case_own_lists(self, values, request):
        """Changes to the returned lists are visible to others."""
        request.inputs().clear()
        response = call("doubler", values).exec()
        response.output_tensors().append(None)
        return [len(request.inputs()), len(response.output_tensors())]

    def case_unnamed(self, values, request):
        """Without requested outputs, all outputs are returned."""
        return result_of(pb_utils.InferenceRequest(model_name="doubler", requested_output_names=[], inputs=[pb_utils.Tensor("IN", values)]).exec())

    def case_unknown(self, values, request):
        return result_of(call("nosuch", values).exec())

    def case_wrong_output(self, values, request):
        return result_of(pb_utils.InferenceRequest(model_name="doubler", requested_output_names=["nosuch"], inputs=[pb_utils.Tensor("IN", values)],
                                                   request_id="refused", trace=request.trace()).exec())

    def case_fails(self, values, request):
        return result_of(call("doubler", np.array([-1], np.float32)).exec())

    def case_async(self, values, request):
        async def all_of_them():
            calls = [call("doubler", np.array([each], np.float32)).async_exec() for each in range(20)]
            return [result_of(each) for each in await asyncio.gather(*calls)]
        return asyncio.run(all_of_them())

    def case_stream(self, values, request):
        return [result_of(each) for each in call("counter", values).exec(decoupled=True)]

    def case_stream_resumed(self, values, request):
        """next() followed by a loop, which continues after it; a second loop starts from the beginning."""
        responses = call("counter", values).exec(decoupled=True)
        first = result_of(next(responses))
        return [first, [result_of(each) for each in responses], [result_of(each) for each in responses]]

    def case_stream_refused(self, values, request):
        return result_of(call("counter", values).exec())

    def case_async_stream(self, values, request):
        async def read():
            responses = await call("counter", values).async_exec(decoupled=True)
            return [result_of(each) async for each in responses]
        return asyncio.run(read())

    def case_cancel(self, values, request):
        """Cancels an endless stream."""
        responses = call("counter", np.array([np.inf], np.float32)).exec(decoupled=True)
        first = result_of(next(responses))
        responses.cancel()
        last = None
        for response in responses:
            last = response
        return [first, int(last.error().code()) if last is not None and last.has_error() else "ended"]

    def case_metrics(self, values, request):
        family = pb_utils.MetricFamily(name="caller_seen", description="what was seen", kind=pb_utils.MetricFamily.COUNTER)
        self.metric = family.Metric(labels={"kind": "a"})
        self.metric.increment(3)
        try:
            self.metric.set(1)
            refused = "no error"
        except pb_utils.TritonModelException as error:
            refused = str(error)
        gauge = pb_utils.MetricFamily(name="caller_level", description="level", kind=pb_utils.MetricFamily.GAUGE).Metric()
        gauge.set(2.5)
        self.histogram = pb_utils.MetricFamily(name="caller_sizes", description="sizes", kind=pb_utils.MetricFamily.HISTOGRAM).Metric(
            labels={}, buckets=[1.0, 10.0])
        self.histogram.observe(5)
        return [self.metric.value(), gauge.value(), bool(refused)]

    def case_metrics_of_a_family(self, values, request):
        """Metrics stay on the page as long as their family, even without references."""
        family = self.families = pb_utils.MetricFamily(name="caller_users", description="of users", kind=pb_utils.MetricFamily.COUNTER)
        for user in ("ann", "bob", "ann"):
            family.Metric(labels={"user": user}).increment(1)
        return [family.Metric(labels={"user": user}).value() for user in ("ann", "bob", "eve")]

    def case_hosts_own(self, values, request):
        """Objects that represent host objects can neither be created by models nor copied."""
        family = pb_utils.MetricFamily(name="caller_own", description="own", kind=pb_utils.MetricFamily.GAUGE)
        own = [request.get_response_sender(), request.trace(), call("counter", np.ones(1, np.float32)).exec(decoupled=True), family.Metric()]
        made = [self.raised(lambda: type(each)("one", "two")) for each in own]
        return made + [self.raised(lambda: copy_of(each)) for each in (*own, request, family) for copy_of in (copy.copy, copy.deepcopy, pickle.dumps)]

    def case_scattered_arrays(self, values, request):
        """A tensor of a non-contiguous array has the array's content at creation."""
        table = np.arange(6, dtype=np.float32).reshape(2, 3)
        scattered, whole = pb_utils.Tensor("IN", table[:, 1]), pb_utils.Tensor("IN", table[1])
        texts = np.array([["a", "b"], ["c", "d"]], object)
        text = pb_utils.Tensor("T", texts[:, 0])
        table[:] = texts[:] = -7
        return [each.as_numpy().tolist() for each in (scattered, whole, text)] + [scattered.as_numpy().flags.c_contiguous]

    def case_written_by_dlpack(self, values, request):
        tensor = pb_utils.Tensor.from_dlpack("B", pb_utils.Tensor("A", values))
        tensor.as_numpy()[0] = 9
        none = pb_utils.Tensor.from_dlpack("B", pb_utils.Tensor("A", np.zeros((2, 0), np.int8)))
        return [tensor.as_numpy().tolist(), list(none.as_numpy().shape), none.as_numpy().flags.writeable]

    def case_end_of_a_stream(self, values, request):
        stream = call("counter", np.zeros(1, np.float32)).exec(decoupled=True)
        ends = []
        while len(ends) < 2:
            try:
                next(stream)
            except StopIteration as end:
                ends.append(str(end))
        return ends

    def case_truth_of_names(self, values, request):
        names = (pb_utils.TRITONSERVER_MEMORY_GPU, pb_utils.MetricFamily.COUNTER, pb_utils.Logger.INFO, pb_utils.TritonError.UNKNOWN)
        return [[bool(each), type(each).__module__, type(each).__qualname__, pickle.loads(pickle.dumps(each)) == each] for each in names]

    def case_half_texts(self, values, request):
        """Unpaired surrogates are not valid strings."""
        half, tensor = "\ud800", pb_utils.Tensor("IN", values)
        return [self.raised(each) for each in (
            lambda: pb_utils.Tensor(half, values), lambda: pb_utils.TritonError(half), lambda: call(half, values), lambda: pb_utils.Logger.log_info(half),
            lambda: pb_utils.InferenceRequest(model_name="echo", requested_output_names=[half], inputs=[tensor]), lambda: call("echo", values, request_id=half))]

    def case_kinds_of_arguments(self, values, request):
        """Rejected argument types, and numbers in other representations."""
        tensor, sender = pb_utils.Tensor("IN", values), request.get_response_sender()
        gauge = pb_utils.MetricFamily(name="caller_kinds", description="kinds", kind=pb_utils.MetricFamily.GAUGE).Metric()
        refused = [self.raised(each) for each in (
            lambda: pb_utils.InferenceRequest(model_name="doubler", requested_output_names="OUT", inputs=[tensor]),
            lambda: pb_utils.InferenceRequest(model_name="doubler", requested_output_names={"OUT": 1}, inputs=[tensor]),
            lambda: pb_utils.InferenceRequest(model_name="doubler", requested_output_names={"OUT"}, inputs=[tensor]),
            lambda: pb_utils.InferenceRequest(model_name="doubler", requested_output_names=["OUT"], inputs=iter([tensor])),
            lambda: pb_utils.InferenceRequest(model_name="doubler", requested_output_names=["OUT"], inputs=""),
            lambda: pb_utils.InferenceResponse(iter([tensor])), lambda: call("doubler", values).exec("yes"), lambda: call("doubler", values).exec([]),
            lambda: sender.send(None, "final"), lambda: sender.send(None, None), lambda: request.set_release_flags("all"),
            lambda: pb_utils.unload_model("nosuch", "yes"), lambda: pb_utils.load_model("nosuch", 0), lambda: pb_utils.load_model("nosuch", "", {"file:a": 1}),
            lambda: call("echo", values, timeout=1.0), lambda: call("echo", values, flags=np.float64(1)), lambda: call("echo", values, flags="1"),
            lambda: pb_utils.MetricFamily(name="n", description="d", kind="COUNTER"), lambda: gauge.set(np.array(["a"])))]
        heard = json.loads(call("echo", values, flags=np.array([1]), timeout=np.float32(10**6), correlation_id=5).exec().output_tensors()[0].as_numpy()[0])
        return [refused, heard["flags"], heard["timeout"], result_of(call("doubler", values).exec(np.False_))]

    def case_nones(self, values, request):
        """None for required arguments, and which error is reported if there are two."""
        tensor, asked = pb_utils.Tensor("IN", values), {"model_name": "doubler", "requested_output_names": ["OUT"]}
        return [self.raised(each) for each in (
            lambda: pb_utils.InferenceResponse(None), lambda: pb_utils.InferenceResponse(output_tensors=None), lambda: pb_utils.InferenceResponse([None]),
            lambda: pb_utils.InferenceResponse(), lambda: pb_utils.Tensor("", None), lambda: pb_utils.Tensor(None, values),
            lambda: pb_utils.Tensor.from_dlpack("", None), lambda: pb_utils.Tensor.from_dlpack("IN", None),
            lambda: call("doubler", values, correlation_id=None), lambda: call("doubler", values, correlation_id=1.5),
            lambda: call("doubler", values, request_id=None), lambda: pb_utils.InferenceRequest(inputs=None, **asked),
            lambda: pb_utils.InferenceRequest(inputs=[None], **asked), lambda: pb_utils.InferenceRequest(inputs=[tensor], **asked))]

    def case_lent_by_dlpack(self, values, request):
        """A DLPack capsule keeps its tensor's memory alive."""
        counts = []
        for tensor in (pb_utils.Tensor("IN", values), pb_utils.Tensor("IN", np.array([True])), pb_utils.get_input_tensor_by_name(request, "IN")):
            before = sys.getrefcount(tensor)
            capsule = tensor.to_dlpack()
            held = sys.getrefcount(tensor)
            del capsule
            counts.append([held - before, sys.getrefcount(tensor) - before])
        return counts

    def case_empty_strings(self, values, request):
        return [pb_utils.deserialize_bytes_tensor(each).tolist() for each in ((), b"", pb_utils.serialize_byte_tensor(np.array([], object)))]

    def case_metric_kinds(self, values, request):
        """The operations that each metric kind supports and rejects."""
        families = [pb_utils.MetricFamily(name=f"caller_kind_{kind}", description="of a kind", kind=kind_value) for kind, kind_value in (
            ("counter", pb_utils.MetricFamily.COUNTER), ("gauge", pb_utils.MetricFamily.GAUGE), ("histogram", pb_utils.MetricFamily.HISTOGRAM))]
        counter, gauge, histogram = families
        metrics = [counter.Metric(labels={"a": "b"}), gauge.Metric(), histogram.Metric(buckets=[1.0, 2.0])]
        seen = []
        for metric in metrics:
            for act in (lambda: metric.increment(2), lambda: metric.increment(-1), lambda: metric.set(7.5), lambda: metric.observe(1.5), metric.value):
                seen.append(self.told(act))
        seen += [self.told(each) for each in (
            lambda: histogram.Metric(), lambda: histogram.Metric(buckets=(1.0, 2.0)), lambda: histogram.Metric(buckets=[]),
            lambda: histogram.Metric(buckets=[2.0, 1.0]), lambda: counter.Metric(labels={1: 2}), lambda: counter.Metric(labels={1: "x", True: "y", 1.5: "z"}),  # noqa: F601 (the repetition is what is tested)
            lambda: counter.Metric(labels={"k": b"x"}), lambda: metrics[0].increment("1"), lambda: metrics[0].increment(np.float32(1)),
            lambda: pb_utils.MetricFamily(name="caller_kind_counter", description="of a kind", kind=pb_utils.MetricFamily.GAUGE),
            lambda: pb_utils.MetricFamily("by place", "of a kind", pb_utils.MetricFamily.COUNTER), lambda: pb_utils.MetricFamily(name="no_kind"))]
        del metrics[:]
        return [*seen, gauge.Metric(labels={"again": "yes"}).value()]

    def case_own_readiness(self, values, request):
        return [pb_utils.is_model_ready("caller"), pb_utils.is_model_ready(model_name="caller", model_version="1"), pb_utils.is_model_ready("caller", "2"),
                pb_utils.is_model_ready("nosuch"), *(self.told(each) for each in (
                    lambda: pb_utils.is_model_ready("caller", "one"), lambda: pb_utils.is_model_ready("caller", 1), lambda: pb_utils.is_model_ready(),
                    lambda: pb_utils.is_model_ready(None)))]

    def case_positional(self, values, request):
        """Positional arguments for parameters that also have names."""
        tensor = pb_utils.Tensor("IN", values)
        made = pb_utils.InferenceRequest("id", 7, [tensor], ["OUT"], "doubler", 1, 0, 0)
        error = pb_utils.TritonError("text", pb_utils.TritonError.NOT_FOUND)
        response = pb_utils.InferenceResponse([], error)
        return [made.request_id(), made.correlation_id(), made.flags(), made.timeout(), sorted(made.requested_output_names()), result_of(made.exec(False)),
                error.message(), int(error.code()), response.has_error(), len(response.output_tensors()), tensor.__dlpack_device__()[0],
                type(tensor.__dlpack__(None)).__name__, pb_utils.get_input_tensor_by_name(made, "IN").name(), pb_utils.get_input_tensor_by_name(made, "X"),
                type(request.trace()).__name__]

    def case_control(self, values, request):
        before = pb_utils.is_model_ready("spare")
        pb_utils.load_model("spare")
        between = pb_utils.is_model_ready("spare", "1")
        answer = result_of(call("spare", values).exec())
        pb_utils.unload_model("spare")
        try:
            pb_utils.load_model("nosuch")
            refused = "no error"
        except pb_utils.TritonModelException as error:
            refused = str(error)
        return [before, between, answer, refused]

    def case_request(self, values, request):
        return {"id": request.request_id(), "correlation": request.correlation_id(), "flags": request.flags(), "timeout": request.timeout(),
                "outputs": sorted(request.requested_output_names()), "parameters": json.loads(request.parameters()),
                "cancelled": request.is_cancelled(), "trace": request.trace().get_context(), "inputs": [each.name() for each in request.inputs()]}

    def case_memory(self, values, request):
        preferred = pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0)
        response = call("doubler", values, preferred_memory=preferred, request_id="b", parameters={"k": 1, "t": "x", "b": True},
                        timeout=1000000, trace=request.trace()).exec()
        return [result_of(response), json.loads(response.parameters()), response.output_tensors()[0].is_cpu()]

    def case_logs(self, values, request):
        pb_utils.Logger.log_warn("a warning from the model")
        pb_utils.Logger.log("a line from the model", pb_utils.Logger.INFO)
        print("a line on stdout")
        return "logged"

    def case_dlpack(self, values, request):
        tensor = pb_utils.get_input_tensor_by_name(request, "IN")
        again = pb_utils.Tensor.from_dlpack("AGAIN", tensor)
        flags = pb_utils.Tensor.from_dlpack("FLAGS", pb_utils.Tensor("F", np.array([True, False])).to_dlpack())
        try:
            pb_utils.Tensor("S", np.array([b"x"], object)).to_dlpack()
            refused = "no error"
        except pb_utils.TritonModelException as error:
            refused = str(error)
        return [again.as_numpy().tolist(), bool(np.shares_memory(again.as_numpy(), values)), flags.as_numpy().tolist(),
                str(flags.as_numpy().dtype), list(tensor.__dlpack_device__()), refused]

    def case_shapes_by_dlpack(self, values, request):
        arrays = (np.zeros((3, 0), np.float32), np.zeros((0, 3), np.float32), np.zeros((1, 2, 1), np.int8), np.array(3.0), np.zeros((2, 3))[:1])
        return [list(pb_utils.Tensor.from_dlpack("T", array).as_numpy().shape) for array in arrays]

    def case_processes(self, values, request):
        """Return values and exits of spawned (not forked) processes."""
        ends = []
        for method in ("spawn", "forkserver"):
            context = multiprocessing.get_context(method)
            results = context.SimpleQueue()
            process = context.Process(target=put_square, args=(results, 3))
            process.start()
            process.join(30)
            ends.append([process.exitcode, None if results.empty() else results.get()])
        return ends

    def case_free(self, values, request):
        from c_python_backend_utils import shared_memory
        return shared_memory.free_memory() > 0

    def case_directory(self, values, request):
        return pb_utils.get_model_dir()

    def case_codes(self, values, request):
        names = ["UNKNOWN", "INTERNAL", "NOT_FOUND", "INVALID_ARG", "UNAVAILABLE", "UNSUPPORTED", "ALREADY_EXISTS", "CANCELLED"]
        codes = [int(pb_utils.TritonError(name, getattr(pb_utils.TritonError, name)).code()) for name in names]
        codes += [int(pickle.loads(pickle.dumps(pb_utils.TritonError.NOT_FOUND)))]
        return codes + [int(pb_utils.TritonError("no code").code()), pb_utils.TritonError(b"bytes").message()]

    def case_types(self, values, request):
        """Numbers, names and NumPy types of data types."""
        return [[np.dtype(pb_utils.triton_to_numpy_type(number)).str for number in range(1, 14)],
                [int(pb_utils.numpy_to_triton_type(each)) for each in (np.bool_, np.uint8, np.int64, np.float16, np.float32, np.object_, np.bytes_)],
                [pb_utils.numpy_to_triton_type(each.dtype) for each in (values, np.array([True]), np.array([b"x"], object))],
                [pb_utils.numpy_to_triton_type(np.complex64), pb_utils.triton_to_numpy_type(0), pb_utils.triton_to_numpy_type(99)],
                [np.dtype(pb_utils.triton_string_to_numpy(each)).str for each in ("TYPE_BOOL", "TYPE_UINT16", "TYPE_FP16", "TYPE_STRING")],
                [pb_utils.triton_string_to_numpy("TYPE_BOOL") is bool, pb_utils.numpy_to_triton_type(data_type=np.int8),
                 pb_utils.triton_to_numpy_type(data_type=6) is np.int8]]

    def case_strings(self, values, request):
        words = np.array([["a", b"bc"], ["", "d\u00e9"]], dtype=np.object_)
        encoded = pb_utils.serialize_byte_tensor(words)
        return [bytes(encoded).hex(), [each.decode() for each in pb_utils.deserialize_bytes_tensor(encoded)]]

    def case_config(self, values, request):
        config = json.loads(self.args["model_config"])
        return [pb_utils.get_input_config_by_name(config, "IN")["data_type"], pb_utils.get_output_config_by_name(config, "OUT")["dims"],
                pb_utils.get_input_config_by_name(config, "NOSUCH"), pb_utils.using_decoupled_model_transaction_policy(config),
                pb_utils.using_decoupled_model_transaction_policy({"model_transaction_policy": {"decoupled": True}})]

    def case_constants(self, values, request):
        return [int(each) for each in (pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL, pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START,
                                       pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END, pb_utils.TRITONSERVER_MEMORY_GPU,
                                       pb_utils.TRITONSERVER_MEMORY_CPU, pb_utils.MetricFamily.COUNTER, pb_utils.MetricFamily.GAUGE)]

    def case_tensors(self, values, request):
        """Properties of tensors of every data type."""
        seen = []
        for array in (np.zeros((2, 3), np.float32), np.ones(0, np.int64), np.array([True]), np.array([[b"x", "y"]], np.object_),
                      np.arange(6, dtype=np.int16).reshape(2, 3).T, np.array(3.0, np.float32)):
            tensor = pb_utils.Tensor("T", array)
            seen.append([tensor.name(), list(tensor.shape()), tensor.is_cpu(), str(tensor.as_numpy().tolist())])
        return seen

    def case_refusals(self, values, request):
        """The exception types for wrong arguments."""
        tensor = pb_utils.Tensor("T", values)
        attempts = [lambda: pb_utils.Tensor("T", [1, 2]), lambda: pb_utils.Tensor(5, values), lambda: pb_utils.InferenceResponse(["x"]),
                    lambda: pb_utils.InferenceResponse([tensor], error="text"), lambda: pb_utils.TritonError(5),
                    lambda: pb_utils.InferenceRequest(inputs=[tensor], requested_output_names=["OUT"], model_name=None),
                    lambda: pb_utils.InferenceRequest(requested_output_names=["OUT"], model_name="doubler"),
                    lambda: pb_utils.InferenceRequest(inputs=[tensor], model_name="doubler"),
                    lambda: pb_utils.InferenceRequest(inputs=[tensor], requested_output_names=[""], model_name="doubler"),
                    lambda: pb_utils.PreferredMemory(0), lambda: pb_utils.MetricFamily(name="n", description="d", kind=None)]
        return [self.raised(each) for each in attempts]

    def case_texts(self, values, request):
        """The messages of the library's own exceptions for wrong arguments."""
        tensor = pb_utils.Tensor("T", values)
        strided = np.arange(6, dtype=np.float32).reshape(2, 3).T
        attempts = [*(lambda array=array: pb_utils.Tensor("T", array) for array in (
                        np.zeros(2, np.complex64), np.array(["text"]), np.zeros(2, ">f4"), np.zeros(2, "M8[s]"))),
                    lambda: pb_utils.Tensor.from_dlpack("T", [1, 2]), lambda: pb_utils.Tensor.from_dlpack("T", strided),
                    lambda: pb_utils.InferenceResponse([None]), lambda: call("doubler", values, correlation_id=1.5),
                    lambda: pb_utils.InferenceRequest(inputs=[None], requested_output_names=["OUT"], model_name="m", request_id="i"),
                    lambda: pb_utils.InferenceRequest(inputs=[tensor], requested_output_names=["OUT", ""], model_name="m", request_id="i"),
                    lambda: call("m", values, parameters={1: 2}), lambda: call("m", values, parameters={"k": 1.5}),
                    lambda: call("m", values, parameters={"k": None}), lambda: call("m", values, parameters={"k": [1]}),
                    lambda: call("m", values).get_response_sender().send(),
                    lambda: call("m", values).get_response_sender().send(pb_utils.InferenceResponse([tensor])),
                    lambda: pb_utils.load_model("m", files=[1]), lambda: pb_utils.is_model_ready("m", "-5"),
                    lambda: pb_utils.MetricFamily(name="caller texts", description="", kind=pb_utils.MetricFamily.COUNTER)]
        counter = pb_utils.MetricFamily(name="caller_texts", description="", kind=pb_utils.MetricFamily.COUNTER)
        metric = counter.Metric(labels={"a": "b"})
        attempts += [lambda: counter.Metric(labels=[1]), lambda: counter.Metric(buckets=[1.0]), lambda: metric.set(1), lambda: metric.increment(-1)]
        return [self.told(each) for each in attempts]

    @staticmethod
    def told(attempt):
        try:
            attempt()
        except pb_utils.TritonModelException as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 the kind of another one
            return type(error).__name__
        return "nothing"

    def case_parameters(self, values, request):
        """Strings in parameters, as created and as received."""
        made = {"s": "d\u00e9\"", "i": -5, "b": True, "f": False}
        echoed = json.loads(pb_utils.InferenceRequest(model_name="echo", inputs=[pb_utils.Tensor("IN", values)], requested_output_names=["OUT"],
                                                      parameters=made).exec().output_tensors()[0].as_numpy()[0])
        return [request.parameters(), call("doubler", values).parameters(), call("doubler", values, parameters={}).parameters(),
                call("doubler", values, parameters=made).parameters(), echoed["parameters"]]

    def case_config_changes(self, values, request):
        """auto_complete_config's ModelConfig: the result of each change to each configuration."""
        tensor = {"name": "T", "data_type": "TYPE_FP32", "dims": [2]}
        changes = {"batch": lambda config: config.set_max_batch_size(4), "no batch": lambda config: config.set_max_batch_size(0),
                   "batching": lambda config: config.set_dynamic_batching(),
                   **{f"policy {policy}": lambda config, policy=policy: config.set_model_transaction_policy(policy) for policy in (
                       {"decoupled": True}, {"decoupled": False}, {}, {"other": 1}, {"decoupled": True, "other": 1})},
                   **{f"{kind} {change}": lambda config, kind=kind, change=change: getattr(config, "add_" + kind)(
                          {key: value for key, value in {**tensor, **change}.items() if value is not ...})
                      for kind in ("input", "output") for change in (
                          {}, {"name": ...}, {"data_type": ...}, {"dims": ...}, {"optional": True}, {"optional": False}, {"format": 1},
                          {"data_type": "TYPE_INT8"}, {"dims": [3]}, {"name": "NEW"})}}
        basis = {"name": "m", "max_batch_size": 0, "input": [], "output": []}
        configs = {"empty": basis, "batch of 2": {**basis, "max_batch_size": 2}, "batch of 8": {**basis, "max_batch_size": 8},
                   "sequences": {**basis, "sequence_batching": {}}, "ensemble": {**basis, "ensemble_scheduling": {}},
                   "batching": {**basis, "dynamic_batching": {"preferred_batch_size": [2]}},
                   "decoupled": {**basis, "model_transaction_policy": {"decoupled": True}},
                   "full": {**basis, "input": [dict(tensor)], "output": [dict(tensor)]},
                   "optional": {**basis, "input": [{**tensor, "optional": True}], "output": [dict(tensor)]},
                   "without types": {**basis, "input": [{**tensor, "data_type": "TYPE_INVALID", "dims": []}],
                                     "output": [{**tensor, "data_type": "TYPE_INVALID", "dims": []}]}}
        came_of_it = {}
        for (config_name, config), (change_name, change) in itertools.product(configs.items(), changes.items()):
            changed = pb_utils.ModelConfig(json.dumps(config))
            try:
                change(changed)
                came_of_it[f"{config_name}, {change_name}"] = changed.as_dict()
            except Exception as error:  # noqa: BLE001 its kind and its text are what is asked for
                came_of_it[f"{config_name}, {change_name}"] = [type(error).__name__, str(error)]
        return came_of_it

    def case_control_texts(self, values, request):
        return [self.told(lambda: pb_utils.load_model("nosuch")), self.told(lambda: pb_utils.unload_model("nosuch")),
                pb_utils.is_model_ready("nosuch"), self.told(lambda: pb_utils.is_model_ready("doubler", "one"))]

    def case_errors_of_calls(self, values, request):
        """Calls that cannot be made."""
        wrong = pb_utils.InferenceRequest(model_name="doubler", inputs=[pb_utils.Tensor("NOSUCH", values)], requested_output_names=["OUT"])
        return [result_of(each.exec()) for each in (call("nosuch", values), call("", values), call("doubler", values, model_version=7),
                                                    call("doubler", np.zeros(2, np.int8)), wrong)]

    def case_no_parameters(self, values, request):
        return [pb_utils.InferenceResponse([]).parameters(), call("doubler", values).exec().parameters()]

    def case_nameless(self, values, request):
        refused = []
        for attempt in (lambda: pb_utils.Tensor("", values), lambda: pb_utils.Tensor.from_dlpack("", pb_utils.Tensor("T", values))):
            try:
                attempt()
            except pb_utils.TritonModelException as error:
                refused.append(str(error))
        return refused

    @staticmethod
    def raised(attempt):
        try:
            attempt()
        except Exception as error:  # noqa: BLE001 its kind is what is asked for
            return type(error).__name__
        return "nothing"

    def case_sequence(self, values, request):
        """The ids and flags that a called model receives."""
        heard = []
        for correlation in (0, 7, 2**63, "abc"):
            echo = pb_utils.InferenceRequest(model_name="echo", request_id="id", correlation_id=correlation, inputs=[pb_utils.Tensor("IN", values)],
                                             requested_output_names=["OUT"], flags=pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START)
            echo.set_flags(pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START | pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_END)
            heard.append(json.loads(echo.exec().output_tensors()[0].as_numpy()[0]))
        return heard

    def case_dropped(self, values, request):
        """Streams that are not read to the end: returns how much memory the host used for 20 of them."""
        from nereid_worker import calls, channel
        for _ in range(20):
            stream = pb_utils.InferenceRequest(model_name="flood", requested_output_names=["OUT"],
                                               inputs=[pb_utils.Tensor("IN", np.array([4], np.int32))]).exec(decoupled=True)
            first = next(stream).output_tensors()[0].as_numpy()[0].item()
            del stream
            deadline = time.monotonic() + 60
            while calls._abandoned and time.monotonic() < deadline:
                time.sleep(0.001)
        return [first, len(calls._abandoned), os.fstat(channel.incoming._fd).st_size < 40 << 20]

    def case_cancelled_late(self, values, request):
        """Answers to calls whose futures were cancelled."""
        from nereid_worker import calls, channel

        async def cancel(count):
            for _ in range(count):
                future = call("doubler", np.zeros(1 << 18, np.float32)).async_exec()
                await asyncio.sleep(0)
                future.cancel()
                await asyncio.sleep(0)
                deadline = time.monotonic() + 60
                while calls._abandoned and time.monotonic() < deadline:
                    await asyncio.sleep(0.001)
        asyncio.run(cancel(40))
        return [len(calls._abandoned), os.fstat(channel.incoming._fd).st_size < 20 << 20]

    def case_forked(self, values, request):
        """Calls of the host from a forked process, and whether the model's own calls still work."""
        large = np.arange(300_000, dtype=np.float32)
        metric = pb_utils.MetricFamily(name="caller_forked", description="", kind=pb_utils.MetricFamily.COUNTER).Metric()
        stream = call("counter", np.array([3], np.float32)).exec(decoupled=True)

        def attempts(results):
            async def ask():
                return result_of(await call("doubler", values).async_exec())

            async def ask_stream():
                return [result_of(each) async for each in await call("counter", np.array([2], np.float32)).async_exec(decoupled=True)]
            metric.increment(1)
            pb_utils.Logger.log_warn("from a forked process")
            results.put([result_of(call("doubler", values).exec()), bool((call("doubler", large).exec().output_tensors()[0].as_numpy() == 2 * large).all()),
                         asyncio.run(ask()), [result_of(each) for each in call("counter", np.array([2], np.float32)).exec(decoupled=True)],
                         asyncio.run(ask_stream()), result_of(call("doubler", -values).exec()), result_of(call("no_such", values).exec()), metric.value(),
                         request.is_cancelled(), pb_utils.is_model_ready("doubler"), self.told(lambda: metric.increment(-1)), self.told(lambda: next(stream))])

        def forked_answers():
            context = multiprocessing.get_context("fork")
            results = context.SimpleQueue()
            process = context.Process(target=attempts, args=(results,))
            process.start()
            told = results.get()
            process.join()
            return told, process.pid
        told, pid = forked_answers()
        told[-1] = told[-1].replace(str(pid), "PID")
        streamed = [result_of(each) for each in stream]
        metric.increment(2)
        return {"told": told, "stream": streamed, "metric": metric.value(), "exec": result_of(call("doubler", values).exec()), "input": values.tolist()}

    def case_spawned(self, values, request):
        context = multiprocessing.get_context("spawn")
        results = context.SimpleQueue()
        process = context.Process(target=put_what_calls_come_to, args=(results,))
        process.start()
        process.join(30)
        return None if results.empty() else [each.replace(str(process.pid), "PID") for each in results.get()]

    def case_abandoned(self, values, request):
        """Answers that arrive after their event loop was closed; calls of the next loop are still answered."""
        async def abandon():
            for each in range(200):
                call("doubler", np.array([each], np.float32)).async_exec()

        async def ask():
            return result_of(await asyncio.wait_for(call("doubler", values).async_exec(), 30))
        asyncio.run(abandon())
        return asyncio.run(ask())

    def case_async_cancel(self, values, request):
        """Cancelling the result of async_exec leaves the loop and the model usable."""
        async def cancel_one():
            task = asyncio.ensure_future(call("doubler", values).async_exec())
            task.cancel()
            try:
                await task
                ended = "answered"
            except asyncio.CancelledError:
                ended = "cancelled"
            return [ended, result_of(await call("doubler", values).async_exec())]
        return asyncio.run(cancel_one())
