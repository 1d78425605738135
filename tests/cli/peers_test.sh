#!/usr/bin/env bash
# benchmarks/peers/run where no peer is installed, and its table.  Usage: peers_test.sh SHOAL ROOT
. "$(dirname "$0")/check.sh"
shoal=$1 root=$2
python=$(python3 -c 'import sys; print(sys.executable)') && "$python" -m venv --without-pip "$folder/venv" >/dev/null 2>&1 || { echo "no python3 that makes environments" && exit 77; }
peers="$python $root/benchmarks/peers/run --shoal $shoal --venv $folder/venv --quick --folder $folder"

# What is not there is left out with the reason, and nothing is downloaded into an environment that is there
expect 0 $peers --only step --only small --only zero --only start --only checkpoint --only generate --only load
says "Machine: " "Peers: no Python packages." "| what | peer |" \
    "Skipped: PyTorch, compiled, step of tiny, bf16, 12x64 tokens, 1 thread: torch is not in the environment (--install" \
    "Skipped: DeepSpeed: torch is not in the environment" "Skipped: llama.cpp, fp32: gguf is not in the environment" \
    "Skipped: loading weights: torch is not in the environment"
[ -z "$(ls "$folder" | grep -v venv)" ] || complain "left behind: $(ls "$folder")"
PATH=$folder expect 0 $peers --only all_reduce
says "Skipped: Open MPI: no mpicc.openmpi and mpirun.openmpi" "Skipped: MPICH: no"

# A peer that takes commands: turns, a row for each figure; one that dies is left out, and what it said is told
mkdir "$folder/fake" && cat >"$folder/fake/use.py" <<'PYTHON'
import argparse, os, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
import sides, table
folder, shoal = sys.argv[2:4]
options = argparse.Namespace(shoal=shoal, venv=folder + "/venv", quick=False, samples=3)
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
sleeper = sides.Lines(bench, ["sh", "-c", "sleep 100 & echo $!; wait"])
grandchild = int(sleeper.line())
bench.end()
def lives(pid):
    try:
        return open(f"/proc/{pid}/stat").read().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
deadline = time.monotonic() + 10
while lives(grandchild):
    assert time.monotonic() < deadline, "what a peer started goes on"
    time.sleep(0.01)

# the table of a document
page = folder + "/page.md"
open(page, "w").write("before\n\n| what | peer | Zen 4 |\n|---|---|---|\n| a, ms | x | old |\n| b, ms | x | kept |\n\nafter\n")
rows.add("a", "ms", "x", (10.0, 9.0, 11.0), (25.0, 20.0, 30.0))
rows.add("c", "us", "y", (1234.5, 1.0, 2.0), (1234.5, 1.0, 2.0))
rows.update(page, "Zen 4")
rows.update(page, "Zen 5")
assert open(page).read() == """before

| what | peer | Zen 4 | Zen 5 |
|---|---|---|---|
| a, ms | x | 10 (9-11) : 25 (20-30) = 2.50 | 10 (9-11) : 25 (20-30) = 2.50 |
| b, ms | x | kept | not yet run |
| c, us | y | 1234 (1-2) : 1234 (1-2) = 1.00 | 1234 (1-2) : 1234 (1-2) = 1.00 |

after
""", open(page).read()
PYTHON
expect 0 "$python" "$folder/fake/use.py" "$root/benchmarks/peers" "$folder" "$shoal"

# Wrong words
expect 2 $peers --only everything
says "everything" "all_reduce"
expect 2 $peers --update page.md
says "--quick and --update"
expect 1 $peers --shoal "$folder/none"
says "no program $folder/none; run make first, or give --shoal"
finish
