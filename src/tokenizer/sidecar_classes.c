/* Classes of transformers that read vocab.json, vocab.txt or a SentencePiece model, with the rules
 * that Shoal has. A class that is not here has other rules: it is refused. */
#include "tokenizer/formats.h"

#include <string.h>

#define END "<|endoftext|>"
#define GPT2_NAMES                                                 \
    {                                                              \
        [SHOALI_BOS] = END, [SHOALI_EOS] = END, [SHOALI_UNK] = END \
    }
#define BERT_NAMES                                                              \
    {                                                                           \
        [SHOALI_UNK] = "[UNK]", [SHOALI_SEP] = "[SEP]", [SHOALI_PAD] = "[PAD]", \
        [SHOALI_CLS] = "[CLS]", [SHOALI_MASK] = "[MASK]"                        \
    }
#define ROBERTA_NAMES                                                        \
    {                                                                        \
        [SHOALI_BOS] = "<s>", [SHOALI_EOS] = "</s>", [SHOALI_UNK] = "<unk>", \
        [SHOALI_SEP] = "</s>", [SHOALI_PAD] = "<pad>", [SHOALI_CLS] = "<s>", \
        [SHOALI_MASK] = "<mask>"                                             \
    }
#define T5_NAMES                                                              \
    {                                                                         \
        [SHOALI_EOS] = "</s>", [SHOALI_UNK] = "<unk>", [SHOALI_PAD] = "<pad>" \
    }

#define GPT2(name_)                                                                    \
    {                                                                                  \
        .name = name_, .vocabulary = SHOALI_VOCABULARY_BYTE_LEVEL, .named = GPT2_NAMES \
    }
#define BERT(name_)                                                                   \
    {                                                                                 \
        .name = name_, .vocabulary = SHOALI_VOCABULARY_WORDPIECE, .named = BERT_NAMES \
    }
#define ROBERTA(name_)                                                                     \
    {                                                                                      \
        .name = name_, .vocabulary = SHOALI_VOCABULARY_BYTE_LEVEL, .named = ROBERTA_NAMES, \
        .roberta_ends = true                                                               \
    }
#define T5(name_)                                                                 \
    {                                                                             \
        .name = name_, .vocabulary = SHOALI_VOCABULARY_PIECES, .named = T5_NAMES, \
        .appends_eos = true                                                       \
    }

/* The first of a vocabulary stands for folders that name no class. */
static const struct shoali_tokenizer_class classes[] = {
    GPT2("GPT2Tokenizer"),
    GPT2("CodeGenTokenizer"),
    {.name = "Qwen2Tokenizer",
     .vocabulary = SHOALI_VOCABULARY_BYTE_LEVEL,
     .named = {[SHOALI_EOS] = END, [SHOALI_UNK] = END, [SHOALI_PAD] = END},
     .nfc_words = true},
    ROBERTA("RobertaTokenizer"),
    ROBERTA("BartTokenizer"),
    ROBERTA("LongformerTokenizer"),
    ROBERTA("LEDTokenizer"),
    BERT("BertTokenizer"),
    BERT("DistilBertTokenizer"),
    BERT("ElectraTokenizer"),
    BERT("MobileBertTokenizer"),
    BERT("ConvBertTokenizer"),
    BERT("LayoutLMTokenizer"),
    BERT("LxmertTokenizer"),
    BERT("SqueezeBertTokenizer"),
    {.name = "SentencePiece", .vocabulary = SHOALI_VOCABULARY_PIECES},
    {.name = "LlamaTokenizer",
     .vocabulary = SHOALI_VOCABULARY_PIECES,
     .named = {[SHOALI_BOS] = "<s>", [SHOALI_EOS] = "</s>", [SHOALI_UNK] = "<unk>"}},
    {.name = "GemmaTokenizer",
     .vocabulary = SHOALI_VOCABULARY_PIECES,
     .named = {[SHOALI_BOS] = "<bos>",
               [SHOALI_EOS] = "<eos>",
               [SHOALI_UNK] = "<unk>",
               [SHOALI_PAD] = "<pad>",
               [SHOALI_MASK] = "<mask>"}},
    T5("T5Tokenizer"),
    T5("MT5Tokenizer"),
    {.name = "TikToken", .vocabulary = SHOALI_VOCABULARY_RANKS},
};

/* Names of transformers' base classes, which say nothing of the rules. */
static bool is_base(const char *name)
{
    static const char *const names[] = {"PreTrainedTokenizer", "PythonBackend", "TokenizersBackend",
                                        "SentencePieceBackend"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

const struct shoali_tokenizer_class *shoali_class_find(const char *name,
                                                       enum shoali_vocabulary vocabulary)
{
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (classes[i].vocabulary == vocabulary &&
            (!name || is_base(name) || strcmp(classes[i].name, name) == 0))
            return &classes[i];
    return NULL;
}

/* Models of the Hub whose older folders have no `tokenizer_class`. Models that Shoal writes are not
 * here: they go with any tokenizer. */
const char *shoali_class_of_model(const char *model_type)
{
    static const char *const rows[][2] = {
        {"roberta", "RobertaTokenizer"},
        {"bart", "BartTokenizer"},
        {"longformer", "LongformerTokenizer"},
        {"led", "LEDTokenizer"},
        {"t5", "T5Tokenizer"},
        {"mt5", "MT5Tokenizer"},
        {"albert", "AlbertTokenizer"},
        {"xlnet", "XLNetTokenizer"},
        {"xlm-roberta", "XLMRobertaTokenizer"},
        {"camembert", "CamembertTokenizer"},
        {"mbart", "MBartTokenizer"},
        {"pegasus", "PegasusTokenizer"},
        {"big_bird", "BigBirdTokenizer"},
        {"deberta", "DebertaTokenizer"},
        {"deberta-v2", "DebertaV2Tokenizer"},
        {"marian", "MarianTokenizer"},
        {"clip", "CLIPTokenizer"},
        {"whisper", "WhisperTokenizer"},
        {"mpnet", "MPNetTokenizer"},
        {"funnel", "FunnelTokenizer"},
        {"xlm", "XLMTokenizer"},
        {"ctrl", "CTRLTokenizer"},
        {"openai-gpt", "OpenAIGPTTokenizer"},
    };
    for (size_t i = 0; model_type && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i][0], model_type) == 0)
            return rows[i][1];
    return NULL;
}
