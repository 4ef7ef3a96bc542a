/* Walks lines along known shapes and reads their numbers into columns; kernel.py lays out the arrays.
 *
 * A shape is a row of literals with a run of digits between each two; the last literal ends with the line end. A line is
 * of a shape only if every byte of every literal is there and each run's length is within its bounds, so that nothing is
 * ever read by likeness. Lines of no known shape are handed back. */

#include <stdint.h>
#include <string.h>

enum { STRICT = 0, NOISE = 1, COLUMNS = 2 };
enum { DONE = 0, LEARN = 1, FULL = 2 };
enum { CONSTANT = 0, WHOLE = 1, REAL = 2 };
enum { NO_TIME = 0, DATED = 1, UNDATED = 2 };

typedef struct {
    const uint8_t *literals;       /* bytes of all literals of all shapes */
    const int32_t *literal_begin;  /* of piece i */
    const int32_t *literal_length;
    const int8_t *shortest;        /* of the run after piece i */
    const int8_t *longest;
    const int8_t *canonical;       /* a leading zero is refused */
    const int64_t *exact;          /* the one number allowed, -1 for any */
    const int32_t *first_piece;    /* of shape s */
    const int32_t *runs;
    const int32_t *action;
    const int32_t *clock;          /* four of each shape: runs of date and time (-1 for none), milliseconds or not, family */
    const int32_t *first_value;
    const int32_t *values;
    const int32_t *kind;           /* of value v */
    const int32_t *column;
    const int32_t *run;
    const int64_t *constant;       /* of CONSTANT its bits, of WHOLE its sign, of REAL its scale with its sign */
    int32_t *order;                /* shapes, the lately seen first */
    int32_t shapes;
} Shapes;

typedef struct {
    int64_t **cells;    /* of column c: whole numbers, or the bits of doubles */
    uint8_t **there;
    int32_t *lines;
    int64_t *begins;
    int64_t *stamps;    /* milliseconds of the day, or since 1970-01-01 where DATED */
    uint8_t *timed;
    int8_t *family;
    int64_t rows, capacity;
    int64_t *counts;    /* of shape s: its lines */
    int32_t *strict_lines;
    int64_t *strict_begins;
    int32_t *strict_known;
    int64_t stricts, strict_capacity;
    int64_t date, days; /* the date last seen as one number, and its days since 1970-01-01 */
    int64_t position;
    int32_t line;
} State;

static const uint8_t *walk(const Shapes *shapes, int32_t shape, const uint8_t *at, const uint8_t *end, int64_t *values)
{
    int32_t piece = shapes->first_piece[shape];
    int32_t runs = shapes->runs[shape];
    for (int32_t run = 0;; run++, piece++) {
        int32_t length = shapes->literal_length[piece];
        const uint8_t *literal = shapes->literals + shapes->literal_begin[piece];
        if (end - at < length || memcmp(at, literal, (size_t)length))
            return 0;
        at += length;
        if (run == runs)
            return at;
        const uint8_t *begin = at;
        uint64_t value = 0;
        while (at < end && (uint8_t)(*at - '0') < 10 && at - begin < 19) {
            value = value * 10 + (uint64_t)(*at - '0');
            at++;
        }
        int64_t digits = at - begin;
        if (digits < shapes->shortest[piece] || digits > shapes->longest[piece])
            return 0;
        if (shapes->canonical[piece] && digits > 1 && *begin == '0')
            return 0;
        if (shapes->exact[piece] >= 0 && shapes->exact[piece] != (int64_t)value)
            return 0;
        values[run] = (int64_t)value;
    }
}

/* Days since 1970-01-01 by the Gregorian calendar, INT64_MIN where there is no such date. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    static const int8_t lengths[] = {0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    if (year < 1 || month < 1 || month > 12 || day < 1 || day > lengths[month] + (leap && month == 2))
        return INT64_MIN;
    int64_t shifted = year - (month <= 2), era = shifted / 400, of_era = shifted - era * 400;
    int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static void stamp(const int32_t *clock, const int64_t *values, State *state, int64_t row)
{
    state->timed[row] = NO_TIME;
    state->stamps[row] = 0;
    if (clock[1] < 0)
        return;
    const int64_t *time = values + clock[1];
    if (time[0] > 23 || time[1] > 59 || time[2] > 59)
        return;
    int64_t stamp = ((time[0] * 60 + time[1]) * 60 + time[2]) * 1000 + (clock[2] ? time[3] : 0);
    if (clock[0] >= 0) {
        const int64_t *date = values + clock[0];
        int64_t packed = (date[0] * 100 + date[1]) * 100 + date[2];
        if (packed != state->date) {
            state->date = packed;
            state->days = days_of(date[0], date[1], date[2]);
        }
        if (state->days == INT64_MIN)
            return;
        stamp += state->days * 86400000;
    }
    state->stamps[row] = stamp;
    state->timed[row] = clock[0] >= 0 ? DATED : UNDATED;
}

static void put(const Shapes *shapes, int32_t shape, const int64_t *values, State *state, int64_t row)
{
    int32_t first = shapes->first_value[shape], last = first + shapes->values[shape];
    for (int32_t value = first; value < last; value++) {
        int64_t *cell = state->cells[shapes->column[value]] + row;
        int64_t constant = shapes->constant[value];
        state->there[shapes->column[value]][row] = 1;
        if (shapes->kind[value] == CONSTANT) {
            *cell = constant;
        } else if (shapes->kind[value] == WHOLE) {
            *cell = values[shapes->run[value]] * constant;
        } else {
            int64_t scale = constant < 0 ? -constant : constant;
            int64_t number = values[shapes->run[value]];
            if (scale > 1)
                number = number * scale + values[shapes->run[value] + 1];
            double real = (double)number / (double)constant;
            memcpy(cell, &real, sizeof real);
        }
    }
}

/* Reads `block` from the state's position on; `unknown` lines of no known shape end the call with LEARN. */
int32_t kvdiag_scan(const uint8_t *block, int64_t length, const Shapes *shapes, State *state, int32_t unknown)
{
    int64_t values[64];
    const uint8_t *at = block + state->position, *end = block + length;
    int32_t found_unknown = 0, result = DONE;
    while (at < end && result == DONE) {
        if (state->stricts >= state->strict_capacity || state->rows >= state->capacity) {
            result = FULL;
            break;
        }
        const uint8_t *next = 0;
        int32_t place = 0, shape = -1;
        for (; place < shapes->shapes && !next; place++) {
            shape = shapes->order[place];
            next = walk(shapes, shape, at, end, values);
        }
        if (next && place > 1) {
            shapes->order[place - 1] = shapes->order[place - 2];
            shapes->order[place - 2] = shape;
        }
        int32_t action = next ? shapes->action[shape] : STRICT;
        if (next)
            state->counts[shape]++;
        if (action == COLUMNS) {
            int64_t row = state->rows++;
            state->lines[row] = state->line;
            state->begins[row] = at - block;
            state->family[row] = (int8_t)shapes->clock[4 * shape + 3];
            stamp(shapes->clock + 4 * shape, values, state, row);
            put(shapes, shape, values, state, row);
        } else if (action == STRICT) {
            state->strict_lines[state->stricts] = state->line;
            state->strict_begins[state->stricts] = at - block;
            state->strict_known[state->stricts++] = next != 0;
        }
        if (!next) {
            const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
            next = newline ? newline + 1 : end;
            if (++found_unknown >= unknown)
                result = LEARN;
        }
        at = next;
        state->line++;
    }
    state->position = at - block;
    return result;
}
