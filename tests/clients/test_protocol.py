"""Our protocol's files against those that `tritonclient` was built with, and a count of the methods that are tested."""

import re
import unittest

from google.protobuf.descriptor import FieldDescriptor
from tritonclient.grpc import model_config_pb2, service_pb2

from harness import ROOT

FOLDER = ROOT / "crates" / "protocol" / "proto"

SCALARS = {
    name: getattr(FieldDescriptor, f"TYPE_{name.upper()}")
    for name in ("double", "float", "int64", "uint64", "int32", "bool", "string", "bytes", "uint32")
}


class Parser:
    """As much of proto3 as the two files use: messages, enums, oneofs, maps and services."""

    def __init__(self, text):
        text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
        self.tokens = re.findall(r'"[^"]*"|[\w.]+|[^\s\w]', text)
        # Name to (number, type, repeated), by message; name to number, by enum; name to (in, out), of rpcs.
        self.messages, self.enums, self.rpcs = {}, {}, {}
        while self.tokens:
            self.top()

    def take(self, *expected):
        token = self.tokens.pop(0)
        if expected:
            assert token in expected, f"expected {expected}, found {token} before {self.tokens[:5]}"
        return token

    def skip(self):
        while self.take() != ";":
            pass

    def top(self):
        match self.take():
            case "message":
                self.message("")
            case "enum":
                self.enum("")
            case "service":
                self.service()
            case _:
                self.skip()

    def message(self, outer):
        name = outer + self.take()
        fields = self.messages.setdefault(name, {})
        self.take("{")
        while (token := self.take()) != "}":
            match token:
                case "message" if self.tokens[1] == "{":
                    self.message(name + ".")
                case "enum" if self.tokens[1] == "{":
                    self.enum(name + ".")
                case "oneof" if self.tokens[1] == "{":
                    self.take(), self.take("{")
                    while (token := self.take()) != "}":
                        self.field(token, False, fields)
                case "map" if self.tokens[0] == "<":
                    self.take("<")
                    key = self.take()
                    self.take(",")
                    value = self.take()
                    self.take(">")
                    self.field(f"map {key} {value}", True, fields)
                case "reserved" | "option":
                    self.skip()
                case "repeated":
                    self.field(self.take(), True, fields)
                case _:
                    self.field(token, False, fields)

    def field(self, kind, repeated, fields):
        name = self.take()
        self.take("=")
        fields[name] = (int(self.take()), kind, repeated)
        self.skip()

    def enum(self, outer):
        values = self.enums.setdefault(outer + self.take(), {})
        self.take("{")
        while (name := self.take()) != "}":
            self.take("=")
            values[name] = int(self.take())
            self.skip()

    def service(self):
        self.take("GRPCInferenceService")
        self.take("{")
        while self.take("rpc", "}") == "rpc":
            name = self.take()
            sides = []
            for _ in range(2):
                self.take("(")
                streamed = self.tokens[0] == "stream" and bool(self.take())
                sides.append((self.take(), streamed))
                self.take(")")
                if len(sides) == 1:
                    self.take("returns")
            self.take(";")
            self.rpcs[name] = tuple(sides)


class Protocol(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.ours = Parser("\n".join(file.read_text() for file in sorted(FOLDER.glob("*.proto"))))
        cls.files = (service_pb2.DESCRIPTOR, model_config_pb2.DESCRIPTOR)

    @staticmethod
    def short(descriptor):
        return descriptor.full_name.removeprefix("inference.")

    def messages(self):
        """All of theirs, also those inside others, but not the entries of maps."""
        waiting = [message for file in self.files for message in file.message_types_by_name.values()]
        while waiting:
            message = waiting.pop()
            if not message.GetOptions().map_entry:
                yield message
                waiting += message.nested_types

    def kind(self, field):
        """The type of a field of theirs, in the words of the file; all that a name can be written as."""
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            (key,), values = self.kind(message.fields_by_name["key"]), self.kind(message.fields_by_name["value"])
            return {f"map {key} {value}" for value in values}
        named = message or field.enum_type
        if named is not None:
            parts = self.short(named).split(".")
            return {".".join(parts[start:]) for start in range(len(parts))}
        return {name for name, number in SCALARS.items() if number == field.type}

    def test_every_field_of_every_message(self):
        count = 0
        for message in self.messages():
            name = self.short(message)
            self.assertIn(name, self.ours.messages)
            for field in message.fields:
                with self.subTest(message=name, field=field.name):
                    self.assertIn(field.name, self.ours.messages[name])
                    number, kind, repeated = self.ours.messages[name][field.name]
                    self.assertEqual(number, field.number)
                    self.assertIn(kind, self.kind(field))
                    self.assertEqual(repeated, field.is_repeated)
                    count += 1
        self.assertGreater(count, 200)

    def test_every_value_of_every_enum(self):
        enums = [enum for file in self.files for enum in file.enum_types_by_name.values()]
        enums += [enum for message in self.messages() for enum in message.enum_types]
        self.assertGreater(len(enums), 5)
        for enum in enums:
            with self.subTest(enum=enum.full_name):
                values = {value.name: value.number for value in enum.values}
                ours = self.ours.enums[self.short(enum)]
                self.assertEqual(values, {name: ours.get(name) for name in values})

    def test_every_call(self):
        service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
        theirs = {method.name: (self.short(method.input_type), self.short(method.output_type))
                  for method in service.methods}
        ours = {name: (given[0], answer[0]) for name, (given, answer) in self.ours.rpcs.items()}
        self.assertEqual(theirs, {name: ours.get(name) for name in theirs})
        streamed = {name for name, sides in self.ours.rpcs.items() if sides[0][1] or sides[1][1]}
        self.assertEqual(streamed, {"ModelStreamInfer"})


class EveryMethod(unittest.TestCase):
    """That no method of a client is left out: each is named somewhere in these tests."""

    def test_every_method_is_called_somewhere(self):
        from clients import KINDS

        text = "\n".join(file.read_text() for file in sorted((ROOT / "tests" / "clients").glob("test_*.py"))
                         if file.name != "test_protocol.py")
        missing = set()
        for kind in KINDS:
            for name, method in vars(kind.module.InferenceServerClient).items():
                if not name.startswith("_") and callable(method) and name != "close" and name not in text:
                    missing.add((kind.name, name))
        self.assertEqual(missing, set())


if __name__ == "__main__":
    unittest.main()
