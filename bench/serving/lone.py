"""A client that has one request at a time, on a bare socket, and an echo to compare with.

What a lone request takes is mostly the machine: two sockets and two threads that sleep and must be woken. An echo over
the same loopback, by the same client and in the same breath, takes that much without any server to speak of.
"""

import socket
import struct
import subprocess
import sys
import time

PAUSE_S = 0.03
BODY = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,16],"data":[%s]}]}' % b",".join([b"1"] * 16)


class Http:
    """Requests as bytes that are always the same."""

    def __init__(self, port, model):
        self.socket = connect(port)
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n"
        self.request = head.encode() + BODY

    def ask(self):
        self.socket.sendall(self.request)
        answer = self.socket.recv(65536)
        if b" 200 " not in answer[:20]:
            raise RuntimeError(f"not answered: {answer!r}")


class Grpc:
    """Frames of HTTP/2 that are the same but for the number of the stream."""

    def __init__(self, port, model):
        self.socket = connect(port)
        self.stream = -1
        self.buffer = b""
        window = frame(8, 0, 0, struct.pack(">I", 1 << 30))
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + window)
        headers = {":method": "POST", ":scheme": "http", ":path": "/inference.GRPCInferenceService/ModelInfer", ":authority": "localhost",
                   "content-type": "application/grpc", "te": "trailers"}  # fmt: skip
        self.headers = b"".join(b"\0" + text(name) + text(value) for name, value in headers.items())
        tensor = field(1, b"INPUT0") + field(2, b"FP32") + field(3, b"\1\x10")
        message = field(1, model.encode()) + field(5, tensor) + field(7, struct.pack("<16f", *[1.0] * 16))
        self.message = struct.pack(">BI", 0, len(message)) + message

    def ask(self):
        self.stream += 2
        self.socket.sendall(frame(1, 4, self.stream, self.headers) + frame(0, 1, self.stream, self.message))
        answered = False
        while True:
            kind, flags, stream, payload = self.read()
            # Who refuses sends no data.
            answered |= kind == 0 and len(payload) > 0
            if kind == 4 and not flags & 1:
                self.socket.sendall(frame(4, 1, 0, b""))
            elif kind == 6 and not flags & 1:
                self.socket.sendall(frame(6, 1, 0, payload))
            elif kind in (3, 7):
                raise RuntimeError(f"refused: {payload!r}")
            elif kind == 1 and flags & 1 and stream == self.stream:
                if not answered:
                    raise RuntimeError("refused")
                return

    def read(self):
        while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
            self.buffer += self.socket.recv(65536)
        length = int.from_bytes(self.buffer[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", self.buffer[3:9])
        payload, self.buffer = self.buffer[9 : 9 + length], self.buffer[9 + length :]
        return kind, flags, stream, payload


class Echo:
    """As much there and back as a small request, from a thread that does nothing else."""

    def __init__(self):
        command = [sys.executable, __file__]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.socket = connect(int(self.process.stdout.readline()))

    def ask(self):
        self.socket.sendall(BODY)
        self.socket.recv(65536)

    def end(self):
        self.socket.close()
        self.process.wait(10)


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def text(value):
    return bytes([len(value)]) + value.encode()


def field(number, value):
    return bytes([number << 3 | 2, len(value)]) + value


def microseconds(*clients, count):
    """What each took, sorted: in turns, so that all see the same machine."""
    taken = [[] for _ in clients]
    for client in clients:
        for _ in range(10):
            client.ask()
    for _ in range(count):
        for client, times in zip(clients, taken):
            time.sleep(PAUSE_S)
            began = time.perf_counter()
            client.ask()
            times.append((time.perf_counter() - began) * 1e6)
    return [sorted(times) for times in taken]


def echo():
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := connection.recv(65536):
        connection.sendall(data)


if __name__ == "__main__":
    echo()
