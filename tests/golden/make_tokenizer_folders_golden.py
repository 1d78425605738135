#!/usr/bin/env python3
"""Makes tokenizer_folders.json beside this script: folders with the files of slow tokenizers (a vocabulary, and
tokenizer_config.json, special_tokens_map.json or added_tokens.json beside it) and what AutoTokenizer of transformers makes of
texts with each of them. `parity.tokenizer` writes the folders and compares. Needs transformers, tokenizers, sentencepiece and
protobuf. Written with transformers 5.24.0, tokenizers 0.23.3, sentencepiece 0.2.3."""
import base64, json, os, random, re, sys, tempfile
import sentencepiece
from tokenizers import models as M, pre_tokenizers as P, trainers as T, Regex, Tokenizer
from transformers import AutoTokenizer

here = os.path.dirname(os.path.abspath(__file__))
random.seed(1)
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
WORDS = ["the", "quick", "brown", "fox", "hello", "world", "token", "tokens", "low", "lower", "lowest", "caf\u00e9", "r\u00e9sum\u00e9",
         "\u4f60\u597d", "\u4e16\u754c", "12", "2024", "The", "LOW", ".", ",", "!", "it's"]
TEXTS = ["hello world", " hello  world ", "The LOW caf\u00e9 r\u00e9sum\u00e9 \u4f60\u597d\u4e16\u754c 2024", "", "12<|im_end|>", "hello <|im_end|> world<|im_start|>low",
         "low</s>lower </s> lowest", "<s>hello<unk>world<pad>", "a<|endoftext|>b <|endoftext|> c", "x <one> y<one>z", "the <two>  low", "<three>hello a<three>b <three>",
         "The <Four> and <four> THE", "[CLS] hello [SEP] [MASK]low [PAD] [UNK]", "<mask> the<mask>low <mask>", "<extra_id_0> low<extra_id_1>lower <extra_id_2>",
         "it's 12,2024! \n\n  tokens\ttoken", "e\u0301 caf\u00e9 \u00c9COLE", "<pad> <five>low<five> lower", "<sep>hello<cls>",
         "low\u3000lower\u2009the\u0085\u00a0fox\u2028 \u000bhello\u200bworld", "12\r\n\r\n12\x01\x7f\U0001f642\u200d\ufe0f \u1112\u1161\u11ab", "lowest<mask2> <mask2>low<own>the<|own|>"]


def corpus(count):
    return [" ".join(random.choices(WORDS, k=12)) for _ in range(count)]


def byte_level(special, split):
    """vocab.json and merges.txt."""
    t = Tokenizer(M.BPE())
    t.pre_tokenizer = split
    t.train_from_iterator(corpus(300), T.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=P.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(t.to_str())["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    return {"vocab.json": json.dumps(model["vocab"], ensure_ascii=False, sort_keys=True), "merges.txt": "#version: 0.2\n" + "\n".join(merges) + "\n"}


def word_pieces(special):
    letters = sorted({c for w in WORDS for c in w} | set("abcdefghijklmnopqrstuvwxyzABCDEFTHLOW<>[]/|_0123456789\u00c9e\u0301"))
    lines = special + letters + ["##" + c for c in letters] + ["hello", "world", "the", "low", "##er", "##est", "caf\u00e9", "cafe", "resume", "token", "##s", "\u4f60\u597d", "12"]
    return {"vocab.txt": "\n".join(dict.fromkeys(lines)) + "\n"}


def pieces(kind, rules=None, **more):
    with tempfile.TemporaryDirectory() as d:
        open(d + "/text", "w").write("\n".join(corpus(400)))
        open(d + "/rules.tsv", "w").write(rules or "")
        more.update({"normalization_rule_tsv": d + "/rules.tsv"} if rules else {"normalization_rule_name": "identity"})
        sentencepiece.SentencePieceTrainer.train(input=d + "/text", model_prefix=d + "/m", model_type=kind, minloglevel=2, hard_vocab_limit=False, **more)
        return {"base64": base64.b64encode(open(d + "/m.model", "rb").read()).decode()}


def token(content, **flags):
    made = dict(content=content, lstrip=False, normalized=False, rstrip=False, single_word=False, special=True)
    made.update(flags)
    return made


def typed(content, **flags):
    made = token(content, **flags)
    del made["special"]
    return {"__type": "AddedToken", **made}


GPT2 = byte_level(["<|endoftext|>"], P.ByteLevel(add_prefix_space=False))
ROBERTA = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], P.ByteLevel(add_prefix_space=False))
QWEN = byte_level([], P.Sequence([P.Split(Regex(QWEN2), "isolated"), P.ByteLevel(add_prefix_space=False, use_regex=False)]))
BERT = word_pieces(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
SMALL = word_pieces(["[UNK]", "[CLS]", "[SEP]"])
OTHER = word_pieces(["<pad>", "<unk>", "<cls>", "<sep>", "<mask>"])
LLAMA = {"tokenizer.model": pieces("bpe", vocab_size=420, byte_fallback=True, remove_extra_whitespaces=False, allow_whitespace_only_pieces=True)}
GEMMA = {"tokenizer.model": pieces("bpe", vocab_size=420, byte_fallback=True, remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, add_dummy_prefix=False,
                                   pad_id=0, eos_id=1, bos_id=2, unk_id=3, bos_piece="<bos>", eos_piece="<eos>", control_symbols=["<mask>"])}
T5 = {"spiece.model": pieces("unigram", vocab_size=120, rules="9\t20\nA\t20\nD\t20\nA0\t20\n65 301\tE9\n", pad_id=0, eos_id=1, unk_id=2, bos_id=-1)}
def size_of(model):
    return sentencepiece.SentencePieceProcessor(model_proto=base64.b64decode(model["base64"])).get_piece_size()


def folders():
    g = len(json.loads(GPT2["vocab.json"]))
    q = len(json.loads(QWEN["vocab.json"]))
    b = len(BERT["vocab.txt"].split("\n")) - 1
    l = size_of(LLAMA["tokenizer.model"])
    t = size_of(T5["spiece.model"])
    many = {str(g): token("<|im_end|>"), str(g + 1): token("<one>", lstrip=True), str(g + 2): token("<two>", rstrip=True, special=False),
            str(g + 3): token("<three>", single_word=True, normalized=True, special=False), "0": token("<|endoftext|>")}
    config = lambda cls, **keys: dict(tokenizer_class=cls, **keys)
    added = lambda start: {str(start): token("<|im_end|>"), str(start + 1): token("<one>", lstrip=True, rstrip=True), str(start + 2): token("<two>", special=False, normalized=True)}
    extra = {str(t + 2 - i): token(f"<extra_id_{i}>", lstrip=True, rstrip=True) for i in range(3)}
    return {
        "gpt2_added_tokens_json": (GPT2, config("GPT2Tokenizer"), {"eos_token": "<|im_end|>"}, {"<|im_end|>": g, "<|im_start|>": g + 1, "<two>": g + 2}),
        "gpt2_added_tokens_decoder": (GPT2, config("GPT2Tokenizer", eos_token="<|im_end|>", added_tokens_decoder=many, additional_special_tokens=["<one>"]), None, None),
        "gpt2_prefix_space": (GPT2, config("GPT2Tokenizer", add_prefix_space=True, add_bos_token=True, bos_token=typed("<|endoftext|>"), pad_token="<pad>"),
                              {"eos_token": token("<one>", lstrip=True), "pad_token": "<pad>"}, None),
        "gpt2_decoder_and_map": (GPT2, config("GPT2Tokenizer", added_tokens_decoder=many), {"eos_token": "<one>", "pad_token": "<pad>", "video_token": "<own>"}, {"<four>": g + 9}),
        "gpt2_renamed": (GPT2, config("GPT2Tokenizer", bos_token="<|own|>", eos_token="<|own|>", unk_token="<|own|>"), None, None),
        "gpt2_without_end": (QWEN, config("GPT2Tokenizer", pad_token=typed("<own>", rstrip=True)), None, None),
        "roberta": (ROBERTA, config("RobertaTokenizer", mask_token=typed("<mask>", lstrip=True), bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>"), None, None),
        "qwen2": (QWEN, config("Qwen2Tokenizer", eos_token="<|im_end|>", pad_token="<|endoftext|>", bos_token=None, add_bos_token=False, additional_special_tokens=["<|im_start|>", "<|im_end|>"],
                               added_tokens_decoder={str(q): token("<|endoftext|>"), str(q + 1): token("<|im_start|>"), str(q + 2): token("<|im_end|>")}), None, None),
        "bert_uncased": (BERT, config("BertTokenizer"), None, {"<Four>": b}),
        "bert_cased": (BERT, config("BertTokenizer", do_lower_case=False, mask_token=typed("[MASK]", lstrip=True)), None, None),
        "bert_accents": (BERT, config("BertTokenizer", do_lower_case=True, strip_accents=False, tokenize_chinese_chars=False), None, None),
        "bert_cased_no_accents": (BERT, config("BertTokenizer", do_lower_case=False, strip_accents=True, added_tokens_decoder={str(b): token("<four>", special=False, normalized=True)}), None, None),
        "bert_other_names": (OTHER, config("BertTokenizer", unk_token="<unk>", pad_token="<pad>"), {"cls_token": "<cls>", "sep_token": "<sep>", "mask_token": token("<mask>")}, None),
        "bert_renamed": (BERT, config("BertTokenizer", mask_token=typed("<mask2>", lstrip=True), pad_token="<own>"), None, None),
        "bert_without_mask": (SMALL, config("DistilBertTokenizer", strip_accents=None), None, None),
        "llama_legacy": (LLAMA, config("LlamaTokenizer", legacy=True, add_bos_token=True, add_eos_token=True, bos_token=typed("<s>"), eos_token=typed("</s>"), unk_token=typed("<unk>"), added_tokens_decoder=added(l)), None, None),
        "llama_not_legacy": (LLAMA, config("LlamaTokenizer", legacy=False, add_bos_token=False, add_eos_token=True, eos_token="<|im_end|>", added_tokens_decoder=added(l)), None, None),
        "llama_no_prefix": (LLAMA, config("LlamaTokenizer", legacy=False, add_prefix_space=False, add_bos_token=False), {"eos_token": "</s>", "pad_token": "<pad>"}, {"<one>": l}),
        "llama_alone": (LLAMA, config("LlamaTokenizer", legacy=True), None, None),
        "gemma": (GEMMA, config("GemmaTokenizer", bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>"), None, None),
        "gemma_renamed": (GEMMA, config("GemmaTokenizer", mask_token="<mask2>", pad_token="<own>"), None, None),
        "gemma_own_list": (GEMMA, config("GemmaTokenizer", mask_token="<mask2>", pad_token="<own>", additional_special_tokens=["<one>"]), None, None),
        "t5_other_keys": (T5, config("T5Tokenizer", extra_ids=0, add_prefix_space=False, legacy=False, add_eos_token=False), None, None),
        "t5": (T5, config("T5Tokenizer", extra_ids=3, additional_special_tokens=[f"<extra_id_{i}>" for i in range(3)], added_tokens_decoder=extra), None, None),
    }


def odd(name, text):
    """Before a part of a text that begins with a space, SentencePiece, transformers 4 and Shoal put another one. Transformers 5
    puts none."""
    return name in ("llama_legacy", "llama_alone") and re.search(r"^ |> ", text)


def main():
    out = {"texts": TEXTS, "shared": {}, "folders": {}}
    shared = {"gpt2": GPT2, "roberta": ROBERTA, "qwen2": QWEN, "bert": BERT, "small": SMALL, "other": OTHER, "llama": LLAMA, "gemma": GEMMA, "t5": T5}
    out["shared"] = shared
    for name, (vocabulary, config, special, added) in folders().items():
        beside = {"tokenizer_config.json": config, "special_tokens_map.json": special, "added_tokens.json": added}
        beside = {file: value for file, value in beside.items() if value is not None}
        with tempfile.TemporaryDirectory() as d:
            for file, value in vocabulary.items():
                data = value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])
                open(f"{d}/{file}", "wb").write(data)
            for file, value in beside.items():
                json.dump(value, open(f"{d}/{file}", "w"))
            t = AutoTokenizer.from_pretrained(d, **json.loads(os.environ.get("MORE", "{}")))
            out["folders"][name] = {"vocabulary": next(k for k, v in shared.items() if v is vocabulary), "beside": beside,
                                    "class": type(t).__name__,
                                    "size": len(t), "eos": t.eos_token_id, "post": [None if odd(name, x) else t.encode(x) for x in TEXTS[:3]],
                                    "ids": [None if odd(name, x) else t.encode(x, add_special_tokens=False) for x in TEXTS]}
    target = sys.argv[1] if len(sys.argv) > 1 else f"{here}/tokenizer_folders.json"
    with open(target, "w") as f:
        json.dump(out, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


main()
