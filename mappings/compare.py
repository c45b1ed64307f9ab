#!/usr/bin/env python3
"""Times the kernels that instantiate.py wrote against the variants that decoding takes.

    python3 mappings/compare.py OUT RECORDS [OPTION]...

OUT has a folder for each engine, named as in mappings/. RECORDS gets a record for each mapping,
DATE-engine-ENGINE.MAPPING.json, of which docs/engines.md is made; one that is there is kept and
skipped. Options go to `lathe ab`. $LATHE names the command.
"""

import datetime
import os
import pathlib
import shutil
import subprocess
import sys


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out, records, options = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    records.mkdir(parents=True, exist_ok=True)
    mappings = sorted(out.glob("*/*.toml"))
    if not mappings:
        sys.exit(f"{out} has no ENGINE/MAPPING.toml")
    lathe, failed = shutil.which(os.environ.get("LATHE", "lathe")), []
    if not lathe:
        sys.exit("no command `lathe`: name it with LATHE=PATH")
    lathe = str(pathlib.Path(lathe).resolve())
    for nth, mapping in enumerate(mappings, 1):
        engine, name = mapping.parent.name, mapping.stem
        record = records.resolve() / f"{datetime.date.today()}-engine-{engine}.{name}.json"
        print(f"{nth} of {len(mappings)}: {engine}/{name}", file=sys.stderr)
        if record.exists():
            continue
        # The first line is `# lathe check KERNEL --mapping NAME.toml`.
        kernel = mapping.read_text().split()[3]
        command = [lathe, "ab", kernel, "--a", "selected", "--b", mapping.name]
        command += ["--unchecked-files", "--tolerate", "--save", str(record), *options]
        # 6 is a verdict too: inconclusive.
        # Run there, so that records have no path of the machine.
        if subprocess.run(command, cwd=mapping.parent).returncode not in (0, 6):
            failed.append(f"{engine}/{name}")
    if failed:
        sys.exit(f"no record of {', '.join(failed)}")


if __name__ == "__main__":
    main()
