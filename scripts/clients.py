#!/usr/bin/env python3
"""Makes `.fermata/venv`, the Python of `tests/clients`. Its packages come from wherever pip is configured to look.

Running it again does nothing, until a version below changes.
"""

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".fermata" / "venv"
STAMP = HOME / "stamp.txt"

PACKAGES = ["tritonclient[all]==2.73.0", "numpy==2.4.6"]


def main():
    wanted = "\n".join([f"python {sys.version_info.major}.{sys.version_info.minor}", *PACKAGES, ""])
    python = HOME / "bin" / "python"
    if not (STAMP.exists() and STAMP.read_text() == wanted and python.exists()):
        print(f"clients: {', '.join(PACKAGES)}", flush=True)
        make(python)
        STAMP.write_text(wanted)


def make(python):
    # From the start, so that a run that was cut short, or an earlier version, leaves nothing behind.
    venv.create(HOME, clear=True, with_pip=True)
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    done = subprocess.run([*command, *PACKAGES], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = reasons[-1] if reasons else (done.stderr.strip() or "pip failed").splitlines()[-1]
        sys.exit(
            f"clients: cannot install {' and '.join(PACKAGES)}: {reason}\n"
            "clients: is there a network, and does `python3 -m pip` work? Without them, the clients cannot be tested"
        )


if __name__ == "__main__":
    main()
