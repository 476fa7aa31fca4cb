#!/usr/bin/env python3
"""Checks that no source file includes a header of a layer that its own layer may not know.

    check_layers.py ROOT        checks ROOT/src, ROOT/apps and ROOT/include; exit code 1 names every violation
    check_layers.py --self-test checks the checker

Only lines of the form  #include "layer/..."  matter: headers of this project are included by their
path below src/ or include/, third-party ones in angle brackets.
"""

import re
import sys
import tempfile
from pathlib import Path

# What each layer may include besides itself; why, is in docs/architecture.md.
ALLOWED = {
    "core": set(),
    "device": {"core"},
    "io": {"core"},
    "kernels": {"core", "device"},
    "checkpoint": {"core", "device", "io", "kernels"},
    "model": {"core", "device", "kernels"},
    "adapters": {"core", "device", "io", "kernels"},
    "measure": {"core", "device", "io"},
}
# include/miniacc holds the public headers. They know nothing of src/; the layers that speak to the
# outside see all of them, core and adapters only those whose types they share with
# callers.
ALLOWED["miniacc"] = set()
ALLOWED["runtime"] = set(ALLOWED)
ALLOWED["api"] = set(ALLOWED)
ALLOWED["apps"] = set(ALLOWED)
SINGLE_HEADERS = {"core": {"miniacc/error.h", "miniacc/cancel_token.h"},
                  "adapters": {"miniacc/lora.h"}}

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
SUFFIXES = {".h", ".hpp", ".cpp", ".cu", ".cuh", ".in"}


def violations_in(path, layer, known_layers):
    """Yields (line number, included header, reason)."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match.group(1)
        parts = Path(header).parts
        if ".." in parts:
            yield number, header, "paths start at src/, not at the including file"
            continue
        target = parts[0] if len(parts) > 1 else None
        if header in SINGLE_HEADERS.get(layer, ()):
            continue
        if target is None:
            if layer == "apps" and (path.parent / header).is_file():
                continue  # a program's own headers lie beside it
            yield number, header, "include by the path below src/"
        elif target != layer and target not in ALLOWED[layer]:
            reason = (f"{layer} may not include {target}" if target in known_layers
                      else f"{target} is no layer")
            yield number, header, reason


def check(root):
    """All violations below root, as printable lines, and the number of files read."""
    known = set(ALLOWED)
    found = []
    files = 0
    folders = [p for p in sorted((root / "src").iterdir()) if p.is_dir()]
    folders += [p for p in (root / "apps", root / "include" / "miniacc") if p.is_dir()]
    for folder in folders:
        layer = folder.name
        if layer not in known:
            found.append(f"{folder.relative_to(root)}: no such layer in tools/check_layers.py")
            continue
        for path in sorted(folder.rglob("*")):
            if path.suffix not in SUFFIXES or not path.is_file():
                continue
            files += 1
            for number, header, reason in violations_in(path, layer, known):
                found.append(f'{path.relative_to(root)}:{number}: "{header}": {reason}')
    return found, files


def allowed_graph_is_acyclic():
    state = {}

    def visit(layer):
        if state.get(layer) == "open":
            return False
        if layer not in state:
            state[layer] = "open"
            if not all(visit(other) for other in ALLOWED[layer] if other in ALLOWED):
                return False
            state[layer] = "closed"
        return True

    return all(visit(layer) for layer in ALLOWED)


def self_test():
    cases = [  # file, line, does it pass
        ("src/core/a.h", '#include "core/b.h"', True),
        ("src/core/a.h", "#include <device/b.h>", True),
        ("src/core/a.h", '#include "device/b.h"', False),
        ("src/device/a.cpp", '#include "core/b.h"', True),
        ("src/device/a.cpp", '#include "io/b.h"', False),
        ("src/io/a.cpp", '  #  include   "kernels/b.h"', False),
        ("src/kernels/cpu/a.cpp", '#include "kernels/b.h"', True),
        ("src/kernels/cuda/a.cu", '#include "io/b.h"', False),
        ("src/model/dit/a.cpp", '#include "io/b.h"', False),
        ("src/model/dit/a.cpp", '#include "kernels/b.h"  // why', True),
        ("src/model/dit/a.cpp", '// #include "io/b.h"', True),
        ("src/checkpoint/a.cpp", '#include "io/b.h"', True),
        ("src/checkpoint/a.cpp", '#include "model/b.h"', False),
        ("src/adapters/a.cpp", '#include "model/b.h"', False),
        ("src/adapters/a.cpp", '#include "miniacc/lora.h"', True),
        ("src/adapters/a.cpp", '#include "miniacc/miniacc.h"', False),
        ("src/measure/a.cpp", '#include "io/b.h"', True),
        ("src/measure/a.cpp", '#include "runtime/b.h"', False),
        ("src/runtime/a.cpp", '#include "model/b.h"', True),
        ("src/runtime/a.cpp", '#include "apps/b.h"', False),
        ("apps/cli/a.cpp", '#include "runtime/b.h"', True),
        ("apps/cli/a.cpp", '#include "miniacc/engine.h"', True),
        ("src/model/a.cpp", '#include "miniacc/engine.h"', False),
        ("src/core/error.h", '#include "miniacc/error.h"', True),
        ("src/core/error.h", '#include "miniacc/miniacc.h"', False),
        ("src/runtime/a.cpp", '#include "miniacc/miniacc.h"', True),
        ("src/runtime/a.cpp", '#include "api/a.h"', False),
        ("src/api/a.cpp", '#include "runtime/a.h"', True),
        ("include/miniacc/a.h", '#include "miniacc/error.h"', True),
        ("include/miniacc/a.h", '#include "core/error.h"', False),
        ("apps/cli/a.cpp", '#include "missing.h"', False),
        ("apps/cli/a.cpp", '#include "a.cpp"', True),
        ("src/core/a.cpp", '#include "../io/b.h"', False),
        ("src/core/a.cpp", '#include "b.h"', False),
        ("src/surprise/a.cpp", "int x;", False),
    ]
    for name, line, passes in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "src").mkdir()
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(line + "\n", encoding="utf-8")
            found, _ = check(root)
            if (not found) != passes:
                print(f"self-test: {name} with {line!r}: wanted "
                      f"{'no violation' if passes else 'a violation'}, got {found}")
                return 1
    if not allowed_graph_is_acyclic():
        print("self-test: the table of allowed includes has a cycle")
        return 1
    return 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) != 1 or not (Path(arguments[0]) / "src").is_dir():
        print(__doc__)
        return 2
    found, files = check(Path(arguments[0]))
    for line in found:
        print(line)
    if files == 0:
        print("no source file found")
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
