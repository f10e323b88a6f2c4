"""Metrics on the host's page. The host keeps them; here are their numbers."""
import json

from . import calls, protocol
from .arguments import NamedInt, text_of
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
    return float(value)


def _label_texts(labels):
    """Keys are what JSON makes of them, values are texts."""
    texts = tuple(json.loads(json.dumps(labels)).items())
    if any(type(value) is not str for _, value in texts):
        raise TritonModelException(f"Error when creating Metric: Failed to process the request for model '{calls.instance_name}', message: "
                                   "attempt to access JSON non-string as string")
    return texts


class Metric:
    def __init__(self, family, labels, buckets):
        if labels is not None and not isinstance(labels, dict):
            raise TritonModelException("Failed to create metric. Labels must be a dictionary.")
        if buckets is not None and not isinstance(buckets, list):
            raise TritonModelException("Failed to create metric. Buckets must be a list.")
        if (buckets is not None) != (family._kind == MetricKind.HISTOGRAM):
            raise TritonModelException("Failed to create metric. " + (
                "Missing required buckets." if buckets is None else "Unexpected buckets found."))
        buckets = None if buckets is None else tuple(_number(each) for each in buckets)
        self._family = family  # lives as long as its metrics
        self._key = _call("Error when creating Metric", protocol.NEW_METRIC, (family._key, _label_texts(labels or {}), buckets))

    def increment(self, value):
        _call("Failed to increment metric value", protocol.INCREMENT_METRIC, (self._key, _number(value)))

    def set(self, value):
        _call("Failed to set metric value", protocol.SET_METRIC, (self._key, _number(value)))

    def observe(self, value):
        _call("Failed to observe metric value", protocol.OBSERVE_METRIC, (self._key, _number(value)))

    def value(self):
        return _call("Failed to get metric value", protocol.METRIC_VALUE, (self._key,))

    def __del__(self):
        if getattr(self, "_key", None) is not None:
            try:
                calls.tell(protocol.DELETE_METRIC, (self._key,))
            except Exception:  # noqa: BLE001 the interpreter may be at its end
                pass


class MetricFamily:
    COUNTER, GAUGE, HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

    def __init__(self, name=None, description=None, kind=None):
        if kind is None:
            raise TypeError("MetricFamily: expected a kind: MetricFamily.COUNTER, GAUGE or HISTOGRAM")
        self._kind = MetricKind(kind)
        texts = text_of(name, "MetricFamily: expected name"), text_of(description, "MetricFamily: expected description")
        self._key = _call("Error when creating MetricFamily", protocol.NEW_METRIC_FAMILY, (*texts, int(self._kind)))

    def Metric(self, labels=None, buckets=None):  # noqa: N802 as models call it
        return Metric(self, labels, buckets)

    def __del__(self):
        if getattr(self, "_key", None) is not None:
            try:
                calls.tell(protocol.DELETE_METRIC_FAMILY, (self._key,))
            except Exception:  # noqa: BLE001
                pass
