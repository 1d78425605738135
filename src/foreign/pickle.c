/* The machine: one row per instruction, one small function per kind of them. */
#include "foreign/pickle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_BYTES = 1 << 16, STACK_MAX = 1 << 20, MEMO_MAX = 1 << 24 };

struct machine {
    struct shoali_pickle *pickle;
    int64_t at;        /* of the next byte */
    int64_t opcode_at; /* of the instruction */
    unsigned char *window;
    int64_t window_at, window_bytes;
    struct shoali_value **stack; /* owned */
    int64_t depth, capacity;
    int64_t *mark; /* owned: depths */
    int64_t mark_count, mark_capacity;
    struct shoali_value **memo; /* owned */
    int64_t memo_count, memo_capacity;
    bool stopped;
};

#define FAIL(machine, ...) \
    shoali_input_fail((machine)->pickle->input, (machine)->opcode_at, __VA_ARGS__)

/* ---- memory ---- */

/* Room for one more; *array is owned by the machine. */
static shoal_status grow(void **array, int64_t count, int64_t *capacity, size_t item)
{
    if (count < *capacity)
        return SHOAL_OK;
    int64_t wanted = *capacity > 0 ? *capacity : 64;
    while (wanted <= count)
        wanted *= 2;
    void *larger = realloc(*array, (size_t)wanted * item);
    if (!larger)
        return SHOAL_FAIL(SHOAL_ENOMEM, "cannot allocate the values of a pickle");
    memset((char *)larger + (size_t)*capacity * item, 0, (size_t)(wanted - *capacity) * item);
    *array = larger;
    *capacity = wanted;
    return SHOAL_OK;
}

/* ---- bytes ---- */

static shoal_status take(struct machine *m, int64_t bytes, void *out)
{
    shoal_status status = SHOAL_OK;
    char *to = out;
    struct shoali_pickle *pickle = m->pickle;
    if (bytes < 0 || bytes > pickle->end - m->at)
        return FAIL(m, "the pickle ends within an instruction: it is truncated or damaged");
    while (bytes > 0) {
        if (m->at < m->window_at || m->at >= m->window_at + m->window_bytes) {
            const int64_t left = pickle->end - m->at;
            m->window_at = m->at;
            m->window_bytes = left < WINDOW_BYTES ? left : WINDOW_BYTES;
            SHOAL_TRY(status, shoali_input_read(pickle->input, m->at, m->window_bytes, m->window),
                      done);
        }
        const int64_t have = m->window_at + m->window_bytes - m->at;
        const int64_t part = bytes < have ? bytes : have;
        memcpy(to, m->window + (m->at - m->window_at), (size_t)part);
        to += part;
        bytes -= part;
        m->at += part;
    }
done:
    return status;
}

/* An unsigned number of 1 to 8 bytes, lowest first. */
static shoal_status take_number(struct machine *m, int bytes, int64_t *number)
{
    unsigned char raw[8] = {0};
    uint64_t value = 0;
    shoal_status status;
    SHOAL_TRY(status, take(m, bytes, raw), done);
    for (int i = bytes; i-- > 0;)
        value = value << 8 | raw[i];
    if (value > INT64_MAX)
        status = FAIL(m, "a length of %llu bytes", (unsigned long long)value);
    *number = (int64_t)value;
done:
    return status;
}

/* Text in the arena, with a NUL behind it. */
static shoal_status take_text(struct machine *m, int64_t bytes, const char **text)
{
    shoal_status status;
    *text = NULL;
    if (bytes > m->pickle->end - m->at)
        return FAIL(m,
                    "a string has %lld bytes, but the pickle has only %lld more: it is truncated "
                    "or damaged",
                    (long long)bytes, (long long)(m->pickle->end - m->at));
    char *to = shoali_pickle_alloc(m->pickle, bytes + 1);
    if (!to)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, take(m, bytes, to), done);
    *text = to;
done:
    return status;
}

/* A line of at most this many bytes, without its end. */
static shoal_status take_line(struct machine *m, char line[256])
{
    shoal_status status;
    for (int i = 0; i < 256; i++) {
        SHOAL_TRY(status, take(m, 1, &line[i]), done);
        if (line[i] == '\n') {
            line[i] = '\0';
            if (strlen(line) == (size_t)i)
                return SHOAL_OK;
            return FAIL(m, "a name with a byte of value 0");
        }
    }
    status = FAIL(m, "a name of more than 255 bytes");
done:
    return status;
}

/* ---- the stack ---- */

static shoal_status push(struct machine *m, struct shoali_value *value)
{
    shoal_status status;
    if (!value)
        return SHOAL_ENOMEM;
    if (m->depth >= STACK_MAX)
        return FAIL(m, "the pickle puts more than %d values on its stack", STACK_MAX);
    SHOAL_TRY(status, grow((void **)&m->stack, m->depth, &m->capacity, sizeof *m->stack), done);
    m->stack[m->depth++] = value;
done:
    return status;
}

static shoal_status underflow(struct machine *m)
{
    return FAIL(m, "the pickle takes a value from its stack that is not there");
}

/* The i-th value from the top, 0 is the top; NULL: below the last mark. */
static struct shoali_value *peek(const struct machine *m, int64_t i)
{
    const int64_t fence = m->mark_count > 0 ? m->mark[m->mark_count - 1] : 0;
    return m->depth - fence > i ? m->stack[m->depth - 1 - i] : NULL;
}

/* Removes the last mark; *first: the first value above it. */
static shoal_status pop_mark(struct machine *m, int64_t *first)
{
    if (m->mark_count == 0)
        return FAIL(m, "the pickle looks for a mark on its stack that is not there");
    *first = m->mark[--m->mark_count];
    return SHOAL_OK;
}

static struct shoali_value *make(struct machine *m, enum shoali_value_kind kind)
{
    return shoali_pickle_value(m->pickle, kind, m->opcode_at);
}

/* ---- plain values ---- */

static shoal_status do_constant(struct machine *m, int which)
{
    struct shoali_value *value = make(m, which < 0 ? SHOALI_VALUE_NONE : SHOALI_VALUE_BOOL);
    if (value && which >= 0)
        value->as.truth = which != 0;
    return push(m, value);
}

static shoal_status do_integer(struct machine *m, int bytes)
{
    shoal_status status;
    int64_t number;
    struct shoali_value *value = make(m, SHOALI_VALUE_INT);
    if (!value)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, take_number(m, bytes, &number), done);
    value->as.integer = bytes == 4 ? (int64_t)(int32_t)(uint32_t)number : number;
    SHOAL_TRY(status, push(m, value), done);
done:
    return status;
}

/* Of up to 8 bytes it is an integer like others. */
static shoal_status do_long(struct machine *m, int length_bytes)
{
    shoal_status status;
    int64_t bytes;
    struct shoali_value *value = make(m, SHOALI_VALUE_INT);
    if (!value)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, take_number(m, length_bytes, &bytes), done);
    if (bytes > 8) {
        value->kind = SHOALI_VALUE_LONG;
        SHOAL_TRY(status, take_text(m, bytes, &value->as.text.data), done);
        value->as.text.bytes = bytes;
    } else {
        unsigned char raw[8] = {0};
        uint64_t bits = 0;
        SHOAL_TRY(status, take(m, bytes, raw), done);
        for (int64_t i = 8; i-- > 0;)
            bits = bits << 8 | (i >= bytes && bytes > 0 && raw[bytes - 1] & 0x80 ? 0xffu : raw[i]);
        value->as.integer = (int64_t)bits;
    }
    SHOAL_TRY(status, push(m, value), done);
done:
    return status;
}

static shoal_status do_float(struct machine *m, int unused)
{
    shoal_status status;
    unsigned char raw[8];
    uint64_t bits = 0;
    struct shoali_value *value = make(m, SHOALI_VALUE_FLOAT);
    (void)unused;
    if (!value)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, take(m, sizeof raw, raw), done);
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | raw[i];
    memcpy(&value->as.real, &bits, sizeof bits);
    SHOAL_TRY(status, push(m, value), done);
done:
    return status;
}

/* length_bytes < 0: bytes, else text. */
static shoal_status do_string(struct machine *m, int length_bytes)
{
    shoal_status status;
    const int width = length_bytes < 0 ? -length_bytes : length_bytes;
    struct shoali_value *value = make(m, length_bytes < 0 ? SHOALI_VALUE_BYTES : SHOALI_VALUE_TEXT);
    if (!value)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, take_number(m, width, &value->as.text.bytes), done);
    SHOAL_TRY(status, take_text(m, value->as.text.bytes, &value->as.text.data), done);
    SHOAL_TRY(status, push(m, value), done);
done:
    return status;
}

/* ---- lists, tuples, sets, dicts ---- */

static shoal_status do_empty(struct machine *m, int kind)
{
    return push(m, make(m, (enum shoali_value_kind)kind));
}

/* Moves the values from `first` on into a list of theirs. */
static shoal_status move_items(struct machine *m, struct shoali_value *list, int64_t first)
{
    shoal_status status = SHOAL_OK;
    for (int64_t i = first; i < m->depth; i++)
        SHOAL_TRY(status, shoali_pickle_push_item(m->pickle, list, m->stack[i]), done);
    m->depth = first;
done:
    return status;
}

static shoal_status do_tuple(struct machine *m, int count)
{
    shoal_status status = SHOAL_OK;
    struct shoali_value *value = make(m, SHOALI_VALUE_TUPLE);
    if (!value)
        return SHOAL_ENOMEM;
    if (count > 0 && !peek(m, count - 1))
        return underflow(m);
    SHOAL_TRY(status, move_items(m, value, m->depth - count), done);
    SHOAL_TRY(status, push(m, value), done);
done:
    return status;
}

/* All above the mark as one value. */
static shoal_status do_collect(struct machine *m, int kind)
{
    shoal_status status;
    int64_t first = 0;
    struct shoali_value *value = make(m, (enum shoali_value_kind)kind);
    if (!value)
        return SHOAL_ENOMEM;
    SHOAL_TRY(status, pop_mark(m, &first), done);
    if (value->kind == SHOALI_VALUE_DICT && (m->depth - first) % 2 != 0)
        return FAIL(m, "a dictionary has a key without a value");
    SHOAL_TRY(status, move_items(m, value, first), done);
    SHOAL_TRY(status, push(m, value), done);
done:
    return status;
}

static shoal_status add_items(struct machine *m, int64_t first, enum shoali_value_kind kind)
{
    const int64_t count = m->depth - first;
    struct shoali_value *target = peek(m, count);
    if (target && target->kind == SHOALI_VALUE_OBJECT) {
        /* as what it is derived from would take them */
        if (!target->items)
            target->items = make(m, kind);
        if (!target->items)
            return SHOAL_ENOMEM;
        target = target->items;
    }
    if (!target || target->kind != kind)
        return FAIL(m, "items are added to an object that takes none");
    if (kind == SHOALI_VALUE_DICT && count % 2 != 0)
        return FAIL(m, "a dictionary has a key without a value");
    return move_items(m, target, first);
}

static shoal_status do_add_marked(struct machine *m, int kind)
{
    shoal_status status;
    int64_t first = 0;
    SHOAL_TRY(status, pop_mark(m, &first), done);
    SHOAL_TRY(status, add_items(m, first, (enum shoali_value_kind)kind), done);
done:
    return status;
}

/* The top value, or the top two for a dict. */
static shoal_status do_add(struct machine *m, int kind)
{
    const int64_t count = kind == SHOALI_VALUE_DICT ? 2 : 1;
    return peek(m, count) ? add_items(m, m->depth - count, (enum shoali_value_kind)kind)
                          : underflow(m);
}

/* ---- stack and memo ---- */

static shoal_status do_mark(struct machine *m, int unused)
{
    shoal_status status;
    (void)unused;
    if (m->mark_count >= STACK_MAX)
        return FAIL(m, "the pickle puts more than %d marks on its stack", STACK_MAX);
    SHOAL_TRY(status, grow((void **)&m->mark, m->mark_count, &m->mark_capacity, sizeof *m->mark),
              done);
    m->mark[m->mark_count++] = m->depth;
done:
    return status;
}

static shoal_status do_pop(struct machine *m, int marked)
{
    if (!marked && peek(m, 0)) {
        m->depth--;
        return SHOAL_OK;
    }
    /* without a value above it POP takes the mark itself */
    return pop_mark(m, &m->depth);
}

static shoal_status do_dup(struct machine *m, int unused)
{
    struct shoali_value *top = peek(m, 0);
    (void)unused;
    return top ? push(m, top) : underflow(m);
}

static shoal_status do_get(struct machine *m, int bytes)
{
    shoal_status status;
    int64_t index;
    SHOAL_TRY(status, take_number(m, bytes, &index), done);
    if (index >= m->memo_capacity || !m->memo[index])
        return FAIL(m, "the pickle asks for value %lld of its memo, which was never stored",
                    (long long)index);
    SHOAL_TRY(status, push(m, m->memo[index]), done);
done:
    return status;
}

/* bytes 0: the next free number. */
static shoal_status do_put(struct machine *m, int bytes)
{
    shoal_status status = SHOAL_OK;
    int64_t index = m->memo_count;
    struct shoali_value *top = peek(m, 0);
    if (!top)
        return underflow(m);
    if (bytes > 0)
        SHOAL_TRY(status, take_number(m, bytes, &index), done);
    if (index >= MEMO_MAX)
        return FAIL(m, "the pickle's memo has the number %lld; at most %d are supported",
                    (long long)index, MEMO_MAX - 1);
    SHOAL_TRY(status, grow((void **)&m->memo, index, &m->memo_capacity, sizeof *m->memo), done);
    m->memo_count += m->memo[index] == NULL;
    m->memo[index] = top;
done:
    return status;
}

/* ---- names, calls ---- */

static shoal_status push_global(struct machine *m, const char *module, const char *name)
{
    shoal_status status;
    struct shoali_value *value = NULL;
    SHOAL_TRY(status, shoali_pickle_global(m->pickle, m->opcode_at, module, name, &value), done);
    SHOAL_TRY(status, push(m, value), done);
done:
    return status;
}

static shoal_status do_global(struct machine *m, int unused)
{
    shoal_status status;
    char module[256], name[256];
    (void)unused;
    SHOAL_TRY(status, take_line(m, module), done);
    SHOAL_TRY(status, take_line(m, name), done);
    SHOAL_TRY(status, push_global(m, module, name), done);
done:
    return status;
}

static shoal_status do_stack_global(struct machine *m, int unused)
{
    const char *module = shoali_value_text(peek(m, 1)), *name = shoali_value_text(peek(m, 0));
    (void)unused;
    if (!module || !name)
        return FAIL(m, "the pickle names a class by a value that is not text");
    m->depth -= 2;
    return push_global(m, module, name);
}

enum call { CALL, NEW, NEW_WITH_NAMES };

static shoal_status do_call(struct machine *m, int how)
{
    shoal_status status;
    const int64_t values = how == NEW_WITH_NAMES ? 3 : 2;
    struct shoali_value *result = NULL;
    if (!peek(m, values - 1))
        return underflow(m);
    struct shoali_value *callee = peek(m, values - 1), *arguments = peek(m, values - 2);
    if (arguments->kind != SHOALI_VALUE_TUPLE)
        return FAIL(m, "the pickle calls with arguments that are not a tuple");
    SHOAL_TRY(status, shoali_pickle_call(m->pickle, m->opcode_at, callee, arguments, &result),
              done);
    if (how == NEW_WITH_NAMES && result->kind == SHOALI_VALUE_OBJECT)
        result->state = peek(m, 0);
    m->depth -= values;
    SHOAL_TRY(status, push(m, result), done);
done:
    return status;
}

static shoal_status do_build(struct machine *m, int unused)
{
    struct shoali_value *target = peek(m, 1), *state = peek(m, 0);
    (void)unused;
    if (!target)
        return underflow(m);
    m->depth--;
    return shoali_pickle_set_state(m->pickle, m->opcode_at, target, state);
}

static shoal_status do_persistent(struct machine *m, int unused)
{
    shoal_status status;
    struct shoali_value *id = peek(m, 0), *storage = NULL;
    (void)unused;
    if (!id)
        return underflow(m);
    SHOAL_TRY(status, shoali_pickle_storage(m->pickle, m->opcode_at, id, &storage), done);
    m->depth--;
    SHOAL_TRY(status, push(m, storage), done);
done:
    return status;
}

static shoal_status do_protocol(struct machine *m, int unused)
{
    shoal_status status;
    int64_t protocol;
    (void)unused;
    SHOAL_TRY(status, take_number(m, 1, &protocol), done);
    if (protocol < 2 || protocol > 5)
        status = FAIL(m, "a pickle of protocol %lld: 2 to 5 are supported", (long long)protocol);
done:
    return status;
}

static shoal_status do_frame(struct machine *m, int unused)
{
    int64_t bytes;
    (void)unused;
    return take_number(m, 8, &bytes); /* for readers that read ahead */
}

static shoal_status do_stop(struct machine *m, int unused)
{
    (void)unused;
    if (!peek(m, 0) || m->mark_count > 0)
        return underflow(m);
    m->pickle->root = peek(m, 0);
    m->stopped = true;
    return SHOAL_OK;
}

struct instruction {
    shoal_status (*run)(struct machine *m, int argument);
    int argument;
};
/* By byte, as Python's pickletools lists them. */
static const struct instruction instructions[256] = {
    [0x80] = {do_protocol, 0},
    [0x95] = {do_frame, 0},
    ['.'] = {do_stop, 0},
    ['N'] = {do_constant, -1},
    [0x88] = {do_constant, 1},
    [0x89] = {do_constant, 0},
    ['J'] = {do_integer, 4},
    ['K'] = {do_integer, 1},
    ['M'] = {do_integer, 2},
    [0x8a] = {do_long, 1},
    [0x8b] = {do_long, 4},
    ['G'] = {do_float, 0},
    ['X'] = {do_string, 4},
    [0x8c] = {do_string, 1},
    [0x8d] = {do_string, 8},
    ['U'] = {do_string, 1},
    ['T'] = {do_string, 4},
    ['C'] = {do_string, -1},
    ['B'] = {do_string, -4},
    [0x8e] = {do_string, -8},
    [0x96] = {do_string, -8},
    [']'] = {do_empty, SHOALI_VALUE_LIST},
    ['}'] = {do_empty, SHOALI_VALUE_DICT},
    [')'] = {do_empty, SHOALI_VALUE_TUPLE},
    [0x8f] = {do_empty, SHOALI_VALUE_SET},
    [0x85] = {do_tuple, 1},
    [0x86] = {do_tuple, 2},
    [0x87] = {do_tuple, 3},
    ['t'] = {do_collect, SHOALI_VALUE_TUPLE},
    ['l'] = {do_collect, SHOALI_VALUE_LIST},
    ['d'] = {do_collect, SHOALI_VALUE_DICT},
    [0x91] = {do_collect, SHOALI_VALUE_SET},
    ['a'] = {do_add, SHOALI_VALUE_LIST},
    ['s'] = {do_add, SHOALI_VALUE_DICT},
    ['e'] = {do_add_marked, SHOALI_VALUE_LIST},
    ['u'] = {do_add_marked, SHOALI_VALUE_DICT},
    [0x90] = {do_add_marked, SHOALI_VALUE_SET},
    ['('] = {do_mark, 0},
    ['0'] = {do_pop, 0},
    ['1'] = {do_pop, 1},
    ['2'] = {do_dup, 0},
    ['h'] = {do_get, 1},
    ['j'] = {do_get, 4},
    ['q'] = {do_put, 1},
    ['r'] = {do_put, 4},
    [0x94] = {do_put, 0},
    ['c'] = {do_global, 0},
    [0x93] = {do_stack_global, 0},
    ['R'] = {do_call, CALL},
    [0x81] = {do_call, NEW},
    [0x92] = {do_call, NEW_WITH_NAMES},
    ['b'] = {do_build, 0},
    ['Q'] = {do_persistent, 0},
};

shoal_status shoali_pickle_read(struct shoali_pickle *pickle)
{
    shoal_status status = SHOAL_OK;
    struct machine m = {.pickle = pickle, .at = pickle->begin};
    m.window = shoali_malloc(WINDOW_BYTES, "part of a pickle");
    if (!m.window)
        return SHOAL_ENOMEM;
    while (!m.stopped) {
        unsigned char opcode;
        m.opcode_at = m.at;
        SHOAL_TRY(status, take(&m, 1, &opcode), done);
        const struct instruction *instruction = &instructions[opcode];
        if (!instruction->run) {
            status = FAIL(&m,
                          "0x%02x is no instruction of a pickle of protocols 2 to 5, or one that "
                          "needs objects from outside",
                          opcode);
            goto done;
        }
        SHOAL_TRY(status, instruction->run(&m, instruction->argument), done);
    }
    pickle->stop = m.at;
done:
    shoali_free(m.window);
    free(m.stack);
    free(m.mark);
    free(m.memo);
    return status;
}
