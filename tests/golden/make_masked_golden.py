#!/usr/bin/env python3
"""Makes masked_samples.txt: the maps and samples of BERT's training, as Megatron draws them.

    python3 tests/golden/make_masked_golden.py [folder]

The rules of src/data/masked.h and src/data/indexed/indexed.h said again, with NumPy's RandomState
for the draws of a sample and a 64-bit twister of its own for the shuffle. A corpus is a function of
its number, which the test computes too (see `corpus`). Lines:

    twister SEED COUNT : the COUNT-th word
    map CORPUS TOKENS SHORT SAMPLES LEAST SEED : rows crc
    sample CORPUS TOKENS SHORT SAMPLES PAIRS SEED MASK NUMBER : tokens types targets count random

TOKENS is the sequence length, CRCs are of the little-endian bytes; a sample's arrays are written out
where they are short, and as CRCs otherwise.
"""
import os
import random
import sys
import zlib

import numpy as np

folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))

PAD, CLS, SEP, MASK = 0, 2, 3, 4  # lines of the vocabulary: [PAD] [UNK] [CLS] [SEP] [MASK] w5 ##w6 ...
VOCAB = 200


def is_inside(token):
    """Every third token of the vocabulary goes on a word."""
    return token > 4 and token % 3 == 0


class Twister64:
    def __init__(self, seed):
        self.mask = 2**64 - 1
        self.words = [seed & self.mask]
        for i in range(1, 312):
            last = self.words[-1]
            self.words.append((6364136223846793005 * (last ^ (last >> 62)) + i) & self.mask)
        self.at = 312

    def __call__(self):
        if self.at == 312:
            for i in range(312):
                x = (self.words[i] & 0xFFFFFFFF80000000) | (self.words[(i + 1) % 312] & 0x7FFFFFFF)
                self.words[i] = self.words[(i + 156) % 312] ^ (x >> 1) ^ (0xB5026F5AA96619E9 * (x & 1))
            self.at = 0
        x = self.words[self.at]
        self.at += 1
        x ^= (x >> 29) & 0x5555555555555555
        x ^= (x << 17) & 0x71D67FFFEDA60000
        x ^= (x << 37) & 0xFFF7EEE000000000
        return x ^ (x >> 43)


def corpus(number):
    """Documents of sentences of tokens, by a generator that a few lines of C say too."""
    state = [number + 1]

    def draw(n):
        state[0] = (state[0] * 1664525 + 1013904223) % 2**32
        return (state[0] >> 8) % n

    documents = []
    for _ in range(3 + number * 7):
        document = []
        for _ in range(draw(9)):
            length = 600 if draw(40) == 0 else 1 + draw(1 + (number % 4) * 12)
            document.append([5 + draw(VOCAB - 5) for _ in range(length)])
        documents.append(document)
    return documents


def make_map(documents, tokens, short, samples, least, seed):
    words = np.random.RandomState(seed)
    ratio = int(np.floor(1 / short + 0.5)) if short > 0 else 0

    def draw_length():
        if ratio == 0:
            return tokens - 3
        word = int(words.randint(0, 2**32, dtype=np.uint32))
        return 2 + word % (tokens - 4) if word % ratio == 0 else tokens - 3

    rows, first = [], True
    while first or 0 < len(rows) < samples:
        first, begin = False, 0
        for document in documents:
            sizes = [len(sentence) for sentence in document]
            end, start = begin + len(sizes), begin
            if len(sizes) >= least and not (len(sizes) > 1 and max(sizes) > 512):
                target, have = draw_length(), 0
                for i in range(begin, end):
                    have += sizes[i - begin]
                    left = end - 1 - i
                    if left == 0 or (have >= target and left >= 2 and i + 1 - start >= least):
                        rows.append((start, i + 1, target))
                        target, have, start = draw_length(), 0, i + 1
            begin = end
    twister = Twister64(seed + 1)
    for i in reversed(range(1, len(rows))):
        j = twister() % (i + 1)
        rows[i], rows[j] = rows[j], rows[i]
    return rows


def make_sample(sentences, target, tokens, pairs, probability, seed):
    state = np.random.RandomState(seed % 2**32)
    pivot, swap = len(sentences), False
    if pairs:
        pivot = state.randint(1, len(sentences)) if len(sentences) >= 3 else 1
        swap = state.random_sample() < 0.5
    texts = [[t for s in sentences[:pivot] for t in s], [t for s in sentences[pivot:] for t in s]]
    if swap:
        texts.reverse()
    while len(texts[0]) + len(texts[1]) > target:
        text = texts[0] if len(texts[0]) > len(texts[1]) else texts[1]
        text.pop(0 if state.random_sample() < 0.5 else -1)
    line = [CLS] + texts[0] + [SEP]
    types = [0] * len(line)
    if texts[1]:
        line += texts[1] + [SEP]
        types += [1] * (len(line) - len(types))
    words = []
    for i, token in enumerate(line):
        if token in (CLS, SEP):
            continue
        if is_inside(token) and words:
            words[-1].append(i)
        else:
            words.append([i])
    most = min(probability * target, max(1, int(round(len(line) * probability))))
    share = np.array([1.0, 1.0, 1.0]) / np.arange(1, 4)
    share = share / share.sum()
    order = list(range(len(words)))
    state.shuffle(order)
    hidden, shown = {}, list(line)
    for word in order:
        if len(hidden) >= most:
            break
        n = state.choice(np.arange(1, 4), p=share / share.sum())
        run = None
        for m in range(n, 0, -1):
            run = [i for w in words[word:word + m] for i in w]
            if len(hidden) + len(run) <= most:
                break
            run = None
        if run is None or any(i in hidden for i in run):
            continue
        for i in run:
            hidden[i] = line[i]
            if state.random_sample() < 0.8:
                shown[i] = MASK
            elif state.random_sample() >= 0.5:
                shown[i] = state.randint(0, VOCAB)
    pad = tokens - len(line)
    targets = [hidden.get(i, -1) for i in range(tokens)]
    return shown + [PAD] * pad, types + [0] * pad, targets, len(line), int(swap)


def show(numbers):
    if len(numbers) <= 24:
        return ",".join(map(str, numbers))
    return "crc%u" % zlib.crc32(np.array(numbers, "<i4").tobytes())


def lines():
    pick = random.Random(20190711)
    for seed, count in [(5489, 1), (5489, 10000), (2, 313), (2**63, 5)]:
        twister = Twister64(seed)
        for _ in range(count):
            word = twister()
        yield "twister %d %d : %d" % (seed, count, word)
    for number in range(1, 9):
        documents = corpus(number)
        flat = [sentence for document in documents for sentence in document]
        for _ in range(6):
            tokens = pick.choice((5, 8, 16, 24, 64, 128, 512))
            short = pick.choice((0.1, 0.1, 0.5, 1.0, 0.03, 0))
            samples = pick.choice((0, 1, pick.randrange(1, 400)))
            pairs, seed = pick.randrange(2), pick.randrange(1, 2**31)
            rows = make_map(documents, tokens, short, samples, 1 + pairs, seed)
            if not rows:
                continue
            case = "%d %d %r %d %d %d" % (number, tokens, short, samples, 1 + pairs, seed)
            yield "map %s : %d %u" % (case, len(rows), zlib.crc32(np.array(rows, "<u4").tobytes()))
            for _ in range(5):
                k = pick.randrange(len(rows))
                mask = pick.choice((0.15, 0.15, 0.3, 0.02, 0.9))
                first, end, target = rows[k]
                sample = make_sample(flat[first:end], target, tokens, pairs, mask, seed + k)
                yield "sample %s %r %d : %s %s %s %d %d" % (
                    case, mask, k, show(sample[0]), show(sample[1]), show(sample[2]), sample[3],
                    sample[4])


with open(os.path.join(folder, "masked_samples.txt"), "w") as out:
    for line in lines():
        out.write(line + "\n")
