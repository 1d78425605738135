"""Sides of a comparison: programs that take a sample on command, and programs that are one sample.

Each side is made, which may take long, and warms up. Then all sides' `sample()` alternate. `result()` is
(median, least, greatest). A side that cannot be made raises Missing with the reason."""
import json
import os
import select
import signal
import shutil
import subprocess
import sys
import time

import table


class Missing(Exception):
    pass


class Failed(Exception):
    pass


def end_all_of(program):
    """Ends the program and its children: it has its own session."""
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    program.wait()


class Lines:
    """A program whose lines are read with a deadline. Its stderr goes to a file; the file's last line explains a failure."""

    def __init__(self, bench, words, environment=None, stdin=subprocess.PIPE):
        self.words, self.rest, self.limit = words, b"", bench.limit
        self.errors = open(os.path.join(bench.folder, f"errors-{len(bench.running)}-{time.monotonic_ns()}"), "w+")
        self.program = subprocess.Popen(words, stdin=stdin, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True,
                                        env={**os.environ, **(environment or {})}, cwd=bench.root)
        bench.running.append(self)

    def tell(self, line):
        try:
            self.program.stdin.write(line.encode() + b"\n")
            self.program.stdin.flush()
        except BrokenPipeError:
            pass  # reading the next line reports the cause

    def line(self):
        deadline = time.monotonic() + self.limit
        while b"\n" not in self.rest:
            ready = select.select([self.program.stdout], [], [], max(0, deadline - time.monotonic()))[0]
            more = os.read(self.program.stdout.fileno(), 1 << 16) if ready else b""
            if not more:
                raise Failed(f"{os.path.basename(self.words[0])} "
                             f"{'ended' if ready else f'said nothing for {self.limit:g} s'}: {self.last_error()}")
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return line.decode()

    def last_error(self):
        self.errors.seek(0)
        told = [line.strip() for line in self.errors.read().splitlines() if line.strip()]
        return told[-1][:200] if told else "no message"

    def end(self):
        if self.program.returncode is None:
            end_all_of(self.program)
        for file in (self.program.stdin, self.program.stdout, self.errors):
            if file:
                file.close()


class Worker:
    """A Python program of this folder that takes commands (worker.py). One that fails is ended, since its answer may come yet."""

    def __init__(self, bench, *words, environment=None):
        here = os.path.dirname(os.path.abspath(__file__))
        self.ended = False
        self.lines = Lines(bench, [bench.python, os.path.join(here, words[0]), *words[1:]], {**bench.environment, **(environment or {})})

    def do(self, command, **arguments):
        if self.ended:
            raise Failed("it was ended before")
        self.lines.tell(json.dumps({"do": command, **arguments}))
        try:
            answer = json.loads(self.lines.line())
        except Failed:
            self.lines.end()
            self.ended = True
            raise
        if "error" in answer:
            raise Missing(answer["error"])
        return answer["value"]


class Paced:
    """`shoal bench SUBJECT --paced`: a sample per line, `count` figures at the end."""

    def __init__(self, bench, count, *words):
        self.count, self.left, self.figures = count, bench.samples, []
        self.lines = Lines(bench, [bench.shoal, "bench", *words, "--repeats", str(bench.samples), "--json", "--paced"])
        self.wait()

    def wait(self):
        while (line := self.lines.line()) != "ready":
            self.figures.append(json.loads(line))
            if self.left == 0 and len(self.figures) == self.count:
                return

    def sample(self):
        self.left -= 1
        self.lines.tell("")
        self.wait()

    def times(self, figure, of_median):
        """`of_median` of median, least and greatest, sorted: a rate becomes a time."""
        made = [of_median(self.figures[figure][key]) for key in ("median", "min", "max")]
        return made[0], min(made), max(made)


class Samples:
    """A function that takes one sample: a figure or several."""

    def __init__(self, call):
        self.call, self.taken = call, []

    def sample(self):
        self.taken.append(self.call())

    def result(self, figure=None):
        return table.summary([taken if figure is None else taken[figure] for taken in self.taken])


class Bench:
    """State that all parts share."""

    def __init__(self, root, options, folder, rows):
        self.root, self.folder, self.rows = root, folder, rows
        self.shoal = os.path.abspath(options.shoal)
        self.python = os.path.join(os.path.abspath(options.venv), "bin", "python")
        self.limit = options.limit
        self.quick, self.samples, self.running = options.quick, 1 if options.quick else options.samples, []
        cache = os.path.join(os.path.abspath(options.venv), "cache")
        # PyTorch is fastest when it keeps its memory in huge pages; no request goes to the network
        self.environment = {
            "MALLOC_MMAP_THRESHOLD_": str(8 << 30), "MALLOC_TRIM_THRESHOLD_": str(16 << 30), "MALLOC_TOP_PAD_": str(256 << 20),
            "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "TORCHINDUCTOR_CACHE_DIR": os.path.join(cache, "inductor"),
            "TORCH_EXTENSIONS_DIR": os.path.join(cache, "extensions"), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
            "TRANSFORMERS_VERBOSITY": "error", "DS_ACCELERATOR": "cpu", "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": os.path.dirname(self.python) + os.pathsep + os.environ["PATH"],
        }
        self.known = self.versions()

    def versions(self):
        names = ("torch", "transformers", "safetensors", "deepspeed", "gguf", "llama_cpp_python")
        program = ("import importlib.metadata as m, json\nfound = {}\nfor name in %r:\n    try:\n        found[name] = m.version(name)\n"
                   "    except m.PackageNotFoundError:\n        pass\nprint(json.dumps(found))" % (names,))
        try:
            return json.loads(subprocess.run([self.python, "-c", program], check=True, capture_output=True, text=True).stdout)
        except (OSError, subprocess.CalledProcessError):
            return {}

    def needs(self, *names):
        """The version of the last package. Raises Missing if a package is not installed."""
        for name in names:
            if name not in self.known:
                raise Missing(f"{name} is not in the environment (--install installs it, if a package registry answers)")
        return self.known[names[-1]]

    def peers(self):
        return "Peers: " + (", ".join(f"{name} {version}" for name, version in self.known.items()) or "no Python packages") + "."

    def commit(self):
        try:
            told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=self.root)
        except OSError:
            return "unknown"
        return told.stdout.strip() or "unknown"

    def once(self, words, environment=None):
        """Runs a program to its end; its output."""
        program = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **(environment or {})}, cwd=self.root, start_new_session=True)
        try:
            told, errors = program.communicate(timeout=self.limit)
        except BaseException as error:
            end_all_of(program)
            if isinstance(error, subprocess.TimeoutExpired):
                raise Failed(f"{' '.join(words[:4])} ... did not end in {self.limit:g} s")
            raise
        if program.returncode:
            last = [line for line in errors.splitlines() if line.strip()] or ["no message"]
            raise Failed(f"{' '.join(words[:4])} ... ended with {program.returncode}: {last[-1][:200]}")
        return told

    def figures(self, *words, ranks=1):
        """The figures of a new process of `shoal bench`."""
        run = [self.shoal, "run", "--master_port", "0", "--num_gpus", str(ranks)] if ranks > 1 else []
        told = self.once([*run, self.shoal, "bench", *words, "--json"])
        return [json.loads(line) for line in told.splitlines() if line.startswith("{")]

    def say(self, text):
        print(f"benchmarks/peers/run: {text}", file=sys.stderr, flush=True)

    def have(self, what, make):
        """The side that make() returns; None if it cannot be made, and the reason is recorded."""
        try:
            return make()
        except (Missing, Failed) as error:
            self.rows.skip(what, str(error))
            return None

    def take_turns(self, what, sides):
        """Takes samples of {name: side} alternately; another side begins each turn. Returns the sides that did not fail."""
        sides = {name: side for name, side in sides.items() if side}
        for turn in range(self.samples if len(sides) > 1 else 0):
            self.say(f"{what}: sample {turn + 1} of {self.samples}")
            names = list(sides)
            for name in names[turn % len(names):] + names[:turn % len(names)]:
                try:
                    sides[name].sample()
                except (Missing, Failed) as error:
                    if name == "Shoal":
                        raise Failed(f"{what}: {error}")
                    self.rows.skip(f"{name}, {what}", str(error))
                    del sides[name]
        return sides if len(sides) > 1 else {}

    def mpis(self):
        """{name: (command, version)} of the installed MPIs. Compiles their program."""
        found = {}
        for name, suffix in (("Open MPI", ".openmpi"), ("MPICH", ".mpich")):
            program = os.path.join(self.folder, "all_reduce" + suffix)
            source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_all_reduce.c")
            if not shutil.which("mpicc" + suffix) or not shutil.which("mpirun" + suffix):
                self.rows.skip(name, f"no mpicc{suffix} and mpirun{suffix}")
            elif self.have(name, lambda: [self.once(["mpicc" + suffix, "-O2", source, "-o", program])]):
                found[name] = (["mpirun" + suffix, *(["--allow-run-as-root"] if name == "Open MPI" else []), "-n", "2", program],
                               self.mpi_version(suffix))
        return found

    def mpi_version(self, suffix):
        told = self.once(["mpirun" + suffix, "--version"]).split()
        return next((word for word in told if word[0].isdigit()), "")

    def end(self):
        for program in self.running:
            program.end()
        self.running.clear()
