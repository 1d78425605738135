#!/usr/bin/env python3
"""Makes the golden files of the tokenizers beside this script, with the packages `tokenizers`, `sentencepiece` and
`tiktoken`: tokenizer_stages.json (each normalizer and pre-tokenizer), tokenizer_models.json (models, post-processors,
decoders), tokenizer_*.model and tokenizer_ranks.tiktoken with their ids in tokenizer_files.json. Characters that a
Unicode later than 8 assigned are left out: the packages' own tables differ in them. Written with tokenizers 0.23.3,
sentencepiece 0.2.3, tiktoken 0.14.0."""
import base64, json, os, random, tempfile
import sentencepiece, tiktoken, tokenizers
from tokenizers import (AddedToken, Regex, Tokenizer, decoders as D, models as M, normalizers as N,
                        pre_tokenizers as P, processors as R, trainers as T)

here = os.path.dirname(os.path.abspath(__file__))
random.seed(1)
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")

TEXTS = [
    "Hello, world! It's 1234567 o'clock; we'LL see.", "  two  spaces\t\ttabs \n\n new\r\nlines   ", "a", " ", "\n", "",
    "x\n\n\ny \n z", "don't DON'T 'tis '\u017f 're'", "e\u0301 \u00e9 a\u0308\u0323 \u1e69 s\u0323\u0307 A\u030a \u212b",
    "\ufb01n \u2167 \u338f \u00bd \u2460 \uff21\uff42 \u00a0nbsp\u3000wide\u2003em", "\u4f60\u597d\u4e16\u754c\u3002\u65e5\u672c\u8a9e\u304c\u30ab\u309a",
    "\u0627\u0644\u0639\u064e\u0631\u064e\u0628\u0650\u064a\u0651\u0629 \u0661\u0662\u0663", "\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\ud55c\uad6d\uc5b4 \u1112\u1161\u11ab", "\u0130stanbul I\u0131 \u00df \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2 \u01c5", "\U0001f642\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "zero\u200bwidth\u200cjoin\u200der \ufeffbom soft\u00adhyphen", "ctl\u0001\u0007\u007f\u0085\u2028line \u000b\u000c", "punct!?.,:;-_()[]{}<>@#$%^&*+=|~`\"\\/",
    "\u00bfqu\u00e9? \u00a1s\u00ed! \u2014 \u2026 \u201cq\u201d \u300c\u65e5\u300d \u3001", "under_score snake_case x2y 3.14 1,000 \u2075 \u0967\u0968", "\u2581meta\u2581 \u2581 space",
    "[MASK] <s>text</s> a[MASK]b  [MASK]  <s>", "\u1680ogham\u202fnnbsp\u205fmmsp", "\ufffd repl", "tab\tsep,comma,comma",
]
TEXTS += ["".join(random.choice(" ab'sD1\n\t.\u00e9\u4e2d") for _ in range(40)) for _ in range(6)]


def text_of(count):
    words = ["the", "quick", "brown", "fox", "na\u00efve", "\u00fcber", "\u043f\u0440\u0438\u0432\u0435\u0442", "\u043c\u0438\u0440", "\u4f60\u597d", "\u4e16\u754c", "hello", "hell", "world",
             "token", "tokens", "tokenizer", "'s", "12", "2024", "\u0645\u0631\u062d\u0628\u0627", "\u03bb\u03cc\u03b3\u03bf\u03c2", ".", ",", "!\n", "\n\n", "(x)", "low", "lower", "lowest"]
    return [" ".join(random.choices(words, k=12)) for _ in range(count)]


def stages():
    norms = [None, N.NFC(), N.NFD(), N.NFKC(), N.NFKD(), N.Lowercase(), N.StripAccents(), N.Strip(), N.Strip(right=False),
             N.Prepend("\u2581"), N.Replace(" ", "_"), N.Replace(Regex(r"\s+"), " "), N.Replace(Regex("x*"), "-"), N.Nmt(), N.BertNormalizer(),
             N.BertNormalizer(lowercase=False), N.BertNormalizer(clean_text=False, strip_accents=False), N.ByteLevel(),
             N.Sequence([N.NFD(), N.Lowercase(), N.StripAccents()])]
    split = [Regex(r"\s"), Regex(r"\d+"), Regex(r"\w+|[^\w\s]"), " ", "a"]
    behaviors = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]
    pres = [P.ByteLevel(add_prefix_space=True), P.ByteLevel(add_prefix_space=False), P.ByteLevel(use_regex=False),
            P.Whitespace(), P.WhitespaceSplit(), P.BertPreTokenizer(), P.Punctuation(), P.Digits(), P.Digits(individual_digits=True),
            P.CharDelimiterSplit(","), P.FixedLength(3), P.Metaspace(), P.Metaspace(prepend_scheme="first"),
            P.Metaspace(prepend_scheme="never"), P.Metaspace(split=False), P.Sequence([P.WhitespaceSplit(), P.Punctuation()]),
            P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=True), P.Digits()]),
            P.Split(Regex(LLAMA3), "isolated"), P.Split(Regex(QWEN2), "removed", invert=True)]
    pres += [P.Punctuation(b) for b in behaviors] + [P.Split(s, b) for s in split for b in behaviors]
    pres += [P.Split(Regex(r"[a-z]+"), b, invert=True) for b in behaviors]
    cases = [(n, None) for n in norms] + [(None, p) for p in pres] + [(N.Strip(), P.Metaspace(prepend_scheme="first"))]
    added = [AddedToken("[MASK]", lstrip=True, normalized=False), AddedToken("<s>", special=True), AddedToken("de", single_word=True),
             AddedToken("</s>", rstrip=True, normalized=False), AddedToken("TAB", normalized=True)]

    def parts(n, p, text):  # what a stage makes of the text, without added tokens
        text = n.normalize_str(text) if n else text
        return [x for x, _ in p.pre_tokenize_str(text)] if p else [text]
    chars = sorted({c for n, p in cases for t in TEXTS for x in parts(n, p, t) for c in x} | set("abcdefghijklmnopqrstuvwxyz"))
    vocab = {"<unk>": 0}
    for c in chars:  # what begins a word has another number than what goes on
        vocab[c] = len(vocab)
        vocab["##" + c] = len(vocab)
    out = []
    for n, p in cases:
        t = Tokenizer(M.BPE(vocab=vocab, merges=[], unk_token="<unk>", continuing_subword_prefix="##"))
        if n: t.normalizer = n
        if p: t.pre_tokenizer = p
        t.add_tokens(added)
        j = json.loads(t.to_str())
        out.append({"normalizer": j["normalizer"], "pre_tokenizer": j["pre_tokenizer"],
                    "ids": [t.encode(x, add_special_tokens=False).ids for x in TEXTS]})
    t = Tokenizer(M.BPE(vocab=vocab, merges=[], unk_token="<unk>", continuing_subword_prefix="##"))
    t.add_tokens(added)
    j = json.loads(t.to_str())
    return {"model": j["model"], "added_tokens": j["added_tokens"], "texts": TEXTS, "cases": out}


def trained(model, trainer, normalizer=None, pre=None, decoder=None):
    t = Tokenizer(model)
    if normalizer: t.normalizer = normalizer
    if pre: t.pre_tokenizer = pre
    if decoder: t.decoder = decoder
    t.train_from_iterator(text_of(400), trainer)
    return t


def models():
    byte = dict(vocab_size=400, initial_alphabet=P.ByteLevel.alphabet(), show_progress=False)
    level = lambda pattern: P.Sequence([P.Split(Regex(pattern), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)])
    bos = R.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    made = {
        "gpt2": trained(M.BPE(), T.BpeTrainer(special_tokens=["<|endoftext|>"], **byte), None, P.ByteLevel(add_prefix_space=False), D.ByteLevel()),
        "llama3": trained(M.BPE(ignore_merges=True), T.BpeTrainer(special_tokens=["<s>", "</s>"], **byte), None, level(LLAMA3), D.ByteLevel()),
        "qwen2": trained(M.BPE(), T.BpeTrainer(special_tokens=["<|endoftext|>"], **byte), N.NFC(), level(QWEN2), D.ByteLevel()),
        "bert": trained(M.WordPiece(unk_token="[UNK]"), T.WordPieceTrainer(vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False),
                        N.BertNormalizer(), P.BertPreTokenizer(), D.WordPiece()),
        "unigram": trained(M.Unigram(), T.UnigramTrainer(vocab_size=200, special_tokens=["<unk>", "<s>"], unk_token="<unk>", show_progress=False),
                           N.NFKC(), P.Metaspace(), D.Metaspace()),
        "wordlevel": trained(M.WordLevel(unk_token="[UNK]"), T.WordLevelTrainer(special_tokens=["[UNK]"], show_progress=False), N.Lowercase(), P.Whitespace()),
        "suffix": trained(M.BPE(unk_token="<unk>", end_of_word_suffix="</w>", fuse_unk=True), T.BpeTrainer(vocab_size=200, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False),
                          N.NFKD(), P.WhitespaceSplit(), D.BPEDecoder()),
    }
    fallback = trained(M.BPE(unk_token="<unk>"), T.BpeTrainer(vocab_size=450, special_tokens=["<unk>", "<s>", "</s>"] + ["<0x%02X>" % b for b in range(256)], show_progress=False, limit_alphabet=60), None, P.Metaspace())
    j = json.loads(fallback.to_str())
    like = Tokenizer(M.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    like.normalizer = N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")])
    like.decoder = D.Sequence([D.Replace("\u2581", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)])
    k = json.loads(like.to_str())
    k["model"]["vocab"], k["model"]["merges"] = j["model"]["vocab"], j["model"]["merges"]
    k["added_tokens"] = [a for a in j["added_tokens"] if a["id"] < 3]
    made["llama2"] = Tokenizer.from_str(json.dumps(k))
    made["bert"].post_processor = R.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made["llama3"].post_processor = R.Sequence([R.ByteLevel(), bos])
    texts = TEXTS + text_of(6) + ["lowlowlowlowerlowesttokenizer" * 12, "\u4f60\u597d" * 60]
    out = []
    for name, t in made.items():
        t = Tokenizer.from_str(t.to_str())  # as a file is read
        enc = [t.encode(x, add_special_tokens=False).ids for x in texts]
        out.append({"name": name, "tokenizer": json.loads(t.to_str()), "ids": enc,
                    "post": [t.encode(x).ids for x in texts[:3]], "decoded": [t.decode(i, skip_special_tokens=False) for i in enc]})
    return {"texts": texts, "models": out}


def files():
    texts = TEXTS + text_of(6) + ["  a  b  ", "foo bar<mask>foo barx"]
    out = {"texts": texts, "files": {}}
    with tempfile.TemporaryDirectory() as d:
        open(d + "/rules.tsv", "w").write("41\t61\n42\t62\nFB01\t66 69\n66 66\t46\n3000\t20\nA0\t20\n9\t20\nA\t20\n")
        open(d + "/text", "w").write("\n".join(x.replace("\n", " ") for x in text_of(600)))
        for kind, size in (("unigram", 180), ("bpe", 520)):
            spec = dict(input=d + "/text", model_prefix=d + "/m", vocab_size=size, model_type=kind, minloglevel=2, hard_vocab_limit=False,
                        normalization_rule_tsv=d + "/rules.tsv", byte_fallback=kind == "bpe", user_defined_symbols=["<mask>", "foo bar"])
            sentencepiece.SentencePieceTrainer.train(**spec)
            data = open(d + "/m.model", "rb").read()
            open(f"{here}/tokenizer_{kind}.model", "wb").write(data)
            sp = sentencepiece.SentencePieceProcessor(model_proto=data)
            out["files"][f"tokenizer_{kind}.model"] = [sp.encode(x) for x in texts]
    ranks = [bytes([b]) for b in range(256)]
    for w in ("he", "ll", "hell", "hello", " h", " hell", "wo", "rl", "aa", "aaa", "aaaa", "\u4f60", "\u597d", "\u4f60\u597d", "in", "ing", "12", "123"):
        ranks.append(w.encode())
    with open(f"{here}/tokenizer_ranks.tiktoken", "wb") as f:
        f.writelines(base64.b64encode(r) + b" %d\n" % i for i, r in enumerate(ranks))
    e = tiktoken.Encoding("x", pat_str=LLAMA3, mergeable_ranks={r: i for i, r in enumerate(ranks)}, special_tokens={})
    out["files"]["tokenizer_ranks.tiktoken"] = [e.encode(x + " aaaaaaa") for x in texts]
    return out


for name, value in (("stages", stages()), ("models", models()), ("files", files())):
    with open(f"{here}/tokenizer_{name}.json", "w") as f:
        json.dump(value, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")
