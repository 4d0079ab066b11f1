"""Inference with each client: every datatype, each way to pass a tensor, and the options of a request."""

import unittest

import numpy as np

from clients import GRPC, HTTP, HTTP_KINDS, InferenceServerException, array_of, each_client, refused, samples
from harness import REAL_MODELS, SMALL_MODELS, ServerCase

DATATYPES = [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "BF16", "FP32", "FP64",
    "BYTES",
]
# What JSON has no numbers for.
BINARY_ONLY = ("FP16", "BF16")

LABELLED = """
name: "labelled"
platform: "onnxruntime_onnx"
max_batch_size: 4
input [ { name: "x", data_type: TYPE_FP32, dims: [ 16 ] } ]
output [ { name: "y", data_type: TYPE_FP32, dims: [ 16 ], label_filename: "labels.txt" } ]
instance_group [ { count: 2, kind: KIND_CPU } ]
dynamic_batching { preferred_batch_size: [ 2, 4 ], max_queue_delay_microseconds: 100 }
"""


def config(batch):
    return f"max_batch_size: {batch}\n"


class Infer(ServerCase):
    @classmethod
    def make(cls, repository):
        for datatype in DATATYPES:
            name = f"emulated_{datatype.lower()}"
            repository.emulated(name, inputs=[("IN", datatype, [4])], outputs=[("OUT", datatype, [4])])
        repository.emulated("large", inputs=[("IN", "FP32", [-1])], outputs=[("OUT", "FP32", [-1])])
        for model in ("add", "identity_bytes", "identity_fp16", "identity_bf16", "identity_bool", "dynamic"):
            repository.onnx(model, SMALL_MODELS / f"{model}.onnx", config=config(4))
        repository.onnx("fixed", SMALL_MODELS / "fixed.onnx")
        repository.onnx("labelled", SMALL_MODELS / "identity.onnx", config=LABELLED)
        repository.write("labelled/labels.txt", "".join(f"class {index}\n" for index in range(16)))
        repository.onnx("versions", SMALL_MODELS / "identity.onnx", config=config(2) + "version_policy { all {} }\n")
        repository.onnx("versions", SMALL_MODELS / "identity.onnx", version=3)
        repository.onnx("magika", REAL_MODELS / "magika.onnx", config=config(2))
        repository.onnx("orientation", REAL_MODELS / "orientation.onnx", config=config(1))

    def echo(self, client, model, array, *, datatype, tensors=("IN", "OUT"), binary=True, **options):
        kind = client.kind
        tensor = kind.input(tensors[0], array, datatype=datatype, binary=binary)
        wanted = kind.output(tensors[1], binary=binary)
        result = client.infer(model, [tensor], outputs=[wanted], **options)
        response = result.get_response()
        self.assertEqual(response.model_name if kind.grpc else response["model_name"], model)
        np.testing.assert_array_equal(array_of(result, tensors[1]), array)
        return result

    @each_client()
    def test_every_datatype_comes_back_as_it_went(self, client):
        for datatype in DATATYPES:
            with self.subTest(datatype=datatype):
                model = f"emulated_{datatype.lower()}"
                self.echo(client, model, samples(datatype), datatype=datatype)

    @each_client(HTTP_KINDS)
    def test_every_datatype_that_json_has_goes_as_json(self, client):
        for datatype in DATATYPES:
            with self.subTest(datatype=datatype):
                array = samples(datatype)
                if datatype in BINARY_ONLY:
                    with self.assertRaises(InferenceServerException):
                        self.echo(client, f"emulated_{datatype.lower()}", array, datatype=datatype, binary=False)
                    continue
                if datatype == "BYTES":
                    # A JSON text holds no bytes that are not UTF-8.
                    array = np.array([["a", "", "\N{GREEK SMALL LETTER BETA}", '"quoted"\n']], dtype=np.object_)
                    tensor = client.kind.input("IN", array, datatype="BYTES", binary=False)
                    wanted = client.kind.output("OUT", binary=False)
                    result = client.infer("emulated_bytes", [tensor], outputs=[wanted])
                    got = [word.decode() if isinstance(word, bytes) else word
                           for word in array_of(result, "OUT").ravel()]
                    self.assertEqual(got, list(array.ravel()))
                    continue
                self.echo(client, f"emulated_{datatype.lower()}", array, datatype=datatype, binary=False)

    @each_client()
    def test_binary_and_json_may_be_mixed(self, client):
        a, b = np.array([[1, 2]], np.int64), np.array([[30, 40]], np.int64)
        kind = client.kind
        inputs = [kind.input("b", b, datatype="INT64", binary=False), kind.input("a", a, datatype="INT64")]
        outputs = [kind.output("difference", binary=False), kind.output("sum")]
        result = client.infer("add", inputs, outputs=outputs)
        np.testing.assert_array_equal(array_of(result, "sum"), a + b)
        np.testing.assert_array_equal(array_of(result, "difference"), a - b)

    @each_client()
    def test_all_outputs_come_where_none_is_named(self, client):
        a = np.array([[1, 2], [3, 4]], np.int64)
        kind = client.kind
        inputs = [kind.input(name, a, datatype="INT64") for name in ("a", "b")]
        result = client.infer("add", inputs)
        np.testing.assert_array_equal(array_of(result, "sum"), 2 * a)
        np.testing.assert_array_equal(array_of(result, "difference"), 0 * a)
        self.assertIsNone(result.as_numpy("nothing"))

    @each_client()
    def test_models_of_files_keep_every_datatype(self, client):
        cases = [
            ("identity_bytes", "BYTES", (3, 2)), ("identity_fp16", "FP16", (3, 4)), ("identity_bf16", "BF16", (3, 4)),
            ("identity_bool", "BOOL", (3, 3)), ("dynamic", "FP32", (2, 7)), ("fixed", "FP32", (1, 3, 2)),
        ]
        for model, datatype, shape in cases:
            with self.subTest(model=model):
                self.echo(client, model, samples(datatype, shape), datatype=datatype, tensors=("x", "y"))

    @each_client()
    def test_real_models_answer(self, client):
        text = np.full((1, 2048), 256, np.int32)
        page = np.random.default_rng(1).random((1, 3, 224, 224), dtype=np.float32)
        kind = client.kind
        metadata = client.json("get_model_metadata", "magika")
        given, wanted = metadata["inputs"][0], metadata["outputs"][0]["name"]
        result = client.infer("magika", [kind.input(given["name"], text, datatype="INT32")])
        scores = array_of(result, wanted)
        self.assertAlmostEqual(float(scores.sum()), 1, places=3)
        metadata = client.json("get_model_metadata", "orientation")
        given, wanted = metadata["inputs"][0]["name"], metadata["outputs"][0]["name"]
        result = client.infer("orientation", [kind.input(given, page, datatype="FP32")],
                              outputs=[kind.output(wanted, classes=2)])
        first, second = array_of(result, wanted)[0]
        self.assertGreaterEqual(float(first.split(b":")[0]), float(second.split(b":")[0]))

    @each_client()
    def test_classes_come_with_their_labels(self, client):
        values = np.linspace(0, 1, 16, dtype=np.float32)[None].repeat(2, 0)
        values[1] = values[1][::-1]
        expected = [[b"1.000000:15:class 15", b"0.933333:14:class 14"], [b"1.000000:0:class 0", b"0.933333:1:class 1"]]
        kind = client.kind
        tensor = kind.input("x", values, datatype="FP32")
        for binary in (True, False):
            wanted = kind.output("y", classes=2, binary=binary)
            got = array_of(client.infer("labelled", [tensor], outputs=[wanted]), "y")
            got = [[word.encode() if isinstance(word, str) else word for word in row] for row in got]
            self.assertEqual(got, expected)

    @each_client()
    def test_compression_both_ways(self, client):
        array = np.zeros((1, 50_000), np.float32)
        array[0, 17] = 1
        kind = client.kind
        for algorithm in ("gzip", "deflate"):
            with self.subTest(algorithm=algorithm):
                if kind.grpc:
                    self.echo(client, "large", array, datatype="FP32", compression_algorithm=algorithm)
                    continue
                for binary in (True, False):
                    self.echo(client, "large", array, datatype="FP32", binary=binary,
                              request_compression_algorithm=algorithm)
                    self.echo(client, "large", array, datatype="FP32", binary=binary,
                              response_compression_algorithm=algorithm)
                    self.echo(client, "large", array, datatype="FP32", binary=binary,
                              request_compression_algorithm=algorithm, response_compression_algorithm=algorithm)

    @each_client()
    def test_the_id_comes_back(self, client):
        kind = client.kind
        for name in ("", "request 7", "\N{MUSICAL SYMBOL FERMATA}"):
            result = self.echo(client, "emulated_fp32", samples("FP32"), datatype="FP32", request_id=name)
            response = result.get_response()
            self.assertEqual(response.id if kind.grpc else response.get("id", ""), name)

    @each_client()
    def test_options_of_a_request_are_taken(self, client):
        kind = client.kind
        options = {"priority": 2, "timeout": 15_000_000, "parameters": {"mine": "x", "other": 3, "third": True}}
        options["headers"] = {"x-mine": "1", "x-request-deadline-ms": "15000"}
        if kind.grpc:
            options["client_timeout"] = 30
        else:
            options["query_params"] = {"mine": "1"}
        self.echo(client, "emulated_fp32", samples("FP32"), datatype="FP32", **options)

    @each_client()
    def test_versions_are_chosen(self, client):
        array = samples("FP32", (1, 16))
        kind = client.kind
        for asked, given in (("1", "1"), ("3", "3"), ("", "3")):
            result = self.echo(client, "versions", array, datatype="FP32", tensors=("x", "y"),
                               model_version=asked)
            response = result.get_response()
            self.assertEqual(response.model_version if kind.grpc else response["model_version"], given)

    @each_client()
    def test_sequences_are_refused(self, client):
        for name in (5, "a"):
            with refused("emulated_fp32", "sequence"):
                self.echo(client, "emulated_fp32", samples("FP32"), datatype="FP32", sequence_id=name,
                          sequence_start=True, sequence_end=True)

    def test_typed_contents_over_grpc(self):
        """Which `tritonclient` never sends, but other clients do."""
        from tritonclient.grpc import service_pb2

        cases = {
            "BOOL": ("bool_contents", [True, False]), "INT8": ("int_contents", [-128, 127]),
            "INT16": ("int_contents", [-5, 5]), "INT32": ("int_contents", [-5, 5]),
            "INT64": ("int64_contents", [-5, 2**40]), "UINT8": ("uint_contents", [0, 255]),
            "UINT16": ("uint_contents", [0, 65535]), "UINT32": ("uint_contents", [0, 2**32 - 1]),
            "UINT64": ("uint64_contents", [0, 2**64 - 1]), "FP32": ("fp32_contents", [0.5, -1]),
            "FP64": ("fp64_contents", [0.5, -1]), "BYTES": ("bytes_contents", [b"", b"x"]),
        }
        with GRPC.connect(self.server) as client:
            for datatype, (field, values) in cases.items():
                with self.subTest(datatype=datatype):
                    request = service_pb2.ModelInferRequest(model_name=f"emulated_{datatype.lower()}")
                    tensor = request.inputs.add(name="IN", datatype=datatype, shape=[1, 4])
                    getattr(tensor.contents, field).extend(values * 2)
                    response = client.client._client_stub.ModelInfer(request, timeout=30)
                    result = GRPC.module.InferResult(response)
                    self.assertEqual(list(array_of(result, "OUT").ravel()), values * 2)

    def test_bodies_made_apart(self):
        """`generate_request_body` and `parse_response_body`, for those who send requests themselves."""
        array = samples("FP32")
        module = HTTP.module.InferenceServerClient
        for binary in (True, False):
            body, size = module.generate_request_body(
                [HTTP.input("IN", array, datatype="FP32", binary=binary)], outputs=[HTTP.output("OUT", binary=binary)])
            headers = {} if size is None else {"Inference-Header-Content-Length": str(size)}
            status, headers, answer = self.server.ask("POST", "/v2/models/emulated_fp32/infer", body, headers)
            self.assertEqual(status, 200, answer)
            length = headers.get("Inference-Header-Content-Length")
            result = module.parse_response_body(answer, header_length=None if length is None else int(length))
            np.testing.assert_array_equal(array_of(result, "OUT"), array)


if __name__ == "__main__":
    unittest.main()
