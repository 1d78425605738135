"""The table of peers: its rows, and the section "Peers" of a file of results."""
import os
import statistics
import sys

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import results

SECTION = "Peers"
HEADER = ["what", "peer", "Shoal", "the peer", "times faster"]


class Wrong(Exception):
    pass


def digits(value):
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def spread(values):
    """(median, least, greatest) as text."""
    median, least, greatest = values
    return f"{digits(median)} ({digits(least)}-{digits(greatest)})"


def summary(samples):
    return statistics.median(samples), min(samples), max(samples)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def lines_of(rows):
    return ["| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|", *("| " + " | ".join(row) + " |" for row in rows)]


class Rows:
    def __init__(self):
        self.rows, self.skipped = [], []

    def add(self, what, unit, peer, ours, theirs):
        self.rows.append([f"{what}, {unit}", peer, spread(ours), spread(theirs), f"{theirs[0] / ours[0]:.2f}"])

    def skip(self, what, why):
        if (what, why) not in self.skipped:
            self.skipped.append((what, why))

    def markdown(self):
        skipped = [f"Skipped: {what}: {why}." for what, why in self.skipped]
        return "\n".join([*lines_of(self.rows), *([""] if skipped else []), *skipped])

    def update(self, path, told):
        """Replaces the rows of a file's section that were measured. Other rows stay, new rows go to the end. `told` describes this run."""
        old = [cells(line) for line in results.section(path, SECTION) if line.startswith("|")]
        if old and old[0] != HEADER:
            raise Wrong(f"{path}: the table of section {SECTION} does not begin with | {' | '.join(HEADER)} |")
        old = old[2:]
        for made in self.rows:
            place = next((i for i, row in enumerate(old) if row[:2] == made[:2]), len(old))
            old[place:place + 1] = [made]
        results.replace(path, SECTION, "\n".join(["Last update. " + told, "", *lines_of(old)]))
