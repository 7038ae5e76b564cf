"""The house keeps its order: layers import downwards only, and the command line starts fast without torch."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_imports_run_from_upper_layers_to_lower_ones() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_neither_the_command_line_nor_the_package_imports_torch() -> None:
    code = "import sys, shardkit, shardkit.cli.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_function_imports_a_module_of_the_package() -> None:
    offenders = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "shardkit").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if line.startswith(" ") and line.strip().startswith(("import shardkit", "from shardkit"))
        if path.name != "__init__.py"
    ]
    assert offenders == []
