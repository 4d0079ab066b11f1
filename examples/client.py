#!/usr/bin/env python3
"""A client of the Open Inference Protocol, in Python's standard library: what are these files, which way up is this page?

    python3 examples/client.py [URL] [FILE ...]

It asks two models, as `make demo` serves them: `magika`, which tells the type of a file by its first and last
bytes, and `orientation`, which tells how a scanned page was turned. Without files it asks about some of this
repository. What is printed is each model's best guess and how sure it is, as it is: the package `magika` would
call some guesses of which the model is not sure enough plain text.
"""

import array
import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
URL = "http://localhost:8000"
FILES = [
    "README.md",
    "Makefile",
    "Cargo.toml",
    "crates/cli/src/main.rs",
    "scripts/setup.py",
    "data/zoo_a100.csv",
    "docs/images/resnet50.svg",
    "crates/server/src/frontend/status.html",
    ".fermata/models/magika.onnx",
]


def main():
    arguments = sys.argv[1:]
    url = arguments.pop(0).rstrip("/") if arguments and "://" in arguments[0] else URL
    files = [Path(name) for name in arguments] or [ROOT / name for name in FILES]
    try:
        for file in files:
            if file.is_file():
                began = time.perf_counter()
                label, score = type_of(url, file.read_bytes())
                print(f"  {shown(file)}: {label} ({score:.2f}), {since(began)}", flush=True)
            else:
                print(f"  {shown(file)}: is not a file")
        for turned in (0, 90, 180, 270):
            began = time.perf_counter()
            label, score = orientation_of(url, page(turned))
            print(f"  a page turned by {turned}°: {label}° ({score:.2f}), {since(began)}", flush=True)
    except urllib.error.HTTPError as error:
        # The body says why; 503 comes with Retry-After, and means that the answer would have been late.
        sys.exit(f"{url} refused: {json.load(error)['error']} (HTTP status {error.code})")
    except urllib.error.URLError as error:
        sys.exit(f"{url} cannot be reached: {error.reason}; is `fermata serve` running?")


def type_of(url, content):
    """The type of a file, and how sure the model is. Its input is made as the package `magika` makes it."""
    size, padding, block = 1024, 256, 4096
    begin = list(content[:block].lstrip()[:size])
    end = list(content[-block:].rstrip()[-size:])
    begin += [padding] * (size - len(begin))
    end = [padding] * (size - len(end)) + end
    request = {
        "inputs": [{"name": "bytes", "datatype": "INT32", "shape": [1, 2 * size], "data": begin + end}],
        "outputs": [{"name": "target_label", "parameters": {"classification": 1}}],
    }
    return best(post(url, "magika", json.dumps(request).encode()))


def orientation_of(url, pixels):
    """How a page was turned, and how sure the model is. `pixels` are 224 rows of 224 grey values."""
    means, deviations = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    planes = array.array("f")
    for mean, deviation in zip(means, deviations):
        planes.extend((value / 255 - mean) / deviation for row in pixels for value in row)
    # Large tensors go behind the JSON, as bytes, little-endian: an extension that Triton has too.
    data = planes.tobytes()
    request = {
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [1, 3, 224, 224], "parameters": {"binary_data_size": len(data)}}
        ],
        "outputs": [{"name": "fetch_name_0", "parameters": {"classification": 1}}],
    }
    head = json.dumps(request).encode()
    return best(post(url, "orientation", head + data, {"Inference-Header-Content-Length": str(len(head))}))


def post(url, model, body, headers={}):
    request = urllib.request.Request(f"{url}/v2/models/{model}/infer", body, headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def best(response):
    """The first class of the first output: it comes as `value:index:label`."""
    value, index, *label = response["outputs"][0]["data"][0].split(":", 2)
    return (label or [f"class {index}"])[0], float(value)


def shown(file):
    file = file.resolve()
    return file.relative_to(ROOT) if file.is_relative_to(ROOT) else file


def since(began):
    return f"{1e3 * (time.perf_counter() - began):.1f} ms"


# A page of text, so that nothing has to be fetched: five columns of seven pixels for each letter.
LETTERS = {
    "a": "2054545478", "b": "7f48444438", "c": "3844444420", "d": "384444487f", "e": "3854545418", "f": "087e090102",
    "g": "0c5252523e", "h": "7f08040478", "i": "00447d4000", "j": "2040443d00", "k": "7f10284400", "l": "00417f4000",
    "m": "7c04180478", "n": "7c08040478", "o": "3844444438", "p": "7c14141408", "q": "081414187c", "r": "7c08040408",
    "s": "4854545420", "t": "043f444020", "u": "3c4040207c", "v": "1c2040201c", "w": "3c4030403c", "x": "4428102844",
    "y": "0c5050503c", "z": "4464544c44",
}

TEXT = """
the quick brown fox jumps over the lazy dog while the pack of five dozen liquor jugs waits by the door it is held
for exactly as long as its deadline allows and no longer than holding pays so that each of the others finds a place
beside it in the same batch and all of them arrive in time
""".split()


def page(turned, size=224, margin=12, scale=2):
    """Black on white, clockwise by so many degrees."""
    pixels = [[255] * size for _ in range(size)]
    x = y = margin
    words = TEXT * 3
    for word in words:
        if x + 6 * scale * len(word) > size - margin:
            x, y = margin, y + 11 * scale
        if y + 7 * scale > size - margin:
            break
        for letter in word:
            for column, bits in enumerate(bytes.fromhex(LETTERS[letter])):
                for row in range(7 * scale):
                    if bits >> (row // scale) & 1:
                        for thick in range(scale):
                            pixels[y + row][x + column * scale + thick] = 0
            x += 6 * scale
        x += 6 * scale
    for _ in range(turned // 90):
        pixels = [list(row) for row in zip(*pixels[::-1])]
    return pixels


if __name__ == "__main__":
    main()
