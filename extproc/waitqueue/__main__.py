"""`python -m extproc.waitqueue DIR` writes the scripts with their includes in place, for luacheck to read."""

from __future__ import annotations

import sys
from pathlib import Path

from extproc.waitqueue import scripts

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for script in scripts.ALL:
    (folder / f"{script.name}.lua").write_text(script.source, encoding="utf-8")
