"""The worker process of backend "python": one process runs one instance of one model. nereid_python_worker.py starts it, and models import
triton_python_backend_utils.py. The modules in the order in which a call of a model passes them, from the entry down; each imports only modules
below it (tests/tree/test_layers.py):

  runtime            executes the host's commands: loads the model, calls its functions and encodes the answers
  event_loop         runs coroutines of the model
  dataclass_defaults dataclasses of models for Python 3.10 and older
  process            stderr of this process, and its end if it was forked
  relay              calls the host on behalf of processes that the model forks
  models             loading, unloading and readiness of models
  metrics            MetricFamily and Metric
  request            InferenceRequest: received, or made to call another model
  infer_calls        inference calls of other models, for threads and coroutines
  response_iterator  ResponseIterator: the responses of a decoupled call
  response           InferenceResponse and InferenceResponseSender
  calls              pending calls of the host, and who reads their answers
  tensor             Tensor: encodes and decodes one tensor
  dlpack             tensors as DLPack capsules
  gpu                GPU memory shared with the host
  logger             Logger: lines of the host's log
  channel            the sockets and the shared memory of this process
  region             blocks of the shared memory
  spin_reader        reads a descriptor after a short spin
  model_config       ModelConfig, for auto_complete_config
  data_types         element types
  errors             error classes and their texts
  arguments          checks of arguments
  protocol           kinds of messages
"""
