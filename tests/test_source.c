/* test_source.c - packed files: whole, in pieces, cut off, damaged, and larger than they look. */
#include <stdlib.h>
#define ZLIB_CONST
#include <zlib.h>
#include <zstd.h>

#include "tests/examples.h"
#include "trainer/base/source.h"

enum { PACKED = 1 << 20 };

/* Append the text as one gzip member or zstd frame; returns the bytes that it takes. */
static size_t pack(enum packing p, unsigned char *out, const void *text, size_t n)
{
    if (p == PACKING_ZSTD) {
        const size_t size = ZSTD_compress(out, PACKED, text, n, 3);
        CHECK(!ZSTD_isError(size), "zstd");
        return size;
    }
    z_stream z = {0};
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK, "zlib");
    z.next_in = text;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = PACKED;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END, "zlib");
    (void)deflateEnd(&z);
    return z.total_out;
}

/* All bytes of a file through a small buffer; NULL with err set when it can't be read. */
static char *read_whole(const char *path, size_t step, size_t *n, struct err *err)
{
    struct source *s;
    char *all = malloc(PACKED);
    size_t got = 1;

    *n = 0;
    *err = (struct err){0};
    CHECK(all != NULL, "no memory");
    if (source_open(&s, path, "file", ERR_BAD_TRAINING_FILE, err) != 0) {
        free(all);
        return NULL;
    }
    while (got > 0 && *n + step <= PACKED && source_read(s, all + *n, step, &got, err) == 0) {
        *n += got;
    }
    EXPECT(err->code != ERR_NONE || source_done(s) == source_total(s));
    source_close(s);
    return all;
}

static void comes_back_as(const unsigned char *bytes, size_t size, const char *text, size_t n)
{
    static const size_t steps[] = {1, 7, 65536};
    struct err err;
    size_t got;

    put_file(in_scratch("packed"), bytes, size);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        char *all = read_whole(in_scratch("packed"), steps[i], &got, &err);
        EXPECT(all != NULL && err.code == ERR_NONE && got == n && memcmp(all, text, n) == 0);
        free(all);
    }
}

static void members_and_frames_follow_each_other(void)
{
    static const unsigned char skipped[] = {0x50, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'};
    unsigned char bytes[4096];

    for (enum packing p = PACKING_GZIP; p < PACKING_COUNT; p++) {
        size_t n = pack(p, bytes, "one ", 4);
        comes_back_as(bytes, n, "one ", 4);
        n += pack(p, bytes + n, "", 0);
        n += pack(p, bytes + n, "two", 3);
        comes_back_as(bytes, n, "one two", 7);
        if (p == PACKING_GZIP) { /* as tar and tape drives pad */
            memset(bytes + n, 0, 512);
            comes_back_as(bytes, n + 512, "one two", 7);
        }
    }
    /* A frame that decoders skip, in front. */
    memcpy(bytes, skipped, sizeof skipped);
    const size_t n = pack(PACKING_ZSTD, bytes + sizeof skipped, "text", 4);
    comes_back_as(bytes, sizeof skipped + n, "text", 4);
    comes_back_as((const unsigned char *)"plain", 5, "plain", 5);
    comes_back_as((const unsigned char *)"", 0, "", 0);
}

static void refuses_what_is_cut_off_or_damaged(void)
{
    unsigned char bytes[8192];
    char text[4096];
    uint32_t state = 1;
    struct err err;
    size_t got;

    for (size_t i = 0; i < sizeof text; i++) {
        state = state * 1664525U + 1013904223U;
        text[i] = (char)('a' + (state >> 24) % 26);
    }
    for (enum packing p = PACKING_GZIP; p < PACKING_COUNT; p++) {
        const size_t n = pack(p, bytes, text, sizeof text);
        for (size_t cut = 4; cut < n; cut += cut < n - 20 ? 97 : 1) {
            put_file(in_scratch("cut"), bytes, cut);
            free(read_whole(in_scratch("cut"), 1000, &got, &err));
            EXPECT(err.code == ERR_BAD_TRAINING_FILE && strstr(err.text, "cut off") != NULL);
        }
        bytes[n / 2] ^= 0x55;
        bytes[n / 2 + 1] ^= 0x55;
        put_file(in_scratch("bad"), bytes, n);
        free(read_whole(in_scratch("bad"), 1000, &got, &err));
        EXPECT(p != PACKING_GZIP ||
               (err.code == ERR_BAD_TRAINING_FILE && strstr(err.text, "damaged") != NULL));
        bytes[n / 2] ^= 0x55;
        bytes[n / 2 + 1] ^= 0x55;
        memset(bytes + n, 'j', 4);
        put_file(in_scratch("junk"), bytes, n + 4);
        free(read_whole(in_scratch("junk"), 1000, &got, &err));
        EXPECT(err.code == ERR_BAD_TRAINING_FILE);
    }
}

static void a_bomb_is_refused_in_bounded_memory(void)
{
    static unsigned char bytes[PACKED];
    static char zeros[1 << 22], out[1 << 16];
    struct source *s;
    struct err err = {0};
    size_t n = 0, got = 1;

    for (int i = 0; i < 600; i++) { /* 2.4 GiB in 100 KB */
        n += pack(PACKING_ZSTD, bytes + n, zeros, sizeof zeros);
    }
    put_file(in_scratch("bomb"), bytes, n);
    EXPECT(source_open(&s, in_scratch("bomb"), "bomb", ERR_BAD_TRAINING_FILE, &err) == 0);
    while (got > 0 && source_read(s, out, sizeof out, &got, &err) == 0) {
    }
    EXPECT(err.code == ERR_BAD_TRAINING_FILE && strstr(err.text, "1000 times its size") != NULL);
    source_close(s);
}

static void examples_come_out_of_packed_files(void)
{
    static const char rows[] = "{\"text\":\"a\"}\n{\"text\":\"b\"}\n";
    static const char array[] = "[{\"text\":\"a\"},{\"text\":\"b\"}]";
    unsigned char bytes[4096];
    struct err err;

    for (enum packing p = PACKING_GZIP; p < PACKING_COUNT; p++) {
        json_t *report = report_of(bytes, pack(p, bytes, rows, sizeof rows - 1), NULL, &err);
        EXPECT(err.code == ERR_NONE && number_of(report, "usable") == 2);
        EXPECT(strcmp(word_of(report, "compression"), packing_name(p)) == 0);
        json_decref(report);
        report = report_of(bytes, pack(p, bytes, array, sizeof array - 1), NULL, &err);
        EXPECT(err.code == ERR_NONE && number_of(report, "usable") == 2);
        json_decref(report);
        report = report_of(bytes, pack(p, bytes, "just text\n", 10), NULL, &err);
        EXPECT(err.code == ERR_NONE && strcmp(word_of(report, "format"), "text") == 0);
        json_decref(report);
        report = report_of(bytes, pack(p, bytes, "PAR1", 4), NULL, &err);
        EXPECT(strstr(err.text, "Parquet") != NULL);
        json_decref(report);
        const size_t n = pack(p, bytes, rows, sizeof rows - 1);
        char *twice = malloc(4096);
        report = report_of(twice, pack(p, (unsigned char *)twice, bytes, n), NULL, &err);
        EXPECT(strstr(err.text, "twice") != NULL);
        json_decref(report);
        free(twice);
    }
}

/* 100,000 rows, of which the file's end is missing: what was read is counted, and the damage is what is refused. */
static void a_cut_off_file_is_reported_with_what_was_read(void)
{
    static unsigned char bytes[PACKED];
    char *text = NULL;
    size_t n = 0;
    struct err err;
    FILE *f = open_memstream(&text, &n);

    for (int i = 0; i < 50000; i++) {
        (void)fprintf(f, "{\"text\":\"row %d\"}\n", i);
    }
    (void)fclose(f);
    const size_t size = pack(PACKING_GZIP, bytes, text, n);
    free(text);
    json_t *report = report_of(bytes, size - size / 4, NULL, &err);
    EXPECT(err.code == ERR_BAD_TRAINING_FILE && strstr(err.text, "cut off") != NULL);
    EXPECT(reason_of(report, "damaged") != NULL);
    EXPECT(number_of(report, "examples") > 10000 && number_of(report, "examples") < 50000);
    json_decref(report);
}

int main(void)
{
    scratch_make();
    RUN(members_and_frames_follow_each_other);
    RUN(refuses_what_is_cut_off_or_damaged);
    RUN(a_bomb_is_refused_in_bounded_memory);
    RUN(examples_come_out_of_packed_files);
    RUN(a_cut_off_file_is_reported_with_what_was_read);
    scratch_remove();
    return tap_done();
}
