/* Lines of files, patterns and standard input, as pieces of whole lines. */
#include "base/beginning.h"
#include "base/waiting.h"
#include "preprocess/preprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)1 << 20)
#define LINE_BYTES ((size_t)1 << 30) /* a record that is longer is no record */

static shoal_status no_memory(void)
{
    return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate a list of input files");
}

static shoal_status add_path(struct shoali_line_input *input, const char *path)
{
    char **grown = realloc(input->path, ((size_t)input->count + 1) * sizeof *grown);
    if (!grown)
        return no_memory();
    input->path = grown;
    input->path[input->count] = strdup(path);
    return input->path[input->count++] ? SHOAL_OK : no_memory();
}

/* A file that can be read, and its state into the hash. */
static shoal_status check_path(struct shoali_line_input *input, const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || access(path, R_OK) != 0)
        return SHOAL_FAIL(shoali_path_status(errno) == SHOAL_ENOENT ? SHOAL_ENOENT : SHOAL_EINVAL,
                          "cannot read the input %s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return SHOAL_FAIL(SHOAL_EINVAL, "the input %s is a folder: give its files, '%s/*.jsonl'",
                          path, path);
    if (!S_ISREG(info.st_mode)) {
        input->is_stream = true;
        return SHOAL_OK;
    }
    const uint64_t words[] = {(uint64_t)info.st_size, (uint64_t)info.st_ino,
                              (uint64_t)info.st_mtim.tv_sec, (uint64_t)info.st_mtim.tv_nsec};
    input->state = shoali_hash64_seeded(path, strlen(path) + 1, input->state);
    input->state = shoali_hash64_seeded(words, sizeof words, input->state);
    return SHOAL_OK;
}

static shoal_status add_word(struct shoali_line_input *input, const char *word)
{
    shoal_status status = SHOAL_OK;
    struct stat info;
    glob_t found;
    if (strcmp(word, "-") == 0) {
        input->is_stream = true;
        return add_path(input, word);
    }
    if (stat(word, &info) == 0 || !strpbrk(word, "*?["))
        return add_path(input, word);
    if (glob(word, GLOB_ERR, NULL, &found) != 0)
        return SHOAL_FAIL(SHOAL_ENOENT, "no file matches the input pattern %s", word);
    for (size_t i = 0; i < found.gl_pathc && status == SHOAL_OK; i++)
        status = add_path(input, found.gl_pathv[i]);
    globfree(&found);
    return status;
}

shoal_status shoali_line_input_open(const char *const *words, int32_t count,
                                    struct shoali_line_input *input)
{
    shoal_status status = SHOAL_OK;
    *input = (struct shoali_line_input){.descriptor = -1};
    if (count < 1)
        return SHOAL_FAIL(SHOAL_EINVAL, "no input given: name files of JSON lines, or - for "
                                        "standard input");
    for (int32_t i = 0; i < count; i++)
        SHOAL_TRY(status, add_word(input, words[i]), done);
    for (int32_t i = 0; i < input->count; i++)
        if (strcmp(input->path[i], "-") != 0)
            SHOAL_TRY(status, check_path(input, input->path[i]), done);
    if (input->is_stream)
        input->state = 0;
done:
    if (status < 0)
        shoali_line_input_close(input);
    return status;
}

static void close_current(struct shoali_line_input *input)
{
    shoali_gzip_close(input->gzip);
    input->gzip = NULL;
    if (input->descriptor > STDIN_FILENO)
        close(input->descriptor);
    input->descriptor = -1;
}

void shoali_line_input_close(struct shoali_line_input *input)
{
    close_current(input);
    for (int32_t i = 0; i < input->count; i++)
        free(input->path[i]);
    free(input->path);
    free(input->rest);
    *input = (struct shoali_line_input){.descriptor = -1};
}

static shoal_status open_current(struct shoali_line_input *input)
{
    shoal_status status = SHOAL_OK;
    const char *path = input->path[input->place.file];
    struct shoali_waiting_aloud *aloud = input->is_stream ? shoali_waiting_pipe_begin(path) : NULL;
    input->descriptor = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    shoali_waiting_aloud_end(aloud);
    input->ended = false;
    input->rest_bytes = 0;
    if (input->descriptor < 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot open for reading: %s", path, strerror(errno));
    (void)posix_fadvise(input->descriptor, 0, 0, POSIX_FADV_SEQUENTIAL);
    SHOAL_TRY(status, shoali_beginning_check(path, input->descriptor), done);
    if (shoali_gzip_is_name(path))
        SHOAL_TRY(status, shoali_gzip_open(input->descriptor, path, &input->gzip), done);
done:
    return status;
}

shoal_status shoali_line_input_seek(struct shoali_line_input *input,
                                    const struct shoali_line_input_place *place, int64_t bytes)
{
    shoal_status status = SHOAL_OK;
    close_current(input);
    input->place = *place;
    input->bytes = bytes;
    if (place->offset == 0 || place->file >= input->count)
        return SHOAL_OK;
    SHOAL_TRY(status, open_current(input), done);
    if (input->gzip)
        SHOAL_TRY(status, shoali_gzip_skip(input->gzip, place->offset), done);
    else if (lseek(input->descriptor, (off_t)place->offset, SEEK_SET) < 0)
        status =
            SHOAL_FAIL(SHOAL_EIO, "%s: cannot read: %s", input->path[place->file], strerror(errno));
done:
    return status;
}

static shoal_status reserve(char **memory, size_t *capacity, size_t bytes)
{
    if (*capacity >= bytes)
        return SHOAL_OK;
    char *grown = shoali_fault("alloc") ? NULL : realloc(*memory, bytes);
    if (!grown)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate %zu bytes of input", bytes);
    *memory = grown;
    *capacity = bytes;
    return SHOAL_OK;
}

/* A line is said for a read that blocks: others are too short to start a thread for. */
static struct shoali_waiting_aloud *begin_wait(const struct shoali_line_input *input)
{
    struct pollfd readable = {.fd = input->descriptor, .events = POLLIN};
    if (!input->is_stream || poll(&readable, 1, 0) != 0)
        return NULL;
    return shoali_waiting_pipe_begin(input->path[input->place.file]);
}

static shoal_status read_some(struct shoali_line_input *input, char *to, size_t room, size_t *count)
{
    ssize_t got;
    if (input->gzip)
        return shoali_gzip_read(input->gzip, to, room, count);
    struct shoali_waiting_aloud *aloud = begin_wait(input);
    do {
        got = shoali_fault("data_read") ? (errno = EIO, -1) : read(input->descriptor, to, room);
    } while (got < 0 && errno == EINTR);
    const int error = errno;
    shoali_waiting_aloud_end(aloud);
    if (got < 0)
        return SHOAL_FAIL(SHOAL_EIO, "%s: cannot read: %s", input->path[input->place.file],
                          strerror(error));
    *count = (size_t)got;
    return SHOAL_OK;
}

/* Fills the piece up to `capacity` or the end of the file. */
static shoal_status fill(struct shoali_line_input *input, struct shoali_text_piece *piece)
{
    shoal_status status = SHOAL_OK;
    while (!input->ended && piece->bytes < piece->capacity) {
        size_t count;
        SHOAL_TRY(
            status,
            read_some(input, piece->text + piece->bytes, piece->capacity - piece->bytes, &count),
            done);
        piece->bytes += count;
        input->ended = count == 0;
    }
done:
    return status;
}

/* Bytes of the whole lines in the piece; a file's last line needs no newline. */
static size_t whole_lines(const struct shoali_line_input *input,
                          const struct shoali_text_piece *piece)
{
    if (input->ended)
        return piece->bytes;
    const char *newline = piece->bytes ? memrchr(piece->text, '\n', piece->bytes) : NULL;
    return newline ? (size_t)(newline - piece->text) + 1 : 0;
}

/* Reads until there is a whole line. */
static shoal_status read_lines(struct shoali_line_input *input, struct shoali_text_piece *piece,
                               size_t *whole)
{
    shoal_status status;
    SHOAL_TRY(status, reserve(&piece->text, &piece->capacity, PIECE_BYTES + input->rest_bytes),
              done);
    memcpy(piece->text, input->rest ? input->rest : "", input->rest_bytes);
    piece->bytes = input->rest_bytes;
    input->rest_bytes = 0;
    SHOAL_TRY(status, fill(input, piece), done);
    while ((*whole = whole_lines(input, piece)) == 0 && !input->ended) {
        if (piece->bytes >= LINE_BYTES)
            return SHOAL_FAIL(SHOAL_EINVAL, "%s:%lld: the line is longer than a gigabyte",
                              input->path[input->place.file], (long long)input->place.line + 1);
        SHOAL_TRY(status, reserve(&piece->text, &piece->capacity, 2 * piece->capacity), done);
        SHOAL_TRY(status, fill(input, piece), done);
    }
done:
    return status;
}

static int64_t count_lines(const char *text, size_t bytes)
{
    int64_t lines = 0;
    for (size_t i = 0; i < bytes; i++)
        lines += text[i] == '\n';
    return lines + (bytes > 0 && text[bytes - 1] != '\n');
}

static shoal_status cut(struct shoali_line_input *input, struct shoali_text_piece *piece,
                        size_t whole)
{
    shoal_status status;
    const size_t rest = piece->bytes - whole;
    SHOAL_TRY(status, reserve(&input->rest, &input->rest_capacity, rest + 1), done);
    memcpy(input->rest, piece->text + whole, rest);
    input->rest_bytes = rest;
    piece->bytes = whole;
    piece->begin = input->place;
    input->place.offset += (int64_t)whole;
    input->place.line += count_lines(piece->text, whole);
    input->bytes += (int64_t)whole;
    piece->end = input->place;
    piece->input_bytes = input->bytes;
done:
    return status;
}

shoal_status shoali_line_input_next(struct shoali_line_input *input,
                                    struct shoali_text_piece *piece)
{
    shoal_status status;
    size_t whole = 0;
    while (input->place.file < input->count) {
        if (input->descriptor < 0)
            SHOAL_TRY(status, open_current(input), done);
        SHOAL_TRY(status, read_lines(input, piece, &whole), done);
        if (whole > 0)
            return cut(input, piece, whole);
        close_current(input);
        input->place = (struct shoali_line_input_place){.file = input->place.file + 1};
    }
    status = SHOAL_END;
done:
    return status;
}
