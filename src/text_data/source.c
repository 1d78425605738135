/* Text in the table of data: what no source before it takes. */
#include "text_data/token_file.h"

#include <string.h>

static shoal_status is_text(const shoal_dataset_args *args, bool *is)
{
    (void)args;
    *is = true;
    return SHOAL_OK;
}

static shoal_status open_text(const shoal_dataset_args *args, shoal_dataset *dataset)
{
    shoal_status status;
    struct shoali_token_opened opened = {0};
    SHOAL_TRY(status, shoali_token_cache_open(args, &opened), done);
    dataset->tokenizer = opened.tokenizer;
    dataset->source = opened.source;
    dataset->file_count = opened.file_count;
    dataset->report = opened.report;
    opened = (struct shoali_token_opened){.verdict = opened.verdict};
    shoali_token_opened_fini(&opened);
done:
    return status;
}

static shoal_status peek_char(const shoal_dataset_args *args, shoal_tokenizer **tokenizer)
{
    shoal_status status;
    struct shoali_token_opened opened;
    struct shoali_files files = {0};
    struct shoali_scan scan = {0};
    SHOAL_TRY(status, shoali_token_cache_find(args, &opened), done);
    if (status == SHOAL_OK) {
        *tokenizer = opened.tokenizer;
        opened.tokenizer = NULL;
        shoali_token_opened_fini(&opened);
        return SHOAL_OK;
    }
    SHOAL_TRY(status, shoali_files_find(args, &files), done);
    SHOAL_TRY(status, shoali_scan_init(&scan, &files, true, -1), done);
    SHOAL_TRY(status, shoali_tokenizer_from_set(scan.seen, tokenizer), done);
done:
    shoali_scan_fini(&scan);
    shoali_files_fini(&files);
    return status;
}

static shoal_status peek(const shoal_dataset_args *args, shoal_dataset_info *info)
{
    shoal_status status;
    shoal_tokenizer *tokenizer = NULL;
    struct shoali_files files = {0};
    if (args->use_tokenizer)
        SHOAL_TRY(status, shoali_tokenizer_copy(args->use_tokenizer, &tokenizer), done);
    else if (args->tokenizer && strcmp(args->tokenizer, "char") == 0)
        SHOAL_TRY(status, peek_char(args, &tokenizer), done);
    else
        SHOAL_TRY(status, shoal_tokenizer_create("byte", "", 0, &tokenizer), done);
    SHOAL_TRY(status, shoali_files_find(args, &files), done);
    info->vocab_size = shoal_tokenizer_vocab_size(tokenizer);
    info->host_bytes = (int64_t)sizeof(struct shoal_dataset) +
                       shoali_tokenizer_host_bytes(tokenizer) +
                       (int64_t)shoali_token_file_host_bytes();
done:
    shoal_tokenizer_destroy(tokenizer);
    shoali_files_fini(&files);
    return status;
}

const struct shoali_data_source shoali_data_text = {
    .name = "text",
    .probe = is_text,
    .open = open_text,
    .peek = peek,
};
