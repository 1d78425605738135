#!/usr/bin/env python3
"""Writes sections of a CPU's file in benchmarks/results. benchmarks/run and benchmarks/peers/run write by it.

Usage: benchmarks/results.py TITLE [FILE] <TEXT
TEXT replaces the section "## TITLE". Other sections stay. FILE is made if it does not exist; default: the file of this CPU."""
import os
import sys

sys.dont_write_bytecode = True
import machine

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")


def path():
    return os.path.join(FOLDER, machine.slug() + ".md")


def read(file):
    """The text of a file of results; of a file that does not exist, its first lines."""
    try:
        with open(file) as opened:
            return opened.read()
    except FileNotFoundError:
        return (f"# {machine.title()}: lab notes\n\n"
                "For contributors: what did this CPU measure, and with which command?\n")


def find(lines, title):
    """(first line, line after the last) of a section; the end twice if there is no such section."""
    if f"## {title}" not in lines:
        return len(lines), len(lines)
    first = lines.index(f"## {title}")
    return first, next((i for i in range(first + 1, len(lines)) if lines[i].startswith("## ")), len(lines))


def section(file, title):
    """The lines of a section without its heading."""
    lines = read(file).split("\n")
    first, end = find(lines, title)
    return lines[first + 1:end]


def replace(file, title, text):
    lines = read(file).rstrip("\n").split("\n")
    first, end = find(lines, title)
    before = "\n".join(lines[:first]).rstrip("\n")
    after = "\n".join(lines[end:])
    with open(file + ".new", "w") as made:
        made.write("\n\n".join(filter(None, (before, f"## {title}", text.strip("\n"), after))) + "\n")
    os.replace(file + ".new", file)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    target = sys.argv[2] if len(sys.argv) == 3 else path()
    replace(target, sys.argv[1], sys.stdin.read())
    print(f"written: {os.path.relpath(target)}, section {sys.argv[1]}", file=sys.stderr)
