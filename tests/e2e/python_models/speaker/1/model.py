"""Responds with a sender, correctly or not, in the way that CASE names. The case `told` returns the exceptions raised meanwhile. The model is also
used as a decoupled model."""
import json
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


def answer(text):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([str(text).encode()], object))])


class TritonPythonModel:
    def initialize(self, args):
        self.raised = []
        self.kept = None
        self.is_decoupled = pb_utils.using_decoupled_model_transaction_policy(json.loads(args["model_config"]))

    def execute(self, requests):
        [request] = requests
        case = pb_utils.get_input_tensor_by_name(request, "CASE").as_numpy()[0].decode()
        return getattr(self, "case_" + case)(request, request.get_response_sender())

    def attempt(self, *calls):
        for call in calls:
            try:
                call()
                self.raised.append("nothing")
            except Exception as error:  # noqa: BLE001 its kind and its text are what is asked for
                self.raised.append([type(error).__name__, str(error) if isinstance(error, pb_utils.TritonModelException) else ""])

    def case_told(self, request, sender):
        told, self.raised = json.dumps(self.raised), []
        sender.send(answer(told), flags=FINAL)

    def case_final(self, request, sender):
        sender.send(answer("final"), flags=FINAL)
        return None if self.is_decoupled else [None]

    def case_final_later(self, request, sender):
        sender.send(answer("final later"))
        sender.send(flags=FINAL)

    def case_final_much_later(self, request, sender):
        """A thread sends the response after execute() has returned."""
        def run():
            sender.send(answer("final much later"))
            sender.send(flags=FINAL)
        threading.Timer(0.02, run).start()

    def case_sender_of_a_thread(self, request, sender):
        """The sender is obtained in the thread that uses it."""
        threading.Thread(target=lambda: request.get_response_sender().send(answer("of a thread"), FINAL)).start()

    def case_errors(self, request, sender):
        sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("an error by its sender", pb_utils.TritonError.NOT_FOUND)), FINAL)

    def case_misuse(self, request, sender):
        last = answer("last")
        self.attempt(lambda: sender.send(), lambda: sender.send(answer("x"), flags=7), lambda: sender.send("text"))
        if not self.is_decoupled:
            self.attempt(lambda: sender.send(flags=FINAL))
        self.attempt(lambda: sender.send(answer("first")))
        if not self.is_decoupled:
            self.attempt(lambda: sender.send(answer("second")), lambda: sender.send(answer("second"), flags=FINAL))
        self.attempt(lambda: sender.send(flags=FINAL), lambda: sender.send(flags=FINAL), lambda: sender.send(last, FINAL))

    def case_sends_after_return(self, request, sender):
        """Only the returned response is delivered."""
        self.kept = sender
        return [answer("returned")]

    def case_kept(self, request, sender):
        kept, self.kept = self.kept, None
        self.attempt(lambda: kept.send(answer("too late"), FINAL), lambda: kept.send(flags=FINAL))
        sender.send(answer("kept"), FINAL)

    def case_sent_and_returned(self, request, sender):
        sender.send(answer("sent"), FINAL)
        return [answer("returned")]

    def case_half_sent_and_returned(self, request, sender):
        sender.send(answer("half sent"))
        return [answer("returned")]

    def case_half_sent_and_raised(self, request, sender):
        sender.send(answer("half sent"))
        raise ValueError("behind what was sent")

    def case_sent_and_raised(self, request, sender):
        sender.send(answer("sent before it raised"), FINAL)
        raise ValueError("too late to be heard")

    def case_raised(self, request, sender):
        self.kept = sender
        raise ValueError("raised")

    def case_never(self, request, sender):
        """No sender is left that could respond."""

    def case_half(self, request, sender):
        """A response without the final flag."""
        sender.send(answer("half"))

    def case_rescheduled_and_returned(self, request, sender):
        request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return [answer("returned")]

    def case_returns_tuple(self, request, sender):
        return (answer("in a tuple"),)

    def case_returns_generator(self, request, sender):
        return (each for each in [answer("generated")])

    def case_returns_dict(self, request, sender):
        return {"OUT": answer("in a dict")}

    def case_returns_response(self, request, sender):
        return answer("alone")

    def case_returns_text(self, request, sender):
        return ["text"]

    def case_returns_two(self, request, sender):
        return [answer("one"), answer("two")]

    def case_returns_nothing(self, request, sender):
        return []

    def case_returns_list(self, request, sender):
        return [answer("in a list")]
