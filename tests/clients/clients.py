"""The four clients of `tritonclient` with one face, so that a test is written once and runs with each.

What differs between them stays visible: `kind.grpc` and `kind.aio`.
"""

import asyncio
import contextlib
import functools
import inspect
import threading

import numpy as np
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from harness import PATIENCE_S


class Kind:
    """One of the clients."""

    def __init__(self, name, module, tensors):
        self.name = name
        self.module = module
        # The aio clients take the tensors of the others.
        self.tensors = tensors
        self.grpc = tensors is tritonclient.grpc
        self.aio = module is not tensors

    def __repr__(self):
        return self.name

    def input(self, name, array, *, datatype, binary=True):
        tensor = self.tensors.InferInput(name, list(array.shape), datatype)
        if self.grpc:
            tensor.set_data_from_numpy(array)
        else:
            tensor.set_data_from_numpy(array, binary_data=binary)
        return tensor

    def output(self, name, *, binary=True, classes=0):
        if self.grpc:
            return self.tensors.InferRequestedOutput(name, class_count=classes)
        return self.tensors.InferRequestedOutput(name, binary_data=binary, class_count=classes)

    def connect(self, server, **options):
        return Connection(self, server.grpc if self.grpc else server.http, **options)


HTTP = Kind("http", tritonclient.http, tritonclient.http)
HTTP_AIO = Kind("http.aio", tritonclient.http.aio, tritonclient.http)
GRPC = Kind("grpc", tritonclient.grpc, tritonclient.grpc)
GRPC_AIO = Kind("grpc.aio", tritonclient.grpc.aio, tritonclient.grpc)
KINDS = (HTTP, HTTP_AIO, GRPC, GRPC_AIO)
HTTP_KINDS = (HTTP, HTTP_AIO)


class Connection:
    """A client whose coroutines are waited for."""

    def __init__(self, kind, address, **options):
        self.kind = kind
        self.loop = None
        if kind.aio:
            self.loop = asyncio.new_event_loop()
            self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
            self.thread.start()
        self.client = self.wait(self._make(address, options))

    async def _make_aio(self, address, options):
        return self.kind.module.InferenceServerClient(address, **options)

    def _make(self, address, options):
        if self.loop is not None:
            return self._make_aio(address, options)
        return self.kind.module.InferenceServerClient(address, **options)

    def wait(self, value):
        if not inspect.isawaitable(value):
            return value
        return asyncio.run_coroutine_threadsafe(value, self.loop).result(PATIENCE_S)

    def __getattr__(self, name):
        method = getattr(self.client, name)

        def call(*arguments, **options):
            return self.wait(method(*arguments, **options))

        return call

    def json(self, name, *arguments, **options):
        """The answer of a method as JSON, which gRPC's give only when asked."""
        if self.kind.grpc:
            options["as_json"] = True
        return getattr(self, name)(*arguments, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wait(self.client.close())
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(PATIENCE_S)
            self.loop.close()


def each_client(kinds=KINDS):
    """Runs a test with a connection of each kind."""

    def decorate(test):
        @functools.wraps(test)
        def run(case):
            for kind in kinds:
                with case.subTest(client=kind.name), kind.connect(case.server) as client:
                    test(case, client)

        return run

    return decorate


@contextlib.contextmanager
def refused(*words, status=()):
    """That a call fails with a message that has these words, and one of these statuses, if any is given."""
    try:
        yield
    except InferenceServerException as error:
        missing = [word for word in words if word not in error.message()]
        assert not missing, f"{missing} is not in: {error}"
        assert not status or error.status() in status, f"{error.status()} is not one of {status}: {error}"
    else:
        raise AssertionError(f"nothing was refused, expected {words}")


def samples(datatype, shape=(2, 4)):
    """Values that are not all alike, with the ends of the type among them."""
    count = int(np.prod(shape))
    if datatype == "BYTES":
        words = [b"", b"fermata", "\N{MUSICAL SYMBOL FERMATA}".encode(), bytes(range(256))]
        return np.array([words[index % len(words)] for index in range(count)], dtype=np.object_).reshape(shape)
    if datatype == "BOOL":
        return (np.arange(count) % 3 == 0).reshape(shape)
    dtype = triton_to_np_dtype(datatype)
    if datatype == "BF16":
        return np.array([1.5, -2.0, 0.0, 256.0] * count, dtype=dtype)[:count].reshape(shape)
    limits = np.finfo(dtype) if np.issubdtype(dtype, np.floating) else np.iinfo(dtype)
    values = [limits.min, limits.max, 0, 7]
    return np.array([values[index % 4] for index in range(count)], dtype=dtype).reshape(shape)


def array_of(result, name):
    array = result.as_numpy(name)
    assert array is not None, f"the answer has no {name}"
    return array
