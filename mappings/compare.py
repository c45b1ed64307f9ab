#!/usr/bin/env python3
"""Times the kernels that instantiate.py wrote against the variants that decoding takes.

    python3 mappings/compare.py OUT RECORDS [--limit SECONDS] [OPTION]...

OUT has a folder for each engine, named as in mappings/. RECORDS gets a record for each mapping,
DATE-engine-ENGINE.MAPPING.json, of which docs/engines.md is made; one that is there is kept and
skipped. The record has the hash of their text and not the text: it is theirs. A mapping that takes
longer than the limit (300 s) is ended and has none. Options go to `lathe ab`. $LATHE names the
command.
"""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time


def ended(command, folder, limit):
    """The exit code, or None where it took longer. `lathe` measures in a process of its own."""
    process = subprocess.Popen(command, cwd=folder, start_new_session=True)
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def without_text(record):
    """Takes the other engine's WGSL out of a record; its hash stays."""
    held = json.loads(record.read_text())
    held["b_side"].pop("wgsl", None)
    record.write_text(json.dumps(held, ensure_ascii=False, separators=(",", ":")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("out", metavar="OUT", type=pathlib.Path)
    parser.add_argument("records", metavar="RECORDS", type=pathlib.Path)
    parser.add_argument("--limit", metavar="SECONDS", type=float, default=300.0)
    arguments, options = parser.parse_known_args()
    out, records, limit = arguments.out, arguments.records, arguments.limit
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
            # One that was interrupted may have it still.
            without_text(record)
            continue
        # The first line is `# lathe check KERNEL --mapping NAME.toml`.
        kernel = mapping.read_text().split()[3]
        command = [lathe, "ab", kernel, "--a", "selected", "--b", mapping.name]
        command += ["--unchecked-files", "--save", str(record), *options]
        # Run there, so that records have no path of the machine.
        begun = time.monotonic()
        code = ended(command, mapping.parent, limit)
        says = f"longer than {limit:.0f} s" if code is None else f"exit code {code}"
        print(f"{says}, {time.monotonic() - begun:.0f} s", file=sys.stderr)
        # 6 is a verdict too: inconclusive.
        if code not in (0, 6):
            failed.append(f"{engine}/{name} ({says})")
        if record.exists():
            without_text(record)
    if failed:
        sys.exit(f"no record of {', '.join(failed)}")


if __name__ == "__main__":
    main()
