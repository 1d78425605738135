"""Rows of the table, and the table of a document that has a column for each machine."""
import os
import statistics

HEADER = ["what", "peer"]
NOT_YET = "not yet run"


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


class Rows:
    def __init__(self):
        self.rows, self.skipped = [], []

    def add(self, what, unit, peer, ours, theirs):
        self.rows.append((f"{what}, {unit}", peer, f"{spread(ours)} : {spread(theirs)} = {theirs[0] / ours[0]:.2f}"))

    def skip(self, what, why):
        if (what, why) not in self.skipped:
            self.skipped.append((what, why))

    def markdown(self, column):
        lines = [f"| what | peer | {column}: Shoal : peer = times faster |", "|---|---|---|"]
        lines += [f"| {what} | {peer} | {cell} |" for what, peer, cell in self.rows]
        lines += ["", *(f"Skipped: {what}: {why}." for what, why in self.skipped)] if self.skipped else []
        return "\n".join(lines)

    def update(self, path, column):
        """Replaces this machine's cells of the rows that were measured; new rows go to the end, a new column to the right."""
        with open(path) as file:
            lines = file.read().split("\n")
        begin = next((i for i, line in enumerate(lines) if line.startswith("|") and cells(line)[:2] == HEADER), None)
        if begin is None:
            raise Wrong(f"{path} has no table that begins with | {' | '.join(HEADER)} |")
        end = begin + 2
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        header, old = cells(lines[begin]), [cells(line) for line in lines[begin + 2:end]]
        if column not in header:
            header.append(column)
            old = [row + [NOT_YET] for row in old]
        place = header.index(column)
        for what, peer, cell in self.rows:
            row = next((row for row in old if row[:2] == [what, peer]), None)
            if row is None:
                old.append([what, peer] + [NOT_YET] * (len(header) - 2))
                row = old[-1]
            row[place] = cell
        made = [header, ["---"] * len(header), *old]
        lines[begin:end] = ["| " + " | ".join(row) + " |" for row in made]
        lines[begin + 1] = "|" + "---|" * len(header)
        with open(path + ".new", "w") as file:
            file.write("\n".join(lines))
        os.replace(path + ".new", path)
