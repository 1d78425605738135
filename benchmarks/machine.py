"""Names and describes the CPU of this machine."""
import os
import platform
import re

# vendor, family, models, the name that people use; the first row that fits holds
KNOWN = (
    ("AuthenticAMD", 25, (*range(0x10, 0x20), *range(0x60, 0xB0)), "Zen 4"),
    ("AuthenticAMD", 25, range(256), "Zen 3"),
    ("AuthenticAMD", 26, range(256), "Zen 5"),
    ("GenuineIntel", 6, (0x8F,), "Sapphire Rapids"),
    ("GenuineIntel", 6, (0xCF,), "Emerald Rapids"),
    ("GenuineIntel", 6, (0xAD, 0xAE), "Granite Rapids"),
    ("GenuineIntel", 6, (0x6A, 0x6C), "Ice Lake"),
)


def cpuinfo():
    with open("/proc/cpuinfo") as file:
        first = file.read().split("\n\n")[0]
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}


def number(cpu, key):
    return int(cpu.get(key, "-1"))


def name():
    cpu = cpuinfo()
    for vendor, family, models, known in KNOWN:
        if cpu.get("vendor_id") == vendor and number(cpu, "cpu family") == family and number(cpu, "model") in models:
            return known
    return cpu.get("model name", platform.machine())


def title():
    """The name, and AMX if the CPU has it: CPUs of one generation with and without AMX are two machines."""
    return name() + (" with AMX" if "amx_bf16" in cpuinfo().get("flags", "").split() else "")


def slug():
    """The name of this CPU's file in benchmarks/results, without .md."""
    return re.sub(r"[^a-z0-9]+", "-", title().lower().replace(" with ", " ")).strip("-")


def describe():
    """One line: CPU, features that matter here, cores, memory, kernel, load."""
    cpu = cpuinfo()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    features = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in cpu.get("flags", "").split()]
    return (f"{cpu.get('model name', platform.machine())} ({name()}, family {number(cpu, 'cpu family')} model {number(cpu, 'model')}; "
            f"{', '.join(features) or 'no vector features'}), {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB, Linux "
            f"{platform.release()}; load {os.getloadavg()[0]:.1f}")
