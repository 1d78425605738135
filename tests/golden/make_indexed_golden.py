#!/usr/bin/env python3
"""Makes indexed_order.txt and indexed_sample.{bin,idx}: Megatron's order of samples, and its files.

    python3 tests/golden/make_indexed_golden.py [folder]

The rules of src/data/indexed/indexed.h said again, with NumPy's own generator and shuffle. A line is
a case and its result; arrays are given as the CRC-32 of their little-endian bytes:

    gpt N S SEED KEEP PLAIN FIRST COUNT length... : epochs separate samples leading crc crc crc
    blend SIZE COUNT weight... : crc crc
    exhaust COUNT size... : crc crc
    permute SEED COUNT : crc
    split TEXT COUNT : cut cut cut cut
    npy KIND WIDTH ROWS COLUMNS : hex of the header
"""
import io
import os
import random
import re
import struct
import sys
import zlib

import numpy as np

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))


def crc(array):
    return zlib.crc32(np.ascontiguousarray(array).tobytes())


def gpt(n, s, seed, keep, plain, first, lengths):
    extra = 0 if plain else 1
    tokens, epochs = sum(lengths), 1
    while n > 0 and epochs * tokens < n * s + extra:
        epochs += 1
    separate, sans = False, None
    if epochs > 1:
        sans = ((epochs - 1) * tokens - extra) // s
        per_epoch = (tokens - extra) // s
        separate = n - sans < int(0.80 * per_epoch)
    state = np.random.RandomState(seed)
    ids = np.arange(first, first + len(lengths), dtype=np.int32)
    together = np.tile(ids, epochs - 1 if separate else epochs)
    state.shuffle(together)
    if separate:
        last = ids.copy()
        state.shuffle(last)
        together = np.concatenate((together, last))
    usable = epochs * tokens - extra
    count = usable // s
    if keep:
        count = int(np.ceil(np.float32(usable) / np.float32(s)))
    # one long stream of (place, offset); sample k begins at its token k * s
    pairs, starts, at = [(0, 0)], np.cumsum([0] + [lengths[d - first] for d in together]), 0
    for k in range(1, count + 1):
        end = k * s + extra  # one past the last token of sample k - 1
        if end > starts[-1]:
            place, offset = len(together) - 1, lengths[together[-1] - first] - extra
        else:
            while starts[at + 1] < end:
                at += 1
            place, offset = at, end - starts[at] - extra
        pairs.append((place, offset))
    leading = sans if separate else count
    head, tail = np.arange(leading, dtype=np.uint32), np.arange(leading, count, dtype=np.uint32)
    state.shuffle(head)
    if separate:
        state.shuffle(tail)
    shuffle = np.concatenate((head, tail))
    return "%d %d %d %d %u %u %u" % (epochs, separate, count, leading,
                                     crc(together.astype("<i4")), crc(np.array(pairs, "<i4")),
                                     crc(shuffle.astype("<u4")))


def blend(size, weights):
    weights = np.array(weights, np.float64)
    weights = (weights / np.sum(weights)).tolist()
    taken, dataset, number = [0] * len(weights), [], []
    for i in range(size):
        errors = [w * max(float(i), 1.0) - float(t) for w, t in zip(weights, taken)]
        k = errors.index(max(errors))
        dataset.append(k)
        number.append(taken[k])
        taken[k] += 1
    return "%u %u" % (crc(np.array(dataset, "<i2")), crc(np.array(number, "<i8")))


def exhaust(sizes):
    weights, taken, dataset, number = [s / float(sum(sizes)) for s in sizes], [0] * len(sizes), [], []
    for i in range(sum(sizes)):
        best, k = None, None
        for j, w in enumerate(weights):
            error = w * max(float(i), 1.0) - float(taken[j])
            if taken[j] < sizes[j] and (best is None or error > best):
                best, k = error, j
        dataset.append(k)
        number.append(taken[k])
        taken[k] += 1
    return "%u %u" % (crc(np.array(dataset, "<i2")), crc(np.array(number, "<i8")))


def permute(seed, count):
    words = np.random.MT19937()
    words._legacy_seeding(seed)
    order = list(range(count))
    for i in range(count - 1):
        j = i + int(words.random_raw()) % (count - i)
        order[i], order[j] = order[j], order[i]
    return "%u" % crc(np.array(order, "<i4"))


def split(text, count):
    numbers = [float(x) for x in re.findall(r"[.0-9]+", text)]
    numbers = np.array(numbers + [0.0] * (3 - len(numbers)), np.float64)
    shares = (numbers / np.sum(numbers)).tolist()
    cut, at = [0], 0.0
    for share in shares:
        at = at + share
        cut.append(int(round(at * float(count))))
    return " ".join(map(str, cut))


def npy(kind, width, rows, columns):
    shape = (rows,) if columns == 1 else (rows, columns)
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<%s%d" % (kind, width), "fortran_order": False, "shape": shape})
    return file.getvalue().hex()


def lines():
    pick = random.Random(20240229)
    five = [3, 5, 2, 4, 6]
    cases = [(n, 4, 1234, k, p, 0, five) for n in (0, 4, 7, 11) for k in (0, 1) for p in (0, 1)]
    for _ in range(60):
        lengths = [pick.choice((0, 1, 2, pick.randrange(200), pick.randrange(5000)))
                   for _ in range(pick.randrange(1, 300))]
        if sum(lengths) < 2:
            continue
        s = pick.choice((1, 7, 64, 129, 1024))
        n = pick.choice((0, 1, pick.randrange(1, 4 * (sum(lengths) // s + 2))))
        cases.append((n, s, pick.randrange(2**32), pick.randrange(2), pick.randrange(2),
                      pick.randrange(1000), lengths))
    for n, s, seed, keep, plain, first, lengths in cases:
        if sum(lengths) * (1 if n == 0 else 99) <= s:
            continue
        yield "gpt %d %d %d %d %d %d %d %s : %s" % (
            n, s, seed, keep, plain, first, len(lengths), " ".join(map(str, lengths)),
            gpt(n, s, seed, keep, plain, first, lengths))
    for size, weights in [(12, [.3, .5, .2]), (10, [.7, .3]), (1000, [1, 1, 1, 1])] + [
            (pick.randrange(1, 3000), [pick.random() + 1e-3 for _ in range(pick.randrange(1, k))])
            for k in (4, 9, 20, 140, 300)]:
        yield "blend %d %d %s : %s" % (size, len(weights), " ".join(map(repr, weights)),
                                       blend(size, weights))
    for k in (1, 2, 5, 17):
        sizes = [pick.randrange(1, 400) for _ in range(k)]
        yield "exhaust %d %s : %s" % (k, " ".join(map(str, sizes)), exhaust(sizes))
    for seed, count in [(0, 1), (0, 10), (1, 1000), (7, 4097)]:
        yield "permute %d %d : %s" % (seed, count, permute(seed, count))
    for text in ("969,30,1", "99,1,0", "1", "0.5,0.25,.25", "8/1/1", "90,10", "0,1,0"):
        for count in (1, 2, 3, 5, 10, 1000, 12345, 1000003):
            yield "split %s %d : %s" % (text, count, split(text, count))
    for kind, width, rows, columns in [("i", 4, 0, 1), ("u", 4, 9, 1), ("i", 8, 12345678, 1),
                                       ("i", 4, 10, 2), ("i", 2, 2**40, 1), ("u", 4, 10, 3)]:
        yield "npy %s %d %d %d : %s" % (kind, width, rows, columns, npy(kind, width, rows, columns))


def write_sample(prefix, code, dtype):
    """Documents of 2, 0 and 3 sequences; sequence q has q * 3 tokens, token t of it is q * 100 + t."""
    sequences = [np.arange(q * 3, dtype=dtype) + q * 100 for q in range(1, 6)]
    lengths = np.array([len(x) for x in sequences], "<i4")
    offsets = np.concatenate(([0], np.cumsum(lengths[:-1], dtype=np.int64) * dtype().itemsize))
    with open(prefix + ".bin", "wb") as file:
        for sequence in sequences:
            file.write(sequence.tobytes(order="C"))
    with open(prefix + ".idx", "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(sequences), 4))
        file.write(lengths.tobytes() + offsets.astype("<i8").tobytes())
        file.write(np.array([0, 2, 2, 5], "<i8").tobytes())


with open(os.path.join(folder, "indexed_order.txt"), "w") as out:
    for line in lines():
        out.write(line + "\n")
write_sample(os.path.join(folder, "indexed_sample"), 8, np.uint16)
write_sample(os.path.join(folder, "indexed_wide"), 4, np.int32)
