"""Many requests at once: `async_infer`, streams, asyncio, cancelling."""

import asyncio
import queue
import threading
import unittest

import numpy as np

from clients import GRPC, GRPC_AIO, HTTP, HTTP_AIO, array_of, refused
from harness import PATIENCE_S, ServerCase, eventually

MANY = 60


class Async(ServerCase):
    @classmethod
    def make(cls, repository):
        repository.emulated("echo", inputs=[("IN", "INT32", [4])], outputs=[("OUT", "INT32", [4])])
        repository.emulated("slow", inputs=[("IN", "INT32", [4])], outputs=[("OUT", "INT32", [4])], latency_ms=1500)

    arguments = ("--emulated-executors", "2")

    @staticmethod
    def number(kind, index, shape=(1, 4)):
        return [kind.input("IN", np.full(shape, index, np.int32), datatype="INT32")]

    def is_number(self, result, index):
        np.testing.assert_array_equal(array_of(result, "OUT"), np.full((1, 4), index, np.int32))

    def test_async_infer_over_http(self):
        with HTTP.connect(self.server, concurrency=8) as client:
            pending = [client.async_infer("echo", self.number(HTTP, index), request_id=str(index))
                       for index in range(MANY)]
            wrong = client.async_infer("nothing", self.number(HTTP, 0))
            for index, answer in enumerate(pending):
                result = answer.get_result(timeout=PATIENCE_S)
                self.is_number(result, index)
                self.assertEqual(result.get_response()["id"], str(index))
            with refused("nothing"):
                wrong.get_result(timeout=PATIENCE_S)
            compressed = client.async_infer("echo", self.number(HTTP, 3), request_compression_algorithm="gzip",
                                            response_compression_algorithm="deflate")
            self.is_number(compressed.get_result(timeout=PATIENCE_S), 3)

    def test_async_infer_over_grpc(self):
        answers = queue.Queue()
        with GRPC.connect(self.server) as client:
            for index in range(MANY):
                client.async_infer("echo", self.number(GRPC, index), request_id=str(index), client_timeout=PATIENCE_S,
                                   callback=lambda result, error: answers.put((result, error)))
            seen = set()
            for _ in range(MANY):
                result, error = answers.get(timeout=PATIENCE_S)
                self.assertIsNone(error)
                index = int(result.get_response().id)
                self.is_number(result, index)
                seen.add(index)
            self.assertEqual(seen, set(range(MANY)))
            client.async_infer("nothing", self.number(GRPC, 0),
                               callback=lambda result, error: answers.put((result, error)))
            _, error = answers.get(timeout=PATIENCE_S)
            self.assertEqual(error.status(), "StatusCode.NOT_FOUND")

    def test_cancelling_over_grpc(self):
        answers = queue.Queue()
        with GRPC.connect(self.server) as client:
            context = client.async_infer("slow", self.number(GRPC, 1),
                                         callback=lambda result, error: answers.put((result, error)))
            eventually(lambda: self.server.metric("fermata_pending_requests", model="slow"), "a request that runs")
            context.cancel()
            _, error = answers.get(timeout=PATIENCE_S)
            self.assertEqual(error.status(), "StatusCode.CANCELLED")
            eventually(lambda: self.server.requests("slow", "cancelled") >= 1, "a request that is cancelled")

    def test_client_timeout_over_grpc(self):
        with GRPC.connect(self.server) as client:
            with refused(status=("StatusCode.DEADLINE_EXCEEDED", "StatusCode.RESOURCE_EXHAUSTED")):
                client.infer("slow", self.number(GRPC, 1), client_timeout=0.2)
            self.is_number(client.infer("echo", self.number(GRPC, 2), client_timeout=PATIENCE_S), 2)
            self.assertIs(client.is_server_live(client_timeout=PATIENCE_S), True)

    def test_asyncio(self):
        async def ask(kind, address):
            options = {"conn_limit": 8} if kind is HTTP_AIO else {}
            async with kind.module.InferenceServerClient(address, **options) as client:
                async def one(index):
                    self.is_number(await client.infer("echo", self.number(kind, index)), index)

                await asyncio.gather(*(one(index) for index in range(MANY)))
                # A task that is given up takes its request with it.
                before = self.server.requests("slow", "cancelled")
                task = asyncio.create_task(client.infer("slow", self.number(kind, 1)))
                await asyncio.sleep(0.3)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                await asyncio.to_thread(eventually, lambda: self.server.requests("slow", "cancelled") > before,
                                        "a request that is cancelled")

        for kind in (HTTP_AIO, GRPC_AIO):
            with self.subTest(client=kind.name):
                asyncio.run(ask(kind, self.server.grpc if kind.grpc else self.server.http))

    def test_a_stream(self):
        for algorithm in (None, "gzip", "deflate"):
            answers = queue.Queue()
            with self.subTest(algorithm=algorithm), GRPC.connect(self.server) as client:
                client.start_stream(lambda result, error: answers.put((result, error)),
                                    compression_algorithm=algorithm, headers={"x-mine": "1"})
                for index in range(MANY):
                    client.async_stream_infer("echo", self.number(GRPC, index), request_id=str(index), priority=1,
                                              parameters={"mine": index})
                seen = set()
                for _ in range(MANY):
                    result, error = answers.get(timeout=PATIENCE_S)
                    self.assertIsNone(error)
                    response = result.get_response()
                    self.is_number(result, int(response.id))
                    self.assertIs(response.parameters["triton_final_response"].bool_param, True)
                    seen.add(int(response.id))
                self.assertEqual(seen, set(range(MANY)))
                # An error is one answer, and the stream goes on.
                client.async_stream_infer("nothing", self.number(GRPC, 0))
                result, error = answers.get(timeout=PATIENCE_S)
                self.assertIn("nothing", error.message())
                client.async_stream_infer("echo", self.number(GRPC, 0), sequence_id=3, sequence_start=True)
                result, error = answers.get(timeout=PATIENCE_S)
                self.assertIn("sequence", error.message())
                client.async_stream_infer("echo", self.number(GRPC, 5), enable_empty_final_response=True)
                self.is_number(answers.get(timeout=PATIENCE_S)[0], 5)
                client.stop_stream()
                self.assertTrue(answers.empty())

    def test_a_stream_that_is_given_up(self):
        answers = queue.Queue()
        before = self.server.requests("slow", "cancelled")
        with GRPC.connect(self.server) as client:
            client.start_stream(lambda result, error: answers.put((result, error)), stream_timeout=PATIENCE_S)
            client.async_stream_infer("slow", self.number(GRPC, 1))
            eventually(lambda: self.server.metric("fermata_pending_requests", model="slow"), "a request that runs")
            client.stop_stream(cancel_requests=True)
        eventually(lambda: self.server.requests("slow", "cancelled") > before, "a request that is cancelled")

    def test_a_stream_with_asyncio(self):
        async def ask():
            async with GRPC_AIO.module.InferenceServerClient(self.server.grpc) as client:
                async def requests():
                    for index in range(MANY):
                        yield {"model_name": "echo", "inputs": self.number(GRPC_AIO, index), "request_id": str(index)}
                    yield {"model_name": "nothing", "inputs": self.number(GRPC_AIO, 0)}

                seen, errors = set(), []
                async for result, error in client.stream_infer(requests(), stream_timeout=PATIENCE_S):
                    if error is not None:
                        errors.append(error)
                        continue
                    index = int(result.get_response().id)
                    self.is_number(result, index)
                    seen.add(index)
                self.assertEqual(seen, set(range(MANY)))
                self.assertEqual(len(errors), 1)
                self.assertIn("nothing", errors[0].message())

        asyncio.run(ask())

    def test_threads(self):
        """Answers do not mix, however requests are batched together."""
        wrong = []

        def work(kind, first):
            with kind.connect(self.server) as client:
                for index in range(first, first + 30):
                    array = array_of(client.infer("echo", self.number(kind, index)), "OUT")
                    if not (array == index).all():
                        wrong.append((index, array))

        threads = [threading.Thread(target=work, args=(kind, 1000 * start))
                   for start, kind in enumerate([HTTP, GRPC] * 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
            self.assertFalse(thread.is_alive())
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
