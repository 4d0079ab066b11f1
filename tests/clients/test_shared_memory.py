"""System shared memory: registered, asked for, read from and written to, and what is refused."""

import os
import unittest

import numpy as np
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import serialize_byte_tensor

from clients import each_client, refused
from harness import ServerCase

BYTES = np.array([[b"one", b"", b"three", b"\x00\xff"]], np.object_)


class SharedMemory(ServerCase):
    @classmethod
    def make(cls, repository):
        repository.emulated("fp32", inputs=[("IN", "FP32", [4])], outputs=[("OUT", "FP32", [4])])
        repository.emulated("bytes", inputs=[("IN", "BYTES", [4])], outputs=[("OUT", "BYTES", [4])])

    def setUp(self):
        self.key = f"/fermata-clients-{os.getpid()}"
        self.region = shm.create_shared_memory_region("region", self.key, 1024, create_only=True)
        self.addCleanup(shm.destroy_shared_memory_region, self.region)

    def regions(self, client, *name):
        status = client.json("get_system_shared_memory_status", *name)
        if client.kind.grpc:
            return status.get("regions", {})
        return {region["name"]: region for region in status}

    @each_client()
    def test_regions_are_registered_and_forgotten(self, client):
        self.assertEqual(self.regions(client), {})
        client.register_system_shared_memory("a", self.key, 512)
        client.register_system_shared_memory("b", self.key, 256, offset=256)
        self.assertEqual(set(self.regions(client)), {"a", "b"})
        region = self.regions(client, "b")["b"]
        self.assertEqual((region["name"], region["key"], int(region["offset"]), int(region["byte_size"])),
                         ("b", self.key, 256, 256))
        with refused("a", "already"):
            client.register_system_shared_memory("a", self.key, 512)
        client.unregister_system_shared_memory("a")
        self.assertEqual(set(self.regions(client)), {"b"})
        with refused("a"):
            self.regions(client, "a")
        client.unregister_system_shared_memory("a")
        client.unregister_system_shared_memory()
        self.assertEqual(self.regions(client), {})

    @each_client()
    def test_what_cannot_be_registered(self, client):
        with refused("c", "/fermata-clients-nothing"):
            client.register_system_shared_memory("c", "/fermata-clients-nothing", 64)
        with refused("c", "beyond"):
            client.register_system_shared_memory("c", self.key, 2048)
        with refused("c", "beyond"):
            client.register_system_shared_memory("c", self.key, 512, offset=1000)
        self.assertEqual(self.regions(client), {})

    @each_client()
    def test_tensors_go_in_and_out(self, client):
        kind = client.kind
        values = np.arange(8, dtype=np.float32).reshape(2, 4)
        shm.set_shared_memory_region(self.region, [values], offset=64)
        client.register_system_shared_memory("in", self.key, 512)
        client.register_system_shared_memory("out", self.key, 512, offset=512)
        try:
            given = kind.tensors.InferInput("IN", [2, 4], "FP32")
            given.set_shared_memory("in", values.nbytes, offset=64)
            wanted = kind.tensors.InferRequestedOutput("OUT")
            wanted.set_shared_memory("out", 128, offset=32)
            result = client.infer("fp32", [given], outputs=[wanted])
            output = result.get_output("OUT")
            self.assertEqual(output.datatype if kind.grpc else output["datatype"], "FP32")
            got = shm.get_contents_as_numpy(self.region, np.float32, [2, 4], offset=512 + 32)
            np.testing.assert_array_equal(got, values)
            del got
            # In by shared memory and out by the network, and the other way.
            result = client.infer("fp32", [given])
            np.testing.assert_array_equal(result.as_numpy("OUT"), values)
            client.infer("fp32", [kind.input("IN", 2 * values, datatype="FP32")], outputs=[wanted])
            got = shm.get_contents_as_numpy(self.region, np.float32, [2, 4], offset=512 + 32)
            np.testing.assert_array_equal(got, 2 * values)
            del got
        finally:
            client.unregister_system_shared_memory()

    @each_client()
    def test_strings_go_in_and_out(self, client):
        kind = client.kind
        flat = serialize_byte_tensor(BYTES)
        size = len(flat.item())
        shm.set_shared_memory_region(self.region, [flat])
        client.register_system_shared_memory("region", self.key, 1024)
        try:
            given = kind.tensors.InferInput("IN", list(BYTES.shape), "BYTES")
            given.set_shared_memory("region", size)
            wanted = kind.tensors.InferRequestedOutput("OUT")
            wanted.set_shared_memory("region", 256, offset=512)
            client.infer("bytes", [given], outputs=[wanted])
            got = shm.get_contents_as_numpy(self.region, np.object_, list(BYTES.shape), offset=512)
            np.testing.assert_array_equal(got, BYTES)
        finally:
            client.unregister_system_shared_memory()

    @each_client()
    def test_what_does_not_fit_is_refused(self, client):
        kind = client.kind
        client.register_system_shared_memory("region", self.key, 64)
        try:
            def ask(region, size, offset=0, out=None):
                given = kind.tensors.InferInput("IN", [1, 4], "FP32")
                given.set_shared_memory(region, size, offset=offset)
                outputs = None
                if out is not None:
                    outputs = [kind.tensors.InferRequestedOutput("OUT")]
                    outputs[0].set_shared_memory(*out)
                client.infer("fp32", [given], outputs=outputs)

            with refused("IN", "nothing", "not registered"):
                ask("nothing", 16)
            with refused("IN", "beyond", "region"):
                ask("region", 16, offset=56)
            with refused("IN", "12", "16"):
                ask("region", 12)
            with refused("OUT", "8"):
                ask("region", 16, out=("region", 8, 16))
            with refused("OUT", "nothing"):
                ask("region", 16, out=("nothing", 16))
            ask("region", 16, out=("region", 16, 16))
        finally:
            client.unregister_system_shared_memory()


if __name__ == "__main__":
    unittest.main()
