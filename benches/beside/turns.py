#!/usr/bin/env python3
"""Times `lathe bench decode` and another program in turns, one repetition each.

    turns.py ROUNDS 'LATHE COMMAND' 'OTHER COMMAND'

Each command prints a record of one test (ours at `-r 1 --json`), one JSON row with `avg_ts`
(llama-bench's `-o jsonl`), or a number before its last `tok/s`. The rows of both go to stdout, so that they
can be kept; the medians and the ratio go to stderr.
"""

import json
import re
import shlex
import statistics
import subprocess
import sys

LENGTHS = ["n_prompt", "n_gen", "n_depth", "sequences"]


def run(command):
    """Runs a command once. Returns its row, which has at least `avg_ts`."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    try:
        rows = json.loads(done.stdout)["tests"]
    except (ValueError, KeyError, TypeError):
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    rows = [row for row in rows if "avg_ts" in row]
    if len(rows) > 1:
        sys.exit(f"{command[0]}: {len(rows)} rows with avg_ts, not one")
    if rows:
        return rows[0]
    figures = re.findall(r"(\d+(?:\.\d+)?) tok/s(?![/\w])", done.stdout)
    if not figures:
        sys.exit(f"{command[0]}: neither a row with avg_ts nor a number of tok/s")
    return {"avg_ts": float(figures[-1])}


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sides = [shlex.split(line) for line in sys.argv[2:]]
    speeds = ([], [])
    for _ in range(int(sys.argv[1])):
        rows = [run(side) for side in sides]
        for key in LENGTHS:
            if key in rows[1] and rows[0].get(key) != rows[1][key]:
                sys.exit(f"{key} is {rows[0].get(key)} and {rows[1][key]}: two tests, not one")
        for row, side in zip(rows, speeds):
            side.append(row["avg_ts"])
            print(json.dumps(row), flush=True)
    ours, other = map(statistics.median, speeds)
    ratios = [a / b for a, b in zip(*speeds)]
    print(
        f"{ours:.1f} and {other:.1f} tok/s, medians of {sys.argv[1]}; ratio "
        f"{statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}",
        file=sys.stderr,
    )


main()
