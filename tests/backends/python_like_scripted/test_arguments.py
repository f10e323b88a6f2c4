"""Arguments of models: what they are converted to, and what is refused before the host gets it."""
import enum
import marshal

import pytest

numpy = pytest.importorskip("numpy")


class Text(str, enum.Enum):
    ONE = "one"


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize("text", [numpy.str_("one"), Text.ONE, b"one", bytearray(b"one"), numpy.bytes_(b"one"), "one"])
def test_texts_are_encoded_as_str(worker, text):
    """marshal encodes only exact str, and some classes derived from it as bytes."""
    from nereid_worker.arguments import text_of
    from nereid_worker.errors import TritonError
    from nereid_worker.request import InferenceRequest
    assert [(type(each), each) for each in (text_of(text, ""), TritonError(text).message())] == [(str, "one")] * 2
    request = InferenceRequest(request_id=text, correlation_id=text if isinstance(text, str) else "one", model_name=text, inputs=[],
                               requested_output_names=[text], parameters={"one": text} if isinstance(text, str) else None)
    packed = request.packed([])
    assert marshal.loads(marshal.dumps(packed, 2)) == packed and packed[:4] == ("one", -1, "one", "one") and packed[7] == ("one",)


@pytest.mark.parametrize("number", [1, True, Number.ONE])
def test_numbers_are_encoded_as_int(worker, number):
    from nereid_worker.request import InferenceRequest
    packed = InferenceRequest(correlation_id=number, flags=number, timeout=number, model_name="m", inputs=[], requested_output_names=[]).packed([])
    assert [type(each) for each in packed[3:6]] == [int] * 3 and packed[3] == 1


def test_only_arrays_of_one_element_convert_to_bool(worker):
    from nereid_worker.arguments import bool_of
    assert [bool_of(numpy.array([each]), "") for each in (0, 1)] == [False, True]
    with pytest.raises(TypeError, match="wanted as bool"):
        bool_of(numpy.array([1, 2]), "wanted")


@pytest.mark.parametrize("flags", [-1, 2**32, 1.0, "1", None, [1]])
def test_flags_other_than_a_32_bit_number_are_a_type_error(worker, flags):
    """As in Triton, whose pybind11 converts them."""
    from nereid_worker.response import InferenceResponse, InferenceResponseSender
    sender = InferenceResponseSender.of(1, ())
    for response in (None, InferenceResponse()):
        with pytest.raises(TypeError, match="send: expected flags"):
            sender.send(response, flags)
    sender._close()


@pytest.mark.parametrize("flags", [2, 3, 2**32 - 1])
def test_other_flags_are_not_supported(worker, flags):
    from nereid_worker.errors import TritonModelException
    from nereid_worker.response import InferenceResponseSender
    sender = InferenceResponseSender.of(1, ())
    with pytest.raises(TritonModelException, match="Unsupported flag provided"):
        sender.send(None, flags)
    sender._close()
