"""Builds the wheel without a network, installs it in a temporary directory and tests it there:

python3 -m tests [-v] [TEST...]
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent

with tempfile.TemporaryDirectory(prefix="docstore-python-") as name:
    directory = Path(name)
    source, site = directory / "source", directory / "site"
    # pip builds in the directory of the source.
    shutil.copytree(HERE, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "tests"))
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", directory, source], check=True)
    (wheel,) = directory.glob("docstore_client-*.whl")
    subprocess.run([*pip, "install", *offline, "--root-user-action", "ignore", "--no-compile", "--target", site, wheel], check=True)
    environment = {**os.environ, "PYTHONPATH": str(site), "DOCSTORE_SITE": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    arguments = sys.argv[1:] or ["discover", "-s", "tests", "-t", "."]
    result = subprocess.run([sys.executable, "-W", "error", "-m", "unittest", *arguments], cwd=HERE, env=environment)
sys.exit(result.returncode)
