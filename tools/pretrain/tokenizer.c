/* The tokenizer of a run. Flags, the checkpoint or folder of --load, and data files may each name
 * one, and all must be the same. Data files are compared by the data set. */
#include "pretrain/pretrain.h"

#include "base/error.h"
#include "base/str.h"
#include "shoal/hub.h"

#include <stdlib.h>
#include <string.h>

static bool has_flags(const struct pretrain_options *options)
{
    const struct tokenizer_flags *flags = &options->tokenizer;
    return flags->type || flags->model || flags->vocab_file || flags->merge_file;
}

/* The flag that says most. */
static void name_flags(const struct tokenizer_flags *flags, char *text, size_t bytes)
{
    if (flags->model)
        snprintf(text, bytes, "--tokenizer-model %s", flags->model);
    else if (flags->vocab_file)
        snprintf(text, bytes, "--vocab-file %s", flags->vocab_file);
    else
        snprintf(text, bytes, "--tokenizer-type %s", flags->type ? flags->type : "byte");
}

/* Of the flags; NULL: char, which learns from the text, or no flag. */
static shoal_status load_flags(const struct pretrain_options *options, shoal_tokenizer **tokenizer)
{
    shoal_status status = SHOAL_OK;
    /* the size of a checkpoint's model says nothing of a tokenizer that flags give */
    const bool stored =
        options->hub.checkpoint && !model_flags_given(&options->model, "vocab-size");
    *tokenizer = NULL;
    if (!has_flags(options))
        return SHOAL_OK;
    SHOAL_TRY(
        status,
        tokenizer_flags_load(&options->tokenizer, stored ? 0 : options->vocab_size, tokenizer),
        done);
done:
    return status;
}

static shoal_status refuse(const struct pretrain_tokenizer *own, const char *flag, const char *why)
{
    return SHOAL_FAIL(SHOAL_EINVAL,
                      "%s is another tokenizer than that of %s (%s): leave the flag out, or give "
                      "--allow-other-tokenizer to use it",
                      flag, own->source, why);
}

/* Refuses a tokenizer of the flags that is not that of --load. A run that continues keeps all ids.
 * A training that begins from a folder may have more of them. */
static shoal_status compare(const struct pretrain_options *options,
                            const struct pretrain_tokenizer *own, const shoal_tokenizer *given,
                            const char *flag)
{
    shoal_status status;
    char why[200] = "";
    shoal_tokenizer *byte = NULL;
    shoal_tokenizer_likeness likeness;
    const char *type = options->tokenizer.type;
    if (!given && type && strcmp(type, "char") == 0) {
        const char *name = shoal_tokenizer_name(own->tokenizer);
        return strcmp(name, "char") == 0 ? SHOAL_OK : refuse(own, flag, name);
    }
    if (!given)
        SHOAL_TRY(status, shoal_tokenizer_create("byte", "", 0, &byte), done);
    SHOAL_TRY(
        status,
        shoal_tokenizer_compare(own->tokenizer, given ? given : byte, &likeness, why, sizeof why),
        done);
    if (likeness == SHOAL_TOKENIZER_EXTENDED && !options->hub.folder)
        snprintf(why, sizeof why, "%d tokens and %d",
                 (int)shoal_tokenizer_vocab_size(own->tokenizer),
                 (int)shoal_tokenizer_vocab_size(given ? given : byte));
    else if (likeness != SHOAL_TOKENIZER_OTHER)
        goto done;
    status = refuse(own, flag, why);
done:
    shoal_tokenizer_destroy(byte);
    return status;
}

/* A checkpoint describes its tokenizer, and has files of it for other programs. */
static shoal_status compare_files(const struct pretrain_options *options,
                                  const struct pretrain_tokenizer *own)
{
    shoal_status status;
    char *found = NULL, why[200];
    shoal_tokenizer *files = NULL;
    shoal_tokenizer_likeness likeness;
    SHOAL_TRY(status, shoal_checkpoint_find(options->load, options->load_tag, &found), done);
    if (shoal_hub_open_tokenizer(found, &files) < 0) /* the description is what is used */
        shoali_error_clear();
    if (!files)
        goto done;
    SHOAL_TRY(status, shoal_tokenizer_compare(own->tokenizer, files, &likeness, why, sizeof why),
              done);
    if (likeness == SHOAL_TOKENIZER_OTHER)
        status = SHOAL_FAIL(SHOAL_EINVAL,
                            "%s: the tokenizer's files are of another tokenizer than the one that "
                            "the checkpoint was trained with (%s): put the right files there, or "
                            "give --allow-other-tokenizer",
                            found, why);
done:
    shoal_tokenizer_destroy(files);
    free(found);
    return status;
}

/* What --load has, where the checkpoint said none yet. */
static shoal_status load_own(const struct pretrain_options *options, struct pretrain_tokenizer *own)
{
    shoal_status status = SHOAL_OK;
    if (own->tokenizer) {
        snprintf(own->source, sizeof own->source, "the checkpoint in %s", options->load);
    } else if (options->hub.folder) {
        snprintf(own->source, sizeof own->source, "--load %s", options->load);
        SHOAL_TRY(status, shoal_hub_open_tokenizer(options->hub.folder, &own->tokenizer), done);
    }
done:
    return status;
}

/* Random tokens are of as many kinds as the tokenizer of the flags has, so that the model has the
 * size that it has with data. */
static shoal_status count_mock(const struct pretrain_options *options,
                               struct pretrain_tokenizer *own)
{
    shoal_status status = SHOAL_OK;
    shoal_tokenizer *given = NULL;
    if (options->vocab_size > 0)
        return SHOAL_OK;
    SHOAL_TRY(status, load_flags(options, &given), done);
    own->mock_vocab_size = given ? shoal_tokenizer_vocab_size(given) : 0;
done:
    shoal_tokenizer_destroy(given);
    return status;
}

shoal_status pretrain_choose_tokenizer(const struct pretrain_options *options, bool compares,
                                       struct pretrain_tokenizer *own)
{
    shoal_status status;
    char flag[sizeof own->source];
    shoal_tokenizer *given = NULL;
    const bool flags = has_flags(options), other = options->data.allow_other_tokenizer;
    if (options->mock_data)
        return count_mock(options, own);
    SHOAL_TRY(status, load_own(options, own), done);
    const bool continues = own->tokenizer && !options->hub.folder;
    if (continues && compares && !other)
        SHOAL_TRY(status, compare_files(options, own), done);
    if (!flags)
        goto done;
    name_flags(&options->tokenizer, flag, sizeof flag);
    /* a run that continues has the tokenizer in its checkpoint: the files may be on one host */
    if (compares || other || !continues)
        SHOAL_TRY(status, load_flags(options, &given), done);
    if (own->tokenizer && compares && !other)
        SHOAL_TRY(status, compare(options, own, given, flag), done);
    if (continues && !other)
        goto done;
    shoal_tokenizer_destroy(own->tokenizer);
    own->tokenizer = given;
    given = NULL;
    snprintf(own->source, sizeof own->source, "%s", flag);
done:
    shoal_tokenizer_destroy(given);
    return status;
}
