#!/usr/bin/env bash
# benchmarks/peers/run without peers, its table, and the files of benchmarks/results.  Usage: peers_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1 root=$2
python=$(python3 -c 'import sys; print(sys.executable)') && "$python" -m venv --without-pip "$folder/venv" >/dev/null 2>&1 || { echo "no python3 that makes environments" && exit 77; }
peers="$python $root/benchmarks/peers/run --shoal $shoal --venv $folder/venv --quick --folder $folder"

# A missing peer is left out with the reason. Nothing is downloaded into an existing environment.
expect 0 $peers --only step --only small --only zero --only start --only checkpoint --only generate --only load
says "Machine: " "Peers: no Python packages." "| what | peer |" \
    "Skipped: PyTorch, compiled, step of tiny, bf16, 12x64 tokens, 1 thread: torch is not in the environment (--install" \
    "Skipped: DeepSpeed: torch is not in the environment" "Skipped: llama.cpp, fp32: gguf is not in the environment" \
    "Skipped: loading weights: torch is not in the environment"
[ -z "$(ls "$folder" | grep -v venv)" ] || complain "left behind: $(ls "$folder")"
PATH=$folder expect 0 $peers --only all_reduce
says "Skipped: Open MPI: no mpicc.openmpi and mpirun.openmpi" "Skipped: MPICH: no"

# Sides alternate, with a row for each figure. A side that dies is left out, and its last message is reported.
mkdir "$folder/fake" && cat >"$folder/fake/use.py" <<'PYTHON'
import argparse, os, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import sides, table
folder, shoal = sys.argv[2:4]
options = argparse.Namespace(shoal=shoal, venv=folder + "/venv", quick=False, samples=3, limit=60)
rows = table.Rows()
bench = sides.Bench(folder, options, folder, rows)
order, left = [], [2]
def good():
    order.append("good")
    return 5.0
def bad():
    order.append("bad")
    left[0] -= 1
    if not left[0]:
        raise sides.Failed("no more")
    return 7.0
made = sides.Paced(bench, 1, "step", "--model", "tiny", "--micro-batch", "1", "--threads", "1", "--seconds", "0.01")
taken = bench.take_turns("it", {"Shoal": made, "good": sides.Samples(good), "bad": sides.Samples(bad)})
assert list(taken) == ["Shoal", "good"] and order == ["good", "bad", "good", "bad", "good"], (list(taken), order)
median, least, greatest = made.times(0, lambda rate: 1e3 / rate)
assert 0 < least <= median <= greatest
assert rows.skipped == [("bad, it", "no more")], rows.skipped
assert bench.take_turns("alone", {"Shoal": sides.Samples(good)}) == {}
child = sides.Lines(bench, ["sh", "-c", "echo a; echo b; echo it broke >&2; sleep 0.1"])
assert (child.line(), child.line()) == ("a", "b")
try:
    child.line()
    assert False
except sides.Failed as error:
    assert str(error) == "sh ended: it broke", error
# A worker that says nothing for the limit is ended; its row alone is missing.
open(folder + "/silent.py", "w").write("import sys, time\nfor line in sys.stdin:\n    time.sleep(100)\n")
bench.python, bench.limit = sys.executable, 0.3
silent = sides.Worker(bench, folder + "/silent.py")
for wanted in ("said nothing for 0.3 s", "it was ended before"):
    try:
        silent.do("make")
        assert False
    except sides.Failed as error:
        assert wanted in str(error) and silent.ended, error
bench.limit = 60
sleeper = sides.Lines(bench, ["sh", "-c", "sleep 100 & echo $!; wait"])
grandchild = int(sleeper.line())
bench.end()
def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
deadline = time.monotonic() + 60
while lives(grandchild):
    assert time.monotonic() < deadline, "a child of a peer still runs"
    time.sleep(0.01)

# the table of a file of results: its other sections stay
page = folder + "/page.md"
head = "| what | peer | Shoal | the peer | times faster |\n|---|---|---|---|---|\n"
open(page, "w").write("# CPU\n\n## Peers\n\nold\n\n" + head + "| a, ms | x | old | old | 1 |\n| b, ms | x | kept | kept | 2 |\n\n## Notes\n\nafter\n")
rows.add("a", "ms", "x", (10.0, 9.0, 11.0), (25.0, 20.0, 30.0))
rows.add("c", "us", "y", (1234.5, 1.0, 2.0), (1234.5, 1.0, 2.0))
rows.update(page, "Machine: M.")
want = "# CPU\n\n## Peers\n\nLast update. Machine: M.\n\n" + head + """| a, ms | x | 10 (9-11) | 25 (20-30) | 2.50 |
| b, ms | x | kept | kept | 2 |
| c, us | y | 1234 (1-2) | 1234 (1-2) | 1.00 |

## Notes

after
"""
assert open(page).read() == want, open(page).read()
rows.update(page, "Machine: M.")
assert open(page).read() == want, open(page).read()
rows.update(folder + "/none.md", "Machine: M.")
made = open(folder + "/none.md").read()
assert made.startswith("# ") and made.endswith("| c, us | y | 1234 (1-2) | 1234 (1-2) | 1.00 |\n"), made
open(page, "w").write("## Peers\n\n| what | peer | Zen 4 |\n|---|---|---|\n")
try:
    rows.update(page, "")
    assert False
except table.Wrong as error:
    assert "does not begin with | what | peer | Shoal |" in str(error), error
PYTHON
expect 0 "$python" "$folder/fake/use.py" "$root/benchmarks/peers" "$folder" "$shoal"

# Somebody ends the run: the rows that it has are printed, and kept.
cat >"$folder/fake/ended.py" <<'PYTHON'
import importlib.machinery, importlib.util, os, signal, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import parts
def first(bench):
    bench.rows.add("first", "ms", "peer", (10.0, 9.0, 11.0), (20.0, 19.0, 21.0))
def second(bench):
    os.kill(os.getpid(), signal.SIGTERM)
parts.PARTS.clear()
parts.PARTS.update(first=first, second=second)
loader = importlib.machinery.SourceFileLoader("run", sys.argv[1] + "/run")
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
loader.exec_module(run)
sys.argv[1:] = sys.argv[2:]
run.main()
PYTHON
expect 143 "$python" "$folder/fake/ended.py" "$root/benchmarks/peers" --shoal "$shoal" --venv "$folder/venv" --folder "$folder" \
    --update "$folder/ended.md"
says "| first, ms | peer | 10 (9-11) | 20 (19-21) | 2.00 |"
grep -qF '| first, ms | peer | 10 (9-11) | 20 (19-21) | 2.00 |' "$folder/ended.md" || complain "not kept: $(cat "$folder/ended.md")"

# benchmarks/run --write writes its section by results.py, and benchmarks/draw draws it: a bar for each row that has a limit
printf '## Figures\n\nold\n\n## Notes\n\n| a | b | c | d | 1.0 |\n' >"$folder/cpu.md"
"$python" "$root/benchmarks/results.py" Figures "$folder/cpu.md" >"$folder/said" 2>&1 <<'TABLE' || complain "results.py: $(cat "$folder/said")"
| command | what | median (least-greatest) | limit of the same run | ratio |
|---|---|---|---|---|
| `shoal bench gemm --dtype bf16 --prepacked` | fc1 <NN> | 9 (8-10) GFLOP/s | multiply-add peak: 10 | 0.900 |
| `shoal bench start` | begin | 9 (8-10) ms | --version alone: 1 | 0.111 |
TABLE
[ "$(sed -n '1p;2p;3p;$p' "$folder/cpu.md" | tr '\n' ';')" = '## Figures;;| command | what | median (least-greatest) | limit of the same run | ratio |;| a | b | c | d | 1.0 |;' ] ||
    complain "results.py wrote: $(cat "$folder/cpu.md")"
output=$("$root/benchmarks/draw" "$folder/cpu.md")
says "fc1 &lt;NN>, bf16, packed before" "90 %  9 GFLOP/s" "</svg>"
[ "$(grep -c '<rect x=' <<<"$output")" -eq 1 ] || complain "not one bar: $output"
expect 1 "$python" "$root/benchmarks/results.py"
says "Usage: benchmarks/results.py TITLE"
mkdir -p "$folder/tree/build/bin" && cp -r "$root/benchmarks" "$folder/tree/"
printf '#!/bin/sh\necho "{\\"bench\\": \\"x\\", \\"name\\": \\"n\\", \\"unit\\": \\"ms\\", \\"median\\": 2, \\"min\\": 1, \\"max\\": 3, \\"limit_name\\": \\"l\\", \\"limit\\": 4, \\"ratio\\": 0.5}"\n' \
    >"$folder/tree/build/bin/shoal"
chmod +x "$folder/tree/build/bin/shoal"
expect 0 "$folder/tree/benchmarks/run" --threads 1 --write "$folder/cpu.md"
grep -qF '| `shoal bench adam --threads 1` | n | 2 (1-3) ms | l: 4 | 0.500 |' "$folder/cpu.md" && grep -q '^## Notes' "$folder/cpu.md" ||
    complain "benchmarks/run --write wrote: $(cat "$folder/cpu.md")"
expect 0 "$folder/tree/benchmarks/run" --write --threads 1
says "section Figures"
expect 2 "$root/benchmarks/run" --unknown
says "Usage: benchmarks/run" "--write"

# Wrong arguments
expect 2 $peers --only everything
says "everything" "all_reduce"
expect 2 $peers --update "$folder/page.md"
says "--quick and --update"
expect 1 $peers --shoal "$folder/none"
says "no program $folder/none; run make first, or give --shoal"
finish
