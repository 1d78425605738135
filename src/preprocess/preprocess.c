/* shoal_preprocess. */
#include "preprocess/preprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define JOURNAL_BYTES (INT64_C(256) << 20) /* of input between two journals, and */
#define JOURNAL_NS (5 * INT64_C(1000000000))
#define LOG_INTERVAL 1000

static const char *const text_key[] = {"text"};

struct preprocess {
    const shoal_preprocess_args *args;
    const char *const *keys;
    int32_t key_count;
    struct shoali_line_input input;
    shoal_tokenizer *tokenizer;
    struct shoali_piece_task task;
    int32_t vocab_size; /* the end-of-document token included */
    struct shoali_str journal_path, lock_path;
    int lock;
    char **prefix;               /* owned: of each key */
    shoal_index_writer **writer; /* owned: of each key */
    struct shoali_journal journal;
    int64_t begin_ns, journal_ns, journal_bytes,
        reported; /* told: documents of the last progress */
    shoal_preprocess_info info;
};

/* ---- before ---- */

static shoal_status check_keys(const struct preprocess *run)
{
    for (int32_t k = 0; k < run->key_count; k++) {
        if (!*run->keys[k] || strchr(run->keys[k], '/'))
            return SHOAL_FAIL(SHOAL_EINVAL,
                              "--json-keys: `%s` cannot be part of a file name: rename the key",
                              run->keys[k]);
        for (int32_t j = 0; j < k; j++)
            if (strcmp(run->keys[j], run->keys[k]) == 0)
                return SHOAL_FAIL(SHOAL_EINVAL, "--json-keys: `%s` is given twice", run->keys[k]);
    }
    return SHOAL_OK;
}

static shoal_status name_files(struct preprocess *run)
{
    const char *prefix = run->args->output_prefix;
    if (!prefix || !*prefix)
        return SHOAL_FAIL(SHOAL_EINVAL, "--output-prefix must be given: files are named after it");
    shoali_str_append(&run->journal_path, "%s.preprocess", prefix);
    shoali_str_append(&run->lock_path, "%s.preprocess.lock", prefix);
    run->prefix = shoali_calloc((size_t)run->key_count, sizeof *run->prefix, "names");
    run->writer = shoali_calloc((size_t)run->key_count, sizeof *run->writer, "writers");
    run->journal.mark = shoali_calloc((size_t)run->key_count, sizeof *run->journal.mark, "marks");
    if (!run->prefix || !run->writer || !run->journal.mark)
        return SHOAL_ENOMEM;
    run->journal.key_count = run->key_count;
    for (int32_t k = 0; k < run->key_count; k++) {
        struct shoali_str name = {0};
        shoali_str_append(&name, "%s_%s_%s", prefix, run->keys[k],
                          run->args->split_sentences ? "sentence" : "document");
        run->prefix[k] = name.failed ? NULL : strdup(shoali_str_get(&name));
        shoali_str_fini(&name);
        if (!run->prefix[k] || run->journal_path.failed || run->lock_path.failed)
            return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the names of the output");
    }
    return SHOAL_OK;
}

/* One process per prefix: it would write into the other's files. */
static shoal_status take_lock(struct preprocess *run)
{
    const char *path = shoali_str_get(&run->lock_path);
    run->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (run->lock < 0)
        return SHOAL_FAIL(shoali_path_status(errno) == SHOAL_EIO ? SHOAL_EIO : SHOAL_EINVAL,
                          "--output-prefix %s: cannot write there: %s", run->args->output_prefix,
                          strerror(errno));
    if (flock(run->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(run->lock);
        run->lock = -1;
        return SHOAL_FAIL(SHOAL_EEXIST,
                          "another process makes the files of --output-prefix %s: wait for it, or "
                          "give another prefix",
                          run->args->output_prefix);
    }
    return SHOAL_OK;
}

static void drop_lock(struct preprocess *run)
{
    if (run->lock < 0)
        return;
    (void)unlink(shoali_str_get(&run->lock_path)); /* before it is let go */
    close(run->lock);
    run->lock = -1;
}

/* A first pass over the input. */
static shoal_status learn_characters(struct preprocess *run)
{
    shoal_status status;
    uint8_t *seen = NULL;
    if (run->input.is_stream)
        return SHOAL_FAIL(SHOAL_EINVAL, "the tokenizer `char` reads the texts twice, but standard "
                                        "input can be read only once: give files");
    seen = shoali_calloc(SHOALI_CODE_POINTS / 8, 1, "the set of code points");
    if (!seen)
        return SHOAL_ENOMEM;
    const struct shoali_piece_task task = {.keys = run->keys, .key_count = run->key_count};
    const struct shoali_workers_args args = {
        .input = &run->input, .task = &task, .workers = run->args->workers, .seen = seen};
    SHOAL_TRY(status, shoali_workers_run(&args), done);
    SHOAL_TRY(status, shoali_tokenizer_from_set(seen, &run->tokenizer), done);
    SHOAL_TRY(status, shoali_line_input_seek(&run->input, &(struct shoali_line_input_place){0}, 0),
              done);
done:
    shoali_free(seen);
    return status;
}

static shoal_status make_tokenizer(struct preprocess *run)
{
    const char *name = run->args->tokenizer ? run->args->tokenizer : "byte";
    if (run->args->use_tokenizer)
        return shoali_tokenizer_copy(run->args->use_tokenizer, &run->tokenizer);
    if (strcmp(name, "char") == 0)
        return learn_characters(run);
    return shoal_tokenizer_create(name, "", 0, &run->tokenizer);
}

static shoal_status choose_tokens(struct preprocess *run)
{
    const shoal_preprocess_args *args = run->args;
    run->vocab_size = shoal_tokenizer_vocab_size(run->tokenizer);
    run->task = (struct shoali_piece_task){.keys = run->keys,
                                           .key_count = run->key_count,
                                           .tokenizer = run->tokenizer,
                                           .eod = -1,
                                           .split = args->split_sentences,
                                           .keep_space = args->keep_newlines};
    const int32_t eod = args->eod_given ? args->eod_token : shoal_tokenizer_eod(run->tokenizer);
    if (args->append_eod && !args->eod_given && eod < 0)
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--append-eod: the tokenizer `%s` has no end-of-document token: give "
                          "--eod-id N, a token that the texts do not use",
                          shoal_tokenizer_name(run->tokenizer));
    if (args->keep_newlines && !args->split_sentences)
        return SHOAL_FAIL(SHOAL_EINVAL, "--keep-newlines without --split-sentences: give both");
    if (args->eod_given && !args->append_eod)
        return SHOAL_FAIL(SHOAL_EINVAL, "--eod-id without --append-eod: give both");
    if (args->append_eod && (eod < 0 || eod >= run->vocab_size))
        return SHOAL_FAIL(SHOAL_EINVAL,
                          "--eod-id %d is outside the vocabulary of %d of the tokenizer `%s`",
                          (int)eod, (int)run->vocab_size, shoal_tokenizer_name(run->tokenizer));
    if (args->append_eod)
        run->task.eod = eod;
    run->task.type = shoali_index_type_for(run->vocab_size);
    return SHOAL_OK;
}

static void hash_everything(struct preprocess *run)
{
    const char *json = shoal_tokenizer_json(run->tokenizer);
    const int64_t numbers[] = {run->task.type, run->task.eod, run->key_count, run->task.split,
                               run->task.keep_space};
    uint64_t hash = shoali_hash64_seeded(json, strlen(json), run->input.state);
    hash = shoali_hash64_seeded(numbers, sizeof numbers, hash);
    for (int32_t k = 0; k < run->key_count; k++)
        hash = shoali_hash64_seeded(run->keys[k], strlen(run->keys[k]) + 1, hash);
    run->journal.made_of = hash;
}

/* ---- going on ---- */

static void close_writers(struct preprocess *run)
{
    for (int32_t k = 0; run->writer && k < run->key_count; k++) {
        shoal_index_writer_destroy(run->writer[k]);
        run->writer[k] = NULL;
    }
}

/* SHOAL_END: from the beginning. */
static shoal_status resume(struct preprocess *run)
{
    shoal_status status = SHOAL_END;
    struct shoali_journal *journal = &run->journal;
    if (!run->input.is_stream)
        status = shoali_journal_read(shoali_str_get(&run->journal_path), journal);
    for (int32_t k = 0; k < run->key_count && status == SHOAL_OK; k++)
        status = shoali_index_writer_resume(run->prefix[k], run->task.type, &journal->mark[k],
                                            &run->writer[k]);
    if (status == SHOAL_OK)
        status = shoali_line_input_seek(&run->input, &journal->place, journal->bytes);
    if (status == SHOAL_OK) {
        run->info.resumed_documents = journal->documents;
        run->info.resumed_bytes = journal->bytes;
    }
    if (status == SHOAL_END)
        close_writers(run);
    return status;
}

static shoal_status begin(struct preprocess *run)
{
    shoal_status status;
    struct shoali_journal *journal = &run->journal;
    SHOAL_TRY(status, resume(run), done);
    if (status == SHOAL_OK) {
        SHOALI_INFO("data", "continuing after %lld documents of an interrupted run",
                    (long long)journal->documents);
        goto done;
    }
    *journal = (struct shoali_journal){
        .made_of = journal->made_of, .key_count = run->key_count, .mark = journal->mark};
    (void)unlink(shoali_str_get(&run->journal_path));
    for (int32_t k = 0; k < run->key_count; k++) {
        SHOAL_TRY(status,
                  shoali_index_writer_create(run->prefix[k], run->task.type, &run->writer[k]),
                  done);
        shoali_index_writer_leave(run->writer[k], !run->input.is_stream);
    }
done:
    return status;
}

static shoal_status write_journal(struct preprocess *run)
{
    shoal_status status = SHOAL_OK;
    if (run->input.is_stream)
        return SHOAL_OK;
    for (int32_t k = 0; k < run->key_count; k++)
        SHOAL_TRY(status, shoali_index_writer_sync(run->writer[k], &run->journal.mark[k]), done);
    SHOAL_TRY(status, shoali_journal_write(shoali_str_get(&run->journal_path), &run->journal),
              done);
    run->journal_ns = shoali_now_ns();
    run->journal_bytes = run->journal.bytes;
done:
    return status;
}

/* ---- pieces ---- */

static void tell(struct preprocess *run)
{
    const shoal_preprocess_args *args = run->args;
    const int64_t interval = args->log_interval > 0 ? args->log_interval : LOG_INTERVAL;
    if (!args->progress || run->journal.documents / interval == run->reported / interval)
        return;
    run->reported = run->journal.documents;
    args->progress(args->user, run->reported - run->info.resumed_documents,
                   run->journal.bytes - run->info.resumed_bytes,
                   (double)(shoali_now_ns() - run->begin_ns) * 1e-9);
}

static shoal_status take_piece(void *user, const struct shoali_piece *piece)
{
    shoal_status status = SHOAL_OK;
    struct preprocess *run = user;
    for (int32_t k = 0; k < run->key_count; k++) {
        const struct shoali_piece_out *out = &piece->out[k];
        const struct shoali_index_block block = {.tokens = out->tokens,
                                                 .token_bytes = out->bytes,
                                                 .lengths = out->lengths,
                                                 .sequence_count = out->sequence_count,
                                                 .sequences = out->sequences,
                                                 .document_count = out->document_count};
        SHOAL_TRY(status, shoali_index_writer_put(run->writer[k], &block), done);
    }
    run->journal.documents += piece->out[0].document_count;
    run->journal.tokens += piece->token_count;
    run->journal.place = piece->text.end;
    run->journal.bytes = piece->text.input_bytes;
    tell(run);
    if (run->journal.bytes - run->journal_bytes >= JOURNAL_BYTES ||
        shoali_now_ns() - run->journal_ns >= JOURNAL_NS || shoali_fault("preprocess_journal"))
        SHOAL_TRY(status, write_journal(run), done);
    (void)shoali_fault("preprocess_piece"); /* tests end the process here */
done:
    return status;
}

/* ---- after ---- */

static shoal_status describe(const struct preprocess *run, const char *prefix)
{
    shoal_status status;
    struct shoali_str path = {0}, text = {0};
    shoali_str_append(&path, "%s.tokens.json", prefix);
    shoali_str_append(&text, "{\"version\": 1, \"vocab_size\": %d, \"eod\": %d,\n \"tokenizer\": ",
                      (int)run->vocab_size, (int)run->task.eod);
    shoali_str_append(&text, "%s}\n", shoal_tokenizer_json(run->tokenizer));
    if (path.failed || text.failed)
        status = SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the description of the tokens");
    else
        status =
            shoali_write_file_atomic(shoali_str_get(&path), shoali_str_get(&text), text.length);
    shoali_str_fini(&path);
    shoali_str_fini(&text);
    return status;
}

static shoal_status finish(struct preprocess *run)
{
    shoal_status status = SHOAL_OK;
    if (run->journal.documents == 0)
        return SHOAL_FAIL(SHOAL_EINVAL, "there is no record in %s%s", run->input.path[0],
                          run->input.count > 1 ? " or the other inputs" : "");
    for (int32_t k = 0; k < run->key_count; k++) {
        SHOAL_TRY(status, describe(run, run->prefix[k]), done);
        SHOAL_TRY(status, shoal_index_writer_finish(run->writer[k]), done);
    }
    (void)unlink(shoali_str_get(&run->journal_path));
done:
    return status;
}

/* After the user's mistake there is nothing to go on with: the input will be another one. */
static void drop_unfinished(struct preprocess *run)
{
    for (int32_t k = 0; run->writer && k < run->key_count; k++)
        if (run->writer[k])
            shoali_index_writer_leave(run->writer[k], false);
    if (run->lock >= 0)
        (void)unlink(shoali_str_get(&run->journal_path));
}

static void release(struct preprocess *run)
{
    close_writers(run);
    for (int32_t k = 0; run->prefix && k < run->key_count; k++)
        free(run->prefix[k]);
    shoali_free(run->prefix);
    shoali_free(run->writer);
    shoali_free(run->journal.mark);
    shoali_line_input_close(&run->input);
    shoal_tokenizer_destroy(run->tokenizer);
    drop_lock(run);
    shoali_str_fini(&run->journal_path);
    shoali_str_fini(&run->lock_path);
}

static shoal_status run_all(struct preprocess *run)
{
    shoal_status status;
    const shoal_preprocess_args *args = run->args;
    run->begin_ns = run->journal_ns = shoali_now_ns();
    SHOAL_TRY(status, check_keys(run), done);
    SHOAL_TRY(status, name_files(run), done);
    SHOAL_TRY(status, shoali_line_input_open(args->inputs, args->input_count, &run->input), done);
    SHOAL_TRY(status, take_lock(run), done);
    SHOAL_TRY(status, make_tokenizer(run), done);
    SHOAL_TRY(status, choose_tokens(run), done);
    hash_everything(run);
    SHOAL_TRY(status, begin(run), done);
    run->reported = run->journal.documents;
    run->journal_bytes = run->journal.bytes;
    const struct shoali_workers_args workers = {.input = &run->input,
                                                .task = &run->task,
                                                .workers = args->workers,
                                                .take = take_piece,
                                                .user = run};
    SHOAL_TRY(status, shoali_workers_run(&workers), done);
    SHOAL_TRY(status, finish(run), done);
    run->info.documents = run->journal.documents;
    run->info.tokens = run->journal.tokens;
    run->info.text_bytes = run->journal.bytes;
    run->info.seconds = (double)(shoali_now_ns() - run->begin_ns) * 1e-9;
done:
    return status;
}

shoal_status shoal_preprocess(const shoal_preprocess_args *args, shoal_preprocess_info *info)
{
    shoal_status status;
    shoal_preprocess_args own = {0};
    struct preprocess run = {.lock = -1, .input.descriptor = -1};
    if (args)
        own = *args;
    run.args = &own;
    run.keys = own.json_key_count > 0 ? own.json_keys : text_key;
    run.key_count = own.json_key_count > 0 ? own.json_key_count : 1;
    SHOAL_TRY(status, run_all(&run), done);
done:
    if (status == SHOAL_EINVAL)
        drop_unfinished(&run);
    release(&run);
    if (info)
        if (info)
            *info = run.info;
    return status;
}
