"""The models that Triton's python backend runs: each answers with its input; `resnet50` first takes its time."""

import json
import time

import triton_python_backend_utils as pb_utils

# A batch of b takes alpha b + beta, as ResNet50 on the GPU of Symphony's table.
ALPHA_MS, BETA_MS = 1.053, 5.072
# Sleeping is exact to some 60 us; what is left is spun.
SPIN_S = 0.0002


class TritonPythonModel:
    def initialize(self, args):
        self.sleeps = json.loads(args["model_config"])["name"] == "resnet50"

    def execute(self, requests):
        start = time.perf_counter()
        inputs = [pb_utils.get_input_tensor_by_name(request, "INPUT0").as_numpy() for request in requests]
        if self.sleeps:
            rows = sum(len(tensor) for tensor in inputs)
            hold(start + (ALPHA_MS * rows + BETA_MS) / 1e3)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT0", tensor)]) for tensor in inputs]


def hold(end):
    time.sleep(max(0.0, end - time.perf_counter() - SPIN_S))
    while time.perf_counter() < end:
        pass
