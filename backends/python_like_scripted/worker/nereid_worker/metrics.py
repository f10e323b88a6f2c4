"""Custom metrics. The host keeps their values; here are the keys under which it knows them."""
import json

from . import calls, protocol
from .arguments import HostHandle, NamedInt, text_of
from .errors import TritonModelException


class MetricKind(NamedInt):
    COUNTER = 0
    GAUGE = 1
    HISTOGRAM = 2


def _call(failed, operation, arguments):
    try:
        return calls.call(operation, arguments)
    except TritonModelException as error:
        raise TritonModelException(f"{failed}: {error}") from None


def _number(value):
    if isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"expected a number, got {value!r}")
    try:
        return float(value)
    except ValueError:  # for example an array of texts
        raise TypeError(f"expected a number, got {value!r}") from None


def _label_texts(labels):
    """The labels as (name, value) pairs. Names are converted as JSON does it; values must be texts."""
    texts = tuple(json.loads(json.dumps(labels)).items())
    if any(type(value) is not str for _, value in texts):
        raise TritonModelException(f"Error when creating Metric: Failed to process the request for model '{calls.instance_name}', message: "
                                   "attempt to access JSON non-string as string")
    return texts


class _MetricHandle:
    """A metric or family of the host, which is deleted when the last reference here is gone."""
    __slots__ = ("key", "_end", "_parent")

    def __init__(self, key, end, parent=None):
        self.key = key
        self._end = end
        self._parent = parent  # kept alive, so that it ends after this

    def __del__(self):
        try:
            calls.post_without_reply(self._end, (self.key,))
        except Exception:  # noqa: BLE001 the interpreter may be shutting down
            pass


class Metric(HostHandle):
    __slots__ = ("_kept", "__weakref__")

    @classmethod
    def of(cls, kept):
        self = cls.__new__(cls)
        self._kept = kept
        return self

    def increment(self, value):
        _call("Failed to increment metric value", protocol.INCREMENT_METRIC, (self._kept.key, _number(value)))

    def set(self, value):
        _call("Failed to set metric value", protocol.SET_METRIC, (self._kept.key, _number(value)))

    def observe(self, value):
        _call("Failed to observe metric value", protocol.OBSERVE_METRIC, (self._kept.key, _number(value)))

    def value(self):
        return _call("Failed to get metric value", protocol.METRIC_VALUE, (self._kept.key,))


class MetricFamily(HostHandle):
    """A family keeps its metrics alive; a model may keep a metric longer."""
    COUNTER, GAUGE, HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

    def __init__(self, name=None, description=None, kind=None):
        if not isinstance(kind, MetricKind):
            raise TypeError(f"MetricFamily: expected a kind: MetricFamily.COUNTER, GAUGE or HISTOGRAM, got {kind!r}")
        self._kind = kind
        texts = text_of(name, "MetricFamily: expected name"), text_of(description, "MetricFamily: expected description")
        key = _call("Error when creating MetricFamily", protocol.NEW_METRIC_FAMILY, (*texts, int(kind)))
        self._kept = _MetricHandle(key, protocol.DELETE_METRIC_FAMILY)
        self._metrics = {}  # metrics by labels and buckets

    def Metric(self, labels=None, buckets=None):  # noqa: N802 the name in Triton's API
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        if buckets is not None and not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if (buckets is not None) != (self._kind == MetricKind.HISTOGRAM):
            raise TritonModelException("Failed to create metric. " + (
                "Missing required buckets." if buckets is None else "Unexpected buckets found."))
        texts = _label_texts(labels or {})
        buckets = None if buckets is None else tuple(_number(each) for each in buckets)
        kept = self._metrics.get((texts, buckets))
        if kept is None:
            key = _call("Error when creating Metric", protocol.NEW_METRIC, (self._kept.key, texts, buckets))
            kept = self._metrics[texts, buckets] = _MetricHandle(key, protocol.DELETE_METRIC, self._kept)
        return Metric.of(kept)
