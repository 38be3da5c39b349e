#!/usr/bin/env python3
"""build_wheel.py DIR: writes the wheel of the client into DIR, with nothing but the standard library.

The same sources give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
import zipfile
from pathlib import Path

here = Path(__file__).resolve().parent
version = re.search(r'__version__ = "(.+)"', (here / "coppice/__init__.py").read_text()).group(1)
info = f"coppice-{version}.dist-info"

metadata = f"""Metadata-Version: 2.1
Name: coppice
Version: {version}
Summary: The client of Coppice: sandboxes that can be snapshotted, restored, forked, compared and merged
License: Apache-2.0
Requires-Python: >=3.11
Description-Content-Type: text/markdown

{(here / "README.md").read_text()}"""

wheel = """Wheel-Version: 1.0
Generator: coppice
Root-Is-Purelib: true
Tag: py3-none-any
"""


def main(directory: Path) -> None:
    files = {f"coppice/{path.name}": path.read_bytes() for path in sorted((here / "coppice").iterdir()) if path.is_file()}
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = wheel.encode()
    files[f"{info}/LICENSE"] = (here.parent.parent / "LICENSE").read_bytes()
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / f"coppice-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    print(target)


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


if len(sys.argv) != 2:
    sys.exit("usage: build_wheel.py DIR")
main(Path(sys.argv[1]))
