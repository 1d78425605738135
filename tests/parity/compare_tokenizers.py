#!/usr/bin/env python3
"""Compares `shoal tokenizer` with the packages tokenizers, sentencepiece and tiktoken on a long multilingual text: ids, and
the vocabulary and merges that training learns. Usage: compare_tokenizers.py SHOAL [MEGABYTES]   (default 1; with
SHOAL_TEST_FULL=1: 10). Exit 77: the packages are not there."""
import base64, glob, json, os, random, subprocess, sys, tempfile
try:
    import sentencepiece, tiktoken
    from tokenizers import Regex, Tokenizer, decoders as D, models as M, normalizers as N, pre_tokenizers as P, trainers as T
except ImportError as missing:
    print(f"skipped: the Python packages tokenizers, sentencepiece and tiktoken are not all there ({missing})")
    sys.exit(77)

shoal = sys.argv[1]
megabytes = float(sys.argv[2]) if len(sys.argv) > 2 else 10 if os.environ.get("SHOAL_TEST_FULL") else 1
seed = int(os.environ.get("SHOAL_TEST_SEED") or random.randrange(1 << 30))
random.seed(seed)
print(f"SHOAL_TEST_SEED={seed}")
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


def span(*ranges):
    letters = [chr(c) for a, b in ranges for c in range(a, b + 1)]
    return "".join(random.sample(letters, min(len(letters), 200)))


ALPHABETS = [(span((0x61, 0x7a)), " ")] * 4 + [
    (span((0x430, 0x44f)), " "), (span((0x3b1, 0x3c9)), " "), (span((0x627, 0x63a), (0x641, 0x64a)), " "), (span((0x5d0, 0x5ea)), " "),
    (span((0x905, 0x914), (0x915, 0x939), (0x93e, 0x94d)), " "), (span((0xe01, 0xe30), (0xe32, 0xe33), (0xe40, 0xe46)), ""),
    (span((0x4e00, 0x9fa5)), ""), (span((0x3041, 0x3093), (0x30a1, 0x30f3)), ""), (span((0xac00, 0xd7a3)), " "),
    (span((0x61, 0x7a), (0xe0, 0xf6), (0x1ea0, 0x1ef9)), " ")]
ENDS = [". ", "! ", "? ", ", ", "\u3002", "\n", "\n\n", " \u2014 ", ": ", "; ", " (x) ", "'s ", "'LL ", " 12345 ", " \u0661\u0662 ", " \u00bd ", "\t",
        "  ", "   \n", "\r\n", " \U0001f642 ", "e\u0301a\u0308 ", "\ufb01 \u2167 ", "\u00a0", "\u3000", "\u2009", "=" * 40, "def f(x):\n    return x\n"]


def sentences(bytes_wanted):
    vocabularies = []
    for letters, space in ALPHABETS:
        words = ["".join(random.choices(letters, k=random.choice([1, 2, 2, 3, 3, 4, 5, 6, 8, 11]))) for _ in range(1500)]
        vocabularies.append((words, [1 / (i + 1) for i in range(1500)], space))
    out, size = [], 0
    while size < bytes_wanted:
        words, weights, space = random.choice(vocabularies)
        chosen = random.choices(words, weights, k=random.randint(3, 30))
        line = space.join(w.capitalize() if random.random() < .1 else w for w in chosen) + random.choice(ENDS)
        out.append(line)
        size += len(line.encode())
    return "".join(out)


def level(pattern):
    return P.Sequence([P.Split(Regex(pattern), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)])


def make(model, trainer, files, **parts):
    t = Tokenizer(model)
    for name, value in parts.items():
        setattr(t, name, value)
    t.train(files, trainer)
    return t


failed = 0


def compare(name, want, path, file, *flags):
    global failed
    run = subprocess.run([shoal, "tokenizer", "encode", path, file, *flags], capture_output=True)
    lines = run.stdout.split(b"\n")[:-1] if "--lines" in flags else [run.stdout]
    got = [[int(x) for x in line.split()] for line in lines]
    same = run.returncode == 0 and got == want
    failed += not same
    speed = subprocess.run([shoal, "tokenizer", "encode", path, file, "--count"], capture_output=True).stdout.decode().strip()
    print(f"{name}: {'equal' if same else 'DIFFERENT ' + run.stderr.decode().strip()}; {speed}")


with tempfile.TemporaryDirectory() as d:
    text, small = d + "/text", d + "/small"
    body = sentences(megabytes * 1e6)
    open(text, "w", newline="").write(body)
    open(small, "w", newline="").write(body[:200000])
    byte = dict(initial_alphabet=P.ByteLevel.alphabet(), show_progress=False)
    plain = dict(vocab_size=3000, show_progress=False)
    kinds = {
        "gpt2": lambda: make(M.BPE(), T.BpeTrainer(vocab_size=3000, special_tokens=["<|endoftext|>"], **byte), [small], pre_tokenizer=P.ByteLevel(add_prefix_space=False)),
        "llama3": lambda: make(M.BPE(ignore_merges=True), T.BpeTrainer(vocab_size=3000, **byte), [small], pre_tokenizer=level(LLAMA3)),
        "qwen2": lambda: make(M.BPE(), T.BpeTrainer(vocab_size=3000, **byte), [small], normalizer=N.NFC(), pre_tokenizer=level(LLAMA3.replace("{1,3}", ""))),
        "bert": lambda: make(M.WordPiece(unk_token="[UNK]"), T.WordPieceTrainer(special_tokens=["[UNK]"], **plain), [small], normalizer=N.BertNormalizer(), pre_tokenizer=P.BertPreTokenizer()),
        "unigram": lambda: make(M.Unigram(), T.UnigramTrainer(special_tokens=["<unk>"], unk_token="<unk>", **plain), [small], normalizer=N.NFKC(), pre_tokenizer=P.Metaspace()),
        "suffix": lambda: make(M.BPE(unk_token="<unk>", end_of_word_suffix="</w>"), T.BpeTrainer(special_tokens=["<unk>"], end_of_word_suffix="</w>", **plain), [small], normalizer=N.NFKD(),
                               pre_tokenizer=P.Sequence([P.WhitespaceSplit(), P.Punctuation(), P.Digits(individual_digits=True)])),
    }
    for name, build in kinds.items():
        build().save(f"{d}/{name}.json")
        t = Tokenizer.from_file(f"{d}/{name}.json")
        compare(name, [t.encode(body, add_special_tokens=False).ids], f"{d}/{name}.json", text)
    # the same training
    subprocess.run([shoal, "tokenizer", "train", small, "--vocab-size", "3000", "--output", d + "/mine.json"], check=True, capture_output=True)
    mine, theirs = (json.load(open(f"{d}/{n}.json"))["model"] for n in ("mine", "gpt2"))
    same = mine["vocab"] == theirs["vocab"] and mine["merges"] == theirs["merges"]
    failed += not same
    print("training:", "equal" if same else "DIFFERENT")
    t = Tokenizer.from_file(d + "/mine.json")  # and the package reads what we wrote
    compare("trained here", [t.encode(body, add_special_tokens=False).ids], d + "/mine.json", text)
    lines = body.replace("\r", " ").split("\n")  # SentencePiece adds floats: over megabytes in one sentence they lose their meaning
    open(d + "/lines", "w", newline="").write("".join(x + "\n" for x in lines))
    for kind, fallback in (("unigram", False), ("bpe", True), ("unigram", True), ("bpe", False)):
        sentencepiece.SentencePieceTrainer.train(input=small, model_prefix=d + "/sp", vocab_size=6000, hard_vocab_limit=False, model_type=kind, byte_fallback=fallback,
                                                 character_coverage=0.98, user_defined_symbols=["<mask>", "foo bar"], minloglevel=2, max_sentence_length=100000)
        sp = sentencepiece.SentencePieceProcessor(model_file=d + "/sp.model")
        compare(f"sentencepiece {kind}{' with bytes' * fallback}", [sp.encode(x) for x in lines], d + "/sp.model", d + "/lines", "--lines")
    ranks = [bytes([b]) for b in range(256)] + sorted({body[i:i + n].encode() for n in (2, 3, 4) for i in range(0, 60000, 7)}, key=lambda x: (len(x), x))
    open(d + "/ranks.tiktoken", "wb").writelines(base64.b64encode(r) + b" %d\n" % i for i, r in enumerate(ranks))
    e = tiktoken.Encoding("x", pat_str=LLAMA3, mergeable_ranks={r: i for i, r in enumerate(ranks)}, special_tokens={})
    compare("tiktoken", [e.encode(body)], d + "/ranks.tiktoken", text)
sys.exit(1 if failed else 0)
