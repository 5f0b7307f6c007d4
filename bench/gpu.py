"""Exchange on an accelerator: every case in a process of its own, one table, one JSON file.

    python bench/gpu.py [--only CASE ...]

Needs torch with CUDA and JAX with CUDA, and nothing else: no network, no installation. Without an
accelerator it says so, and runs what a CPU can answer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TIMEOUT = 180
ASK = (
    "import sys; import bench.gpu_promises, bench.gpu_questions; "
    "from bench.gpu_case import main; main(sys.argv[1])"
)


def ask(name: str, environment: dict[str, str]) -> dict[str, Any]:
    """The answer to one case, or how its process ended."""
    shares = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "2"}
    path = os.pathsep.join((str(ROOT), str(ROOT / "backends")))
    try:
        done = subprocess.run(
            [sys.executable, "-c", ASK, name],
            env=os.environ | shares | environment | {"PYTHONPATH": path},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"verdict": "HANGS", "finding": f"no answer in {TIMEOUT} s"}
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer
    if done.returncode < 0:
        return {"verdict": "CRASHES", "finding": signal.Signals(-done.returncode).name}
    errors = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
    return {"verdict": "FAILS", "finding": errors[-1][:200]}


def platforms() -> dict[str, str]:
    """The environment in which JAX sees the accelerator beside the CPU, if there is one."""
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    seen = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.is_available())"],
        capture_output=True,
        text=True,
        check=False,
    )
    cuda = seen.stdout.strip() == "True"
    return {"JAX_PLATFORMS": "cuda,cpu"} if cuda else {"JAX_PLATFORMS": "cpu", **flags}


def main() -> bool:
    """Run the cases; 1 if a promise does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="CASE", help="these cases alone")
    options = parser.parse_args()
    base = platforms()
    listed = ask("list", base)
    if "cases" not in listed:
        print(f"torch and JAX do not both run here: {listed['finding']}")
        return 1
    where = listed["surroundings"]
    accelerated = where["platform"] != "cpu"
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    if not accelerated:
        print("No accelerator here: only what a CPU can answer is asked, and nothing is recorded.")
    answers = {}
    for name, case in listed["cases"].items():
        if options.only and name not in options.only:
            continue
        if case["devices"] > where["devices"]:
            answer = {"verdict": "-", "finding": f"needs {case['devices']} devices"}
        elif not (accelerated or case["on_cpu"]):
            answer = {"verdict": "-", "finding": "needs an accelerator"}
        else:
            answer = ask(name, base | case["environment"])
        answers[name] = {"question": case["question"], **answer}
        print(f"{answer['verdict']:8} {name:34} {answer['finding']}", flush=True)
    if accelerated:
        record(where, answers)
    broken = [
        name
        for name, answer in answers.items()
        if listed["cases"][name]["promise"] and answer["verdict"] not in ("ok", "-")
    ]
    print(f"promises broken: {', '.join(broken) or 'none'}")
    return bool(broken)


def record(where: dict[str, Any], answers: dict[str, Any]) -> None:
    """Write the run to a file of its own."""
    device = "".join(c if c.isalnum() else "-" for c in where["device"].lower())
    file = ROOT / "bench" / "results" / f"gpu-{device}.json"
    file.parent.mkdir(exist_ok=True)
    run = {"when": datetime.now(UTC).isoformat(timespec="seconds"), **where, "cases": answers}
    file.write_text(json.dumps(run, indent=2) + "\n", "utf-8")
    print(f"written to {file.relative_to(ROOT)}")


if __name__ == "__main__":
    sys.exit(main())
