"""Makes `{{name}}.wasm` of `policy.py` and what it imports. Needs what `requirements.txt` says."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

NAME = "{{name}}"
WORLD = "throttle-policy"

HERE = Path(__file__).parent


def main() -> int:
    executable = Path(sysconfig.get_path("scripts"), "componentize-py").with_suffix(sysconfig.get_config_var("EXE") or "")
    if not executable.exists():
        print(f"componentize-py is not installed for {sys.executable}; `pip install -r requirements.txt`", file=sys.stderr)
        return 1
    # Written aside and renamed, so that a host that watches the file sees the old one or the new one.
    output = HERE / f"{NAME}.wasm"
    aside = HERE / f"{NAME}.wasm.new"
    # A policy gets nothing from its surroundings but what `wit/policy.wit` gives it, and loads only without WASI.
    command = [executable, "--quiet", "--wit-path", "wit/policy.wit", "--world", WORLD]
    command += ["componentize", "policy", "--stub-wasi", "--python-path", ".", "--output", aside]
    # Of an error in the policy its own traceback is enough.
    built = subprocess.run(command, cwd=HERE, env=os.environ | {"RUST_BACKTRACE": "0"})
    if built.returncode != 0:
        return built.returncode
    aside.replace(output)
    print(f"{output.name}: {output.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
