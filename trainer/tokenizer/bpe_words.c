/* bpe_words.c - the words of a text and how often each occurs, for learning a BPE. */
#include "trainer/tokenizer/bpe_words.h"

#include <string.h>

#include "trainer/tokenizer/regex.h"
#include "trainer/tokenizer/text_file.h"
#include "trainer/tokenizer/vocab.h"

static uint32_t *slot_of(const struct bpe_words *w, const char *s, size_t n)
{
    size_t i = hash_bytes(s, n, w->seed) & (w->slot_count - 1);

    while (w->slots[i] != 0) {
        const struct word_place *p = &w->words[w->slots[i] - 1];
        if (p->n == n && memcmp(w->pool.at + p->at, s, n) == 0) {
            break;
        }
        i = (i + 1) & (w->slot_count - 1);
    }
    return &w->slots[i];
}

static int grow(struct bpe_words *w, struct err *err)
{
    const size_t room = w->room == 0 ? 4096 : w->room * 2;

    if (room > UINT32_MAX / 4) {
        return FAIL(err, ERR_NO_MEMORY, "the text has more than %zu different words", w->count);
    }
    TRY(text_reserve(&w->places, room * sizeof *w->words, err));
    w->words = (void *)w->places.at;
    w->room = room;
    TRY(text_reserve(&w->table, room * 2 * sizeof *w->slots, err));
    memset(w->table.at, 0, room * 2 * sizeof *w->slots);
    w->slots = (void *)w->table.at;
    if (w->slot_count == 0) {
        w->seed = hash_seed();
    }
    w->slot_count = room * 2;
    for (size_t i = 0; i < w->count; i++) {
        *slot_of(w, w->pool.at + w->words[i].at, w->words[i].n) = (uint32_t)(i + 1);
    }
    return 0;
}

static int count_word(struct bpe_words *w, const char *s, size_t n, struct err *err)
{
    if (n == 0) {
        return 0;
    }
    if (w->count == w->room) {
        TRY(grow(w, err));
    }
    uint32_t *slot = slot_of(w, s, n);
    if (*slot == 0) {
        const struct word_place p = {.at = w->pool.n, .n = n};
        TRY(text_put(&w->pool, s, n, err));
        w->words[w->count++] = p;
        *slot = (uint32_t)w->count;
    }
    w->words[*slot - 1].times++;
    return 0;
}

struct counter {
    struct bpe_words *words;
    struct regex *regex;     /* owned */
    struct regex_work *work; /* owned */
    struct err *err;
};

/* Count the words of a stretch of text; `open`: more of it follows. *used is how much was counted. */
static int count_stretch(struct counter *c, const char *s, size_t n, bool open, size_t *used)
{
    const struct regex_text text = {.s = s, .n = n, .open = open};
    size_t done = 0, start, end;

    while (done < n) {
        const enum regex_found f = regex_find(c->regex, c->work, &text, done, &start, &end, c->err);
        if (f == REGEX_FAILED) {
            return (int)c->err->code;
        }
        if (f != REGEX_MATCH || end == done) {
            break;
        }
        TRY(count_word(c->words, s + done, start - done, c->err));
        TRY(count_word(c->words, s + start, end - start, c->err));
        done = end;
    }
    if (!open) {
        TRY(count_word(c->words, s + done, n - done, c->err));
        done = n;
    }
    *used = done;
    return 0;
}

/* Count what is certain of a piece of text. */
static int count_text(struct counter *c, const char *s, size_t n, bool last, const char *special,
                      size_t *used)
{
    const size_t special_n = strlen(special);
    size_t done = 0, part = 0;

    for (;;) {
        const char *at = memmem(s + done, n - done, special, special_n);
        if (at == NULL) {
            break;
        }
        TRY(count_stretch(c, s + done, (size_t)(at - s) - done, false, &part));
        done = (size_t)(at - s) + special_n;
    }
    /* The end may be the beginning of the special token; a cut there falls on a character's start. */
    size_t end = n;
    if (!last) {
        end = n - done > special_n ? n - special_n : done;
        while (end > done && ((unsigned char)s[end] & 0xC0U) == 0x80U) {
            end--;
        }
    }
    TRY(count_stretch(c, s + done, end - done, !last, &part));
    *used = done + part;
    return 0;
}

static int count_file(struct counter *c, struct text_file *f, const char *special,
                      const struct bpe_options *o)
{
    while (!f->last) {
        size_t used;
        TRY(text_file_more(f, c->err));
        TRY(count_text(c, f->text, f->n, f->last, special, &used));
        text_file_use(f, used);
        if (o->progress != NULL) {
            o->progress(o->context, f->done, f->total);
        }
    }
    return 0;
}

int bpe_words_read(struct bpe_words *w, const char *path, const char *pattern, const char *special,
                   const struct bpe_options *o, struct err *err)
{
    struct counter c = {.words = w, .err = err};
    struct text_file f;

    TRY(text_file_open(&f, path, o->name, ERR_BAD_TRAINING_FILE, err));
    int rc = regex_new(&c.regex, pattern, strlen(pattern), err);
    if (rc == 0) {
        rc = regex_work_new(&c.work, err);
    }
    if (rc == 0) {
        rc = count_file(&c, &f, special, o);
    }
    regex_free(c.regex);
    regex_work_free(c.work);
    text_file_close(&f);
    return rc;
}

void bpe_words_free(struct bpe_words *w)
{
    text_free(&w->places);
    text_free(&w->table);
    text_free(&w->pool);
    *w = (struct bpe_words){0};
}
